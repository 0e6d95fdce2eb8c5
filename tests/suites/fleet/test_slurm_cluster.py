"""The tests' own Slurm cluster does what a cluster does, and leaves nothing behind."""

import json
import os
import pwd
import subprocess
import traceback
from pathlib import Path
from typing import Any

import psutil
import pytest
import slurm_cluster
from processes import gone, wait_until
from slurm_cluster import Cluster

pytestmark = pytest.mark.xdist_group("slurm")


def state(slurm: Cluster, job: str) -> str:
    return slurm.command("squeue", "-h", "-a", "-t", "all", "-j", job, "-o", "%T")


def wait_for(slurm: Cluster, job: str, wanted: str) -> None:
    wait_until(lambda: state(slurm, job) == wanted, f"{wanted} of job {job}")


def processes_of(slurm: Cluster, job: str) -> list[psutil.Process]:
    def belongs(process: psutil.Process) -> bool:
        try:
            return process.environ().get("SLURM_JOB_ID") == job
        except psutil.Error:
            return False

    return [each for each in slurm.processes() if belongs(each)]


def test_both_nodes_are_idle(slurm: Cluster) -> None:
    assert slurm.states() == {"n1": "idle", "n2": "idle"}
    assert not slurm_cluster.programs()


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_job_runs_on_the_node_that_it_names(slurm: Cluster, node: str, tmp_path: Path) -> None:
    job = slurm.submit("echo on $SLURMD_NODENAME", "--nodelist", node, "--output", str(tmp_path / "log"))
    wait_for(slurm, job, "COMPLETED")
    assert (tmp_path / "log").read_text() == f"on {node}\n"


def test_an_exclusive_job_keeps_others_waiting(slurm: Cluster) -> None:
    first = slurm.submit("sleep 300", "--exclusive", "--nodelist", "n1")
    wait_for(slurm, first, "RUNNING")
    second = slurm.submit("sleep 300", "--exclusive", "--nodelist", "n1")
    wait_until(lambda: "Resources" in slurm.command("squeue", "-h", "-j", second, "-o", "%T %r"), "its reason to wait")
    slurm.command("scancel", first)
    wait_for(slurm, second, "RUNNING")


def test_a_job_that_is_killed_has_failed(slurm: Cluster) -> None:
    job = slurm.submit("exec sleep 300")
    wait_for(slurm, job, "RUNNING")
    wait_until(lambda: processes_of(slurm, job), "its process")[-1].kill()
    wait_for(slurm, job, "FAILED")


def test_a_node_that_is_set_down_fails_its_job(slurm: Cluster) -> None:
    job = slurm.submit("sleep 300", "--nodelist", "n1")
    wait_for(slurm, job, "RUNNING")
    slurm.set_down("n1")
    wait_for(slurm, job, "NODE_FAIL")
    assert slurm.states() == {"n1": "down", "n2": "idle"}
    slurm.resume("n1")
    assert slurm.states() == {"n1": "idle", "n2": "idle"}


def test_a_node_vanishes_and_comes_back_and_so_does_the_controller(slurm: Cluster) -> None:
    job = slurm.submit("sleep 300", "--nodelist", "n2")
    wait_for(slurm, job, "RUNNING")
    slurm.stop_node("n1")
    slurm.start_node("n1")
    slurm.stop_controller()
    asked = subprocess.run(["squeue"], env=slurm.impatient, capture_output=True, text=True)
    assert "Unable to contact slurm controller" in asked.stderr
    slurm.start_controller()
    wait_for(slurm, job, "RUNNING")


def test_there_is_no_accounting(slurm: Cluster) -> None:
    with pytest.raises(AssertionError, match="accounting storage is disabled"):
        slurm.command("sacct")


def ended_cluster(fails: bool, without_controller: bool = False) -> dict[str, Any]:
    """Start a cluster with a job that sends one process away; return what is left of it, and what was there."""
    known: list[int] = []
    own = None
    try:
        with slurm_cluster.cluster(nodes=1) as own:
            job = own.submit("setsid sleep 300 & exec sleep 300")
            wait_until(lambda: len(processes_of(own, job)) == 2, "both processes")
            known = [each.pid for each in own.processes()]
            if without_controller:
                own.stop_controller()
            if fails:
                raise KeyError("as a test may")
    except KeyError:
        if not fails:
            raise
    assert own is not None
    left = [pid for pid in known if not gone(pid)]
    return {"known": len(known), "left": left, "found": len(own.processes()), "folder": own.folder.exists()}


def nothing_left(told: dict[str, Any]) -> bool:
    # munged, slurmctld, slurmd, what starts the job's step, and two processes of the job.
    return told.pop("known") >= 6 and told == {"left": [], "found": 0, "folder": False}


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left(slurm: Cluster, fails: bool) -> None:
    assert nothing_left(ended_cluster(fails))


@pytest.mark.slow
def test_nothing_is_left_of_a_cluster_without_controller(slurm: Cluster) -> None:
    assert nothing_left(ended_cluster(fails=True, without_controller=True))


@pytest.mark.skipif(
    os.getuid() != 0, reason="only root can become another user; the other tests are without rights already"
)
def test_a_user_without_rights_has_a_cluster_too(slurm: Cluster, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            nobody = pwd.getpwnam("nobody")
            os.chdir("/")
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)
            os.write(writing, json.dumps(ended_cluster(fails=False)).encode())
        except BaseException:
            os.write(writing, json.dumps({"known": 0, "error": traceback.format_exc()[-2000:]}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        told = json.loads(answer.read())
    os.waitpid(child, 0)
    assert nothing_left(told), told

"""Jobs on a real Slurm cluster: whatever becomes of one is seen without accounting, and nothing of it is a surprise."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from processes import wait_until
from slurm_cluster import Cluster

from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.fleet.schedulers import slurm_programs
from dlbench.suites.fleet.schedulers.scheduler import ENDED, GONE, RUNNING, UNKNOWN, WAITING, Scheduler, Seen, Wanted
from dlbench.suites.fleet.schedulers.slurm import Slurm
from dlbench.suites.fleet.schedulers.slurm_options import SlurmOptions

pytestmark = pytest.mark.xdist_group("slurm")

#: Says when it is ready to be ended, and ends in its own way.
ORDERLY = """
import signal, sys, time
def end(*_):
    print("ended in order", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(300)
"""
PYTHON = (sys.executable, "-c")
NOWHERE = "999999"


@pytest.fixture
def scheduler(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """Give the cluster as a scheduler, as the user's environment names it."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    monkeypatch.chdir(tmp_path)
    return Slurm(tmp_path / "jobs")


def run(scheduler: Scheduler, *command: str, node: str = "n1", number: int = 1) -> str:
    return scheduler.submit(Wanted(number, node, command))


def seen(scheduler: Scheduler, handle: str) -> Seen:
    return scheduler.seen([handle])[handle]


def wait_for(scheduler: Scheduler, handle: str, state: str) -> Seen:
    wait_until(lambda: seen(scheduler, handle).state == state, f"{state} of job {handle}")
    return seen(scheduler, handle)


def said(scheduler: Scheduler, handle: str) -> str:
    log = scheduler.log(handle)
    return log.read_text() if log is not None and log.exists() else ""


def running(scheduler: Scheduler, node: str = "n1") -> str:
    handle = run(scheduler, *PYTHON, ORDERLY, node=node)
    wait_until(lambda: "ready" in said(scheduler, handle), "its first words, while it runs")
    return handle


def test_a_job_runs_on_its_node_as_this_process_would(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLBENCH_TOLD", "to the job")
    shows = "import os, sys; print(os.getcwd(), os.environ['DLBENCH_TOLD'], os.environ['SLURMD_NODENAME'])"
    handle = run(scheduler, *PYTHON, f"{shows}; print('an error', file=sys.stderr)", node="n2")
    assert seen(scheduler, handle).state in (WAITING, RUNNING)
    assert wait_for(scheduler, handle, ENDED) == Seen(ENDED, "COMPLETED", "n2")
    assert f"{tmp_path} to the job n2\n" in said(scheduler, handle)
    assert "an error\n" in said(scheduler, handle)


def test_a_job_waits_behind_one_that_has_the_node_to_itself(scheduler: Scheduler) -> None:
    first = running(scheduler)
    assert seen(scheduler, first) == Seen(RUNNING, "RUNNING", "n1")
    second = run(scheduler, "true", number=2)
    wait_until(lambda: seen(scheduler, second).words == "PENDING (Resources)", "its reason to wait")
    assert seen(scheduler, second) == Seen(WAITING, "PENDING (Resources)")
    scheduler.cancel([first])
    assert wait_for(scheduler, second, ENDED).words == "COMPLETED"


def test_a_job_that_is_cancelled_ends_in_its_own_way(scheduler: Scheduler) -> None:
    handle, other = running(scheduler), run(scheduler, "true", number=2)
    scheduler.cancel([handle, other, NOWHERE])
    wait_until(lambda: "ended in order" in said(scheduler, handle), "its last words")
    assert wait_for(scheduler, handle, ENDED).words == "CANCELLED"
    assert wait_for(scheduler, other, ENDED).words.startswith("CANCELLED")
    scheduler.cancel([handle])
    scheduler.cancel([NOWHERE])
    scheduler.cancel([])


@pytest.mark.parametrize(
    ("command", "told"),
    [(("sh", "-c", "echo so sorry; exit 5"), "so sorry"), (("no-such-command",), "no-such-command")],
)
def test_a_job_that_fails(scheduler: Scheduler, command: tuple[str, ...], told: str) -> None:
    handle = run(scheduler, *command)
    assert wait_for(scheduler, handle, ENDED) == Seen(ENDED, "FAILED (NonZeroExitCode)", "n1")
    assert told in said(scheduler, handle)


def test_a_job_that_is_killed(scheduler: Scheduler, slurm: Cluster) -> None:
    handle = running(scheduler)
    [process] = [each for each in slurm.processes() if ORDERLY in _words(each)]
    process.kill()
    told = wait_for(scheduler, handle, ENDED)
    assert told.words.startswith("FAILED (")
    assert "ended in order" not in said(scheduler, handle)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_node_that_goes_down(scheduler: Scheduler, slurm: Cluster) -> None:
    handle = running(scheduler)
    assert scheduler.usable("n1")
    slurm.set_down("n1")
    assert wait_for(scheduler, handle, ENDED) == Seen(ENDED, "NODE_FAIL (NodeDown)", "n1")
    assert [scheduler.usable(node) for node in ("n1", "n2", "n3")] == [False, True, False]
    assert scheduler.nodes(None, ()) == ["n2"]
    with pytest.raises(UsageError, match=r"^2 nodes asked for, 1 can be used: 1 down, 1 idle\.$"):
        scheduler.nodes(2, ())
    with pytest.raises(UsageError, match=r"No job can run there: node n1 is down \(test\)\."):
        scheduler.nodes(None, ("n2", "n1"))
    late = run(scheduler, "true")
    wait_until(lambda: "UnavailableNodes:n1" in seen(scheduler, late).words, "its reason to wait")
    assert seen(scheduler, late).state == WAITING


def test_a_controller_that_is_away(scheduler: Scheduler, slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = running(scheduler)
    slurm.stop_controller()
    monkeypatch.setenv("SLURM_CONF", slurm.impatient["SLURM_CONF"])
    away = "Unable to contact slurm controller"
    told = scheduler.seen([handle, NOWHERE])
    assert {(each.state, away in each.words) for each in told.values()} == {(UNKNOWN, True)}
    with pytest.raises(FrameworkEnvironmentError, match=away):
        run(scheduler, "true")
    with pytest.raises(FrameworkEnvironmentError, match=away):
        scheduler.cancel([handle])
    with pytest.raises(FrameworkEnvironmentError, match=away):
        scheduler.nodes(None, ())
    assert scheduler.usable("n1")
    slurm.start_controller()
    assert seen(scheduler, handle) == Seen(RUNNING, "RUNNING", "n1")


def test_jobs_that_the_controller_does_not_know(scheduler: Scheduler) -> None:
    handle = run(scheduler, "true")
    assert scheduler.seen([NOWHERE]) == {NOWHERE: Seen(GONE)}
    assert scheduler.seen([NOWHERE, "999998"]) == {NOWHERE: Seen(GONE), "999998": Seen(GONE)}
    both = scheduler.seen([NOWHERE, handle])
    assert both[NOWHERE] == Seen(GONE)
    assert both[handle].state != GONE
    assert scheduler.seen([]) == {}


def test_a_cluster_whose_squeue_refuses_a_list_for_one_unknown_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*words: str) -> str:
        jobs = words[words.index("-j") + 1].split(",")
        if NOWHERE in jobs:
            raise slurm_programs.CannotAskError("slurm_load_jobs error: Invalid job id specified")
        return "".join(f"{job}|RUNNING|n1|None\n" for job in jobs)

    monkeypatch.setattr(slurm_programs, "ask", refusing)
    assert slurm_programs.queue(["1", NOWHERE, "2"]) == dict.fromkeys(("1", "2"), ("RUNNING", "n1", "None"))


def test_nodes_that_are_idle_come_first(scheduler: Scheduler, tmp_path: Path) -> None:
    assert scheduler.nodes(None, ()) == ["n1", "n2"]
    assert scheduler.nodes(None, ("n2", "n1", "n2")) == ["n2", "n1"]
    assert scheduler.nodes(None, ("n[1", "2]")) == ["n1", "n2"]
    running(scheduler, node="n1")
    assert scheduler.nodes(1, ()) == ["n2"]
    assert scheduler.nodes(None, ()) == ["n2", "n1"]
    assert scheduler.usable("n1")
    with pytest.raises(UsageError, match=r"3 nodes asked for, 2 can be used: 1 \w+, 1 \w+\."):
        scheduler.nodes(3, ())
    with pytest.raises(UsageError, match=r"There is no node named 'n11'\. Did you mean 'n1'\?"):
        scheduler.nodes(None, ("n11",))
    assert Slurm(tmp_path, SlurmOptions(partition="all")).nodes(None, ()) == ["n2", "n1"]
    with pytest.raises(UsageError, match=r"no Slurm partition named 'mian'\. Did you mean 'main'\?"):
        Slurm(tmp_path, SlurmOptions(partition="mian")).nodes(None, ())


def test_what_slurm_refuses_is_said_in_its_words(scheduler: Scheduler, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^Slurm refused job 1: Invalid partition name specified\. Check [^\n]+$"):
        run(Slurm(tmp_path / "jobs", SlurmOptions(partition="mian")), "true", node="")
    with pytest.raises(UsageError, match=r"^Slurm refused job 7 on n9: Invalid node name specified\. [^\n]+$"):
        run(scheduler, "true", node="n9", number=7)
    with pytest.raises(UsageError, match=r"^Slurm refused job 1 on n1: .*no-such-option"):
        run(Slurm(tmp_path / "jobs", SlurmOptions(further={"no-such-option": "1"})), "true")


def test_options_reach_the_job(slurm: Cluster, scheduler: Scheduler, tmp_path: Path) -> None:
    given = SlurmOptions("all", minutes=2.5, exclusive=False, account="physics", further={"nice": "7", "hold": ""})
    handle = run(Slurm(tmp_path / "jobs", given), "true", node="n2", number=12)
    shown = dict(word.split("=", 1) for word in slurm.command("scontrol", "show", "job", handle).split() if "=" in word)
    wanted = {"JobName": "dlbench-12", "Partition": "all", "TimeLimit": "00:03:00", "Account": "physics", "Nice": "7"}
    wanted |= {"ReqNodeList": "n2", "Requeue": "0", "OverSubscribe": "OK", "Reason": "JobHeldUser"}
    assert {name: shown[name] for name in wanted} == wanted


def test_without_options_a_job_has_its_node_to_itself_and_no_limit_of_submitits(
    slurm: Cluster, scheduler: Scheduler
) -> None:
    handle = running(scheduler)
    shown = dict(word.split("=", 1) for word in slurm.command("scontrol", "show", "job", handle).split() if "=" in word)
    assert (shown["OverSubscribe"], shown["NumCPUs"]) == ("NO", "2")
    assert shown["TimeLimit"] in ("UNLIMITED", "365-00:00:00")  # as one of Slurm's two schedulers writes it


def test_the_node_needs_submitit_but_not_dlbench(scheduler: Scheduler, tmp_path: Path) -> None:
    handle = run(scheduler, "true")
    loads = "import sys, pickle; sys.modules['dlbench'] = None; print(pickle.load(open(sys.argv[1], 'rb')).args)"
    pickled = tmp_path / "jobs" / f"{handle}_submitted.pkl"
    done = subprocess.run([*PYTHON, loads, pickled], capture_output=True, text=True, cwd="/")
    assert done.stdout == "('env', ['env', 'true'])\n", done.stderr


def test_what_a_user_set_for_squeue_and_sinfo_does_not_matter(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = running(scheduler)
    for name, value in (("SQUEUE_PARTITION", "all"), ("SQUEUE_STATES", "FAILED"), ("SINFO_PARTITION", "none")):
        monkeypatch.setenv(name, value)
    assert seen(scheduler, handle).state == RUNNING
    assert scheduler.nodes(None, ()) == ["n2", "n1"]


@pytest.mark.slow
def test_a_job_is_told_before_its_time_is_over(scheduler: Scheduler, tmp_path: Path) -> None:
    handle = running(Slurm(tmp_path / "jobs", SlurmOptions(minutes=2)))
    wait_until(lambda: "ended in order" in said(scheduler, handle), "its last words")
    assert wait_for(scheduler, handle, ENDED).state == ENDED


def test_without_slurm_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    lacking = Slurm(tmp_path / "jobs")
    with pytest.raises(FrameworkEnvironmentError, match=r"^Slurm's sinfo was not found here[^\n]+$"):
        lacking.nodes(None, ())
    with pytest.raises(FrameworkEnvironmentError, match="srun"):
        run(lacking, "true")
    assert "squeue was not found" in seen(lacking, "1").words

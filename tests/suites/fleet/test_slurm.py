"""`dlbench fleet` on a real Slurm cluster, into a real PostgreSQL server."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from postgresql_server import Server
from processes import run_command, suite_of_null, wait_until

from dlbench.reports.results.storage.store import Store
from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.fleet.jobs import Seen
from dlbench.suites.fleet.slurm import Slurm

pytest.importorskip("submitit")
pytestmark = pytest.mark.xdist_group("slurm")

SECRET = "hunter2"
THREADS = 4
ORDERLY = """
import signal, sys, time
def end(*_):
    print("ended in order", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(300)
"""
NOWHERE = "999999"
AWAY = "Unable to contact slurm controller"


class Lab:
    """A cluster, a database and a folder that every node sees."""

    def __init__(self, slurm: Any, url: str, folder: Path) -> None:
        self.slurm, self.url, self.folder = slurm, url, folder

    def dlbench(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run the command as a user of the cluster does: the password is in the environment
        alone."""
        environment = {name: self.slurm.environment[name] for name in ("SLURM_CONF", "PATH")}
        done = run_command(self.folder, *words, DLBENCH_STORE=self.url, **environment)
        assert SECRET not in done.stdout + done.stderr
        return done

    def states(self) -> list[str]:
        return [
            job["state"]
            for job in json.loads(self.dlbench("fleet", "status", "--json").stdout)["jobs"]
        ]

    def measured(self) -> Counter[tuple[str, int]]:
        """Return how often each node measured each thread count."""
        with Store.open(self.url) as store:
            records = store.records()
        return Counter((record.node.name, record.cell.threads) for record in records if record.node)

    def of_node(self, node: str) -> int:
        return sum(count for (name, _), count in self.measured().items() if name == node)


@pytest.fixture
def lab(slurm: Any, postgresql: Server, database: str, tmp_path: Path) -> Lab:
    threads, protocol = list(range(1, THREADS + 1)), {"seconds": 5.0, "steps": 5}
    suite = suite_of_null(step_seconds=0.05, protocol=protocol, threads=threads, threads_limit=99)
    (tmp_path / "mine.toml").write_text(suite)
    return Lab(slurm, postgresql.url(database, password=SECRET), tmp_path)


# Slurm takes half a minute to give a node up. test_fleet.py loses jobs in every run.
@pytest.mark.slow
def test_a_node_dies_and_its_run_is_resumed_once_it_is_back(lab: Lab) -> None:
    begun = lab.dlbench(
        "fleet", "run", "mine.toml", "--on", "slurm", "--partition", "main", "--nodes", "2"
    )
    assert begun.returncode == 0, begun.stderr
    assert "for n1, n2" in begun.stderr
    wait_until(lambda: lab.of_node("n2") >= 1, "a record of n2")
    lab.slurm.set_down("n2")
    wait_until(lambda: lab.states()[1] == "ended early", "the dead node to be seen")
    waited = lab.dlbench("fleet", "status", "--wait")
    assert waited.returncode == 1
    assert "NODE_FAIL" in waited.stdout
    assert "fleet run mine.toml --resume --fleet" in waited.stdout
    assert 1 <= lab.of_node("n2") < THREADS
    assert lab.of_node("n1") == THREADS
    lab.slurm.resume("n2")
    resumed = lab.dlbench("fleet", "run", "mine.toml", "--resume", "--wait")
    assert resumed.returncode == 0, resumed.stderr
    assert lab.states() == ["finished", "finished"]
    assert lab.measured() == Counter(
        {(node, n): 1 for node in ("n1", "n2") for n in range(1, THREADS + 1)}
    )
    report = lab.dlbench("report", "fleet")
    assert report.returncode == 0, report.stderr
    assert all(node in report.stdout for node in ("n1", "n2"))


def test_a_shared_node_is_said_in_every_record_and_a_cancelled_job_keeps_its_own(lab: Lab) -> None:
    other_job = lab.slurm.submit("sleep 300", "-w", "n1", "-n", "1", "--mem", "100")
    wait_until(
        lambda: lab.slurm.command("squeue", "-h", "-j", other_job, "-o", "%T") == "RUNNING",
        "the other job",
    )
    words = (
        "--on",
        "slurm",
        "--nodelist",
        "n1",
        "--shared",
        "--slurm-option",
        "mem=100",
        "--launches",
        "50",
    )
    done = lab.dlbench("fleet", "run", "mine.toml", *words)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: lab.of_node("n1") >= 1, "the first record")
    assert "cancelled on n1" in lab.dlbench("fleet", "cancel", "--node", "n1").stderr
    wait_until(lambda: lab.states() == ["ended early"], "the job to end")
    wait_until(
        lambda: "Ended by SIGTERM" in lab.dlbench("fleet", "logs").stdout, "the end of its log"
    )
    with Store.open(lab.url, create=False) as store:
        shared = [record.node.shared for record in store.records() if record.node]
    assert shared
    assert all(f"other jobs are on it: {other_job}" in reason for reason in shared)
    assert (
        "measured on a node of a fleet that the job did not have"
        in lab.dlbench("report", "matrix").stdout
    )


class Jobs(Slurm):
    """The cluster as a scheduler, as a user's environment names it."""

    def state(self, handle: str) -> Seen:
        return self.seen([handle])[handle]

    def wait_for(self, handle: str, state: str) -> Seen:
        wait_until(lambda: self.state(handle)[0] == state, f"{state} of job {handle}")
        return self.state(handle)

    def said(self, handle: str) -> str:
        log = self.log(handle)
        return log.read_text() if log.exists() else ""

    def running(self) -> str:
        handle = self.submit("n1", [sys.executable, "-c", ORDERLY])
        wait_until(lambda: "ready" in self.said(handle), "its first words, while it runs")
        return handle


@pytest.fixture
def jobs(slurm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    monkeypatch.chdir(tmp_path)
    return Jobs(tmp_path / "jobs", {})


def test_a_job_runs_on_its_node_as_this_process_would(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slurm: Any
) -> None:
    monkeypatch.setenv("DLBENCH_GIVEN", "to the job")
    monkeypatch.setenv("SQUEUE_STATES", "FAILED")  # set by a user for their own eyes
    shows = (
        "import os, sys; print(os.getcwd(), os.environ['DLBENCH_GIVEN'], "
        "os.environ['SLURMD_NODENAME'])"
    )
    handle = jobs.submit(
        "n2", [sys.executable, "-c", f"{shows}; print('an error', file=sys.stderr)"]
    )
    assert jobs.wait_for(handle, "ended") == ("ended", "COMPLETED")
    assert f"{tmp_path} to the job n2\n" in jobs.said(handle)
    assert "an error\n" in jobs.said(handle)
    options = {"partition": "all", "minutes": "2.5", "shared": "yes", "account": "physics"}
    handle = Slurm(tmp_path / "jobs", {**options, "further.nice": "7", "further.hold": ""}).submit(
        "n2", ["true"]
    )
    description = dict(
        word.split("=", 1)
        for word in slurm.command("scontrol", "show", "job", handle).split()
        if "=" in word
    )
    expected = {
        "JobName": "dlbench-n2",
        "Partition": "all",
        "TimeLimit": "00:03:00",
        "Account": "physics",
        "Nice": "7",
    }
    expected |= {
        "ReqNodeList": "n2",
        "Requeue": "0",
        "OverSubscribe": "OK",
        "Reason": "JobHeldUser",
    }
    assert {name: description[name] for name in expected} == expected


def test_jobs_wait_end_and_fail(jobs: Jobs) -> None:
    first = jobs.running()
    assert jobs.state(first) == ("running", "RUNNING")
    second = jobs.submit("n1", ["sh", "-c", "echo so sorry; exit 5"])
    wait_until(
        lambda: jobs.state(second) == ("waiting", "PENDING (Resources)"), "its reason to wait"
    )
    assert jobs.nodes(None, ()) == ["n2", "n1"]  # idle ones first
    jobs.cancel([first, NOWHERE])
    wait_until(lambda: "ended in order" in jobs.said(first), "its last words")
    assert jobs.wait_for(first, "ended")[1] == "CANCELLED"
    assert jobs.wait_for(second, "ended")[1] == "FAILED (NonZeroExitCode)"
    assert "so sorry" in jobs.said(second)
    jobs.cancel([first])
    states = jobs.seen([NOWHERE, first])
    assert (states[NOWHERE], states[first][0]) == (("gone", ""), "ended")


def test_nodes(jobs: Jobs, slurm: Any, tmp_path: Path) -> None:
    assert jobs.nodes(None, ("n2", "n1", "n2")) == ["n2", "n1"]
    assert jobs.nodes(None, ("n[1", "2]")) == ["n1", "n2"]
    handle = jobs.running()
    slurm.set_down("n1")
    assert jobs.wait_for(handle, "ended") == ("ended", "NODE_FAIL (NodeDown)")
    assert jobs.nodes(None, ()) == ["n2"]
    wrong, strange = (
        Slurm(tmp_path, {"partition": "mian"}),
        Slurm(tmp_path / "jobs", {"further.no-such-option": "1"}),
    )
    for refused, message in (
        (lambda: jobs.nodes(2, ()), r"^2 nodes asked for, 1 can be used: 1 down, 1 idle\.$"),
        (lambda: jobs.nodes(None, ("n2", "n1")), r"No job can run on n1: it is down \(test\)\."),
        (lambda: jobs.nodes(None, ("n11",)), r"There is no node named 'n11'\. Did you mean 'n1'\?"),
        (lambda: wrong.nodes(None, ()), r"no Slurm partition named 'mian'\. Did you mean 'main'\?"),
        (
            lambda: jobs.submit("n9", ["true"]),
            r"^Slurm refused the job on n9: Invalid node name specified\. [^\n]+$",
        ),
        (lambda: strange.submit("n1", ["true"]), r"^Slurm refused the job on n1: .*no-such-option"),
    ):
        with pytest.raises(UsageError, match=message):
            refused()


def test_a_controller_that_is_away(
    jobs: Jobs, slurm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handle = jobs.running()
    slurm.stop_controller()
    monkeypatch.setenv("SLURM_CONF", slurm.impatient["SLURM_CONF"])
    states = jobs.seen([handle, NOWHERE])
    assert {(state, AWAY in text) for state, text in states.values()} == {("unknown", True)}
    for refused in (
        lambda: jobs.submit("n1", ["true"]),
        lambda: jobs.cancel([handle]),
        lambda: jobs.nodes(None, ()),
    ):
        with pytest.raises(FrameworkEnvironmentError, match=AWAY):
            refused()
    slurm.start_controller()
    assert jobs.state(handle) == ("running", "RUNNING")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FrameworkEnvironmentError, match=r"^Slurm's sinfo was not found[^\n]+$"):
        jobs.nodes(None, ())

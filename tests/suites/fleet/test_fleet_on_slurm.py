"""`dlbench fleet` on a real Slurm cluster, into a real PostgreSQL server: a node dies, and another goes on."""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from postgresql_server import Server
from processes import run_command, wait_until
from slurm_cluster import Cluster
from suites_of_null import suite_of_null

from dlbench.reports.flags import SHARED_NODE, raises
from dlbench.reports.storage.store import Store

pytest.importorskip("submitit")
pytestmark = pytest.mark.xdist_group("slurm")

SECRET = "hunter2"
THREADS = 5


class Lab:
    """A cluster, a database and a folder that every node sees."""

    def __init__(self, slurm: Cluster, url: str, folder: Path) -> None:
        self.slurm, self.url, self.folder = slurm, url, folder

    def dlbench(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run the command as a user of the cluster does: the password is in the environment alone."""
        told = {name: self.slurm.environment[name] for name in ("SLURM_CONF", "PATH")}
        done = run_command(self.folder, *words, DLBENCH_STORE=self.url, **told)
        assert SECRET not in done.stdout + done.stderr
        return done

    def jobs(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = json.loads(self.dlbench("fleet", "status", "--json").stdout)["jobs"]
        return told

    def states(self) -> list[str]:
        return [job["state"] for job in self.jobs()]

    def measured(self) -> Counter[tuple[str, int]]:
        """Return how often each node measured each thread count."""
        with Store.open(self.url, create=False) as store:
            return Counter((record.node.name, record.cell.threads) for record in store.records() if record.node)

    def of_node(self, node: str) -> int:
        return sum(count for (name, _), count in self.measured().items() if name == node)


@pytest.fixture
def lab(slurm: Cluster, postgresql: Server, database: str, tmp_path: Path) -> Lab:
    """Give a lab with a suite of five cells, a second each."""
    (tmp_path / "mine.toml").write_text(
        suite_of_null(
            step_seconds=0.15,
            protocol={"seconds": 5.0, "steps": 5},
            threads=list(range(1, THREADS + 1)),
            threads_limit=99,
        )
    )
    return Lab(slurm, postgresql.url(database, password=SECRET), tmp_path)


def test_a_node_dies_and_another_of_its_kind_takes_what_it_had_not_begun(lab: Lab) -> None:
    begun = lab.dlbench("fleet", "run", "mine.toml", "--on", "slurm", "--partition", "main", "--nodes", "2")
    assert begun.returncode == 0, begun.stderr
    assert "for n1, n2" in begun.stderr
    wait_until(lambda: lab.of_node("n2") >= 2, "records of n2")
    lab.slurm.set_down("n2")
    wait_until(lambda: lab.states()[1] not in ("running", "starting"), "the dead node to be seen")
    told = lab.dlbench("fleet", "status")
    assert told.returncode == 1
    waited = lab.dlbench("fleet", "status", "--wait")
    assert "fleet run mine.toml --resume --fleet" in waited.stdout
    before = lab.measured()
    assert 2 <= lab.of_node("n2") < THREADS
    assert lab.of_node("n1") == THREADS
    resumed = lab.dlbench("fleet", "run", "mine.toml", "--resume", "--wait")
    assert resumed.returncode == 0, resumed.stderr
    assert "job 3 takes over from job 2, on n1" in resumed.stderr
    assert lab.states() == ["finished", "replaced", "finished"]
    begun_on_n2 = {threads for name, threads in before if name == "n2"}
    assert lab.measured() - before == Counter(
        {("n1", threads): 1 for threads in range(1, THREADS + 1) if threads not in begun_on_n2}
    )
    log = lab.dlbench("fleet", "logs", "--job", "3").stdout
    assert "seconds per mini-batch" in log.lower()
    shown = lab.dlbench("report", "fleet")
    assert shown.returncode == 0, shown.stderr
    assert "n1" in shown.stdout
    assert "n2" in shown.stdout


@pytest.mark.slow
def test_a_node_that_others_use_too_is_told_in_every_record(lab: Lab) -> None:
    other = lab.slurm.submit("sleep 60", "-w", "n1", "-n", "1", "--mem", "100")
    wait_until(lambda: lab.slurm.command("squeue", "-h", "-j", other, "-o", "%T") == "RUNNING", "the other job")
    words = ("--on", "slurm", "--nodelist", "n1", "--shared", "--threads", "1", "--slurm-option", "mem=100")
    done = lab.dlbench("fleet", "run", "mine.toml", *words, "--wait")
    assert done.returncode == 0, done.stderr
    assert lab.states() == ["finished"], lab.dlbench("fleet", "logs").stdout
    with Store.open(lab.url, create=False) as store:
        records = store.records()
    assert len(records) == 1
    for record in records:
        assert record.node is not None
        assert f"other jobs are on it: {other}" in record.node.shared
        assert raises(record, None, SHARED_NODE)
    assert "shared node: other jobs are on it" in lab.dlbench("report", "matrix").stdout.replace("\n  ", " ")


@pytest.mark.slow
def test_a_cancelled_job_keeps_what_it_measured(lab: Lab) -> None:
    lab.dlbench("fleet", "run", "mine.toml", "--on", "slurm", "--nodelist", "n2")
    wait_until(lambda: lab.of_node("n2") >= 1, "the first record")
    assert "cancelled: job 1 on n2" in lab.dlbench("fleet", "cancel", "--node", "n2").stderr
    wait_until(lambda: lab.states() == ["failed"], "the job to end")
    assert "Ended by SIGTERM" in lab.jobs()[0]["words"]
    assert lab.of_node("n2") >= 1


@pytest.mark.slow
def test_a_controller_that_is_away_makes_no_job_look_dead(lab: Lab) -> None:
    lab.dlbench("fleet", "run", "mine.toml", "--on", "slurm", "--nodelist", "n1")
    wait_until(lambda: lab.states() == ["running"], "the job to run")
    lab.slurm.stop_controller()
    try:
        assert lab.states() in (["running"], ["finished"])
    finally:
        lab.slurm.start_controller()


def test_no_such_node_or_partition_is_said_in_one_line(lab: Lab) -> None:
    for words in (("--nodelist", "n9"), ("--partition", "nowhere", "--nodes", "1"), ("--nodes", "3")):
        done = lab.dlbench("fleet", "run", "mine.toml", "--on", "slurm", *words)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr

"""`dlbench fleet` by the real command, with processes of this machine as nodes, and with scripts."""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import PATIENCE, run_command, variables_of_command, wait_until
from suites_of_null import suite_of_null

from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.store import Store
from dlbench.suites.fleet import submission
from dlbench.suites.fleet.schedulers import submitted

pytest.importorskip("submitit")

STORE = "fleet.sqlite"
LAUNCHES = 3


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder with a suite that takes six seconds and more; what is left of jobs at the end is killed."""
    protocol = {"seconds": 5.0, "steps": 5, "launches": LAUNCHES}
    (tmp_path / "mine.toml").write_text(suite_of_null(step_seconds=0.15, protocol=protocol, threads=[1, 2]))
    yield tmp_path
    for each in jobs_of(tmp_path):
        each.kill()


def jobs_of(folder: Path) -> list[psutil.Process]:
    """Return the processes that carry out jobs of this folder's fleets."""
    found = []
    for process in psutil.process_iter():
        try:
            if "--job" in process.cmdline() and Path(process.cwd()) == folder:
                found.append(process)
        except psutil.Error:
            continue
    return found


def fleet(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_command(folder, "fleet", *words, "--store", STORE)


def status(folder: Path) -> list[dict[str, Any]]:
    asked = fleet(folder, "status", "--json")
    assert asked.stdout, asked.stderr
    told: list[dict[str, Any]] = json.loads(asked.stdout)["jobs"]
    return told


def measured(folder: Path) -> Counter[tuple[str, int, int]]:
    """Return how often each node measured each launch of each thread count."""
    with Store.open(folder / STORE, create=False) as store:
        records = store.records()
    return Counter((record.node.name, record.cell.threads, record.launch) for record in records if record.node)


def every_launch(*nodes: str) -> Counter[tuple[str, int, int]]:
    return Counter((node, threads, launch) for node in nodes for threads in (1, 2) for launch in range(LAUNCHES))


def until(true: Callable[[], bool], what: str) -> None:
    wait_until(true, what)


@pytest.mark.slow
def test_a_job_is_killed_and_another_goes_on_with_what_it_left(folder: Path) -> None:
    begun = fleet(folder, "run", "mine.toml", "--on", "local", "--nodes", "2", "--seed", "7")
    assert begun.returncode == 0, begun.stderr
    assert "2 jobs of mine.toml for local-1, local-2" in begun.stderr
    until(lambda: (folder / STORE).exists() and measured(folder).total() >= 2, "the first records")
    for process in jobs_of(folder):
        if process.cmdline()[-1].endswith("/2"):
            process.send_signal(signal.SIGKILL)
    until(lambda: [each["state"] for each in status(folder)][1] == "lost", "the dead job to be seen")
    waited = fleet(folder, "status", "--wait")
    assert waited.returncode == 1
    assert "finished" in waited.stdout
    assert "fleet run mine.toml --resume --fleet" in waited.stdout
    other = fleet(folder, "run", "mine.toml", "--resume", "--launches", "9")
    assert (other.returncode, "other options: --seed 7" in other.stderr) == (2, True)
    resumed = fleet(folder, "run", "mine.toml", "--resume", "--wait")
    assert resumed.returncode == 0, resumed.stderr
    assert "job 3 goes on with what job 2 left, on local-2" in resumed.stderr
    jobs = status(folder)
    assert [(each["node"], each["state"]) for each in jobs] == [
        *(("local-1", "finished"), ("local-2", "replaced"), ("local-2", "finished"))
    ]
    assert jobs[2]["run"] == jobs[1]["run"]
    assert measured(folder) == every_launch("local-1", "local-2")
    again = fleet(folder, "run", "mine.toml", "--resume")
    assert (again.returncode, "Nothing is left to go on with" in again.stderr) == (0, True)
    log = fleet(folder, "logs", "--node", "local-1").stdout
    assert f"[{2 * LAUNCHES}/{2 * LAUNCHES}]" in log
    assert "seconds per mini-batch" in log.lower()


@pytest.mark.slow
def test_a_cancelled_job_ends_in_its_own_way(folder: Path) -> None:
    fleet(folder, "run", "mine.toml", "--on", "local")
    until(lambda: (folder / STORE).exists() and measured(folder).total() >= 1, "the first record")
    cancelled = fleet(folder, "cancel")
    assert "cancelled: job 1 on local-1" in cancelled.stderr
    until(lambda: [each["state"] for each in status(folder)] == ["failed"], "the job to end")
    assert "Ended by SIGTERM" in status(folder)[0]["words"]
    until(lambda: not jobs_of(folder), "its process to end")
    assert "No job" in fleet(folder, "cancel").stderr


@pytest.mark.slow
def test_scripts_are_for_any_other_scheduler(folder: Path, database_url: str) -> None:
    words = ("run", "mine.toml", "--on", "script", "--nodelist", "a,b", "--folder", "jobs", "--launches", "1")
    variables = {"DLBENCH_STORE": database_url}
    begun = run_command(folder, "fleet", *words, **variables)
    assert begun.returncode == 0, begun.stderr
    scripts = sorted((folder / "jobs").glob("*/*.sh"))
    assert [script.name for script in scripts] == ["job-1.sh", "job-2.sh"]
    assert all(os.access(script, os.X_OK) for script in scripts)
    environment = variables_of_command(folder / "home", **variables)
    for script in scripts:
        subprocess.run([script], env=environment, check=True, capture_output=True, timeout=PATIENCE)
    told = run_command(folder, "fleet", "status", **variables)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("finished") == 2
    with Store.open(database_url, create=False) as store:
        assert Counter(record.node.name for record in store.records() if record.node) == {"a": 2, "b": 2}
    refused = run_command(folder, "fleet", "logs", **variables)
    assert "no log yet" in refused.stdout


@pytest.fixture
def database_url(postgresql: Any, database: str) -> str:
    return str(postgresql.url(database))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "mine.toml", "--on", "clouds"), "There is no scheduler named 'clouds'"),
        (("run", "mine.toml", "--on", "script"), "database on a server"),
        (("run", "nothing", "--on", "local"), "There is no suite"),
        (("run", "mine.toml", "--on", "local", "--partition", "p"), "has no partition"),
        (("run", "mine.toml", "--on", "local", "--nodelist", "n1"), "There is no node 'n1'"),
        (("run", "mine.toml", "--on", "local", "--nodes", "0"), "--nodes"),
        (("run", "mine.toml", "--resume", "--on", "local"), "has no fleet of mine.toml"),
        (("run", "mine.toml", "--resume", "--nodes", "2", "--on", "local"), "--nodelist"),
        (("status",), "has no fleet"),
        (("cancel", "f1"), "has no fleet"),
        (("logs",), "has no fleet"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(folder: Path, words: tuple[str, ...], said: str) -> None:
    with Store.open(folder / STORE):
        pass
    done = fleet(folder, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert jobs_of(folder) == []


def test_a_password_on_the_command_line_is_refused(folder: Path) -> None:
    url = "postgresql+psycopg://me:hunter2@localhost/results"
    done = run_command(folder, "fleet", "run", "mine.toml", "--on", "local", "--store", url)
    assert done.returncode == 2
    assert "~/.pgpass" in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("on", ["slurm", "local"])
def test_without_submitit_nothing_is_kept(
    on: str, command: Callable[..., tuple[Any, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(submitted.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(submission, "check_target", lambda target, several_machines: None)
    code, _, errors = command("fleet", "run", "quick", "--on", on, "--nodes", "1", "--store", STORE)
    assert code == 3
    assert "pip install '.[fleet]'" in errors
    with Store.open(STORE, create=False) as store:
        assert fleets.fleets(store) == []

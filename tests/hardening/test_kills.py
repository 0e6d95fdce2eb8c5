"""kill -9 at random moments: no record is lost or doubled, and a resumed run ends like an
undisturbed one.

python3 suites/bootstrap.py kills --count 1000        so many runs, each killed two to four times
"""

import contextlib
import os
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path
from random import Random

import psutil
import pytest
from processes import PATIENCE, fork_command, suite_of_null, wait_until

from dlbench.reports.results.comparison import complete_pairs
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.storage import database
from dlbench.reports.results.storage.store import Store
from dlbench.suites.commands import compare, plan, report, run  # noqa: F401 - loaded once, for all the forks
from dlbench.suites.fleet import node  # noqa: F401 - as above
from dlbench.suites.planning.framework import GUEST_DIRECTORY

BRIEF = {"warmup_steps": 1, "steps": 3, "seconds": 0.01, "launches": 2}
SUITE = suite_of_null(step_seconds=0.0005, threads=[1, 2], protocol=BRIEF)
LAUNCHES = {(threads, launch) for threads in (1, 2) for launch in (0, 1)}
TRIALS = int(os.environ.get("DLBENCH_KILLS", "4"))
KINDS = ("runner", "guest", "both", "write")
ORDERS = ("sequential", "turns")
MEMBERS = {"sequential": 1, "turns": 2}
"""Launches that are made together: in turns those of a block."""


def ended(pid, seconds=PATIENCE):
    """Return the exit code of a session that ends within so many seconds, else None."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def of_launches(folder):
    """Return the processes of launches of this folder's runs."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            running = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
            if running and str(folder) in process.environ().get("TMPDIR", ""):
                yield process


def guests_of(pid):
    """Return the guests of a runner, and their supervisors."""
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if str(GUEST_DIRECTORY) in child.cmdline():
                yield child


def die_in_write(number, before_commit):
    """Let this process be killed in its so-manieth write to the store."""
    really, begun = database.writing, [0]

    @contextlib.contextmanager
    def watched(*arguments, **further):
        begun[0] += 1
        with really(*arguments, **further) as connection:
            yield connection
            if begun[0] == number and before_commit:
                os.kill(os.getpid(), signal.SIGKILL)
        if begun[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    database.writing = watched


def session(folder, kind, words, random):
    """Carry out one session of a run that is killed in this way, or ends before."""
    if kind == "write":
        number, before = random.randint(1, 9), random.random() < 0.5
        pid = fork_command(
            folder, folder / "output", *words, first=lambda: die_in_write(number, before)
        )
        assert ended(pid) in (0, -signal.SIGKILL)
        return
    pid = fork_command(folder, folder / "output", *words)
    if ended(pid, random.uniform(0.0, 3.0)) is not None:
        return
    children = psutil.Process(pid).children(recursive=True)
    if kind == "guest":
        for child in guests_of(pid):
            with contextlib.suppress(psutil.Error):
                child.kill()
        assert ended(pid) in (0, 1)
        return
    for process in (psutil.Process(pid), *(children if kind == "both" else ())):
        with contextlib.suppress(psutil.Error):
            process.kill()
    ended(pid)


def records_in(folder):
    """Return the runs and records of the store, which must be sound; none where there is no store
    yet."""
    try:
        with Store.open(folder / "dlbench.sqlite", create=False) as store:
            runs, records = store.runs(), store.records()
    except StoreError:
        return [], []
    with contextlib.closing(sqlite3.connect(folder / "dlbench.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return runs, records


@pytest.mark.parametrize("number", range(TRIALS))
def test_kills_lose_and_double_nothing(number: int, tmp_path: Path) -> None:
    kind, random = KINDS[number % len(KINDS)], Random(number)
    order = ORDERS[(number + number // len(KINDS)) % len(ORDERS)]
    words = ("run", "mine.toml", "--order", order)
    (tmp_path / "mine.toml").write_text(SUITE)
    (tmp_path / "output").mkdir()
    before, runs = [], []
    for _ in range(random.randint(2, 4)):
        # A session may be killed before it opens this file.
        (tmp_path / "output" / "err").write_text("")
        resumed = ("--resume",) if runs else ()
        session(tmp_path, kind, (*words, *resumed), random)
        wait_until(lambda: not list(of_launches(tmp_path)), "the end of all guests")
        text = (tmp_path / "output" / "err").read_text()
        assert "Traceback" not in text
        runs, records = records_in(tmp_path)
        assert records[: len(before)] == before
        # A record is stored first and reported then: the kill may have come between the two.
        reported = [line for line in text.splitlines() if line.startswith("[")]
        # Launches of a group are reported once all of them are stored.
        assert len(records) - len(before) - len(reported) in range(1 + MEMBERS[order])
        before = records
        if runs and runs[0].finished:
            break
    else:
        resumed = ("--resume",) if runs else ()
        last = fork_command(tmp_path, tmp_path / "output", *words, *resumed)
        assert ended(last) == 0
        runs, records = records_in(tmp_path)
    assert len(runs) == 1
    assert runs[0].finished
    assert Counter((r.cell.threads, r.launch, r.attempt) for r in records) == Counter(
        {(*launch, 0): 1 for launch in LAUNCHES}
    )
    if kind != "guest":
        assert all(record.outcome.samples_ns for record in records)


def rounds_of(record):
    """Return the rounds in which a launch had turns."""
    return {turn.round for turn in record.outcome.outside.turns}


PAIRS = ("compare", "--now", "--suite", "mine.toml", "--same", "--pairs", "4", "--order", "turns")


# Two launches that are ended lose the most; Ctrl-C of an ordinary run is tried in test_command.py.
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_a_pair_that_is_ended_leaves_no_process_and_nothing_is_lost(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(suite_of_null(step_seconds=0.02, protocol={"steps": 10}))
    (tmp_path / "output").mkdir()
    pid = fork_command(tmp_path, tmp_path / "output", *PAIRS)
    wait_until(lambda: len(records_in(tmp_path)[1]) >= 2, "a pair")
    wait_until(lambda: len(list(guests_of(pid))) == 4, "both launches of a pair")
    os.kill(pid, number)
    assert ended(pid) == (130 if number is signal.SIGINT else -number)
    wait_until(lambda: not list(of_launches(tmp_path)), "the end of both guests")
    text = (tmp_path / "output" / "err").read_text()
    assert "Traceback" not in text
    assert number is signal.SIGKILL or "--resume" in text
    _, before = records_in(tmp_path)
    # The first pairs show as much as all of them.
    resumed = fork_command(tmp_path, tmp_path / "output", *PAIRS, "--resume", "--budget", "3s")
    assert ended(resumed) in (0, 1, 6)  # 1 and 6: this machine was too busy
    (_, records) = records_in(tmp_path)
    assert records[: len(before)] == before
    for first, second in complete_pairs(records):
        assert rounds_of(first) == rounds_of(second) != set()
    assert len(complete_pairs(records)) >= 2

"""One run of the null framework, killed some times at random moments and gone on with to its end.

After each kill the store must open and hold every record that was reported, each once; the run that was gone on with
must show the table of one that nobody disturbed.
"""

import contextlib
import json
import mmap
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import command_server
import psutil
from processes import PATIENCE, variables_of_command
from suites_of_null import suite_of_null

from dlbench.reports.errors import StoreError
from dlbench.reports.naming import name_of
from dlbench.reports.storage import database
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store
from dlbench.suites import cli  # noqa: F401 - loaded once, for all the forks
from dlbench.suites.planning.framework import GUEST_DIRECTORY

BRIEF = {"warmup_steps": 1, "steps": 3, "seconds": 0.01, "launches": 2}
SUITE = suite_of_null(step_seconds=0.0005, networks=["fcn5", "lstm32"], protocol=BRIEF)
STORE = "dlbench.sqlite"
LONGEST_WRITE = 0.006
"""Seconds, about: a kill during a write comes up to so long after the write began."""
KILLED = "ended by signal 9 (SIGKILL)"


class Violation(Exception):  # noqa: N818 - it is what was found, not what went wrong here
    """Something that must hold after a kill does not."""


def demand(holds: object, what: str) -> None:
    """Raise Violation unless this holds."""
    if not holds:
        raise Violation(what)


class Session(NamedTuple):
    """One process of ``dlbench run``."""

    pid: int
    output: Path
    begun: float


class Place(NamedTuple):
    """Where a trial takes place: its folder, and the home of dlbench."""

    folder: Path
    home: Path

    def begin(self, *words: str, first: Callable[[], None] = lambda: None) -> Session:
        """Start the command."""
        output = self.folder / "output"
        output.mkdir(parents=True, exist_ok=True)
        for name in ("out", "err"):
            (output / name).write_bytes(b"")  # not what an earlier session said, where this one is killed at once
        variables = variables_of_command(self.folder) | {"DLBENCH_HOME": str(self.home)}
        order = {"words": words, "folder": str(self.folder), "variables": variables}
        pid = command_server.fork({**order, "output": str(output), "program": "dlbench"}, first)
        return Session(pid, output, time.perf_counter())


def ended(session: Session, seconds: float = PATIENCE) -> int | None:
    """Return the exit code of a session that ends within so many seconds, else None."""
    until = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(session.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(min(0.002, max(0.0, until - time.monotonic())))


def children(session: Session) -> list[psutil.Process]:
    """Return the processes that a session has started."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(session.pid).children(recursive=True)
    return []


def kill(pid: int) -> None:
    """Kill a process, if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_runner(place: Place, words: tuple[str, ...], random: Random, span: float, all_at_once: bool = False) -> int:
    """Kill the runner, or it and its guest; return the number of kills, 0 where it had ended before."""
    session = place.begin(*words)
    if ended(session, random.uniform(0.0, span)) is not None:
        return 0
    for pid in [session.pid, *(each.pid for each in children(session) if all_at_once)]:
        kill(pid)
    code = ended(session)
    demand(code in (0, -signal.SIGKILL), f"the runner ended with exit code {code}")
    return int(code != 0)  # 0: it had ended just before


def kill_both(place: Place, words: tuple[str, ...], random: Random, span: float) -> int:
    """Kill the runner and its guest at once."""
    return kill_runner(place, words, random, span, all_at_once=True)


def kill_guests(place: Place, words: tuple[str, ...], random: Random, span: float) -> int:
    """Kill up to three guests; the run goes on to its end."""
    session, killed, code = place.begin(*words), 0, None
    while code is None and killed < 3:
        guests = [each for each in children(session) if _is_guest(each)]
        if guests and random.random() < 0.5:
            time.sleep(random.uniform(0.0, 0.25))
            killed += _kill_now(guests[0])
        code = ended(session, 0.002)
    code = ended(session) if code is None else code
    demand(code in (0, 1), f"the run ended with exit code {code} after {killed} of its guests were killed")
    return killed


def _is_guest(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return str(GUEST_DIRECTORY) in process.cmdline()
    return False


def _kill_now(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            process.kill()
            return 1
    return 0


def kill_in_write(place: Place, words: tuple[str, ...], random: Random, span: float) -> int:
    """Kill the runner while it writes to the store; return 0 where the write was done before."""
    writing = mmap.mmap(-1, 1)  # shared with the fork
    which, delay = random.randint(1, 9), random.uniform(0.0, LONGEST_WRITE)
    session = place.begin(*words, first=lambda: _be_killed_in_write(writing, which, delay))
    code = ended(session)
    demand(code in (0, -signal.SIGKILL), f"the run ended with exit code {code}")
    return int(code == -signal.SIGKILL and writing[0] == 1)


def _be_killed_in_write(writing: mmap.mmap, which: int, delay: float) -> None:
    """Let another process kill this one so many seconds after it began to write for the so-manieth time."""
    begins, tell = os.pipe()
    this = os.getpid()
    if os.fork() == 0:
        os.close(tell)
        if os.read(begins, 1):
            until = time.perf_counter() + delay
            while time.perf_counter() < until:
                pass
            kill(this)
        os._exit(0)
    os.close(begins)
    really, begun = database.writing, [0]

    @contextlib.contextmanager
    def watched(*arguments: Any, **further: Any) -> Iterator[Any]:
        begun[0] += 1
        writing[0] = 1
        if begun[0] == which:
            os.write(tell, b"x")
        with really(*arguments, **further) as connection:
            yield connection
        writing[0] = 0

    database.writing = watched


KILLERS: dict[str, Callable[[Place, tuple[str, ...], Random, float], int]] = {
    "runner": kill_runner,
    "guest": kill_guests,
    "both": kill_both,
    "write": kill_in_write,
}


def stored(place: Place) -> tuple[list[Run], list[Record]]:
    """Return the runs and records of the store, which must be sound; none where there is no store or an empty one."""
    path = place.folder / STORE
    if not path.exists():
        return [], []
    try:
        with Store.open(path, create=False) as store:
            runs, records = store.runs(), store.records()
    except StoreError as error:
        demand("holds no results yet" in str(error), f"the store does not open: {error}")
        return [], []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    demand(verdict == "ok", f"the store is damaged: {verdict}")
    return runs, records


def launches(records: list[Record]) -> Counter[tuple[str, int, int]]:
    """Return how often each launch of each cell is there, attempts apart."""
    return Counter((name_of(record.cell), record.launch, record.attempt) for record in records)


def check(place: Place, before: list[Record]) -> tuple[list[Run], list[Record]]:
    """Look at what a session left behind; return the runs and records that are there now."""
    said = (place.folder / "output" / "err").read_text()
    demand("Traceback" not in said, f"a traceback: {said[-2000:]}")
    reported = [line for line in said.splitlines() if line.startswith("[") and "/" in line.partition("]")[0]]
    runs, records = stored(place)
    new = records[len(before) :]
    demand(records[: len(before)] == before, "a record of before is lost or changed")
    # The record is stored first and reported then: the kill may have come between the two.
    demand(len(new) - len(reported) in (0, 1), f"{len(reported)} records were reported, {len(new)} are stored")
    for line, record in zip(reported, new, strict=False):
        demand(name_of(record.cell) in line, f"reported was {line!r}, stored is {name_of(record.cell)}")
    demand(max(launches(records).values(), default=1) == 1, "a record is there twice")
    demand(len(runs) <= 1, f"there are {len(runs)} runs instead of one")
    return runs, records


def table(place: Place) -> list[dict[str, Any]]:
    """Return the cells of the matrix: what they are, their status and the number of their launches."""
    session = place.begin("report", "matrix", "--json")
    code = ended(session)
    demand(code == 0, f"the matrix cannot be shown: exit code {code}")
    kept = []
    for cell in json.loads((session.output / "out").read_text()):
        axes = {name: cell[name] for name in ("network", "framework", "mode", "threads", "batch_size", "status")}
        kept.append({**axes, "launches": cell["seconds_per_minibatch"] and cell["seconds_per_minibatch"]["launches"]})
    return kept


def leave_nothing_running(place: Place) -> None:
    """Demand that the guests of a killed runner end."""
    mark, until = str(place.folder), time.monotonic() + 10.0
    while left := [each for each in psutil.process_iter() if _is_of(each, mark)]:
        demand(time.monotonic() < until, f"guests outlive their runner: {left}")
        time.sleep(0.01)


def _is_of(process: psutil.Process, folder: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        running = process.status() != psutil.STATUS_ZOMBIE
        return running and folder in process.environ().get("TMPDIR", "") and process.pid != os.getpid()
    return False


class Undisturbed(NamedTuple):
    """What a run shows that nobody killed, and its seconds."""

    table: list[dict[str, Any]]
    launches: Counter[tuple[str, int, int]]
    seconds: float


def undisturbed(place: Place) -> Undisturbed:
    """Carry out a run without any kill."""
    (place.folder / "mine.toml").write_text(SUITE)
    for _ in range(2):  # the first fills the home of dlbench
        (place.folder / STORE).unlink(missing_ok=True)
        session = place.begin("run", "mine.toml")
        demand(ended(session) == 0, "the undisturbed run failed")
        seconds = time.perf_counter() - session.begun
    _, records = check(place, [])
    return Undisturbed(table(place), launches(records), seconds)


def _words(runs: list[Run]) -> tuple[str, ...]:
    return ("run", "mine.toml", *(("--resume",) if runs else ()))


def trial(kind: str, place: Place, random: Random, expected: Undisturbed) -> Counter[str]:
    """Kill one run two to six times, go on with it to its end, and return the kills by their kind."""
    (place.folder / "mine.toml").write_text(SUITE)
    counts: Counter[str] = Counter()
    runs, records = stored(place)
    for _ in range(random.randint(2, 6)):
        span = expected.seconds * (1.0 - len(records) / (1.5 * expected.launches.total()))
        counts[kind] += KILLERS[kind](place, _words(runs), random, span)
        leave_nothing_running(place)
        runs, records = check(place, records)
        if runs and runs[0].finished:
            break
    if not (runs and runs[0].finished):
        code = ended(place.begin(*_words(runs)))
        said = (place.folder / "output" / "err").read_text()[-1500:]
        demand(code == 0, f"the run cannot be gone on with: exit code {code}: {said}")
        runs, records = check(place, records)
    demand(runs[0].finished, "the run that was gone on with is not finished")
    demand(launches(records) == expected.launches, "the run that was gone on with has other launches")
    reasons = {record.outcome.reason for record in records if not record.outcome.samples_ns}
    if kind == "guest":
        demand(reasons <= {KILLED}, f"the reasons of cells without a number are {reasons}")
    else:
        demand(table(place) == expected.table, f"the table is another: {table(place)}")
    return counts

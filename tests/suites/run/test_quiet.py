"""One measurement at a time, and only on a quiet machine: the lock, and the wait before each
block."""

import contextlib
import dataclasses
import multiprocessing
import os
import pwd
import random
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import factory_of_records as make
import pytest
from processes import PATIENCE
from recorded_trees import READING

from dlbench.hardware_probe import ProbeError
from dlbench.hardware_probe.sentinel import Reading
from dlbench.reports.results.storage.store import Store
from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.run import quiet
from dlbench.suites.run.quiet import (
    GIVE_UPS,
    PATIENCE_SECONDS,
    RECORD_LENGTH,
    QuietWait,
    earlier_readings,
    judge_reading,
    measuring,
    other_dlbench,
)


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "DLBENCH_LOCK_FOLDER"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is looked up once


Holder = tuple[BaseProcess, Connection]


def hold(line: Connection, wait: bool) -> None:
    """Hold the machine until a word comes along the line."""
    with measuring(line.send, wait=wait):
        line.send("held")
        line.recv()
    line.send("let go")


@contextlib.contextmanager
def holder(wait: bool = False) -> Iterator[Holder]:
    """Give a process that holds the machine, and the line to it; with ``wait`` it first says whom
    it waits for."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=hold, args=(theirs, wait))
    process.start()
    theirs.close()
    try:
        if not wait:
            assert heard(ours) == "held"
        yield process, ours
    finally:
        process.kill()
        process.join()


def heard(line: Connection) -> str:
    assert line.poll(PATIENCE)
    return str(line.recv())


def refuse_report(line: str) -> None:
    pytest.fail(f"nothing was to be reported, but: {line}")


def test_a_second_one_is_refused_with_the_firsts_number() -> None:
    with holder() as (first, line):
        with (
            pytest.raises(UsageError, match=rf"process {first.pid}\) is measuring") as refused,
            measuring(refuse_report),
        ):
            pytest.fail("two at a time")
        assert "\n" not in str(refused.value)
        line.send("let go")
        assert heard(line) == "let go"
        with measuring(refuse_report):
            pass


def test_a_second_one_takes_its_turn() -> None:
    with holder() as (first, of_first), holder(wait=True) as (_, of_second):
        assert f"process {first.pid}" in heard(of_second)
        assert not of_second.poll(0.3)
        of_first.send("let go")
        assert heard(of_second) == "held"
        of_second.send("let go")
        assert heard(of_second) == "let go"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_is_killed_holds_nothing(number: signal.Signals) -> None:
    with holder() as (first, _):
        os.kill(first.pid or 0, number)
        first.join(PATIENCE)
        with measuring(refuse_report):
            pass


def test_a_folder_that_cannot_be_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DLBENCH_LOCK_FOLDER")
    monkeypatch.setattr(quiet, "_SHARED", ())
    (tmp_path / f"dlbench-{os.getuid()}").write_text("in the way")
    with (
        pytest.raises(FrameworkEnvironmentError, match="TMPDIR") as error,
        measuring(refuse_report),
    ):
        pass
    assert "\n" not in str(error.value)


def test_another_dlbench_at_work_is_found_by_its_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = {
        1: ["/sbin/init"],
        12: ["/usr/bin/python3", "-m", "dlbench.suites", "run", "quick"],
        13: ["vi", "/home/user/dlbench/README.md"],
        14: None,  # it has ended, or may not be seen
        os.getpid(): ["/usr/bin/python3", "/opt/bin/dlbench", "run"],
    }
    processes = [
        SimpleNamespace(pid=number, info={"cmdline": words}) for number, words in commands.items()
    ]
    monkeypatch.setattr("psutil.process_iter", lambda attributes: processes)
    assert other_dlbench() == "dlbench (process 12)"
    del processes[1]
    assert other_dlbench() == ""


# What an ordinary user may do, who has no right to write to the file of another.
TRY = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("held")
else:
    print("free")
"""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("everybodys")
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(folder))
    return folder


def tried_by_another(place: Path, name: str = quiet._NAME) -> str:
    """Try to take the lock from another process, as another user where this one is root."""
    as_whom = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        as_whom = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        for folder in (place, *place.parents):
            if folder.stat().st_uid == 0 and folder != Path("/"):
                folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    # The system's Python: nobody may not read that of a user.
    command = ["/usr/bin/python3" if os.getuid() == 0 else sys.executable, "-c", TRY]
    return subprocess.run(
        [*command, place / name], capture_output=True, text=True, **as_whom
    ).stdout.strip()


@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="the system has no Python that everybody may use"
)
def test_another_user_sees_that_it_is_held_whatever_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        with measuring(refuse_report):
            assert tried_by_another(place) == "held"
        assert tried_by_another(place) == "free"
    finally:
        os.umask(before)


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (place / quiet._NAME).symlink_to(tmp_path / "elsewhere")
    with measuring(refuse_report):  # by the lock of this user
        assert tried_by_another(tmp_path, "elsewhere") == "free"


def test_a_folder_that_is_named_and_is_none_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(place / "none"))
    with pytest.raises(UsageError, match="is not a folder"), measuring(refuse_report):
        pass


# The pressure is that of one's own last launch: no reason to wait.
CALM = dataclasses.replace(
    READING, waiting_share=0.004, pressure_avg10=0.4, others_cpus=0.05, cpus=4.0
)


def reading(**changes: object) -> Reading:
    return dataclasses.replace(CALM, **changes)  # type: ignore[arg-type]


def noisy(
    random_numbers: random.Random, deviation: float, count: int, level: float = 1.0
) -> list[Reading]:
    """Readings of a machine left alone whose sentinel repeats itself to within `deviation` (a
    share)."""
    return [
        reading(
            gemm_flops_per_second=100e9 * level * random_numbers.gauss(1, deviation),
            bandwidth_bytes_per_second=20e9 * level * random_numbers.gauss(1, deviation),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pressure_share": 0.05}, "programs waited for a CPU 5% of the time (limit 5%)"),
        ({"waiting_share": 0.3}, "the sentinel itself waited for a CPU 30% of the time (limit 5%)"),
        (
            {"steal_share": 0.12},
            "the host of this virtual machine withheld the CPU 12% of the time (limit 5%)",
        ),
        ({"others_cpus": 1.0}, "other programs used 1.0 of 4 CPUs"),
        ({"others_cpus": 0.2, "cpus": 1.5}, "other programs used 0.2 of 1.5 CPUs"),
    ],
)
def test_each_disturbance_is_told(changes: dict[str, float], message: str) -> None:
    assert judge_reading(reading(**changes)) == (message,)


def test_slower_than_its_own_record() -> None:
    record = noisy(random.Random(1), 0.003, 20)
    reasons = judge_reading(reading(gemm_flops_per_second=95e9), record)
    assert reasons == ("matrix products ran at 95% of this machine's usual rate (limit 97%)",)
    assert not judge_reading(reading(gemm_flops_per_second=98e9), record)
    assert not judge_reading(reading(gemm_flops_per_second=150e9), record)  # faster is no reason
    slow = judge_reading(reading(bandwidth_bytes_per_second=12e9), record)
    assert slow == ("memory was read and written at 60% of this machine's usual rate (limit 90%)",)


def test_disturbed_and_foreign_readings_are_no_record() -> None:
    slow = reading(gemm_flops_per_second=10e9)
    assert not judge_reading(slow, [reading(pressure_share=0.3)] * 50)
    assert not judge_reading(slow, [reading(method="another NumPy")] * 50)
    # Nor do they push the calm ones out.
    assert judge_reading(slow, [CALM] * quiet.ENOUGH_READINGS + [reading(pressure_share=0.3)] * 500)


@pytest.mark.parametrize("deviation", [0.002, 0.01, 0.04])
def test_the_sentinels_own_noise_is_not_held_against_a_quiet_machine(deviation: float) -> None:
    numbers = random.Random(7)
    refused = tried = 0
    for _ in range(150):
        history = noisy(numbers, deviation, quiet.RECORD_LENGTH)
        tried += 10
        refused += sum(
            bool(judge_reading(reading, history)) for reading in noisy(numbers, deviation, 10)
        )
    # Two rates, three standard deviations each: 0.3 % with a spread known exactly. Estimated from
    # 40 it is more.
    assert refused / tried < 0.03


@pytest.mark.parametrize(
    ("deviation", "unseen", "level"),
    [(0.002, 0, 0.9), (0.005, 0, 0.9), (0.01, 0, 0.9), (0.005, quiet.RECORD_LENGTH // 3, 0.8)],
)
def test_a_neighbour_that_takes_a_tenth_is_seen(
    deviation: float, unseen: int, level: float
) -> None:
    """Or a fifth, where neighbours that were not seen slowed a third of the record down as much."""
    numbers = random.Random(8)
    refused = 0
    for _ in range(300):
        history = noisy(numbers, deviation, quiet.RECORD_LENGTH - unseen) + noisy(
            numbers, deviation, unseen, level
        )
        numbers.shuffle(history)
        refused += bool(judge_reading(noisy(numbers, deviation, 1, level)[0], history))
    assert refused > 285


QUIET = replace(
    READING, bandwidth_bytes_per_second=1e10, pressure_share=0.0, others_cpus=0.0, cpus=2.0
)
BUSY = replace(QUIET, pressure_share=0.12)


class Machine:
    """What the sentinel reads, moment by moment, and a clock that goes on by sleeping and
    reading."""

    def __init__(self, readings, last=QUIET):
        self.readings, self.last, self.time, self.taken = list(readings), last, 0.0, 0

    def take(self):
        self.time += 0.4
        self.taken += 1
        result = self.readings.pop(0) if self.readings else self.last
        if isinstance(result, Exception):
            raise result
        return result

    def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def store():
    with Store.open("sqlite://") as opened:
        opened.begin_run(make.run(id="r1", plan=(), machine="here"))
        yield opened


def quiet_wait(store, machine, lines):
    return QuietWait(
        store,
        "r1",
        lines.append,
        take=machine.take,
        sleep=machine.sleep,
        clock=lambda: machine.time,
    )


def moments(store):
    return [(block, moment, content["quiet"]) for block, moment, content in store.sentinels("r1")]


def test_a_quiet_machine_costs_one_reading_a_block_and_nothing_is_said(store):
    machine, lines = Machine([]), []
    waiting = quiet_wait(store, machine, lines)
    for block in range(3):
        waiting.before(block)
        waiting.after(block)
    assert lines == []
    assert machine.taken == 4  # what is taken after a block, a moment ago, stands before the next
    assert moments(store) == [
        (block, moment, True) for block in range(3) for moment in ("before", "after")
    ]


def test_a_machine_that_becomes_quiet_is_waited_for(store):
    machine, lines = Machine([BUSY, BUSY, BUSY]), []
    quiet_wait(store, machine, lines).before(2)
    assert moments(store) == [(2, "before", False)] * 3 + [(2, "before", True)]
    assert lines == [f"block 3: waited {machine.time:.0f} s until other programs were quiet"]


def test_a_busy_machine_is_waited_for_within_patience_then_said_and_measured(store):
    machine, lines = Machine([], last=BUSY), []
    quiet_wait(store, machine, lines).before(0)
    assert PATIENCE_SECONDS <= machine.time < PATIENCE_SECONDS + 2
    (line,) = lines
    assert line.startswith("block 1: other programs are busy (programs waited for a CPU 12%")
    assert line.endswith("waited 15 s, measuring anyway: disturbed launches will be marked")
    assert not any(quiet for *_, quiet in moments(store))


def test_a_machine_that_stays_busy_is_waited_for_no_more_until_it_is_quiet_again(store):
    machine = Machine([], last=BUSY)
    waiting = quiet_wait(store, machine, [])
    for block in range(50):
        waiting.before(block)
        assert not waiting.before_repeat()
        waiting.after(block)
    assert machine.time < GIVE_UPS * (PATIENCE_SECONDS + 2) + 3 * 50 * 0.5
    machine.last = QUIET
    waiting.before(50)
    waiting.after(50)
    machine.last = BUSY
    waiting.before(51)  # the reading after block 50 was quiet
    began = machine.time
    assert not waiting.before_repeat()
    assert machine.time - began >= PATIENCE_SECONDS


def test_without_a_sentinel_a_run_goes_on_and_that_is_said_once(store):
    machine, lines = Machine([ProbeError("It failed.")]), []
    waiting = quiet_wait(store, machine, lines)
    waiting.before(0)
    waiting.after(0)
    assert not waiting.before_repeat()
    assert lines == ["cannot see whether the machine is quiet: It failed."]
    assert machine.taken == 1


def test_readings_of_this_machine_are_remembered_the_newest_last(store):
    readings = [replace(QUIET, gemm_flops_per_second=float(number)) for number in range(1, 60)]
    for number, reading in enumerate(readings):
        store.add_sentinel(
            "r1", number, "before", {**reading.to_dict(), "quiet": True, "reasons": []}
        )
    store.begin_run(make.run(id="r2", plan=(), machine="there"))
    store.add_sentinel("r2", 0, "before", QUIET.to_dict())
    store.begin_run(make.run(id="r3", plan=(), machine="here"))
    store.add_sentinel("r3", 0, "before", replace(QUIET, gemm_flops_per_second=99.0).to_dict())
    store.add_sentinel("r3", 0, "after", {"of": "another version"})
    rates = [reading.gemm_flops_per_second for reading in earlier_readings(store, "here")]
    assert rates == [float(number) for number in range(60 - RECORD_LENGTH + 1, 60)] + [99.0]

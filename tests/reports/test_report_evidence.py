from typing import Any

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports import evidence
from dlbench.reports.evidence import cell_flags, few_launches, launch_flags
from dlbench.reports.hosts import Host

HOST = Host("m", "two CPUs", 2, 2, 2.0)
QUOTA = Host("m", "a quota of 1.5", 2, 2, 1.5)


def flags(
    requested: int = 1,
    cpu_per_wall: float | None = None,
    says: int | None = -1,
    host: Host | None = HOST,
    device: str = "cpu",
    evidence_of_threads: dict[str, Any] | None = None,
    other: dict[str, Any] | None = None,
    **contention: float,
) -> list[str]:
    """The names of the flags of a launch of 10 s."""
    seen = make.threads(requested, 10.0, cpu_per_wall, says, **(evidence_of_threads or {}))
    result = make.outcome([1.0] * 10, threads=seen, contention=make.contention(**contention))._replace(**(other or {}))
    cell = make.cell(threads=requested, device=device)
    return [flag.kind.name for flag in launch_flags(cell, result, host)]


@pytest.mark.parametrize("requested", [1, 2, 4, 8, 32])
def test_a_launch_that_keeps_its_word_has_no_flag(requested: int) -> None:
    busy = min(requested, 2)
    assert flags(requested, float(busy), run_queue_seconds=10.0 * (requested - busy)) == []


def test_more_cpu_than_threads_is_too_many_threads() -> None:
    assert flags(1, 1.9) == ["threads_exceeded"]
    assert flags(1, 1.2) == []  # a helper thread now and then
    assert flags(2, 2.0, says=4) == ["threads_exceeded"]


def test_more_threads_than_cpus_hide_nothing() -> None:
    # Four asked on two CPUs, eight at work: CPU / wall is 2 in both cases, but six wait.
    assert flags(4, 2.0, run_queue_seconds=20.0) == []
    assert flags(4, 2.0, run_queue_seconds=60.0) == ["threads_exceeded"]


def test_threads_that_take_turns_are_one_thread() -> None:
    # A backward pass in a thread of its own: two threads with CPU time, never at once.
    spread = {"cpu_seconds_by_thread": [6.0, 4.0]}
    assert flags(1, 1.0, evidence_of_threads=spread) == []


def test_a_region_of_a_few_clock_ticks_tells_nothing() -> None:
    brief = make.threads(1, 0.05, 2.5)
    result = make.outcome([0.001] * 20, threads=brief, contention=make.contention(run_queue_seconds=0.5))
    assert launch_flags(make.cell(), result, HOST) == []


def test_a_knob_that_did_nothing() -> None:
    assert flags(2, 1.0) == ["threads_unused"]
    assert flags(2, 1.0, says=None) == ["threads_unused"]  # it claims nothing, and two were asked
    assert flags(2, 1.0, host=None) == []  # with one CPU it could not do better
    assert flags(4, 2.0, says=2) == ["threads_unused"]  # capped to the CPUs, and it says so
    four = Host("m", "four CPUs", 4, 4, 4.0)
    three_of_four = {"cpu_seconds_by_thread": [9.0, 9.0, 9.0, 0.0]}
    assert flags(4, 2.7, host=four, evidence_of_threads=three_of_four) == ["threads_unused"]
    mostly_serial = {"cpu_seconds_by_thread": [9.0, 2.5, 2.5, 2.5]}
    assert flags(4, 1.65, host=four, evidence_of_threads=mostly_serial) == []


def test_others_in_the_way() -> None:
    assert flags(1, 0.8, run_queue_seconds=2.0) == ["contended"]
    assert flags(1, 0.95, run_queue_seconds=0.5) == []
    assert flags(1, steal_seconds=0.9) == []
    assert flags(1, steal_seconds=1.1) == ["contended"]
    assert flags(1, throttled_seconds=1.0) == ["contended"]


def test_what_a_launch_does_to_itself_is_no_contention() -> None:
    assert flags(4, 2.0, run_queue_seconds=20.0, throttled_seconds=5.0) == []
    # A quota of 1.5 throttles two threads by itself.
    assert flags(2, 1.5, host=QUOTA, throttled_seconds=5.0) == []
    assert flags(1, 1.0, host=QUOTA, throttled_seconds=5.0) == ["contended"]
    # Too many threads wait for one another.
    assert flags(1, 1.0, run_queue_seconds=30.0) == ["threads_exceeded"]


def test_on_another_device_host_threads_are_not_judged() -> None:
    assert flags(1, 3.0, device="cuda:0") == []


def test_what_the_system_does_not_tell_raises_nothing() -> None:
    nothing = dict.fromkeys(("run_queue_seconds", "steal_seconds", "throttled_seconds"), None)
    unknown = {"cpu_seconds_by_thread": None, "os_threads": None}
    assert flags(2, 1.9, evidence_of_threads=unknown, **nothing) == []  # type: ignore[arg-type]
    assert flags(other={"threads": None}) == []
    assert flags(evidence_of_threads={"wall_seconds": 0.0}) == []
    bare = Outcome(Status.OK, samples_ns=[1])
    assert [flag.kind.name for flag in launch_flags(make.cell(), bare, None)] == ["parity_unchecked"]


def test_mathematics() -> None:
    assert flags(other={"parity": make.parity("disagrees", "update error 1")}) == ["parity"]
    assert flags(other={"parity": make.parity("unchecked", "no reference")}) == ["parity_unchecked"]
    assert flags(other={"final_loss_finite": False, "final_loss": None}) == ["loss_not_finite"]


def test_a_hole_has_no_flags() -> None:
    assert launch_flags(make.cell(), Outcome(Status.CRASHED, "signal 11"), HOST) == []


def test_what_is_measured_counts_from_half_of_the_launches_on() -> None:
    raised = [evidence.Flag(evidence.CONTENDED, "others")]
    assert cell_flags([raised, [], []]) == []
    (flag,) = cell_flags([raised, raised, []])
    assert flag.sentence == "others (in 2 of 3 launches)"
    wrong = [evidence.Flag(evidence.PARITY, "wrong")]
    assert [flag.kind for flag in cell_flags([wrong, [], []])] == [evidence.PARITY]


def test_few_launches() -> None:
    assert [flag.kind for flag in few_launches(2)] == [evidence.FEW_LAUNCHES]
    assert few_launches(3) == []


def test_marks_are_unlike_one_another() -> None:
    symbols = [kind.symbol for kind in evidence.KINDS]
    assert len(set(symbols)) == len(symbols)
    assert all(len(symbol) == 1 and symbol not in "*±%-" for symbol in symbols)

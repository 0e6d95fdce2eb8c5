from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import BOUND, OVERSUBSCRIBED, Outcome, Status
from dlbench.reports.flags import (
    CONTENDED,
    FEW_LAUNCHES,
    KINDS,
    PARITY,
    Flag,
    cell_flags,
    few_launches,
    launch_flags,
    record_flags,
)
from dlbench.reports.storage.hosts import Host
from dlbench.reports.thread_evidence import capacity_of

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
    two = {"cpu_seconds_by_thread": [9.5, 9.5]}
    assert flags(1, 1.9, evidence_of_threads=two) == ["threads_exceeded"]
    assert flags(1, 1.2) == []  # a helper thread now and then
    assert flags(2, 2.0, says=4) == ["threads_exceeded"]


def test_more_threads_than_cpus_hide_nothing() -> None:
    # Four asked on two CPUs, eight at work: CPU / wall is 2 in both cases, but six wait.
    assert flags(4, 2.0, run_queue_seconds=20.0) == []
    eight = {"cpu_seconds_by_thread": [2.5] * 8}
    assert flags(4, 2.0, run_queue_seconds=60.0, evidence_of_threads=eight) == ["threads_exceeded"]


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
    assert flags(4, 2.0, run_queue_seconds=20.0) == []
    # A quota of 1.5 throttles two threads by itself, and makes them wait.
    assert flags(2, 1.5, host=QUOTA, throttled_seconds=5.0) == ["throttled"]
    assert flags(2, 1.5, host=QUOTA, throttled_seconds=5.0, run_queue_seconds=5.0) == ["throttled"]
    assert flags(2, 1.5, host=QUOTA, throttled_seconds=0.4) == []
    assert flags(1, 1.0, host=QUOTA, throttled_seconds=5.0) == ["contended"]
    # Too many threads wait for one another.
    four = {"cpu_seconds_by_thread": [2.5] * 4}
    assert flags(1, 1.0, run_queue_seconds=30.0, evidence_of_threads=four) == ["threads_exceeded"]


def test_a_thread_that_waits_long_to_do_next_to_nothing_is_no_thread_too_many() -> None:
    # As seen beside a load of twenty: the main thread worked, an engine's thread waited for a CPU at each wake-up.
    idle = {"cpu_seconds_by_thread": [5.70, 0.01, 0.0]}
    assert flags(1, 0.571, run_queue_seconds=7.1, others_cpu_seconds=12.0, evidence_of_threads=idle) == ["contended"]
    # Threads that ended before the count, too, did some of the work.
    ended = {"cpu_seconds_by_thread": [3.0, 0.0]}
    assert "threads_exceeded" in flags(1, 0.6, run_queue_seconds=7.0, evidence_of_threads=ended)


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
    raised = [Flag(CONTENDED, "others")]
    assert cell_flags([raised, [], []]) == []
    (flag,) = cell_flags([raised, raised, []])
    assert flag.sentence == "others (in 2 of 3 launches)"
    wrong = [Flag(PARITY, "wrong")]
    assert [flag.kind for flag in cell_flags([wrong, [], []])] == [PARITY]


def test_few_launches() -> None:
    assert [flag.kind for flag in few_launches(2)] == [FEW_LAUNCHES]
    assert few_launches(3) == []


def test_marks_are_unlike_one_another() -> None:
    symbols = [kind.symbol for kind in KINDS]
    assert len(set(symbols)) == len(symbols)
    assert all(len(symbol) == 1 and symbol not in "*±%-" for symbol in symbols)


LARGE = Host("m", "64 CPUs", 32, 64, 64.0, logical_cpus=64, machine_cpus=64)


def test_the_cpus_that_a_launch_tells_are_those_it_is_judged_by() -> None:
    two = {"cpus": [3, 7]}
    # Bound to two CPUs, four threads wait for one another; on all 64, something is in their way.
    assert flags(4, 2.0, host=LARGE, run_queue_seconds=20.0, other=two) == []
    assert flags(4, 2.0, host=LARGE, run_queue_seconds=20.0) == ["contended"]
    assert flags(2, 1.2, host=LARGE, run_queue_seconds=8.0, other=two) == ["contended"]
    # The host was probed with a narrower mask than this launch had, or by nobody.
    for host in (HOST, None):
        assert flags(4, 2.0, host=host, run_queue_seconds=20.0, other={"cpus": [0, 1, 2, 3]}) == ["contended"]
        assert flags(4, 1.0, host=host, other={"cpus": [0, 1, 2, 3]}) == ["threads_unused"]


@given(st.integers(1, 8), st.none() | st.integers(1, 8), st.none() | st.floats(0.1, 16), st.booleans())
def test_capacity_is_the_smaller_of_cpus_and_quota(
    threads: int, cpus: int | None, quota: float | None, bound: bool
) -> None:
    cell = make.cell(threads=threads, affinity=BOUND if bound else OVERSUBSCRIBED)
    told = Outcome(Status.OK, cpus=None if cpus is None else list(range(cpus)))
    usable = cpus if cpus is not None else threads if bound else None
    whole = [limit for limit in (usable, quota) if limit is not None]
    assert capacity_of(cell, told, None, quota) == (min(whole) if whole else None)
    free = Host("m", "", 8, 16, 16.0, logical_cpus=16)
    assert capacity_of(cell, told, free, quota) == min([16 if usable is None else usable, *([quota] if quota else [])])
    limited = Host("m", "", 8, 3, 2.5, logical_cpus=16)
    assert capacity_of(cell, told, limited) == min(2.5, 16 if usable is None else usable)
    assert capacity_of(cell, told, limited, quota) == min(
        2.5 if usable is None else usable, 2.5 if quota is None else quota
    )


def test_the_quota_of_the_launch_counts_not_that_of_the_host() -> None:
    record = make.record([1.0] * 10, threads=2)
    waiting = make.contention(throttled_seconds=5.0, run_queue_seconds=5.0)
    seen = make.threads(2, 10.0, 1.0)
    record = replace(record, outcome=record.outcome._replace(contention=waiting, threads=seen))
    assert [flag.kind.name for flag in record_flags(record, HOST)] == ["contended"]
    own = record_flags(replace(record, quota_cpus=0.5), HOST)
    assert [flag.kind.name for flag in own] == ["throttled"]
    assert "2 threads in 0.5 CPUs' worth of time" in own[0].sentence
    assert "50%" in own[0].sentence


def test_steal_is_counted_over_the_whole_machine() -> None:
    # 64 CPUs lost 1 s of 10 each; the launch had two of them.
    two = {"cpus": [0, 1]}
    assert flags(2, 2.0, host=LARGE, steal_seconds=64.0, other=two) == ["contended"]
    assert flags(2, 2.0, host=LARGE, steal_seconds=20.0, other=two) == []


def test_samples_that_never_settle() -> None:
    assert flags(other={"steady": False}) == ["no_steady_state"]
    assert flags(other={"steady": True}) == []
    assert flags(other={"steady": None}) == []
    assert flags(device="cuda:0", other={"steady": False}) == ["no_steady_state"]

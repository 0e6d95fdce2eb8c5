"""What launches raise of themselves, from made-up evidence of threads, CPUs and samples."""

from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.results.flag_kinds import CONTENDED, KINDS, PARITY, Flag
from dlbench.reports.results.flags import cell_flags, record_flags
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.outcome import Outcome

HOST = Host("m", "two CPUs", 2, 2, 2.0)
QUOTA = Host("m", "a quota of 1.5", 2, 2, 1.5)
FOUR = Host("m", "four CPUs", 4, 4, 4.0)
LARGE = Host("m", "64 CPUs", 32, 64, 64.0, logical_cpus=64, machine_cpus=64)


def flags(
    requested: int = 1,
    cpu_per_wall: float | None = None,
    cpu_seconds: list[float] | None = None,
    says: int | None = -1,
    host: Host | None = HOST,
    device: str = "cpu",
    quota: float = 0.0,
    helpers: int = 0,
    outcome_fields: dict[str, Any] | None = None,
    **contention: Any,
) -> list[str]:
    """The names of the flags of a launch of 10 s, whose threads had ``cpu_seconds`` of CPU
    seconds."""
    of_threads = {} if cpu_seconds is None else {"cpu_seconds_by_thread": cpu_seconds}
    thread_evidence = make.threads(
        requested, 10.0, cpu_per_wall, says, helpers=helpers, **of_threads
    )
    result = make.outcome(
        [1.0] * 10, threads=thread_evidence, contention=make.contention(**contention)
    )._replace(**(outcome_fields or {}))
    record = make.record(result=result, threads=requested, device=device, cpu_quota=quota)
    return [flag.kind.name for flag in record_flags(record, host)]


NOTHING_KNOWN = dict.fromkeys(("run_queue_seconds", "steal_seconds", "throttled_seconds"), None)
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    # Too many threads, and none of more CPU than there is.
    "one thread as asked": ((1, 1.0), {}, ""),
    "more threads than CPUs, as asked": ((32, 2.0), {"run_queue_seconds": 300.0}, ""),
    "two at once": ((1, 1.9, [9.5, 9.5]), {}, "threads_exceeded"),
    "it says so itself": ((2, 2.0), {"says": 4}, "threads_exceeded"),
    "eight of four on two CPUs, six wait": (
        (4, 2.0, [2.5] * 8),
        {"run_queue_seconds": 60.0},
        "threads_exceeded",
    ),
    "four that wait for one another": (
        (1, 1.0, [2.5] * 4),
        {"run_queue_seconds": 30.0},
        "threads_exceeded",
    ),
    # Seen beside a load of twenty: the main thread worked, an engine's thread waited for a CPU at
    # each wake-up.
    "one that waits long to do next to nothing": (
        (1, 0.571, [5.70, 0.01, 0.0]),
        {"run_queue_seconds": 7.1, "others_cpu_seconds": 12.0},
        "contended",
    ),
    "some ended before the count": (
        (1, 0.6, [3.0, 0.0]),
        {"run_queue_seconds": 7.0},
        "threads_exceeded contended",
    ),
    # A setting that did nothing.
    "one of two": ((2, 1.0), {}, "threads_unused"),
    "with one CPU it could not do better": ((2, 1.0), {"host": None}, ""),
    "capped to the CPUs, and it says so": ((4, 2.0), {"says": 2}, "threads_unused"),
    "three of four": ((4, 2.7, [9.0, 9.0, 9.0, 0.0]), {"host": FOUR}, "threads_unused"),
    "mostly serial": ((4, 1.65, [9.0, 2.5, 2.5, 2.5]), {"host": FOUR}, ""),
    # Others in the way, or the launch itself.
    "waits for a CPU": ((1, 0.8), {"run_queue_seconds": 2.0}, "contended"),
    "stolen": ((1,), {"steal_seconds": 1.1}, "contended"),
    "throttled without a reason of its own": ((1,), {"throttled_seconds": 1.0}, "contended"),
    "one thread in a quota of 1.5": (
        (1, 1.0),
        {"host": QUOTA, "throttled_seconds": 5.0},
        "contended",
    ),
    "two in a quota of 1.5": (
        (2, 1.5),
        {"host": QUOTA, "throttled_seconds": 5.0, "run_queue_seconds": 5.0},
        "throttled",
    ),
    # The CPUs that the launch had, rather than those that the host was probed with.
    "four bound to two": (
        (4, 2.0),
        {"host": LARGE, "run_queue_seconds": 20.0, "outcome_fields": {"cpus": [3, 7]}},
        "",
    ),
    "four on 64": ((4, 2.0), {"host": LARGE, "run_queue_seconds": 20.0}, "contended"),
    "four on four of a narrower host": (
        (4, 2.0),
        {"run_queue_seconds": 20.0, "outcome_fields": {"cpus": [0, 1, 2, 3]}},
        "contended",
    ),
    "four on four of no host": (
        (4, 1.0),
        {"host": None, "outcome_fields": {"cpus": [0, 1, 2, 3]}},
        "threads_unused",
    ),
    # 64 CPUs lost 1 s of 10 each; the launch had two of them.
    "stolen from all": (
        (2, 2.0),
        {"host": LARGE, "steal_seconds": 64.0, "outcome_fields": {"cpus": [0, 1]}},
        "contended",
    ),
    # A quota of the cell's own is no disturbance, and the CPUs that it leaves to others are theirs.
    "a helper thread throttled": (
        (1, 1.0),
        {"quota": 1.0, "throttled_seconds": 2.0, "pressure_seconds": 9.0},
        "",
    ),
    "two threads in a quota of 1": (
        (2, 1.0),
        {
            "quota": 1.0,
            "throttled_seconds": 9.0,
            "run_queue_seconds": 10.0,
            "others_cpu_seconds": 9.0,
        },
        "throttled",
    ),
    "others on the CPUs of a quota": (
        (2, 0.7),
        {
            "quota": 1.0,
            "throttled_seconds": 9.0,
            "run_queue_seconds": 13.0,
            "others_cpu_seconds": 13.0,
        },
        "throttled contended",
    ),
    # As many threads as the framework takes by itself.
    "two of its own": ((0, 2.0, [10.0, 10.0]), {"says": None}, ""),
    "two of its own, throttled": (
        (0, 1.0, [5.0, 5.0]),
        {
            "says": None,
            "quota": 1.0,
            "throttled_seconds": 9.0,
            "run_queue_seconds": 10.0,
            "others_cpu_seconds": 1.0,
        },
        "throttled",
    ),
    "two of its own, and others": (
        (0, 1.4, [7.0, 7.0]),
        {"says": None, "run_queue_seconds": 6.0, "others_cpu_seconds": 6.0},
        "contended",
    ),
    # Threads that get mini-batches ahead may rest, and count among those asked for.
    "one thread and a loader at rest": ((2, 1.0, [10.0, 0.0]), {"helpers": 1}, ""),
    "two threads and a loader, one busy": (
        (3, 1.0, [10.0, 0.0, 0.0]),
        {"helpers": 1, "host": FOUR},
        "threads_unused",
    ),
    "one thread and a loader of two": (
        (2, 3.0, [10.0] * 3),
        {"helpers": 1, "host": FOUR},
        "threads_exceeded",
    ),
    # Unknown evidence raises nothing.
    "no contention known": ((2, 1.9), NOTHING_KNOWN, ""),
    # Results.
    "wrong": (
        (),
        {"outcome_fields": {"parity": make.parity("disagrees", "update error 1")}},
        "parity",
    ),
    "unchecked": (
        (),
        {"outcome_fields": {"parity": make.parity("unchecked", "no reference")}},
        "parity_unchecked",
    ),
    "not finite": (
        (),
        {"outcome_fields": {"final_loss_finite": False, "final_loss": None}},
        "loss_not_finite",
    ),
    # The loss of each of the first steps, and after the last one.
    "a loss that stands still": (
        (),
        {
            "outcome_fields": {
                "parity": make.parity("agrees")._replace(losses=[2.5, 2.5]),
                "final_loss": 2.5,
            }
        },
        "loss_constant",
    ),
    "a loss that moves later": (
        (),
        {
            "outcome_fields": {
                "parity": make.parity("agrees")._replace(losses=[2.5, 2.5]),
                "final_loss": 2.4,
            }
        },
        "",
    ),
    "never steady": (
        (),
        {"outcome_fields": {"steady": False}, "device": "cuda:0"},
        "no_steady_state",
    ),
}


@pytest.mark.parametrize(("evidence", "more", "expected"), CASES.values(), ids=CASES)
def test_flags_of_a_launch(evidence: tuple[Any, ...], more: dict[str, Any], expected: str) -> None:
    assert sorted(flags(*evidence, **more)) == sorted(expected.split())


def test_a_region_of_a_few_clock_ticks_and_a_hole_raise_nothing() -> None:
    brief = make.threads(1, 0.05, 2.5)
    result = make.outcome(
        [0.001] * 20, threads=brief, contention=make.contention(run_queue_seconds=0.5)
    )
    assert record_flags(make.record(result=result), HOST) == []
    assert record_flags(make.record(result=Outcome(Status.CRASHED, "signal 11")), HOST) == []
    bare = Outcome(Status.OK, samples_ns=[1])
    assert [flag.kind.name for flag in record_flags(make.record(result=bare), None)] == [
        "parity_unchecked"
    ]


def test_what_is_measured_counts_from_half_of_the_launches_on() -> None:
    raised = [Flag(CONTENDED, "others")]
    assert cell_flags([raised, [], []]) == []
    (flag,) = cell_flags([raised, raised, []])
    assert flag.sentence == "others (in 2 of 3 launches)"
    wrong = [Flag(PARITY, "wrong")]
    assert [flag.kind for flag in cell_flags([wrong, [], []])] == [PARITY]


def test_marks_are_unlike_one_another() -> None:
    symbols = [kind.symbol for kind in KINDS]
    assert len(set(symbols)) == len(symbols)
    assert all(len(symbol) == 1 and symbol not in "*±%-" for symbol in symbols)


def test_the_quota_of_the_launch_counts_not_that_of_the_host() -> None:
    record = make.record([1.0] * 10, threads=2)
    waiting = make.contention(throttled_seconds=5.0, run_queue_seconds=5.0)
    threads = make.threads(2, 10.0, 1.0)
    record = replace(record, outcome=record.outcome._replace(contention=waiting, threads=threads))
    assert [flag.kind.name for flag in record_flags(record, HOST)] == ["contended"]
    (own,) = record_flags(replace(record, quota_cpus=0.5), HOST)
    assert own.kind.name == "throttled"
    assert "2 threads in 0.5 CPUs' worth of time" in own.sentence

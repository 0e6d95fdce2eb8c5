"""Disturbed launches: other programs used a launch's CPUs or its GPU, or something slowed its GPU
down.

Thresholds tolerate the noise of a shared virtual machine. A launch with more threads than CPUs, or
than its quota is worth, causes its own waiting and throttling; with a quota of the cell itself
throttling is always the launch's own. A launch bound to two of sixty-four CPUs has two. PSI counts
the waiting of any process, including the launch's own helper threads: it is used only if the launch
left a CPU free. In a corpus of real launches beside other work, waiting over 10 % or pressure over
10 % found four in five of those that were more than 5 % slow (VERDICTS.md).

A GPU is disturbed by another process on it. It is slowed if more than `GPU_THROTTLED_SHARE` of its
samples, and at least two, have a reason that means something is wrong; such a launch is not
repeated, as the GPU would only get hotter.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from dlbench.adapters.protocol import (
    Contention,
    Outcome,
    Status,
    ThreadEvidence,
    TurnObservation,
    growth_costs,
)
from dlbench.reports.results.gpu_evidence import REASONS, SLOWING, DeviceObserved, observe_launch
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import Record
from dlbench.reports.results.thread_evidence import (
    EXCEEDED_FACTOR,
    EXCEEDED_SLACK,
    capacity_of,
    long_enough,
    threads_seen,
    wanting_threads,
)

WAITING_SHARE = 0.10
"""Contended: this share of the time that threads wanted to run was spent waiting, with no more
threads than CPUs."""
UNUSUAL_FACTOR = 2.0
"""Disturbed: a turn in which threads waited for more than this many times the share that is usual
for the launch."""
PRESSURE_SHARE = 0.10
"""Contended: some process of the machine waited for a CPU for this share of the time, with fewer
threads than CPUs."""
OTHERS_PER_WAITED = 0.5
"""Other programs are blamed for waiting only if they used at least this many CPU seconds per second
waited."""
OTHERS_SHARE = 0.10
"""Contended, with more threads than CPUs, when waiting says nothing: other programs had this share
of those CPUs."""
STEAL_SHARE = 0.05
"""Contended: the hypervisor took this share of the CPUs' time."""
THROTTLED_SHARE = 0.05
"""Contended, or throttled with more threads than its quota: the control group was throttled this
share of the time.

The kernel adds up the CPUs on which the group was throttled: the share may exceed 1.
"""
GPU_THROTTLED_SHARE = 0.05
"""Slowed: more than this share of the GPU's samples had a slowing reason, and two of them at
least."""


def disturbed_turns(turns: Sequence[TurnObservation]) -> list[bool]:
    """Tell of each of a launch's turns whether its threads waited for CPUs longer than they usually
    do.

    Threads of one launch wait for one another too, for a while after each pause: two of TensorFlow
    on two CPUs waited for 15 % of the time in turns of 0.035 s with nothing beside them.
    """
    shares = [waiting_share(turn) for turn in turns]
    limit = max(WAITING_SHARE, UNUSUAL_FACTOR * median(shares)) if shares else WAITING_SHARE
    return [share > limit for share in shares]


def memory_grew(turn: TurnObservation) -> bool:
    """Tell whether the memory of a launch grew in this turn, and that took a noticeable part of its
    time.
    """
    return growth_costs(turn.grown_pages, int(turn.seconds * 1e9))


def growing_turns(turns: Sequence[TurnObservation]) -> list[bool]:
    """Tell of each of a launch's turns whether it is warm-up, since memory grew in it.

    False for all of them where most turns are such: then it is what a step costs.
    """
    growing = list(map(memory_grew, turns))
    return growing if 2 * sum(growing) < len(growing) else [False] * len(growing)


def waiting_share(turn: TurnObservation) -> float:
    """Return the share of the time that threads wanted to run in a turn for which they waited for a
    CPU.
    """
    wanted = turn.cpu_seconds + turn.waiting_seconds
    return turn.waiting_seconds / wanted if wanted > 0 else 0.0


def disturbed(record: Record, host: Host | None) -> bool:
    """Tell whether other programs disturbed this launch."""
    return bool(disturbances(record, host))


def left_out(record: Record, host: Host | None) -> bool:
    """Tell whether a comparison leaves this launch out: others disturbed it, or its GPU was
    slowed.
    """
    return disturbed(record, host) or bool(slowed(record))


def contended(record: Record, host: Host | None) -> bool | None:
    """Tell whether others disturbed this launch; None where its evidence does not say."""
    outcome = record.outcome
    if disturbed(record, host):
        return True
    if not _ended(outcome):
        return None
    if record.cell.on_gpu:
        return None if observe_launch(outcome, record.telemetry).other_processes is None else False
    return None if outcome.contention is None or long_enough(outcome) is None else False


def disturbances(record: Record, host: Host | None) -> str:
    """Return how others disturbed this launch, in words; empty where its evidence shows nothing."""
    if not _ended(record.outcome):
        return ""
    if record.cell.on_cpu:
        return " and ".join(_causes(record, host))
    if not record.cell.on_gpu:
        return ""
    others = observe_launch(record.outcome, record.telemetry).other_processes
    processes = counted(others or 0, "other process", "other processes")
    return f"{processes} held the GPU too; end them, or measure on another GPU" if others else ""


def slowed(record: Record) -> str:
    """Return how heat or the power supply slowed the GPU of this launch, in words; empty where
    nothing did.
    """
    if not record.cell.on_gpu or not _ended(record.outcome):
        return ""
    seen: DeviceObserved = observe_launch(record.outcome, record.telemetry)
    share = seen.slowed_share or 0.0
    if share <= GPU_THROTTLED_SHARE or round(share * (seen.samples or 0)) < 2:
        return ""
    slowing = {word for bit, word in REASONS.items() if bit & SLOWING}
    why = " and ".join(word for word in seen.clock_reasons or {} if word in slowing)
    clock = f", at {seen.sm_mhz.median:.0f} MHz" if seen.sm_mhz else ""
    return f"the GPU was slowed {share:.0%} of the time: {why}{clock}"


def throttled(record: Record, capacity: float | None) -> str:
    """Return how the launch's own quota throttled it, with more threads than it allows; else an
    empty text.
    """
    found = _evidence(record, capacity)
    if found is None or capacity is None or found.within or found.asked <= capacity:
        return ""
    share = (found.contention.throttled_seconds or 0.0) / found.threads.wall_seconds
    worth = f"{counted(found.asked, 'thread')} in {capacity:.3g} CPUs' worth of time"
    return f"throttled {share:.0%} of the time, {worth}" if share > THROTTLED_SHARE else ""


def _ended(outcome: Outcome) -> bool:
    return outcome.status in (Status.OK, Status.PARITY_FAILED)


class _Evidence(NamedTuple):
    """The evidence of one launch that can be judged."""

    threads: ThreadEvidence
    contention: Contention
    asked: int
    """Threads asked for, or taken where none were."""
    within: bool
    """Whether its own threads had a CPU each."""


def _evidence(record: Record, capacity: float | None) -> _Evidence | None:
    """Return the evidence; None if there is none to judge."""
    contention, threads = record.outcome.contention, long_enough(record.outcome)
    if contention is None or threads is None:
        return None
    asked = threads.requested or threads.framework_says or threads_seen(threads, contention)
    within = (
        capacity is not None
        and max(asked, _own_threads(asked, threads, contention, capacity)) <= capacity
    )
    # Other programs must have run meanwhile: a launch's threads also wait for one another.
    others, waited = contention.others_cpu_seconds, contention.run_queue_seconds or 0.0
    alone = others is not None and others < OTHERS_PER_WAITED * waited
    return _Evidence(threads, contention, asked, within and not alone)


def _causes(record: Record, host: Host | None) -> list[str]:
    cell, outcome, capacity = record.cell, record.outcome, capacity_of(record, host)
    if (found := _evidence(record, capacity)) is None:
        return []
    threads, contention, asked, within = found
    if outcome.outside is not None and outcome.outside.turns:
        return _cause_in_turns(outcome.outside.turns) if within else []
    wall, waited, others = (
        threads.wall_seconds,
        contention.run_queue_seconds,
        contention.others_cpu_seconds,
    )
    causes = []
    usable = len(outcome.cpus) if outcome.cpus else None if host is None else host.effective_cpus
    # Other programs may use the CPUs that a quota keeps from the launch.
    had_cpus = min(usable or 0, capacity or math.inf)
    mattering = (usable or 0) - had_cpus + OTHERS_SHARE * (usable or 0)
    if usable and asked > had_cpus and others is not None and others > mattering * wall:
        used = f"{others / wall:.1f} of {counted(usable, 'CPU')}"
        causes.append(f"other programs used {used}, beside its own {counted(asked, 'thread')}")
    if waited and within and (share := waited / (waited + threads.cpu_seconds)) > WAITING_SHARE:
        causes.append(f"its threads waited for a CPU {share:.0%} of the time they wanted to run")
    pressure = (contention.pressure_seconds or 0.0) / wall
    # A thread that a quota stops counts as waiting there, too.
    left_one = within and capacity is not None and asked < capacity and not cell.cpu_quota
    if left_one and not causes and pressure > PRESSURE_SHARE:
        causes.append(
            f"processes waited for a CPU {pressure:.0%} of the time though it left one free"
        )
    # Stolen time is counted over all CPUs of the machine, whichever of them the launch used.
    cpus = 1 if host is None else host.machine_cpus or host.effective_cpus or 1
    if (share := (contention.steal_seconds or 0.0) / (wall * cpus)) > STEAL_SHARE:
        causes.append(f"the hypervisor took {share:.0%} of the CPUs' time")
    if (
        within
        and not cell.cpu_quota
        and (share := (contention.throttled_seconds or 0.0) / wall) > THROTTLED_SHARE
    ):
        causes.append(f"its control group was throttled {share:.0%} of the time")
    return causes


def _cause_in_turns(turns: Sequence[TurnObservation]) -> list[str]:
    """Return how others disturbed most turns of a launch whose threads have a CPU each; empty where
    they did not.
    """
    share = median(map(waiting_share, turns))
    if share <= WAITING_SHARE:
        return []
    known = [
        turn.busy_seconds - turn.cpu_seconds for turn in turns if turn.busy_seconds is not None
    ]
    # Without that evidence others are blamed.
    if known and sum(known) < OTHERS_PER_WAITED * sum(turn.waiting_seconds for turn in turns):
        return []
    return [
        (
            f"its threads waited for a CPU {share:.0%} of the time they wanted to run, in the "
            "median of its turns"
        )
    ]


def _own_threads(
    asked: int, threads: ThreadEvidence, contention: Contention, capacity: float
) -> float:
    # The number of threads that the launch itself kept running. Waiting alone does not show it: a
    # helper thread that waits behind others looks like an additional thread. CPU seconds do, and so
    # do more runnable threads than CPUs.
    running = threads.cpu_seconds / threads.wall_seconds
    wanting = wanting_threads(threads, contention)
    limit = asked * EXCEEDED_FACTOR + EXCEEDED_SLACK
    grown = (
        wanting if running > limit or wanting > capacity * EXCEEDED_FACTOR + EXCEEDED_SLACK else 0.0
    )
    return max(threads.framework_says or 0, grown)

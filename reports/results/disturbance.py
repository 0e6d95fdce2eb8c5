"""Disturbed launches: other programs used their CPUs or GPU, or something slowed the GPU down.

Thresholds tolerate the noise of a shared virtual machine. A launch with more threads than CPUs, or
than its quota is worth, causes its own waiting and throttling; with a quota of the cell itself
throttling is always the launch's own. A launch bound to two of sixty-four CPUs has two. PSI counts
the waiting of any process, including the launch's own helper threads: it is used only if the launch
left a CPU free. Stolen time is not judged in turns, since it hits every member. In a corpus of real
launches next to other work, waiting over 10 % or pressure over 10 % found four in five of those
that were more than 5 % slow (verdicts.md).

A GPU is disturbed by another process on it. It is slowed if more than `GPU_THROTTLED_SHARE` of its
samples, and at least two, have a reason that means something is wrong; such a launch is not
repeated, as the GPU would only get hotter.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from dlbench.adapters.protocol import Contention, Status, ThreadEvidence, growth_costs
from dlbench.reports.results.clocks import cpus_of_others, others_explain_clocks, others_in_turns
from dlbench.reports.results.gpu_evidence import REASONS, SLOWING, observe_launch
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.naming import counted
from dlbench.reports.results.outcome import Outcome, TurnObservation
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
"""Contended, with more running threads than CPUs, when waiting says nothing: other programs had
this share of those CPUs."""
STEAL_SHARE = 0.05
"""Contended: the hypervisor took this share of the CPUs' time."""
THROTTLED_SHARE = 0.05
"""Contended, or throttled with more threads than its quota: the control group was throttled this
share of the time.

The kernel adds up the CPUs on which the control group was throttled: the share may exceed 1.
"""
GPU_THROTTLED_SHARE = 0.05
"""Slowed: more than this share of the GPU's samples had a slowing reason, and two of them at
least."""


def disturbed_turns(turns: Sequence[TurnObservation]) -> list[bool]:
    """Tell of each turn of a launch whether its threads waited for CPUs longer than usual.

    Threads of one launch wait for one another too, for a while after each pause: two of TensorFlow
    on two CPUs waited for 15 % of the time in turns of 0.035 s with nothing else running.
    """
    if not turns:
        return []
    shares = [waiting_share(turn) for turn in turns]
    limit = max(WAITING_SHARE, UNUSUAL_FACTOR * median(shares))
    return [share > limit for share in shares]


def memory_grew(turn: TurnObservation) -> bool:
    """Tell whether a launch's memory grew in this turn, for a noticeable part of its time."""
    return growth_costs(turn.grown_pages, int(turn.seconds * 1e9))


def growing_turns(turns: Sequence[TurnObservation]) -> list[bool]:
    """Tell of each turn of a launch whether it is warm-up, since memory grew in it.

    False for all of them where most turns are such: then it is the cost of a step.
    """
    growing = [memory_grew(turn) for turn in turns]
    if 2 * sum(growing) >= len(growing):
        return [False] * len(growing)
    return growing


def waiting_share(turn: TurnObservation) -> float:
    """Return the share of a turn's time to run for which threads waited for a CPU."""
    wanted = turn.cpu_seconds + turn.waiting_seconds
    return turn.waiting_seconds / wanted if wanted > 0 else 0.0


def disturbed(record: Record, host: Host | None) -> bool:
    """Tell whether other programs disturbed this launch."""
    return bool(disturbances(record, host))


def clocks_undecided(record: Record) -> bool:
    """Tell whether other programs hide what a launch did between its samples."""
    return record.cell.on_cpu and others_explain_clocks(record.cell, record.outcome)


def left_out(record: Record, host: Host | None) -> bool:
    """Tell whether a comparison leaves this launch out: it was disturbed, or its GPU slowed."""
    return disturbed(record, host) or bool(slowed(record))


def disturbed_if_known(record: Record, host: Host | None) -> bool | None:
    """Tell whether others disturbed this launch; None where its evidence does not say."""
    outcome = record.outcome
    if disturbed(record, host):
        return True
    if not _ended(outcome):
        return None
    if record.cell.on_gpu:
        unknown = observe_launch(outcome, record.telemetry).other_processes is None
    else:
        unknown = outcome.contention is None or long_enough(outcome) is None
    return None if unknown else False


def disturbances(record: Record, host: Host | None) -> str:
    """Return how others disturbed this launch, in words; empty where its evidence shows nothing."""
    if not _ended(record.outcome):
        return ""
    if record.cell.on_cpu:
        return " and ".join(_causes(record, host))
    if not record.cell.on_gpu:
        return ""
    others = observe_launch(record.outcome, record.telemetry).other_processes
    if not others:
        return ""
    processes = counted(others, "other process", "other processes")
    return f"{processes} held the GPU too; end them, or measure on another GPU"


def slowed(record: Record) -> str:
    """Return how heat or the power supply slowed the launch's GPU, in words; else an empty text."""
    if not record.cell.on_gpu or not _ended(record.outcome):
        return ""
    observed = observe_launch(record.outcome, record.telemetry)
    share = observed.slowed_share or 0.0
    if share <= GPU_THROTTLED_SHARE or round(share * (observed.samples or 0)) < 2:
        return ""
    slowing = {word for bit, word in REASONS.items() if bit & SLOWING}
    reasons = [word for word in observed.clock_reasons or {} if word in slowing]
    sentence = f"the GPU was slowed {share:.0%} of the time: {' and '.join(reasons)}"
    if observed.sm_mhz:
        sentence += f", at {observed.sm_mhz.median:.0f} MHz"
    return sentence


def throttled(record: Record, capacity: float | None) -> str:
    """Return how the launch's own quota throttled it, with more threads than it allows.

    Empty where it did not.
    """
    evidence = _evidence(record, capacity)
    if (
        evidence is None
        or capacity is None
        or evidence.others_waited_for
        or evidence.asked <= capacity
    ):
        return ""
    share = (evidence.contention.throttled_seconds or 0.0) / evidence.threads.wall_seconds
    if share <= THROTTLED_SHARE:
        return ""
    threads = counted(evidence.asked, "thread")
    return f"throttled {share:.0%} of the time, {threads} in {capacity:.3g} CPUs' worth of time"


def _ended(outcome: Outcome) -> bool:
    return outcome.status in (Status.OK, Status.PARITY_FAILED)


class _Evidence(NamedTuple):
    """The evidence of one launch that can be judged."""

    threads: ThreadEvidence
    contention: Contention
    asked: int
    """Threads asked for, or taken where none were."""
    others_waited_for: bool
    """Whether its own threads had a CPU each, and other programs ran meanwhile."""


def _evidence(record: Record, capacity: float | None) -> _Evidence | None:
    """Return the evidence; None if there is none to judge."""
    contention = record.outcome.contention
    threads = long_enough(record.outcome)
    if contention is None or threads is None:
        return None
    asked = threads.requested or threads.framework_says or threads_seen(threads, contention)
    within = False
    if capacity is not None:
        within = max(asked, _own_threads(asked, threads, contention, capacity)) <= capacity
    # Other programs must have run meanwhile: a launch's threads also wait for one another.
    others = contention.others_cpu_seconds
    waited = contention.run_queue_seconds or 0.0
    alone = others is not None and others < OTHERS_PER_WAITED * waited
    return _Evidence(threads, contention, asked, within and not alone)


def _causes(record: Record, host: Host | None) -> list[str]:
    """Return in words how others disturbed a launch on the CPU; empty where they did not."""
    outside = record.outcome.outside
    if outside is not None and clocks_undecided(record):
        cpus = cpus_of_others(outside)
        return [f"other programs used {cpus:.1f} CPUs, and hide what it did between its samples"]
    capacity = capacity_of(record, host)
    evidence = _evidence(record, capacity)
    if evidence is None:
        return []
    threads, contention, asked, within = evidence
    wall = threads.wall_seconds
    if outside is not None and outside.turns:
        if within:
            return _cause_in_turns(outside.turns)
        others, wall = others_in_turns(outside.turns)
        used = _use_by_others(record, host, capacity, asked, others, wall)
        return [used] if used else []
    causes = []
    if not within:
        others = contention.others_cpu_seconds
        used = _use_by_others(record, host, capacity, asked, others, wall)
        if used:
            causes.append(used)
    waited = contention.run_queue_seconds
    if waited and within:
        share = waited / (waited + threads.cpu_seconds)
        if share > WAITING_SHARE:
            causes.append(
                f"its threads waited for a CPU {share:.0%} of the time they wanted to run"
            )
    pressure = (contention.pressure_seconds or 0.0) / wall
    # A thread that a quota stops counts as waiting there, too.
    has_quota = bool(record.cell.cpu_quota)
    left_one = within and capacity is not None and asked < capacity and not has_quota
    if left_one and not causes and pressure > PRESSURE_SHARE:
        causes.append(
            f"processes waited for a CPU {pressure:.0%} of the time though it left one free"
        )
    # Stolen time is counted over all CPUs of the machine, whichever of them the launch used.
    cpus = 1 if host is None else host.machine_cpus or host.effective_cpus or 1
    stolen = (contention.steal_seconds or 0.0) / (wall * cpus)
    if stolen > STEAL_SHARE:
        causes.append(f"the hypervisor took {stolen:.0%} of the CPUs' time")
    throttled_share = (contention.throttled_seconds or 0.0) / wall
    if within and not has_quota and throttled_share > THROTTLED_SHARE:
        causes.append(f"its control group was throttled {throttled_share:.0%} of the time")
    return causes


def _use_by_others(
    record: Record,
    host: Host | None,
    capacity: float | None,
    asked: int,
    others: float | None,
    wall: float,
) -> str:
    """Return how many CPUs others used during a launch that keeps more threads than CPUs running.

    Empty where they did not use a noticeable part of them. ``others`` are their CPU seconds in
    ``wall`` seconds.
    """
    usable = None if host is None else host.effective_cpus
    if record.outcome.cpus:
        usable = len(record.outcome.cpus)
    if not usable or others is None or not wall:
        return ""
    # Other programs may use the CPUs that a quota keeps from the launch.
    had_cpus = min(usable, capacity or math.inf)
    mattering = usable - had_cpus + OTHERS_SHARE * usable
    if others <= mattering * wall:
        return ""
    used = f"{others / wall:.1f} of {counted(usable, 'CPU')}"
    own = counted(asked, "thread")
    return f"other programs used {used} while its own {own} ran"


def _cause_in_turns(turns: Sequence[TurnObservation]) -> list[str]:
    """Return how others disturbed most turns of a launch whose threads have a CPU each.

    Nothing where they did not.
    """
    share = median(waiting_share(turn) for turn in turns)
    if share <= WAITING_SHARE:
        return []
    seconds_of_others = []
    for turn in turns:
        if turn.busy_seconds is not None:
            seconds_of_others.append(turn.busy_seconds - turn.cpu_seconds)
    waited = sum(turn.waiting_seconds for turn in turns)
    # Without that evidence others are blamed.
    if seconds_of_others and sum(seconds_of_others) < OTHERS_PER_WAITED * waited:
        return []
    cause = f"its threads waited for a CPU {share:.0%} of the time they wanted to run, in the "
    return [cause + "median of its turns"]


def _own_threads(
    asked: int, threads: ThreadEvidence, contention: Contention, capacity: float
) -> float:
    """Return the number of threads that the launch itself kept running."""
    # Waiting alone does not show it: a helper thread that waits behind others looks like an
    # additional thread. CPU seconds do, and so do more runnable threads than CPUs.
    running = threads.cpu_seconds / threads.wall_seconds
    wanting = wanting_threads(threads, contention)
    has_more = running > asked * EXCEEDED_FACTOR + EXCEEDED_SLACK
    has_more = has_more or wanting > capacity * EXCEEDED_FACTOR + EXCEEDED_SLACK
    reported = threads.framework_says or 0
    if has_more:
        return max(reported, wanting)
    return reported

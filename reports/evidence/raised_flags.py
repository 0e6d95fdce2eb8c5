"""Flags: what a launch's own evidence says against taking its number at face value.

Thresholds are generous to the noise of a shared virtual machine: a flag should mean something.

Threads. The number of threads that *wanted* to run, on average, is (CPU seconds + run-queue delay) / wall seconds: a
thread is running, waiting for a CPU, or asleep. Unlike CPU / wall it is not capped by the number of CPUs, so it tells
eight threads from four on two CPUs; and unlike counting threads that used any CPU it is not misled by frameworks whose
threads take turns (a backward pass in a thread of its own).

Contention. With more threads than CPUs, or than the quota's worth of them, waiting for a CPU is the launch's own doing,
and so is being throttled; neither is then held against others. The CPUs are the launch's own where it tells them: a
launch bound to two of sixty-four CPUs has two. PSI counts waiting of any process, the launch's own helper threads too:
it is used only where the launch left a CPU free. On a corpus of real launches beside other work, waiting over 10 % or
pressure over 10 % found four in five of those that were more than 5 % slow (VERDICTS.md, on the corpus that they were
chosen on).

What a GPU's own evidence says is in `gpu_evidence`; the host's threads, which only start its work, are not judged then.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlbench.adapters.protocol import BOUND, Cell, Contention, Outcome, Status, ThreadEvidence
from dlbench.reports.evidence import flag_kinds
from dlbench.reports.evidence.flag_kinds import Flag
from dlbench.reports.evidence.gpu_evidence import device_flags
from dlbench.reports.evidence.statistics import ENOUGH_LAUNCHES
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

EXCEEDED_FACTOR, EXCEEDED_SLACK = 1.10, 0.15
"""Threads are exceeded when more than ``asked * factor + slack`` wanted to run on average."""
UNUSED_SHARE = 0.10
"""Threads are unused when of those beyond the first less than this share wanted to run on average ..."""
WORKER_SHARE = 0.01
"""... or when fewer threads than asked each had this share of the wall time as CPU time."""
WAITING_SHARE = 0.10
"""Contended: this share of the time that threads wanted to run was spent waiting, with no more threads than CPUs."""
PRESSURE_SHARE = 0.10
"""Contended: some process of the machine waited for a CPU for this share of the time, with fewer threads than CPUs."""
OTHERS_PER_WAITED = 0.5
"""Waiting is held against others only where they had at least this many CPU seconds for each second waited."""
OTHERS_SHARE = 0.10
"""Contended, with more threads than CPUs, where waiting tells nothing: others had this share of those CPUs."""
STEAL_SHARE = 0.05
"""Contended: the hypervisor took this share of the CPUs' time."""
THROTTLED_SHARE = 0.05
"""Contended, or with more threads than its quota throttled: the control group was, for this share of the time.

The kernel adds up the CPUs on which the group was throttled: the share may exceed 1.
"""
SHORTEST_REGION = 0.2
"""Seconds: a shorter timed region is a few ticks of the clocks that the evidence is read from, and tells nothing."""
CEILING_SLACK = 1.02
"""A rate is over the ceiling when it exceeds it by more than measurement noise."""


def wanting_threads(threads: ThreadEvidence, contention: Contention | None) -> float:
    """Return how many threads were running or waiting for a CPU, on average over the timed region."""
    waited = 0.0 if contention is None else contention.run_queue_seconds or 0.0
    return (threads.cpu_seconds + waited) / threads.wall_seconds if threads.wall_seconds > 0 else 0.0


def working_threads(threads: ThreadEvidence) -> int | None:
    """Return how many threads had at least `WORKER_SHARE` of the wall time; None where the system does not tell."""
    if threads.cpu_seconds_by_thread is None:
        return None
    return sum(1 for seconds in threads.cpu_seconds_by_thread if seconds >= WORKER_SHARE * threads.wall_seconds)


def more_threads_than(asked: int, threads: ThreadEvidence, contention: Contention | None) -> bool:
    """Tell whether clearly more threads than asked had work to do.

    More must have wanted to run, and the threads beyond the busiest ``asked`` ones must have done some of the work:
    beside other programs a thread that does next to nothing still waits long for a CPU each time it wakes.
    """
    if wanting_threads(threads, contention) <= asked * EXCEEDED_FACTOR + EXCEEDED_SLACK:
        return False
    if threads.cpu_seconds_by_thread is None:
        return True
    of_busiest = sum(sorted(threads.cpu_seconds_by_thread, reverse=True)[:asked])
    return threads.cpu_seconds - of_busiest > EXCEEDED_SLACK * threads.wall_seconds


def record_flags(record: Record, host: Host | None) -> list[Flag]:
    """Return what a record's own evidence says: see `launch_flags`, and whether its node was shared."""
    flags = launch_flags(record.cell, record.outcome, host, record.quota_cpus, record.telemetry)
    if record.node is not None and record.node.shared:
        flags.append(Flag(flag_kinds.SHARED_NODE, f"shared node: {'; '.join(record.node.shared)}"))
    return flags


def raises(record: Record, host: Host | None, *kinds: flag_kinds.FlagKind) -> bool:
    """Tell whether a record's own evidence raises a flag of one of these kinds."""
    return any(flag.kind in kinds for flag in record_flags(record, host))


def launch_flags(
    cell: Cell,
    outcome: Outcome,
    host: Host | None,
    quota_cpus: float | None = None,
    telemetry: Mapping[str, Any] | None = None,
) -> list[Flag]:
    """Return what one launch's evidence says.

    ``host`` and ``quota_cpus`` (CPUs' worth of time, as control groups allowed them to this launch) give the CPUs that
    the launch could use where it does not tell them itself; ``telemetry`` is what was sampled of its GPU. Without them
    some flags cannot be told.
    """
    if outcome.status not in (Status.OK, Status.PARITY_FAILED):
        return []
    flags = _of_mathematics(outcome)
    flags += device_flags(cell, outcome, telemetry)
    if cell.on_cpu:
        capacity = capacity_of(cell, outcome, host, quota_cpus)
        flags += _of_threads(outcome, capacity)
        flags += _of_contention(cell, outcome, host, capacity)
    if outcome.steady is False:
        samples = f"{len(outcome.samples_ns)} sample{'s' if len(outcome.samples_ns) != 1 else ''}"
        flags.append(Flag(flag_kinds.NO_STEADY_STATE, f"no steady state within {samples}, all of them kept"))
    return flags


def capacity_of(cell: Cell, outcome: Outcome, host: Host | None, quota_cpus: float | None = None) -> float | None:
    """Return how many CPUs' worth of time a launch could get: its CPUs or its quota, the smaller; None if unknown.

    Its own word counts first, then what its cell asked for, then what the host had when it was probed.
    """
    of_host = None if host is None else host.capacity_cpus or host.effective_cpus
    if outcome.cpus:
        cpus: float | None = len(outcome.cpus)
    elif cell.affinity == BOUND:
        cpus = cell.all_threads
    else:
        cpus = of_host
    if quota_cpus is None and host is not None and of_host is not None and host.logical_cpus is not None:
        # Less than the host's mask: then it is the quota.
        quota_cpus = of_host if of_host < host.logical_cpus else None
    return min((limit for limit in (cpus, quota_cpus) if limit is not None), default=None)


def _of_mathematics(outcome: Outcome) -> list[Flag]:
    flags = []
    parity = outcome.parity
    if parity is None or parity.verdict == "unchecked":
        reason = "no parity check" if parity is None else parity.reason or "no reference"
        flags.append(Flag(flag_kinds.PARITY_UNCHECKED, f"unchecked: {reason}"))
    elif parity.verdict == "disagrees":
        flags.append(Flag(flag_kinds.PARITY, parity.reason or "it disagrees with the reference"))
    if outcome.final_loss_finite is False:
        flags.append(Flag(flag_kinds.LOSS_NOT_FINITE, "the loss after the timed steps is not finite"))
    return flags


def _of_threads(outcome: Outcome, capacity: float | None) -> list[Flag]:
    threads = outcome.threads
    if threads is None or threads.wall_seconds < SHORTEST_REGION:
        return []
    asked, says = threads.requested, threads.framework_says
    wanting = wanting_threads(threads, outcome.contention)
    if more_threads_than(asked, threads, outcome.contention):
        return [Flag(flag_kinds.THREADS_EXCEEDED, f"{wanting:.1f} threads wanted to run on average, {asked} asked")]
    if says is not None and says != asked:
        kind = flag_kinds.THREADS_EXCEEDED if says > asked else flag_kinds.THREADS_UNUSED
        uses = f"{says} thread{'s' if says != 1 else ''}"
        return [Flag(kind, f"the framework says it uses {uses}, {asked} asked")]
    # Beyond the CPUs, threads of a framework that lets them sleep while they wait are rarely seen wanting to run;
    # beyond the quota, throttled ones.
    if asked < 2 or capacity is None or asked > capacity:
        return []
    if wanting < 1 + UNUSED_SHARE * (asked - 1):
        return [
            Flag(flag_kinds.THREADS_UNUSED, f"{wanting:.1f} threads wanted to run on average, {says or asked} claimed")
        ]
    working = working_threads(threads)
    listed = len(threads.cpu_seconds_by_thread or ())
    if says is not None and working is not None and working < asked <= listed:
        return [Flag(flag_kinds.THREADS_UNUSED, f"{working} threads did the work, {says} claimed")]
    return []


def _of_contention(cell: Cell, outcome: Outcome, host: Host | None, capacity: float | None) -> list[Flag]:
    contention, threads = outcome.contention, outcome.threads
    if contention is None or threads is None or threads.wall_seconds < SHORTEST_REGION:
        return []
    wall = threads.wall_seconds
    within = capacity is not None and max(cell.all_threads, _own_threads(threads, contention, capacity)) <= capacity
    causes = []
    waited = contention.run_queue_seconds
    others = contention.others_cpu_seconds
    # Somebody must have run meanwhile: a launch's threads also wait for one another.
    within = within and (others is None or others >= OTHERS_PER_WAITED * (waited or 0.0))
    # Of the CPUs themselves: what others do with those that a quota keeps from the launch is no matter.
    usable = len(outcome.cpus) if outcome.cpus else None if host is None else host.effective_cpus
    if (
        usable is not None
        and cell.all_threads > usable
        and others is not None
        and others > OTHERS_SHARE * usable * wall
    ):
        had = f"{cell.all_threads} threads on {usable} CPU{'s' if usable != 1 else ''}"
        causes.append(f"{had}, of which other programs used {others / wall:.1f}")
    if waited is not None and within:
        share = waited / (waited + threads.cpu_seconds) if waited > 0 else 0.0
        if share > WAITING_SHARE:
            causes.append(f"its threads waited for a CPU {share:.0%} of the time they wanted to run")
    pressure = (contention.pressure_seconds or 0.0) / wall
    if within and capacity is not None and cell.all_threads < capacity and not causes and pressure > PRESSURE_SHARE:
        causes.append(f"processes waited for a CPU {pressure:.0%} of the time though it left one free")
    if contention.steal_seconds is not None:
        # It is counted over all CPUs of the machine, whichever of them the launch used.
        cpus = 1 if host is None else host.machine_cpus or host.effective_cpus or 1
        share = contention.steal_seconds / (wall * cpus)
        if share > STEAL_SHARE:
            causes.append(f"the hypervisor took {share:.0%} of the CPUs' time")
    flags = []
    share = (contention.throttled_seconds or 0.0) / wall
    if share > THROTTLED_SHARE and capacity is not None:
        if within:
            causes.append(f"its control group was throttled {share:.0%} of the time")
        elif cell.all_threads > capacity:
            worth = f"{cell.all_threads} threads in {capacity:.3g} CPUs' worth of time"
            flags.append(Flag(flag_kinds.THROTTLED, f"throttled {share:.0%} of the time, {worth}"))
    return [Flag(flag_kinds.CONTENDED, " and ".join(causes)), *flags] if causes else flags


def _own_threads(threads: ThreadEvidence, contention: Contention, capacity: float) -> float:
    """Return how many threads the launch itself kept running, where that can be told from others' doing.

    Waiting alone does not tell: a helper thread that waits behind others looks like one thread more. CPU seconds do,
    and so does wanting more threads than there are CPUs.
    """
    running = threads.cpu_seconds / threads.wall_seconds
    wanting = wanting_threads(threads, contention)
    claimed = threads.framework_says or 0
    limit = threads.requested * EXCEEDED_FACTOR + EXCEEDED_SLACK
    grown = wanting if running > limit or wanting > capacity * EXCEEDED_FACTOR + EXCEEDED_SLACK else 0.0
    return max(claimed, grown)


def cell_flags(launches: Sequence[Iterable[Flag]]) -> list[Flag]:
    """Bring the flags of a cell's launches together, in the order of `KINDS`."""
    flags = []
    for kind in flag_kinds.KINDS:
        raised = [flag for launch in launches for flag in launch if flag.kind is kind]
        if raised and (kind in flag_kinds.ONCE_IS_ENOUGH or 2 * len(raised) >= len(launches)):
            where = "" if len(launches) == 1 else f" (in {len(raised)} of {len(launches)} launches)"
            flags.append(Flag(kind, raised[-1].sentence + where))
    return flags


def failed_launches(failed: Sequence[Record], launches: int) -> list[Flag]:
    """Return the flag of a cell of which some launches failed, the newest last; none where none did."""
    if not failed:
        return []
    outcome = failed[-1].outcome
    how = f"{outcome.status.value}, {outcome.reason}"
    return [Flag(flag_kinds.FAILED_LAUNCHES, f"{len(failed)} of {launches} launches: {how}")]


def few_launches(launches: int) -> list[Flag]:
    """Return the flag of a cell with too few launches for an interval that covers them."""
    if launches >= ENOUGH_LAUNCHES:
        return []
    return [Flag(flag_kinds.FEW_LAUNCHES, f"{launches} launch{'es' if launches != 1 else ''}")]

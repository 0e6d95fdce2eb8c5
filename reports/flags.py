"""Flags: reasons in a launch's own evidence not to take its number at face value.

Thresholds are generous to the noise of a shared virtual machine: a flag should mean something.

Threads. The number of threads that *wanted* to run, on average, is (CPU seconds + run-queue delay) / wall seconds: a
thread is running, waiting for a CPU, or asleep. Unlike CPU / wall it is not capped by the number of CPUs, so it tells
eight threads from four on two CPUs; and unlike counting threads that used any CPU it is not misled by frameworks whose
threads take turns (a backward pass in a thread of its own).

Contention. With more threads than CPUs, or than the quota's worth of them, waiting for a CPU is the launch's own doing,
and so is being throttled. A launch bound to two of sixty-four CPUs has two. PSI counts waiting of any process, the
launch's own helper threads too: it is used only where the launch left a CPU free. On a corpus of real launches beside
other work, waiting over 10 % or pressure over 10 % found four in five of those that were more than 5 % slow
(VERDICTS.md).

GPU. Two clocks: the framework's events on the device time each sample by the GPU's clock. Where they show more than the
wall clock, the fence did not wait; where less, part of the time was not the device's work. Host-bound: the device's
operators and copies of a step, from the profile after the timed steps (without one NVML's utilisation, for a resident
mini-batch only), take less than `BUSY_SHARE` of the median step. Throttled: a reason that slows the GPU because
something is wrong, in more than `GPU_THROTTLED_SHARE` of the samples and in two at least; such a launch is not
repeated, as the GPU would be hotter still. Another process on the GPU makes a launch contended. The host's threads,
which only start the GPU's work, are not judged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dlbench.adapters.protocol import BOUND, Cell, Contention, Outcome, Status, ThreadEvidence
from dlbench.reports.gpu_evidence import REASONS, SLOWING, DeviceObserved, observe_launch
from dlbench.reports.statistics import ENOUGH_LAUNCHES
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import IMPORTED, Record


@dataclass(frozen=True)
class FlagKind:
    """A kind of flag: its name in JSON, its mark in a table, and what the mark means."""

    name: str
    symbol: str
    legend: str


@dataclass(frozen=True)
class Flag:
    """A flag raised on a cell, with the facts that raised it."""

    kind: FlagKind
    sentence: str


PARITY = FlagKind("parity", "!", "computed something else than the reference: not comparable")
PARITY_UNCHECKED = FlagKind("parity_unchecked", "?", "not checked against the reference mathematics")
LOSS_NOT_FINITE = FlagKind("loss_not_finite", "x", "the loss after the timed steps is not finite")
ECC_ERRORS = FlagKind("ecc_errors", "m", "the GPU's memory had errors while it was measured")
THREADS_EXCEEDED = FlagKind("threads_exceeded", ">", "more threads worked than were asked for")
THREADS_UNUSED = FlagKind("threads_unused", "<", "fewer threads worked than were asked for")
CONTENDED = FlagKind("contended", "~", "disturbed: other programs used the CPUs")
SHARED_NODE = FlagKind("shared_node", "s", "measured on a node of a fleet that the job did not have to itself")
THROTTLED = FlagKind("throttled", "q", "the CPU quota throttled it: it allows less than one CPU a thread")
DEVICE_THROTTLED = FlagKind("device_throttled", "t", "heat or the power supply slowed the GPU down")
DEVICE_TIME = FlagKind("device_time", "d", "the GPU's own clock and the wall clock differ by more than 2 %")
HOST_BOUND = FlagKind("host_bound", "h", "the GPU waited for the host: it worked less than 80 % of the time")
NO_STEADY_STATE = FlagKind(
    "no_steady_state", "u", "no steady state: the samples still change after the longest warm-up"
)
OVER_CEILING = FlagKind("over_ceiling", "^", "faster than the measured ceiling: one of the two is wrong")
NEAR_PEAK = FlagKind("near_peak", "p", "doubtful: above 90 % of the GPU's theoretical peak")
FAILED_LAUNCHES = FlagKind("failed_launches", "c", "some of its launches failed")
OTHER_ENVIRONMENT = FlagKind("other_environment", "e", "measured with an older environment than the rest of its row")
FEW_LAUNCHES = FlagKind(
    "few_launches", "'", "fewer than 3 launches: the interval covers variation within a launch only"
)

KINDS = tuple(each for each in globals().copy().values() if isinstance(each, FlagKind))
"""All of them, in this order."""

ONCE_IS_ENOUGH = frozenset({PARITY, PARITY_UNCHECKED, LOSS_NOT_FINITE, ECC_ERRORS})
"""Doubtful mathematics counts from one launch on; noisy measurements from half of the launches."""

EXCEEDED_FACTOR, EXCEEDED_SLACK = 1.10, 0.15
"""Threads are exceeded when more than ``asked * factor + slack`` wanted to run on average."""
UNUSED_SHARE = 0.10
"""Threads are unused when those beyond the first wanted to run less than this share of the time on average ..."""
WORKER_SHARE = 0.01
"""... or when fewer threads than asked each had this share of the wall time as CPU time."""
WAITING_SHARE = 0.10
"""Contended: this share of the time that threads wanted to run was spent waiting, with no more threads than CPUs."""
PRESSURE_SHARE = 0.10
"""Contended: some process of the machine waited for a CPU for this share of the time, with fewer threads than CPUs."""
OTHERS_PER_WAITED = 0.5
"""Others are blamed for waiting only where they had at least this many CPU seconds for each second waited."""
OTHERS_SHARE = 0.10
"""Contended, with more threads than CPUs, where waiting says nothing: others had this share of those CPUs."""
STEAL_SHARE = 0.05
"""Contended: the hypervisor took this share of the CPUs' time."""
THROTTLED_SHARE = 0.05
"""Contended, or with more threads than its quota throttled: the control group was, for this share of the time.

The kernel adds up the CPUs on which the group was throttled: the share may exceed 1.
"""
SHORTEST_REGION = 0.2
"""Seconds: a shorter timed region is a few ticks of the clocks that the evidence is read from."""
CEILING_SLACK = 1.02
"""A rate is over the ceiling when it exceeds it by more than measurement noise."""
DEVICE_TIME_SHARE = 0.02
"""Events and wall time disagree by more than this share ..."""
DEVICE_TIME_SLACK = 50e-6
"""... and by more than so many seconds a sample: the cost of a mark, the fence and waking up."""
BUSY_SHARE = 0.80
"""Host-bound: the device worked for less than this share of a step."""
LAUNCH_BOUND_SHARE = 0.50
"""Launch-bound: host-bound, and starting its operators would take this share of a step or more.

An estimate: operators started from within the framework's own code may cost less than one started by itself.
"""
GPU_THROTTLED_SHARE = 0.05
"""Throttled: more than this share of the samples had a slowing reason, and two of them at least."""


def disturbed(record: Record, host: Host | None) -> bool:
    """Tell whether other programs disturbed this launch."""
    return raises(record, host, CONTENDED)


def left_out(record: Record, host: Host | None) -> bool:
    """Tell whether a comparison leaves this launch out: others disturbed it, or its GPU was slowed."""
    return raises(record, host, CONTENDED, DEVICE_THROTTLED)


def raises(record: Record, host: Host | None, *kinds: FlagKind) -> bool:
    """Tell whether a record's own evidence raises a flag of one of these kinds."""
    return any(flag.kind in kinds for flag in record_flags(record, host))


def contended(record: Record, host: Host | None) -> bool | None:
    """Tell whether others disturbed this launch; None where its evidence does not say."""
    outcome = record.outcome
    if raises(record, host, CONTENDED):
        return True
    if outcome.status not in (Status.OK, Status.PARITY_FAILED):
        return None
    if not record.cell.on_cpu:
        return None if observe_launch(outcome, record.telemetry).other_processes is None else False
    threads = outcome.threads
    silent = outcome.contention is None or threads is None or threads.wall_seconds < SHORTEST_REGION
    return None if silent else False


def product_rate(record: Record, host: Host | None) -> float | None:
    """Return the framework's own matrix-product rate in FLOP/s.

    None where it was not measured, or where more threads than asked for worked.
    """
    rate = record.outcome.gemm_flops_per_second
    return rate if rate and not raises(record, host, THREADS_EXCEEDED) else None


def record_flags(record: Record, host: Host | None) -> list[Flag]:
    """Return the flags of a record: those of its launch, and whether its node was shared."""
    flags = launch_flags(record.cell, record.outcome, host, record.quota_cpus, record.telemetry)
    if record.node is not None and record.node.shared:
        flags.append(Flag(SHARED_NODE, f"shared node: {'; '.join(record.node.shared)}"))
    return flags


def launch_flags(
    cell: Cell,
    outcome: Outcome,
    host: Host | None,
    quota_cpus: float | None = None,
    telemetry: Mapping[str, Any] | None = None,
) -> list[Flag]:
    """Return the flags of one launch.

    ``host`` and ``quota_cpus`` (CPUs' worth of time allowed by control groups) give the CPUs that the launch could use
    where its outcome does not say; ``telemetry`` was sampled on its GPU. Without them some flags cannot be raised.
    """
    if outcome.status not in (Status.OK, Status.PARITY_FAILED):
        return []
    flags = _of_mathematics(outcome, cell.adapter == IMPORTED)
    if cell.on_cpu:
        capacity = capacity_of(cell, outcome, host, quota_cpus)
        flags += _of_threads(outcome, capacity)
        flags += _of_contention(cell, outcome, host, capacity)
    else:
        flags += _of_device(cell, outcome, telemetry)
    if outcome.steady is False:
        samples = f"{len(outcome.samples_ns)} sample{'s' if len(outcome.samples_ns) != 1 else ''}"
        flags.append(Flag(NO_STEADY_STATE, f"no steady state within {samples}, all of them kept"))
    return flags


def cell_flags(launches: Sequence[Iterable[Flag]]) -> list[Flag]:
    """Combine the flags of a cell's launches, in the order of `KINDS`."""
    flags = []
    for kind in KINDS:
        raised = [flag for launch in launches for flag in launch if flag.kind is kind]
        if raised and (kind in ONCE_IS_ENOUGH or 2 * len(raised) >= len(launches)):
            where = "" if len(launches) == 1 else f" (in {len(raised)} of {len(launches)} launches)"
            flags.append(Flag(kind, raised[-1].sentence + where))
    return flags


def failed_launches(failed: Sequence[Record], launches: int) -> list[Flag]:
    """Return the flag of a cell of which some launches failed, the newest last; none where none did."""
    if not failed:
        return []
    outcome = failed[-1].outcome
    how = f"{outcome.status.value}, {outcome.reason}"
    return [Flag(FAILED_LAUNCHES, f"{len(failed)} of {launches} launches: {how}")]


def few_launches(launches: int) -> list[Flag]:
    """Return the flag of a cell with too few launches for an interval that covers them."""
    if launches >= ENOUGH_LAUNCHES:
        return []
    return [Flag(FEW_LAUNCHES, f"{launches} launch{'es' if launches != 1 else ''}")]


def wanting_threads(threads: ThreadEvidence, contention: Contention | None) -> float:
    """Return how many threads were running or waiting for a CPU, on average over the timed region."""
    waited = 0.0 if contention is None else contention.run_queue_seconds or 0.0
    return (threads.cpu_seconds + waited) / threads.wall_seconds if threads.wall_seconds > 0 else 0.0


def working_threads(threads: ThreadEvidence) -> int | None:
    """Return how many threads had at least `WORKER_SHARE` of the wall time; None where the system does not say."""
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


def capacity_of(cell: Cell, outcome: Outcome, host: Host | None, quota_cpus: float | None = None) -> float | None:
    """Return how many CPUs' worth of time a launch could get: its CPUs or its quota, the smaller; None if unknown.

    Its outcome counts first, then the request of its cell, then the host as it was probed.
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


def _of_mathematics(outcome: Outcome, imported: bool) -> list[Flag]:
    flags = []
    parity = outcome.parity
    if not imported and (parity is None or parity.verdict == "unchecked"):
        reason = "no parity check" if parity is None else parity.reason or "no reference"
        flags.append(Flag(PARITY_UNCHECKED, f"unchecked: {reason}"))
    elif parity is not None and parity.verdict == "disagrees":
        flags.append(Flag(PARITY, parity.reason or "it disagrees with the reference"))
    if outcome.final_loss_finite is False:
        flags.append(Flag(LOSS_NOT_FINITE, "the loss after the timed steps is not finite"))
    return flags


def _of_threads(outcome: Outcome, capacity: float | None) -> list[Flag]:
    threads = outcome.threads
    if threads is None or threads.wall_seconds < SHORTEST_REGION:
        return []
    asked, says = threads.requested, threads.framework_says
    wanting = wanting_threads(threads, outcome.contention)
    if more_threads_than(asked, threads, outcome.contention):
        return [Flag(THREADS_EXCEEDED, f"{wanting:.1f} runnable threads on average, {asked} requested")]
    if says is not None and says != asked:
        kind = THREADS_EXCEEDED if says > asked else THREADS_UNUSED
        return [Flag(kind, f"the framework says it uses {says} thread{'s' if says != 1 else ''}, {asked} asked")]
    # Beyond the CPUs, threads of a framework that lets them sleep while they wait are rarely seen wanting to run;
    # beyond the quota, throttled ones.
    if asked < 2 or capacity is None or asked > capacity:
        return []
    if wanting < 1 + UNUSED_SHARE * (asked - 1):
        return [Flag(THREADS_UNUSED, f"{wanting:.1f} runnable threads on average, {says or asked} claimed")]
    working = working_threads(threads)
    listed = len(threads.cpu_seconds_by_thread or ())
    if says is not None and working is not None and working < asked <= listed:
        return [Flag(THREADS_UNUSED, f"{working} threads did the work, {says} claimed")]
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
    # Of the CPUs themselves: use of CPUs that a quota keeps from the launch is no matter.
    usable = len(outcome.cpus) if outcome.cpus else None if host is None else host.effective_cpus
    if usable and cell.all_threads > usable and others is not None and others > OTHERS_SHARE * usable * wall:
        had = f"{cell.all_threads} threads on {usable} CPU{'s' if usable != 1 else ''}"
        causes.append(f"{had}, of which other programs used {others / wall:.1f}")
    if waited and within:
        share = waited / (waited + threads.cpu_seconds)
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
            flags.append(Flag(THROTTLED, f"throttled {share:.0%} of the time, {worth}"))
    return [Flag(CONTENDED, " and ".join(causes)), *flags] if causes else flags


def _own_threads(threads: ThreadEvidence, contention: Contention, capacity: float) -> float:
    # How many threads the launch itself kept running. Waiting alone does not tell: a helper thread that waits behind
    # others looks like one thread more. CPU seconds do, and so does wanting more threads than there are CPUs.
    running = threads.cpu_seconds / threads.wall_seconds
    wanting = wanting_threads(threads, contention)
    limit = threads.requested * EXCEEDED_FACTOR + EXCEEDED_SLACK
    grown = wanting if running > limit or wanting > capacity * EXCEEDED_FACTOR + EXCEEDED_SLACK else 0.0
    return max(threads.framework_says or 0, grown)


def _of_device(cell: Cell, outcome: Outcome, telemetry: Mapping[str, Any] | None) -> list[Flag]:
    seen = observe_launch(outcome, telemetry, cell.world_size)
    flags = []
    errors = [(seen.corrected_errors or 0, "corrected"), (seen.uncorrected_errors or 0, "uncorrected")]
    if any(count for count, _ in errors):
        words = " and ".join(f"{count} {kind}" for count, kind in errors if count)
        flags.append(Flag(ECC_ERRORS, f"{words} ECC errors of the GPU's memory during the launch"))
    if seen.other_processes:
        processes = f"{seen.other_processes} other process{'es' if seen.other_processes > 1 else ''}"
        flags.append(Flag(CONTENDED, f"{processes} held the GPU too; end them, or measure on another GPU"))
    slowed = (seen.slowed_share or 0.0) * (seen.samples or 0)
    if seen.slowed_share is not None and seen.slowed_share > GPU_THROTTLED_SHARE and round(slowed) > 1:
        slowing = {word for bit, word in REASONS.items() if bit & SLOWING}
        why = " and ".join(word for word in seen.clock_reasons or {} if word in slowing)
        clock = f", at {seen.sm_mhz.median:.0f} MHz" if seen.sm_mhz else ""
        flags.append(Flag(DEVICE_THROTTLED, f"the GPU was slowed {seen.slowed_share:.0%} of the time: {why}{clock}"))
    return flags + _of_clocks(outcome, seen) + _of_host(cell, outcome, seen)


def _of_clocks(outcome: Outcome, seen: DeviceObserved) -> list[Flag]:
    ratio = seen.event_per_wall
    if ratio is None or abs(ratio - 1) <= DEVICE_TIME_SHARE:
        return []
    if abs(ratio - 1) * median(outcome.samples_ns) * 1e-9 <= DEVICE_TIME_SLACK:
        return []
    why = "the clock stopped before the GPU did" if ratio > 1 else "the rest was not the GPU's"
    return [Flag(DEVICE_TIME, f"GPU event time is {ratio:.1%} of wall time: {why}")]


def _of_host(cell: Cell, outcome: Outcome, seen: DeviceObserved) -> list[Flag]:
    profiled = seen.busy_source == "profile"
    if seen.busy_share is None or seen.busy_share >= BUSY_SHARE or not (profiled or cell.placement == "resident"):
        return []
    source = "" if profiled else ", by the driver's utilisation"
    words = starting_words(outcome)
    why = f": {words}" if words else ""
    return [Flag(HOST_BOUND, f"the GPU worked {seen.busy_share:.0%} of the time{source}; the host sets the pace{why}")]


def starting_share(outcome: Outcome) -> float | None:
    """Return the share of a step that the host needs to start all its operators one by one; None where unknown.

    Operators a step by the profile, times the host's seconds to start the smallest one, over the median step.
    """
    device, steps = outcome.device, outcome.step_seconds()
    if device is None or device.ceilings is None or not steps:
        return None
    if device.launches is None or device.ceilings.operator_start_seconds is None:
        return None
    return device.launches * device.ceilings.operator_start_seconds / median(steps)


def starting_words(outcome: Outcome) -> str:
    """Return in a sentence the share of a step spent on starting operators; empty where unknown."""
    share, device = starting_share(outcome), outcome.device
    if share is None or device is None or device.ceilings is None:
        return ""
    micros = (device.ceilings.operator_start_seconds or 0.0) * 1e6
    each = f"{micros:.3g}" if micros < 100 else f"{micros:.0f}"
    bound = "launch-bound, since " if share >= LAUNCH_BOUND_SHARE else ""
    part = f"about {share:.0%} of a step" if share < 1 else "all of a step"
    return f"{bound}starting {device.launches:.0f} operators at {each} us each takes {part}"


WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY", "OPENBLAS_THREAD_TIMEOUT")
"""Environment variables that decide how a library's threads wait for work: spinning, which burns a CPU, or asleep.

OpenMP's own, libgomp's, libomp's (two), OpenBLAS's.
"""
WAIT_FACTS = ("spin", "allow_spinning")
"""The same among settings of a mode and facts that an adapter reports of its session."""


@dataclass(frozen=True)
class Observed:
    """Thread and contention evidence: medians over the launches of a cell; None where the system did not say."""

    requested: int
    framework_says: int | None
    """The framework's own count, in the newest launch."""
    os_threads: int | None
    working_threads: int | None
    """Threads with at least 1 % of the wall time as CPU time."""
    wanting_threads: float
    """Threads running or waiting for a CPU, on average."""
    cpu_per_wall: float
    """CPU seconds per second."""
    cpu_seconds_per_step: float
    waiting_per_wall: float | None
    """Run-queue delay of all threads together, seconds per second."""
    involuntary_switches_per_step: float | None
    throttled_share: float | None
    """Of the wall time."""
    steal_per_wall: float | None
    """Seconds that the hypervisor took from all CPUs together, per second."""
    wait_policy: Mapping[str, str] | None = None
    """Settings among `WAIT_VARIABLES` and `WAIT_FACTS` in the newest launch; empty: the libraries' defaults."""


def observe(outcomes: Sequence[Outcome]) -> Observed | None:
    """Return the thread evidence of these timed outcomes of one cell; None where none of them has any."""
    pairs = [(outcome.threads, outcome) for outcome in outcomes if outcome.threads and outcome.threads.wall_seconds > 0]
    if not pairs:
        return None
    newest = pairs[-1][0]

    def of_threads(value: Callable[[ThreadEvidence, Outcome], float | None]) -> float | None:
        found = [each for threads, outcome in pairs if (each := value(threads, outcome)) is not None]
        return median(found) if found else None

    def of_contention(value: Callable[[Contention], float | None], per_step: bool = False) -> float | None:
        def rate(threads: ThreadEvidence, outcome: Outcome) -> float | None:
            amount = None if outcome.contention is None else value(outcome.contention)
            if amount is None:
                return None
            return amount / (max(1, outcome.observed_steps()) if per_step else threads.wall_seconds)

        return of_threads(rate)

    def whole(value: float | None) -> int | None:
        return None if value is None else round(value)

    return Observed(
        requested=newest.requested,
        framework_says=newest.framework_says,
        os_threads=whole(of_threads(lambda threads, _: threads.os_threads)),
        working_threads=whole(of_threads(lambda threads, _: working_threads(threads))),
        wanting_threads=of_threads(lambda threads, outcome: wanting_threads(threads, outcome.contention)) or 0.0,
        cpu_per_wall=of_threads(lambda threads, _: threads.cpu_seconds / threads.wall_seconds) or 0.0,
        cpu_seconds_per_step=of_threads(lambda threads, outcome: threads.cpu_seconds / max(1, outcome.observed_steps()))
        or 0.0,
        waiting_per_wall=of_contention(lambda contention: contention.run_queue_seconds),
        involuntary_switches_per_step=of_contention(lambda contention: contention.involuntary_switches, per_step=True),
        throttled_share=of_contention(lambda contention: contention.throttled_seconds),
        steal_per_wall=of_contention(lambda contention: contention.steal_seconds),
        wait_policy=wait_policy(pairs[-1][1].software),
    )


def wait_policy(software: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the settings that decide how waiting threads wait; None where the launch did not record any settings."""
    variables, settings = software.get("variables"), software.get("mode_settings")
    if not isinstance(variables, Mapping):
        return None
    facts = {**software, **(settings if isinstance(settings, Mapping) else {})}
    found = {name: variables[name] for name in WAIT_VARIABLES if name in variables}
    return {name: str(value) for name, value in {**found, **{n: facts[n] for n in WAIT_FACTS if n in facts}}.items()}

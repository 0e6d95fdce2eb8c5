"""Flags: reasons in a launch's own evidence not to take its number at face value.

Threads are judged in `thread_evidence`, disturbance by others in `disturbance`.

On a GPU, the framework's events on the device time each sample by the GPU's clock. If they show
more than the wall clock, the fence did not wait; if less, the device did not work for part of the
time. A step is host-bound if the device's operators and copies, from the profile after the timed
steps (without one from NVML's utilisation, for a resident mini-batch only), take less than
`BUSY_SHARE` of the median step. The host's threads, which only launch the GPU's work, are not
judged.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import median

from dlbench.adapters.families.own import ADAPTER as OWN_STEP
from dlbench.adapters.protocol import Status
from dlbench.adapters.tuning import in_force
from dlbench.reports.results import disturbance
from dlbench.reports.results.flag_kinds import (
    CONTENDED,
    DEVICE_THROTTLED,
    DEVICE_TIME,
    ECC_ERRORS,
    FAILED_LAUNCHES,
    HOST_BOUND,
    KINDS,
    LOSS_CONSTANT,
    LOSS_NOT_FINITE,
    MEMORY_STATES,
    NO_STEADY_STATE,
    ONCE_IS_ENOUGH,
    PARITY,
    PARITY_UNCHECKED,
    SAMPLES_NOT_KEPT,
    SHARED_NODE,
    THREADS_EXCEEDED,
    THREADS_UNUSED,
    THROTTLED,
    Flag,
    FlagKind,
)
from dlbench.reports.results.gpu_evidence import DeviceObserved, observe_launch
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.memory_evidence import KEEP_HEAP, states_between, states_within
from dlbench.reports.results.naming import counted
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import IMPORTED, Record
from dlbench.reports.results.thread_evidence import capacity_of, misused_threads

CEILING_SLACK = 1.02
"""A rate is over the ceiling when it exceeds it by more than measurement noise."""
DEVICE_TIME_SHARE = 0.02
"""Events and wall time disagree by more than this share ..."""
DEVICE_TIME_SLACK = 50e-6
"""... and by more than this many seconds a sample: the cost of a mark, the fence and waking up."""
BUSY_SHARE = 0.80
"""Host-bound: the device worked for less than this share of a step."""
LAUNCH_BOUND_SHARE = 0.50
"""Launch-bound: host-bound, and starting its operators would take this share of a step or more.

An estimate: operators started from within the framework's own code may cost less than one started
by itself.
"""


def product_rate(record: Record, host: Host | None) -> float | None:
    """Return the framework's own matrix-product rate in FLOP/s.

    None where it was not measured, where no thread count was asked for, or where more threads than
    asked for worked.
    """
    if record.cell.on_cpu and not record.cell.threads:
        return None
    rate = record.outcome.gemm_flops_per_second
    if not rate:
        return None
    exceeded = any(flag.kind is THREADS_EXCEEDED for flag in record_flags(record, host))
    return None if exceeded else rate


def record_flags(record: Record, host: Host | None) -> list[Flag]:
    """Return the flags of a launch, and of a shared node; without a host some cannot be raised."""
    facts = []
    if record.outcome.status in (Status.OK, Status.PARITY_FAILED):
        facts = _facts_of_launch(record, host)
    if record.node is not None and record.node.shared:
        facts.append((SHARED_NODE, f"shared node: {'; '.join(record.node.shared)}"))
    return [Flag(kind, sentence) for kind, sentence in facts if sentence]


def _facts_of_launch(record: Record, host: Host | None) -> list[tuple[FlagKind, str]]:
    """Return the sentences of a launch's flags; an empty one where the flag is not raised."""
    outcome = record.outcome
    facts = _facts_of_mathematics(outcome, record.cell.adapter == IMPORTED)
    by_others = CONTENDED, disturbance.disturbances(record, host)
    if record.cell.on_cpu:
        capacity = capacity_of(record, host)
        misused, sentence = misused_threads(outcome, capacity)
        kind = THREADS_UNUSED
        if misused > 0:
            kind = THREADS_EXCEEDED
            if record.cell.adapter == OWN_STEP:
                sentence += "; if the others load data, say how many in the file: HELPERS = 2"
        facts += [
            (kind, sentence),
            by_others,
            (THROTTLED, disturbance.throttled(record, capacity)),
            (MEMORY_STATES, states_within(outcome, _keeps_heap(record))),
        ]
    elif record.cell.on_gpu:
        facts += _facts_of_device(record, by_others)
    if outcome.statistics is not None:
        samples = counted(outcome.statistics.samples, "sample")
        facts.append((SAMPLES_NOT_KEPT, f"the median of {samples} that were not kept"))
    if outcome.steady is False:
        samples = counted(len(outcome.samples_ns), "sample")
        facts.append((NO_STEADY_STATE, f"no steady state within {samples}, all of them kept"))
    return facts


def cell_flags(launches: Sequence[Iterable[Flag]]) -> list[Flag]:
    """Combine the flags of a cell's launches, in the order of `KINDS`."""
    raised = grouped(chain.from_iterable(launches), lambda flag: flag.kind)
    flags = []
    for kind in KINDS:
        flags_of_kind = raised.get(kind, [])
        count = len(flags_of_kind)
        if not count or (kind not in ONCE_IS_ENOUGH and 2 * count < len(launches)):
            continue
        sentence = flags_of_kind[-1].sentence
        if len(launches) > 1:
            sentence += f" (in {count} of {len(launches)} launches)"
        flags.append(Flag(kind, sentence))
    return flags


def failed_launches(failed: Sequence[Record], launches: int) -> list[Flag]:
    """Return the flag of a cell with failed launches, the newest last; nothing without any."""
    if not failed:
        return []
    outcome = failed[-1].outcome
    how = f"{outcome.status.value}, {outcome.reason}"
    return [Flag(FAILED_LAUNCHES, f"{len(failed)} of {launches} launches: {how}")]


def _keeps_heap(record: Record) -> bool:
    """Tell whether freed memory stayed with the processes of a launch."""
    return KEEP_HEAP in in_force(record.cell.tuning, record.outcome.facts.tunable or ())


def memory_states(records: Sequence[Record]) -> list[Flag]:
    """Return the flag of a cell whose launches differ in their page faults; else nothing."""
    kept = any(map(_keeps_heap, records))
    sentence = states_between([record.outcome for record in records], kept)
    if not sentence:
        return []
    return [Flag(MEMORY_STATES, sentence)]


def _facts_of_mathematics(outcome: Outcome, imported: bool) -> list[tuple[FlagKind, str]]:
    facts = []
    parity = outcome.parity
    if not imported and (parity is None or parity.verdict == "unchecked"):
        reason = "no parity check"
        if parity is not None:
            reason = parity.reason or "no reference"
        facts.append((PARITY_UNCHECKED, f"unchecked: {reason}"))
    elif parity is not None and parity.verdict == "disagrees":
        facts.append((PARITY, parity.reason or "it disagrees with the reference"))
    if outcome.final_loss_finite is False:
        facts.append((LOSS_NOT_FINITE, "the loss after the timed steps is not finite"))
    if parity is not None and len(parity.losses) > 1:
        loss = parity.losses[0]
        if {*parity.losses, outcome.final_loss} == {loss}:
            sentence = f"the loss is {loss:g} after every step: does the step train?"
            facts.append((LOSS_CONSTANT, sentence))
    return facts


def _facts_of_device(record: Record, by_others: tuple[FlagKind, str]) -> list[tuple[FlagKind, str]]:
    outcome = record.outcome
    observed = observe_launch(outcome, record.telemetry, record.cell.world_size)
    errors = []
    if observed.corrected_errors:
        errors.append(f"{observed.corrected_errors} corrected")
    if observed.uncorrected_errors:
        errors.append(f"{observed.uncorrected_errors} uncorrected")
    ecc_errors = ""
    if errors:
        words = " and ".join(errors)
        ecc_errors = f"{words} ECC errors of the GPU's memory during the launch"
    resident = record.cell.placement == "resident"
    return [
        (ECC_ERRORS, ecc_errors),
        by_others,
        (DEVICE_THROTTLED, disturbance.slowed(record)),
        (DEVICE_TIME, _clocks_differ(outcome, observed.event_per_wall)),
        (HOST_BOUND, _host_bound(outcome, observed, resident)),
    ]


def _clocks_differ(outcome: Outcome, ratio: float | None) -> str:
    """Return in words how the GPU's clock and the wall clock differ; empty where they agree."""
    if ratio is None or abs(ratio - 1) <= DEVICE_TIME_SHARE:
        return ""
    if abs(ratio - 1) * median(outcome.samples_ns) * 1e-9 <= DEVICE_TIME_SLACK:
        return ""
    reason = "the GPU did not work for the rest"
    if ratio > 1:
        reason = "the clock stopped before the GPU did"
    return f"GPU event time is {ratio:.1%} of wall time: {reason}"


def _host_bound(outcome: Outcome, observed: DeviceObserved, resident: bool) -> str:
    """Return in words how the GPU waited for the host; empty where it did not, or may not have."""
    profiled = observed.busy_source == "profile"
    if observed.busy_share is None or observed.busy_share >= BUSY_SHARE:
        return ""
    if not profiled and not resident:
        return ""
    sentence = f"the GPU worked {observed.busy_share:.0%} of the time"
    if not profiled:
        sentence += ", by the driver's utilisation"
    sentence += "; the host sets the pace"
    starting = starting_words(outcome)
    if starting:
        sentence += f": {starting}"
    return sentence


def starting_words(outcome: Outcome) -> str:
    """Return in a sentence the share of a step that the host needs to start all its operators.

    It starts them one by one: operators a step by the profile, times the host's seconds to start
    the smallest one, over the median step. Empty where unknown.
    """
    device = outcome.device
    steps = outcome.step_seconds()
    if device is None or device.launches is None or device.ceilings is None or not steps:
        return ""
    start = device.ceilings.operator_start_seconds
    if start is None:
        return ""
    share = device.launches * start / median(steps)
    micros = start * 1e6
    time = f"{micros:.3g}" if micros < 100 else f"{micros:.0f}"
    part = "all of a step"
    if share < 1:
        part = f"about {share:.0%} of a step"
    sentence = f"starting {device.launches:.0f} operators at {time} us each takes {part}"
    if share >= LAUNCH_BOUND_SHARE:
        return f"launch-bound, since {sentence}"
    return sentence

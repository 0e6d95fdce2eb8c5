"""The verdict on a launch: parity with the float64 reference, plausibility, and the final status.

A guest can report anything. Its report is checked against the network's arithmetic, the limits of
the machine, the host's clock and the steps of the parity check. These rules allow for noise:
smaller errors are left to statistics.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median_high
from typing import Any

import numpy as np

from dlbench.adapters.families import Family
from dlbench.adapters.launch import parity
from dlbench.adapters.launch.batches import check_number, checked_places
from dlbench.adapters.launch.parity import Observation
from dlbench.adapters.networks import Network, from_data
from dlbench.adapters.protocol import ASYNC, FED, LOADER, Answer, Cell, Parity, ParitySample, Status
from dlbench.hardware_probe import Ceilings, Machine
from dlbench.reports.results.clocks import (
    BUSY_CPUS,
    TICK_SECONDS,
    clocks_differ,
    cpus_of_others,
    others_explain_clocks,
    seconds_of_samples,
)
from dlbench.reports.results.gpu_evidence import observe_launch
from dlbench.reports.results.losses import Numbers, first_numbers, relative_error
from dlbench.reports.results.naming import counted
from dlbench.reports.results.outcome import HostFacts, HostObservation, LaunchVerdict, Outcome
from dlbench.reports.results.safe_text import one_line

from .answers import UnreadableError
from .launcher import Launched, LaunchRequest

FirstLosses = dict[tuple[object, ...], tuple[Numbers, ...]]
"""The losses, or outputs, of a launch's first steps, by `losses_key`.

They are kept of launches whose mathematics only their author knows."""


def losses_key(file: str, cell: Cell, by_row: bool = False) -> tuple[object, ...]:
    """Return the key of launches whose first losses must agree.

    It has the file's name, but neither threads nor launch. Rows, which may be builds, must agree
    too, unless it is ``by_row``: reports then say which of them differ.
    """
    row = ""
    if by_row:
        row = cell.framework
    return file, row, cell.network, cell.device, cell.batch_size, cell.precision, cell.task


def note_losses(
    noted: FirstLosses, cell: Cell, outcome: Outcome, family: Family, by_row: bool = False
) -> None:
    """Keep the losses of the first launch of a user's own step."""
    if family.specified or outcome.status is not Status.OK or outcome.parity is None:
        return
    losses = first_numbers(outcome.parity)
    if losses:
        # Launches report their file's name as their framework: each of several files has its own.
        file = str(outcome.software.get("framework", ""))
        noted.setdefault(losses_key(file, cell, by_row), tuple(losses))


_STILL = "no parameter changed during the timed steps: they did not train"
_ASYNCHRONOUS = "asynchronous: updates come in any order, so no reference can predict their result"


def parity_of(launched: Launched, request: LaunchRequest, network: Network) -> Parity:
    """Return the parity of a launch with its reference.

    Raises UnreadableError where its answer does not fit the request.
    """
    cell = request.launch.cell
    sample = None
    if launched.answer is not None:
        sample = launched.answer.parity_sample
    outside = launched.outside
    allowed = parity.allowance(network, cell.precision)
    if not network.family.specified:
        return _judge_own_step(sample, request.first_losses, network, cell.infers)
    if sample is None or outside is None:
        if request.computes:
            raise UnreadableError("it carried out no parity check")
        return parity.unchecked(network, launched.verdict.reason or "it computes nothing", allowed)
    if cell.infers:
        return _judge_outputs(sample, request, network, outside)
    if request.reference is None:
        reason = f"no reference for mini-batch {cell.batch_size}"
        if cell.sync == ASYNC:
            reason = _ASYNCHRONOUS
        verdict = parity.unchecked(network, reason, allowed)
    else:
        reference = parity.load(str(request.reference), outside.check_steps)
        observation = _observation(sample, reference, outside)
        verdict = parity.judge(observation, reference, parity.recipe_of(network, cell), allowed)
        if sample.losses is None or None in sample.updates.values():
            reason = "the losses or updates of the parity check are not finite"
            verdict = verdict._replace(verdict="disagrees", reason=reason)
    if sample.moved is False:
        reason = _STILL
        if verdict.verdict == "disagrees":
            reason = f"{verdict.reason}; {_STILL}"
        verdict = verdict._replace(verdict="disagrees", reason=reason)
    return verdict._replace(seconds=outside.reset_seconds + outside.read_seconds)


def _judge_outputs(
    sample: ParitySample, request: LaunchRequest, network: Network, outside: HostObservation
) -> Parity:
    """Compare the outputs of a launch of inference with the reference's."""
    cell = request.launch.cell
    if request.reference is None:
        return parity.unchecked(network, f"no reference for mini-batch {cell.batch_size}")
    tolerance = parity.output_tolerance(network, cell.precision)
    expected = parity.load_outputs(str(request.reference), outside.check_steps)
    if cell.placement not in FED:
        number = check_number(outside.checks - 1, outside.check_rounds - 1)
        expected = expected[checked_places(network, cell.known_batch_size, number)]
    shape = (cell.known_batch_size, expected.shape[1])
    outputs = np.full(shape, np.nan)
    if sample.outputs is not None:
        outputs = np.array(sample.outputs)
    if outputs.shape != shape:
        raise UnreadableError(f"outputs of shape {outputs.shape}, where {shape} were asked for")
    return parity.judge_outputs(outputs, expected, tolerance)


def _judge_own_step(
    sample: ParitySample | None, first: tuple[Numbers, ...] | None, network: Network, infers: bool
) -> Parity:
    """Compare the losses or outputs of a launch's first steps with those of the first launch.

    That one agrees with itself.
    """
    losses: list[float] = []
    outputs: list[list[float]] = []
    noun = "outputs" if infers else "losses"
    if sample is not None:
        reported = sample.outputs if infers else sample.losses
        if reported is None:
            reason = f"the {noun} of the first steps are not finite"
            return parity.unchecked(network, reason)._replace(verdict="disagrees")
        losses = sample.losses or []
        outputs = sample.outputs or []
    numbers = first_numbers(parity.unchecked(network, "")._replace(losses=losses, outputs=outputs))
    if not numbers:
        return parity.unchecked(network, "the step reports no loss")
    pairs = list(zip(numbers, first or numbers, strict=False))
    error = max(relative_error(number, expected) for number, expected in pairs)
    tolerance = network.parity.loss_tolerance
    word, reason = "agrees", ""
    if error > tolerance:
        word = "disagrees"
        reason = (
            f"{noun} of the first {len(pairs)} steps are off by {error:.1e} from those of the "
            f"run's first launch (tolerance {tolerance:.0e}). Seed what is random in the file, or "
            "allow more with --loss-tolerance"
        )
    verdict = parity.unchecked(network, reason)._replace(verdict=word, loss_tolerance=tolerance)
    if infers:
        return verdict._replace(
            outputs=outputs, output_error=min(error, 1e30), output_tolerance=tolerance
        )
    return verdict._replace(losses=losses, loss_error=error)


def _observation(
    sample: ParitySample, reference: Observation, outside: HostObservation
) -> Observation:
    """Return the sample as arrays, with NaN for numbers that were not finite."""
    losses = sample.losses
    if losses is None:
        losses = [float("nan")] * outside.check_steps
    if len(losses) != outside.check_steps:
        raise UnreadableError(
            f"{len(losses)} losses, where {outside.check_steps} steps were asked for"
        )
    if set(sample.updates) != set(reference.updates):
        raise UnreadableError("the updates are not those of the network's parameters")
    updates = {}
    for name, expected in reference.updates.items():
        entries = sample.updates[name]
        update = np.full(expected.shape, np.nan)
        if entries is not None:
            update = np.array(entries)
        if update.shape != expected.shape:
            raise UnreadableError(
                f"{len(update)} entries of {name}, where {len(expected)} were asked for"
            )
        updates[name] = update
    return Observation(losses, updates)


# Single-precision operations a core can finish in a cycle: two fused multiply-adds (2 operations
# each) of so many numbers (Intel 64 and IA-32 optimization manual; Zen 5's is the same). Matrix
# units do more, Arm's in float32 too.
_FLOPS_PER_CYCLE = {"sme": 1024, "avx512f": 64, "avx2": 32}
_FLOPS_PER_CYCLE_AT_LEAST = 32
# The most that 16 bits gain: AMX finishes 2048 operations in bfloat16 a cycle.
_NARROWER = 32
# No processor's clock is faster, turbo included (6.2 GHz, Core i9-14900KS).
_FASTEST_CLOCK = 6.5e9
# The ceilings are those of NumPy's BLAS, and a framework's may be better by this factor. The
# highest one seen was 1.09.
_BEST_LIBRARY = 1.3


@dataclass(frozen=True)
class Limits:
    """The limits of one machine's CPUs, in units per second."""

    ceilings: Ceilings | None  # sound ones alone; see `Ceiling.doubt`
    cpus: int  # that a launch may use
    core_flops: float  # of a core by its instructions
    cache_bytes: int  # of all last-level caches

    def flops(self, threads: int, precision: str = "float32") -> float:
        """Return the most FLOP/s with so many threads."""
        by_instructions = self.core_flops * min(threads, self.cpus)
        if precision != "float32":
            return by_instructions * _NARROWER
        if self.ceilings is None:
            return by_instructions
        measured = self.ceilings.gemm_flops_per_second(threads)
        if measured is None:
            return by_instructions
        highest = measured * self._unmeasured(threads) * _BEST_LIBRARY * (1 + self._spread(threads))
        return min(by_instructions, highest)

    def flops_of_a_cpu(self, precision: str = "float32") -> float:
        """Return the most FLOPs in a second of CPU time."""
        counts = {1}
        if self.ceilings is not None:
            counts = {ceiling.threads for ceiling in self.ceilings.measured}
        return max(self.flops(count, precision) / min(count, self.cpus) for count in counts)

    def bandwidth(self, threads: int) -> float | None:
        """Return the most bytes per second to and from memory, or None without a sound ceiling."""
        if self.ceilings is None:
            return None
        measured = self.ceilings.bandwidth_bytes_per_second(threads)
        if measured is None:
            return None
        return measured * self._unmeasured(threads) * (1 + self._spread(threads))

    def _unmeasured(self, threads: int) -> float:
        """Return the CPUs of these threads over those of the nearest ceiling.

        That is the one of the most threads up to these. The ceiling of one thread does not limit
        two threads whose own ceiling was disturbed and left out.
        """
        assert self.ceilings is not None
        counts = [ceiling.threads for ceiling in self.ceilings.measured]
        most = max(count for count in counts if count <= threads)
        return min(threads, self.cpus) / min(most, self.cpus)

    def _spread(self, threads: int) -> float:
        """Return by how much a ceiling may be too low: as its samples differ, and 5 % at least."""
        assert self.ceilings is not None
        spreads = [0.05]
        for ceiling in self.ceilings.measured:
            if ceiling.threads <= threads and ceiling.gemm_samples:
                middle = median_high(ceiling.gemm_samples)
                spreads.append(ceiling.gemm_flops_per_second / middle - 1)
        return min(0.5, max(spreads))


def limits_of(machine: Machine, kept: dict[str, object] | None) -> Limits:
    """Return the limits of a machine. ``kept`` are its ceilings as a store has them."""
    ceilings = None
    if kept:
        measured = Ceilings.from_dict(kept).measured
        sound = tuple(ceiling for ceiling in measured if not ceiling.doubt)
        if sound:
            ceilings = Ceilings(sound)
    instruction_sets = machine.cpu.instruction_sets
    rates = [flops for name, flops in _FLOPS_PER_CYCLE.items() if name in instruction_sets]
    per_cycle = max(rates, default=_FLOPS_PER_CYCLE_AT_LEAST)
    return Limits(
        ceilings=ceilings,
        cpus=machine.cpu.effective_cpus,
        core_flops=per_cycle * _FASTEST_CLOCK,
        cache_bytes=machine.cpu.last_level_cache_bytes or 0,
    )


@dataclass(frozen=True)
class JudgedLaunch:
    """A launch's outcome, and the rest that its record keeps."""

    outcome: Outcome
    wall_seconds: float
    suspended: bool = False
    """Whether this process was stopped meanwhile. See `Launched`."""
    telemetry: dict[str, Any] | None = None
    """Samples of its GPU."""
    facts: HostFacts = field(default_factory=HostFacts)
    """Facts of its settings, data and GPUs."""


def judged(
    request: LaunchRequest,
    launched: Launched,
    limits: Limits | None,
    telemetry: Mapping[str, Any] | None = None,
) -> Outcome:
    """Return a launch's outcome with its parity and final status.

    Without limits no rate is too high. ``telemetry`` are the samples of its GPU. A launch without a
    host observation is not judged: nothing was timed.
    """
    if launched.outside is None or launched.verdict.status is not Status.OK:
        return launched.outcome()
    assert request.launch.network is not None
    network = from_data(request.launch.network)
    try:
        agreement = parity_of(launched, request, network)
    except UnreadableError as error:
        return Outcome(Status.CRASHED, f"its answer cannot be believed: {error}")
    impossible = implausible(
        request.launch.cell, network, launched, limits, telemetry, request.computes
    )
    status, reason = Status.OK, ""
    if agreement.verdict == "disagrees":
        status, reason = Status.PARITY_FAILED, agreement.reason
    if impossible:
        status = Status.IMPLAUSIBLE
        reason = "; ".join(filter(None, (impossible, reason)))
    return launched.outcome(LaunchVerdict(status, one_line(reason), agreement))


# The CPU time that a guest reports may differ this much from the host's observation.
_CLAIM_SHARE, _CLAIM_SECONDS = 0.15, 0.25
# Fewer multiplications, this many times, of a 3 x 3 convolution by Winograd's F(4 x 4, 3 x 3)
# (Lavin, Gray 2016).
_FEWER_OPERATIONS = 4.0
# The check's steps may take this many times as long as the timed ones, and this much longer.
_SLOWER, _SLOWER_SECONDS = 1.7, 0.05
# They may take as little as this share of a timed step: other programs may have slowed every timed
# step.
_FASTER = 0.15
# More than any GPU's data sheet promises of dense products: an H100 has 67, 495 and 989 TFLOP/s, a
# B200 80 to 2250.
_GPU_FLOPS = {"float32": 2e14, "tf32": 3e15, "bfloat16": 6e15, "float16": 6e15}
# A CPU quota is granted in periods of this many seconds. A launch may exceed it by this share.
_PERIOD_SECONDS, _QUOTA_SHARE = 0.1, 0.15
# NVML's utilisation is of the last second, at most.
_GPU_SECONDS = 2.0
# Setting or reading the weights takes no more CPU time than this: Keras copied 0.23 GB/s on a slow
# host.
_READ_BYTES_PER_SECOND, _READ_SECONDS = 0.2e9, 0.5
# Settling the random numbers of a sampling machine takes this much more.
_SETTLE_SECONDS = 1.5


def implausible(
    cell: Cell,
    network: Network,
    launched: Launched,
    limits: Limits | None,
    telemetry: Mapping[str, Any] | None = None,
    computes: bool = True,
) -> str:
    """Return why a launch's number is implausible, or an empty string if it is plausible.

    The text has the figures of both sides. ``telemetry`` is that of its GPU, by the driver.
    """
    answer, outside = launched.answer, launched.outside
    assert answer is not None
    assert outside is not None
    reasons = [
        *_clock_differs(cell, launched.outcome()),
        *_quota_exceeded(cell, outside),
        *_ran_while_stopped(outside),
    ]
    if computes:
        step = median_high(answer.step_seconds())
        # The least that a step must compute: of a mini-batch of unknown size, nothing.
        flops: float = network.family.flops(cell.batch_size or 0, cell.infers)
        if network.family.kind == "convolutional":
            flops /= _FEWER_OPERATIONS
        reasons += _cpu_time_differs(answer, outside)
        reasons += _check_differs(cell, answer, outside, step)
        reasons += _work_deferred(cell, network.family, outside)
        if not cell.on_cpu:
            reasons += _beyond_gpu(cell, launched.outcome(), step, flops, telemetry)
        elif limits is not None:
            reasons += _beyond_cpu(cell, network.family, answer, outside, step, flops, limits)
    return "; ".join(reasons)


def _clock_differs(cell: Cell, outcome: Outcome) -> Iterator[str]:
    assert outcome.outside is not None
    if clocks_differ(outcome) and not others_explain_clocks(cell, outcome):
        claimed = _text(seconds_of_samples(outcome))
        seen = _text(outcome.outside.timed_seconds)
        reason = f"its samples add up to {claimed}, and the host's clock saw {seen}"
        others = cpus_of_others(outcome.outside)
        if others >= BUSY_CPUS:
            reason += f", in which other programs used {others:.1f} CPUs and may be the cause"
        yield reason


def _quota_exceeded(cell: Cell, outside: HostObservation) -> Iterator[str]:
    """Check that all processes together use no more CPU time than the quota allows.

    They do if some left its control group.
    """
    if not cell.cpu_quota:
        return
    # Each turn of several launches begins with the quota of a whole period, and ends before that of
    # one is used up.
    periods = 2 * max(1, len(outside.turns)) * _PERIOD_SECONDS
    seconds = outside.timed_seconds * (1 + _QUOTA_SHARE) + periods
    if outside.timed_cpu_seconds > cell.cpu_quota * seconds + TICK_SECONDS:
        yield (
            f"its processes used {_text(outside.timed_cpu_seconds)} of CPU time in "
            f"{_text(outside.timed_seconds)} under a CPU quota of {cell.cpu_quota:g}: some of them "
            "left their control group"
        )


def _ran_while_stopped(outside: HostObservation) -> Iterator[str]:
    """Check that a launch stands still while others have their turns.

    It does not if one of its processes escapes being stopped.
    """
    if outside.stopped_cpu_seconds > TICK_SECONDS:
        yield (
            f"its processes used {_text(outside.stopped_cpu_seconds)} of CPU time while other "
            "launches had their turns"
        )


def _cpu_time_differs(answer: Answer, outside: HostObservation) -> Iterator[str]:
    """Check the guest's report of its threads, which is its evidence.

    Hidden helpers and invented time contradict it.
    """
    seen = outside.timed_cpu_seconds
    claimed = 0.0
    if answer.threads is not None:
        claimed = answer.threads.cpu_seconds
    if abs(claimed - seen) > _CLAIM_SHARE * max(claimed, seen) + _CLAIM_SECONDS:
        yield f"it reports {_text(claimed)} of CPU time, and the host saw {_text(seen)}"


def _check_differs(
    cell: Cell, answer: Answer, outside: HostObservation, step: float
) -> Iterator[str]:
    """Check that the steps of the parity check are those that were timed.

    They take as long, by the clock and in CPU time.
    """
    steps = outside.checked_steps
    if not steps:
        return
    took = outside.steps_seconds
    cpu = outside.steps_cpu_seconds
    expected_cpu = steps * outside.timed_cpu_seconds / answer.observed_steps()
    # Those that get mini-batches ahead of the steps begin each round with two.
    most = _SLOWER * (1 + 2 * cell.helpers / outside.check_steps)
    # Other programs lengthen the time by the clock, but not the CPU time. A GPU's steps use hardly
    # any of it.
    slower = took > most * steps * step + _SLOWER_SECONDS
    if slower and not (cell.on_cpu and cpu <= most * expected_cpu + TICK_SECONDS):
        yield (
            f"timed, a step took {_text(step)}; right after, in the parity check, "
            f"{_text(took / steps)}"
        )
    # Others work ahead, while the check is prepared too.
    works_ahead = cell.placement in ("prefetched", LOADER)
    faster = not works_ahead and took < _FASTER * steps * step - _SLOWER_SECONDS
    if faster and not (cell.on_cpu and cpu >= _FASTER * expected_cpu - TICK_SECONDS):
        yield (
            f"timed, a step took {_text(step)}; in the parity check it took {_text(took / steps)}: "
            "its work was done elsewhere"
        )


def _work_deferred(cell: Cell, family: Family, outside: HostObservation) -> Iterator[str]:
    """Check how long weights were copied around the parity check.

    Work left undone when the samples ended, or done out of turn, shows there.
    """
    copying = _READ_SECONDS + 4 * family.parameter_count() / _READ_BYTES_PER_SECOND
    if not family.trains:
        copying += _SETTLE_SECONDS
    allowed = outside.checks * (max(1, outside.check_rounds) + 1) * copying
    spent = outside.reset_cpu_seconds + outside.read_cpu_seconds
    waited = outside.reset_seconds + outside.read_seconds
    too_long = waited > allowed + 2.0
    if cell.on_cpu:
        too_long = spent > allowed
    if too_long:
        yield (
            f"after the last timed step it was busy for {_text(max(spent, waited))} while weights "
            f"were put in place and read, which takes {_text(allowed)} at most: timed steps were "
            "still running, or work had been deferred"
        )


def _beyond_gpu(
    cell: Cell, outcome: Outcome, step: float, flops: float, telemetry: Mapping[str, Any] | None
) -> Iterator[str]:
    """Check the rate of a step against that of any GPU, and that the driver saw the GPU at work."""
    assert outcome.outside is not None
    limit = _GPU_FLOPS.get(cell.precision, max(_GPU_FLOPS.values())) * cell.world_size
    rate = flops / step
    if rate > limit:
        yield (
            f"a step of {_text(step)} is {rate / 1e12:.3g} TFLOP/s; no GPU reaches "
            f"{limit / 1e12:.3g}"
        )
    seconds = outcome.outside.timed_seconds
    utilisation = observe_launch(outcome, telemetry, cell.world_size).utilisation
    if utilisation is not None and utilisation.high <= 0 and seconds >= _GPU_SECONDS:
        yield (
            f"the driver saw the GPU idle for all of the {_text(seconds)} in which steps were timed"
        )


def _beyond_cpu(
    cell: Cell,
    family: Family,
    answer: Answer,
    outside: HostObservation,
    step: float,
    flops: float,
    limits: Limits,
) -> Iterator[str]:
    """Check the rate, CPU time and memory traffic of steps against the limits of the machine."""
    # Without a thread count it may have a thread for each CPU.
    threads = cell.all_threads or limits.cpus
    limit = limits.flops(threads, cell.precision)
    under = ""
    if cell.cpu_quota:
        # A sample may begin and end with the work of a period each.
        cpus = cell.cpu_quota * (1 + _PERIOD_SECONDS / (step * answer.steps_per_sample))
        limit = min(limit, cpus * limits.flops_of_a_cpu(cell.precision))
        under = f" under a CPU quota of {cell.cpu_quota:g}"
    if flops / step > limit:
        yield (
            f"a step of {_text(step)} is {flops / step / 1e9:.3g} GFLOP/s, and "
            f"{counted(threads, 'thread')}{under} can do {limit / 1e9:.3g} GFLOP/s at most on this "
            "machine"
        )
    steps = answer.observed_steps()
    used = outside.timed_cpu_seconds
    least = flops * steps / limits.flops_of_a_cpu(cell.precision)
    if used + TICK_SECONDS < least:
        yield (
            f"its processes used {_text(used)} of CPU time for {steps} steps, which need "
            f"{_text(least)} at least"
        )
    weights = 4 * family.parameter_count()
    if family.learns_inputs or not family.trains:
        weights = 0  # an embedding uses only some of its rows, and a sampling machine only reads
    # Weights that no cache holds are read forward, read and written by the update: three times
    # their bytes. Inference only reads them.
    moved = 3 * (weights - limits.cache_bytes)
    if cell.infers:
        moved = weights - limits.cache_bytes
    bandwidth = limits.bandwidth(threads)
    if bandwidth is None or weights < 4 * limits.cache_bytes:
        return
    if moved / step > bandwidth * 1.3:
        yield (
            f"a step of {_text(step)} moves at least {moved / 1e9:.3g} GB of weights, "
            f"{moved / step / 1e9:.3g} GB/s, and the memory's measured bandwidth is "
            f"{bandwidth / 1e9:.3g} GB/s"
        )


def _text(seconds: float) -> str:
    return f"{seconds:.3g} s"

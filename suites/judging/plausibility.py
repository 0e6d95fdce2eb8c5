"""Whether a launch can have done what it says: physics, the host's clock, and the check's steps beside the timed ones.

A guest can tell what it likes; what speaks here are the network's own arithmetic, the machine's limits, and what the
host saw from outside. Each rule gives a reason with the figures of both sides, or nothing. They are wide enough for
noise: a number that is off by less than they see is for statistics to find, not for them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell, Outcome, Outside
from dlbench.reports.gpu_evidence import observe_launch

from .limits import Limits

_CLOCK_SHARE, _CLOCK_SECONDS, _WAITING_SECONDS = 0.15, 0.25, 1.0
"""The host's clock may show so much more than the samples, and what guest and host waited for a CPU, up to a second:
what lies between them, and the host's own waking up."""
_TICK_SECONDS = 0.03
"""CPU time is told in ticks of 0.01 s for each process; fewer than a few of them are held against nobody."""
_TOLD_SHARE, _TOLD_SECONDS = 0.15, 0.25
"""What a guest tells of its CPU time may differ by so much from what the host saw."""
_FEWER_OPERATIONS = 4.0
"""A convolution of 3 x 3 by Winograd's F(4 x 4, 3 x 3) needs so many times fewer multiplications (Lavin, Gray 2016)."""
_SLOWER, _SLOWER_SECONDS = 1.7, 0.05
"""The check's steps may take so many times as long as the timed ones, and so much longer."""
_FASTER = 0.15
"""They take at least such a share of it: the timed ones may have met others for all of their time."""
_GPU_FLOPS = {"float32": 2e14, "tf32": 3e15, "bfloat16": 6e15, "float16": 6e15}
"""More than any GPU's data sheet promises of dense products: an H100 has 67, 495 and 989 TFLOP/s, a B200 80 to 2250."""
_GPU_SECONDS = 2.0
"""NVML's utilisation is of the last second, at most."""
_READ_BYTES_PER_SECOND, _READ_SECONDS = 0.4e9, 0.5
"""To put the weights in place, or to read them, takes no more CPU time than this."""


@dataclass(frozen=True)
class Claim:
    """A launch with all that speaks for or against its number."""

    cell: Cell
    network: Network
    outcome: Outcome
    outside: Outside
    limits: Limits | None
    telemetry: Mapping[str, Any] | None = None
    """What the driver was asked of the launch's GPU meanwhile."""

    @property
    def step_seconds(self) -> float:
        """The median step."""
        steps = sorted(self.outcome.step_seconds())
        return steps[len(steps) // 2]

    @property
    def flops(self) -> float:
        """What a step must compute at least."""
        fewer = _FEWER_OPERATIONS if self.network.family.kind == "convolutional" else 1.0
        return self.network.family.training_flops(self.cell.batch_size) / fewer


def implausible(claim: Claim, computes: bool) -> str:
    """Return why a launch's number cannot be; empty where nothing speaks against it."""
    rules: list[Callable[[Claim], str]] = [_clock]
    if computes:
        rules += [_cpu_told, _check_took_longer, _check_took_nothing, _work_elsewhere]
        if claim.cell.on_cpu and claim.limits is not None:
            rules += [_rate, _cpu_seconds, _bytes]
        if not claim.cell.on_cpu:
            rules += [_rate_of_gpu, _busy_gpu]
    return "; ".join(dict.fromkeys(filter(None, (rule(claim) for rule in rules))))


def _told_seconds(outcome: Outcome) -> float:
    """Return what all timed samples took by the guest's clock, those found to be warm-up included."""
    left_out = outcome.observed_steps() // outcome.steps_per_sample - len(outcome.samples_ns)
    before = sum(outcome.warmup_ns[-left_out:]) * outcome.steps_per_sample if left_out > 0 else 0
    return (sum(outcome.samples_ns) + before) * 1e-9


def _clock(claim: Claim) -> str:
    told, seen = _told_seconds(claim.outcome), claim.outside.timed_seconds
    between = _CLOCK_SHARE * seen + _CLOCK_SECONDS
    between += min(claim.outside.timed_waiting_seconds, _WAITING_SECONDS)
    if seen - between <= told <= seen * 1.02 + 0.01:
        return ""
    return f"its samples add up to {_seconds(told)}, and the host's clock saw {_seconds(seen)}"


def _rate(claim: Claim) -> str:
    assert claim.limits is not None
    cell = claim.cell
    limit = claim.limits.flops(cell.all_threads, cell.precision)
    rate = claim.flops / claim.step_seconds
    if rate <= limit:
        return ""
    return (
        f"a step of {_seconds(claim.step_seconds)} is {_rate_words(rate)}, and {_threads(cell.all_threads)} can do "
        f"{_rate_words(limit)} at most here"
    )


def _cpu_seconds(claim: Claim) -> str:
    assert claim.limits is not None
    least = claim.flops * claim.outcome.observed_steps() / claim.limits.flops_of_a_cpu(claim.cell.precision)
    seen = claim.outside.timed_cpu_seconds
    if seen + _TICK_SECONDS >= least:
        return ""
    return (
        f"its processes used {_seconds(seen)} of CPU time for {claim.outcome.observed_steps()} steps, which need "
        f"{_seconds(least)} at least"
    )


def _cpu_told(claim: Claim) -> str:
    """What the guest tells of its threads is what its evidence rests on: helpers that it hides, or time made up."""
    threads, seen = claim.outcome.threads, claim.outside.timed_cpu_seconds
    told = 0.0 if threads is None else threads.cpu_seconds
    if abs(told - seen) <= _TOLD_SHARE * max(told, seen) + _TOLD_SECONDS:
        return ""
    return f"it tells of {_seconds(told)} of CPU time, and the host saw {_seconds(seen)}"


def _bytes(claim: Claim) -> str:
    """Weights that no cache holds are read forward, read and written by the update: three times their bytes."""
    assert claim.limits is not None
    limit = claim.limits.bandwidth(claim.cell.all_threads)
    family = claim.network.family
    # Of what is looked up only some rows are used.
    weights = 0 if family.learns_inputs else 4 * family.parameter_count()
    least = 3 * (weights - claim.limits.cache_bytes)
    rate = least / claim.step_seconds
    if limit is None or weights < 4 * claim.limits.cache_bytes or rate <= limit * 1.3:
        return ""
    return (
        f"a step of {_seconds(claim.step_seconds)} moves at least {least / 1e9:.3g} GB of weights, {rate / 1e9:.3g} "
        f"GB/s, and the memory's measured bandwidth is {limit / 1e9:.3g} GB/s"
    )


def _rate_of_gpu(claim: Claim) -> str:
    limit = _GPU_FLOPS.get(claim.cell.precision, max(_GPU_FLOPS.values())) * claim.cell.world_size
    rate = claim.flops / claim.step_seconds
    if rate <= limit:
        return ""
    return f"a step of {_seconds(claim.step_seconds)} is {rate / 1e12:.3g} TFLOP/s, and no GPU does {limit / 1e12:.3g}"


def _busy_gpu(claim: Claim) -> str:
    seen = observe_launch(claim.outcome, claim.telemetry, claim.cell.world_size)
    if seen.utilisation is None or seen.utilisation.high > 0 or claim.outside.timed_seconds < _GPU_SECONDS:
        return ""
    return (
        f"the driver saw the GPU idle for all of the {_seconds(claim.outside.timed_seconds)} in which steps were timed"
    )


def _check_took_longer(claim: Claim) -> str:
    """The steps of the parity check are those that were timed: they take as long, by the clock and in CPU time."""
    outside, steps = claim.outside, claim.outside.checked_steps
    if not steps:
        return ""
    told = steps * claim.step_seconds
    if outside.steps_seconds <= _SLOWER * told + _SLOWER_SECONDS:
        return ""
    cpu = steps * outside.timed_cpu_seconds / claim.outcome.observed_steps()
    # Of others that use the CPUs the clock tells, but not the CPU time; a GPU's steps take next to none of it.
    if claim.cell.on_cpu and outside.steps_cpu_seconds <= _SLOWER * cpu + _TICK_SECONDS:
        return ""
    return (
        f"timed, a step took {_seconds(claim.step_seconds)}; right after, in the parity check, "
        f"{_seconds(outside.steps_seconds / steps)}"
    )


def _check_took_nothing(claim: Claim) -> str:
    outside, steps = claim.outside, claim.outside.checked_steps
    told = steps * claim.step_seconds
    if not steps or outside.steps_seconds >= _FASTER * told - _SLOWER_SECONDS:
        return ""
    cpu = steps * outside.timed_cpu_seconds / claim.outcome.observed_steps()
    if claim.cell.on_cpu and outside.steps_cpu_seconds >= _FASTER * cpu - _TICK_SECONDS:
        return ""
    return (
        f"timed, a step took {_seconds(claim.step_seconds)}; in the parity check it took "
        f"{_seconds(outside.steps_seconds / steps)}: its work was done elsewhere"
    )


def _work_elsewhere(claim: Claim) -> str:
    """What was left undone when the samples ended, or is done out of turn, shows where weights are only copied."""
    outside = claim.outside
    copied = 4 * claim.network.family.parameter_count()
    rounds = max(1, outside.check_rounds)
    allowed = outside.checks * (rounds + 1) * (_READ_SECONDS + copied / _READ_BYTES_PER_SECOND)
    spent = outside.reset_cpu_seconds + outside.read_cpu_seconds
    waited = outside.reset_seconds + outside.read_seconds
    if spent <= allowed if claim.cell.on_cpu else waited <= allowed + 2.0:
        return ""
    return (
        f"after the last timed step it was busy for {_seconds(max(spent, waited))} while weights were put in place and "
        f"read, which takes {_seconds(allowed)} at most: steps were still at work, or done out of turn"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


def _rate_words(flops: float) -> str:
    return f"{flops / 1e9:.3g} GFLOP/s"

"""Whether a launch can have done what it reports: physics, the host's clock, and the parity check's own steps.

A guest can report anything. The rules here use the network's arithmetic, the limits of the machine, and the host's
observations. Each rule returns a reason with the figures of both sides, or nothing. They allow for noise: a smaller
error is left to statistics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median_high
from typing import Any

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell, HostObservation, Outcome
from dlbench.hardware_probe import Ceilings, Machine
from dlbench.reports.gpu_evidence import observe_launch

# Single-precision operations a core can finish in a cycle: two fused multiply-adds (2 operations each) of so many
# numbers (Intel 64 and IA-32 optimization manual; Zen 5's is the same). Matrix units do more, Arm's in float32 too.
_FLOPS_PER_CYCLE = {"sme": 1024, "avx512f": 64, "avx2": 32}
_FLOPS_PER_CYCLE_AT_LEAST = 32
# The most that 16 bits gain: AMX finishes 2048 operations in bfloat16 a cycle.
_NARROWER = 32
# No processor's clock is faster, turbo included (6.2 GHz, Core i9-14900KS).
_FASTEST_CLOCK = 6.5e9
# The ceilings are those of NumPy's BLAS, and a framework's may be better by this factor. Seen at most here: 1.09.
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
        measured = None if self.ceilings is None else self.ceilings.gemm_flops_per_second(threads)
        if measured is None:
            return by_instructions
        return min(by_instructions, measured * _BEST_LIBRARY * (1 + self._spread(threads)))

    def flops_of_a_cpu(self, precision: str = "float32") -> float:
        """Return the most FLOPs in a second of CPU time."""
        counts = {1} if self.ceilings is None else {each.threads for each in self.ceilings.measured}
        return max(self.flops(count, precision) / min(count, self.cpus) for count in counts)

    def bandwidth(self, threads: int) -> float | None:
        """Return the most bytes per second to and from memory; None where nothing sound was measured."""
        measured = None if self.ceilings is None else self.ceilings.bandwidth_bytes_per_second(threads)
        return None if measured is None else measured * (1 + self._spread(threads))

    def _spread(self, threads: int) -> float:
        """Return by how much a ceiling may be too low: as its own samples differ, and 5 % at least."""
        assert self.ceilings is not None
        spreads = (
            each.gemm_flops_per_second / median_high(each.gemm_samples) - 1
            for each in self.ceilings.measured
            if each.threads <= threads and each.gemm_samples
        )
        return min(0.5, max((0.05, *spreads)))


def limits_of(machine: Machine, kept: dict[str, object] | None) -> Limits:
    """Return the limits of a machine; ``kept`` are its ceilings as a store has them."""
    sound = tuple(each for each in Ceilings.from_dict(kept).measured if not each.doubt) if kept else ()
    known = [flops for flag, flops in _FLOPS_PER_CYCLE.items() if flag in machine.cpu.instruction_sets]
    per_cycle = max(known, default=_FLOPS_PER_CYCLE_AT_LEAST)
    return Limits(
        Ceilings(sound) if sound else None,
        machine.cpu.effective_cpus,
        per_cycle * _FASTEST_CLOCK,
        machine.cpu.last_level_cache_bytes or 0,
    )


# The host's clock may show this much more than the samples, and as much as guest and host waited for a CPU, up to a
# second: the time between samples, and the host's own waking up.
_CLOCK_SHARE, _CLOCK_SECONDS, _WAITING_SECONDS = 0.15, 0.25, 1.0
# CPU time is counted in ticks of 0.01 s for each process; a few of them prove nothing.
_TICK_SECONDS = 0.03
# The CPU time that a guest reports may differ this much from the host's observation.
_CLAIM_SHARE, _CLAIM_SECONDS = 0.15, 0.25
# Fewer multiplications, this many times, of a 3 x 3 convolution by Winograd's F(4 x 4, 3 x 3) (Lavin, Gray 2016).
_FEWER_OPERATIONS = 4.0
# The check's steps may take this many times as long as the timed ones, and this much longer.
_SLOWER, _SLOWER_SECONDS = 1.7, 0.05
# They may take as little as this share of a timed step: other programs may have slowed every timed step.
_FASTER = 0.15
# More than any GPU's data sheet promises of dense products: an H100 has 67, 495 and 989 TFLOP/s, a B200 80 to 2250.
_GPU_FLOPS = {"float32": 2e14, "tf32": 3e15, "bfloat16": 6e15, "float16": 6e15}
# NVML's utilisation is of the last second, at most.
_GPU_SECONDS = 2.0
# To put the weights in place, or to read them, takes no more CPU time than this.
_READ_BYTES_PER_SECOND, _READ_SECONDS = 0.4e9, 0.5


@dataclass(frozen=True)
class Claim:
    """A launch with all that speaks for or against its number."""

    cell: Cell
    network: Network
    outcome: Outcome
    outside: HostObservation
    limits: Limits | None
    telemetry: Mapping[str, Any] | None = None  # of the launch's GPU, by its driver

    @property
    def step_seconds(self) -> float:
        """The median step."""
        return median_high(self.outcome.step_seconds())

    @property
    def flops(self) -> float:
        """The least that a step must compute."""
        fewer = _FEWER_OPERATIONS if self.network.family.kind == "convolutional" else 1.0
        return self.network.family.training_flops(self.cell.batch_size) / fewer

    @property
    def check_cpu_seconds(self) -> float:
        """The CPU time that the check's steps need if they are the timed ones."""
        return self.outside.checked_steps * self.outside.timed_cpu_seconds / self.outcome.observed_steps()


def implausible(claim: Claim, computes: bool) -> str:
    """Return why a launch's number cannot be; empty where nothing speaks against it."""
    rules: list[Callable[[Claim], str]] = [_clock]
    if computes:
        rules += [_reported_cpu_time, _check_took_longer, _check_took_nothing, _work_elsewhere]
        if not claim.cell.on_cpu:
            rules += [_rate_of_gpu, _idle_gpu]
        elif claim.limits is not None:
            rules += [_rate, _cpu_seconds, _bytes]
    return "; ".join(filter(None, (rule(claim) for rule in rules)))


def _clock(claim: Claim) -> str:
    outcome, seen = claim.outcome, claim.outside.timed_seconds
    # Samples that were found to be warm-up were timed, too.
    dropped = outcome.observed_steps() // outcome.steps_per_sample - len(outcome.samples_ns)
    warmup = sum(outcome.warmup_ns[-dropped:]) * outcome.steps_per_sample if dropped > 0 else 0
    claimed = (sum(outcome.samples_ns) + warmup) * 1e-9
    between = _CLOCK_SHARE * seen + _CLOCK_SECONDS + min(claim.outside.timed_waiting_seconds, _WAITING_SECONDS)
    if seen - between <= claimed <= seen * 1.02 + 0.01:
        return ""
    return f"its samples add up to {_s(claimed)}, and the host's clock saw {_s(seen)}"


def _rate(claim: Claim) -> str:
    assert claim.limits is not None
    threads = claim.cell.all_threads
    limit, rate = claim.limits.flops(threads, claim.cell.precision), claim.flops / claim.step_seconds
    if rate <= limit:
        return ""
    return (
        f"a step of {_s(claim.step_seconds)} is {rate / 1e9:.3g} GFLOP/s, and {threads} thread"
        f"{'s' if threads != 1 else ''} can do {limit / 1e9:.3g} GFLOP/s at most here"
    )


def _cpu_seconds(claim: Claim) -> str:
    assert claim.limits is not None
    steps, seen = claim.outcome.observed_steps(), claim.outside.timed_cpu_seconds
    least = claim.flops * steps / claim.limits.flops_of_a_cpu(claim.cell.precision)
    if seen + _TICK_SECONDS >= least:
        return ""
    return f"its processes used {_s(seen)} of CPU time for {steps} steps, which need {_s(least)} at least"


def _reported_cpu_time(claim: Claim) -> str:
    """The guest's report of its threads is its evidence: hidden helpers and invented time contradict it."""
    threads, seen = claim.outcome.threads, claim.outside.timed_cpu_seconds
    claimed = 0.0 if threads is None else threads.cpu_seconds
    if abs(claimed - seen) <= _CLAIM_SHARE * max(claimed, seen) + _CLAIM_SECONDS:
        return ""
    return f"it reports {_s(claimed)} of CPU time, and the host saw {_s(seen)}"


def _bytes(claim: Claim) -> str:
    """Weights that no cache holds are read forward, read and written by the update: three times their bytes."""
    assert claim.limits is not None
    limit, cache = claim.limits.bandwidth(claim.cell.all_threads), claim.limits.cache_bytes
    family = claim.network.family
    # An embedding uses only some of its rows.
    weights = 0 if family.learns_inputs else 4 * family.parameter_count()
    least = 3 * (weights - cache)
    rate = least / claim.step_seconds
    if limit is None or weights < 4 * cache or rate <= limit * 1.3:
        return ""
    return (
        f"a step of {_s(claim.step_seconds)} moves at least {least / 1e9:.3g} GB of weights, {rate / 1e9:.3g} GB/s, "
        f"and the memory's measured bandwidth is {limit / 1e9:.3g} GB/s"
    )


def _rate_of_gpu(claim: Claim) -> str:
    limit = _GPU_FLOPS.get(claim.cell.precision, max(_GPU_FLOPS.values())) * claim.cell.world_size
    rate = claim.flops / claim.step_seconds
    if rate <= limit:
        return ""
    return f"a step of {_s(claim.step_seconds)} is {rate / 1e12:.3g} TFLOP/s, and no GPU does {limit / 1e12:.3g}"


def _idle_gpu(claim: Claim) -> str:
    seconds = claim.outside.timed_seconds
    seen = observe_launch(claim.outcome, claim.telemetry, claim.cell.world_size).utilisation
    if seen is None or seen.high > 0 or seconds < _GPU_SECONDS:
        return ""
    return f"the driver saw the GPU idle for all of the {_s(seconds)} in which steps were timed"


def _check_took_longer(claim: Claim) -> str:
    """The steps of the parity check are those that were timed: they take as long, by the clock and in CPU time."""
    outside, steps = claim.outside, claim.outside.checked_steps
    if not steps or outside.steps_seconds <= _SLOWER * steps * claim.step_seconds + _SLOWER_SECONDS:
        return ""
    # Other programs lengthen the time by the clock, but not the CPU time; a GPU's steps use hardly any of it.
    if claim.cell.on_cpu and outside.steps_cpu_seconds <= _SLOWER * claim.check_cpu_seconds + _TICK_SECONDS:
        return ""
    return (
        f"timed, a step took {_s(claim.step_seconds)}; right after, in the parity check, "
        f"{_s(outside.steps_seconds / steps)}"
    )


def _check_took_nothing(claim: Claim) -> str:
    outside, steps = claim.outside, claim.outside.checked_steps
    if not steps or outside.steps_seconds >= _FASTER * steps * claim.step_seconds - _SLOWER_SECONDS:
        return ""
    if claim.cell.on_cpu and outside.steps_cpu_seconds >= _FASTER * claim.check_cpu_seconds - _TICK_SECONDS:
        return ""
    return (
        f"timed, a step took {_s(claim.step_seconds)}; in the parity check it took "
        f"{_s(outside.steps_seconds / steps)}: its work was done elsewhere"
    )


def _work_elsewhere(claim: Claim) -> str:
    """Work left undone when the samples ended, or done out of turn, shows where weights are only copied."""
    outside = claim.outside
    copying = _READ_SECONDS + 4 * claim.network.family.parameter_count() / _READ_BYTES_PER_SECOND
    allowed = outside.checks * (max(1, outside.check_rounds) + 1) * copying
    spent = outside.reset_cpu_seconds + outside.read_cpu_seconds
    waited = outside.reset_seconds + outside.read_seconds
    if spent <= allowed if claim.cell.on_cpu else waited <= allowed + 2.0:
        return ""
    return (
        f"after the last timed step it was busy for {_s(max(spent, waited))} while weights were put in place and "
        f"read, which takes {_s(allowed)} at most: timed steps were still running, or work had been deferred"
    )


def _s(seconds: float) -> str:
    return f"{seconds:.3g} s"

"""What a machine can do at best: a launch that claims more is not believed.

Measured ceilings where there are sound ones; otherwise, and never less than those, what a CPU's instructions allow.
"""

from dataclasses import dataclass

from dlbench.hardware_probe import Ceilings, Machine

# Single-precision operations a core can finish in a cycle: two fused multiply-adds (2 operations each) of so many
# numbers (Intel 64 and IA-32 optimization manual; Zen 5's is the same). Matrix units do more, Arm's in float32 too.
_FLOPS_PER_CYCLE = {"sme": 1024, "avx512f": 64, "avx2": 32}
_FLOPS_PER_CYCLE_AT_LEAST = 32
_NARROWER = 32
"""By so much more at most in 16 bits: AMX finishes 2048 operations in bfloat16 a cycle."""
# No processor's clock is faster, turbo included (6.2 GHz, Core i9-14900KS).
_FASTEST_CLOCK = 6.5e9


_BEST_LIBRARY = 1.3
"""The ceilings are those of NumPy's BLAS, and a framework's may be better by so much. Seen at most here: 1.09."""


@dataclass(frozen=True)
class Limits:
    """The limits of one machine's CPUs; rates are per second."""

    ceilings: Ceilings | None
    """Sound ones alone; see `Ceiling.doubt`."""
    cpus: int
    """That a launch may use."""
    core_flops: float
    """What a core can do by its instructions."""
    cache_bytes: int
    """Of all last-level caches."""

    def flops(self, threads: int, precision: str = "float32") -> float:
        """Return the most FLOP/s with so many threads."""
        measured = None if self.ceilings is None else self.ceilings.gemm_flops_per_second(threads)
        by_instructions = self.core_flops * min(threads, self.cpus)
        if precision != "float32":
            return by_instructions * _NARROWER
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
        found = 0.05
        for each in self.ceilings.measured:
            if each.threads <= threads and each.gemm_samples:
                middle = sorted(each.gemm_samples)[len(each.gemm_samples) // 2]
                found = max(found, each.gemm_flops_per_second / middle - 1)
        return min(found, 0.5)


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

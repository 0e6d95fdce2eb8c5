"""What is made for a kind of processor: a name for this one's, and which of an old BLAS's kernels it can run.

An OpenBLAS older than the processor does not know its model number and takes kernels of another age for it, though it
has some for all that the processor can do. A variable in a framework's description may name those, as
`{openblas_kernels}`.
"""

import functools
import hashlib

from dlbench.hardware_probe import probe_cpu

# What OpenBLAS's kernels SkylakeX use; it takes Haswell's for processors with AVX2 and fused multiply-adds.
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_AVX2 = {"avx2", "fma"}


def for_instruction_sets(present: frozenset[str]) -> str:
    """Return OPENBLAS_CORETYPE for a processor with these instruction sets; empty: let OpenBLAS choose."""
    if present >= _AVX512 | _AVX2:
        return "SkylakeX"
    return "Haswell" if present >= _AVX2 else ""


@functools.cache
def openblas_kernels() -> str:
    """Return OPENBLAS_CORETYPE for this machine's processor; empty: let OpenBLAS choose."""
    return for_instruction_sets(frozenset(probe_cpu().instruction_sets))


@functools.cache
def processor() -> str:
    """Return a short name for this kind of processor: another model, or another instruction set, has another."""
    cpu = probe_cpu()
    kind = (cpu.architecture, cpu.vendor, cpu.family, cpu.model_number, cpu.model, cpu.instruction_sets)
    return hashlib.sha256(repr(kind).encode()).hexdigest()[:8]

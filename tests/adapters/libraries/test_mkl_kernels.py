"""MKL's kernels: told only where MKL would not take them itself, and never any that the processor cannot run."""

import pytest

from dlbench.adapters.libraries import blas


def _cpuinfo(vendor: str, flags: str) -> str:
    return f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: a: b\nflags\t\t: fpu {flags}\n\n" * 2


AVX512 = "avx512f avx512dq avx512cd avx512bw avx512vl"


@pytest.mark.parametrize(
    ("vendor", "flags", "chosen"),
    [
        ("GenuineIntel", f"avx2 fma {AVX512}", None),  # chooses well itself
        ("AuthenticAMD", f"avx2 fma {AVX512}", "7"),
        ("AuthenticAMD", "avx2 fma avx512f", "5"),  # a part of AVX-512 is not enough
        ("AuthenticAMD", "avx2 fma", "5"),
        ("HygonGenuine", "avx2", None),
        ("AuthenticAMD", "sse2 avx", None),
    ],
)
def test_kernels_never_exceed_what_the_processor_runs(vendor: str, flags: str, chosen: str | None) -> None:
    assert blas.widest_mkl_kernels(_cpuinfo(vendor, flags)) == chosen


@pytest.mark.parametrize("text", ["", "nothing of the kind", "Features : neon"])
def test_an_unknown_processor_is_left_to_mkl(text: str) -> None:
    assert blas.widest_mkl_kernels(text) is None

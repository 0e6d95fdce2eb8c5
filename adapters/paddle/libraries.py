"""What lies under PaddlePaddle: Intel's MKL (MKLML) for products and convolutions, and an OpenMP runtime.

Both are asked through their C interfaces; on a build without them every answer is None.
"""

import ctypes
import os
from typing import Any, Optional

import paddle

#: MKL's undocumented override of its look at the processor's maker, and the kernels that its values stand for.
KERNEL_VARIABLE = "MKL_DEBUG_CPU_TYPE"
AVX512, AVX2 = "7", "5"
_AVX512_FLAGS = frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"))


def _library(name):
    # type: (str) -> Optional[Any]
    path = os.path.join(paddle.__path__[0], "libs", name)
    return ctypes.CDLL(path) if os.path.exists(path) else None


def openmp_threads():
    # type: () -> Optional[int]
    """Return how many threads a parallel region of PaddlePaddle's own OpenMP loops gets."""
    library = _library("libiomp5.so")
    return None if library is None else int(library.omp_get_max_threads())


def mkl_threads():
    # type: () -> Optional[int]
    """Return how many threads a product of MKL gets."""
    library = _library("libmklml_intel.so")
    return None if library is None else int(library.MKL_Get_Max_Threads())


def widest_kernels():
    # type: () -> Optional[str]
    """Return the value of `KERNEL_VARIABLE` for the widest kernels that this processor can run; None below AVX2."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith("flags")]
    except OSError:
        return None
    flags = set(lines[0].split()) if lines else set()
    if flags >= _AVX512_FLAGS:
        return AVX512
    return AVX2 if {"avx2", "fma"} <= flags else None

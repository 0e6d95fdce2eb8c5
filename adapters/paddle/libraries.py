"""What lies under PaddlePaddle: Intel's MKL (MKLML) for products and convolutions, and an OpenMP runtime.

Both are asked through their C interfaces; on a build without them every answer is None.
"""

import ctypes
import os
from typing import Any, Optional

import paddle


def _library(name: str) -> Optional[Any]:
    path = os.path.join(paddle.__path__[0], "libs", name)
    return ctypes.CDLL(path) if os.path.exists(path) else None


def openmp_threads() -> Optional[int]:
    """Return how many threads a parallel region of PaddlePaddle's own OpenMP loops gets."""
    library = _library("libiomp5.so")
    return None if library is None else int(library.omp_get_max_threads())


def mkl_threads() -> Optional[int]:
    """Return how many threads a product of MKL gets."""
    library = _library("libmklml_intel.so")
    return None if library is None else int(library.MKL_Get_Max_Threads())

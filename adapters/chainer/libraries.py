"""What lies under Chainer: NumPy's OpenBLAS, and iDeep's oneDNN with its OpenMP, asked through ctypes."""

import ctypes
import glob
import os
from typing import Any, Optional

import numpy as np


def openblas_loaded() -> Any:
    """Return a handle of the OpenBLAS of NumPy's wheel, which is loaded already; None where NumPy has another BLAS."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(np.__file__))), "numpy.libs")
    found = sorted(glob.glob(os.path.join(folder, "libopenblas*.so")))
    return ctypes.CDLL(found[0]) if found else None


def ideep_threads() -> Optional[int]:
    """Return the threads of iDeep's own OpenMP runtime; None where it has none."""
    import ideep4py

    runtime = os.path.join(os.path.dirname(ideep4py.__file__), "lib", "libiomp5.so")
    return int(ctypes.CDLL(runtime).omp_get_max_threads()) if os.path.exists(runtime) else None

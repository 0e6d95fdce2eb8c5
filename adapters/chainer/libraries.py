"""What lies under Chainer: NumPy's OpenBLAS, and iDeep's oneDNN with its OpenMP, asked through ctypes."""

import ctypes
import glob
import os
from typing import Any, Dict, Optional

import numpy as np


def _openblas():
    # type: () -> Any
    """Return a handle of the OpenBLAS of NumPy's wheel, which is loaded already; None where NumPy has another BLAS."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(np.__file__))), "numpy.libs")
    found = sorted(glob.glob(os.path.join(folder, "libopenblas*.so")))
    return ctypes.CDLL(found[0]) if found else None


def _symbol(library, name):
    # type: (Any, str) -> Any
    # A build with 64-bit integers carries the suffix.
    return getattr(library, name + "64_", None) or getattr(library, name, None)


def blas_threads():
    # type: () -> Optional[int]
    """Return the threads of NumPy's OpenBLAS, as it says itself."""
    library = _openblas()
    function = None if library is None else _symbol(library, "openblas_get_num_threads")
    return None if function is None else int(function())


def set_blas_threads(threads):
    # type: (int) -> None
    """Give the pool this many threads where it has not: OpenBLAS takes from the environment no more than CPUs."""
    library = _openblas()
    function = None if library is None else _symbol(library, "openblas_set_num_threads")
    if function is not None and blas_threads() != threads:
        function(threads)


def blas():
    # type: () -> Dict[str, Any]
    """Return what NumPy's OpenBLAS says of itself: build, the kernels it chose for this CPU, threads."""
    library = _openblas()
    told = {"threads": blas_threads()}  # type: Dict[str, Any]
    for key, name in (("build", "openblas_get_config"), ("kernels", "openblas_get_corename")):
        function = None if library is None else _symbol(library, name)
        if function is not None:
            function.restype = ctypes.c_char_p
            told[key] = function().decode("ascii", "replace").strip()
    return told


def ideep_threads():
    # type: () -> Optional[int]
    """Return the threads of iDeep's own OpenMP runtime; None where it has none."""
    import ideep4py

    runtime = os.path.join(os.path.dirname(ideep4py.__file__), "lib", "libiomp5.so")
    return int(ctypes.CDLL(runtime).omp_get_max_threads()) if os.path.exists(runtime) else None

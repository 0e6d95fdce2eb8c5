"""What lies under MXNet, asked through its C interface: engine worker threads, OpenMP, OpenBLAS."""

import ctypes
from typing import Any, Dict, List, Optional

import mxnet as mx
from mxnet.base import _LIB


class _Context(ctypes.Structure):
    """MXNet's ``Context`` as its C interface takes it."""

    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int32)]


_CPU = 1
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _openmp() -> Optional[Any]:
    """Return the OpenMP runtime that libmxnet is linked to; None where that symbol is not visible."""
    # A handle of the library finds symbols of the libraries it depends on too.
    return _LIB if hasattr(_LIB, "omp_get_max_threads") else None


def worker_threads() -> Optional[int]:
    """Return how many OpenMP threads an operator gets on the engine's worker thread.

    MXNet's own settings reach only that thread (each thread has its own OpenMP limit), and Python has no call that
    returns them: so a function is pushed to the engine, as an operator would be, and asks there.
    """
    openmp = _openmp()
    if openmp is None or not hasattr(_LIB, "MXEnginePushSync"):
        return None
    seen: List[int] = []

    def ask(_: Any) -> None:
        seen.append(int(openmp.omp_get_max_threads()))

    callback = _CALLBACK(ask)
    status = _LIB.MXEnginePushSync(
        callback, None, None, ctypes.byref(_Context(_CPU, 0)), None, 0, None, 0, None, 0, b"threads"
    )
    mx.nd.waitall()  # the callback must outlive its call
    return seen[0] if status == 0 and seen else None


def blas() -> Dict[str, Any]:
    """Return the BLAS that MXNet was built with and, where OpenBLAS tells it, its build, kernels and threads."""
    found: Dict[str, Any] = {}
    for feature in mx.runtime.feature_list():
        if feature.enabled and feature.name.startswith("BLAS_"):
            found["name"] = feature.name[len("BLAS_") :].lower()
    if hasattr(_LIB, "openblas_get_config"):
        for key, symbol in (("build", "openblas_get_config"), ("kernels", "openblas_get_corename")):
            function = getattr(_LIB, symbol)
            function.restype = ctypes.c_char_p
            found[key] = function().decode("ascii", "replace").strip()
        found["threads"] = int(_LIB.openblas_get_num_threads())
    return found


def tells_of_memory(text: str) -> bool:
    """Tell whether an MXNetError's text is about a failed allocation."""
    return any(
        words in text for words in ("Failed to allocate CPU Memory", "std::bad_alloc", "out of memory", "ALLOC_FAILED")
    )

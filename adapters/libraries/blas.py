"""OpenBLAS and MKL through their C interfaces.

``library`` is a ctypes handle that shows their symbols.
"""

import ctypes
import glob
import os
from typing import Any, Dict, Optional

import numpy as np

from ..launch.evidence import read_file

_THREADING = {0: "none", 1: "pthread", 2: "openmp"}


def _function(library: Any, name: str) -> Any:
    # A build with 64-bit integers carries the suffix.
    return getattr(library, name + "64_", None) or getattr(library, name, None)


def openblas_of_numpy() -> Optional[str]:
    """Return the path of the OpenBLAS in NumPy's wheel.

    It is None where there is none, or where its integers are 64 bits wide.
    """
    packages = os.path.dirname(os.path.dirname(os.path.abspath(np.__file__)))
    folder = os.path.join(packages, "numpy.libs")
    for path in sorted(glob.glob(folder + "/libopenblas*.so")):
        if "64_" not in path:
            return path
    return None


def loaded_openblas_of_numpy() -> Any:
    """Return a handle of that library, which NumPy has loaded; None where there is none."""
    path = openblas_of_numpy()
    return None if path is None else ctypes.CDLL(path)


def openblas_threads(library: Any) -> Optional[int]:
    """Return the number of threads it reports; None where ``library`` is None or another BLAS."""
    if library is None:
        return None
    function = _function(library, "openblas_get_num_threads")
    return None if function is None else int(function())


def set_openblas_threads(library: Any, count: int) -> None:
    """Give its pool this many threads where it has another number.

    From the environment it takes no more than there are CPUs.
    """
    if openblas_threads(library) not in (None, count):
        _function(library, "openblas_set_num_threads")(count)


def describe_openblas(library: Any) -> Dict[str, Any]:
    """Return its build, the kernels it chose for this CPU, the kind of threads and their number."""
    count = openblas_threads(library)
    if count is None:
        return {}
    described: Dict[str, Any] = {"name": "openblas", "threads": count}
    for key, name in (("build", "openblas_get_config"), ("kernels", "openblas_get_corename")):
        function = _function(library, name)
        if function is not None:
            function.restype = ctypes.c_char_p
            described[key] = function().decode("ascii", "replace").strip()
    function = _function(library, "openblas_get_parallel")
    if function is not None:
        described["threading"] = _THREADING.get(int(function()), "unknown")
    return described


# Before 2020 Intel's MKL looked at the maker before it looked at the instructions: on anything but
# an Intel processor its products are made by SSE2 kernels. MKL_DEBUG_CPU_TYPE, which Intel never
# documented, overrides that. Later releases ignore it.

MKL_KERNELS = "MKL_DEBUG_CPU_TYPE"
_AVX2 = "5"
_AVX512 = "7"
#: Requirements of MKL's AVX-512 kernels, as in /proc/cpuinfo.
_AVX512_FLAGS = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


def widest_mkl_kernels(cpuinfo: str) -> Optional[str]:
    """Return the value for the widest kernels that this processor can run.

    It is None where MKL chooses well or has none.
    """
    fields: Dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    if fields.get("vendor_id", "GenuineIntel") == "GenuineIntel":
        return None
    if flags >= _AVX512_FLAGS:
        return _AVX512
    return _AVX2 if flags >= {"avx2", "fma"} else None


def take_widest_mkl_kernels() -> None:
    """Have MKL take the widest kernels that this processor can run.

    Call it only before MKL's first operation.
    """
    kind = widest_mkl_kernels(read_file("/proc/cpuinfo") or "")
    if kind is not None:
        os.environ[MKL_KERNELS] = kind


def mkl_kernels_setting() -> str:
    """Return the kernels that MKL was set to take."""
    names = {_AVX2: "AVX2", _AVX512: "AVX-512"}
    kind = os.environ.get(MKL_KERNELS)
    if kind is None:
        return "MKL's own choice"
    return "%s (%s=%s)" % (names.get(kind, "other"), MKL_KERNELS, kind)

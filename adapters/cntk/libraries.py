"""What lies under CNTK: its MKL of 2018, asked and steered; the libraries it has loaded."""

import ctypes
import os
from typing import Any, Dict, List, Optional

_VARIABLE = "MKL_DEBUG_CPU_TYPE"
_AVX2, _AVX512 = "5", "7"
#: What the AVX-512 kernels of MKL need, as /proc/cpuinfo names it.
_AVX512_FLAGS = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


def widest_kernels(cpuinfo):
    # type: (str) -> Optional[str]
    """Return the MKL_DEBUG_CPU_TYPE that gives this processor MKL's widest kernels, None where MKL takes them itself.

    MKL 2018 looks at the maker before it looks at the instructions: on anything but an Intel processor its products
    are made by SSE2 kernels, and its convolutions have none, so that CNTK falls back to products. ``cpuinfo`` is the
    text of /proc/cpuinfo.
    """
    fields = {}  # type: Dict[str, str]
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    if fields.get("vendor_id", "GenuineIntel") == "GenuineIntel":
        return None
    if flags >= _AVX512_FLAGS:
        return _AVX512
    return _AVX2 if flags >= {"avx2", "fma"} else None


def take_widest_kernels():
    # type: () -> None
    """Have MKL take the widest kernels that this processor runs; only before MKL's first operation."""
    try:
        with open("/proc/cpuinfo") as file:
            kind = widest_kernels(file.read())
    except OSError:
        return
    if kind is not None:
        os.environ[_VARIABLE] = kind


def kernels_asked_for():
    # type: () -> str
    """Return which kernels MKL was told to take, in words."""
    names = {_AVX2: "AVX2", _AVX512: "AVX-512"}
    kind = os.environ.get(_VARIABLE)
    return "MKL's own choice" if kind is None else "%s (%s=%s)" % (names.get(kind, "other"), _VARIABLE, kind)


def loaded():
    # type: () -> List[str]
    """Return the paths of the shared libraries in this process."""
    try:
        with open("/proc/self/maps") as file:
            paths = {line.split(None, 5)[-1].strip() for line in file}
    except OSError:
        return []
    return sorted(path for path in paths if ".so" in os.path.basename(path))


class _Version(ctypes.Structure):
    """MKL's ``MKLVersion``."""

    _fields_ = [(name, ctypes.c_int) for name in ("major", "minor", "update")] + [
        (name, ctypes.c_char_p) for name in ("status", "build", "processor", "platform")
    ]


def mkl():
    # type: () -> Dict[str, Any]
    """Return the version and the threads of MKL; empty where it is not found.

    Which kernels it takes it does not tell: its word on the processor is about the maker alone.
    """
    paths = [path for path in loaded() if os.path.basename(path).startswith("libmklml")]
    if not paths:
        return {}
    library = ctypes.CDLL(paths[0])
    version = _Version()
    library.MKL_Get_Version(ctypes.byref(version))
    return {
        "name": "mkl",
        "version": "%d.%d.%d" % (version.major, version.minor, version.update),
        "threads": int(library.MKL_Get_Max_Threads()),
    }

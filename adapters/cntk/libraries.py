"""What lies under CNTK: its MKL of 2018, and the libraries it has loaded."""

import ctypes
import os
from typing import Any, Dict, List


def loaded() -> List[str]:
    """Return the paths of the shared libraries in this process."""
    try:
        with open("/proc/self/maps", errors="replace") as file:
            paths = {line.split(None, 5)[-1].strip() for line in file}
    except OSError:
        return []
    return sorted(path for path in paths if ".so" in os.path.basename(path))


class _Version(ctypes.Structure):
    """MKL's ``MKLVersion``."""

    _fields_ = [(name, ctypes.c_int) for name in ("major", "minor", "update")] + [
        (name, ctypes.c_char_p) for name in ("status", "build", "processor", "platform")
    ]


def mkl() -> Dict[str, Any]:
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

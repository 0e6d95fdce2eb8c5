"""Theano's configuration, which it reads from the environment once, when it is imported.

Without a BLAS at link time Theano falls back to NumPy's product from Python, and to a slow convolution. NumPy's wheel
brings an OpenBLAS that is in the process anyway: the compiled code is linked to that one.
"""

import ctypes
import glob
import os
import shlex
import shutil
import sysconfig
from typing import Any, Optional, Tuple

import numpy as np

COMPILER = "g++"
# Seconds after which the lock of another process that gives no sign of life is overridden. Theano renews its own lock
# whenever half of this has passed; the longest single compilation of these networks takes a fifth of it.
LOCK_TIMEOUT = 60


def openblas_of_numpy() -> Optional[str]:
    """Return the path of the OpenBLAS in NumPy's wheel; None where there is none, or its integers are 64 bits wide."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(np.__file__))), "numpy.libs")
    found = [path for path in sorted(glob.glob(os.path.join(folder, "libopenblas*.so"))) if "64_" not in path]
    return found[0] if found else None


def flags(base_directory: str, allow_gc: bool) -> str:
    """Return the value of THEANO_FLAGS: compiled code is kept under this directory."""
    chosen = [
        "floatX=float32",
        "device=cpu",
        "openmp=False",
        "cxx=%s" % (shutil.which(COMPILER) or ""),
        "base_compiledir=%s" % base_directory,
        "compile.timeout=%d" % LOCK_TIMEOUT,
        "compile.wait=1",
        "allow_gc=%s" % allow_gc,
    ]
    library = openblas_of_numpy()
    if library is not None:
        folder, name = os.path.split(library)
        chosen.append("blas.ldflags=-L%s -l:%s -Wl,-rpath,%s" % (folder, name, folder))
    # Theano splits the flags with shlex, at commas.
    return ",".join(shlex.quote(flag) for flag in chosen)


def apply(base_directory: str, allow_gc: bool) -> None:
    """Set the environment that Theano's import reads; a user's own .theanorc is left out of it."""
    os.makedirs(base_directory, exist_ok=True)
    os.environ["THEANO_FLAGS"] = flags(base_directory, allow_gc)
    os.environ["THEANORC"] = os.devnull


def can_compile() -> Tuple[bool, str]:
    """Return whether Theano can make its compiled code on this machine, and if not, why and what to do."""
    if shutil.which(COMPILER) is None:
        return False, "Theano compiles each network with g++, which is not found: install g++"
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        return False, "Theano compiles each network against Python's headers, and %s is missing" % header
    library = openblas_of_numpy()
    if library is None:
        return False, "NumPy here brings no OpenBLAS to link to, and without one Theano's products are NumPy's"
    if len(library.split()) > 1:
        return False, "Theano cannot link to a library in a folder with a blank in its name: %s" % library
    return True, ""


def openblas_loaded() -> Any:
    """Return a handle of the OpenBLAS that NumPy loaded and the compiled code calls; None where it is another BLAS."""
    library = openblas_of_numpy()
    return None if library is None else ctypes.CDLL(library)

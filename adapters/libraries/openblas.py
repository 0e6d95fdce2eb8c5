"""OpenBLAS, asked and set through its C interface; ``library`` is a ctypes handle that shows its symbols."""

import ctypes
from typing import Any, Dict, Optional

_THREADING = {0: "none", 1: "pthread", 2: "openmp"}


def _function(library: Any, name: str) -> Any:
    # A build with 64-bit integers carries the suffix.
    return getattr(library, name + "64_", None) or getattr(library, name, None)


def threads(library: Any) -> Optional[int]:
    """Return how many threads it says it uses; None where ``library`` is None or another BLAS."""
    function = None if library is None else _function(library, "openblas_get_num_threads")
    return None if function is None else int(function())


def set_threads(library: Any, count: int) -> None:
    """Give its pool this many threads where it has not: from the environment it takes no more than there are CPUs."""
    if threads(library) not in (None, count):
        _function(library, "openblas_set_num_threads")(count)


def told(library: Any) -> Dict[str, Any]:
    """Return what it says of itself: build, the kernels it chose for this CPU, kind of threads and their number."""
    count = threads(library)
    if count is None:
        return {}
    found: Dict[str, Any] = {"name": "openblas", "threads": count}
    for key, name in (("build", "openblas_get_config"), ("kernels", "openblas_get_corename")):
        function = _function(library, name)
        if function is not None:
            function.restype = ctypes.c_char_p
            found[key] = function().decode("ascii", "replace").strip()
    function = _function(library, "openblas_get_parallel")
    if function is not None:
        found["threading"] = _THREADING.get(int(function()), "unknown")
    return found

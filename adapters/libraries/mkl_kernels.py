"""Intel's MKL on processors of other makers: told to use the kernels that they can run.

Before 2020 MKL looked at the maker before it looked at the instructions: on anything but an Intel processor its
products are made by SSE2 kernels. MKL_DEBUG_CPU_TYPE, which Intel never documented, overrides that; later releases
ignore it.
"""

import os
from typing import Dict, Optional

VARIABLE = "MKL_DEBUG_CPU_TYPE"
_AVX2, _AVX512 = "5", "7"
#: What the AVX-512 kernels of MKL need, as /proc/cpuinfo names it.
_AVX512_FLAGS = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


def widest(cpuinfo: str) -> Optional[str]:
    """Return the value for the widest kernels that this processor can run; None where MKL takes them itself.

    None too where it has none for it. ``cpuinfo`` is the text of /proc/cpuinfo.
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


def take_widest() -> None:
    """Have MKL take the widest kernels that this processor can run; only before MKL's first operation."""
    try:
        # The text is ASCII but for a maker's whim, and Python 3.6 in the C locale would refuse to read on.
        with open("/proc/cpuinfo", errors="replace") as file:
            kind = widest(file.read())
    except OSError:
        return
    if kind is not None:
        os.environ[VARIABLE] = kind


def asked_for() -> str:
    """Return which kernels MKL was told to take, in words."""
    names = {_AVX2: "AVX2", _AVX512: "AVX-512"}
    kind = os.environ.get(VARIABLE)
    return "MKL's own choice" if kind is None else "%s (%s=%s)" % (names.get(kind, "other"), VARIABLE, kind)

"""Which GPUs a build of a framework has code for, by NVIDIA's rules."""

import re
from typing import Iterable, Tuple

AMPERE = (8, 0)  # the first compute capability with TF32 and bfloat16 in its matrix units
_ARCHITECTURE = re.compile(r"(sm|compute)_([0-9]+)([0-9])([af]?)\Z")


def has_code(architectures: Iterable[str], capability: Tuple[int, int]) -> bool:
    """Tell whether code for these architectures, such as "sm_90" and "compute_90", runs on a GPU of this capability.

    Machine code ("sm_") runs on its own compute capability and on later ones of the same major version; PTX
    ("compute_") is translated for any later one. With the suffix "a" either is for that one capability alone, with "f"
    for that one and later ones of its major version. Sources: NVIDIA, "CUDA C++ Programming Guide" (binary
    compatibility, PTX compatibility) and "NVIDIA CUDA Compiler Driver NVCC" (GPU feature list).
    """
    for name in architectures:
        match = _ARCHITECTURE.match(name)
        if match is None:
            continue
        kind, built, suffix = match.group(1), (int(match.group(2)), int(match.group(3))), match.group(4)
        if suffix == "a":
            runs = built == capability
        elif kind == "sm" or suffix == "f":
            runs = built[0] == capability[0] and built[1] <= capability[1]
        else:
            runs = built <= capability
        if runs:
            return True
    return False

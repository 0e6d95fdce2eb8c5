"""What a framework, or its build, cannot do on a GPU, in words for the reader of a matrix."""

import re
from typing import Iterable, Sequence, Tuple

from ..protocol import Cell

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


def refusal(cell: Cell, title: str, precisions: Sequence[str], placements: Sequence[str] = ("resident",)) -> str:
    """Return why a framework that is driven on CUDA GPUs, with these, cannot do the cell; empty where it can."""
    if cell.device.partition(":")[0] != "cuda":
        return "device %s: %s is driven here on the CPU and on CUDA GPUs only" % (cell.device, title)
    if cell.precision not in precisions:
        return "precision %s: %s is driven here in %s only" % (cell.precision, title, _listed(precisions, "and"))
    if cell.placement not in placements:
        known = _listed(placements, "or")
        return "placement %s: %s is driven here with a %s mini-batch only" % (cell.placement, title, known)
    return ""


def refusal_of_build(
    cell: Cell, version: str, advice: str, architectures: Sequence[str], capability: Tuple[int, int]
) -> str:
    """Return why a build with code for these architectures (none: it does not say) cannot do the cell on this GPU."""
    if architectures and not has_code(architectures, capability):
        return "%s: this build has no kernels for compute capability %d.%d (it has %s): %s" % (
            (version,) + capability + (", ".join(architectures), advice)
        )
    if cell.precision in ("tf32", "bfloat16") and capability < AMPERE:
        return "precision %s: it needs compute capability %d.%d, and this GPU has %d.%d" % (
            (cell.precision,) + AMPERE + capability
        )
    return ""


def first_line(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _listed(words: Sequence[str], last: str) -> str:
    return " ".join((", ".join(words[:-1]), last, words[-1])) if len(words) > 1 else words[0]

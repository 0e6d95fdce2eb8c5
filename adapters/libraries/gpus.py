"""GPUs: ceilings other than matrix products, and reasons why a build cannot run a cell."""

import re
import sys
import traceback
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ..launch import timing
from ..protocol import Cell, DeviceCeilings

# Ceilings: bandwidths, and the costs of an operator. Timed after the steps, by the framework's own
# copies and operators (``Adapter.device_probe``). The best of repeated calls counts: a disturbance
# only hides the device's speed.
#
# Bandwidths. A copy on the device counts the bytes read and those written, as STREAM's copy does
# (McCalpin 1995, Memory Bandwidth and Machine Balance in Current High Performance Computers). A
# copy between host and device counts the bytes that cross the link. Copies are timed several in a
# row, from an idle device to an idle one, so that starting and waiting are spread over milliseconds
# of them.
#
# Operators. Two times of the smallest one: the host's time to launch it behind others, which is a
# lower bound for steps of many operators, and the time from its launch on an idle device until the
# host sees its end.

COPY = "copy"  # on the device
TO_DEVICE_PINNED = "to_device_pinned"  # from the host's page-locked memory
TO_DEVICE_PAGEABLE = "to_device_pageable"
FROM_DEVICE_PINNED = "from_device_pinned"
FROM_DEVICE_PAGEABLE = "from_device_pageable"
OPERATOR = "operator"  # the smallest: one number changed where it lies

TRANSFERS = (COPY, TO_DEVICE_PINNED, TO_DEVICE_PAGEABLE, FROM_DEVICE_PINNED, FROM_DEVICE_PAGEABLE)
PROBES = (*TRANSFERS, OPERATOR)

#: Bytes of each array: on the device four times the largest last-level cache known (126 MB), as
#: STREAM asks.
DEVICE_BYTES = 512 * 1024**2
#: On the host more than most such caches.
HOST_BYTES = 256 * 1024**2
#: Seconds for which each probe is repeated.
SECONDS = 0.2
#: Least seconds of copies in a row: launching and waiting cost less than a hundredth of that.
SAMPLE_SECONDS = 0.005
#: Operators launched in a row: fewer than a device's queue holds (a thousand or more), or a launch
#: waits for it.
STARTED = 100


class Probe(NamedTuple):
    """An operation of a device whose speed is measured."""

    start: Callable[[], Any]  # start it once; may return before it is done
    wait: Callable[[], Any]  # return once everything that was started is done


def measure_ceilings(
    find: Callable[[str, int], Optional[Probe]], is_out_of_memory: Callable[[BaseException], bool]
) -> Tuple[Optional[DeviceCeilings], List[str]]:
    """Return the speeds of the probes, and a line for each that failed.

    ``find`` returns the probe of a name and a size in bytes, or None. Only one is kept at a time,
    so that memory holds the arrays of one. A probe for which memory runs out is left out silently:
    the launch itself fills it.
    """
    speeds: Dict[str, float] = {}
    failures = []
    for name in PROBES:
        try:
            speeds.update(_measure_probe(find, name))
        except Exception as error:
            if not is_out_of_memory(error):
                failures.append("%s: %s" % (name, noted(error)))
    if not speeds:
        return None, failures
    return DeviceCeilings(**speeds), failures


def _measure_probe(find: Callable[[str, int], Optional[Probe]], name: str) -> Dict[str, float]:
    """Return the fields of `DeviceCeilings` that one probe gives.

    The probe, and the arrays that it holds, end with this call.
    """
    if name == OPERATOR:
        size = 0
    elif name == COPY:
        size = DEVICE_BYTES
    else:
        size = HOST_BYTES
    probe = find(name, size)
    if probe is None:
        return {}
    if name == OPERATOR:
        return {
            "operator_start_seconds": seconds_to_start(probe),
            "operator_finish_seconds": seconds_to_finish(probe),
        }
    moved = 2 * size if name == COPY else size
    return {name + "_bytes_per_second": moved / seconds_in_a_row(probe)}


def seconds_in_a_row(probe: Probe) -> float:
    """Return the seconds of one call of several in a row.

    The device is idle before the first and after the last.
    """
    start, wait = probe
    timing.time_one(start, wait)  # the first may set something up
    count, _ = timing.steps_per_sample(start, wait, timing.time_one(start, wait), SAMPLE_SECONDS)
    several = timing.several(start, count)

    def sample() -> int:
        return timing.time_one(several, wait)

    return _best(sample) / count


def seconds_to_start(probe: Probe) -> float:
    """Return the host's seconds to launch one behind others, without waiting for any of them."""
    several = timing.several(probe.start, STARTED)

    def sample() -> int:
        probe.wait()
        begun = timing.nanoseconds()
        several()
        return timing.nanoseconds() - begun

    sample()
    seconds = _best(sample) / STARTED
    probe.wait()
    return seconds


def seconds_to_finish(probe: Probe) -> float:
    """Return the seconds from the start of one on an idle device until the host sees its end."""

    def sample() -> int:
        return timing.time_one(*probe)

    sample()
    return _best(sample)


def _best(sample: Callable[[], int]) -> float:
    """Return the seconds of the shortest of samples that are taken for `SECONDS`.

    ``sample`` returns nanoseconds, and is called once at least.
    """
    until = timing.nanoseconds() + int(SECONDS * 1e9)
    best = sample()
    while timing.nanoseconds() < until:
        best = min(best, sample())
    return max(best, 1) * 1e-9  # a clock may give 0 ns


AMPERE = (8, 0)  # the first compute capability with TF32 and bfloat16 in its matrix units
_ARCHITECTURE = re.compile(r"(sm|compute)_([0-9]+)([0-9])([af]?)\Z")


def has_code(architectures: Iterable[str], capability: Tuple[int, int]) -> bool:
    """Return whether code for these architectures runs on a GPU of this capability.

    Architectures have names such as "sm_90" and "compute_90". Machine code ("sm_") runs on its own
    compute capability and on later ones of the same major version; PTX ("compute_") is translated
    for any later one. With the suffix "a" either is for that one capability alone, with "f" for
    that one and later ones of its major version. Sources: NVIDIA, "CUDA C++ Programming Guide"
    (binary compatibility, PTX compatibility) and "NVIDIA CUDA Compiler Driver NVCC" (GPU feature
    list).
    """
    for name in architectures:
        match = _ARCHITECTURE.match(name)
        if match is None:
            continue
        kind, major, minor, suffix = match.groups()
        built = (int(major), int(minor))
        if suffix == "a":
            runs = built == capability
        elif kind == "sm" or suffix == "f":
            runs = built[0] == capability[0] and built[1] <= capability[1]
        else:
            runs = built <= capability
        if runs:
            return True
    return False


def refusal(
    cell: Cell, title: str, precisions: Sequence[str], placements: Sequence[str] = ("resident",)
) -> str:
    """Return why a framework for CUDA GPUs cannot run the cell; empty where it can.

    The framework has these precisions and placements.
    """
    if cell.device.partition(":")[0] != "cuda":
        words = "device %s: this adapter runs %s on the CPU and on CUDA GPUs only"
        return words % (cell.device, title)
    if cell.precision not in precisions:
        words = "precision %s: this adapter runs %s in %s only"
        return words % (cell.precision, title, _join_words(precisions, "and"))
    if cell.placement not in placements:
        words = "placement %s: this adapter runs %s with a %s mini-batch only"
        return words % (cell.placement, title, _join_words(placements, "or"))
    return ""


def advice(cell: Cell) -> str:
    """Return the remedy where a build cannot use the GPU."""
    return "use another build, --python %s=<its interpreter>" % cell.framework


def refusal_of_build(
    cell: Cell, version: str, architectures: Sequence[str], capability: Tuple[int, int]
) -> str:
    """Return why a build cannot run the cell on this GPU; empty where it can.

    It has code for these architectures (none: unknown).
    """
    if architectures and not has_code(architectures, capability):
        words = "%s: this build has no kernels for compute capability %d.%d (it has %s): %s"
        return words % (version, *capability, ", ".join(architectures), advice(cell))
    if cell.precision in ("tf32", "bfloat16") and capability < AMPERE:
        words = "precision %s: it needs compute capability %d.%d, and this GPU has %d.%d"
        return words % (cell.precision, *AMPERE, *capability)
    return ""


def first_line(error: BaseException) -> str:
    """Return the line of an exception's text that describes the failure."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(no message)"]
    # MXNet's messages begin with a trace of its C++ calls. The failure is in the last line.
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line[:300]


def noted(error: BaseException) -> str:
    """Print the traceback of a failure that costs no measurement; return a line about it.

    The line has the exception's type and text.
    """
    traceback.print_exc()
    sys.stderr.flush()
    return "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])


def _join_words(words: Sequence[str], conjunction: str) -> str:
    if len(words) == 1:
        return words[0]
    return "%s %s %s" % (", ".join(words[:-1]), conjunction, words[-1])

"""What a GPU, and its link to the host, can do at best beside matrix products: bandwidths, and what an operator costs.

Timed after the steps, by the framework's own copies and operators (``Adapter.device_probe``). Of repeated calls the
best counts: whatever disturbs one takes away from what the device can do.

Bandwidths. A copy on the device counts the bytes read and those written, as STREAM's copy does (McCalpin 1995, Memory
Bandwidth and Machine Balance in Current High Performance Computers); one between host and device counts the bytes that
cross the link. Copies are timed several in a row, from an idle device to an idle one, so that starting and waiting are
spread over milliseconds of them.

Operators. Two times of the smallest there is: the host's to start one behind others, which is the least that a step of
so many operators takes it; and from the start of one on an idle device until the host knows that it is done.
"""

import sys
import traceback
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from ..launch import timing
from ..protocol import DeviceCeilings

COPY = "copy"  # on the device
TO_DEVICE_PINNED = "to_device_pinned"  # from the host's page-locked memory
TO_DEVICE_PAGEABLE = "to_device_pageable"
FROM_DEVICE_PINNED = "from_device_pinned"
FROM_DEVICE_PAGEABLE = "from_device_pageable"
OPERATOR = "operator"  # the smallest: one number changed where it lies

TRANSFERS = (COPY, TO_DEVICE_PINNED, TO_DEVICE_PAGEABLE, FROM_DEVICE_PINNED, FROM_DEVICE_PAGEABLE)
NAMES = (*TRANSFERS, OPERATOR)

#: Bytes of each array: on the device four times the largest last-level cache known (126 MB), as STREAM asks; on the
#: host more than most such caches.
DEVICE_BYTES, HOST_BYTES = 512 * 1024**2, 256 * 1024**2
#: Repeated for so many seconds, each probe.
SECONDS = 0.2
#: Copies in a row last at least so many seconds: what a start and a wait cost is less than a hundredth of that.
SAMPLE_SECONDS = 0.005
#: Operators started in a row: fewer than a device's queue holds (a thousand and more), else starting waits for it.
STARTED = 100


class Probe(NamedTuple):
    """Something that a device does, for its speed alone."""

    start: Callable[[], object]  # start it once; may return before it is done
    wait: Callable[[], object]  # return once everything that was started is done


def size_of(name: str) -> int:
    """Return the bytes of the array that a probe copies; 0 of what copies none."""
    return 0 if name == OPERATOR else DEVICE_BYTES if name == COPY else HOST_BYTES


def measure(
    find: Callable[[str, int], Optional[Probe]], is_out_of_memory: Callable[[BaseException], bool]
) -> Tuple[Optional[DeviceCeilings], List[str]]:
    """Return what the probes show, and in a line each what went wrong with some of them.

    ``find`` gives the probe of a name and a size in bytes, or None; one at a time is held, so that their arrays lie in
    memory one after another. A probe for which memory runs out is left out without a word: it is full of what was just
    measured.
    """
    found: Dict[str, float] = {}
    failures = []
    for name in NAMES:
        try:
            found.update(_shown(find, name))
        except Exception as error:
            if is_out_of_memory(error):
                continue
            traceback.print_exc()
            sys.stderr.flush()
            failures.append("%s: %s: %s" % (name, type(error).__name__, " ".join(str(error).split())[:200]))
    return (DeviceCeilings(**found) if found else None), failures


def _shown(find: Callable[[str, int], Optional[Probe]], name: str) -> Dict[str, float]:
    """Return the fields of `DeviceCeilings` that one probe gives; the probe, and what it holds, ends with this call."""
    size = size_of(name)
    probe = find(name, size)
    if probe is None:
        return {}
    if name == OPERATOR:
        return {"operator_start_seconds": seconds_to_start(probe), "operator_finish_seconds": seconds_to_finish(probe)}
    moved = 2 * size if name == COPY else size
    return {name + "_bytes_per_second": moved / seconds_in_a_row(probe)}


def seconds_in_a_row(probe: Probe) -> float:
    """Return the seconds of one of several in a row, the device idle before the first and after the last."""
    start, wait = _quiet(probe.start), _quiet(probe.wait)
    timing.time_one(start, wait)  # the first may set something up
    count, _ = timing.steps_per_sample(start, wait, timing.time_one(start, wait), SAMPLE_SECONDS)
    several = timing.several(start, count)
    return _best(lambda: timing.time_one(several, wait)) / count


def seconds_to_start(probe: Probe) -> float:
    """Return the seconds that the host takes to start one behind others, before any of them need be done."""
    several = timing.several(_quiet(probe.start), STARTED)

    def sample() -> int:
        probe.wait()
        begun = timing.nanoseconds()
        several()
        return timing.nanoseconds() - begun

    sample()
    found = _best(sample) / STARTED
    probe.wait()
    return found


def seconds_to_finish(probe: Probe) -> float:
    """Return the seconds from the start of one on an idle device until the host knows that it is done."""
    start, wait = _quiet(probe.start), _quiet(probe.wait)
    timing.time_one(start, wait)
    return _best(lambda: timing.time_one(start, wait))


def _best(sample: Callable[[], int]) -> float:
    """Return the seconds of the shortest of samples (in nanoseconds) that are taken for `SECONDS`, one at least."""
    until = timing.nanoseconds() + int(SECONDS * 1e9)
    best = sample()
    while timing.nanoseconds() < until:
        best = min(best, sample())
    return max(best, 1) * 1e-9  # a clock may give 0 ns


def _quiet(call: Callable[[], object]) -> Callable[[], None]:
    """Take the call as one that returns nothing, without another call around it."""
    return call  # type: ignore[return-value]

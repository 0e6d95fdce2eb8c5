"""Profiled steps in several parts, of which an undisturbed one counts.

Under a profiler one launch after the other deviated by 15 %. Parts of a second or two show which
of them other programs slowed down, and two processes can take turns with them.
"""

import math
import os
import time
from typing import Callable, List, Optional

from ..libraries import profiles
from ..protocol import Profile

#: A profiler keeps every call of every operator until its end.
MOST_STEPS = 500
PARTS = 6
#: Seconds of a part with its reading, about, and those after which no further part begins.
PART_SECONDS = 1.5
PATIENCE = 20.0
_TRIALS = 2
#: Set where freed memory stays with the process.
KEEP_FREED = "MALLOC_TRIM_THRESHOLD_"
_BLOCKS = 800
_BLOCK_BYTES = 65536
_PAGE_BYTES = 4096
#: Python takes smaller objects from arenas of its own.
_BETWEEN_BYTES = 600


def room_in_the_heap() -> List[bytearray]:
    """Leave free blocks in the heap for a profiler's notes; return what keeps them apart.

    Without them its notes lie where tensors were freed, and tensors get new pages: 20 to 1,000 page
    faults a step in PyTorch where steps without the profiler had none, which took 1.6 times as long
    in a product.
    """
    blocks = []
    between = []
    for _ in range(_BLOCKS):
        block = bytearray(_BLOCK_BYTES)
        block[::_PAGE_BYTES] = b"x" * len(block[::_PAGE_BYTES])  # so that its pages are there
        blocks.append(block)
        between.append(bytearray(_BETWEEN_BYTES))
    return between


def take_in_parts(
    take: Callable[[int], Optional[Profile]],
    before_part: Callable[[], None],
    step_seconds: float,
    wanted_seconds: float,
    fewest_steps: int,
) -> Optional[Profile]:
    """Return the profile of an undisturbed part; None where the framework has no profiler.

    ``take`` profiles a number of steps, and ``before_part`` may wait for a turn. A step takes
    ``step_seconds``, and all parts together take about ``wanted_seconds``, with ``fewest_steps`` at
    least. The first two parts have few steps, and do not count: they show how many the others may
    have, since a trace of a step of many thousand operators takes seconds to read.
    """
    wanted = max(fewest_steps, math.ceil(wanted_seconds / step_seconds))
    most = min(MOST_STEPS, wanted) // PARTS
    steps = max(1, fewest_steps // PARTS)
    deadline = time.monotonic() + PATIENCE
    parts: List[Profile] = []
    kept = []
    for part in range(_TRIALS + PARTS):
        if parts and time.monotonic() > deadline:
            break
        if KEEP_FREED in os.environ:
            kept.append(room_in_the_heap())
        before_part()
        began = time.monotonic()
        profile = take(steps)
        if profile is None:
            return None
        parts.append(profile)
        if part == _TRIALS - 1:
            took = time.monotonic() - began
            steps = max(1, min(most, int(steps * PART_SECONDS / took)))
    return profiles.undisturbed(parts[_TRIALS:] or parts)

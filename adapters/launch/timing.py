"""The timed loop: the step, the device's fence, two readings of the clock, and nothing else."""

import gc
import math
import time
from typing import Any, Callable, List, Tuple

from ..protocol import Protocol

TRIES = 6  # to find how many steps make a sample


# perf_counter_ns came with Python 3.7; CNTK's last interpreter is 3.6, where a float loses less than 1 ns over days.
nanoseconds: Callable[[], int] = getattr(time, "perf_counter_ns", lambda: int(time.perf_counter() * 1e9))


def time_one(step: Callable[[], None], synchronize: Callable[[], None]) -> int:
    """Return the nanoseconds of one step, from an idle device to an idle device."""
    synchronize()
    start = nanoseconds()
    step()
    synchronize()
    return nanoseconds() - start


def several(step: Callable[[], None], count: int) -> Callable[[], None]:
    """Return a call that runs this many steps, by the step's own ``several`` where it has one."""
    if count == 1:
        return step
    together: Any = getattr(step, "several", None)
    if together is not None:
        steps_of_team: Callable[[], None] = together(count)
        return steps_of_team

    def steps() -> None:
        for _ in range(count):
            step()

    return steps


def steps_per_sample(
    step: Callable[[], None], synchronize: Callable[[], None], step_nanoseconds: int, seconds: float
) -> Tuple[int, List[int]]:
    """Return how many steps make a sample that lasts this long, and a step's nanoseconds in each try to find out.

    ``step_nanoseconds`` is a first guess of a step's time; where that means several, as many are tried out: steps in a
    row cost less than single ones, and those of a warm-up may be slow.
    """
    wanted = seconds * 1e9
    count = max(1, math.ceil(wanted / max(step_nanoseconds, 1000)))
    tried: List[int] = []
    while count > 1 and len(tried) < TRIES:
        took = time_one(several(step, count), synchronize)
        tried.append(took // count)
        if took >= wanted:
            break
        # 5 % more than is needed, lest the next try falls just short.
        count = math.ceil(count * min(1.05 * wanted / max(took, 1), 10.0))
    return count, tried


def keep_busy(step: Callable[[], None], synchronize: Callable[[], None], seconds: float) -> List[int]:
    """Run steps for at least this many seconds, one at least; return a step's nanoseconds in each batch of them.

    Batches grow until one lasts a hundredth of the time, so that short steps keep the device at work as they will while
    timed, and leave some hundred numbers behind, not some hundred thousand.
    """
    spent: List[int] = []
    count = 1
    start = nanoseconds()
    while not spent or nanoseconds() - start < seconds * 1e9:
        took = time_one(several(step, count), synchronize)
        spent.append(took // count)
        if took < seconds * 1e7:
            count *= 2
    return spent


def timed_loop(
    step: Callable[[], None],
    synchronize: Callable[[], None],
    protocol: Protocol,
    clock: Callable[[], int] = nanoseconds,
) -> List[int]:
    """Return the nanoseconds of every timed call of ``step``, in order.

    Stops after ``protocol.steps``, or once ``protocol.seconds`` have passed and ``protocol.minimum_steps`` are done.
    Samples go into a list made beforehand and the garbage collector rests, so that between two steps there is only
    a store, a comparison and a branch.
    """
    samples = [0] * protocol.steps
    minimum = protocol.minimum_steps
    collecting = gc.isenabled()
    gc.disable()
    done = 0
    try:
        synchronize()
        deadline = clock() + int(protocol.seconds * 1e9)
        while done < protocol.steps:
            start = clock()
            step()
            synchronize()
            end = clock()
            samples[done] = end - start
            done += 1
            if end > deadline and done >= minimum:
                break
    finally:
        if collecting:
            gc.enable()
    return samples[:done]


def gemm_rate(multiply: Callable[[], object], size: int, budget_seconds: float = 0.25) -> float:
    """Return the best FLOP/s of repeated (size, size) matrix products within about this many seconds."""
    multiply()
    best = float("inf")
    start = time.perf_counter()
    while True:
        before = nanoseconds()
        multiply()
        best = min(best, (nanoseconds() - before) * 1e-9)
        if time.perf_counter() - start > budget_seconds:
            return 2.0 * size**3 / best

"""The timed loop and the warm-up before it.

The loop has the step, device synchronisation, two clock readings, and nothing else.

A launch warms up for at least ``Protocol.warmup_steps`` steps, the first one included, and on a GPU
for `GPU_SECONDS` more. Up to ``Protocol.maximum_warmup_steps`` timed samples count as warm-up too:
those before the last change of level, found by optimal partitioning.

The series is cut where that lowers the sum of squared deviations from the segments' means by more
than a penalty for each cut (Jackson et al. 2005, "An algorithm for optimal partitioning of data on
an interval"; PELT, Killick et al. 2012, gives the same cuts in less time). The penalty is in units
of the noise's variance, estimated from the differences of samples close by, so that neither trend
nor level enters. Our own code, because the guest has NumPy alone; the tests compare it with
``ruptures``. Its reliability: adapters/docs/explanation/tolerances.md.
"""

import gc
import math
import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..protocol import Launch, Protocol, growth_costs
from .evidence import SampleCounter, resident_pages

TRIES = 6  # to find how many steps make a sample


# perf_counter_ns came with Python 3.7; CNTK's last interpreter is 3.6, where a float loses less
# than 1 ns over days.
nanoseconds: Callable[[], int] = getattr(
    time, "perf_counter_ns", lambda: int(time.perf_counter() * 1e9)
)


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


def noting_calls(
    call: Callable[[], None], synchronize: Callable[[], None], count: int, calls: List[int]
) -> Callable[[], None]:
    """Return a function that makes so many calls and appends the nanoseconds of each to ``calls``.

    Under a CPU quota samples last several of the kernel's periods, and the tail is that of single
    calls: those in which the quota is used up wait for the next period. The clock takes about 50 ns
    a call.
    """

    def make_calls() -> None:
        for _ in range(count):
            start = nanoseconds()
            call()
            synchronize()
            calls.append(nanoseconds() - start)

    return make_calls


def calls_that_count(
    calls: Sequence[int], count: int, left_out: int, turns: Sequence[int]
) -> List[int]:
    """Return the calls of the samples that count, given the number of calls in each sample.

    ``left_out`` is the number of samples that do not: those before the others, or the first one of
    each turn.
    """
    if not turns:
        return list(calls[left_out * count :])
    kept: List[int] = []
    place = 0
    for samples in turns:
        place += count * (left_out // len(turns))
        kept += calls[place : place + samples * count]
        place += samples * count
    return kept


def steps_per_sample(
    step: Callable[[], None], synchronize: Callable[[], None], step_nanoseconds: int, seconds: float
) -> Tuple[int, List[int]]:
    """Return the steps of a sample that lasts this long, and a step's nanoseconds in each try.

    Tries are there to find the number. ``step_nanoseconds`` is a first guess of a step's time.
    Where it calls for several steps, that many are timed: steps in a row cost less than single
    ones, and those of a warm-up may be slow.
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


def keep_busy(
    step: Callable[[], None], synchronize: Callable[[], None], seconds: float
) -> List[int]:
    """Run steps for at least this many seconds, one at least.

    Return a step's nanoseconds in each batch of steps. Batches grow until one lasts a hundredth of
    the time, so that short steps keep the device as busy as they will while timed, and give about a
    hundred numbers, not a hundred thousand.
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
    counter: Optional[SampleCounter] = None,
) -> List[int]:
    """Return the nanoseconds of every timed call of ``step``, in order.

    Stops after ``protocol.steps``, or once ``protocol.seconds`` have passed and
    ``protocol.minimum_steps`` are done. Samples go into a preallocated list and the garbage
    collector is off, so that between two steps there is only a store, a comparison and a branch,
    and where there is a ``counter`` its reading of the kernel's counts, about 1 us outside of every
    sample.
    """
    samples = [0] * protocol.steps
    minimum = protocol.minimum_steps
    collecting = gc.isenabled()
    gc.disable()
    done = 0
    try:
        synchronize()
        if counter is not None:
            counter.begin()
        deadline = clock() + int(protocol.seconds * 1e9)
        while done < protocol.steps:
            start = clock()
            step()
            synchronize()
            end = clock()
            samples[done] = end - start
            done += 1
            if counter is not None:
                counter.note()
            if end > deadline and done >= minimum:
                break
    finally:
        if collecting:
            gc.enable()
    return samples[:done]


def gemm_rate(multiply: Callable[[], object], size: int, budget_seconds: float = 0.1) -> float:
    """Return the best FLOP/s of repeated (size, size) products within about these seconds."""
    multiply()
    best = float("inf")
    start = time.perf_counter()
    while True:
        before = nanoseconds()
        multiply()
        best = min(best, (nanoseconds() - before) * 1e-9)
        if time.perf_counter() - start > budget_seconds:
            return 2.0 * size**3 / best


#: An idle GPU lowers its clocks, and needs tenths of a second of work to raise them again. In the
#: first steps libraries autotune their kernels, and allocators grow. A second covers both. Later
#: changes (heat, a power limit) are left to the search for a steady state and to the telemetry.
GPU_SECONDS = 1.0

#: Of warm-up before the first turn of several launches, in addition to the usual steps.
TURNS_WARM_UP_SECONDS = 0.5

#: While memory grows, at most so many steps more than usual.
GROWING_STEPS = 4

SHORTEST = 3  # samples in a segment: what is shorter is a spike, not a level
PENALTY = 6.0  # times the noise's variance and the logarithm of the length
RELEVANT = 0.01  # relative: a smaller change of level is left alone
#: Share of the steady samples that may lie on another level, from which they came back.
DISTURBED = 0.1
#: Samples: neighbours in autocorrelated noise are alike and make it look smaller than it is.
APART = 3
LONGEST = 200  # samples examined; a longer series is examined by the medians of neighbours


def warm_up(
    adapter: Any, launch: Launch, step: Callable[[], None], note_loss: Callable[[], None]
) -> Tuple[List[int], int]:
    """Run the steps between the first and the timed ones.

    Return their nanoseconds, and the number of steps of a sample.
    """
    protocol = launch.protocol
    spent: List[int] = []
    # The first step counts as warm-up. So does the first exchange, which comes after the local
    # steps: first calls are slow.
    steps = max(1, protocol.warmup_steps - 1, launch.cell.local_steps - 1)
    grown = 0
    for _ in range(steps):
        before = resident_pages()
        spent.append(time_one(step, adapter.synchronize))
        grown = resident_pages() - before
        note_loss()
    if not launch.cell.on_cpu:
        spent += keep_busy(step, adapter.synchronize, GPU_SECONDS)
    if launch.in_turns:
        # No search for a steady state follows: a change of level between turns has many causes.
        left = TURNS_WARM_UP_SECONDS - sum(spent) * 1e-9
        if left > 0:
            spent += keep_busy(step, adapter.synchronize, left)
        elif growth_costs(grown, spent[-1]):
            spent += until_memory_stays(step, adapter.synchronize)
    count, tried = steps_per_sample(step, adapter.synchronize, min(spent), protocol.sample_seconds)
    multiple = launch.cell.sample_steps
    return spent + tried, -(-count // multiple) * multiple


def until_memory_stays(step: Callable[[], None], synchronize: Callable[[], None]) -> List[int]:
    """Run steps until one leaves hardly more memory in use than before; return nanoseconds.

    At most `GROWING_STEPS` are run. Heaps grow for longer than other things warm up: after three
    steps PyTorch's next two still mapped 50,000 pages each, which is 0.1 s of a step of 0.35 s. A
    launch has too few rounds of such steps for a median to hide that. A framework that gives memory
    back after each step, as JAX does, has page faults in all of them, but does not grow.
    """
    spent: List[int] = []
    growing = True
    while growing and len(spent) < GROWING_STEPS:
        before = resident_pages()
        spent.append(time_one(step, synchronize))
        growing = growth_costs(resident_pages() - before, spent[-1])
    return spent


def timed_samples(
    sample: Callable[[], None],
    synchronize: Callable[[], None],
    protocol: Protocol,
    counter: Optional[SampleCounter] = None,
) -> Tuple[List[int], List[int], Optional[bool]]:
    """Time samples, and more of them while too few are steady.

    Return the warm-up samples, and the others. The third value is whether the others are steady;
    None where that was not checked. The search ends with the longest warm-up, or once the further
    samples have taken the protocol's seconds: all samples are kept then.
    """
    samples = timed_loop(sample, synchronize, protocol, counter=counter)
    longest = protocol.maximum_warmup_steps
    if longest == 0:
        return [], samples, None
    left = longest
    deadline = time.perf_counter() + protocol.seconds
    start = steady_from(samples, protocol.minimum_steps)
    while start is None and left > 0 and time.perf_counter() < deadline:
        more = protocol._replace(steps=min(left, protocol.minimum_steps))
        further = timed_loop(sample, synchronize, more, counter=counter)
        samples += further
        left -= len(further)
        start = steady_from(samples, protocol.minimum_steps)
    if start is None or start > longest:
        return [], samples, False
    return samples[:start], samples[start:], True


class TimedTurns(NamedTuple):
    """Samples that were timed in turns with other launches, in nanoseconds."""

    lead_ins: List[int]  # the first sample of each turn, where it does not count
    samples: List[int]
    turns: List[int]  # samples of each turn
    starts: List[int]  # the clock before each call, lead-ins included
    seconds: float  # of all turns together


def samples_in_turns(
    sample: Callable[[], None],
    synchronize: Callable[[], None],
    in_first_turn: int,
    with_lead_in: bool,
    next_turn: Callable[[int], int],
    counter: SampleCounter,
    clock: Callable[[], int] = nanoseconds,
) -> TimedTurns:
    """Time so many samples in the first turn, and in further ones until ``next_turn`` returns 0.

    ``next_turn`` takes the number of samples of a turn that has ended, waits until other launches
    had theirs, and returns how many samples are next. The host may stop this process in a turn: it
    subtracts the time.
    """
    lead_ins: List[int] = []
    samples: List[int] = []
    turns: List[int] = []
    starts: List[int] = []
    spent = 0
    wanted = in_first_turn
    collecting = gc.isenabled()
    gc.disable()
    try:
        while wanted:
            synchronize()
            begun = clock()
            if with_lead_in:
                sample()
                synchronize()
                lead_ins.append(clock() - begun)
                starts.append(begun)
            counter.begin()
            for _ in range(wanted):
                start = clock()
                sample()
                synchronize()
                end = clock()
                samples.append(end - start)
                starts.append(start)
                counter.note()
            turns.append(wanted)
            spent += clock() - begun
            wanted = next_turn(wanted)
    finally:
        if collecting:
            gc.enable()
    return TimedTurns(lead_ins, samples, turns, starts, spent * 1e-9)


def _logarithms(times: Sequence[float]) -> np.ndarray:
    logs: np.ndarray = np.log(np.maximum(np.asarray(times, dtype=float), 1e-12))
    return logs


def smooth(times: Sequence[float]) -> np.ndarray:
    """Return the logarithms of the times without single spikes.

    Each is the median of itself and its neighbours. The first and the last take their neighbour's:
    a spike at an end is a spike all the same.
    """
    logs = _logarithms(times)
    if len(logs) < 3:
        return logs
    inner = np.median(np.stack([logs[:-2], logs[1:-1], logs[2:]]), axis=0)
    return np.concatenate([inner[:1], inner, inner[-1:]])


def noise_variance(times: Sequence[float]) -> float:
    """Return the variance of the logarithms around their level.

    It is a robust estimate, from differences of times `APART` samples.
    """
    logs = _logarithms(times)
    apart = APART if len(logs) >= 6 * APART else 1
    differences = np.abs(logs[apart:] - logs[:-apart])
    # 0.6745: the median of |x| of a standard normal x.
    deviation = float(np.median(differences)) / 0.6745 / math.sqrt(2.0)
    return max(deviation, 1e-4) ** 2


def change_points(signal: np.ndarray, penalty: float) -> List[int]:
    """Return the starts of the segments but the first.

    The segments minimise squared deviations plus ``penalty`` a cut.
    """
    count = len(signal)
    sums = np.concatenate([[0.0], np.cumsum(signal)])
    squares = np.concatenate([[0.0], np.cumsum(signal**2)])
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    previous = np.zeros(count + 1, dtype=int)
    for end in range(SHORTEST, count + 1):
        starts = np.arange(0, end - SHORTEST + 1)
        lengths = end - starts
        costs = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / lengths
        totals = best[starts] + costs + penalty
        chosen = int(np.argmin(totals))
        best[end] = totals[chosen]
        previous[end] = starts[chosen]
    cuts: List[int] = []
    cut = int(previous[count])
    while cut > 0:
        cuts.append(cut)
        cut = int(previous[cut])
    return cuts[::-1]


def steady_from(times: Sequence[float], minimum: int) -> Optional[int]:
    """Return the index from which the times keep their level.

    None where fewer than ``minimum`` of them do. ``times`` are positive, in any unit. A change of
    level by less than `RELEVANT` does not count, nor does one that lasted only a few samples: that
    was a disturbance, not warm-up. Also None where the times still drift at the end.
    """
    neighbours = -(-len(times) // LONGEST)
    if neighbours > 1:
        whole = len(times) // neighbours * neighbours
        values = np.median(np.asarray(times[:whole], dtype=float).reshape(-1, neighbours), axis=1)
    else:
        values = np.asarray(times, dtype=float)
    if len(values) < 2 * SHORTEST:
        return 0 if len(times) >= minimum else None
    signal = smooth(values)
    cuts = change_points(signal, PENALTY * noise_variance(values) * math.log(len(values)))
    bounds = [0] + cuts + [len(signal)]
    first = _first_of_last_level(signal, bounds)
    if first > 0 and _drifts(signal[bounds[first - 1] :], bounds[first] - bounds[first - 1]):
        return None
    head = signal[: bounds[first]]
    tail = signal[bounds[first] :]
    if len(tail) < len(head) and float(np.mean(tail)) - float(np.mean(head)) > RELEVANT:
        # The longer part was faster: a neighbour appeared, or the machine slows down. More samples
        # decide.
        return None
    index = bounds[first] * neighbours
    return index if len(times) - index >= minimum else None


def _first_of_last_level(signal: np.ndarray, bounds: List[int]) -> int:
    """Return the earliest segment from which on the samples lie on the last one's level.

    All but `DISTURBED` of the samples have to.
    """
    levels = []
    for segment in range(len(bounds) - 1):
        levels.append(float(np.mean(signal[bounds[segment] : bounds[segment + 1]])))
    first = len(levels) - 1
    elsewhere = 0
    for segment in range(len(levels) - 1, -1, -1):
        if abs(levels[segment] - levels[-1]) >= RELEVANT:
            elsewhere += bounds[segment + 1] - bounds[segment]
        elif elsewhere <= DISTURBED * (bounds[-1] - bounds[segment]):
            first = segment
    return first


def _drifts(signal: np.ndarray, cut: int) -> bool:
    """Return whether a line fits the signal better than two levels with this cut between them."""
    indices = np.arange(len(signal))
    line = np.polyval(np.polyfit(indices, signal, 1), indices)
    levels = np.full(len(signal), np.mean(signal[cut:]))
    levels[:cut] = np.mean(signal[:cut])
    return bool(np.sum((signal - line) ** 2) < np.sum((signal - levels) ** 2))

"""Schedules: which launches a run makes next, decided from its plan and its records alone.

`Schedule` launches each cell a fixed number of times or until its interval is narrow enough, `PairSchedule` both
sides of a comparison in interleaved pairs, `search.HalvingSchedule` searches the fastest cell. A resumed run makes its
schedule from the records so far.

A launch gives one log-median, and a cell's interval is Student's t over those (`reports.statistics`); its relative
half-width is exp(half) - 1. A cell is done when that reaches the wanted precision, or at the most launches allowed.

Stopping at the first look that meets the precision would favour samples whose spread came out small by chance:
simulated coverage of the nominal 95 % interval then falls to 91.9 % where launches deviate by twice the precision. So
the spread that decides on stopping is a mean of the cell's own and of an assumed one (`DOUBT_DEVIATION` times the
precision, weighted as `DOUBT_FREEDOM` degrees of freedom), as a Bayesian estimate of a variance is; the interval itself
is not touched. With 5 to 20 launches coverage then is 93.4 to 95.1 % whatever the deviation, at a price of one or two
launches for quiet cells.
"""

import itertools
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from scipy.special import stdtrit

from dlbench.adapters.protocol import Cell, Protocol, Status
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CRASHES, ONCE_BY_CHANCE, pairs_of
from dlbench.reports.compare.verdict import DEFAULT, Rule, deciding_look, estimate_pairs, fewest_pairs, next_look
from dlbench.reports.statistics import CONFIDENCE, ENOUGH_LAUNCHES, LAUNCH_DEVIATION, summarise
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import GATE_STAGE, Record, last_attempts

from ..planning.plan import LaunchDurations, Plan, PlannedLaunch, group_of, sizes_of

Group = tuple[PlannedLaunch, ...]
"""Launches that belong together, in order: the two sides of a pair, else one."""

MOST_ATTEMPTS = 3
"""A disturbed launch is repeated until it was attempted this often."""
# Repetitions of disturbed launches allowed in a whole run: a number, and a share of its records.
_REPEATS, _REPEATS_SHARE = 4, 0.25
# Statuses after which another launch of the same cell could give something new.
_WORTH_REPEATING = (Status.OK, Status.PARITY_FAILED, Status.CRASHED)

LOOKS_APART = 1.4
"""A comparison looks at its interval after this many times the pairs of the previous look. Looking after every pair
would favour intervals that came out narrow by chance."""


DOUBT_DEVIATION = 1.5
"""Assumed deviation of launches, in multiples of the precision."""
DOUBT_FREEDOM = 3
SEARCHABLE = 3
"""Samples more than the fewest with which a search for the end of warm-up begins; see adapters/launch/timing.py."""
_QUARTILES_APART = 1.349  # standard deviations of a normal distribution
_MEDIAN_VARIANCE = math.pi / 2  # of the median of n normal values, times n / variance


@dataclass(frozen=True)
class LaunchStats:
    """One launch that gave a number: median seconds of a step, and wall seconds of a timed sample and of all the rest.

    ``log_variance`` is that of the logarithms of its samples, from their quartiles: a median does not mind spikes.
    """

    seconds: float
    log_variance: float
    samples: int
    sample_seconds: float
    startup_seconds: float
    warmup_samples: int = 0


def launch_stats(record: Record) -> LaunchStats | None:
    """Return what planning needs of a record; None where nothing was timed."""
    outcome = record.outcome
    if not outcome.samples_ns:
        return None
    steps = np.asarray(outcome.step_seconds())
    low, high = np.quantile(np.log(steps), [0.25, 0.75])
    timed = sum(outcome.samples_ns) * 1e-9
    return LaunchStats(
        seconds=float(np.median(steps)),
        log_variance=(float(high - low) / _QUARTILES_APART) ** 2,
        samples=len(steps),
        sample_seconds=max(timed / len(steps), 1e-9),
        startup_seconds=max(record.wall_seconds - timed, 0.0),
        warmup_samples=len(outcome.warmup_ns),
    )


def half_width(launches: Sequence[LaunchStats]) -> float | None:
    """Return the relative half-width of the interval over these launches; None with fewer than three."""
    if len(launches) < ENOUGH_LAUNCHES:
        return None
    summary = summarise([[launch.seconds] for launch in launches])
    assert summary.high is not None
    return summary.high / summary.median - 1


def reached(launches: Sequence[LaunchStats], precision: float) -> bool:
    """Return whether the interval is narrow enough, the doubt about its own spread included."""
    count, width = len(launches), half_width(launches)
    if width is None or width > precision:
        return False
    return _half(count, _doubted_variance(_log_variance(launches), count, precision)) <= precision


def launches_needed(launches: Sequence[LaunchStats], precision: float, fewest: int, most: int) -> int:
    """Return how many more launches a cell is expected to need if they deviate as those so far did; 0: it is done."""
    made = len(launches)
    if made >= fewest and (made >= most or reached(launches, precision)):
        return 0
    variance = _expected_variance(launches)
    for count in range(max(made + 1, fewest, ENOUGH_LAUNCHES), most):
        if _half(count, max(variance, _doubted_variance(variance, count, precision))) <= precision:
            return count - made
    return most - made


def samples_of_launch(launches: Sequence[LaunchStats], fewest: int, most: int, searching: bool = False) -> int:
    """Return how many samples the next launch should time, between ``fewest`` and ``most``.

    n = sqrt((cost of a launch / cost of a sample) * (variance within / variance between launches)): Kalibera and Jones
    2013, "Rigorous benchmarking in reasonable time". The variance between launches is that of the log-medians less the
    part that the samples' own spread adds; where nothing is left of it, the result is ``most``. With too few launches
    to estimate it the result is ``fewest``: a start usually costs more than its steps. With ``searching`` for the end
    of warm-up it includes as many samples as warm-up took so far, and at first those that a search needs.
    """
    if len(launches) < ENOUGH_LAUNCHES:
        return min(most, fewest + SEARCHABLE) if searching else fewest
    within = float(np.mean([launch.log_variance for launch in launches]))
    noise = float(np.mean([_MEDIAN_VARIANCE * launch.log_variance / launch.samples for launch in launches]))
    between = _log_variance(launches) - noise
    if between <= 0:
        return most
    startup = float(np.mean([launch.startup_seconds for launch in launches]))
    sample = float(np.mean([launch.sample_seconds for launch in launches]))
    least = fewest + (max(launch.warmup_samples for launch in launches) if searching else 0)
    best = math.sqrt(startup / sample * within / between)
    return min(most, max(least, math.ceil(min(best, most))))


def gain(launches: Sequence[LaunchStats], seconds: float, precision: float) -> float:
    """Return the half-width that one more launch is expected to take off, per second that it lasts.

    Below the precision nothing is gained; an interval where there was none is worth more than anything else.
    """
    count, seconds = len(launches), max(seconds, 1e-9)
    if count < ENOUGH_LAUNCHES:
        return (1e6 + count) / seconds
    variance = _expected_variance(launches)
    now, then = (max(_half(number, variance), precision) for number in (count, count + 1))
    return (now - then) / seconds


def _log_variance(launches: Sequence[LaunchStats]) -> float:
    return statistics.variance(math.log(launch.seconds) for launch in launches)


def _expected_variance(launches: Sequence[LaunchStats]) -> float:
    return _log_variance(launches) if len(launches) >= ENOUGH_LAUNCHES else LAUNCH_DEVIATION**2


def _doubted_variance(variance: float, count: int, precision: float) -> float:
    doubt = (DOUBT_DEVIATION * precision) ** 2
    return (DOUBT_FREEDOM * doubt + (count - 1) * variance) / (DOUBT_FREEDOM + count - 1)


def _half(count: int, variance: float) -> float:
    """Return the relative half-width of Student's interval over so many log-medians of this variance."""
    return math.expm1(float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * math.sqrt(variance / count))


class Schedule:
    """The launches of one run so far, and those to come: blocks of one launch of each cell."""

    strict = False
    """Whether the run ends with the first launch that does not fit its budget."""

    def __init__(self, plan: Plan, records: Iterable[Record] = (), host: Host | None = None) -> None:
        self.plan, self.host = plan, host
        self.count = self.repeated = 0
        """Records in all, and those that repeat a disturbed launch."""
        self._durations = LaunchDurations(plan)
        self._records: defaultdict[Cell, list[Record]] = defaultdict(list)
        """By cell, and by what cells share that differ in their threads or their mini-batch only."""
        self.stats: dict[Cell, tuple[LaunchStats, ...]] = {}
        """Of the launches of each cell that gave a number."""
        self._left: dict[Cell, int] = {}
        """Launches that each cell is expected to need."""
        for record in records:
            self._take(record)
        for cell in plan.cells:
            self._update(cell)

    def add(self, record: Record) -> None:
        """Take note of a record."""
        self._take(record)
        self._update(record.cell)

    def _take(self, record: Record) -> None:
        for key in (record.cell, group_of(record.cell), sizes_of(record.cell)):
            self._records[key].append(record)
        self.count += 1
        self.repeated += record.attempt > 0
        if record.outcome.status is not Status.SKIPPED:
            self._durations.add(record.cell, record.wall_seconds)

    def _update(self, cell: Cell) -> None:
        """Recompute what a cell needs."""
        counting = last_attempts(self._records[cell])
        self.stats[cell] = tuple(filter(None, map(launch_stats, counting)))
        self._left[cell] = self._needed(cell, counting)

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        statuses = [record.outcome.status for record in counting]
        if any(status not in _WORTH_REPEATING for status in statuses):
            return 0
        missing = max(0, self.plan.launches - len({record.launch for record in counting}))
        failed = statuses.count(Status.CRASHED) >= CRASHES or Status.PARITY_FAILED in statuses
        if self.plan.interval is None or failed:
            return missing  # a failed cell has no interval target
        left = launches_needed(self.stats[cell], self.plan.interval, self.plan.launches, self.plan.most)
        return min(self.plan.most - len(counting), max(missing, left))

    def blocks(self) -> Iterator[int]:
        """Yield the indices of blocks while something may be needed."""
        return iter(range(self.plan.most))

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block, shuffled by the plan's seed; ``seconds_left`` are those of a budget.

        Where time is short, those come first that gain most precision.
        """
        found = [planned for planned in self.plan.block(block) if self.wants(planned.cell, block)]
        # The first block's order serves the cells' budgets: see `Plan.block`.
        if self.plan.interval is not None and block and seconds_left is not None:
            seconds = {planned: self.seconds(planned.cell) for planned in found}
            if sum(seconds.values()) > seconds_left:
                interval = self.plan.interval
                found.sort(key=lambda each: -gain(self.stats[each.cell], seconds[each], interval))
        return [(planned,) for planned in found]

    def wants(self, cell: Cell, block: int) -> bool:
        """Whether a cell still needs its launch of a block, now that others have ended."""
        if self._left[cell] == 0 or any(record.launch == block for record in self._records[cell]):
            return False
        return block < self.plan.launches or self.plan.interval is not None

    def launches_left(self) -> int:
        """Return how many launches are expected to be needed."""
        return sum(self._left.values())

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return sum(count * self.seconds(cell) for cell, count in self._left.items() if count)

    def reserved(self, cell: Cell, block: int) -> float:
        """Return the seconds that a budget must leave behind a cell's launch of a block."""
        return 0.0

    def seconds(self, cell: Cell) -> float:
        """Return the expected seconds of a launch."""
        return self._durations.launch_duration(cell)

    def protocol(self, cell: Cell) -> Protocol:
        """Return how the next launch of a cell measures; with a precision to reach, for how many samples."""
        protocol = self.plan.protocol_of(cell)
        if self.plan.interval is None:
            return protocol
        searching = protocol.maximum_warmup_steps > 0
        steps = samples_of_launch(self.stats[cell], protocol.minimum_steps, protocol.steps, searching)
        return protocol._replace(steps=steps)

    def skip_reason(self, cell: Cell) -> str:
        """Return why a cell is not worth starting, judged by others like it; else nothing."""
        out_of_memory = [
            each.cell.batch_size
            for each in self._records[sizes_of(cell)]
            if each.outcome.status is Status.OUT_OF_MEMORY
        ]
        if not self.stats[cell] and min(out_of_memory, default=cell.batch_size) < cell.batch_size:
            return f"mini-batch {min(out_of_memory)} ran out of memory already"
        first = min(self._records[group_of(cell)], key=lambda each: each.cell.threads, default=None)
        if first is None or first.cell.threads >= cell.threads:
            return ""
        limit, outcome = self.plan.cell_seconds, first.outcome
        threads = "1 thread" if first.cell.threads == 1 else f"{first.cell.threads} threads"
        if outcome.status is Status.TIMED_OUT:
            return f"at {threads} it did not end within the cell's budget of {limit:g} s"
        if outcome.samples_ns and (step := median(outcome.step_seconds())) > limit:
            return f"one step takes {step:.3g} s at {threads}, the cell's budget is {limit:g} s"
        return ""

    def most_attempts(self) -> int:
        """Return how often the next launch may be attempted."""
        return MOST_ATTEMPTS if self.repeated < _REPEATS + _REPEATS_SHARE * self.count else 1


PairRule = Callable[[Cell, Sequence[Record]], tuple[str, int] | None]
"""Given a cell and its records: the stage that needs a pair, and how many more at most; None when it is done."""


class PairSchedule(Schedule):
    """Pairs of launches, one of each side, until a rule wants no more."""

    strict = True

    def __init__(
        self,
        plan: Plan,
        records: Iterable[Record],
        rule: PairRule,
        duets: Mapping[Cell, Sequence[tuple[int, ...]]] | None = None,
    ) -> None:
        """Take up the records so far; ``duets`` are cells whose pairs are launched at once, on these CPUs."""
        self._rule, self._duets = rule, duets or {}
        self._stages: dict[Cell, str] = {}
        super().__init__(replace(plan, interval=None), records)

    def _update(self, cell: Cell) -> None:
        self._stages[cell], pairs = self._rule(cell, self._records[cell]) or ("", 0)
        self._left[cell] = 2 * pairs

    def blocks(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: any(self._left.values()), itertools.count())

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return a pair for each cell that needs one, shuffled.

        The order of its sides, which in a duet is that of their CPUs, is drawn by the seed.
        """
        pairs = []
        for cell, stage in self._stages.items():
            if self._left[cell]:
                index = _next_index(self._records[cell], stage)
                sides = [BASELINE, CANDIDATE]
                random.Random(f"{self.plan.seed}:{stage}:{index}:{cell!r}").shuffle(sides)
                masks = self._duets.get(cell, (None, None))
                placed = zip(sides, masks, strict=True)
                pairs.append(tuple(PlannedLaunch(cell, index, side, stage, cpus) for side, cpus in placed))
        random.Random(f"{self.plan.seed}:{[pair[0].block for pair in pairs]}").shuffle(pairs)
        return pairs

    def wants(self, cell: Cell, block: int) -> bool:
        return self._left[cell] > 0

    def seconds_left(self) -> float:
        # Two launches of a duet take the time of one.
        at_once = sum(self._left[cell] * self.seconds(cell) for cell in self._duets)
        return super().seconds_left() - at_once / 2

    def skip_reason(self, cell: Cell) -> str:
        return ""  # each side of each cell is tried

    def most_attempts(self) -> int:
        return MOST_ATTEMPTS


def _given_up(records: Sequence[Record]) -> bool:
    """Tell whether a side would end the same way again."""
    for side in (BASELINE, CANDIDATE):
        statuses = [record.outcome.status for record in records if record.side == side]
        by_chance = sum(map(statuses.count, ONCE_BY_CHANCE))
        if by_chance >= CRASHES or statuses.count(Status.OK) + by_chance < len(statuses):
            return True
    return False


def _next_index(records: Sequence[Record], stage: str) -> int:
    return 1 + max((record.launch for record in records if record.stage == stage), default=-1)


def for_gate(host: Host, rule: Rule = DEFAULT) -> PairRule:
    """Return the rule of a gate: pairs until a look decides, or until too many were disturbed."""
    at_ease = next(look.pairs for look in rule.looks if look.suspect < 1)
    """Any cell may have so many pairs, a suspect one more."""

    def next_pairs(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        (baseline, candidate), _ = pairs_of(records, host)
        if _given_up(records) or deciding_look(baseline, candidate, rule) is not None:
            return None
        wanted = next_look(len(baseline), rule).pairs
        if _next_index(records, GATE_STAGE) >= int((1 + rule.spare) * max(wanted, at_ease)):
            return None
        return GATE_STAGE, wanted - len(baseline)

    return next_pairs


def for_compare(host: Host, cells: int, fewest: int, most: int, width: float, rule: Rule = DEFAULT) -> PairRule:
    """Return the rule of a comparison of this many cells: pairs until the ratio's interval is narrow enough.

    ``width`` is the half-width of the interval relative to the ratio. It stops on precision, never on a p-value, and
    not before there are enough pairs to prove a slowdown at all (`verdict.fewest_pairs`).
    """
    looks = [max(fewest, fewest_pairs(cells, rule))]
    while looks[-1] < most:
        looks.append(min(most, math.ceil(LOOKS_APART * looks[-1])))

    def next_pairs(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        (baseline, candidate), _ = pairs_of(records, host)
        made = len(baseline)
        spent = made >= looks[-1] or _next_index(records, "") >= int((1 + rule.spare) * looks[-1])
        if spent or _given_up(records):
            return None
        reached = max((look for look in looks if look <= made), default=0)
        needed = 0.0
        if reached:
            found = estimate_pairs(baseline[:reached], candidate[:reached], rule.confidence)
            half = (found.high - found.low) / (2 * found.ratio)
            if half <= width:
                return None
            needed = min(made * (half / width) ** 2, looks[-1])
        following = next(look for look in looks if look > made)
        return "", max(following, int(needed)) - made

    return next_pairs

"""Schedules: the launches that a run makes next, decided from its plan and its records alone.

`Schedule` launches each cell a fixed number of times or until its interval is narrow enough,
`ContestSchedule` launches the cells of a column until the fastest is known, `PairSchedule` launches
both sides of a comparison in interleaved pairs, and `search.HalvingSchedule` searches for the
fastest cell. A resumed run makes its schedule from the records so far.

A launch gives one log-median, and a cell's interval is Student's t over those, its variance shrunk
towards what the run's cells have in common (`reports.results.statistics`). Its relative half-width
is exp(half) - 1. A cell is done when that reaches the wanted precision, or at the most launches
allowed.

Stopping at the first look that meets the precision would favour samples whose spread came out small
by chance: simulated coverage of the nominal 95 % interval then falls to 91.9 % where launches
deviate by twice the precision. So the spread that decides on stopping is a mean of that and of an
assumed one (`DOUBT_DEVIATION` times the precision), as in a Bayesian estimate of a variance. The
interval itself is unchanged. Without other cells the assumed one weighs as much as `DOUBT_FREEDOM`
degrees of freedom, else as one: other cells remove most of the doubt.

Simulated for 24 cells, +-2 %, 3 to 20 launches, coverage is 94.6 to 96.1 % whether cells deviate
alike or not. They need 3.3 launches where launches deviate by 1 %, 5.4 at 2 % and 10.0 at 3 %. By
their own launches alone they would need 6.9, 8.4 and 11.5, with a coverage of 93.5 to 94.8 %
(tests/benchmarks/time_to_confidence.py).
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
import numpy.typing as npt

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Protocol, Status
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.comparison import (
    CRASHES,
    ONCE_BY_CHANCE,
    complete_pairs,
    other_work,
    pairs_of,
    spreads_of_gate,
    tails_of_quantity,
)
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.judged import TIME, is_of_clock
from dlbench.reports.results.leaders import CLEAR, TIE, Leader, fastest
from dlbench.reports.results.losses import LossDifference
from dlbench.reports.results.matrix import Compared, build_matrix
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import (
    CONFIDENCE,
    ENOUGH_LAUNCHES,
    LEAST_DEVIATION,
    UNKNOWN_SPREAD,
    CommonSpread,
    common_spread,
    ratio,
    student_half,
)
from dlbench.reports.results.verdict import (
    DEFAULT,
    NO_SPREADS,
    Rule,
    Spreads,
    deciding_look,
    estimate_pairs,
    fewest_pairs,
    next_look,
)

from ..planning.plan import LaunchDurations, Plan, PlannedLaunch, any_batch_size, any_threads
from .groups import CONTEXT_BYTES, Group, Grouping

MOST_ATTEMPTS = 3
"""A disturbed launch is repeated until it was attempted this often."""
# Repetitions of disturbed launches allowed in a whole run: a number, and a share of its records.
_REPEATS, _REPEATS_SHARE = 4, 0.25
# Statuses after which another launch of the same cell could give something new.
_WORTH_REPEATING = (Status.OK, Status.PARITY_FAILED, Status.CRASHED)

LOOKS_APART = 1.4
"""Factor between the numbers of pairs or launches at one look and at the next.

A look after each pair or launch would favour results that are clear or narrow by chance."""

EARLY_CONFIDENCE = 0.995
"""Confidence of comparisons that end a contest before its last look."""
FAR_BEHIND = 1.25
"""Factor by which a cell is slower than the fastest when it leaves a contest.

Nearer cells stay until it is decided, even if clearly slower: the machine's speed may change
between blocks, and that must affect all of them."""

DOUBT_DEVIATION = 1.5
"""Assumed deviation of launches, in multiples of the precision."""
DOUBT_FREEDOM = 3
"""Weight of the assumed deviation where no other cells were measured."""
SEARCHABLE = 3
"""Samples beyond the fewest with which a search for the end of warm-up begins.

See adapters/launch/timing.py."""
DECISIVE = DEFAULT.tolerance / 2
"""Deviation of pairs up to which the first looks decide.

`verdict.outlook` gives 6.3 pairs for it, 15.0 at +5 %."""
ENOUGH_LOSSES = 2
"""Pairs whose first losses show that the two sides of a user's own step differ in substance."""
LONGER = 10
"""A launch of a pair times at most this many times the suite's samples."""
_ENOUGH_SAMPLES = 10
"""Degrees of freedom with which a cell's own samples show how samples vary."""
_QUARTILES_APART = 1.349  # standard deviations of a normal distribution
_MEDIAN_VARIANCE = math.pi / 2  # of the median of n normal values, times n / variance


@dataclass(frozen=True)
class LaunchStats:
    """The statistics of one launch that gave a number.

    ``seconds`` is the median of a step, ``sample_seconds`` the wall time of a timed sample, and
    ``startup_seconds`` that of all the rest. ``log_variance`` is that of the logarithms of its
    samples, from their quartiles, since spikes do not affect a median. For few samples, whose
    quartiles are too close together, it is the plain variance.
    """

    seconds: float
    log_variance: float
    samples: int
    sample_seconds: float
    startup_seconds: float
    warmup_samples: int = 0


def log_variance(steps: npt.NDArray[np.float64]) -> float:
    """Return the variance of the logarithms of a launch's samples, or 0 for a single sample."""
    logs = np.log(steps)
    if len(logs) <= 1:
        return 0.0
    if len(logs) <= _ENOUGH_SAMPLES:
        return float(np.var(logs, ddof=1))
    low, high = np.quantile(logs, [0.25, 0.75])
    return (float(high - low) / _QUARTILES_APART) ** 2


def launch_stats(record: Record) -> LaunchStats | None:
    """Return the statistics of a record that planning needs, or None if nothing was timed."""
    outcome = record.outcome
    if not outcome.samples_ns:
        return None
    steps = np.asarray(outcome.step_seconds())
    timed = sum(outcome.samples_ns) * 1e-9
    return LaunchStats(
        seconds=float(np.median(steps)),
        log_variance=log_variance(steps),
        samples=len(steps),
        sample_seconds=max(timed / len(steps), 1e-9),
        startup_seconds=max(record.wall_seconds - timed, 0.0),
        warmup_samples=len(outcome.warmup_ns),
    )


def spread_of(cells: Iterable[Sequence[LaunchStats]]) -> CommonSpread:
    """Return the spread that the cells with enough launches have in common."""
    variances = []
    freedoms = []
    for launches in cells:
        if len(launches) >= ENOUGH_LAUNCHES:
            variances.append(_own_variance(launches))
            freedoms.append(len(launches) - 1.0)
    return common_spread(variances, freedoms)


def half_width(
    launches: Sequence[LaunchStats], spread: CommonSpread = UNKNOWN_SPREAD
) -> float | None:
    """Return the relative half-width of the interval, or None with fewer than three launches."""
    if len(launches) < ENOUGH_LAUNCHES:
        return None
    variance, freedom = spread.shrink(_own_variance(launches), len(launches) - 1)
    return _relative_half(len(launches), variance, freedom)


def reached(
    launches: Sequence[LaunchStats], precision: float, spread: CommonSpread = UNKNOWN_SPREAD
) -> bool:
    """Return whether the interval is narrow enough, including the doubt about its own spread."""
    width = half_width(launches, spread)
    if width is None or width > precision:
        return False
    return _doubted_half(launches, len(launches), precision, spread) <= precision


def launches_needed(
    launches: Sequence[LaunchStats],
    precision: float,
    fewest: int,
    most: int,
    spread: CommonSpread = UNKNOWN_SPREAD,
) -> int:
    """Return how many more launches a cell is expected to need, 0 if it is done.

    It is assumed that they deviate as those so far did.
    """
    made = len(launches)
    if made >= fewest and (made >= most or reached(launches, precision, spread)):
        return 0
    for count in range(max(made + 1, fewest, ENOUGH_LAUNCHES), most):
        if _doubted_half(launches, count, precision, spread) <= precision:
            return count - made
    return most - made


def samples_of_launch(
    launches: Sequence[LaunchStats],
    fewest: int,
    most: int,
    searching: bool = False,
    spread: CommonSpread = UNKNOWN_SPREAD,
    alike: Sequence[LaunchStats] = (),
    enough: float = 0.0,
) -> int:
    """Return how many samples the next launch should time, between ``fewest`` and ``most``.

    n = sqrt((cost of a launch / cost of a sample) * (variance within / variance between launches)):
    Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time". The variance between
    launches is that of the log-medians less the part that the samples' own spread adds. Of too few
    launches it is the other cells', else `LEAST_DEVIATION`. Until the cell has samples enough, the
    launches of cells ``alike`` count too. Without any the result is ``fewest``, and two at least:
    one sample shows no spread. Samples never last longer than all the rest of a launch: that could
    save half of the launches at best. With ``searching`` for the end of warm-up the result includes
    as many samples as warm-up took so far, and at first those that a search needs. Launches that
    deviate by ``enough`` need not be longer.
    """
    informative = [launch for launch in launches if launch.samples > 1]
    if sum(launch.samples - 1 for launch in launches) < _ENOUGH_SAMPLES:
        informative += [launch for launch in alike if launch.samples > 1]
    if searching and (not informative or len(launches) < ENOUGH_LAUNCHES):
        return min(most, fewest + SEARCHABLE)
    if not informative:
        return min(most, max(fewest, 2))
    variances = []
    weights = []
    for launch in informative:
        variances.append(launch.log_variance)
        weights.append(launch.samples - 1)
    within = float(np.average(variances, weights=weights))
    between = _expected_variance(launches, spread)
    if len(launches) >= ENOUGH_LAUNCHES:
        between -= float(np.mean([_variance_of_median(within, launch) for launch in launches]))
    startups = []
    samples = []
    for launch in launches or alike:
        startups.append(launch.startup_seconds)
        samples.append(launch.sample_seconds)
    affordable = float(np.mean(startups)) / float(np.mean(samples))
    best = affordable
    if between > 0:
        best = min(affordable, math.sqrt(affordable * within / between))
    if enough and between < enough**2:
        best = min(best, _MEDIAN_VARIANCE * within / (enough**2 - between))
    least = fewest
    if searching:
        least += max(launch.warmup_samples for launch in launches)
    return min(most, max(least, math.ceil(best)))


def _variance_of_median(within: float, launch: LaunchStats) -> float:
    """Return the variance that samples with a variance ``within`` launches give their median."""
    factor = _MEDIAN_VARIANCE if launch.samples > 2 else 1
    return within * factor / launch.samples


def gain(
    launches: Sequence[LaunchStats],
    seconds: float,
    precision: float,
    spread: CommonSpread = UNKNOWN_SPREAD,
) -> float:
    """Return the half-width that one more launch is expected to take off, per second that it lasts.

    Below the precision nothing is gained. A first interval is worth more than anything else.
    """
    count = len(launches)
    seconds = max(seconds, 1e-9)
    if count < ENOUGH_LAUNCHES:
        return (1e6 + count) / seconds
    variance = _own_variance(launches)
    now = _relative_half(count, *spread.shrink(variance, count - 1))
    then = _relative_half(count + 1, *spread.shrink(variance, count))
    return (max(now, precision) - max(then, precision)) / seconds


def _own_variance(launches: Sequence[LaunchStats]) -> float:
    return statistics.variance(math.log(launch.seconds) for launch in launches)


def _expected_variance(launches: Sequence[LaunchStats], spread: CommonSpread) -> float:
    """Return the expected variance of a cell's launches.

    It combines its own and the other cells'. With few launches it is theirs, or assumed.
    """
    if len(launches) >= ENOUGH_LAUNCHES:
        return spread.shrink(_own_variance(launches), len(launches) - 1)[0]
    if spread.freedom:
        return spread.variance
    return LEAST_DEVIATION**2


def _doubted_half(
    launches: Sequence[LaunchStats], count: int, precision: float, spread: CommonSpread
) -> float:
    """Return the half-width after ``count`` launches that deviate as these did, with doubt."""
    if len(launches) >= ENOUGH_LAUNCHES:
        own = _own_variance(launches)
    else:
        own = _expected_variance(launches, spread)
    variance, freedom = spread.shrink(own, count - 1)
    doubt_freedom = 1 if spread.freedom else DOUBT_FREEDOM
    doubt = CommonSpread((DOUBT_DEVIATION * precision) ** 2, doubt_freedom)
    doubted, _ = doubt.shrink(variance, freedom)
    return _relative_half(count, max(variance, doubted), freedom)


def _relative_half(count: int, variance: float, freedom: float) -> float:
    return math.expm1(student_half(count, variance, freedom))


class Schedule:
    """The launches of one run so far, and those to come: blocks of one launch of each cell."""

    strict = False
    """Whether the run ends with the first launch that does not fit its budget."""

    def __init__(
        self,
        plan: Plan,
        records: Iterable[Record] = (),
        host: Host | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        """Take up the records so far. Without a ``grouping`` all launches are made in a row."""
        self.plan = plan
        self.host = host
        self._grouping = grouping
        self.count = 0
        """Number of records."""
        self.repeated = 0
        """Number of records that repeat a disturbed launch."""
        self._durations = LaunchDurations(plan)
        self._records: defaultdict[Cell, list[Record]] = defaultdict(list)
        self._records_of_any_threads: defaultdict[Cell, list[Record]] = defaultdict(list)
        """Records by `plan.any_threads` of their cells."""
        self._records_of_any_batch_size: defaultdict[Cell, list[Record]] = defaultdict(list)
        """Records by `plan.any_batch_size` of their cells."""
        self.stats: dict[Cell, tuple[LaunchStats, ...]] = {}
        """Statistics of the launches of each cell that gave a number."""
        self.spread = UNKNOWN_SPREAD
        """Spread of the launches before the block that is being made."""
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
        self._records[record.cell].append(record)
        self._records_of_any_threads[any_threads(record.cell)].append(record)
        self._records_of_any_batch_size[any_batch_size(record.cell)].append(record)
        self.count += 1
        self.repeated += record.attempt > 0
        if record.outcome.status is not Status.SKIPPED:
            self._durations.add(record.cell, record.wall_seconds)

    def _update(self, cell: Cell) -> None:
        counting = last_attempts(self._records[cell])
        self.stats[cell] = tuple(filter(None, map(launch_stats, counting)))
        self._left[cell] = self._needed(cell, counting)

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        statuses = [record.outcome.status for record in counting]
        if not set(statuses) <= set(_WORTH_REPEATING):
            return 0
        blocks = {record.launch for record in counting}
        missing = max(0, self.plan.launches - len(blocks))
        failed = statuses.count(Status.CRASHED) >= CRASHES or Status.PARITY_FAILED in statuses
        if self.plan.interval is None or failed:
            return missing  # a failed cell has no interval target
        stats = self.stats[cell]
        left = launches_needed(
            stats, self.plan.interval, self.plan.launches, self.plan.most, self.spread
        )
        return min(self.plan.most - len(counting), max(missing, left))

    def blocks(self) -> Iterator[int]:
        """Yield the indices of blocks while something may be needed."""
        return iter(range(self.plan.most))

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block, shuffled by the plan's seed.

        If ``seconds_left`` of a budget are too few for all, the launches that gain the most
        precision come first.
        """
        self._learn(block)
        launches = [launch for launch in self.plan.block(block) if self.wants(launch.cell, block)]
        # The first block's order serves the cells' budgets: see `Plan.block`.
        if self.plan.interval is not None and block and seconds_left is not None:
            self._sort_by_gain(launches, self.plan.interval, seconds_left)
        return self._grouped(launches)

    def _grouped(self, launches: Sequence[PlannedLaunch]) -> list[Group]:
        """Return the launches of a block in groups."""
        if self._grouping is None:
            return [(launch,) for launch in launches]
        peaks = {}
        seconds = {}
        for launch in launches:
            peaks[launch.cell] = self._peak(launch.cell)
            seconds[launch.cell] = self.seconds(launch.cell)
        return self._grouping.groups(launches, peaks, seconds)

    def _sort_by_gain(
        self, launches: list[PlannedLaunch], interval: float, seconds_left: float
    ) -> None:
        """Sort launches by the precision that they gain, if they do not all fit into this time."""
        seconds = {launch.cell: self.seconds(launch.cell) for launch in launches}
        if self.seconds_of(tuple(launches)) <= seconds_left:
            return

        def loss(launch: PlannedLaunch) -> float:
            cell = launch.cell
            return -gain(self.stats[cell], seconds[cell], interval, self.spread)

        launches.sort(key=loss)

    def _peak(self, cell: Cell) -> int:
        """Return the most bytes of its device that a launch of a cell needed.

        0 means that they are not known yet.
        """
        peaks = [0]
        for record in self._records[cell]:
            device = record.outcome.device
            if cell.on_cpu:
                peaks.append(record.outcome.peak_memory_bytes or 0)
            elif device is not None and device.peak_memory_bytes:
                peaks.append(device.peak_memory_bytes + CONTEXT_BYTES)
        return max(peaks)

    def _learn(self, block: int) -> None:
        """Take the spread from all launches before a block.

        A resumed run then decides as if it had never been interrupted.
        """
        if self.plan.interval is None:
            return
        cells = []
        for cell in self.plan.cells:
            before = [record for record in self._records[cell] if record.launch < block]
            launches = map(launch_stats, last_attempts(before))
            cells.append(list(filter(None, launches)))
        self.spread = spread_of(cells)
        for cell in self.plan.cells:
            self._update(cell)

    def wants(self, cell: Cell, block: int) -> bool:
        """Return whether a cell still needs its launch of a block, now that others have ended."""
        if self._left[cell] <= 0:
            return False
        return all(record.launch != block for record in self._records[cell])

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

    def seconds_of(self, launches: Group) -> float:
        """Return the expected seconds of a group of launches."""
        return sum(self.seconds(launch.cell) for launch in launches)

    def protocol(self, cell: Cell) -> Protocol:
        """Return how the next launch of a cell measures.

        If the plan has a precision to reach, this includes its number of samples.
        """
        protocol = self.plan.protocol_of(cell)
        if self.plan.interval is None:
            return protocol
        searching = protocol.maximum_warmup_steps > 0
        launches = self.stats[cell]
        alike = self._alike(cell)
        steps = samples_of_launch(
            launches, protocol.minimum_steps, protocol.steps, searching, self.spread, alike
        )
        longest = max((launch.sample_seconds for launch in launches or alike), default=0.0)
        return protocol._replace(steps=steps, seconds=max(protocol.seconds, steps * longest))

    def _alike(self, cell: Cell) -> list[LaunchStats]:
        """Return the launches that are most like a cell's.

        They are those of its row and network, else those of its network, else all.
        """
        row = any_threads(cell)
        row_launches: list[LaunchStats] = []
        network_launches: list[LaunchStats] = []
        all_launches: list[LaunchStats] = []
        for other, launches in self.stats.items():
            if any_threads(other) == row:
                row_launches += launches
            if other.network == cell.network:
                network_launches += launches
            all_launches += launches
        return row_launches or network_launches or all_launches

    def skip_reason(self, cell: Cell) -> str:
        """Return why a cell is not worth starting, judged by similar cells, or an empty string."""
        out_of_memory = []
        for record in self._records_of_any_batch_size[any_batch_size(cell)]:
            if record.outcome.status is Status.OUT_OF_MEMORY and cell.batch_size is not None:
                out_of_memory.append(record.cell.known_batch_size)
        if out_of_memory and not self.stats[cell] and min(out_of_memory) < cell.known_batch_size:
            return f"mini-batch {min(out_of_memory)} ran out of memory already"
        of_any_threads = self._records_of_any_threads[any_threads(cell)]
        given = [record for record in of_any_threads if record.cell.threads]
        first = min(given, key=lambda record: record.cell.threads, default=None)
        if first is None or first.cell.threads >= cell.threads:
            return ""
        limit = self.plan.cell_seconds
        threads = counted(first.cell.threads, "thread")
        if first.outcome.status is Status.TIMED_OUT:
            return f"at {threads} it did not end within the cell's budget of {limit:g} s"
        if first.outcome.samples_ns:
            step = median(first.outcome.step_seconds())
            if step > limit:
                return f"one step takes {step:.3g} s at {threads}, the cell's budget is {limit:g} s"
        return ""

    def most_attempts(self) -> int:
        """Return how often the next launch may be attempted."""
        if self.repeated < _REPEATS + _REPEATS_SHARE * self.count:
            return MOST_ATTEMPTS
        return 1


class ContestSchedule(Schedule):
    """Launches of each cell, then only of the columns whose fastest cell is not known yet.

    Cells far behind (`FAR_BEHIND`) get no more. Of cells that take turns, those that are clearly
    slower get no more either: a change of the machine's speed reaches all members of a group alike.
    The comparisons are those of `dlbench report fastest`. A comparison ends early if it is decided
    at `EARLY_CONFIDENCE`, so that all early looks together add little to the error of the report,
    or if deciding it would need more launches than the plan allows. Comparisons that the report
    does not decide yet come first, and among them those that need the fewest launches: a budget
    then decides as many as it can.
    """

    def __init__(
        self,
        plan: Plan,
        records: Iterable[Record] = (),
        host: Host | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        self._in_turns = frozenset[Cell]()
        enough = ENOUGH_LAUNCHES
        if grouping is not None and grouping.cells:
            self._in_turns = frozenset(axes.without(cell) for cell in grouping.cells)
            # The cells of a group show together how launches deviate, so that two of each are
            # enough for a first look.
            enough = 2
        self._looks = list(_looks(max(plan.launches, enough), plan.most))
        self._blocks = range(0)
        """Blocks in which contenders are launched: from the last look to the next."""
        self._contenders: dict[Cell, tuple[bool, int]] = {}
        """Whether the report decides already, and the launches that would, by contender.

        They are cells without the folders of their adapters, as in a matrix."""
        super().__init__(plan, records, host, grouping)

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        needed = super()._needed(cell, counting)
        if axes.without(cell) not in self._contenders:
            return needed
        made = sum(record.launch in self._blocks for record in counting)
        return max(needed, len(self._blocks) - made)

    def _learn(self, block: int) -> None:
        """Take the rivals in comparisons that the launches before a look leave open."""
        if block not in self._looks:
            return
        following = next((look for look in self._looks if look > block), block)
        self._blocks = range(block, following)
        decided = set()
        for leader in self.leaders(block, CONFIDENCE).rows:
            if leader.outcome in (CLEAR, TIE):
                decided.add((leader.first.work, leader.first.column))
        compared = self.leaders(block, EARLY_CONFIDENCE)
        self._contenders = {}
        for leader in compared.rows:
            if leader.launches is None or leader.launches > self.plan.most:
                continue
            work_and_column = leader.first.work, leader.first.column
            for rival in compared.matrix.cells.values():
                if (rival.work, rival.column) == work_and_column and self._contends(rival, leader):
                    self._contenders[rival.cell] = work_and_column in decided, leader.launches
        for cell in self.plan.cells:
            self._update(cell)

    def _contends(self, rival: CellResult, leader: Leader) -> bool:
        """Return whether a cell of a leader's column gets further launches."""
        if rival.timed is None or leader.first.timed is None:
            return False
        behind = ratio(rival.timed, leader.first.timed, EARLY_CONFIDENCE).low
        farthest = 1.0 if rival.cell in self._in_turns else FAR_BEHIND
        return behind is None or behind <= farthest

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block, first those of the comparisons easiest to decide."""

        def difficulty(group: Group) -> tuple[bool, int]:
            return self._contenders.get(axes.without(group[0].cell), (False, 0))

        return sorted(super().wanted(block, seconds_left), key=difficulty)

    def leaders(self, block: int, confidence: float = CONFIDENCE) -> Compared[Leader]:
        """Return the fastest cell of each column by the launches before a block."""
        records: list[Record] = []
        for cell in self.plan.cells:
            records += [record for record in self._records[cell] if record.launch < block]
        hosts = {}
        if self.host is not None:
            hosts[self.host.fingerprint] = self.host
        return fastest(build_matrix(Results(tuple(records), hosts)), confidence)


def schedule_for(
    plan: Plan,
    records: Iterable[Record] = (),
    host: Host | None = None,
    grouping: Grouping | None = None,
) -> Schedule:
    """Return the schedule of a suite's plan."""
    if plan.decides:
        return ContestSchedule(plan, records, host, grouping)
    return Schedule(plan, records, host, grouping)


PairRule = Callable[[Sequence[Record], Mapping[str, Spreads]], int]
"""Returns how many more pairs a cell with these records needs at most, or 0 when it is done.

The spreads, by the quantity that is judged, are those of all cells that are measured together.
"""


class PairSchedule(Schedule):
    """Pairs of launches, one of each side, until a rule wants no more.

    A pair times as many samples as the suite says, which suits the intervals of a matrix, and more
    if that pays by the noise within the cell's launches so far (`samples_of_launch`).
    """

    strict = True

    def __init__(
        self,
        plan: Plan,
        records: Iterable[Record],
        rule: PairRule,
        grouping: Grouping | None = None,
        host: Host | None = None,
        judged: Sequence[str] = (TIME,),
    ) -> None:
        """Take up the records so far.

        Without a ``grouping`` the launches of all pairs are made in a row. ``judged`` are the
        quantities that the rule judges.
        """
        self._rule = rule
        self._judged = judged
        self._spreads: dict[str, Spreads] = {}
        """Spreads of the pairs before the block that is being made, by quantity."""
        self._in_turns = frozenset[Cell]()
        if grouping is not None:
            self._in_turns = grouping.cells
        super().__init__(replace(plan, interval=None), records, host)
        self._learn(0)

    def _update(self, cell: Cell) -> None:
        self._left[cell] = 2 * self._rule(self._records[cell], self._spreads)

    def _learn(self, block: int) -> None:
        """Take the spreads of all cells: with them, fewer pairs decide on each."""
        records = itertools.chain.from_iterable(self._records[cell] for cell in self.plan.cells)
        self._spreads = spreads_of_gate(records, self.host, self._judged)
        for cell in self.plan.cells:
            self._update(cell)

    def blocks(self) -> Iterator[int]:
        for block in itertools.count():
            if not any(self._left.values()):
                return
            yield block

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return a pair for each cell that needs one, shuffled.

        The order of its sides is drawn by the seed.
        """
        self._learn(block)
        pairs = []
        for cell, left in self._left.items():
            if not left:
                continue
            index = pairs_begun(self._records[cell])
            sides = [BASELINE, CANDIDATE]
            random.Random(f"{self.plan.seed}:{index}:{cell!r}").shuffle(sides)
            in_turns = cell in self._in_turns
            pairs.append(tuple(PlannedLaunch(cell, index, side, in_turns) for side in sides))
        indices = [pair[0].index for pair in pairs]
        random.Random(f"{self.plan.seed}:{indices}").shuffle(pairs)
        return pairs

    def wants(self, cell: Cell, block: int) -> bool:
        return self._left[cell] > 0

    def protocol(self, cell: Cell) -> Protocol:
        """Return how both launches of the next pair measure, from the whole pairs before it.

        Only the distance between the sides of a pair counts, never which one is slower: a gate
        treats the signs of identical code's pairs as fair coins, so nothing may depend on them.
        """
        protocol = self.plan.protocol_of(cell)
        launches: list[LaunchStats] = []
        for pair in complete_pairs(self._records[cell]):
            first, second = map(launch_stats, pair)
            if first is not None and second is not None:
                # Two launches differ by sqrt(2) times what each deviates by.
                apart = math.exp(abs(math.log(first.seconds / second.seconds)) / math.sqrt(2))
                launches += [replace(first, seconds=apart), replace(second, seconds=1 / apart)]
        if len(launches) < ENOUGH_LAUNCHES:
            return protocol
        samples = []
        startup = 0.0
        for launch in launches:
            samples.append(launch.sample_seconds)
            startup = max(startup, launch.startup_seconds)
        sample = statistics.fmean(samples)
        # A launch must stay far from the time at which it is ended.
        allowed = self.plan.cell_seconds / 2 - startup
        most = min(LONGER * protocol.steps, int(allowed / sample))
        steps = samples_of_launch(
            launches, protocol.minimum_steps, most, enough=DECISIVE / math.sqrt(2)
        )
        return protocol._replace(
            steps=max(protocol.steps, steps), seconds=max(protocol.seconds, steps * sample)
        )

    def skip_reason(self, cell: Cell) -> str:
        return ""  # each side of each cell is tried

    def most_attempts(self) -> int:
        return MOST_ATTEMPTS


def _looks(first: int, last: int) -> Iterator[int]:
    """Yield the numbers of launches or pairs after which to look.

    The first one may exceed the last.
    """
    yield first
    while first < last:
        first = min(last, math.ceil(LOOKS_APART * first))
        yield first


def given_up(records: Sequence[Record]) -> bool:
    """Return whether a side would end the same way again."""
    for side in (BASELINE, CANDIDATE):
        statuses = [record.outcome.status for record in records if record.side == side]
        by_chance = sum(map(statuses.count, ONCE_BY_CHANCE))
        if by_chance >= CRASHES or statuses.count(Status.OK) + by_chance < len(statuses):
            return True
    return False


def different(records: Sequence[Record], rule: Rule) -> LossDifference | None:
    """Return how the sides' computations differ, or None until enough pairs show it.

    Where they differ, their times are of no interest.
    """
    if len(complete_pairs(records)) < ENOUGH_LOSSES:
        return None
    return other_work(records, rule)


def pairs_begun(records: Iterable[Record]) -> int:
    """Return how many pairs were begun, which is the index of the next one."""
    return 1 + max((record.launch for record in records), default=-1)


def gate_rule(host: Host, rule: Rule = DEFAULT) -> PairRule:
    """Return the rule of a gate: pairs until a look decides, or until too many were disturbed."""
    # Pairs that any cell may have. A suspect cell may have more.
    at_ease = next(look.pairs for look in rule.looks if look.suspect < 1)

    def pairs_needed(records: Sequence[Record], spreads: Mapping[str, Spreads]) -> int:
        if given_up(records) or different(records, rule):
            return 0
        needed = 0
        for quantity in rule.judged:
            levels = rule.of_quantity(quantity)
            (baseline, candidate), _ = pairs_of(records, host, quantity)
            if complete_pairs(records) and not baseline and not is_of_clock(quantity):
                continue  # it is not measured
            tails = tails_of_quantity(records, host, quantity)
            spread = spreads.get(quantity, NO_SPREADS)
            if deciding_look(baseline, candidate, levels, tails, spread) is not None:
                continue
            wanted = next_look(len(baseline), levels).pairs
            if pairs_begun(records) < int((1 + rule.spare) * max(wanted, at_ease)):
                needed = max(needed, wanted - len(baseline))
        return needed

    return pairs_needed


def comparison_rule(
    host: Host, cells: int, fewest: int, most: int, width: float, rule: Rule = DEFAULT
) -> PairRule:
    """Return the rule of a comparison of cells: pairs until the ratio's interval is narrow enough.

    ``width`` is the half-width of the interval relative to the ratio, of the first quantity that is
    judged. The rule stops on precision, never on a p-value, and not before there are enough pairs
    to prove a slowdown at all (`verdict.fewest_pairs`).
    """
    looks = list(_looks(max(fewest, fewest_pairs(cells, rule)), most))

    def pairs_needed(records: Sequence[Record], spreads: Mapping[str, Spreads]) -> int:
        (baseline, candidate), _ = pairs_of(records, host, rule.judged[0])
        made = len(baseline)
        spent = made >= looks[-1] or pairs_begun(records) >= int((1 + rule.spare) * looks[-1])
        if spent or given_up(records) or different(records, rule):
            return 0
        reached = 0
        following = looks[-1]
        for look in looks:
            if look > made:
                following = look
                break
            reached = look
        needed = 0.0
        if reached:
            estimate = estimate_pairs(baseline[:reached], candidate[:reached], rule.confidence)
            if estimate.low is None or estimate.high is None:
                half = math.inf
            else:
                half = (estimate.high - estimate.low) / (2 * estimate.value)
            if half <= width:
                return 0
            needed = min(made * (half / width) ** 2, looks[-1])
        return max(following, int(needed)) - made

    return pairs_needed

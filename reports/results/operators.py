"""Operators that account for the difference between two sides of a step, by profiled launches.

The launches of a pair time some steps, then run some under the framework's own profiler, in parts
that take turns (`suites.run.profiling`). Only the differences within pairs count, since the
machine's speed changes between them. An operator is named if its difference repeats over the pairs:
it is `CLEAR` standard errors from zero, at least `LEAST_OF_STEP`, and accounts for `LEAST_SHARE` of
the difference between the steps; where these do not differ, it is called more or less often. Pairs
are few, so the deviation that they show is averaged with `USUAL_DEVIATION`, which counts as much as
`USUAL_FREEDOM` degrees of freedom.

Where operators have other names on the two sides, as a compiler's fusions have, their kinds are
compared.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from dlbench.adapters.libraries.profiles import PYTHON_PROFILER
from dlbench.adapters.protocol import Cell, Operator, Profile
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.memory_evidence import faults_per_step
from dlbench.reports.results.number_text import number, percent
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record
from dlbench.reports.results.safe_text import one_line

FEWEST = 2
"""Profiled launches of each side."""
MOST = 4
"""The same while nothing is named."""
CLEAR = 5.0
"""Standard errors from zero at which an operator's difference counts. In identical code an operator
of 100 is beyond that by chance in about one comparison of a thousand, at six degrees of freedom."""
STEP_CLEAR = 3.0
"""The same for the whole step."""
LEAST_SHARE = 0.1
"""Of the difference between the steps, from which an operator is named."""
LEAST_OF_STEP = 0.01
"""The same of a step."""
EXPLAINED = 0.5
"""Operators that account for less of the difference leave it open."""
USUAL_DEVIATION = 0.04
"""Of an operator's seconds, between the launches of a pair of identical code. Products of PyTorch
deviated by 2 to 4 %, with parts that take turns and room in the heap for the profiler's notes."""
DEVIATION_OF_STEP = 0.025
"""The same of a whole step's seconds."""
LEAST_DEVIATION = 0.006
"""Of any operator, as a share of the step."""
USUAL_FREEDOM = 4
_SIDES = (BASELINE, CANDIDATE)
OUTSIDE = "outside operators"
"""The framework's own work between its operators, and waiting."""
_MOST_NAMED = 3
Spent = dict[tuple[str, str], tuple[float, float]]
"""Seconds and calls of a step, by name and kind of an operator."""
NOTHING_SPENT = (0.0, 0.0)
_CALLS = 0.05
"""Of a step: a smaller difference is one of rounding."""
_NOTABLE = 1.1
"""How many times as much of something a side has, so that it is worth mentioning."""


@dataclass(frozen=True)
class OperatorDifference:
    """One operator, or one kind of operators, on both sides."""

    name: str
    kind: str
    baseline: float
    """Seconds of a step, the mean over the launches; 0 where the side does not have it."""
    candidate: float
    baseline_calls: float
    """In a step; 0 of the time outside operators."""
    candidate_calls: float
    share: float
    """Of the difference between the profiled steps: negative where it goes the other way."""
    errors: float
    """Standard errors by which the sides differ; positive where the candidate's is longer."""
    named: bool
    """Whether it accounts for a part of the difference that repeats."""

    @property
    def difference(self) -> float:
        """Seconds by which a step of the candidate spends longer in it."""
        return self.candidate - self.baseline


@dataclass(frozen=True)
class StepDifference:
    """The profiled steps of one cell on both sides."""

    cell: Cell
    profiler: str = ""
    steps: int = 0
    """In each launch."""
    launches: int = 0
    """Of each side."""
    baseline: float = 0.0
    """Seconds of a profiled step, the mean over the launches."""
    candidate: float = 0.0
    timed: tuple[float, float] | None = None
    """Median seconds of a step without the profiler on each side."""
    differs: bool = False
    """Whether the profiled steps differ by more than launches of identical code do."""
    operators: tuple[OperatorDifference, ...] = ()
    """Those with the largest differences first, the time outside operators among them."""
    kinds: tuple[OperatorDifference, ...] = ()
    circumstances: tuple[str, ...] = ()
    """Other differences between the launches of the two sides."""
    problem: str = ""
    """Why the sides cannot be compared; empty where they can."""

    @property
    def named(self) -> tuple[OperatorDifference, ...]:
        """The operators that account for the difference, or else their kinds."""
        operators = tuple(operator for operator in self.operators if operator.named)
        return operators or tuple(kind for kind in self.kinds if kind.named)

    @property
    def explained(self) -> float:
        """The share of the difference that those account for."""
        return sum(difference.share for difference in self.named)

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.problem:
            return f"No operator can be named: {self.problem}."
        if self.profiler.startswith(PYTHON_PROFILER):
            return f"No framework's profiler explains the step. By Python's own: {self._result}"
        return self._result

    @property
    def _result(self) -> str:
        named = self.named
        shown = named[:_MOST_NAMED]
        if not named:
            if self.differs:
                return "No operator's difference repeats over the launches."
            return (
                "Under the profiler neither the step nor any of its operators differs between the "
                "two sides."
            )
        if not self.differs:
            words = ", ".join(_describe(difference) for difference in shown)
            return f"The step does not clearly differ under the profiler, but this does: {words}."
        if all(difference.name == OUTSIDE for difference in named):
            return f"The difference lies outside operators: {_describe_with_share(named[0])}."
        words = ", ".join(_describe_with_share(difference) for difference in shown)
        if len(named) > len(shown):
            words += f" and {len(named) - len(shown)} more"
        if len(named) == 1:
            return f"The difference lies in {words}."
        share = _share(self.explained)
        return (
            f"The difference lies in {words}. Together they account for {share} of the difference."
        )


def _share(share: float) -> str:
    return "all" if 0.95 <= share <= 1.05 else percent(round(share, 2))


def _describe(difference: OperatorDifference, share: str = "") -> str:
    """Return an operator with its times, its calls where they differ, and its share."""
    before = number(difference.baseline * 1e3)
    after = number(difference.candidate * 1e3)
    if difference.baseline == 0:
        times = f"{after} ms a step, not in the baseline"
    elif difference.candidate == 0:
        times = f"{before} ms a step, not in the candidate"
    else:
        times = f"{before} -> {after} ms a step"
    calls = ""
    if difference.baseline and difference.candidate and calls_differ(difference):
        calls_before = count_of_calls(difference.baseline_calls)
        calls_after = count_of_calls(difference.candidate_calls)
        calls = f", {calls_before} -> {calls_after} calls"
    return f"{one_line(difference.name, 60)} ({times}{calls}{share})"


def _describe_with_share(difference: OperatorDifference) -> str:
    return _describe(difference, f", {_share(difference.share)} of the difference")


def calls_differ(difference: OperatorDifference) -> bool:
    """Tell whether the sides call an operator a different number of times."""
    return abs(difference.baseline_calls - difference.candidate_calls) >= _CALLS


def count_of_calls(calls: float) -> str:
    """Return the text of a mean number of calls."""
    return f"{calls:.0f}" if abs(calls - round(calls)) < 0.05 else f"{calls:.1f}"


def step_differences(records: Sequence[Record]) -> tuple[StepDifference, ...]:
    """Return the difference of each cell with profiled launches, in the order of profiling."""
    by_cell = grouped(records, lambda record: record.cell)
    return tuple(step_difference(cell, launches) for cell, launches in by_cell.items())


def step_difference(cell: Cell, records: Sequence[Record]) -> StepDifference:
    """Return how the profiled steps of a cell's two sides differ."""
    outcomes: dict[str, dict[int, Outcome]] = {side: {} for side in _SIDES}
    for record in records:
        if record.side in outcomes:
            outcomes[record.side][record.launch] = record.outcome
    for side in _SIDES:
        launches = list(outcomes[side].values())
        if not any(outcome.profile for outcome in launches):
            return StepDifference(cell, problem=_why_without_profile(side, launches))
    baseline = []
    candidate = []
    for launch, before in outcomes[BASELINE].items():
        after = outcomes[CANDIDATE].get(launch)
        if before.profile and after is not None and after.profile:
            baseline.append(before)
            candidate.append(after)
    return compare_profiled(cell, baseline, candidate)


def _why_without_profile(side: str, outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return f"the {side} was not profiled"
    last = outcomes[-1]
    failed = last.software.get("profile_failed")
    if failed:
        return f"the profiler of the {side} failed: {failed}"
    return last.reason or f"the framework of the {side} has no profiler for this cell"


def _profile(outcome: Outcome) -> Profile:
    assert outcome.profile is not None
    return outcome.profile


def compare_profiled(
    cell: Cell, baseline: Sequence[Outcome], candidate: Sequence[Outcome]
) -> StepDifference:
    """Return the difference by profiled outcomes: those of the same index are a pair."""
    if not baseline:
        return StepDifference(cell, problem="no pair of launches was profiled on both sides")
    before = [_profile(outcome) for outcome in baseline]
    after = [_profile(outcome) for outcome in candidate]
    newest = after[-1]
    profiler_before = before[-1].profiler
    if profiler_before != newest.profiler:
        words = f"the baseline has {profiler_before}, the candidate {newest.profiler}"
        return StepDifference(cell, problem=f"the sides have different profilers: {words}")
    steps_before = [profile.step_seconds for profile in before]
    steps_after = [profile.step_seconds for profile in after]
    step = fmean(steps_before)
    differs = abs(_errors(steps_before, steps_after, DEVIATION_OF_STEP * step)) >= STEP_CLEAR
    whole = fmean(steps_after) - step if differs else None
    timed_before = _timed(baseline)
    timed_after = _timed(candidate)
    timed = None
    if timed_before is not None and timed_after is not None:
        timed = timed_before, timed_after
    return StepDifference(
        cell,
        profiler=newest.profiler,
        steps=newest.steps,
        launches=len(before),
        baseline=step,
        candidate=fmean(steps_after),
        timed=timed,
        differs=differs,
        operators=_differences(cell, before, after, _by_operator, whole),
        kinds=_differences(cell, before, after, _by_kind, whole),
        circumstances=_circumstances(baseline, candidate),
    )


def _differences(
    cell: Cell,
    baseline: Sequence[Profile],
    candidate: Sequence[Profile],
    spent_in: Callable[[Profile, Cell], Spent],
    whole: float | None,
) -> tuple[OperatorDifference, ...]:
    """Return the difference of each operator or kind, the largest first.

    ``spent_in`` returns the time that a launch spent in each of them. ``whole`` is the difference
    of the steps; None where they do not differ.
    """
    launches_before = [spent_in(profile, cell) for profile in baseline]
    launches_after = [spent_in(profile, cell) for profile in candidate]
    keys: dict[tuple[str, str], None] = {}
    for launch in (*launches_before, *launches_after):
        keys.update(dict.fromkeys(launch))
    step = fmean(map(_seconds_spent, launches_before))
    differences = []
    for key in keys:
        before = [launch.get(key, NOTHING_SPENT) for launch in launches_before]
        after = [launch.get(key, NOTHING_SPENT) for launch in launches_after]
        differences.append(_difference(key, before, after, step, whole))
    differences.sort(key=_largest_first)
    return tuple(differences)


def _seconds_spent(launch: Spent) -> float:
    return sum(seconds for seconds, _ in launch.values())


def _largest_first(difference: OperatorDifference) -> tuple[float, str]:
    return -abs(difference.difference), difference.name


def _difference(
    key: tuple[str, str],
    before: Sequence[tuple[float, float]],
    after: Sequence[tuple[float, float]],
    step: float,
    whole: float | None,
) -> OperatorDifference:
    """Return the difference of one operator or kind, by the seconds and calls of each launch."""
    seconds_before, counts_before = zip(*before, strict=True)
    seconds_after, counts_after = zip(*after, strict=True)
    mean_before = fmean(seconds_before)
    mean_after = fmean(seconds_after)
    difference = mean_after - mean_before
    deviation = max(USUAL_DEVIATION * max(mean_before, mean_after), LEAST_DEVIATION * step)
    errors = _errors(seconds_before, seconds_after, deviation)
    clear = abs(errors) >= CLEAR and abs(difference) >= LEAST_OF_STEP * step
    calls_before = fmean(counts_before)
    calls_after = fmean(counts_after)
    share = difference / whole if whole else 0.0
    accounts = share >= LEAST_SHARE
    if whole is None:
        # Where the steps do not differ, another number of calls is needed too: times alone may be
        # chance.
        accounts = abs(calls_after - calls_before) >= _CALLS
    return OperatorDifference(
        name=key[0],
        kind=key[1],
        baseline=mean_before,
        candidate=mean_after,
        baseline_calls=calls_before,
        candidate_calls=calls_after,
        share=share,
        errors=errors,
        named=clear and accounts,
    )


def _timed(outcomes: Sequence[Outcome]) -> float | None:
    """Return the median over launches of a step's median seconds; None where none was timed."""
    medians = []
    for outcome in outcomes:
        seconds = outcome.median_seconds()
        if seconds is not None:
            medians.append(seconds)
    return median(medians) if medians else None


def _by_operator(profile: Profile, cell: Cell) -> Spent:
    """Return the seconds and calls of a step in each operator, and outside operators."""
    spent: Spent = {}
    for operator in _operators(profile, cell):
        spent[operator.name, operator.kind] = operator.seconds, operator.calls
    outside = max(0.0, profile.step_seconds - _seconds_spent(spent))
    spent[OUTSIDE, OUTSIDE] = outside, 0.0
    return spent


def _by_kind(profile: Profile, cell: Cell) -> Spent:
    spent: Spent = {}
    for operator in _operators(profile, cell):
        key = operator.kind, operator.kind
        seconds, calls = spent.get(key, NOTHING_SPENT)
        spent[key] = seconds + operator.seconds, calls + operator.calls
    return spent


def _operators(profile: Profile, cell: Cell) -> list[Operator]:
    """Return the operators of the cell's CPU or GPU.

    A GPU's kernels do not include the CPU's work to start them.
    """
    return [operator for operator in profile.operators if operator.on_device is not cell.on_cpu]


def _errors(baseline: Sequence[float], candidate: Sequence[float], deviation: float) -> float:
    """Return by how many standard errors the candidate's values exceed the baseline's.

    Values of the same index are a pair. ``deviation`` is that of their difference in identical
    code.
    """
    differences = [after - before for before, after in zip(baseline, candidate, strict=True)]
    freedom = len(differences) - 1
    own = variance(differences) if freedom else 0.0
    pooled = (freedom * own + USUAL_FREEDOM * deviation**2) / (freedom + USUAL_FREEDOM)
    if pooled <= 0:
        return 0.0
    return fmean(differences) / math.sqrt(pooled / len(differences))


def _circumstances(baseline: Sequence[Outcome], candidate: Sequence[Outcome]) -> tuple[str, ...]:
    """Return a line for everything else in which the timed steps of the sides clearly differ."""
    lines = []
    for name, value_of, least in _COUNTED:
        before = [value for value in map(value_of, baseline) if value is not None]
        after = [value for value in map(value_of, candidate) if value is not None]
        if not before or not after:
            continue
        mean_before = fmean(before)
        mean_after = fmean(after)
        lower, higher = sorted((before, after), key=fmean)
        apart = min(higher) > _NOTABLE * max(lower)
        if apart and abs(mean_after - mean_before) >= least:
            lines.append(
                f"{name} a step: {number(mean_before)} in the baseline, {number(mean_after)}."
            )
    return tuple(lines)


def _cpu_milliseconds(outcome: Outcome) -> float | None:
    if outcome.threads is None:
        return None
    return 1e3 * outcome.threads.cpu_seconds / max(1, outcome.observed_steps())


def _switches(outcome: Outcome) -> float | None:
    counts = outcome.sample_counts
    if counts is None or not counts.voluntary_switches:
        return None
    return sum(counts.voluntary_switches) / outcome.timed_steps()


_COUNTED: tuple[tuple[str, Callable[[Outcome], float | None], float], ...] = (
    ("page faults", faults_per_step, 10.0),
    ("waits of threads for one another", _switches, 10.0),
    ("milliseconds of CPU time", _cpu_milliseconds, 0.0),
)
"""Name, value and the difference in a step that is worth mentioning: not a few faults or waits."""

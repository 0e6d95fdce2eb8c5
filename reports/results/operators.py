"""Which operators account for the difference between two sides of a step, from profiled launches of
both.

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
from dlbench.adapters.protocol import Cell, Operator, Outcome, Profile
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.memory_evidence import faults_per_step
from dlbench.reports.results.number_text import number, percent
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record
from dlbench.reports.results.safe_text import one_line

FEWEST, MOST = 2, 4
"""Profiled launches of each side: more than the fewest while nothing is named."""
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
USUAL_DEVIATION, DEVIATION_OF_STEP = 0.04, 0.025
"""Of an operator's seconds, and of a whole step's, of one launch of a pair of identical code from
the other. Products of PyTorch deviated by 2 to 4 %, with parts that take turns and room in the heap
for what the profiler notes."""
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
    """What else differs between the launches of the two sides."""
    problem: str = ""
    """Why the sides cannot be compared; empty where they can."""

    @property
    def named(self) -> tuple[OperatorDifference, ...]:
        """The operators that account for the difference, or their kinds where no single operator
        does.
        """
        operators = tuple(each for each in self.operators if each.named)
        return operators or tuple(each for each in self.kinds if each.named)

    @property
    def explained(self) -> float:
        """The share of the difference that those account for."""
        return sum(each.share for each in self.named)

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.problem:
            return f"No operator can be named: {self.problem}."
        if self.profiler.startswith(PYTHON_PROFILER):
            return f"No framework's profiler explains the step. By Python's own: {self._found}"
        return self._found

    @property
    def _found(self) -> str:
        named = self.named
        if not named and not self.differs:
            return (
                "Under the profiler neither the step nor any of its operators differs between the "
                "two sides."
            )
        if not named:
            return "No operator's difference repeats over the launches."
        if not self.differs:
            alone = ", ".join(_in_words(each, of_whole=False) for each in named[:_MOST_NAMED])
            return f"The step does not clearly differ under the profiler, but this does: {alone}."
        inside = [each for each in named if each.name != OUTSIDE]
        words = [_in_words(each) for each in named[:_MOST_NAMED]]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        if not inside:
            return f"The difference lies outside operators: {_in_words(named[0])}."
        rest = (
            f" Together they account for {_share(self.explained)} of the difference."
            if len(named) > 1
            else ""
        )
        return f"The difference lies in {', '.join(words)}{more}.{rest}"


def _share(share: float) -> str:
    return "all" if 0.95 <= share <= 1.05 else percent(round(share, 2))


def _in_words(each: OperatorDifference, of_whole: bool = True) -> str:
    times = f"{number(each.baseline * 1e3)} -> {number(each.candidate * 1e3)} ms a step"
    if each.baseline == 0:
        times = f"{number(each.candidate * 1e3)} ms a step, not in the baseline"
    elif each.candidate == 0:
        times = f"{number(each.baseline * 1e3)} ms a step, not in the candidate"
    calls = ""
    if each.baseline and each.candidate and calls_differ(each):
        calls = (
            f", {count_of_calls(each.baseline_calls)} -> {count_of_calls(each.candidate_calls)} "
            "calls"
        )
    share = f", {_share(each.share)} of the difference" if of_whole else ""
    return f"{one_line(each.name, 60)} ({times}{calls}{share})"


def calls_differ(each: OperatorDifference) -> bool:
    """Tell whether the sides call an operator a different number of times."""
    return abs(each.baseline_calls - each.candidate_calls) >= _CALLS


def count_of_calls(calls: float) -> str:
    """Return the text of a mean number of calls."""
    return f"{calls:.0f}" if abs(calls - round(calls)) < 0.05 else f"{calls:.1f}"


def step_differences(records: Sequence[Record]) -> tuple[StepDifference, ...]:
    """Return the difference of each cell that has profiled launches, in the order in which they
    were profiled.
    """
    found = []
    for cell, of_cell in grouped(records, lambda record: record.cell).items():
        found.append(step_difference(cell, of_cell))
    return tuple(found)


def step_difference(cell: Cell, records: Sequence[Record]) -> StepDifference:
    """Return how the profiled steps of a cell's two sides differ."""
    outcomes = {
        side: {each.launch: each.outcome for each in records if each.side == side}
        for side in _SIDES
    }
    profiled = {
        side: [number for number, each in of_side.items() if each.profile]
        for side, of_side in outcomes.items()
    }
    for side in _SIDES:
        if not profiled[side]:
            return StepDifference(
                cell, problem=_why_without_profile(side, list(outcomes[side].values()))
            )
    pairs = [
        (outcomes[BASELINE][number], outcomes[CANDIDATE][number])
        for number in profiled[BASELINE]
        if number in profiled[CANDIDATE]
    ]
    if not pairs:
        return StepDifference(cell, problem="no pair of launches was profiled on both sides")
    profilers = [_profile(each).profiler for each in pairs[-1]]
    if profilers[0] != profilers[1]:
        words = f"the baseline has {profilers[0]}, the candidate {profilers[1]}"
        return StepDifference(cell, problem=f"the sides have different profilers: {words}")
    return _compared(cell, [before for before, _ in pairs], [after for _, after in pairs])


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


def _compared(
    cell: Cell, baseline: Sequence[Outcome], candidate: Sequence[Outcome]
) -> StepDifference:
    """Return the difference by the outcomes of pairs, the i-th of one side beside the i-th of the
    other.
    """
    before, after = [_profile(each) for each in baseline], [_profile(each) for each in candidate]
    steps_before, steps_after = (
        [each.step_seconds for each in before],
        [each.step_seconds for each in after],
    )
    step = fmean(steps_before)
    differs = abs(_errors(steps_before, steps_after, DEVIATION_OF_STEP * step)) >= STEP_CLEAR
    whole = fmean(steps_after) - step if differs else None
    timed_before, timed_after = _timed(baseline), _timed(candidate)
    return StepDifference(
        cell,
        after[-1].profiler,
        after[-1].steps,
        len(before),
        step,
        fmean(steps_after),
        None if timed_before is None or timed_after is None else (timed_before, timed_after),
        differs,
        _differences(
            [_by_operator(each, cell) for each in before],
            [_by_operator(each, cell) for each in after],
            whole,
        ),
        _differences(
            [_by_kind(each, cell) for each in before],
            [_by_kind(each, cell) for each in after],
            whole,
        ),
        _circumstances(baseline, candidate),
    )


def _differences(
    baseline: Sequence[Spent], candidate: Sequence[Spent], whole: float | None
) -> tuple[OperatorDifference, ...]:
    """Return the difference of each operator or kind, by what each launch spent in it.

    ``whole`` is the difference of the steps; None where they do not differ.
    """
    step = fmean(sum(seconds for seconds, _ in launch.values()) for launch in baseline)
    found = []
    for key in dict.fromkeys(key for launch in (*baseline, *candidate) for key in launch):
        before = [launch.get(key, NOTHING_SPENT) for launch in baseline]
        after = [launch.get(key, NOTHING_SPENT) for launch in candidate]
        seconds_before, seconds_after = (
            [seconds for seconds, _ in before],
            [seconds for seconds, _ in after],
        )
        difference = fmean(seconds_after) - fmean(seconds_before)
        own = USUAL_DEVIATION * max(fmean(seconds_before), fmean(seconds_after))
        errors = _errors(seconds_before, seconds_after, max(own, LEAST_DEVIATION * step))
        share = difference / whole if whole else 0.0
        clear = abs(errors) >= CLEAR and abs(difference) >= LEAST_OF_STEP * step
        calls_before, calls_after = (
            fmean(calls for _, calls in before),
            fmean(calls for _, calls in after),
        )
        # Where the steps do not differ, another number of calls is needed too: times alone may be
        # chance.
        part = abs(calls_after - calls_before) >= _CALLS if whole is None else share >= LEAST_SHARE
        found.append(
            OperatorDifference(
                name=key[0],
                kind=key[1],
                baseline=fmean(seconds_before),
                candidate=fmean(seconds_after),
                baseline_calls=calls_before,
                candidate_calls=calls_after,
                share=share,
                errors=errors,
                named=clear and part,
            )
        )
    return tuple(sorted(found, key=lambda each: (-abs(each.difference), each.name)))


def _timed(outcomes: Sequence[Outcome]) -> float | None:
    """Return the median over launches of a step's median seconds; None where none was timed."""
    known = [seconds for each in outcomes if (seconds := each.median_seconds()) is not None]
    return median(known) if known else None


def _by_operator(profile: Profile, cell: Cell) -> Spent:
    """Return what a step spends in each operator, and outside operators."""
    found: Spent = {}
    for operator in _of_device(profile, cell):
        found[operator.name, operator.kind] = operator.seconds, operator.calls
    busy = sum(seconds for seconds, _ in found.values())
    found[OUTSIDE, OUTSIDE] = max(0.0, profile.step_seconds - busy), 0.0
    return found


def _by_kind(profile: Profile, cell: Cell) -> Spent:
    found: Spent = {}
    for operator in _of_device(profile, cell):
        seconds, calls = found.get((operator.kind, operator.kind), NOTHING_SPENT)
        found[operator.kind, operator.kind] = seconds + operator.seconds, calls + operator.calls
    return found


def _of_device(profile: Profile, cell: Cell) -> list[Operator]:
    """Return the operators of the cell's CPU or GPU; a GPU's kernels do not include the CPU's work
    to start them.
    """
    return [operator for operator in profile.operators if operator.on_device is not cell.on_cpu]


def _errors(baseline: Sequence[float], candidate: Sequence[float], usual: float) -> float:
    """Return by how many standard errors the candidate's values are larger than the baseline's
    beside them.

    ``usual`` is the deviation of such a difference in identical code.
    """
    differences = [after - before for before, after in zip(baseline, candidate, strict=True)]
    freedom = len(differences) - 1
    own = variance(differences) if freedom else 0.0
    of_pair = (freedom * own + USUAL_FREEDOM * usual**2) / (freedom + USUAL_FREEDOM)
    return fmean(differences) / math.sqrt(of_pair / len(differences)) if of_pair > 0 else 0.0


def _circumstances(baseline: Sequence[Outcome], candidate: Sequence[Outcome]) -> tuple[str, ...]:
    """Return a line for everything but operators in which the timed steps of the two sides clearly
    differ.
    """
    lines = []
    for what, of in _COUNTED:
        before = [value for each in baseline if (value := of(each)) is not None]
        after = [value for each in candidate if (value := of(each)) is not None]
        if not before or not after:
            continue
        lower, higher = sorted((before, after), key=fmean)
        if min(higher) > _NOTABLE * max(lower) and fmean(higher) - fmean(lower) >= _least_of(what):
            lines.append(
                f"{what} a step: {number(fmean(before))} in the baseline, {number(fmean(after))}."
            )
    return tuple(lines)


def _cpu_seconds(outcome: Outcome) -> float | None:
    threads = outcome.threads
    return None if threads is None else 1e3 * threads.cpu_seconds / max(1, outcome.observed_steps())


def _switches(outcome: Outcome) -> float | None:
    counts = outcome.sample_counts
    if counts is None or not counts.voluntary_switches:
        return None
    return sum(counts.voluntary_switches) / outcome.timed_steps()


_COUNTED: tuple[tuple[str, Callable[[Outcome], float | None]], ...] = (
    ("page faults", faults_per_step),
    ("waits of threads for one another", _switches),
    ("milliseconds of CPU time", _cpu_seconds),
)


def _least_of(what: str) -> float:
    """Return the difference in a step that is worth mentioning: a few faults or waits are not."""
    return 0.0 if "CPU" in what else 10.0

"""What a claim comes down to: figures, where the claim has each of them, and what noise leaves of that.

A figure is mostly a ratio of two times. The claim has it above a bound, below one, or between two, and may say how
large it is. The answer, with the ratio's interval adjusted for the number of tests in the report (Holm):

- reproduces: the interval lies wholly where the claim has it, and the figure is within `SIZE` times the claim's;
- reproduces in direction: the same, but the claim says another size;
- differs: the interval lies wholly on the other side of a bound;
- cannot be told: a bound lies within the interval;
- not measured: there is no figure.

A ratio of times must differ from 1 by `contrasts.WORSE`, where 1 is the bound: a smaller difference is none worth a
word. A published value has no interval, and decides alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from dlbench.adapters.protocol import Status
from dlbench.reports.cells import CellResult
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.flags import Flag
from dlbench.reports.statistics import WORSE, Ratio, Summary, Verdict, holm, judge, ratio, welch

SIZE = 2.0
"""A figure is as large as claimed within this factor."""
MAJORITY = 0.8
"""This share of the answers decides a claim about several figures."""
FACT = "a fact, no ratio"
"""The method of a figure that is 1 where something is so, and 0 where it is not."""


class Answer(Enum):
    """What the evidence says of a figure, and of a claim."""

    REPRODUCES = "reproduces"
    IN_DIRECTION = "reproduces in direction"
    PARTLY = "partly"
    DIFFERS = "differs"
    CANNOT_BE_TOLD = "cannot be told"
    NOT_MEASURED = "not measured"


HOLDS = (Answer.REPRODUCES, Answer.IN_DIRECTION)


@dataclass(frozen=True)
class Claimed:
    """Where a claim has a figure."""

    least: float | None = None
    """It is more than this."""
    most: float | None = None
    """It is less than this."""
    size: float | None = None
    """It is about this."""

    @property
    def words(self) -> str:
        """As in "above 2, about 12"."""
        ends = [("above", self.least), ("below", self.most), ("about", self.size)]
        return ", ".join(f"{word} {end:.4g}" for word, end in ends if end is not None)


MORE, LESS = Claimed(least=1.0), Claimed(most=1.0)


@dataclass(frozen=True)
class Question:
    """One figure, and where a claim has it."""

    what: str
    """In words: "caffe fcn5, 8 threads / 4"."""
    claimed: Claimed
    found: Ratio | None
    """None: not measured."""
    times: tuple[Summary, Summary] | None = None
    """What it is the ratio of, where it is one."""
    missing: str = ""
    """Why there is no figure."""
    flags: tuple[Flag, ...] = ()
    """What the evidence of its cells says against taking them at face value."""


def of_times(what: str, over: CellResult | None, under: CellResult | None, claimed: Claimed) -> Question:
    """Return the question whether the ratio of these cells' times is where a claim has it."""
    one, other = usable(over), usable(under)
    if one is None or other is None:
        lacking = [("first", over)] * (one is None) + [("second", under)] * (other is None)
        missing = [f"the {which}: {why_missing(cell)}" for which, cell in lacking]
        same = len(lacking) == 2 and why_missing(over) == why_missing(under)
        return Question(what, claimed, None, missing=why_missing(over) if same else "; ".join(missing))
    flags = {flag.kind: flag for cell in (over, under) if cell is not None for flag in cell.flags}
    return Question(what, claimed, ratio(one, other), (one, other), flags=tuple(flags.values()))


def of_value(what: str, value: float, claimed: Claimed, method: str = "of published values") -> Question:
    """Return the question whether a value without an interval is where a claim has it."""
    return Question(what, claimed, Ratio(value, None, None, method))


def of_fact(what: str, so: bool | None, missing: str = "not measured") -> Question:
    """Return the question whether something is so; None: not measured."""
    found = None if so is None else Ratio(float(so), None, None, FACT)
    return Question(what, Claimed(least=0.5), found, missing=missing if so is None else "")


def usable(cell: CellResult | None) -> Summary | None:
    """Return a cell's time where it is one of the right mathematics."""
    return None if cell is None or computes_nothing(cell) else cell.timed


def why_missing(cell: CellResult | None) -> str:
    """Return why a cell has no time that can be used."""
    if cell is None:
        return "not measured"
    status = "no number that can be used" if cell.status is Status.OK else cell.status.value.replace("_", " ")
    return f"{status}, {cell.reason}" if cell.reason else status


def answers(questions: Sequence[Question]) -> list[Answer]:
    """Answer the questions of one report, in their order."""
    tests = [(number, bound) for number, each in enumerate(questions) for bound in _bounds(each)]
    p_values = {test: p for test in tests if (p := _p_value(questions[test[0]], test[1])) is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [
        _answer(each, {bound: adjusted.get((number, bound)) for bound in _bounds(each)})
        for number, each in enumerate(questions)
    ]


def verdict(found: Sequence[Answer]) -> Answer:
    """Return the verdict of a claim: the answer of a large majority of its figures, else partly."""
    told = [each for each in found if each is not Answer.NOT_MEASURED]
    if not told:
        return Answer.NOT_MEASURED
    wanted = ((Answer.REPRODUCES,), HOLDS, (Answer.DIFFERS,), (Answer.CANNOT_BE_TOLD,))
    for kinds in wanted:
        if sum(each in kinds for each in told) / len(told) >= MAJORITY:
            return kinds[-1]
    return Answer.PARTLY


def _bounds(question: Question) -> list[float]:
    return [bound for bound in (question.claimed.least, question.claimed.most) if bound is not None]


def _p_value(question: Question, bound: float) -> float | None:
    """Return the p-value of the ratio being the bound; None where there can be none."""
    if question.times is None:
        return None
    over, under = question.times
    return welch(replace(over, launch_medians=tuple(each / bound for each in over.launch_medians)), under)


def _answer(question: Question, p_values: dict[float, float | None]) -> Answer:
    found, claimed = question.found, question.claimed
    if found is None:
        return Answer.NOT_MEASURED
    sides = []
    for bound, right, wrong in ((claimed.least, "worse", "better"), (claimed.most, "better", "worse")):
        if bound is not None:
            side = _side(question, found, bound, p_values[bound])
            sides.append(Answer.REPRODUCES if side == right else Answer.DIFFERS if side == wrong else None)
    if Answer.DIFFERS in sides:
        return Answer.DIFFERS
    if None in sides:
        return Answer.CANNOT_BE_TOLD
    as_large = claimed.size is None or claimed.size / SIZE <= found.value <= claimed.size * SIZE
    return Answer.REPRODUCES if as_large else Answer.IN_DIRECTION


def _side(question: Question, found: Ratio, bound: float, p_value: float | None) -> Verdict:
    """Say whether a figure is clearly above a bound ("worse", as of times), below it, or neither."""
    if question.times is None:
        return "worse" if found.value > bound else "better" if found.value < bound else "no clear difference"
    return judge(found.changed(lambda value: value / bound), p_value, WORSE if bound == 1.0 else 1.0)

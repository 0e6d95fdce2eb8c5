"""Claims, their evidence, and verdicts: on their paper's own numbers, and on the user's results.

A verdict follows from the answers to a claim's figures. The ratios' intervals are adjusted for the
number of tests in the report (Holm); otherwise one claim in twenty would fail by chance. A ratio of
times must differ from 1 by `statistics.WORSE` if 1 is the bound. A published value has no interval,
so its value decides.
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib import resources

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as validated

from dlbench.reports.claims.figures import Figure, Question, Tables
from dlbench.reports.curve.training import Losses
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.published import TABLES, study
from dlbench.reports.results.statistics import WORSE, Ratio, Verdict, holm, judge, welch

PAPERS = {
    "shi2016": "Shi, Wang, Xu, Chu 2016",
    "brandfonbrener2017": "Brandfonbrener 2017",
    "gurari2021": "Gurari 2021",
    "wuensche2018": "Wuensche 2018",
    "slides": "Slides on simulating recurrent networks",
}
"""The papers by the names that --paper takes."""
OWN = "own"
"""Stands where the paper's name does in a user's claim."""
SIZE = 2.0
"""A figure is as large as claimed within this factor."""
MAJORITY = 0.8
"""This share of the answers decides a claim about several figures."""


class Answer(Enum):
    """The answer to a figure, and the verdict on a claim."""

    REPRODUCES = "reproduces"
    """The interval lies within the bounds, and the figure is of the claimed size."""
    IN_DIRECTION = "reproduces in direction"
    """The same, but of another size."""
    PARTLY = "partly"
    DIFFERS = "differs"
    """The interval lies beyond a bound."""
    INCONCLUSIVE = "inconclusive"
    """A bound lies within the interval."""
    NOT_MEASURED = "not measured"


HOLDS = (Answer.REPRODUCES, Answer.IN_DIRECTION)


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Claim:
    """One claim."""

    id: str
    paper: str
    where: str
    """Section, table or figure."""
    words: str
    figures: tuple[Figure, ...] = ()
    """Evaluated on the user's results; empty if dlbench measures nothing that bears on the
    claim."""
    figures_on_paper: tuple[Figure, ...] = ()
    """Evaluated on the paper's numbers, if they differ from `figures`."""
    published: str = ""
    """The paper's table on which figures are evaluated."""
    on_machines: tuple[str, ...] = ()
    """The machines of that table that the claim is about; empty: all."""
    no_numbers: str = ""
    """The paper's substitute for numbers: "text only", "image only"."""
    needs: str = ""
    """The cells to measure; shown where there are none."""
    measure: str = ""
    """The command that measures it; empty where dlbench cannot."""
    cores: int = 0
    """Physical cores that a machine must have for it."""
    gpus: int = 0
    """GPUs that it must have ..."""
    gpu: str = ""
    """... with names that match this pattern."""

    @property
    def machine(self) -> str:
        """The machine that it requires: "4 cores, a GPU"."""
        gpus = {0: "", 1: "a GPU"}.get(self.gpus, f"{self.gpus} GPUs")
        named = f"{gpus} ({self.gpu.replace('|', ', ')})" if self.gpu else gpus
        return ", ".join(filter(None, (f"{self.cores} cores" if self.cores else "", named)))

    def can_be_on(self, cores: int, gpus: Iterable[str]) -> bool:
        """Tell whether it can be tried on a machine with this many cores and these GPUs."""
        return (
            cores >= self.cores
            and sum(bool(re.search(self.gpu, name)) for name in gpus) >= self.gpus
        )


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return all claims of papers, in their order."""
    text = (
        resources.files("dlbench.reports").joinpath("data/claims.toml").read_text(encoding="utf-8")
    )
    return tuple(Claim(**each) for each in tomllib.loads(text)["claim"])


@dataclass(frozen=True)
class Evidence:
    """The verdict on a claim: how many figures are as claimed (``holds``) of those measured
    (``of``), and all.
    """

    verdict: Answer
    holds: int
    of: int
    figures: tuple[tuple[Question, Answer], ...]
    note: str = ""
    """Why there is no figure at all."""

    @property
    def missing(self) -> tuple[Question, ...]:
        """The figures that were not measured."""
        return tuple(question for question, answer in self.figures if answer is Answer.NOT_MEASURED)


@dataclass(frozen=True)
class Tried:
    """A claim with its verdicts."""

    claim: Claim
    on_paper: Evidence | None
    """None: there is no paper."""
    here: Evidence


@dataclass(frozen=True)
class Claims:
    """The report."""

    tried: tuple[Tried, ...]
    notes: tuple[str, ...]
    reference: str = ""
    """The published table that was tried instead of the user's results."""


def try_claims(claims: Sequence[Claim], tables: Tables, reference: str = "") -> Claims:
    """Try these claims on tables of the user's results, or of the published table named
    ``reference``.
    """
    asked = [ask(each.figures, tables) for each in claims]
    here = iter(answers([question for questions in asked for question in questions]))
    tried = []
    for claim, questions in zip(claims, asked, strict=True):
        found = evidence([(question, next(here)) for question in questions])
        tried.append(Tried(claim, None if claim.paper == OWN else on_paper(claim), found))
    return Claims(tuple(tried), tables.matrix.notes, reference)


def ask(figures: Iterable[Figure], tables: Tables) -> list[Question]:
    """Return the questions that these figures come down to."""
    return [question for figure in figures for question in figure.questions(tables)]


def of_losses(name: str, losses: Losses) -> list[Question]:
    """Return the questions of a claim about losses, by its id."""
    claim = next(each for each in claims() if each.id == name)
    return ask(claim.figures, Tables(Matrix(), lambda cell: cell.row.framework, losses=losses))


def on_paper(claim: Claim) -> Evidence:
    """Try a claim on its paper's own numbers."""
    if any(claim is known for known in claims()):
        return _on_paper_by_id(claim.id)
    return _on_paper(claim)


@functools.cache
def _on_paper_by_id(name: str) -> Evidence:
    """Try one of `claims` once: every page of a site has the same evidence."""
    return _on_paper(next(claim for claim in claims() if claim.id == name))


def _on_paper(claim: Claim) -> Evidence:
    figures = claim.figures_on_paper or (claim.figures if claim.published else ())
    questions = ask(figures, _published(claim.published, frozenset(claim.on_machines)))
    return evidence(zip(questions, answers(questions), strict=True), claim.no_numbers)


@functools.cache
def _published(table: str, machines: frozenset[str]) -> Tables:
    found = study(table).matrix() if table in TABLES else Matrix()
    if machines:
        kept = {key: cell for key, cell in found.cells.items() if cell.column.machine in machines}
        found = replace(found, cells=kept)
    return Tables(found, lambda cell: cell.row.framework)


def evidence(figures: Iterable[tuple[Question, Answer]], note: str = "") -> Evidence:
    """Return the evidence of one claim from its answers."""
    found = tuple(figures)
    known = [answer for _, answer in found if answer is not Answer.NOT_MEASURED]
    return Evidence(
        verdict(known), sum(answer in HOLDS for answer in known), len(known), found, note
    )


def verdict(known: Sequence[Answer]) -> Answer:
    """Return the verdict of a claim: the answer of a large majority of its figures, else partly."""
    if not known:
        return Answer.NOT_MEASURED
    for kinds in ((Answer.REPRODUCES,), HOLDS, (Answer.DIFFERS,), (Answer.INCONCLUSIVE,)):
        if sum(each in kinds for each in known) / len(known) >= MAJORITY:
            return kinds[-1]
    return Answer.PARTLY


def answers(questions: Sequence[Question]) -> list[Answer]:
    """Answer the questions of one report, in their order."""
    p_values = {}
    for number, each in enumerate(questions):
        if each.times is None:
            continue
        over, under = each.times
        for bound in _bounds(each):
            # The p-value of the ratio being the bound.
            p = welch(over, under, bound)
            if p is not None:
                p_values[number, bound] = p
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [
        _answer(each, {bound: adjusted.get((number, bound)) for bound in _bounds(each)})
        for number, each in enumerate(questions)
    ]


def _bounds(question: Question) -> list[float]:
    return [bound for bound in (question.claimed.least, question.claimed.most) if bound is not None]


def _answer(question: Question, p_values: dict[float, float | None]) -> Answer:
    found, claimed = question.found, question.claimed
    if found is None:
        return Answer.NOT_MEASURED
    sides = []
    for bound, right, wrong in (
        (claimed.least, "worse", "better"),
        (claimed.most, "better", "worse"),
    ):
        if bound is not None:
            side = _side(question, found, bound, p_values[bound])
            sides.append(
                Answer.REPRODUCES if side == right else Answer.DIFFERS if side == wrong else None
            )
    if Answer.DIFFERS in sides:
        return Answer.DIFFERS
    if None in sides:
        return Answer.INCONCLUSIVE
    as_large = claimed.size is None or claimed.size / SIZE <= found.value <= claimed.size * SIZE
    return Answer.REPRODUCES if as_large else Answer.IN_DIRECTION


def _side(question: Question, found: Ratio, bound: float, p_value: float | None) -> Verdict:
    """Say whether a figure is clearly above a bound ("worse", as of times), below it, or
    neither.
    """
    if question.times is None:
        return (
            "worse"
            if found.value > bound
            else "better"
            if found.value < bound
            else "no clear difference"
        )
    return judge(
        found.changed(lambda value: value / bound), p_value, WORSE if bound == 1.0 else 1.0
    )

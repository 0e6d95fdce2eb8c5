"""Claims, their evidence, and verdicts: on their paper's own numbers, and on the user's results.

A verdict follows from the answers to a claim's figures. The ratios' intervals are adjusted for the
number of tests in the report (Holm); otherwise one claim in twenty would fail by chance. A ratio of
times must differ from 1 by `statistics.WORSE` if 1 is the bound. A published value has no interval,
so its value decides.
"""

import functools
import itertools
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
from dlbench.reports.results.published_matrix import published_matrix
from dlbench.reports.results.statistics import (
    WORSE,
    Estimate,
    RatioVerdict,
    holm,
    judge_ratio,
    welch,
)

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


class ClaimVerdict(Enum):
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


HOLDS = (ClaimVerdict.REPRODUCES, ClaimVerdict.IN_DIRECTION)


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Claim:
    """One claim."""

    id: str
    paper: str
    where: str
    """Section, table or figure."""
    words: str
    figures: tuple[Figure, ...] = ()
    """Evaluated on the user's results. Empty: dlbench measures nothing about the claim."""
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
        cores = f"{self.cores} cores" if self.cores else ""
        gpus = ""
        if self.gpus == 1:
            gpus = "a GPU"
        elif self.gpus:
            gpus = f"{self.gpus} GPUs"
        if self.gpu:
            gpus += f" ({self.gpu.replace('|', ', ')})"
        return ", ".join(filter(None, (cores, gpus)))

    def can_be_on(self, cores: int, gpus: Iterable[str]) -> bool:
        """Tell whether it can be tried on a machine with this many cores and these GPUs."""
        matching_gpus = [name for name in gpus if re.search(self.gpu, name)]
        return cores >= self.cores and len(matching_gpus) >= self.gpus


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return all claims of papers, in their order."""
    path = resources.files("dlbench.reports") / "data/claims.toml"
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(Claim(**fields) for fields in data["claim"])


@dataclass(frozen=True)
class Evidence:
    """The verdict on a claim, with its figures."""

    verdict: ClaimVerdict
    holds: int
    """Figures that are as claimed."""
    of: int
    """Figures that were measured."""
    figures: tuple[tuple[Question, ClaimVerdict], ...]
    note: str = ""
    """Why there is no figure at all."""

    @property
    def missing(self) -> tuple[Question, ...]:
        """The figures that were not measured."""
        questions = []
        for question, answer in self.figures:
            if answer is ClaimVerdict.NOT_MEASURED:
                questions.append(question)
        return tuple(questions)


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
    """Try these claims on the user's results, or on the published table named ``reference``."""
    all_questions = []
    counts = []
    for claim in claims:
        questions = ask(claim.figures, tables)
        all_questions += questions
        counts.append(len(questions))
    # The answers depend on the number of tests in the report, so all questions are asked at once.
    answered = iter(zip(all_questions, answers(all_questions), strict=True))
    tried = []
    for claim, count in zip(claims, counts, strict=True):
        evidence_here = evidence(itertools.islice(answered, count))
        evidence_on_paper = None if claim.paper == OWN else on_paper(claim)
        tried.append(Tried(claim, evidence_on_paper, evidence_here))
    return Claims(tuple(tried), tables.matrix.notes, reference)


def ask(figures: Iterable[Figure], tables: Tables) -> list[Question]:
    """Return the questions of these figures about the tables."""
    questions: list[Question] = []
    for figure in figures:
        questions += figure.questions(tables)
    return questions


def loss_questions(name: str, losses: Losses) -> list[Question]:
    """Return the questions of a claim about losses, by its id."""
    tables = Tables(Matrix(), lambda cell: cell.row.framework, losses=losses)
    return ask(_claim_by_id(name).figures, tables)


def _claim_by_id(name: str) -> Claim:
    return next(claim for claim in claims() if claim.id == name)


def on_paper(claim: Claim) -> Evidence:
    """Try a claim on its paper's own numbers."""
    if any(claim is published for published in claims()):
        return _try_published(claim.id)
    return _try_on_paper(claim)


@functools.cache
def _try_published(name: str) -> Evidence:
    """Try one of `claims` once: every page of a site has the same evidence."""
    return _try_on_paper(_claim_by_id(name))


def _try_on_paper(claim: Claim) -> Evidence:
    figures = claim.figures_on_paper
    if not figures and claim.published:
        figures = claim.figures
    questions = ask(figures, _published(claim.published, frozenset(claim.on_machines)))
    return evidence(zip(questions, answers(questions), strict=True), claim.no_numbers)


@functools.cache
def _published(table: str, machines: frozenset[str]) -> Tables:
    matrix = Matrix()
    if table in TABLES:
        matrix = published_matrix(study(table))
    if machines:
        cells = {}
        for key, cell in matrix.cells.items():
            if cell.column.machine in machines:
                cells[key] = cell
        matrix = replace(matrix, cells=cells)
    return Tables(matrix, lambda cell: cell.row.framework)


def evidence(figures: Iterable[tuple[Question, ClaimVerdict]], note: str = "") -> Evidence:
    """Return the evidence of one claim from its answers."""
    figures = tuple(figures)
    measured = [answer for _, answer in figures if answer is not ClaimVerdict.NOT_MEASURED]
    holds = sum(answer in HOLDS for answer in measured)
    return Evidence(verdict(measured), holds, len(measured), figures, note)


def verdict(measured: Sequence[ClaimVerdict]) -> ClaimVerdict:
    """Return the verdict of a claim: the answer of a large majority of its figures, else partly."""
    if not measured:
        return ClaimVerdict.NOT_MEASURED
    for kinds in (
        (ClaimVerdict.REPRODUCES,),
        HOLDS,
        (ClaimVerdict.DIFFERS,),
        (ClaimVerdict.INCONCLUSIVE,),
    ):
        count = sum(answer in kinds for answer in measured)
        if count / len(measured) >= MAJORITY:
            return kinds[-1]
    return ClaimVerdict.PARTLY


def answers(questions: Sequence[Question]) -> list[ClaimVerdict]:
    """Answer the questions of one report, in their order."""
    p_values = {}
    for index, question in enumerate(questions):
        if question.times is None:
            continue
        over, under = question.times
        for bound in _bounds(question):
            # The p-value of the ratio being the bound.
            p_value = welch(over, under, bound)
            if p_value is not None:
                p_values[index, bound] = p_value
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    all_answers = []
    for index, question in enumerate(questions):
        p_by_bound = {bound: adjusted.get((index, bound)) for bound in _bounds(question)}
        all_answers.append(_answer(question, p_by_bound))
    return all_answers


def _bounds(question: Question) -> list[float]:
    return [bound for bound in (question.claimed.least, question.claimed.most) if bound is not None]


def _answer(question: Question, p_values: dict[float, float | None]) -> ClaimVerdict:
    """Return the answer to a question, with the adjusted p-values of its bounds."""
    ratio = question.found
    claimed = question.claimed
    if ratio is None:
        return ClaimVerdict.NOT_MEASURED
    is_unclear = False
    for bound, is_least in ((claimed.least, True), (claimed.most, False)):
        if bound is None:
            continue
        is_above = _is_above(question, ratio, bound, p_values[bound])
        if is_above is None:
            is_unclear = True
        elif is_above != is_least:
            return ClaimVerdict.DIFFERS
    if is_unclear:
        return ClaimVerdict.INCONCLUSIVE
    as_large = claimed.size is None or claimed.size / SIZE <= ratio.value <= claimed.size * SIZE
    if as_large:
        return ClaimVerdict.REPRODUCES
    return ClaimVerdict.IN_DIRECTION


def _is_above(
    question: Question, ratio: Estimate, bound: float, p_value: float | None
) -> bool | None:
    """Return whether a figure is clearly above a bound, or clearly below; None where neither."""
    if question.times is None:
        if ratio.value == bound:
            return None
        return ratio.value > bound
    over_bound = ratio.changed(lambda value: value / bound)
    threshold = WORSE if bound == 1.0 else 1.0
    verdict = judge_ratio(over_bound, p_value, threshold)
    if not verdict.clear:
        return None
    return verdict is RatioVerdict.SLOWER

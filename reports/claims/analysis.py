"""Every claim tried twice: on its paper's own numbers, and on one's own results.

Pure functions. The tests on one's own results are adjusted for their number over the whole report (Holm), so that one
claim in twenty does not fail by chance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlbench.reports.claims.cells import Cells
from dlbench.reports.claims.claim import OWN, Claim
from dlbench.reports.claims.questions import HOLDS, Answer, Question, answers, verdict


@dataclass(frozen=True)
class Evidence:
    """What a claim's figures say of it."""

    verdict: Answer
    holds: int
    """Figures that are where the claim has them."""
    of: int
    """Figures that there are."""
    figures: tuple[tuple[Question, Answer], ...]
    """All of them, those that are missing too."""
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
    """The published table that was tried instead of one's own results."""


def try_claims(claims: Sequence[Claim], cells: Cells, reference: str = "") -> Claims:
    """Try these claims on the cells, of stores or of the published table named ``reference``."""
    asked = [tuple(each.test(cells)) if each.test is not None else () for each in claims]
    here = iter(answers([question for questions in asked for question in questions]))
    tried = []
    for claim, questions in zip(claims, asked, strict=True):
        found = evidence([(question, next(here)) for question in questions])
        tried.append(Tried(claim, None if claim.paper == OWN else on_paper(claim), found))
    return Claims(tuple(tried), cells.matrix.notes, reference)


def on_paper(claim: Claim) -> Evidence:
    """Try a claim on its paper's own numbers."""
    questions = tuple(claim.on_paper()) if claim.on_paper is not None else ()
    return evidence(zip(questions, answers(questions), strict=True), claim.no_numbers)


def evidence(figures: Iterable[tuple[Question, Answer]], note: str = "") -> Evidence:
    """Bring the figures of one claim together."""
    found = tuple(figures)
    told = [answer for _, answer in found if answer is not Answer.NOT_MEASURED]
    holds = sum(answer in HOLDS for answer in told)
    return Evidence(verdict([answer for _, answer in found]), holds, len(told), found, note)

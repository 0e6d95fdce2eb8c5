"""A claim of a paper: its words, and the tests that it comes down to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dlbench.reports.claims.cells import Cells
from dlbench.reports.claims.questions import Question

OWN = "own"
"""Stands where the paper's name does in a claim of one's own."""
Test = Callable[[Cells], Iterable[Question]]


@dataclass(frozen=True)
class Claim:
    """One claim."""

    id: str
    paper: str
    where: str
    """Section, table or figure."""
    words: str
    test: Test | None = None
    """Of one's own results; None where nothing that dlbench measures tells."""
    on_paper: Callable[[], Iterable[Question]] | None = None
    """Of the paper's own numbers; None where it prints none."""
    no_numbers: str = ""
    """What the paper has instead of numbers: "text only", "image only"."""
    needs: str = ""
    """What must be measured; shown where nothing was."""
    measure: str = ""
    """The command that measures it; empty where dlbench cannot."""

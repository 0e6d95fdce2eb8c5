"""A claim of a paper: its words, and the tests that it comes down to."""

import re
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
    cores: int = 0
    """Physical cores that a machine must have for it."""
    gpus: int = 0
    """GPUs that it must have ..."""
    gpu: str = ""
    """... whose names match this pattern."""

    @property
    def machine(self) -> str:
        """What a machine must have for it, in words: "4 cores, a GPU"."""
        gpus = {0: "", 1: "a GPU"}.get(self.gpus, f"{self.gpus} GPUs")
        named = f"{gpus} ({self.gpu.replace('|', ', ')})" if self.gpu else gpus
        return ", ".join(filter(None, (f"{self.cores} cores" if self.cores else "", named)))

    def can_be_on(self, cores: int, gpus: Iterable[str]) -> bool:
        """Tell whether it can be tried on a machine with so many cores and these GPUs."""
        return cores >= self.cores and sum(bool(re.search(self.gpu, name)) for name in gpus) >= self.gpus

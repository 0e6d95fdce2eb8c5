"""Comparisons as annotations of a GitHub Actions workflow: one workflow command a line.

GitHub shows them on the summary of a run, and beside the lines of a pull request that changes the
file that they name. Syntax and escapes are those of GitHub's "Workflow commands for GitHub
Actions".
"""

from collections.abc import Iterable
from typing import Literal

from dlbench.reports.compare.report import (
    WORDS,
    gate_outcome,
    headline,
    is_beyond_both,
    ratio_of_cell,
    sentence_of,
)
from dlbench.reports.results.comparison import CellComparison, Comparison
from dlbench.reports.results.safe_text import one_line
from dlbench.reports.results.verdict import Verdict

Level = Literal["error", "warning", "notice"]
MOST = 10
"""Annotations of each level: GitHub shows no more of one step."""
_LEVELS: dict[Verdict, Level] = {
    Verdict.REGRESSION: "error",
    Verdict.BROKEN: "error",
    Verdict.DIFFERENT: "error",
    Verdict.INCONCLUSIVE: "warning",
    Verdict.CONTENDED: "warning",
    Verdict.HOLE: "warning",
    Verdict.IMPROVEMENT: "notice",
}
"""Cells of other verdicts have no annotation."""
_LEVEL_OF_OUTCOME: dict[str, Level] = {
    "failed": "error",
    "undecided": "warning",
    "passed": "notice",
}


def annotation(level: Level, title: str, message: str, file: str = "") -> str:
    """Return one workflow command."""
    properties = []
    for key, value in {"file": file, "title": title}.items():
        if value:
            escaped = _message(value).replace(":", "%3A").replace(",", "%2C")
            properties.append(f"{key}={escaped}")
    return f"::{level} {','.join(properties)}::{_message(message)}"


def _message(text: str) -> str:
    return one_line(text).replace("%", "%25")


def comparison_to_github(comparison: Comparison) -> str:
    """Return the outcome and the notable cells of a comparison, the gravest first."""
    lines = [_outcome(comparison)]
    by_level: dict[Level, list[str]] = {"error": [], "warning": [], "notice": []}
    for verdict, level in _LEVELS.items():
        for cell in comparison.having(verdict):
            if not is_beyond_both(cell):
                by_level[level].append(_of_cell(comparison, cell, level))
    for level, annotations in by_level.items():
        lines += _most(level, annotations)
    return "\n".join(lines)


def _outcome(comparison: Comparison) -> str:
    """Return the annotation of the comparison as a whole."""
    outcome = gate_outcome(comparison)
    line = outcome.line if comparison.purpose == "gate" else headline(comparison)
    level = _LEVEL_OF_OUTCOME[outcome.outcome]
    return annotation(level, f"dlbench {comparison.purpose}", line)


def _of_cell(comparison: Comparison, cell: CellComparison, level: Level) -> str:
    sentences = []
    if cell.judgement.ratio is not None:
        sentences.append(f"Candidate / baseline {ratio_of_cell(cell)}.")
    sentences.append(f"{sentence_of(cell)}.")
    for difference in comparison.operators:
        if difference.cell == cell.cell:
            sentences.append(difference.sentence)
    file = comparison.files.get(cell.cell.framework, "")
    title = f"{cell.name}: {WORDS[cell.verdict].word}"
    return annotation(level, title, " ".join(sentences), file)


def _most(level: Level, annotations: Iterable[str]) -> list[str]:
    """Return as many annotations as GitHub shows beside that of the outcome.

    The last one counts those that are left out.
    """
    lines = list(annotations)
    room = MOST - 1
    if len(lines) <= room:
        return lines
    left = len(lines) - room + 1
    more = annotation(level, "dlbench", f"... and {left} more cells: see the report.")
    return [*lines[: room - 1], more]

"""A comparison in GitHub's Markdown, made for a job summary: what matters first, the rest folded."""

from collections.abc import Sequence

from dlbench.reports.comparison import layout
from dlbench.reports.comparison.compared import CellComparison, Comparison
from dlbench.reports.comparison.layout import Finding
from dlbench.reports.comparison.outcome import gate_outcome
from dlbench.reports.formats.markdown import escaped, paragraph, pipe_row
from dlbench.reports.naming import name_of

_SECTIONS = {
    Finding.REGRESSION: "Regressions",
    Finding.BROKEN: "Broken",
    Finding.IMPROVEMENT: "Improvements",
    Finding.INCONCLUSIVE: "Inconclusive",
    Finding.CONTENDED: "Contended",
    Finding.COMPARISON: "Ratios",
    Finding.NO_REGRESSION: "No regression",
    Finding.HOLE: "No number",
}
_FOLDED = (Finding.NO_REGRESSION, Finding.HOLE)
_HEAD = ("cell", "candidate / baseline", "launches", "why")


def comparison_to_markdown(comparison: Comparison) -> str:
    """Return the comparison: the counts, what is grave, then the rest within ``<details>``."""
    parts = [f"## {escaped(layout.headline(comparison))}\n", paragraph(layout.heading(comparison) + ".") + "\n"]
    if comparison.purpose == "gate":
        parts.append(f"**{escaped(gate_outcome(comparison).line)}**\n")
    parts += [paragraph(text) + "\n" for text in (layout.machines(comparison), *layout.closing(comparison)) if text]
    for found, cells in layout.by_finding(comparison).items():
        title = _SECTIONS[found]
        if found in _FOLDED:
            parts.append(f"<details><summary>{title}: {len(cells)}</summary>\n\n{_table(cells)}\n</details>\n")
        else:
            parts.append(f"### {title}\n\n{_table(cells)}")
    facts = layout.details_of(comparison.cells)
    about = "".join(f"- {paragraph(text)}\n" for text in (*layout.legend(comparison), *facts))
    if about:
        parts.append(f"<details><summary>What the words mean</summary>\n\n{about}\n</details>\n")
    return "\n".join(parts)


def _table(cells: Sequence[CellComparison]) -> str:
    lines = [pipe_row(_HEAD), pipe_row([":--", "--:", "--:", ":--"])]
    for each in cells:
        marks = "".join(kind.symbol for kind in layout.flags_of(each))
        ratio = layout.ratio_of_cell(each) + (f" {marks}" if marks else "")
        fields = name_of(each.cell), ratio, layout.launches_of(each), layout.sentence_of(each)
        lines.append(pipe_row(escaped(field) for field in fields))
    return "\n".join(lines) + "\n"

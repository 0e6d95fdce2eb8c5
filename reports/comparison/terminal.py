"""A comparison for a terminal: every cell with its ratio and verdict, then what is to be said of the striking ones.

The counts stand at the end, where a terminal leaves the reader.
"""

import textwrap

from dlbench.reports.comparison import layout as layout
from dlbench.reports.comparison.compared import Comparison
from dlbench.reports.comparison.outcome import gate_outcome
from dlbench.reports.formats.terminal import WIDTH, tables_to_terminal

_MOST_REASONS = 8


def comparison_to_terminal(comparison: Comparison, width: int = WIDTH, colour: bool = False) -> str:
    """Return the comparison in lines of at most ``width`` characters; with ``colour`` ANSI sequences come on top."""
    head = [layout.heading(comparison), layout.machines(comparison)]
    parts = [_paragraphs([each for each in head if each], width)]
    if comparison.cells:
        # A table without a title begins with an empty line, which sets it off.
        parts.append(tables_to_terminal([layout.table(comparison.cells)], width, colour))
    facts = [*layout.reasons(comparison.cells, _MOST_REASONS), *layout.details_of(comparison.cells)]
    end = [*layout.closing(comparison), layout.headline(comparison) + "."]
    if comparison.purpose == "gate":
        end.append(gate_outcome(comparison).line)
    for block in (facts, layout.legend(comparison), end):
        if block:
            parts.append("\n" + _paragraphs(block, width))
    return "".join(parts)


def _paragraphs(lines: list[str], width: int) -> str:
    folded = [textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in lines]
    return "".join(f"{line}\n" for each in folded for line in each)

"""The headline: what these results say, in a few computed sentences, and none that noise may explain."""

from collections import Counter
from collections.abc import Sequence

from dlbench.reports.flags import FEW_LAUNCHES, PARITY
from dlbench.reports.page.document import Document
from dlbench.reports.page.sections import Section

MOST = 6
"""Sentences at the head of a page."""


def findings(document: Document, sections: Sequence[Section]) -> list[str]:
    """Return at most `MOST` sentences: first what every report says, the first sentence of each before any second."""
    last = _without_number(document)
    told = [line for section in sections for line in section.headline[:1]]
    told += [line for section in sections for line in section.headline[1:]]
    return [*told[: MOST - len(last)], *last]


def _without_number(document: Document) -> list[str]:
    cells = list(document.matrix.cells.values())
    if not cells:
        return ["Nothing was measured yet."]
    wrong = sum(each.has(PARITY) for each in cells)
    holes = Counter(each.status.value.replace("_", " ") for each in cells if not each.shown)
    kinds = [f"{count} {word}" for word, count in holes.most_common()]
    kinds += [f"{wrong} computed something else than the reference"] if wrong else []
    few = sum(each.has(FEW_LAUNCHES) for each in cells if each.timed is not None)
    timed = sum(each.timed is not None for each in cells)
    lines = [f"{timed} of {len(cells)} cells have a time that counts" + "; ".join(["", *kinds]) + "."]
    if few:
        lines.append(
            f"{few} of them rest on fewer than 3 launches: their intervals do not cover what launches differ by."
        )
    return lines

"""The headline: what these results say, in a few computed sentences, and none that noise may explain."""

from collections import Counter

from dlbench.reports.evidence import flag_kinds
from dlbench.reports.page.document import Document


def findings(document: Document) -> list[str]:
    """Return three to six sentences."""
    return [*_not_told(document)]


def _not_told(document: Document) -> list[str]:
    cells = list(document.matrix.cells.values())
    words = Counter(each.status.value.replace("_", " ") for each in cells if not each.shown)
    told = [f"{sum(each.timed is not None for each in cells)} of {len(cells)} cells have a number."]
    if words:
        told[0] = (
            told[0][:-1] + "; the others: " + ", ".join(f"{count} {word}" for word, count in words.most_common()) + "."
        )
    wrong = sum(each.has(flag_kinds.PARITY) for each in cells)
    if wrong:
        told.append(f"{wrong} cells computed something else than the reference: their times do not count.")
    return told

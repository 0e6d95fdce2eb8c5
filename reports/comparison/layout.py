"""What every exporter of comparisons shares: the headline, a line for each cell, and the words beneath."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from dlbench.adapters.protocol import Status
from dlbench.reports.comparison.compared import CellComparison, Comparison, SideOfCell
from dlbench.reports.comparison.verdict import POWER
from dlbench.reports.flags import KINDS, PARITY_UNCHECKED, FlagKind
from dlbench.reports.formats.layout import HOLES, Entry, Table
from dlbench.reports.naming import WORKERS_LEGEND, group_name, head_of, name_of, row_name
from dlbench.reports.statistics import Ratio


class Finding(Enum):
    """What is to be said of a cell, the gravest first: its verdict, or why it can have none."""

    REGRESSION = "REGRESSION"
    BROKEN = "broken"
    IMPROVEMENT = "improvement"
    INCONCLUSIVE = "inconclusive"
    CONTENDED = "contended"
    COMPARISON = "compared"
    NO_REGRESSION = "no regression"
    HOLE = "no number"


LEGEND = {
    Finding.REGRESSION: "slower by more than {magnitude}, and by chance this rarely: p <= {p}; the only verdict that "
    "fails a build",
    Finding.BROKEN: "the candidate fails where the baseline does not",
    Finding.IMPROVEMENT: "faster by more than {magnitude}, and by chance this rarely: p <= {improvement_p}",
    Finding.INCONCLUSIVE: "not shown to be slower, and {tolerance} slower is not excluded either",
    Finding.CONTENDED: "other programs interfered with at least half of its launches",
    Finding.COMPARISON: "of different machines: a ratio, and no verdict on a change",
    Finding.NO_REGRESSION: "the interval excludes that it is {tolerance} slower",
    Finding.HOLE: "a side was not measured, or the baseline fails too",
}
GRAVE = (Finding.REGRESSION, Finding.BROKEN)
"""What nobody may overlook."""
_PLURALS = {Finding.REGRESSION: "REGRESSIONS", Finding.IMPROVEMENT: "improvements"}
_QUIET = (Finding.NO_REGRESSION, Finding.COMPARISON)
NOTHING = "No cell was measured"


def finding(cell: CellComparison) -> Finding:
    """Return what is to be said of a cell."""
    if cell.broken:
        return Finding.BROKEN
    if not cell.baseline.status is cell.candidate.status is Status.OK:
        return Finding.HOLE
    return Finding[cell.judgement.verdict.name]


def by_finding(comparison: Comparison) -> dict[Finding, list[CellComparison]]:
    """Return the cells by what is to be said of them, the gravest first; only what there is."""
    found: dict[Finding, list[CellComparison]] = {each: [] for each in Finding}
    for cell in comparison.cells:
        found[finding(cell)].append(cell)
    return {each: cells for each, cells in found.items() if cells}


def headline(comparison: Comparison) -> str:
    """Return the counts, the gravest first: "24 cells: 1 REGRESSION, 2 inconclusive, 21 no regression"."""
    cells = len(comparison.cells)
    if not cells:
        return NOTHING
    counts = ", ".join(
        f"{len(found)} {_PLURALS.get(each, each.value) if len(found) > 1 else each.value}"
        for each, found in by_finding(comparison).items()
    )
    none = "" if any(cell.measured for cell in comparison.cells) else ", none measured on both sides"
    return f"{cells} cell{'s' if cells != 1 else ''}{none}: {counts}"


def heading(comparison: Comparison) -> str:
    """Return the title: which sides, in words."""
    return f"{comparison.candidate} against {comparison.baseline}"


def ratio_of(found: Ratio | None) -> str:
    """Return a ratio and its interval to a tenth of a per cent: "1.032 (1.021-1.043)"."""
    if found is None:
        return ""
    ends = "" if found.low is None or found.high is None else f" ({_three(found.low)}-{_three(found.high)})"
    return f"{_three(found.value)}{ends}"


def _three(value: float) -> str:
    return f"{value:.3f}" if 0.001 <= value < 1000 else f"{value:.2e}"


def ratio_of_cell(cell: CellComparison) -> str:
    """Return a cell's ratio and interval, or what stands in its place."""
    judged = cell.judgement
    if judged.ratio is not None:
        return ratio_of(Ratio(judged.ratio, judged.low, judged.high, ""))
    words = [HOLES[side.status] if side.status is not Status.OK else "ok" for side in (cell.baseline, cell.candidate)]
    return "" if words == ["ok", "ok"] else " / ".join(words) if words[0] != words[1] else words[0]


def launches_of(cell: CellComparison) -> str:
    """Return how many launches the verdict rests on: "20+20", baseline and candidate."""
    return f"{cell.judgement.baseline_launches}+{cell.judgement.candidate_launches}"


def flags_of(cell: CellComparison) -> list[FlagKind]:
    """Return the kinds of flags that either side carries and that bear on a comparison."""
    raised = {flag.kind for side in (cell.baseline, cell.candidate) for flag in side.flags}
    return [kind for kind in KINDS if kind in raised and kind is not PARITY_UNCHECKED]


_HEAD = ("", "threads", "candidate / baseline", "verdict", "launches")


def table(cells: Sequence[CellComparison]) -> Table:
    """Return a row for each cell under the headings of their networks."""
    rows: list[tuple[Entry, ...]] = []
    group = None
    for each in cells:
        if group_name(each.cell) != group:
            group = group_name(each.cell)
            rows.append((Entry(group),))
        found = finding(each)
        marks = "".join(kind.symbol for kind in flags_of(each))
        rows.append(
            (
                Entry(row_name(each.cell)),
                Entry(head_of(each.cell, own="default")),
                Entry(ratio_of_cell(each), marks=f" {marks}" if marks else ""),
                Entry(found.value, hole=found in GRAVE),
                Entry(launches_of(each)),
            )
        )
    return Table("", _HEAD, tuple(rows))


def reasons(cells: Iterable[CellComparison], most: int | None = None) -> list[str]:
    """Return a sentence for each cell of which more is to be said than its ratio, the gravest first.

    With ``most`` no more than so many for each of the findings that fail nothing.
    """
    said: dict[Finding, list[str]] = {each: [] for each in Finding if each not in _QUIET}
    for each in cells:
        if finding(each) in said:
            said[finding(each)].append(f"{name_of(each.cell)}: {sentence_of(each)}")
    lines = []
    for found, sentences in said.items():
        shown = sentences if most is None or found in GRAVE else sentences[:most]
        lines += shown
        if len(shown) < len(sentences):
            lines.append(f"... and {len(sentences) - len(shown)} more of {found.value}; --json shows all")
    return lines


def sentence_of(cell: CellComparison) -> str:
    """Return why a cell has its verdict, adjusted p-value included."""
    judged = cell.judgement
    p = judged.p if judged.adjusted_p is None else judged.adjusted_p
    words = f"; {'p' if judged.adjusted_p is None else 'adjusted p'} {p:.2g}" if p is not None else ""
    return f"{judged.sentence}{words if finding(cell) in (Finding.REGRESSION, Finding.IMPROVEMENT) else ''}"


def closing(comparison: Comparison) -> list[str]:
    """Return what follows from all cells: geometric mean, smallest effect, notes."""
    lines = []
    if comparison.geometric_mean is not None:
        mean = comparison.geometric_mean
        lines.append(f"Candidate / baseline, {mean.method}: {ratio_of(mean)}; above 1 is slower.")
    judged = [each.judgement for each in comparison.cells if finding(each) is not Finding.COMPARISON]
    effects = sorted(each.smallest_effect for each in judged if each.smallest_effect is not None)
    if effects:
        middle = effects[len(effects) // 2]
        span = f"{middle:.1%}" if len(effects) == 1 else f"{middle:.1%} (median of the cells; {effects[-1]:.1%} worst)"
        lines.append(f"Smallest slowdown that would have been called a regression {POWER:.0%} of the time: {span}.")
    return [*lines, *comparison.notes]


def legend(comparison: Comparison) -> list[str]:
    """Return what the verdicts and marks mean that were used."""
    rule = comparison.rule
    words = {
        "magnitude": f"{rule.magnitude:.1%}",
        "tolerance": f"{rule.tolerance:.0%}",
        "improvement_p": f"{rule.improvement_p_value:g}",
        "p": f"{rule.confirm_p_value if comparison.purpose == 'gate' else rule.p_value:g}",
    }
    lines = [f"{each.value}: {LEGEND[each].format(**words)}" for each in by_finding(comparison)]
    lines += [WORKERS_LEGEND] if any(each.cell.world_size > 1 for each in comparison.cells) else []
    raised = {kind for each in comparison.cells for kind in flags_of(each)}
    return lines + [f"{kind.symbol} {kind.legend}" for kind in KINDS if kind in raised]


def details_of(cells: Iterable[CellComparison]) -> list[str]:
    """Return the facts behind the marks, the same fact of many cells said once."""
    facts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for each in cells:
        for name, side in (("baseline", each.baseline), ("candidate", each.candidate)):
            for fact in _facts(side):
                key = f"{name}: {fact}"
                facts[key] += 1
                example.setdefault(key, name_of(each.cell))
    more = (f" and {count - 1} more" if count > 1 else "" for count in facts.values())
    return [f"{example[key]}{rest}, {key}" for key, rest in zip(facts, more, strict=True)]


def _facts(side: SideOfCell) -> list[str]:
    shown = [flag for flag in side.flags if flag.kind is not PARITY_UNCHECKED]
    return [f"{flag.kind.symbol} {flag.sentence}" for flag in shown]


def machines(comparison: Comparison) -> str:
    """Return on what it was measured, and how."""
    names = [host.name for host in comparison.hosts]
    if len(names) > 1:
        return f"Baseline on {names[0]}; candidate on {names[1]}."
    how = "both sides in one session" if comparison.same_session else "the two sides in different sessions"
    return f"On {names[0]}, {how}." if names else ""

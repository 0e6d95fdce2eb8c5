"""What settings are worth as words and tables."""

from collections import Counter
from collections.abc import Callable, Sequence

from dlbench.adapters.protocol import Cell
from dlbench.reports.compare.verdict import FEWEST_PAIRS, PairedEstimate
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table
from dlbench.reports.naming import group_name, place_name, row_name
from dlbench.reports.statistics import Ratio
from dlbench.reports.storage.hosts import name_among
from dlbench.reports.tuning.analysis import FASTER, SLOWER, WORTH_NOTHING, Row, Tuning, Worth, verdict
from dlbench.reports.tuning.over_networks import FEWEST_NETWORKS, Mean, names_of_means, over_networks

NOTHING = "Nothing was measured both with settings in force and without; `dlbench run tuning` does it."
SEARCHED = (
    "A search (`dlbench tune`) launches what is fast, not what shows a setting's worth; `dlbench run tuning` does."
)
_LEGEND = (
    "Ratios are seconds with the setting over seconds without it, medians over pairs of launches with 95 % intervals "
    f"(none below {FEWEST_PAIRS} pairs): below 1 the setting makes the step faster.",
    "Each interval misses in one case of twenty: of many settings some seem to help or hurt by chance.",
)

_OF_SETTINGS = (
    "alone: against nothing in force; among: against all others in force. A setting is worth nothing where the whole "
    "interval lies within 2 % of 1."
)
_OF_MEANS = (
    "Over networks: geometric means, each network once; the interval is Student's t over the networks, so that it "
    f"covers what they differ by too (none below {FEWEST_NETWORKS} networks)."
)


def tuning_page(found: Tuning) -> Page:
    """Return a table of what all settings together are worth, and one of each setting."""
    were = "launch was" if found.disturbed == 1 else "launches were"
    left_out = (f"{found.disturbed} {were} disturbed by other programs and left out.",) if found.disturbed else ()
    if not found.rows:
        searched = (SEARCHED,) if found.searched else ()
        return Page((*(searched or (NOTHING,)), *left_out), (), ())
    machines = dict.fromkeys(row.machine for row in found.rows)
    tables = []
    legend = dict.fromkeys(_LEGEND[:1])
    for machine in machines:
        name = f", on {name_among(found.hosts, machine)}" if len(machines) > 1 else ""
        rows = [row for row in found.rows if row.machine == machine]
        if means := over_networks(rows):
            tables.append(_means(means, name))
            legend[_OF_MEANS] = None
        tables.append(_together(rows, name))
        if any(worth.verdict for row in rows for worth in row.settings):
            tables.append(_settings(rows, name))
            legend[_OF_SETTINGS] = None
    before = [f"On {found.hosts[machine].name}." for machine in machines] if len(machines) == 1 else []
    return Page((*before, *findings(found)), tuple(tables), (*left_out, *legend, *_LEGEND[1:]))


def findings(found: Tuning) -> tuple[str, ...]:
    """Return what can be said of the settings, one sentence a verdict: those that something can be said of."""
    machines = dict.fromkeys(row.machine for row in found.rows)
    sentences = []
    for machine in machines:
        where = f" ({name_among(found.hosts, machine)})" if len(machines) > 1 else ""
        rows = [row for row in found.rows if row.machine == machine]
        for said, words in ((FASTER, "Faster with"), (SLOWER, "Slower with"), (WORTH_NOTHING, "Worth nothing")):
            if named := _named(rows, said):
                sentences.append(f"{words}{where}: {named}.")
    return tuple(sentences)


def _named(rows: Sequence[Row], said: str) -> str:
    on: dict[str, list[str]] = {}
    names = _names(rows)
    for row in rows:
        for worth in row.settings:
            if worth.verdict == said:
                name = row_name(row.cell)
                on.setdefault(f"{worth.setting} ({name})", []).append(names[row].removeprefix(f"{name}: "))
    return "; ".join(f"{name} on {', '.join(of)}" for name, of in on.items())


def _together(rows: Sequence[Row], where: str) -> Table:
    names = _names(rows)
    lines = [
        (
            Entry(names[row]),
            _ratio(row.together.alone),
            Entry(str(row.together.alone.pairs) if row.together.alone else MISSING),
            Entry(row.together.verdict or MISSING),
        )
        for row in rows
    ]
    return Table(f"Tuned against as installed{where}", ("row", "ratio", "pairs", "verdict"), tuple(lines))


def _means(means: Sequence[Mean], where: str) -> Table:
    names = names_of_means(means)
    lines = [
        (
            Entry(names[each]),
            Entry(f"{each.ratio.value:.3f}", _interval(each.ratio)),
            Entry(str(each.networks)),
            Entry(verdict(each.ratio)),
        )
        for each in means
    ]
    return Table(
        f"Tuned against as installed, over networks{where}", ("row", "ratio", "networks", "verdict"), tuple(lines)
    )


def _names(rows: Sequence[Row]) -> dict[Row, str]:
    """Return a name for each row: with threads and mini-batch where the network alone does not tell it from another."""
    forms: tuple[Callable[[Cell], str], ...] = (
        lambda cell: f"{row_name(cell)}: {cell.network}",
        lambda cell: f"{row_name(cell)}: {cell.network}, {place_name(cell)}",
        lambda cell: f"{row_name(cell)}: {group_name(cell)}, {place_name(cell)}",
    )
    every = [Counter(form(row.cell) for row in rows) for form in forms]
    found = {}
    for row in rows:
        names = [form(row.cell) for form in forms]
        unique = [name for name, known in zip(names, every, strict=True) if known[name] == 1]
        found[row] = unique[0] if unique else names[-1]
    return found


def _settings(rows: Sequence[Row], where: str) -> Table:
    lines: list[tuple[Entry, ...]] = []
    names = _names(rows)
    for row in rows:
        told = [worth for worth in row.settings if worth.verdict]
        if told:
            lines.append((Entry(names[row]),))
            lines += [_worth(worth) for worth in told]
    return Table(f"Each setting{where}", ("setting", "alone", "among", "verdict"), tuple(lines))


def _worth(worth: Worth) -> tuple[Entry, ...]:
    hurts = worth.verdict == SLOWER
    return (
        Entry(worth.setting),
        _ratio(worth.alone),
        _ratio(worth.among),
        Entry(worth.verdict, hole=hurts, best=worth.verdict == FASTER),
    )


def _ratio(found: PairedEstimate | None) -> Entry:
    if found is None:
        return Entry(MISSING)
    told = found.pairs >= FEWEST_PAIRS
    return Entry(f"{found.ratio:.3f}", f" ({found.low:.2f}-{found.high:.2f})" if told else "")


def _interval(found: Ratio) -> str:
    return "" if found.low is None or found.high is None else f" ({found.low:.2f}-{found.high:.2f})"

"""`dlbench report containers`: default thread counts under a CPU quota, and their cost.

Most containers set no thread count, and a framework that counts the machine's CPUs starts as many
threads, whatever the quota. Each cell that was measured in this way is compared with the best
thread count that was set under the same quota, as `report threads` finds it. Verdicts are adjusted
for the number of comparisons in the report.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import TUNED, Cell
from dlbench.reports.columns import (
    ROW,
    VALUE,
    Column,
    attributes,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.curve.curve import grid
from dlbench.reports.curve.threads import threads
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table
from dlbench.reports.ratio import pairs
from dlbench.reports.ratio.pairs import Pair, adjust, mean_of, pair_of, with_verdicts
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import Place, RowKey, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import listed, row_name, row_names, threads_name, work_name
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import Estimate, RatioVerdict, judge_ratio, welch_of_pairs

NOTHING = (
    "No cell has a CPU quota and the default thread count; `dlbench run containers` measures such "
    "cells."
)
_LEGEND = (
    (
        "takes: threads that the framework starts by default; sees it: whether the quota made it "
        "start no more threads than the quota has CPUs (-: it never starts more); best p: the "
        "thread count to set."
    ),
    (
        "vs best: time with the default thread count over that with best p, with the 95 % "
        "interval; throttled: share of the kernel's periods of 0.1 s in which the quota ran out."
    ),
)
_MARKS: dict[RatioVerdict | None, str] = {RatioVerdict.SLOWER: "!", RatioVerdict.FASTER: "+"}
_MEANINGS = {
    RatioVerdict.SLOWER: "clearly slower than with the best count",
    RatioVerdict.FASTER: "clearly faster than with any count that was set",
}


@dataclass(frozen=True)
class DefaultThreads:
    """A row under a CPU quota with its default thread count, and the count to use instead."""

    own: CellResult
    cpus: int
    """CPUs of the quota, rounded up."""
    unlimited: int | None
    """Its default thread count without a quota; None where that is not known."""
    pair: Pair | None
    """The default and the best count; None where one of them has no time that counts."""
    setting: str = ""
    """The setting that gives the best count; empty where that is not known."""

    @property
    def quota(self) -> float:
        """The CPU quota."""
        return self.own.cell.cpu_quota

    @property
    def threads(self) -> int | None:
        """Its default thread count under the quota."""
        if self.own.observed is None:
            return None
        return self.own.observed.taken_threads

    @property
    def sees_quota(self) -> bool | None:
        """Whether the quota makes it start no more threads than the quota has CPUs.

        None where it never starts more.
        """
        if self.threads is None:
            return None
        if self.threads > self.cpus:
            return False
        if self.unlimited is not None and self.unlimited > self.cpus:
            return True
        return None

    @property
    def best(self) -> int | None:
        """The thread count to use."""
        if self.pair is None:
            return None
        return self.pair.other.cell.threads

    @property
    def throttled(self) -> float | None:
        """Share of the periods in which the quota ran out."""
        if self.own.observed is None:
            return None
        return self.own.observed.throttled_periods


@dataclass(frozen=True)
class OverNetworks:
    """A row under a CPU quota on all networks: the geometric mean of its ratios."""

    taken: tuple[DefaultThreads, ...]
    ratio: Estimate
    verdict: RatioVerdict | None = None

    @property
    def row(self) -> RowKey:
        """The row."""
        return self.taken[0].own.row

    @property
    def machine(self) -> str:
        """The fingerprint of the machine."""
        return self.taken[0].own.machine

    @property
    def quota(self) -> float:
        """The CPU quota."""
        return self.taken[0].quota

    @property
    def advice(self) -> str:
        """One sentence, as `advice` gives for a network."""
        return _cost_sentence(self.taken, self.ratio, self.verdict)


Containers = Compared[DefaultThreads]


def containers(matrix: Matrix, records: Iterable[Record]) -> Containers:
    """Compare default thread counts under a quota with the best count under the same quota."""
    settings: dict[Place, str] = {}
    for record in records:
        settings[record.place] = str(record.outcome.facts.thread_setting or "")
    best_threads: dict[Place, int | None] = {}
    for curve in threads(matrix).curves:
        best_threads[curve.place] = curve.findings.best_threads
    defaults = []
    compared = []
    for cell in matrix.cells.values():
        if _has_default_threads(cell.cell):
            default = _compare(cell, matrix, best_threads, settings)
            defaults.append(default)
            if default.pair is not None:
                compared.append(default.pair)
    judged = iter(with_verdicts(compared))
    rows = []
    for default in defaults:
        pair = next(judged) if default.pair else None
        rows.append(replace(default, pair=pair))
    return Compared(matrix, tuple(rows))


def _compare(
    cell: CellResult,
    matrix: Matrix,
    best_threads: Mapping[Place, int | None],
    settings: Mapping[Place, str],
) -> DefaultThreads:
    """Compare a cell that has the default thread count with the best count under its quota."""
    quota = cell.cell.cpu_quota
    without_quota = matrix.cells.get(Place(cell.machine, cell.cell._replace(cpu_quota=0.0)))
    if without_quota is not None and without_quota.observed:
        unlimited = without_quota.observed.taken_threads
    else:
        unlimited = cell.default_threads
    pair = None
    setting = ""
    count = best_threads.get(Place(cell.machine, axes.without(cell.cell, "threads")))
    if count:
        place_of_best = Place(cell.machine, cell.cell._replace(threads=count))
        pair = pair_of(cell, matrix.cells.get(place_of_best))
        setting = settings.get(place_of_best, "")
    cpus = matrix.hosts[cell.machine].under(quota).effective_cpus or 1
    return DefaultThreads(cell, cpus, unlimited, pair, setting)


def _has_default_threads(cell: Cell) -> bool:
    """Return whether a cell has a CPU quota and the default thread count."""
    return bool(cell.cpu_quota) and cell.on_cpu and cell.threads == 0 and cell.world_size == 1


def _short_name(default: DefaultThreads) -> str:
    """Return the name of a row without its settings."""
    return row_name(default.own.row._replace(tuning=TUNED))


def _names(defaults: Iterable[DefaultThreads]) -> tuple[Callable[[RowKey], str], str]:
    return row_names(default.own.row for default in defaults)


def over_networks(rows: Iterable[DefaultThreads]) -> list[OverNetworks]:
    """Return the means over all networks of a machine, by row and quota.

    Rows that lack a ratio on a network have no mean. A machine with one network has none either.
    """
    means: list[OverNetworks] = []
    tested: list[tuple[Estimate, float | None]] = []
    for defaults in grouped(rows, lambda default: default.own.machine).values():
        networks = {default.own.work for default in defaults}
        by_quota = grouped(defaults, lambda default: (default.own.row, default.quota))
        for taken in by_quota.values():
            compared = [default.pair for default in taken if default.pair]
            if len(compared) == len(networks) > 1:
                mean = OverNetworks(tuple(taken), mean_of(compared).ratio)
                p_value = welch_of_pairs([pair.times for pair in compared])
                means.append(mean)
                tested.append((mean.ratio, p_value))
    judged = []
    for mean, p_value in zip(means, adjust(tested), strict=True):
        judged.append(replace(mean, verdict=judge_ratio(mean.ratio, p_value)))
    return judged


def advice(default: DefaultThreads) -> str:
    """Return one sentence: the threads of a row under the quota, their cost, and what to set."""
    if default.own.timed is None:
        name = _short_name(default)
        reason = layout.why_hole(default.own)
        return f"{name} has no time under a CPU quota of {default.quota:g}: {reason}."
    if default.pair is None:
        return f"{_threads_text([default])}; no thread count was set there to compare with."
    return _cost_sentence([default], default.pair.ratio, default.pair.verdict)


def _threads_text(defaults: Sequence[DefaultThreads]) -> str:
    """Describe the threads that a row starts under a quota."""
    names = [threads_name(default.threads) or "its default threads" for default in defaults]
    threads = listed(list(dict.fromkeys(names)))
    first = defaults[0]
    return f"{_short_name(first)} takes {threads} under a CPU quota of {first.quota:g}"


def _cost_sentence(
    defaults: Sequence[DefaultThreads], ratio: Estimate, outcome: RatioVerdict | None
) -> str:
    """Describe the cost of a row's threads under a quota, on one network or several."""
    takes = _threads_text(defaults)
    counts: dict[str, None] = {}
    settings: dict[str, None] = {}
    for default in defaults:
        counts[str(default.best)] = None
        settings[default.setting or threads_name(default.best)] = None
    as_with = f"as long as with {listed(list(counts))}"
    if outcome is RatioVerdict.SAME:
        return f"{takes}: a step takes {as_with}; there is nothing to set."
    ends = ""
    if ratio.low is not None and ratio.high is not None:
        ends = f" ({number(ratio.low)}-{number(ratio.high)})"
    cost = f"{takes}: a step takes {number(ratio.value)}x{ends} {as_with}"
    if outcome is RatioVerdict.SLOWER:
        return f"{cost}. Set {' or '.join(settings)}."
    if outcome is RatioVerdict.FASTER:
        return f"{cost}; leave it at that."
    return f"{cost}, which noise may explain."


def _ratio_entry(default: DefaultThreads) -> Entry:
    if default.own.timed is None:
        return Entry(layout.HOLES[default.own.status], hole=True)
    if default.pair is None:
        return Entry(MISSING)
    return layout.multiple(default.pair.ratio, _MARKS.get(default.pair.verdict, ""))


def _overview(analysis: Containers, machine: str, defaults: Sequence[DefaultThreads]) -> Table:
    """Return the table of rows and quotas: first the means over networks, then each network."""
    name, condition = _names(defaults)
    networks = {default.own.work for default in defaults}
    quotas = sorted({default.quota for default in defaults})
    means: dict[tuple[str, float], Entry] = {}
    verdicts = set()
    costs = []
    for mean in over_networks(defaults):
        mark = _MARKS.get(mean.verdict, "")
        means[name(mean.row), mean.quota] = layout.multiple(mean.ratio, mark)
        verdicts.add(mean.verdict)
        if mean.verdict is RatioVerdict.SLOWER:
            costs.append(f"{len(networks)} networks: {mean.advice}")
    rows: list[tuple[Entry, ...]] = []
    if means:
        heading = f"geometric mean of {len(networks)} networks"
        rows += [(Entry(heading),), *grid(means, quotas)]
    for work, defaults_of_work in grouped(defaults, lambda default: default.own.work).items():
        entries: dict[tuple[str, float], Entry] = {}
        for default in defaults_of_work:
            entries[name(default.own.row), default.quota] = _ratio_entry(default)
            if default.pair:
                verdicts.add(default.pair.verdict)
        rows += [(Entry(work_name(work)),), *grid(entries, quotas)]
    title = (
        f"Time with default threads over that with the best thread count{condition}, on "
        f"{analysis.name(machine)}"
    )
    notes = []
    for outcome, meaning in _MEANINGS.items():
        if outcome in verdicts:
            notes.append(f"{_MARKS[outcome]} {meaning}")
    head = ("CPU quota", *(f"{quota:g}" for quota in quotas))
    return Table(title, head, tuple(rows), (*notes, *costs))


def _columns(
    analysis: Containers, rows: Sequence[DefaultThreads]
) -> tuple[Column[DefaultThreads], ...]:
    common = layout.common_flags(default.own for default in rows if default.own.shown)
    name, _ = _names(rows)
    other_axes = [axis for axis in axes.NAMES if axis not in ("threads", "cpu_quota")]
    return (
        *host_columns(lambda default: analysis.matrix.hosts[default.own.machine]),
        *axis_columns(lambda default: default.own.cell, other_axes),
        Column("", "", lambda default: name(default.own.row)),
        Column(
            "cpu_quota",
            "quota",
            lambda default: default.quota,
            lambda default: f"{default.quota:g}",
        ),
        *attributes(lambda default: default.own, "status", "reason"),
        Column("threads_taken", "takes", lambda default: default.threads),
        Column("threads_without_quota", None, lambda default: default.unlimited),
        Column("sees_quota", "sees it", lambda default: default.sees_quota),
        pairs.seconds_column(lambda default: default.own, common),
        Column("best_threads", "best p", lambda default: default.best),
        Column(
            "ratio",
            "vs best",
            lambda default: default.pair and default.pair.ratio,
            _ratio_entry,
            VALUE,
        ),
        Column("verdict", None, lambda default: default.pair and default.pair.verdict),
        Column(
            "throttled_periods", "throttled", lambda default: default.throttled, _throttled_text
        ),
        Column("setting", None, lambda default: default.setting),
        Column("advice", None, advice),
    )


def _throttled_text(default: DefaultThreads) -> str:
    if default.throttled is None:
        return MISSING
    return f"{default.throttled:.0%}"


def _mean_columns(analysis: Containers) -> tuple[Column[OverNetworks], ...]:
    return (
        *host_columns(lambda mean: analysis.matrix.hosts[mean.machine]),
        *axis_columns(lambda mean: mean.row, ROW),
        Column("cpu_quota", None, lambda mean: mean.quota),
        Column("networks", None, lambda mean: len(mean.taken)),
        *attributes(lambda mean: mean, "ratio", "verdict", "advice"),
    )


def _table(analysis: Containers, machine: str, defaults: Sequence[DefaultThreads]) -> Table:
    """Return the table with a line for each row and quota."""
    notes = []
    for work, defaults_of_work in grouped(defaults, lambda default: default.own.work).items():
        slower = []
        holes = []
        heading = work_name(work)
        for default in defaults_of_work:
            if default.own.timed is None:
                holes.append(f"{heading}: {advice(default)}")
            elif default.pair and default.pair.verdict is RatioVerdict.SLOWER:
                slower.append(f"{heading}: {advice(default)}")
        notes += [*slower, *holes]
    return table(
        _columns(analysis, defaults),
        defaults,
        f"Threads under a CPU quota{_names(defaults)[1]}, on {analysis.name(machine)}",
        section=lambda default: work_name(default.own.work),
        notes=notes,
        keys=2,
    )


def _page(analysis: Containers) -> Page:
    if not analysis.rows:
        return Page((NOTHING, *analysis.matrix.notes), ())
    tables = []
    by_machine = grouped(analysis.rows, lambda default: default.own.machine)
    for machine, defaults in by_machine.items():
        tables.append(_overview(analysis, machine, defaults))
        tables.append(_table(analysis, machine, defaults))
    shown = [default.own for default in analysis.rows if default.own.shown]
    flag_lines = layout.flag_lines(shown, layout.common_flags(shown))
    lines = (*_LEGEND, *flag_lines, *analysis.matrix.notes)
    return Page(tuple(headline(analysis)), tuple(tables), lines)


def _pairs(analysis: Containers) -> list[tuple[DefaultThreads, Pair]]:
    """Return the rows with a thread count to compare with, and their pairs."""
    return [(default, default.pair) for default in analysis.rows if default.pair is not None]


def headline(analysis: Containers) -> list[str]:
    """Return how often default thread counts cost time under a quota, by machine."""
    claim = "under a CPU quota the default thread count costs"
    lines = []
    by_machine = grouped(over_networks(analysis.rows), lambda mean: mean.machine)
    for machine, means in by_machine.items():
        slower = [mean for mean in means if mean.verdict is RatioVerdict.SLOWER]
        if slower:
            most = max(slower, key=lambda mean: mean.ratio.value)
            lines.append(
                f"{analysis.name(machine)}: over {len(most.taken)} networks {claim} time for "
                f"{len(slower)} of {len(means)} rows and quotas. Most: {most.advice}"
            )
    return [*lines, *pairs.costs(analysis, _pairs(analysis), claim, _pair_text)]


def _pair_text(default: DefaultThreads, pair: Pair) -> str:
    """Describe the cost of a row's default threads on one network."""
    name = _short_name(default)
    cost = f"{name} takes {times(pair.ratio)} the time under a quota of {default.quota:g}"
    return f"{work_name(default.own.work)}: {cost}"


def _draw(analysis: Containers, path: Path) -> list[Path]:
    """Draw a page for each machine: rows down, ratios across, a mark for each quota.

    Its panels are the means over networks and each network.
    """
    pages = []
    by_machine = grouped(_pairs(analysis), lambda row: row[0].own.machine)
    for machine, compared in by_machine.items():
        defaults = [default for default, _ in compared]
        name, condition = _names(defaults)
        points: list[pairs.RatioPoint] = []
        for mean in over_networks(defaults):
            panel = f"geometric mean of {len(mean.taken)} networks"
            points.append((panel, name(mean.row), f"{mean.quota:g}", mean.ratio))
        for default, pair in compared:
            panel = work_name(default.own.work)
            points.append((panel, name(default.own.row), f"{default.quota:g}", pair.ratio))
        title = f"Default thread counts under a CPU quota{condition}, on {analysis.name(machine)}"
        pages.append((title, "times as long as with the best thread count; 95 % intervals", points))
    return pairs.draw(pages, path, series="CPU quota")


def _data(analysis: Containers) -> dict[str, Any]:
    return {
        "rows": objects(_columns(analysis, analysis.rows), analysis.rows),
        "means": objects(_mean_columns(analysis), over_networks(analysis.rows)),
        "notes": [*headline(analysis), *analysis.matrix.notes],
    }


REPORT = Report(
    name="containers",
    summary="Default thread counts under a CPU quota, and their cost.",
    examples=(
        "dlbench report containers",
        "dlbench report containers --cpu-quota 1 --plot containers.png",
    ),
    analyse=lambda source: containers(source.matrix(), source.results().records),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=lambda analysis: csv_rows(_columns(analysis, analysis.rows), analysis.rows),
    draw=lambda analysis, path, options: _draw(analysis, path),
    drawable=lambda analysis: bool(_pairs(analysis)),
    suggestion="default thread counts under a CPU quota, and their cost",
    applies=lambda cells: any(map(_has_default_threads, cells)),
    options=frozenset({ALL_RUNS}),
    heading="Threads under a CPU quota",
    place=32,
    headline=headline,
)

"""`dlbench report containers`: default thread counts under a CPU quota, and their cost.

Most containers set no thread count, and a framework that counts the machine's CPUs starts as many
threads, whatever the quota. Each cell measured so under a quota is compared with the best thread
count that was set under the same quota, as `report threads` finds it. Verdicts are adjusted for the
number of comparisons in the report.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from dlbench.adapters import axes
from dlbench.adapters.protocol import TUNED, Cell
from dlbench.adapters.tuning import THREAD_SETTING
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
from dlbench.reports.ratio.pairs import (
    FASTER,
    SAME,
    SLOWER,
    Pair,
    adjust,
    mean_of,
    pair_of,
    verdict,
    with_verdicts,
)
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import group_name, listed, row_name, row_names, threads_name
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import Ratio, welch_of_pairs

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
_MARKS = {SLOWER: "!", FASTER: "+"}
_MEANINGS = {
    SLOWER: "clearly slower than with the best count",
    FASTER: "clearly faster than with any count that was set",
}


@dataclass(frozen=True)
class Taken:
    """A row under a CPU quota with its default thread count, and the count to use there."""

    own: CellResult
    cpus: int
    """CPUs of the quota, rounded up."""
    unlimited: int | None
    """Its default thread count without a quota; None where that is not known."""
    pair: Pair | None
    """The default and the best count; None where one of them has no time that counts."""
    setting: str = ""
    """What sets the best count; empty where that is not known."""

    @property
    def quota(self) -> float:
        """The CPU quota."""
        return self.own.cell.cpu_quota

    @property
    def threads(self) -> int | None:
        """Its default thread count under the quota."""
        return None if self.own.observed is None else self.own.observed.taken_threads

    @property
    def sees_quota(self) -> bool | None:
        """Whether the quota makes it start no more threads than the quota has CPUs; None where it
        never starts more.
        """
        if self.threads is None or self.threads > self.cpus:
            return None if self.threads is None else False
        return True if self.unlimited is not None and self.unlimited > self.cpus else None

    @property
    def best(self) -> int | None:
        """The thread count to use."""
        return None if self.pair is None else self.pair.other.cell.threads

    @property
    def throttled(self) -> float | None:
        """Share of the periods in which the quota ran out."""
        return None if self.own.observed is None else self.own.observed.throttled_periods


@dataclass(frozen=True)
class OverNetworks:
    """A row under a CPU quota on all networks: the geometric mean of its ratios."""

    taken: tuple[Taken, ...]
    ratio: Ratio
    verdict: str = ""

    @property
    def row(self) -> Cell:
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
        return _cost(self.taken, self.ratio, self.verdict)


Containers = Compared[Taken]


def containers(matrix: Matrix, records: Iterable[Record]) -> Containers:
    """Compare each cell under a quota that has the default thread count with the best count under
    the same quota.
    """
    settings = {
        Place(each.machine, axes.project(each.cell, axes.NAMES)): each.outcome.software
        for each in records
    }
    best = {curve.place: curve.findings.best_threads for curve in threads(matrix).curves}
    found = []
    for cell in (cell for cell in matrix.cells.values() if _is_own(cell.cell)):
        free = matrix.cells.get(Place(cell.machine, cell.cell._replace(cpu_quota=0.0)))
        unlimited = (
            free.observed.taken_threads
            if free is not None and free.observed
            else cell.default_threads
        )
        quota, pair, setting = cell.cell.cpu_quota, None, ""
        if count := best.get(Place(cell.machine, axes.without(cell.cell, "threads"))):
            to_use = Place(cell.machine, cell.cell._replace(threads=count))
            pair = pair_of(cell, matrix.cells.get(to_use))
            setting = str(settings.get(to_use, {}).get(THREAD_SETTING, ""))
        cpus = matrix.hosts[cell.machine].under(quota).effective_cpus or 1
        found.append(Taken(cell, cpus, unlimited, pair, setting))
    judged = iter(with_verdicts([each.pair for each in found if each.pair is not None]))
    return Compared(
        matrix, tuple(replace(each, pair=next(judged)) if each.pair else each for each in found)
    )


def _is_own(cell: Cell) -> bool:
    return bool(cell.cpu_quota) and cell.on_cpu and cell.threads == 0 and cell.world_size == 1


def _name(each: Taken) -> str:
    """Return the name of a row without its settings."""
    return row_name(each.own.row._replace(tuning=TUNED))


def _names(rows: Iterable[Taken]) -> tuple[Callable[[Cell], str], str]:
    return row_names(each.own.row for each in rows)


def over_networks(rows: Iterable[Taken]) -> list[OverNetworks]:
    """Return by row and quota the means over all networks of its machine, where each has a ratio;
    of several.
    """
    found, p_values = [], []
    for here in grouped(rows, lambda each: each.own.machine).values():
        networks = len({each.own.group for each in here})
        for taken in grouped(here, lambda each: (each.own.row, each.quota)).values():
            compared = [each.pair for each in taken if each.pair]
            if len(compared) == networks > 1:
                found.append(OverNetworks(tuple(taken), mean_of(compared).ratio))
                p_values.append(welch_of_pairs([each.times for each in compared]))
    adjusted = adjust([(each.ratio, p) for each, p in zip(found, p_values, strict=True)])
    return [
        replace(each, verdict=verdict(each.ratio, p))
        for each, p in zip(found, adjusted, strict=True)
    ]


def advice(each: Taken) -> str:
    """Return one sentence: the threads that a row takes under the quota, what they cost, and what
    to set.
    """
    under = f"under a CPU quota of {each.quota:g}"
    if each.own.timed is None:
        return f"{_name(each)} has no time {under}: {layout.why_hole(each.own)}."
    if each.pair is None:
        return f"{_takes([each])}; no thread count was set there to compare with."
    return _cost([each], each.pair.ratio, each.pair.verdict)


def _takes(rows: Sequence[Taken]) -> str:
    """Return the threads that a row takes under a quota, in words."""
    threads = listed(
        list(dict.fromkeys(threads_name(each.threads) or "its default threads" for each in rows))
    )
    return f"{_name(rows[0])} takes {threads} under a CPU quota of {rows[0].quota:g}"


def _cost(rows: Sequence[Taken], ratio: Ratio, outcome: str) -> str:
    """Return what the threads of a row under a quota cost, on one network or over several, and what
    to set.
    """
    takes, best = _takes(rows), dict.fromkeys((each.best, each.setting) for each in rows)
    as_with = (
        "as long as with "
        f"{listed([str(count) for count in dict.fromkeys(count for count, _ in best)])}"
    )
    ends = (
        ""
        if ratio.low is None or ratio.high is None
        else f" ({number(ratio.low)}-{number(ratio.high)})"
    )
    cost = f"{takes}: a step takes {number(ratio.value)}x{ends} {as_with}"
    if outcome == SLOWER:
        return (
            f"{cost}. Set {' or '.join(setting or threads_name(count) for count, setting in best)}."
        )
    if outcome == FASTER:
        return f"{cost}; leave it at that."
    if outcome == SAME:
        return f"{takes}: a step takes {as_with}; there is nothing to set."
    return f"{cost}, which noise may explain."


def _field(each: Taken) -> Entry:
    if each.own.timed is None:
        return Entry(layout.HOLES[each.own.status], hole=True)
    if each.pair is None:
        return Entry(MISSING)
    return layout.multiple(each.pair.ratio, _MARKS.get(each.pair.verdict, ""))


def _overview(found: Containers, machine: str, here: Sequence[Taken]) -> Table:
    """Return the table of rows and quotas: first the means over networks, then each network."""
    name, condition = _names(here)
    networks = len({each.own.group for each in here})
    means = over_networks(here)
    fields: dict[tuple[Cell | None, str, float], Entry] = {
        (None, name(each.row), each.quota): layout.multiple(
            each.ratio, _MARKS.get(each.verdict, "")
        )
        for each in means
    }
    fields |= {(each.own.group, name(each.own.row), each.quota): _field(each) for each in here}
    rows: list[tuple[Entry, ...]] = []
    quotas = sorted({each.quota for each in here})
    for group, keys in grouped(fields, itemgetter(0)).items():
        heading = group_name(group) if group else f"geometric mean of {networks} networks"
        rows += [(Entry(heading),), *grid({key[1:]: fields[key] for key in keys}, quotas)]
    title = (
        f"Time with default threads over that with the best thread count{condition}, on "
        f"{found.name(machine)}"
    )
    verdicts = {each.pair.verdict for each in here if each.pair} | {each.verdict for each in means}
    marks = [
        f"{_MARKS[outcome]} {meaning}"
        for outcome, meaning in _MEANINGS.items()
        if outcome in verdicts
    ]
    slower = [f"{networks} networks: {each.advice}" for each in means if each.verdict == SLOWER]
    return Table(
        title, ("CPU quota", *(f"{quota:g}" for quota in quotas)), tuple(rows), (*marks, *slower)
    )


def _columns(found: Containers, rows: Sequence[Taken]) -> tuple[Column[Taken], ...]:
    common, name = layout.common_flags(each.own for each in rows if each.own.shown), _names(rows)[0]
    named = [name for name in axes.NAMES if name not in ("threads", "cpu_quota")]
    return (
        *host_columns(lambda each: found.matrix.hosts[each.own.machine]),
        *axis_columns(lambda each: each.own.cell, named),
        Column("", "", lambda each: name(each.own.row)),
        Column("cpu_quota", "quota", lambda each: each.quota, lambda each: f"{each.quota:g}"),
        *attributes(lambda each: each.own, "status", "reason"),
        Column("threads_taken", "takes", lambda each: each.threads),
        Column("threads_without_quota", None, lambda each: each.unlimited),
        Column("sees_quota", "sees it", lambda each: each.sees_quota),
        pairs.seconds_column(lambda each: each.own, common),
        Column("best_threads", "best p", lambda each: each.best),
        Column("ratio", "vs best", lambda each: each.pair and each.pair.ratio, _field, VALUE),
        Column("verdict", None, lambda each: each.pair and each.pair.verdict),
        Column(
            "throttled_periods",
            "throttled",
            lambda each: each.throttled,
            lambda each: MISSING if each.throttled is None else f"{each.throttled:.0%}",
        ),
        Column("setting", None, lambda each: each.setting),
        Column("advice", None, advice),
    )


def _means(found: Containers) -> tuple[Column[OverNetworks], ...]:
    return (
        *host_columns(lambda each: found.matrix.hosts[each.machine]),
        *axis_columns(lambda each: each.row, ROW),
        Column("cpu_quota", None, lambda each: each.quota),
        Column("networks", None, lambda each: len(each.taken)),
        *attributes(lambda each: each, "ratio", "verdict", "advice"),
    )


def _table(found: Containers, machine: str, here: Sequence[Taken]) -> Table:
    """Return the table with a line for each row and quota."""
    title = f"Threads under a CPU quota{_names(here)[1]}, on {found.name(machine)}"
    notes = []
    for group, of in grouped(here, lambda each: each.own.group).items():
        slower = [each for each in of if each.pair and each.pair.verdict == SLOWER]
        holes = [each for each in of if each.own.timed is None]
        notes += [f"{group_name(group)}: {advice(each)}" for each in (*slower, *holes)]
    columns = _columns(found, here)
    return table(
        columns, here, title, group=lambda each: group_name(each.own.group), notes=notes, keys=2
    )


def _page(found: Containers) -> Page:
    if not found.rows:
        return Page((NOTHING, *found.matrix.notes), ())
    tables = []
    for machine, here in grouped(found.rows, lambda each: each.own.machine).items():
        tables += [_overview(found, machine, here), _table(found, machine, here)]
    shown = [each.own for each in found.rows if each.own.shown]
    lines = (*_LEGEND, *layout.flag_lines(shown, layout.common_flags(shown)), *found.matrix.notes)
    return Page(tuple(headline(found)), tuple(tables), lines)


def _compared(found: Containers) -> list[tuple[Taken, Pair]]:
    """Return the rows with a thread count to compare with, and their pairs."""
    return [(each, each.pair) for each in found.rows if each.pair is not None]


def headline(found: Containers) -> list[str]:
    """Return for each machine how often default thread counts cost time under a quota, and where
    most.
    """
    what, lines = "under a CPU quota the default thread count costs", []
    for machine, means in grouped(over_networks(found.rows), lambda each: each.machine).items():
        slower = [each for each in means if each.verdict == SLOWER]
        if slower:
            most = max(slower, key=lambda each: each.ratio.value)
            over = (
                f"over {len(most.taken)} networks {what} time for {len(slower)} of {len(means)} "
                "rows and quotas"
            )
            lines.append(f"{found.name(machine)}: {over}. Most: {most.advice}")

    def where(each: Taken, pair: Pair) -> str:
        takes = f"{_name(each)} takes {times(pair.ratio)} the time under a quota of {each.quota:g}"
        return f"{group_name(each.own.group)}: {takes}"

    return [*lines, *pairs.costs(found, _compared(found), what, where)]


def _draw(found: Containers, path: Path) -> list[Path]:
    """Draw a page for each machine: means and each network, rows down, a mark for each quota,
    ratios across.
    """
    pages = []
    for machine, here in grouped(_compared(found), lambda each: each[0].own.machine).items():
        name, condition = _names(each for each, _ in here)
        points = [
            *(
                (
                    f"geometric mean of {len(each.taken)} networks",
                    name(each.row),
                    f"{each.quota:g}",
                    each.ratio,
                )
                for each in over_networks(each for each, _ in here)
            ),
            *(
                (group_name(each.own.group), name(each.own.row), f"{each.quota:g}", pair.ratio)
                for each, pair in here
            ),
        ]
        title = f"Default thread counts under a CPU quota{condition}, on {found.name(machine)}"
        pages.append((title, "times as long as with the best thread count; 95 % intervals", points))
    return pairs.draw(pages, path, series="CPU quota")


REPORT = Report(
    name="containers",
    summary="Default thread counts under a CPU quota, as in a container, and their cost.",
    examples=(
        "dlbench report containers",
        "dlbench report containers --cpu-quota 1 --plot containers.png",
    ),
    analyse=lambda source: containers(source.matrix(), source.results().records),
    page=lambda found, options: _page(found),
    data=lambda found: {
        "rows": objects(_columns(found, found.rows), found.rows),
        "means": objects(_means(found), over_networks(found.rows)),
        "notes": [*headline(found), *found.matrix.notes],
    },
    rows=lambda found: csv_rows(_columns(found, found.rows), found.rows),
    draw=lambda found, path, options: _draw(found, path),
    drawable=lambda found: bool(_compared(found)),
    suggestion="default thread counts under a CPU quota, and their cost",
    applies=lambda cells: any(map(_is_own, cells)),
    options=frozenset({ALL_RUNS}),
    heading="Threads under a CPU quota",
    place=32,
    headline=headline,
)

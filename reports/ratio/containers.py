"""`dlbench report containers`: the threads that frameworks take by themselves under a CPU quota, and their cost.

Most containers set no thread count, and a framework that looks at the machine's CPUs takes as many threads as those,
whatever the quota gives it. Each cell measured so under a quota is compared with the best of the thread counts that
were set under the same quota; `report threads` finds that one. Ratios are adjusted for their number over the report.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell
from dlbench.adapters.tuning import THREAD_SETTING
from dlbench.reports.cells import CellResult, Matrix, Place, grouped
from dlbench.reports.columns import Column, axis_columns, csv_rows, host_columns, objects, table
from dlbench.reports.curve.threads import threads
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import (
    HOLES,
    MISSING,
    Entry,
    Page,
    Table,
    common_flags,
    deviation,
    entry,
    flag_lines,
    number,
    times,
    why_hole,
)
from dlbench.reports.naming import counted, group_name, row_name, threads_name
from dlbench.reports.quantities import QUANTITIES
from dlbench.reports.ratio.pairs import FASTER, SAME, SLOWER, Compared, Pair, draw, mean_of, pair_of, with_verdicts
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.statistics import Ratio
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

NOTHING = "Nothing was measured under a CPU quota without a thread count; `dlbench run containers` does."
_LEGEND = (
    "takes: threads that the framework takes where none are set; sees it: whether those are no more than the CPUs "
    "of the quota, and fewer than without one (-: it would take no more anyway); best p: the thread count to use.",
    "vs best: time with its own threads over that with the best p, with the 95 % interval; throttled: share of the "
    "kernel's periods of 0.1 s in which the quota ran out.",
)


@dataclass(frozen=True)
class Taken:
    """A row under a CPU quota without a thread count, and the count to use there."""

    own: CellResult
    cpus: int
    """Of the quota, in whole ones."""
    unlimited: int | None
    """Threads that it takes without a quota; None where that is not known."""
    pair: Pair | None
    """It and the best count; None where one of them has no time that counts."""
    setting: str = ""
    """What sets the best count; empty where that is not known."""

    @property
    def quota(self) -> float:
        """The CPU quota."""
        return self.own.cell.cpu_quota

    @property
    def threads(self) -> int | None:
        """Threads that it takes."""
        return None if self.own.observed is None else self.own.observed.taken_threads

    @property
    def sees_quota(self) -> bool | None:
        """Whether it takes fewer threads because of the quota; None where it would take no more anyway."""
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


Containers = Compared[Taken]


def containers(matrix: Matrix, records: Iterable[Record]) -> Containers:
    """Compare each cell under a quota without a thread count with the best count under the same quota."""
    settings = {Place(each.machine, axes.project(each.cell, axes.NAMES)): each.outcome.software for each in records}
    best = {curve.place: curve.found["best_threads"] for curve in threads(matrix).curves}
    found = []
    for cell in matrix.cells.values():
        if not _is_own(cell.cell):
            continue
        count = best.get(Place(cell.machine, axes.without(cell.cell, "threads")))
        to_use = Place(cell.machine, cell.cell._replace(threads=count or 0))
        free = matrix.cells.get(Place(cell.machine, cell.cell._replace(cpu_quota=0.0)))
        unlimited = free.observed.taken_threads if free is not None and free.observed else cell.default_threads
        host: Host = matrix.hosts[cell.machine].under(cell.cell.cpu_quota)
        pair = pair_of(cell, matrix.cells.get(to_use) if count else None)
        setting = str(settings.get(to_use, {}).get(THREAD_SETTING, "")) if count else ""
        cpus = host.effective_cpus or math.ceil(cell.cell.cpu_quota)
        found.append(Taken(cell, cpus, unlimited, pair, setting))
    judged = iter(with_verdicts([each.pair for each in found if each.pair is not None], lambda pair: True))
    return Compared(matrix, tuple(replace(each, pair=next(judged)) if each.pair else each for each in found))


def _is_own(cell: Cell) -> bool:
    return bool(cell.cpu_quota) and cell.on_cpu and cell.threads == 0 and cell.world_size == 1


def _name(row: Cell) -> str:
    return row_name(row._replace(tuning=TUNED))


def _names(rows: Iterable[Taken]) -> tuple[Callable[[Taken], str], str]:
    """Return the names of rows, without their settings where these tell none apart, and what to add to a title then."""
    cells = {each.own.row for each in rows}
    if len({cell._replace(tuning=TUNED) for cell in cells}) < len(cells):
        return (lambda each: row_name(each.own.row)), ""
    installed = any(cell.tuning == INSTALLED for cell in cells)
    return (lambda each: _name(each.own.row)), ", as installed" if installed else ""


def advice(each: Taken) -> str:
    """Return one sentence: the threads that a row takes under the quota, what they cost, and what to set."""
    under = f"under a CPU quota of {each.quota:g}"
    if each.own.timed is None:
        return f"{_name(each.own.row)} has no time {under}: {why_hole(each.own)}."
    takes = f"{_name(each.own.row)} takes {threads_name(each.threads) or 'its own threads'} {under}"
    if each.pair is None:
        return f"{takes}; no thread count was set there to compare with."
    ratio, as_with = each.pair.ratio, f"as long as with {each.best}"
    ends = "" if ratio.low is None or ratio.high is None else f" ({number(ratio.low)}-{number(ratio.high)})"
    cost = f"a step takes {number(ratio.value)}x{ends} {as_with}"
    if each.pair.verdict == SLOWER:
        return f"{takes}: {cost}. Set {each.setting or threads_name(each.best)}."
    if each.pair.verdict == FASTER:
        return f"{takes}: {cost}; leave it at that."
    if each.pair.verdict == SAME:
        return f"{takes}: a step takes {as_with}; there is nothing to set."
    return f"{takes}: {cost}, which noise may explain."


# The table of frameworks and quotas.


class _Line(NamedTuple):
    group: str
    name: str
    fields: Mapping[float, Entry]


def _field(each: Taken) -> Entry:
    if each.own.timed is None:
        return Entry(HOLES[each.own.status], hole=True)
    return Entry(MISSING) if each.pair is None else _of_ratio(each.pair.ratio, each.pair.verdict)


def _of_ratio(found: Ratio, verdict: str = "") -> Entry:
    marks = {SLOWER: "!", FASTER: "+"}.get(verdict, "")
    return Entry(f"{number(found.value)}x", deviation(found.value, found.low, found.high), marks)


def _overview(found: Containers, machine: str, here: Sequence[Taken]) -> Table:
    """Return the table of rows and quotas: first the means over networks, then each network."""
    lines = []
    name, condition = _names(here)
    for group, of_group in grouped(here, lambda each: each.own.group).items():
        for of_row in grouped(of_group, lambda each: each.own.row).values():
            lines.append(_Line(group_name(group), name(of_row[0]), {each.quota: _field(each) for each in of_row}))
    networks = len({each.own.group for each in here})
    means = []
    for of_row in grouped(here, lambda each: each.own.row).values() if networks > 1 else ():
        pairs = grouped((each for each in of_row if each.pair), lambda each: each.quota)
        complete = {
            quota: [each.pair for each in of if each.pair] for quota, of in pairs.items() if len(of) == networks
        }
        fields = {quota: _of_ratio(mean_of(of).ratio) for quota, of in complete.items()}
        means += [_Line(f"geometric mean of {networks} networks", name(of_row[0]), fields)] if fields else []
    columns: list[Column[_Line]] = [Column("", "CPU quota", lambda line: line.name)]
    for quota in sorted({each.quota for each in here}):
        columns.append(Column("", f"{quota:g}", lambda line, of=quota: line.fields.get(of, MISSING)))  # type: ignore[misc]
    title = f"Time with its own threads over that with the best count{condition}, on {found.name(machine)}"
    return table(columns, [*means, *lines], title, group=lambda line: line.group, notes=_marks(here))


def _marks(here: Sequence[Taken]) -> list[str]:
    verdicts = {each.pair.verdict for each in here if each.pair}
    meanings = {SLOWER: "! clearly slower than with the best count", FASTER: "+ clearly faster than with any count set"}
    return [meaning for verdict, meaning in meanings.items() if verdict in verdicts]


# A line for each framework and quota.


def _share(each: Taken) -> str:
    return MISSING if each.throttled is None else f"{each.throttled:.0%}"


def _columns(found: Containers, rows: Sequence[Taken]) -> tuple[Column[Taken], ...]:
    common = common_flags(each.own for each in rows if each.own.shown)
    name, _ = _names(rows)
    seconds = QUANTITIES["seconds"]
    return (
        *host_columns(lambda each: found.matrix.hosts[each.own.machine]),
        *axis_columns(
            lambda each: each.own.cell, [name for name in axes.NAMES if name not in ("threads", "cpu_quota")]
        ),
        Column("", "", name),
        Column("cpu_quota", "quota", lambda each: each.quota, lambda each: f"{each.quota:g}"),
        Column("status", None, lambda each: each.own.status),
        Column("reason", None, lambda each: each.own.reason),
        Column("threads_taken", "takes", lambda each: each.threads),
        Column("threads_without_quota", None, lambda each: each.unlimited),
        Column("sees_quota", "sees it", lambda each: each.sees_quota),
        Column(
            "seconds_per_minibatch",
            "s/batch",
            lambda each: each.own.seconds,
            lambda each: entry(each.own, seconds, set(common))._replace(best=False),
            MEDIAN,
        ),
        Column("best_threads", "best p", lambda each: each.best),
        Column("ratio", "vs best", lambda each: None if each.pair is None else each.pair.ratio, _field, VALUE),
        Column("verdict", None, lambda each: None if each.pair is None else each.pair.verdict),
        Column("throttled_periods", "throttled", lambda each: each.throttled, _share),
        Column("setting", None, lambda each: each.setting),
        Column("advice", None, advice),
    )


def _table(found: Containers, machine: str, here: Sequence[Taken]) -> Table:
    title = f"Threads under a CPU quota{_names(here)[1]}, on {found.name(machine)}"
    of_group = grouped(here, lambda each: each.own.group)
    notes = []
    for group, of in of_group.items():
        notes += [f"{group_name(group)}: {advice(each)}" for each in of if each.pair and each.pair.verdict == SLOWER]
        notes += [f"{group_name(group)}: {advice(each)}" for each in of if each.own.timed is None]
    columns = _columns(found, here)
    return table(columns, here, title, group=lambda each: group_name(each.own.group), notes=notes, keys=2)


def _page(found: Containers) -> Page:
    if not found.rows:
        return Page((NOTHING, *found.matrix.notes), ())
    tables = []
    for machine, here in grouped(found.rows, lambda each: each.own.machine).items():
        tables += [_overview(found, machine, here), _table(found, machine, here)]
    shown = [each.own for each in found.rows if each.own.shown]
    lines = (*_LEGEND, *flag_lines(shown, common_flags(shown)), *found.matrix.notes)
    return Page(tuple(headline(found)), tuple(tables), lines)


def headline(found: Containers) -> list[str]:
    """Return for each machine how often a framework's own threads cost time under a quota, and where most."""
    lines = []
    for machine, here in grouped((each for each in found.rows if each.pair), lambda each: each.own.machine).items():
        pairs = [(each, each.pair) for each in here if each.pair and each.pair.verdict == SLOWER]
        head = f"{found.name(machine)}: under a CPU quota the threads that a framework takes by itself"
        if not pairs:
            lines.append(f"{head} cost no significant time in {counted(len(here), 'cell')}.")
            continue
        most, pair = max(pairs, key=lambda each: each[1].ratio.value)
        where = f"{group_name(most.own.group)}: {_name(most.own.row)} takes {times(pair.ratio)} the time"
        share = f"cost time in {len(pairs)} of {counted(len(here), 'cell')}"
        lines.append(f"{head} {share}, most on {where} under a quota of {most.quota:g}.")
    return lines


def _draw(found: Containers, path: Path) -> list[Path]:
    """Draw a page for each machine: a panel for each network, rows down, a mark for each quota, ratios across."""
    pages = []
    for machine, here in grouped((each for each in found.rows if each.pair), lambda each: each.own.machine).items():
        points = [
            (group_name(each.own.group), _name(each.own.row), f"{each.quota:g}", each.pair.ratio)
            for each in here
            if each.pair is not None
        ]
        title = f"Threads that frameworks take by themselves under a CPU quota, on {found.name(machine)}"
        pages.append((title, "times as long as with the best thread count; 95 % intervals", points))
    return draw(pages, path, series="CPU quota")


REPORT = Report(
    name="containers",
    summary="The threads that frameworks take by themselves under a CPU quota, as in a container, and their cost.",
    examples=("dlbench report containers", "dlbench report containers --cpu-quota 1 --plot containers.png"),
    analyse=lambda source: containers(source.matrix(), source.results().records),
    page=lambda found, options: _page(found),
    data=lambda found: {
        "rows": objects(_columns(found, found.rows), found.rows),
        "notes": [*headline(found), *found.matrix.notes],
    },
    rows=lambda found: csv_rows(_columns(found, found.rows), found.rows),
    draw=lambda found, path, options: _draw(found, path),
    drawable=lambda found: any(each.pair for each in found.rows),
    suggestion="threads that frameworks take under a CPU quota, and their cost",
    applies=lambda cells: any(map(_is_own, cells)),
    options=frozenset({ALL_RUNS}),
    heading="Threads under a CPU quota",
    place=32,
    headline=headline,
    has_section=lambda found: bool(found.rows),
)

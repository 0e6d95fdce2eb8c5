"""Machine against machine as words, tables and a picture."""

from collections.abc import Iterable
from pathlib import Path

from dlbench.reports.cells import NO_THREADS, CellResult, Group
from dlbench.reports.formats.dots import Dots, Panel, dots_to_picture
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table, number, times
from dlbench.reports.machines.analysis import FASTER, SLOWER, Against, Machines, Mean, Pair
from dlbench.reports.naming import WORKERS_LEGEND, group_name, head_of, row_name
from dlbench.reports.statistics import judge
from dlbench.reports.storage.hosts import name_among

ONE = (
    "There are results of one machine only, nothing to compare; give the stores of others too: "
    "--store here.sqlite --store there.sqlite. Machines of the same hardware count as one here: `dlbench compare` "
    "compares their runs."
)
_LEGEND = (
    "Ratio: seconds on the machine over seconds on the other one, with the 95 % interval; above 1 it takes longer.",
    "slower, faster: noise does not explain it (Welch's t, adjusted after Holm for the number of cells; of fewer than "
    "3 launches the interval, widened by an assumed 2 %). same: the whole interval lies within 2 % of 1.",
)
_MEANS = (
    "mean: geometric mean over the cells that both machines have; its verdict is by its own interval, not adjusted. "
    "cells: how many."
)


def machines_page(found: Machines) -> Page:
    """Return for each machine two tables: the mean of each row, and each cell."""
    if not found.against:
        return Page((ONE, *found.matrix.notes), ())
    before, tables = [], []
    for each in found.against:
        name, other = _names(found, each)
        if not each.pairs:
            before.append(f"{name} and {other} have no cell with a time in common.")
            continue
        before.append(_summary(found, each))
        shown = bool(any(pair.verdict for pair in each.pairs))
        tables += [_means(each, f"{name} against {other}", shown), _cells(each, f"{name} against {other}", shown)]
    workers = any(pair.one.column.world_size > 1 for each in found.against for pair in each.pairs)
    after = (*_LEGEND[: 1 + any(not each.unlike for each in found.against)], _MEANS)
    return Page(tuple(before), tuple(tables), (*after, *((WORKERS_LEGEND,) if workers else ()), *found.matrix.notes))


def headline(found: Machines) -> list[str]:
    """Return for each machine how far it is from the other one, where noise does not explain it."""
    told = [each for each in found.against if each.overall and judge(each.overall) != "no clear difference"]
    return [_summary(found, each) for each in told]


def draw_machines(found: Machines, path: Path) -> list[Path]:
    """Draw a page for each machine: a panel for each network, rows down, ratios across. Raises ReportError."""
    return dots_to_picture([_dots(found, each) for each in found.against if each.pairs], path)


def _names(found: Machines, against: Against) -> tuple[str, str]:
    return name_among(found.matrix.hosts, against.other), name_among(found.matrix.hosts, against.one)


def _summary(found: Machines, against: Against) -> str:
    name, other = _names(found, against)
    count = len(against.pairs)
    cells = f"{count} cell{'s' if count > 1 else ''}"
    line = f"{name} takes {times(against.overall)} the time of {other} (geometric mean of {cells})."
    if against.unlike:
        line += f" No verdict, since the machines are of different kinds: {'; '.join(against.unlike)}."
    if others := sum(pair.other_environment for pair in against.pairs):
        line += f" On {others} of {count} the framework is another build there: the ratio is of software too."
    return line


def _means(against: Against, title: str, shown: bool) -> Table:
    rows = tuple(_mean(mean, shown) for mean in against.means)
    head = ("", "mean", "cells", *(("verdict",) if shown else ()))
    return Table(f"{title}: rows", head, rows)


def _mean(mean: Mean, shown: bool) -> tuple[Entry, ...]:
    entries = (Entry(row_name(mean.row)), Entry(times(mean.ratio)), Entry(str(mean.cells)))
    return (*entries, _verdict(mean.verdict)) if shown else entries


def _cells(against: Against, title: str, shown: bool) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for group, pairs in _by_group(against.pairs).items():
        rows.append((Entry(group_name(group)),))
        rows += [_cell(pair, shown) for pair in pairs]
    head = ("", "p", "s/batch", "other", "ratio", *(("verdict",) if shown else ()))
    return Table(f"{title}: cells", head, tuple(rows), keys=2)


def _cell(pair: Pair, shown: bool) -> tuple[Entry, ...]:
    seconds = (Entry(number(each.timed.median)) if each.timed else Entry(MISSING) for each in (pair.other, pair.one))
    entries = (Entry(row_name(pair.one.row)), Entry(_place(pair.one)), *seconds, Entry(times(pair.ratio)))
    return (*entries, _verdict(pair.verdict)) if shown else entries


def _verdict(word: str) -> Entry:
    return Entry(word or MISSING, hole=word == SLOWER, best=word == FASTER)


def _place(cell: CellResult) -> str:
    where = cell.column
    return head_of(where.cell if where.on_cpu else where.cell._replace(threads=NO_THREADS))


def _by_group(pairs: Iterable[Pair]) -> dict[Group, list[Pair]]:
    found: dict[Group, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.one.group, []).append(pair)
    return found


def _dots(found: Machines, against: Against) -> Dots:
    panels = []
    for group, pairs in _by_group(against.pairs).items():
        points = {
            (row_name(pair.one.row), _place(pair.one)): (pair.ratio.value, pair.ratio.low, pair.ratio.high)
            for pair in pairs
        }
        names = tuple(dict.fromkeys(row_name(pair.one.row) for pair in pairs))
        panels.append(Panel(group_name(group), names, points))
    name, other = _names(found, against)
    across = f"seconds over those on {other}; 95 % intervals"
    return Dots(f"{name} against {other}", across, tuple(panels), same=1.0)

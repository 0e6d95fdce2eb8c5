"""`dlbench report frameworks`: the time of each row over that of one of them, over the networks that both have.

The reference of a machine is the row with the most times, of several the fastest. The same cells are compared as in
the matrix.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import CellResult, Matrix, Place, differ, in_the_running
from dlbench.reports.columns import GROUP, PLACE, ROW, VALUE, Column, axis_columns, csv_rows, objects, table, within
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table, deviation, number, times
from dlbench.reports.naming import WORKERS_LEGEND, row_name
from dlbench.reports.ratio.pairs import Mean, counted, draw, machine_columns, mean_of, pair_of, place_heading
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.statistics import Ratio, judge
from dlbench.reports.storage.hosts import name_among

NOTHING = "No two frameworks, or modes of one, have a time for the same network at the same place; nothing to compare."
_LEGEND = (
    "Seconds of the row over those of the reference (the row with the most times, of several the fastest): below 1 it "
    "is faster. Geometric means over the networks that both have a time for there; (n): over how many, each mini-batch "
    "on its own.",
    "Means over different networks do not compare with one another: rows with a part of the reference's times stand "
    "apart. ± is the wider side of the 95 % interval: it holds "
    "for these very networks.",
    "wins, losses: networks at places where the row is clearly faster, or clearly slower, than the reference; without "
    "a real difference, about 1 comparison in 20 still shows one.",
)
_FEW = (
    "Some times are of fewer than 3 launches: their intervals cover variation within a launch, widened by the "
    "deviation between launches that other cells of the machine show (5 % where these are too few)."
)
_WHOLE, _PART = "over all of them", "over some of them"
_ITSELF = Ratio(1.0, 1.0, 1.0, "the reference itself")
Times = Mapping[tuple[Place, Cell], CellResult]


@dataclass(frozen=True)
class Standing:
    """A row beside the reference."""

    row: Cell
    means: Mapping[Place, Mean]
    """By the columns in which both have a network in common."""
    overall: Mean
    """Over all columns."""


@dataclass(frozen=True)
class Compared:
    """The rows of one machine."""

    machine: str
    reference: Cell
    places: tuple[Place, ...]
    """Those in which anything is compared."""
    standings: tuple[Standing, ...]
    """The reference among them: first rows that have all of its times, then others; the fastest first."""
    apart: tuple[Cell, ...]
    """Rows that have nothing in common with the reference."""

    def whole(self, standing: Standing) -> bool:
        """Tell whether a row has all times of the reference."""
        return len(standing.overall.pairs) == max(len(each.overall.pairs) for each in self.standings)


@dataclass(frozen=True)
class Frameworks:
    """All machines of a matrix on which there are two rows to compare."""

    matrix: Matrix
    machines: tuple[Compared, ...]


def frameworks(matrix: Matrix) -> Frameworks:
    """Compare the rows of each machine of a matrix."""
    found = (_compared(matrix, machine) for machine in matrix.machines)
    return Frameworks(matrix, tuple(each for each in found if each is not None))


def _times_of(matrix: Matrix, machine: str) -> dict[Cell, dict[tuple[Place, Cell], CellResult]]:
    by_place: dict[tuple[Place, Cell], list[CellResult]] = {}
    for cell in matrix.cells.values():
        if cell.machine == machine:
            by_place.setdefault((cell.column, cell.group), []).append(cell)
    found: dict[Cell, dict[tuple[Place, Cell], CellResult]] = {}
    for at, cells in by_place.items():
        for cell, _ in in_the_running(cells):
            found.setdefault(cell.row, {})[at] = cell
    return found


def _reference(found: Mapping[Cell, Times]) -> Cell:
    """Return the row with the most times, of several the fastest where all of these have a time."""
    most = max(map(len, found.values()))
    rows = [row for row, times in found.items() if len(times) == most]
    common = set.intersection(*(set(found[row]) for row in rows))

    def rank(row: Cell) -> tuple[float, str]:
        return math.fsum(math.log(cell.timed.median) for at in common if (cell := found[row][at]).timed), row_name(row)

    return min(rows, key=rank)


def _compared(matrix: Matrix, machine: str) -> Compared | None:
    found = _times_of(matrix, machine)
    if len(found) < 2:
        return None
    reference = _reference(found)
    standings = [each for row, of in found.items() if (each := _standing(row, of, found[reference])) is not None]
    if len(standings) < 2:
        return None
    most = len(found[reference])
    standings.sort(key=lambda each: (len(each.overall.pairs) < most, each.overall.ratio.value))
    used = {place for each in standings if each.row != reference for place in each.means}
    apart = tuple(row for row in found if row not in {each.row for each in standings})
    places = tuple(place for place in matrix.columns_of(machine) if place in used)
    return Compared(machine, reference, places, tuple(standings), apart)


def _standing(row: Cell, of: Times, reference: Times) -> Standing | None:
    pairs = {at: pair for at in of if (pair := pair_of(of[at], reference.get(at))) is not None}
    if not pairs:
        return None
    places = dict.fromkeys(place for place, _ in pairs)
    means = {place: mean_of([pair for at, pair in pairs.items() if at[0] == place]) for place in places}
    overall = mean_of(list(pairs.values()))
    if of is reference:
        means = {place: replace(mean, ratio=_ITSELF) for place, mean in means.items()}
        overall = replace(overall, ratio=_ITSELF)
    return Standing(row, means, overall)


_MEAN: tuple[Column[Mean], ...] = (
    Column("ratio", None, lambda mean: mean.ratio, fields=VALUE),
    Column(
        "networks", None, lambda mean: [_axes(group, GROUP) for group in mean.groups], csv=lambda mean: len(mean.groups)
    ),
    Column("wins", "wins", lambda mean: mean.count("better")),
    Column("losses", "losses", lambda mean: mean.count("worse")),
)


def _axes(cell: Cell, names: Sequence[str]) -> dict[str, Any]:
    return objects(axis_columns(lambda each: each, names), [cell])[0]


def _page(found: Frameworks) -> Page:
    """Return a table for each machine: rows down, threads and devices across."""
    if not found.machines:
        return Page((NOTHING, *found.matrix.notes), ())
    pairs = [pair for each in found.machines for standing in each.standings for pair in standing.overall.pairs]
    few = any(not side.covers_launches for pair in pairs for side in pair.times)
    workers = any(place.world_size > 1 for each in found.machines for place in each.places)
    after = (*_LEGEND, *((_FEW,) if few else ()), *((WORKERS_LEGEND,) if workers else ()), *found.matrix.notes)
    return Page((), tuple(_table(found, each) for each in found.machines), after)


def _table(found: Frameworks, compared: Compared) -> Table:
    def field_of(place: Place, standing: Standing) -> Entry:
        mean = standing.means.get(place)
        if mean is None:
            return Entry("" if standing.row == compared.reference else MISSING)
        if standing.row == compared.reference:
            return Entry("1", marks=f" ({len(mean.groups)})")
        ratio = mean.ratio
        return Entry(number(ratio.value), deviation(ratio.value, ratio.low, ratio.high), f" ({len(mean.groups)})")

    def count(standing: Standing, verdict: str) -> str:
        return "" if standing.row == compared.reference else str(standing.overall.count(verdict))

    columns: list[Column[Standing]] = [Column("", "", lambda each: row_name(each.row))]
    for place in compared.places:
        columns.append(Column("", place_heading(place.cell), lambda each, place=place: field_of(place, each)))  # type: ignore[misc]
    columns += [
        Column("", "wins", lambda each: count(each, "better")),
        Column("", "losses", lambda each: count(each, "worse")),
    ]
    several = len({compared.whole(each) for each in compared.standings}) > 1
    title = f"Times as long as {row_name(compared.reference)}, on {name_among(found.matrix.hosts, compared.machine)}"
    apart = ", ".join(map(row_name, compared.apart))
    return table(
        columns,
        compared.standings,
        title,
        group=(lambda each: _WHOLE if compared.whole(each) else _PART) if several else None,
        notes=(f"Nothing in common with the reference: {apart}.",) if apart else (),
    )


def headline(found: Frameworks) -> list[str]:
    """Return for each machine the lead of the fastest row over the next, where noise does not explain it."""
    lines = []
    for each in found.machines:
        whole = [standing for standing in each.standings if each.whole(standing) and standing.row != each.reference]
        ahead = [standing for standing in whole if judge(standing.overall.ratio) == "better"]
        behind = [standing for standing in whole if judge(standing.overall.ratio) == "worse"]
        name, reference = name_among(found.matrix.hosts, each.machine), row_name(each.reference)
        if ahead:
            first = ahead[0]
            line = f"{row_name(first.row)} takes {times(first.overall.ratio)} the time of {reference}"
        elif behind and len(behind) == len(whole):
            first = behind[0]
            line = f"{reference} is the fastest; {row_name(first.row)} takes {times(first.overall.ratio)} its time"
        else:
            continue
        lines.append(f"{name}: over all networks and places, {line} (geometric mean of {_extent(first.overall)}).")
    return lines


def _extent(mean: Mean) -> str:
    networks = counted(len(mean.groups), "network")
    if len(mean.pairs) == len(mean.groups):
        return networks
    return f"{len(mean.pairs)} pairs: {networks} at {counted(len({pair.cell.column for pair in mean.pairs}), 'place')}"


def _data(found: Frameworks) -> dict[str, Any]:
    return {
        "machines": [
            {
                **objects(machine_columns(found.matrix.hosts, lambda of: of.machine), [each])[0],
                "against": _axes(each.reference, ROW),
                "rows": [
                    {
                        **_axes(standing.row, ROW),
                        "overall": objects(_MEAN, [standing.overall])[0],
                        "places": [
                            {**_axes(place.cell, PLACE), **objects(_MEAN, [mean])[0]}
                            for place, mean in standing.means.items()
                        ],
                    }
                    for standing in each.standings
                ],
                "apart": [_axes(row, ROW) for row in each.apart],
            }
            for each in found.machines
        ],
        "notes": list(found.matrix.notes),
    }


def _rows(found: Frameworks) -> Rows:
    """Return a line for each row at each place."""
    columns: tuple[Column[tuple[Compared, Standing, Place]], ...] = (
        *machine_columns(found.matrix.hosts, lambda row: row[0].machine),
        *axis_columns(lambda row: row[2].cell, PLACE),
        *axis_columns(lambda row: row[1].row, ROW),
        Column("against", None, lambda row: _axes(row[0].reference, ROW), fields=ROW),
        *within(_MEAN, lambda row: row[1].means[row[2]]),
    )
    return csv_rows(
        columns, [(each, of, place) for each in found.machines for of in each.standings for place in of.means]
    )


def _draw(found: Frameworks, path: Path) -> list[Path]:
    """Draw a page for each machine: rows down, a mark for each place, ratios across."""
    pages = []
    for each in found.machines:
        reference = row_name(each.reference)
        points = [
            ("", row_name(standing.row), place_heading(place.cell), standing.means[place].ratio)
            for standing in each.standings
            for place in each.places
            if place in standing.means and standing.row != each.reference
        ]
        across = f"times as long as {reference}, geometric mean over the networks of both; 95 % intervals"
        pages.append(
            (f"Framework against framework, on {name_among(found.matrix.hosts, each.machine)}", across, points)
        )
    return draw(pages, path, columns=1)


def _applies(cells: Collection[Cell]) -> bool:
    several = len({axes.project(each, GROUP) for each in cells}) > 1
    return several and differ(cells, *ROW)


REPORT = Report(
    name="frameworks",
    summary="How many times as long each framework takes as one of them, over the networks that both have.",
    examples=("dlbench report frameworks", "dlbench report frameworks --threads 1,2 --plot frameworks.png"),
    analyse=lambda source: frameworks(source.matrix()),
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
    draw=lambda found, path, options: _draw(found, path),
    drawable=lambda found: bool(found.machines),
    suggestion="framework against framework, over all networks",
    applies=_applies,
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Framework against framework",
    place=15,
    headline=headline,
    has_section=lambda found: bool(found.machines),
)

"""`dlbench report frameworks`: the time of each row relative to a reference row, over the networks
that both have.

The reference of a machine is the row with the most times, of several the fastest. The same cells
are compared as in the matrix.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import (
    GROUP,
    PLACE,
    ROW,
    Column,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.formats.csv import VALUE, Rows
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table
from dlbench.reports.left_out import left_out, not_compared
from dlbench.reports.ratio.pairs import Mean, Pair, draw, mean_of, pair_of
from dlbench.reports.report import ALL_RUNS, QUANTITY, REFERENCE, Report
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.keys import Place, differ, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, place_heading, row_name
from dlbench.reports.results.number_text import deviation, number, times
from dlbench.reports.results.quantities import COMPARED, QUANTITIES, SECONDS, in_quantity, legend
from dlbench.reports.results.statistics import Ratio, judge

NOTHING = (
    "No two frameworks, or modes of one, have a time for the same network at the same place; "
    "nothing to compare."
)
_OF_SECONDS = (
    "Seconds of the row over those of the reference (the row with the most times, of several the "
    "fastest): below 1 it is faster."
)
_LEGEND = (
    (
        "Geometric means over the networks that both have a time for; (n): their number, with each "
        "mini-batch counted separately."
    ),
    (
        "Means over different networks are not comparable: rows with only some of the reference's "
        "times are listed separately. ± is the wider side of the 95 % interval, which holds for "
        "these networks only."
    ),
    (
        "wins, losses: networks at places where the row is clearly better, or clearly worse, than "
        "the reference; without a real difference, about 1 comparison in 20 still shows one."
    ),
)
_FEW = (
    "Some times are of fewer than 3 launches: their intervals cover variation within a launch, "
    "widened by the deviation between launches that other cells of the machine show (5 % where "
    "these are too few)."
)
_WHOLE, _PART = "over all of them", "over some of them"
_ITSELF = Ratio(1.0, 1.0, 1.0, "the reference itself")
Frameworks = Compared[list[Mean]]
"""A list for each machine with two rows to compare: the mean of each row over all places, the
reference among them.

First rows that have all of its times, then others; the fastest first.
"""


def frameworks(matrix: Matrix) -> Frameworks:
    """Compare the rows of each machine of a matrix."""
    found = (_compared(matrix, machine) for machine in matrix.machines)
    return Compared(matrix, tuple(each for each in found if len(each) > 1))


def _times_of(matrix: Matrix, machine: str) -> dict[Cell, dict[tuple[Place, Cell], CellResult]]:
    here = (cell for cell in matrix.cells.values() if cell.machine == machine)
    found: dict[Cell, dict[tuple[Place, Cell], CellResult]] = {}
    for at, cells in grouped(here, lambda cell: (cell.column, cell.group)).items():
        for cell, _ in in_the_running(cells):
            found.setdefault(cell.row, {})[at] = cell
    return found


def _compared(matrix: Matrix, machine: str) -> list[Mean]:
    found = _times_of(matrix, machine)
    most = max(map(len, found.values()), default=0)
    rows = [row for row, of in found.items() if len(of) == most]
    common = set.intersection(*(set(found[row]) for row in rows)) if rows else set()

    def rank(row: Cell) -> tuple[float, str]:
        return math.fsum(
            math.log(cell.timed.median) for at in common if (cell := found[row][at]).timed
        ), row_name(row)

    against = min(rows, key=rank, default=None)
    standings = []
    for of in found.values():
        pairs = [
            pair
            for at in of
            if against and (pair := pair_of(of[at], found[against].get(at))) is not None
        ]
        if pairs:
            standings.append(_mean(pairs))
    return sorted(standings, key=lambda each: (len(each.pairs) < most, each.ratio.value))


def _mean(pairs: Sequence[Pair]) -> Mean:
    found = mean_of(pairs)
    return replace(found, ratio=_ITSELF) if _is_reference(found) else found


def _is_reference(mean: Mean) -> bool:
    return mean.row == mean.other_row


def _by_place(mean: Mean) -> dict[Place, Mean]:
    return {
        place: _mean(pairs)
        for place, pairs in grouped(mean.pairs, lambda pair: pair.cell.column).items()
    }


def _machine(means: Sequence[Mean]) -> str:
    return means[0].pairs[0].cell.machine


def _places(found: Frameworks, means: Sequence[Mean]) -> list[Place]:
    """Return the columns in which anything is compared."""
    used = {pair.cell.column for each in means if not _is_reference(each) for pair in each.pairs}
    return [place for place in found.matrix.columns_of(_machine(means)) if place in used]


def _apart(found: Frameworks, means: Sequence[Mean]) -> list[Cell]:
    """Return the rows that have nothing in common with the reference."""
    return [
        row
        for row in _times_of(found.matrix, _machine(means))
        if row not in {each.row for each in means}
    ]


def _whole(mean: Mean, means: Sequence[Mean]) -> bool:
    """Tell whether a row has all times of the reference."""
    return len(mean.pairs) == max(len(each.pairs) for each in means)


def _page(found: Frameworks) -> Page:
    """Return a table for each machine: rows down, threads and devices across."""
    if not found.rows:
        nothing = (
            NOTHING
            if found.matrix.quantity == SECONDS
            else NOTHING.replace("a time", "this quantity")
        )
        return Page((nothing, *left_out(not_compared(found.matrix)), *found.matrix.notes), ())
    pairs = [pair for means in found.rows for each in means for pair in each.pairs]
    few = any(not side.covers_launches for pair in pairs for side in pair.times)
    legends = axes.legends(place.cell for means in found.rows for place in _places(found, means))
    quantity, what = found.matrix.quantity, _OF_SECONDS
    if quantity != SECONDS:
        meant = f" ({legend(quantity)})" if legend(quantity) else ""
        what = (
            f"{QUANTITIES[quantity].title}{meant}: the row's over the reference's; below 1 the row "
            "has less."
        )
    after = (f"{what} {_LEGEND[0]}", *_LEGEND[1:], *((_FEW,) if few else ()), *legends)
    after = (*after, *left_out(not_compared(found.matrix)), *found.matrix.notes)
    return Page((), tuple(_table(found, each) for each in found.rows), after)


def _table(found: Frameworks, means: Sequence[Mean]) -> Table:
    def field_of(mean: Mean, place: Place) -> Entry:
        there = _by_place(mean).get(place)
        if there is None:
            return Entry("" if _is_reference(mean) else MISSING)
        ratio, count = there.ratio, f" ({len(there.groups)})"
        if _is_reference(mean):
            return Entry("1", marks=count)
        return Entry(number(ratio.value), deviation(ratio.value, ratio.low, ratio.high), count)

    columns: list[Column[Mean]] = [Column("", "", lambda each: row_name(each.row))]
    for place in _places(found, means):
        columns.append(
            Column("", place_heading(place.cell), lambda each, place=place: field_of(each, place))
        )  # type: ignore[misc]
    for name, verdict in (("wins", "better"), ("losses", "worse")):
        columns.append(
            Column(
                "",
                name,
                lambda each, verdict=verdict: "" if _is_reference(each) else each.count(verdict),
            )  # type: ignore[misc]
        )
    several = len({_whole(each, means) for each in means}) > 1
    apart = ", ".join(map(row_name, _apart(found, means)))
    return table(
        columns,
        means,
        f"{_multiple(found, means)}, on {found.name(_machine(means))}",
        group=(lambda each: _WHOLE if _whole(each, means) else _PART) if several else None,
        notes=(f"Nothing in common with the reference: {apart}.",) if apart else (),
    )


def _multiple(found: Frameworks, means: Sequence[Mean]) -> str:
    """Return what the ratios are: "Times as long as torch eager"."""
    reference, quantity = row_name(means[0].other_row), found.matrix.quantity
    if quantity == SECONDS:
        return f"Times as long as {reference}"
    return f"{QUANTITIES[quantity].title}: times as much as {reference}"


def headline(found: Frameworks) -> list[str]:
    """Return for each machine the lead of the fastest row over the next, where noise does not
    explain it.
    """
    lines = []
    for means in found.rows:
        whole = [each for each in means if _whole(each, means) and not _is_reference(each)]
        ahead = [each for each in whole if judge(each.ratio) == "better"]
        behind = [each for each in whole if judge(each.ratio) == "worse"]
        reference = row_name(means[0].other_row)
        if ahead:
            first = ahead[0]
            line = f"{row_name(first.row)} takes {times(first.ratio)} the time of {reference}"
        elif behind and len(behind) == len(whole):
            first = behind[0]
            line = (
                f"{reference} is the fastest; {row_name(first.row)} takes {times(first.ratio)} its "
                "time"
            )
        else:
            continue
        extent = counted(len(first.groups), "network")
        if len(first.pairs) > len(first.groups):
            extent = (
                f"{len(first.pairs)} pairs: {extent} at {counted(len(_by_place(first)), 'place')}"
            )
        name = found.name(_machine(means))
        lines.append(f"{name}: over all networks and places, {line} (geometric mean of {extent}).")
    return lines


_MEAN: tuple[Column[Mean], ...] = (
    Column("ratio", None, lambda mean: mean.ratio, fields=VALUE),
    Column(
        "networks",
        None,
        lambda mean: [_axes(group, GROUP) for group in mean.groups],
        csv=lambda mean: len(mean.groups),
    ),
    Column("wins", "wins", lambda mean: mean.count("better")),
    Column("losses", "losses", lambda mean: mean.count("worse")),
)


def _axes(cell: Cell, names: Sequence[str]) -> dict[str, Any]:
    return objects(axis_columns(lambda each: each, names), [cell])[0]


def _data(found: Frameworks) -> dict[str, Any]:
    return {
        "quantity": found.matrix.quantity,
        "machines": [
            {
                **objects(host_columns(lambda of: found.matrix.hosts[_machine(of)]), [means])[0],
                "against": _axes(means[0].other_row, ROW),
                "rows": [
                    {
                        **_axes(mean.row, ROW),
                        "overall": objects(_MEAN, [mean])[0],
                        "places": [
                            {**_axes(place.cell, PLACE), **objects(_MEAN, [there])[0]}
                            for place, there in _by_place(mean).items()
                        ],
                    }
                    for mean in means
                ],
                "apart": [_axes(row, ROW) for row in _apart(found, means)],
            }
            for means in found.rows
        ],
        "notes": [*left_out(not_compared(found.matrix)), *found.matrix.notes],
    }


def _rows(found: Frameworks) -> Rows:
    """Return a line for each row at each place."""
    columns: tuple[Column[Mean], ...] = (
        *host_columns(lambda mean: found.matrix.hosts[mean.pairs[0].cell.machine]),
        *axis_columns(lambda mean: mean.pairs[0].cell.cell, PLACE),
        *axis_columns(lambda mean: mean.row, ROW),
        Column("against", None, lambda mean: _axes(mean.other_row, ROW), fields=ROW),
        *_MEAN,
    )
    return csv_rows(
        columns,
        [there for means in found.rows for mean in means for there in _by_place(mean).values()],
    )


def _draw(found: Frameworks, path: Path) -> list[Path]:
    """Draw a page for each machine: rows down, a mark for each place, ratios across."""
    pages = []
    for means in found.rows:
        points = [
            ("", row_name(mean.row), place_heading(place.cell), there[place].ratio)
            for mean, there in (
                (mean, _by_place(mean)) for mean in means if not _is_reference(mean)
            )
            for place in _places(found, means)
            if place in there
        ]
        multiple = _multiple(found, means)
        across = (
            f"{multiple[:1].lower()}{multiple[1:]}, geometric mean over the networks of both; 95 % "
            "intervals"
        )
        pages.append(
            (f"Framework against framework, on {found.name(_machine(means))}", across, points)
        )
    return draw(pages, path, columns=1)


REPORT = Report(
    name="frameworks",
    summary="Each framework's time relative to one of them, over the networks that both have.",
    examples=(
        "dlbench report frameworks",
        "dlbench report frameworks --threads 1,2 --plot frameworks.png",
        "dlbench report frameworks --quantity memory",
    ),
    analyse=lambda source: frameworks(in_quantity(source.matrix(), source.options.quantity)),
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
    draw=lambda found, path, options: _draw(found, path),
    suggestion="framework against framework, over all networks",
    applies=lambda cells: (
        len({axes.project(each, GROUP) for each in cells}) > 1 and differ(cells, *ROW)
    ),
    options=frozenset({QUANTITY, REFERENCE, ALL_RUNS}),
    quantities=COMPARED,
    heading="Framework against framework",
    place=15,
    headline=headline,
)

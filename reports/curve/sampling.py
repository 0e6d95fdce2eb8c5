"""`dlbench report sampling`: Boltzmann and McCulloch-Pitts machines by chains.

A curve is a row of the matrix at a place, over the number of chains of one network. A step does
many updates in each chain: decisions of a unit, or transitions. Three questions: the time of an
update; the number of chains from which the row that is fastest with many chains, or a GPU, is
faster than the one fastest with few; the cost of exact sampling over updating all units at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.families import Machine
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import VALUE, Column, attributes, objects, table, within
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    Curves,
    Point,
    along,
    best_times,
    by_machine,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    found_columns,
    grid,
    left_out_points,
    usable,
)
from dlbench.reports.curve.fits import crossing
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report
from dlbench.reports.results import quantities
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import rest_of, work_name
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.number_text import number
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import Summary, ratio

NOTHING = "No sampling machine was measured yet: `dlbench run sampling-quick`."
ALL_AT_ONCE = "synchronous"
QUANTITIES = {
    "update": ("Nanoseconds of an update", "nanoseconds_per_update", 1.0),
    "rate": ("Millions of updates a second", "updates_per_second", 1e-6),
    "joules": ("Nanojoules of an update", "nanojoules_per_update", 1.0),
}
"""Title, key of a point and factor of what the first tables can show."""
_OF_MACHINE = ("family", "order", "units", "updates", "tau")
Times = Mapping[int, Summary]
"""Seconds of a step by chains."""


def study(matrix: Matrix, records: Iterable[Record]) -> Curves:
    """Return the study of the sampling machines in the matrix."""
    machines = {
        _network(each.cell): family
        for each in records
        if isinstance(family := family_of_record(each), Machine)
    }
    curves = []
    for place, cells in along(
        (c for c in matrix.cells.values() if _network(c.cell) in machines), "batch_size"
    ).items():
        machine = machines[_network(place.cell)]
        numbers = (
            machine.name,
            getattr(machine, "order", None),
            machine.units,
            machine.decisions,
            machine.tau,
        )
        found = {**dict(zip(_OF_MACHINE, numbers, strict=True)), "words": machine.words()}
        points = sorted(
            (_point(cell, machine.decisions) for cell in cells), key=lambda point: point.at
        )
        curves.append(Curve(matrix.hosts[place.machine], place.cell, tuple(points), found))
    conclusions = {"crossings": list(_crossings(curves)), "exactness": list(_exactness(curves))}
    return Curves(tuple(curves), matrix.notes if curves else (), conclusions)


def _network(cell: Cell) -> tuple[str, str]:
    return cell.network, cell.specification


def _point(cell: CellResult, decisions: int) -> Point:
    chains = cell.cell.known_batch_size
    updates, seconds = chains * decisions, None if cell.seconds is None else cell.seconds.median
    energy = quantities.QUANTITIES["cpu_joules" if cell.cell.on_cpu else "joules"].value(cell)
    found = (
        seconds and seconds * 1e9 / updates,
        seconds and updates / seconds,
        energy and energy[0] * 1e9 / updates,
    )
    keys = (key for _, key, _ in QUANTITIES.values())
    return Point(chains, cell, usable(cell), found=dict(zip(keys, found, strict=True)))


def _name(curve: Curve, curves: Iterable[Curve]) -> str:
    """Return a row at a place, with its machine where there are several."""
    several = len({each.host.fingerprint for each in curves}) > 1
    return rest_of(curve.cell) + (f" on {curve.host.name}" if several else "")


def _crossings(curves: list[Curve]) -> Iterator[dict[str, Any]]:
    """Yield for each network where the row fastest with many chains, and GPUs, overtake the row
    fastest with few.
    """
    for of in grouped(curves, lambda curve: _network(curve.cell)).values():
        chains = sorted(set(chain.from_iterable(curve.times for curve in of)))
        if len(chains) < 2:
            continue
        few, many = (
            min(
                (curve for curve in of if at in curve.times),
                key=lambda curve: curve.times[at].median,
            )
            for at in (chains[0], chains[-1])
        )
        kinds = grouped(of, lambda curve: curve.cell.on_cpu)
        pairs: list[tuple[str, str, Times, str, Times]] = []
        if few is not many:
            pairs.append(("rows", _name(few, of), few.times, _name(many, of), many.times))
        if len(kinds) == 2:
            pairs.append(
                (
                    "devices",
                    "the CPUs",
                    best_times(kinds[True]),
                    "the GPUs",
                    best_times(kinds[False]),
                )
            )
        for what, first, of_first, second, of_second in pairs:
            if (at := crossing(of_first, of_second)) is not None:
                network = {name: getattr(of[0].cell, name) for name in ("network", "specification")}
                named = {"first": first, "second": second, "what": what}
                yield {**network, **named, **at.data("chains"), "words": at.words}


def _exactness(curves: list[Curve]) -> Iterator[dict[str, Any]]:
    """Yield the time of each exact sweep over that of all units at once, of machines that differ in
    nothing else.
    """

    def alike(curve: Curve) -> tuple[object, ...]:
        cell = axes.without(curve.cell, "network", "specification")
        return curve.host.fingerprint, cell, curve.found["units"], curve.found["tau"]

    for of in grouped((curve for curve in curves if curve.found["order"]), alike).values():
        by_order = {curve.found["order"]: curve for curve in of}
        at_once = by_order.pop(ALL_AT_ONCE, None)
        for order, curve in by_order.items():
            for chains, seconds in curve.times.items():
                if at_once is not None and chains in at_once.times:
                    cost = ratio(seconds, at_once.times[chains])
                    units = curve.found["units"]
                    yield {
                        "curve": curve,
                        "units": units,
                        "order": order,
                        "chains": chains,
                        "ratio": cost,
                    }


# Tables.


def _page(found: Curves, quantity: str) -> Page:
    """Return a table of each network on each machine, the crossings, and what exactness costs."""
    if not found.curves:
        return Page((NOTHING,), (), found.notes)
    common = layout.common_flags(
        p.cell for curve in found.curves for p in curve.points if p.cell.shown
    )
    tables = [
        _times_table(of, quantity, common)
        for of_machine in by_machine(found.curves)
        for of in grouped(of_machine, lambda curve: _network(curve.cell)).values()
    ]
    before = (
        "An update is the decision of a unit (Boltzmann) or a transition (McCulloch-Pitts) in one "
        "chain."
    )
    if crossings := found.conclusions["crossings"]:
        title = (
            "Crossings: where the row fastest with many chains overtakes the row fastest with few"
        )
        tables.append(table(_CROSSING, crossings, title, words=True))
    tables += _exactness_tables(found)
    return Page((before,), tuple(tables), tuple(_legend(found, common, quantity)))


def _times_table(curves: list[Curve], quantity: str, common: set[Any]) -> Table:
    points = [(rest_of(curve.cell), point) for curve in curves for point in curve.points]
    entries = {(name, point.at): _entry(point, quantity, common) for name, point in points}
    holes = [
        (layout.why_hole(point.cell), name, str(point.at))
        for name, point in points
        if not point.cell.shown
    ]
    chains = sorted({point.at for _, point in points})
    first = curves[0]
    title = (
        f"{QUANTITIES[quantity][0]}: {work_name(first.cell)} ({first.found['words']}), on "
        f"{first.host.name}"
    )
    return Table(
        title,
        ("chains", *map(str, chains)),
        tuple(grid(entries, chains)),
        tuple(layout.reasons(holes)),
    )


def _entry(point: Point, quantity: str, common: set[Any]) -> Entry:
    found, (_, key, factor) = (
        layout.entry(point.cell, quantities.QUANTITIES["seconds"], common),
        QUANTITIES[quantity],
    )
    if found.hole:
        return found
    if point.found[key] is None:
        return Entry(MISSING)
    return found._replace(
        text=number(factor * point.found[key]),
        interval="" if quantity == "joules" else found.interval,
    )


def _exactness_tables(found: Curves) -> Iterator[Table]:
    for units, of in sorted(grouped(found.conclusions["exactness"], itemgetter("units")).items()):
        curves = [each["curve"] for each in of]
        entries = {
            (_name(each["curve"], curves), (each["order"], each["chains"])): layout.multiple(
                each["ratio"]
            )
            for each in of
        }
        columns = sorted({column for _, column in entries})
        spans = tuple(
            (order, len(list(several))) for order, several in groupby(columns, itemgetter(0))
        )
        head = ("chains", *(f"{order} {chains}" for order, chains in columns))
        yield Table(
            f"T over T of all at once: {units} units",
            head,
            tuple(grid(entries, columns)),
            spans=spans,
        )


def _legend(found: Curves, common: set[Any], quantity: str) -> Iterator[str]:
    yield layout.HALF_WIDTH
    if found.conclusions["exactness"]:
        yield (
            "All at once (synchronous) is Little's dynamics, which samples another law; sequential "
            "and bipartite sweeps are exact, and a bipartite machine has no weights within its "
            "halves."
        )
    if found.conclusions["crossings"]:
        yield (
            "Crossings: in brackets the 95 % interval; none: the times do not differ clearly at "
            "any number of chains."
        )
    cells = [point.cell for curve in found.curves for point in curve.points if point.cell.shown]
    if quantity == "joules":
        yield (
            "Energy of whole CPU packages, idle power included, by RAPL counters, or of the GPU by "
            "NVML."
        )
        yield from (f"{MISSING} {why}" for why in quantities.reasons(cells, "cpu_joules"))
    yield from layout.flag_lines(cells, common)
    yield from left_out_points(point for curve in found.curves for point in curve.points)
    yield from found.notes


# JSON, CSV and pictures.


_CURVE = (*curve_columns("batch_size"), *found_columns(*_OF_MACHINE))
_POINT: tuple[Column[Point], ...] = (
    Column("chains", None, lambda point: point.at),
    *cell_columns("status", "reason", "seconds"),
    *found_columns(*(key for _, key, _ in QUANTITIES.values())),
    *cell_columns("flags"),
)
_EXACTNESS: tuple[Column[Any], ...] = (
    *within(curve_columns("batch_size"), itemgetter("curve")),
    *attributes(dict, "units", "order", "chains", "ratio", ratio=VALUE),
)
_CROSSING: tuple[Column[Any], ...] = (
    Column("network", "", itemgetter("network")),
    *attributes(dict, "specification", "what"),
    Column("first", "of few chains", itemgetter("first")),
    Column("second", "of many", itemgetter("second")),
    *attributes(dict, "where", "chains", "interval", "clear", "smallest", "largest"),
    Column("", "chains from which on", itemgetter("words")),
)


def _data(found: Curves) -> dict[str, Any]:
    """Return a JSON object: the curves, the crossings, and what exactness costs."""
    return {
        "lines": curve_objects(found.curves, _CURVE, _POINT),
        "crossings": objects(_CROSSING, found.conclusions["crossings"]),
        "exactness": objects(_EXACTNESS, found.conclusions["exactness"]),
        "notes": list(found.notes),
    }


def _picture(curves: list[Curve]) -> pictures.Picture:
    """Return a page: a panel for each network, updates a second by chains."""
    names = list(dict.fromkeys(rest_of(curve.cell) for curve in curves))
    styles = {name: pictures.style(at, at, at // len(names)) for at, name in enumerate(names)}
    panels = []
    for network, of in grouped(curves, lambda curve: work_name(curve.cell)).items():
        chains = sorted({point.at for curve in of for point in curve.timed})
        panels.append(
            pictures.Panel(
                network, [pictures.Line(_rates(c), styles[rest_of(c.cell)]) for c in of], chains
            )
        )
    title = f"Updates a second of sampling machines, on {curves[0].host.name}"
    return pictures.Picture(title, panels, list(styles.items()), "chains", "updates a second")


def _rates(curve: Curve) -> list[tuple[int, tuple[float, float | None, float | None]]]:
    found = []
    for chains, seconds in curve.times.items():
        updates = chains * curve.found["updates"]
        low, high = (end and updates / end for end in (seconds.high, seconds.low))
        found.append((chains, (updates / seconds.median, low, high)))
    return found


REPORT = Report(
    name="sampling",
    summary="""Sampling machines (Boltzmann, McCulloch-Pitts) by chains: time of an update, cost of
exactness.

Nanoseconds per update by number of chains for each row; the number of chains from which another
row, or a GPU, is faster; and how much longer exact sweeps take than updating all units at once.""",
    examples=(
        "dlbench run sampling-quick",
        "dlbench report sampling",
        "dlbench report sampling --quantity rate --plot sampling.png",
    ),
    analyse=lambda source: study(source.matrix(), source.results().records),
    page=lambda found, options: _page(found, options.quantity),
    data=_data,
    rows=lambda found: curve_rows(found.curves, _CURVE, _POINT),
    draw=lambda found, path, options: pictures.draw(map(_picture, by_machine(found.curves)), path),
    drawable=lambda found: bool(found.curves),
    suggestion="sampling machines: time of an update by chains, and what exactness costs",
    options=frozenset({QUANTITY, ALL_RUNS}),
    families=frozenset({"boltzmann", "mcculloch_pitts"}),
    quantities=tuple(QUANTITIES),
    heading="Sampling machines",
    place=72,
    has_section=lambda found: bool(found.curves),
)

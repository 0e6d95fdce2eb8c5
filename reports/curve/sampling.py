"""`dlbench report sampling`: Boltzmann and McCulloch-Pitts machines by chains.

A curve is a row of the matrix at a place, over the number of chains of one network. A step does
many updates in each chain: decisions of a unit, or transitions. Three questions: the time of an
update; the number of chains from which the row that is fastest with many chains, or a GPU, is
faster than the one fastest with few; the cost of exact sampling over updating all units at once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.families import SamplingMachine
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import VALUE, Column, attributes, objects, table, within
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    CurvePoint,
    Curves,
    along,
    best_times,
    by_machine,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    finding_columns,
    grid,
    left_out_points,
    points_of,
    usable,
)
from dlbench.reports.curve.fits import Crossing, crossing
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report, ReportOptions, ReportSource
from dlbench.reports.results import flag_kinds, quantities
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import network_name, rest_of
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.number_text import number
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import Estimate, Summary, ratio

NOTHING = "No sampling machine was measured yet: `dlbench run sampling-quick`."
ALL_AT_ONCE = "synchronous"
QUANTITIES = {
    "update": ("Nanoseconds of an update", "nanoseconds_per_update", 1.0),
    "rate": ("Millions of updates a second", "updates_per_second", 1e-6),
    "joules": ("Nanojoules of an update", "nanojoules_per_update", 1.0),
}
"""Title, key of a point and factor of what the first tables can show."""
Times = Mapping[int, Summary]
"""Seconds of a step by chains."""


class MachineFindings(NamedTuple):
    """The numbers of the machine of a curve."""

    family: str
    order: str | None
    """Of the updates; only a Boltzmann machine has one."""
    units: int
    updates: int
    tau: float | None
    words: str


class ChainFindings(NamedTuple):
    """The quantities of a number of chains. They are None for a missing cell."""

    nanoseconds_per_update: float | None
    updates_per_second: float | None
    nanojoules_per_update: float | None


ChainPoint = CurvePoint[int, ChainFindings]
ChainCurve = Curve[int, ChainFindings, MachineFindings]


class ChainsCrossing(NamedTuple):
    """The number of chains from which the second side is faster."""

    network: str
    specification: str
    first: str
    second: str
    what: str
    """Whether rows or devices are compared."""
    crossing: Crossing


class Exactness(NamedTuple):
    """The time of an exact sweep over that of all units at once."""

    curve: ChainCurve
    units: int
    order: str
    chains: int
    ratio: Estimate


class SamplingConclusions(NamedTuple):
    """The findings about several curves together."""

    crossings: list[ChainsCrossing]
    exactness: list[Exactness]


ChainCurves = Curves[int, ChainFindings, MachineFindings, SamplingConclusions]


def study(matrix: Matrix, records: Iterable[Record]) -> ChainCurves:
    """Return the study of the sampling machines in the matrix."""
    machines = {}
    for record in records:
        family = family_of_record(record)
        if isinstance(family, SamplingMachine):
            machines[_network(record.cell)] = family
    sampling = [cell for cell in matrix.cells.values() if _network(cell.cell) in machines]
    curves = []
    for place, cells in along(sampling, "batch_size").items():
        machine = machines[_network(place.cell)]
        findings = MachineFindings(
            machine.name,
            getattr(machine, "order", None),
            machine.units,
            machine.decisions,
            machine.tau,
            machine.words(),
        )
        points = [_point(cell, machine.decisions) for cell in cells]
        points.sort(key=lambda point: point.at)
        curves.append(Curve(matrix.hosts[place.machine], place.cell, tuple(points), findings))
    conclusions = SamplingConclusions(list(_crossings(curves)), list(_exactness(curves)))
    return Curves(tuple(curves), matrix.notes if curves else (), conclusions)


def _network(cell: Cell) -> tuple[str, str]:
    return cell.network, cell.specification


def _network_of_curve(curve: ChainCurve) -> tuple[str, str]:
    return _network(curve.cell)


def _point(cell: CellResult, decisions: int) -> ChainPoint:
    chains = cell.cell.known_batch_size
    updates = chains * decisions
    nanoseconds = rate = nanojoules = None
    if cell.seconds is not None:
        nanoseconds = cell.seconds.median * 1e9 / updates
        rate = updates / cell.seconds.median
    quantity = "cpu_joules" if cell.cell.on_cpu else "joules"
    energy = quantities.QUANTITIES[quantity].value(cell)
    if energy is not None:
        nanojoules = energy[0] * 1e9 / updates
    findings = ChainFindings(nanoseconds, rate, nanojoules)
    return CurvePoint(chains, cell, usable(cell), findings)


def _name(curve: ChainCurve, curves: Iterable[ChainCurve]) -> str:
    """Return a row at a place, with its machine where there are several."""
    name = rest_of(curve.cell)
    machines = {other.host.fingerprint for other in curves}
    if len(machines) > 1:
        name += f" on {curve.host.name}"
    return name


def _crossings(curves: list[ChainCurve]) -> Iterator[ChainsCrossing]:
    """Yield for each network the number of chains from which another row, or GPUs, are faster.

    The row that is fastest with few chains is compared with the one that is fastest with many.
    """
    for rivals in grouped(curves, _network_of_curve).values():
        chains: set[int] = set()
        for curve in rivals:
            chains |= curve.times.keys()
        if len(chains) < 2:
            continue
        cell = rivals[0].cell
        few = _fastest(rivals, min(chains))
        many = _fastest(rivals, max(chains))
        if few is not many:
            at = crossing(few.times, many.times)
            if at is not None:
                first, second = _name(few, rivals), _name(many, rivals)
                yield ChainsCrossing(cell.network, cell.specification, first, second, "rows", at)
        kinds = grouped(rivals, lambda curve: curve.cell.on_cpu)
        if len(kinds) == 2:
            at = crossing(best_times(kinds[True]), best_times(kinds[False]))
            if at is not None:
                yield ChainsCrossing(
                    cell.network, cell.specification, "the CPUs", "the GPUs", "devices", at
                )


def _fastest(curves: Iterable[ChainCurve], chains: int) -> ChainCurve:
    """Return the curve that is fastest with this many chains."""

    def median_seconds(curve: ChainCurve) -> float:
        return curve.times[chains].median

    measured = [curve for curve in curves if chains in curve.times]
    return min(measured, key=median_seconds)


def _exactness(curves: list[ChainCurve]) -> Iterator[Exactness]:
    """Yield the time of each exact sweep over that of all units at once.

    The machines differ in nothing else.
    """
    ordered = [curve for curve in curves if curve.findings.order]
    for alike in grouped(ordered, _all_but_order).values():
        by_order = {curve.findings.order or "": curve for curve in alike}
        at_once = by_order.pop(ALL_AT_ONCE, None)
        if at_once is None:
            continue
        for order, curve in by_order.items():
            for chains, seconds in curve.times.items():
                if chains in at_once.times:
                    cost = ratio(seconds, at_once.times[chains])
                    yield Exactness(curve, curve.findings.units, order, chains, cost)


def _all_but_order(curve: ChainCurve) -> tuple[object, ...]:
    cell = axes.without(curve.cell, "network", "specification")
    return curve.host.fingerprint, cell, curve.findings.units, curve.findings.tau


# Tables.


def _page(content: ChainCurves, quantity: str) -> Page:
    """Return a table of each network on each machine, the crossings, and the cost of exactness."""
    if not content.curves:
        return Page((NOTHING,), (), content.notes)
    points = points_of(content.curves)
    common = layout.common_flags(point.cell for point in points if point.cell.shown)
    tables = []
    for curves_of_machine in by_machine(content.curves):
        for curves_of_network in grouped(curves_of_machine, _network_of_curve).values():
            tables.append(_times_table(curves_of_network, quantity, common))
    before = (
        "An update is the decision of a unit (Boltzmann) or a transition (McCulloch-Pitts) in one "
        "chain."
    )
    crossings = content.conclusions.crossings
    if crossings:
        title = (
            "Crossings: where the row fastest with many chains overtakes the row fastest with few"
        )
        tables.append(table(_CROSSING, crossings, title, words=True))
    tables += _exactness_tables(content)
    return Page((before,), tuple(tables), tuple(_legend(content, common, quantity)))


def _times_table(
    curves: list[ChainCurve], quantity: str, common: set[flag_kinds.FlagKind]
) -> Table:
    entries = {}
    holes = []
    chains = set()
    for curve in curves:
        name = rest_of(curve.cell)
        for point in curve.points:
            chains.add(point.at)
            entries[name, point.at] = _entry(point, quantity, common)
            if not point.cell.shown:
                holes.append((layout.why_hole(point.cell), name, str(point.at)))
    columns = sorted(chains)
    first = curves[0]
    work = f"{network_name(first.cell)} ({first.findings.words})"
    return Table(
        f"{QUANTITIES[quantity][0]}: {work}, on {first.host.name}",
        ("chains", *map(str, columns)),
        tuple(grid(entries, columns)),
        tuple(layout.reasons(holes)),
    )


def _entry(point: ChainPoint, quantity: str, common: set[flag_kinds.FlagKind]) -> Entry:
    entry = layout.entry(point.cell, quantities.QUANTITIES["seconds"], common)
    if entry.hole:
        return entry
    _, key, factor = QUANTITIES[quantity]
    value: float | None = getattr(point.findings, key)
    if value is None:
        return Entry(MISSING)
    if quantity == "joules":
        entry = entry._replace(interval="")
    return entry._replace(text=number(factor * value))


def _exactness_tables(content: ChainCurves) -> Iterator[Table]:
    by_units = grouped(content.conclusions.exactness, lambda cost: cost.units)
    for units, costs in sorted(by_units.items()):
        curves = [cost.curve for cost in costs]
        entries = {}
        for cost in costs:
            name = _name(cost.curve, curves)
            entries[name, (cost.order, cost.chains)] = layout.multiple(cost.ratio)
        columns = sorted({column for _, column in entries})
        head = ["chains"]
        chains_of_orders: Counter[str] = Counter()
        for order, chains in columns:
            head.append(f"{order} {chains}")
            chains_of_orders[order] += 1
        yield Table(
            f"T over T of all at once: {units} units",
            tuple(head),
            tuple(grid(entries, columns)),
            spans=tuple(chains_of_orders.items()),
        )


def _legend(content: ChainCurves, common: set[flag_kinds.FlagKind], quantity: str) -> Iterator[str]:
    yield layout.HALF_WIDTH
    if content.conclusions.exactness:
        yield (
            "All at once (synchronous) is Little's dynamics, which samples another law; sequential "
            "and bipartite sweeps are exact, and a bipartite machine has no weights within its "
            "halves."
        )
    if content.conclusions.crossings:
        yield (
            "Crossings: in brackets the 95 % interval; none: the times do not differ clearly at "
            "any number of chains."
        )
    points = points_of(content.curves)
    cells = [point.cell for point in points if point.cell.shown]
    if quantity == "joules":
        yield (
            "Energy of whole CPU packages, idle power included, by RAPL counters, or of the GPU by "
            "NVML."
        )
        for why in quantities.reasons(cells, "cpu_joules"):
            yield f"{MISSING} {why}"
    yield from layout.flag_lines(cells, common)
    yield from left_out_points(points)
    yield from content.notes


# JSON, CSV and pictures.


_CURVE = (
    *curve_columns("batch_size"),
    *finding_columns("family", "order", "units", "updates", "tau"),
)
_POINT: tuple[Column[ChainPoint], ...] = (
    Column("chains", None, lambda point: point.at),
    *cell_columns("status", "reason", "seconds"),
    *finding_columns(*ChainFindings._fields),
    *cell_columns("flags"),
)


def _curve_of_cost(cost: Exactness) -> ChainCurve:
    return cost.curve


def _crossing_data(crossed: ChainsCrossing) -> dict[str, Any]:
    return crossed.crossing.data("chains")


_EXACTNESS: tuple[Column[Exactness], ...] = (
    *within(curve_columns("batch_size"), _curve_of_cost),
    *attributes(lambda cost: cost, "units", "order", "chains", "ratio", ratio=VALUE),
)
_CROSSING: tuple[Column[ChainsCrossing], ...] = (
    Column("network", "", lambda crossed: crossed.network),
    *attributes(lambda crossed: crossed, "specification", "what"),
    Column("first", "of few chains", lambda crossed: crossed.first),
    Column("second", "of many", lambda crossed: crossed.second),
    *attributes(_crossing_data, "where", "chains", "interval", "clear", "smallest", "largest"),
    Column("", "chains from which on", lambda crossed: crossed.crossing.words),
)


def _data(content: ChainCurves) -> dict[str, Any]:
    """Return a JSON object: the curves, the crossings, and the cost of exactness."""
    return {
        "lines": curve_objects(content.curves, _CURVE, _POINT),
        "crossings": objects(_CROSSING, content.conclusions.crossings),
        "exactness": objects(_EXACTNESS, content.conclusions.exactness),
        "notes": list(content.notes),
    }


def _picture(curves: list[ChainCurve]) -> pictures.Picture:
    """Return a page: a panel for each network, updates a second by chains."""
    names = dict.fromkeys(rest_of(curve.cell) for curve in curves)
    styles = {}
    for place, name in enumerate(names):
        styles[name] = pictures.style(place, place, place // len(names))
    panels = []
    for network, curves_of_network in grouped(curves, _work_name).items():
        lines = []
        chains: set[int] = set()
        for curve in curves_of_network:
            lines.append(pictures.Line(_rates(curve), styles[rest_of(curve.cell)]))
            chains |= curve.times.keys()
        panels.append(pictures.CurvePanel(network, lines, sorted(chains)))
    title = f"Updates a second of sampling machines, on {curves[0].host.name}"
    return pictures.Picture(title, panels, list(styles.items()), "chains", "updates a second")


def _work_name(curve: ChainCurve) -> str:
    return network_name(curve.cell)


def _rates(curve: ChainCurve) -> list[tuple[int, tuple[float, float | None, float | None]]]:
    """Return the updates a second by chains, with the ends of their intervals."""
    rates = []
    for chains, seconds in curve.times.items():
        updates = chains * curve.findings.updates
        low = high = None
        if seconds.high:
            low = updates / seconds.high
        if seconds.low:
            high = updates / seconds.low
        rates.append((chains, (updates / seconds.median, low, high)))
    return rates


def _analyse(source: ReportSource) -> ChainCurves:
    return study(source.matrix(), source.results().records)


def _draw(content: ChainCurves, path: Path, options: ReportOptions) -> list[Path]:
    return pictures.draw(map(_picture, by_machine(content.curves)), path)


REPORT = Report(
    name="sampling",
    summary="""Sampling machines: time of an update, cost of exactness.

Nanoseconds per update by number of chains for each row; the number of chains from which another
row, or a GPU, is faster; and how much longer exact sweeps take than updating all units at once.""",
    examples=(
        "dlbench run sampling-quick",
        "dlbench report sampling",
        "dlbench report sampling --quantity rate --plot sampling.png",
    ),
    analyse=_analyse,
    page=lambda content, options: _page(content, options.quantity),
    data=_data,
    rows=lambda content: curve_rows(content.curves, _CURVE, _POINT),
    draw=_draw,
    drawable=lambda content: bool(content.curves),
    suggestion="sampling machines: time of an update by chains, and what exactness costs",
    options=frozenset({QUANTITY, ALL_RUNS}),
    families=frozenset({"boltzmann", "mcculloch_pitts"}),
    quantities=tuple(QUANTITIES),
    heading="Sampling machines",
    place=72,
    has_section=lambda content: bool(content.curves),
)

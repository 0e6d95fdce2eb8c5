"""`dlbench report sampling`: Boltzmann and McCulloch-Pitts machines by chains.

A curve is a row of the matrix at a place, over the chains of one network. An update is what a step does many times in
each chain: the decision of a unit, or a transition. Three questions: the time of an update; from how many chains on
the fastest of many chains, or a GPU, is faster than the fastest of few; what exact sampling costs over the update of
all units at once.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.families import Boltzmann, Machine
from dlbench.reports import quantities
from dlbench.reports.cells import CellResult, Matrix, grouped
from dlbench.reports.columns import VALUE, Column, objects, within
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    Point,
    along,
    by_machine,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    found_columns,
    items,
    usable,
)
from dlbench.reports.curve.fits import crossing
from dlbench.reports.curve.rnn import where
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table, number
from dlbench.reports.naming import rest_of, work_name
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report, Source
from dlbench.reports.statistics import Summary, ratio
from dlbench.reports.storage.networks import family_of_record
from dlbench.reports.storage.record import Record

NOTHING = "No sampling machine was measured yet: `dlbench run sampling-quick`."
ALL_AT_ONCE = "synchronous"
FAMILIES = frozenset({"boltzmann", "mcculloch_pitts"})
Times = Mapping[int, Summary]
"""Seconds of a step by chains."""


def joules(cell: CellResult) -> float | None:
    """Return the joules of a step: of the GPU, or of the CPU packages; None where they were not measured."""
    if not cell.column.on_cpu:
        return None if cell.device_observed is None else cell.device_observed.joules_per_minibatch
    found = cell.measured.get("cpu_joules")
    return None if found is None else found.median


QUANTITIES: dict[str, tuple[str, Callable[[CellResult, int], float | None]]] = {
    "update": ("Nanoseconds of an update", lambda cell, count: _of_seconds(cell, lambda step: step * 1e9 / count)),
    "rate": ("Millions of updates a second", lambda cell, count: _of_seconds(cell, lambda step: count / step / 1e6)),
    "joules": ("Nanojoules of an update", lambda cell, count: (found := joules(cell)) and found * 1e9 / count),
}
"""What the first tables show of a cell and the updates of its step, those of all chains."""


def _of_seconds(cell: CellResult, value: Callable[[float], float]) -> float | None:
    return None if cell.seconds is None else value(cell.seconds.median)


class Study(NamedTuple):
    """The content of the report; ``crossings`` and ``exactness`` are keyed as in JSON."""

    curves: tuple[Curve, ...]
    crossings: list[dict[str, Any]]
    exactness: list[dict[str, Any]]
    notes: tuple[str, ...]


def study(matrix: Matrix, records: Iterable[Record]) -> Study:
    """Return the study of the sampling machines in the matrix."""
    machines: dict[tuple[str, str], Machine] = {}
    for record in records:
        if isinstance(family := family_of_record(record), Machine):
            machines[record.cell.network, record.cell.specification] = family

    def machine_of(cell: CellResult) -> Machine | None:
        return machines.get((cell.group.network, cell.group.specification))

    cells = [cell for cell in matrix.cells.values() if machine_of(cell)]
    curves = [
        Curve(
            matrix.hosts[place.machine],
            place.cell,
            tuple(Point(cell.cell.batch_size, cell, usable(cell)) for cell in sorted(of, key=_chains)),
            {"family": machine_of(of[0])},
        )
        for place, of in along(cells, "batch_size").items()
    ]
    return Study(tuple(curves), list(_crossings(curves)), list(_exactness(curves)), matrix.notes if curves else ())


def _chains(cell: CellResult) -> int:
    return cell.cell.batch_size


def _name(curve: Curve, curves: Iterable[Curve]) -> str:
    """Return a row at a place, with its machine where there are several."""
    several = len({each.host.fingerprint for each in curves}) > 1
    return rest_of(curve.cell) + (f" on {curve.host.name}" if several else "")


def _crossings(curves: list[Curve]) -> Iterator[dict[str, Any]]:
    """Yield for each network where the fastest of many chains, and GPUs, begin to be faster than the fastest of few."""
    for of in grouped(curves, lambda curve: (curve.cell.network, curve.cell.specification)).values():
        chains = sorted(set(chain.from_iterable(curve.times for curve in of)))
        if len(chains) < 2:
            continue
        few, many = (
            min((curve for curve in of if at in curve.times), key=lambda curve: curve.times[at].median)
            for at in (chains[0], chains[-1])
        )
        if few is not many:
            yield from _crossed(of[0], "rows", _name(few, of), few.times, _name(many, of), many.times)
        kinds = grouped(of, lambda curve: curve.cell.on_cpu)
        if len(kinds) == 2:
            yield from _crossed(of[0], "devices", "the CPUs", _best(kinds[True]), "the GPUs", _best(kinds[False]))


def _best(curves: Iterable[Curve]) -> Times:
    """Return the fastest time at each number of chains."""
    best: dict[int, Summary] = {}
    for curve in curves:
        for at, seconds in curve.times.items():
            best[at] = min(best.get(at, seconds), seconds, key=lambda each: each.median)
    return best


def _crossed(
    curve: Curve, what: str, first: str, of_first: Times, second: str, of_second: Times
) -> Iterator[dict[str, Any]]:
    at = crossing(of_first, of_second)
    if at is not None:
        yield {
            "network": curve.cell.network,
            "specification": curve.cell.specification,
            "what": what,
            "first": first,
            "second": second,
            "where": "below" if at.units == 0 else "above" if math.isinf(at.units) else "between",
            "chains": at.units if 0 < at.units < math.inf else None,
            "interval": [at.low, at.high] if at.low is not None and at.high is not None else None,
            "clear": at.clear,
            "smallest": at.smallest,
            "largest": at.largest,
            "words": where(at),
        }


def _exactness(curves: list[Curve]) -> Iterator[dict[str, Any]]:
    """Yield the time of each exact sweep over that of all units at once, of machines that differ in nothing else."""

    def alike(curve: Curve) -> tuple[object, ...]:
        family = curve.found["family"]
        return curve.host.fingerprint, axes.without(curve.cell, "network", "specification"), family.units, family.tau

    sweeps = [curve for curve in curves if isinstance(curve.found["family"], Boltzmann)]
    for of in grouped(sweeps, alike).values():
        by_order = {curve.found["family"].order: curve for curve in of}
        at_once = by_order.pop(ALL_AT_ONCE, None)
        for order, curve in by_order.items():
            for at, seconds in curve.times.items():
                if at_once is not None and at in at_once.times:
                    yield {
                        "curve": curve,
                        "units": curve.found["family"].units,
                        "order": order,
                        "chains": at,
                        "ratio": ratio(seconds, at_once.times[at]),
                    }


# Tables.


def sampling_page(found: Study, quantity: str) -> Page:
    """Return a table of each network on each machine, the crossings, and what exactness costs."""
    if not found.curves:
        return Page((NOTHING,), (), found.notes)
    common = layout.common_flags(p.cell for curve in found.curves for p in curve.points if p.cell.shown)
    tables = [
        _times_table(of, quantity, common)
        for of_machine in by_machine(found.curves)
        for of in grouped(of_machine, lambda curve: (curve.cell.network, curve.cell.specification)).values()
    ]
    before = "An update is the decision of a unit (Boltzmann) or a transition (McCulloch-Pitts) in one chain."
    tables += [*_crossing_tables(found), *_exactness_tables(found)]
    return Page((before,), tuple(tables), tuple(_legend(found, common, quantity)))


def _times_table(curves: list[Curve], quantity: str, common: set[Any]) -> Table:
    family: Machine = curves[0].found["family"]
    chains = sorted({point.at for curve in curves for point in curve.points})
    rows: list[tuple[Entry, ...]] = []
    holes: list[tuple[str, str, str]] = []
    for curve in curves:
        cells = {point.at: point.cell for point in curve.points}
        rows.append((Entry(rest_of(curve.cell)), *(_entry(cells.get(at), family, quantity, common) for at in chains)))
        missing = (point for point in curve.points if not point.cell.shown)
        holes += [(layout.why_hole(each.cell), rest_of(curve.cell), str(each.at)) for each in missing]
    head = ("chains", *map(str, chains))
    title = f"{QUANTITIES[quantity][0]}: {work_name(curves[0].cell)} ({family.words()}), on {curves[0].host.name}"
    return Table(title, head, tuple(rows), tuple(layout.reasons(holes)))


def _entry(cell: CellResult | None, family: Machine, quantity: str, common: set[Any]) -> Entry:
    found = layout.entry(cell, quantities.QUANTITIES["seconds"], common)
    if cell is None or found.hole:
        return found
    value = QUANTITIES[quantity][1](cell, cell.cell.batch_size * family.decisions)
    if value is None:
        return Entry(MISSING)
    return found._replace(text=number(value), interval="" if quantity == "joules" else found.interval)


def _crossing_tables(found: Study) -> Iterator[Table]:
    rows = tuple(
        layout.entries(each["network"], each["first"], each["second"], each["words"]) for each in found.crossings
    )
    if rows:
        head = ("", "of few chains", "of many", "chains from which on")
        yield Table("Fastest of few chains, and from how many on the fastest of many is faster", head, rows, words=True)


def _exactness_tables(found: Study) -> Iterator[Table]:
    for units, of in sorted(grouped(found.exactness, itemgetter("units")).items()):
        columns = sorted({(each["order"], each["chains"]) for each in of})
        rows = [
            (Entry(name), *(_times_at_once(cells.get(column)) for column in columns))
            for name, cells in _by_row(of).items()
        ]
        orders = list(dict.fromkeys(order for order, _ in columns))
        spans = tuple((order, sum(each == order for each, _ in columns)) for order in orders)
        head = ("chains", *(f"{order} {chains}" for order, chains in columns))
        yield Table(f"T over T of all at once: {units} units", head, tuple(rows), spans=spans)


def _by_row(exactness: Iterable[dict[str, Any]]) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    rows: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    listed = list(exactness)
    for each in listed:
        name = _name(each["curve"], [other["curve"] for other in listed])
        rows.setdefault(name, {})[each["order"], each["chains"]] = each
    return rows


def _times_at_once(found: Mapping[str, Any] | None) -> Entry:
    if found is None:
        return Entry(MISSING)
    cost = found["ratio"]
    return Entry(f"{number(cost.value)}x", layout.deviation(cost.value, cost.low, cost.high))


def _legend(found: Study, common: set[Any], quantity: str) -> Iterator[str]:
    yield "± half-width of the 95 % interval (the wider side)"
    if found.exactness:
        yield (
            "All at once (synchronous) is Little's dynamics, which samples another law; sequential and bipartite "
            "sweeps are exact, and a bipartite machine has no weights within its halves."
        )
    if found.crossings:
        yield "Crossings: in brackets the 95 % interval; none: at no number of chains do the times differ clearly."
    cells = [point.cell for curve in found.curves for point in curve.points if point.cell.shown]
    if quantity == "joules":
        yield "Of whole CPU packages by their RAPL counters, what idles on them included, or of the GPU by NVML."
        yield from (f"{MISSING} {why}" for why in quantities.reasons(cells, "cpu_joules"))
    yield from layout.flag_lines(cells, common)
    yield from found.notes


# JSON and CSV.


def _value(name: str) -> Callable[[Point], float | None]:
    return lambda point: QUANTITIES[name][1](point.cell, point.found["updates"])


_NUMBERS = ("family", "order", "units", "updates", "tau")
_CURVE = (*curve_columns("batch_size"), *found_columns(*_NUMBERS))
_POINT: tuple[Column[Point], ...] = (
    Column("chains", None, lambda point: point.at),
    *cell_columns("status", "reason", "seconds"),
    Column("nanoseconds_per_update", None, _value("update")),
    Column("updates_per_second", None, lambda point: _millions(_value("rate")(point))),
    Column("nanojoules_per_update", None, _value("joules")),
    *cell_columns("flags"),
)
_EXACTNESS: tuple[Column[Any], ...] = (
    *within(curve_columns("batch_size"), itemgetter("curve")),
    *items(dict, "units", "order", "chains", "ratio", ratio=VALUE),
)
_CROSSING = ("network", "specification", "what", "first", "second", "where", "chains", "interval", "clear")


def _millions(value: float | None) -> float | None:
    return value and value * 1e6


def _written(curves: Iterable[Curve]) -> list[Curve]:
    """Return the curves with the numbers of their machines, and the updates of each point's step."""
    found = []
    for curve in curves:
        family: Machine = curve.found["family"]
        order = family.order if isinstance(family, Boltzmann) else None
        numbers = dict(zip(_NUMBERS, (family.name, order, family.units, family.decisions, family.tau), strict=True))
        points = tuple(p._replace(found={"updates": p.at * family.decisions}) for p in curve.points)
        found.append(curve._replace(points=points, found=numbers))
    return found


def sampling_data(found: Study) -> dict[str, Any]:
    """Return a JSON object: the curves, the crossings, and what exactness costs."""
    return {
        "lines": curve_objects(_written(found.curves), _CURVE, _POINT),
        "crossings": objects(items(dict, *_CROSSING, "smallest", "largest"), found.crossings),
        "exactness": objects(_EXACTNESS, found.exactness),
        "notes": list(found.notes),
    }


def _picture(curves: list[Curve]) -> pictures.Picture:
    """Return a page: a panel for each network, updates a second by chains."""
    names = list(dict.fromkeys(rest_of(curve.cell) for curve in curves))
    styles = {name: pictures.style(at, at, at // len(names)) for at, name in enumerate(names)}
    panels = []
    for network, of in grouped(curves, lambda curve: work_name(curve.cell)).items():
        chains = sorted({point.at for curve in of for point in curve.timed})
        lines = []
        for curve in of:
            count = curve.found["family"].decisions
            rates = [(at, _rate(seconds, at * count)) for at, seconds in curve.times.items()]
            lines.append(pictures.Line(rates, styles[rest_of(curve.cell)]))
        panels.append(pictures.Panel(network, lines, chains))
    title = f"Updates a second of sampling machines, on {curves[0].host.name}" if curves else NOTHING
    return pictures.Picture(title, panels, list(styles.items()), "chains", "updates a second")


def _rate(seconds: Summary, count: int) -> tuple[float, float | None, float | None]:
    low, high = (end and count / end for end in (seconds.high, seconds.low))
    return count / seconds.median, low, high


def _analyse(source: Source) -> Study:
    return study(source.matrix(), source.results().records)


REPORT = Report(
    name="sampling",
    summary="""Sampling machines (Boltzmann, McCulloch-Pitts) by chains: time of an update, cost of exactness.

Nanoseconds of an update by chains for each row; from how many chains on another row, or a GPU, is faster; and how much
longer exact sweeps take than the update of all units at once.""",
    examples=(
        "dlbench run sampling-quick",
        "dlbench report sampling",
        "dlbench report sampling --quantity rate --plot sampling.png",
    ),
    analyse=_analyse,
    page=lambda found, options: sampling_page(found, options.quantity),
    data=sampling_data,
    rows=lambda found: curve_rows(_written(found.curves), _CURVE, _POINT),
    draw=lambda found, path, options: pictures.draw(map(_picture, by_machine(found.curves) or [[]]), path),
    drawable=lambda found: bool(found.curves),
    suggestion="sampling machines: time of an update by chains, and what exactness costs",
    options=frozenset({QUANTITY, ALL_RUNS}),
    families=FAMILIES,
    quantities=tuple(QUANTITIES),
    heading="Sampling machines",
    place=72,
    has_section=lambda found: bool(found.curves),
)

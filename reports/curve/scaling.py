"""Scaling over workers: the gain of several that train on parts of one mini-batch together over one.

Training is synchronous and data-parallel: each of w workers computes the gradients of its equal part of the
mini-batch, all average them, and each makes the same update; a step lasts until the slowest has. T(w, b) is the
seconds of a step of w workers on a mini-batch of b examples altogether, with all else the same: network, framework and
mode, machine, device, threads of each worker, precision, placement, affinity, and the environment (build).

- Strong scaling (Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
  capabilities"): the same work on more workers. Speed-up S = T(1, b) / T(w, b), efficiency S / w.
- Weak scaling (Gustafson 1988, "Reevaluating Amdahl's law"): the work grows with the workers. Speed-up is that of the
  throughput, (w b / T(w, w b)) / (b / T(1, b)) = w T(1, b) / T(w, w b), efficiency T(1, b) / T(w, w b).
- Against one process: on a CPU as many threads could also work in one process. T'(1, b) / T(w, b), where T' is of one
  worker with w times as many threads: above 1 the workers are faster. This is the fair rival there, since the
  speed-ups above compare more threads with fewer.

Intervals are those of `statistics.ratio`, multiplied by the same constants. A cell that failed parity, used more
threads than asked or was measured with another build is in no ratio; the reason stands in its place. CPU workers with
more threads altogether than the machine has CPUs share these, and then no speed-up can be expected.
"""

from collections.abc import Iterator
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports import flags, quantities
from dlbench.reports.cells import CellResult, Matrix, Place, group_of, row_of
from dlbench.reports.columns import Column, attributes, table
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    Curves,
    Point,
    along,
    by_machine,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    found_columns,
    usable,
)
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.naming import row_name, threads_name, work_name
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Ratio, judge, ratio

NOTHING = "Nothing was measured with several workers yet; `dlbench run` does it with --world-sizes 1,2."
STRONG, WEAK, ONE_PROCESS = WAYS = ("strong", "weak", "one_process")
AXES = ("threads", "world_size", "batch_size")
"""Of each worker, of the workers, of the whole mini-batch: the axes in which the points of a curve differ."""
Gain = dict[str, Any]
"""The ``speedup`` and the ``efficiency`` of workers over one (ratios), or the ``reason`` why there are none.

``measured`` says whether the one worker was.
"""


def scaling(matrix: Matrix) -> Curves:
    """Return a curve for each row, network and place that was measured with several workers, in the matrix's order."""
    networks = list(dict.fromkeys(group.network for group in matrix.rows))
    devices = list(dict.fromkeys((column.machine, column.device) for column in matrix.columns))

    def order(place: Place) -> tuple[object, ...]:
        # The precision that parity is proved at comes first.
        in_order = axes.sort_key(group_of(place.cell)), row_of(place.cell)
        return devices.index((place.machine, place.device)), networks.index(place.cell.network), *in_order

    found = along(matrix.cells.values(), *AXES)
    curves = []
    for place in sorted(found, key=order):
        teams = [cell.cell for cell in found[place] if cell.cell.world_size > 1]
        rivals = {rival for team in teams for rival in _rivals(team).values()}
        shown = [cell for cell in found[place] if cell.cell in {*teams, *rivals}]
        shown.sort(key=lambda cell: (cell.column.threads or 0, cell.cell.batch_size, cell.cell.world_size))
        if teams:
            host = matrix.hosts[place.machine]
            points = (_point(cell, matrix, host.effective_cpus) for cell in shown)
            curves.append(Curve(host, place.cell, tuple(points)))
    return Curves(tuple(curves), matrix.notes)


def _rivals(team: Cell) -> dict[str, Cell]:
    """Return the single workers that a team is compared with."""
    count = team.world_size
    found = {
        STRONG: team._replace(world_size=1),
        WEAK: team._replace(batch_size=team.batch_size // count, world_size=1),
    }
    if team.on_cpu and team.threads > 0:
        found[ONE_PROCESS] = team._replace(threads=team.threads * count, world_size=1)
    return found


def _point(cell: CellResult, matrix: Matrix, cpus: int | None) -> Point:
    team, count = cell.cell, cell.cell.world_size
    found: dict[str, Any] = dict.fromkeys(WAYS)
    if count > 1:
        for way, rival in _rivals(team).items():
            found[way] = _gain(way, rival, matrix.cells.get(Place(cell.machine, rival)), cell)
    threads = (cell.column.threads or 0) * count
    shares = count > 1 and team.on_cpu and cpus is not None and threads > cpus
    return Point(team, cell, usable(cell), found={**found, "shares_cpus": shares})


def _gain(way: str, rival: Cell, alone: CellResult | None, team: CellResult) -> Gain:
    """Return the seconds of one worker over those of several as a gain, or the reason why there is no such ratio."""
    count, threads = team.cell.world_size, f" of {threads_name(rival.threads)}" * (rival.on_cpu and rival.threads > 0)
    which = f"one worker{threads} at mini-batch {rival.batch_size}"
    reason = _doubt(team)
    if reason is None and alone is None:
        reason = f"{which} was not measured"
    elif reason is None and alone is not None:
        if (doubt := _doubt(alone)) is not None:
            reason = f"{which}: {doubt}"
        elif alone.environment != team.environment:
            reason = f"{which} was measured with another build"
    gain = {"speedup": None, "efficiency": None, "reason": reason or "", "measured": alone is not None}
    if reason or alone is None or alone.timed is None or team.timed is None:
        return gain
    # Weak scaling's ratio is of one worker's part; in one process both sides have as many threads.
    found = ratio(alone.timed, team.timed)
    speedup = found.changed(lambda value: value * count) if way == WEAK else found
    efficiency = None if way == ONE_PROCESS else speedup.changed(lambda value: value * (1 / count))
    return {**gain, "speedup": speedup, "efficiency": efficiency}


def _doubt(cell: CellResult) -> str | None:
    """Return why a cell is in no ratio; None where it may be."""
    if cell.timed is None:
        wrong = cell.shown
        return cell.reason or ("it computed something else than the reference" if wrong else cell.status.value)
    return "more threads worked than were asked for" if cell.has(flags.THREADS_EXCEEDED) else None


def teams_of(curve: Curve) -> list[Point]:
    """Return the points of several workers."""
    return [point for point in curve.points if point.at.world_size > 1]


def _gains(point: Point) -> dict[str, Gain]:
    return {way: point.found[way] for way in WAYS if point.found[way] is not None}


def _row(curve: Curve) -> str:
    """Return the row and its device in words."""
    return row_name(curve.cell) + ("" if curve.cell.on_cpu else f", {curve.cell.device}")


def _with_threads(curve: Curve) -> bool:
    """Return whether thread counts distinguish the points."""
    return curve.cell.on_cpu or len({point.at.threads for point in curve.points}) > 1


def _team(point: Point) -> str:
    """Return the workers and their threads in words: "2 x 1 thread", on GPUs "2 workers"."""
    count, threads = point.at.world_size, point.cell.column.threads
    if not threads or not point.at.on_cpu:
        return f"{count} worker{'s' if count != 1 else ''}"
    return f"{count} x {threads_name(threads)}"


# Tables, JSON and CSV.


def scaling_page(found: Curves) -> layout.Page:
    """Return a table for each row, network and place."""
    if not found.curves:
        return layout.Page((NOTHING,), (), found.notes)
    common = layout.common_flags(p.cell for curve in found.curves for p in curve.points if p.cell.timed is not None)
    before = (
        "Synchronous data-parallel training: each step w workers compute the gradients of their equal parts of the "
        "mini-batch, average them, and make the same update.",
    )
    tables = tuple(_table(curve, common) for curve in found.curves)
    return layout.Page(before, tables, tuple(_legend(found, common)))


def _gain_columns(way: str, *headings: str) -> list[Column[Point]]:
    """Return columns of a way's speed-up and, with another heading, its efficiency."""

    def text(name: str) -> Any:
        def of(point: Point) -> str:
            gain: Gain | None = point.found[way]
            if gain is None or point.cell.timed is None:
                return ""
            if (found := gain[name]) is None:
                return layout.MISSING if name == "speedup" else ""
            spread = layout.deviation(found.value, found.low, found.high)
            return f"{layout.number(found.value)}x{spread}" if name == "speedup" else f"{found.value:.2f}"

        return of

    return [
        Column("", heading, lambda point: None, text(name))
        for name, heading in zip(("speedup", "efficiency"), headings, strict=False)
    ]


def _table(curve: Curve, common: set[flags.FlagKind]) -> layout.Table:
    with_threads = _with_threads(curve)

    def seconds(point: Point) -> layout.Entry:
        return layout.entry(point.cell, quantities.QUANTITIES["seconds"], common)._replace(best=False)

    def items(point: Point) -> str:
        return "" if point.cell.timed is None else layout.number(point.cell.items_per_second or 0.0)

    columns: list[Column[Point]] = [
        *([Column("", "p", lambda point: point.cell.column.threads or "own")] if with_threads else []),
        Column("", "w", lambda point: point.at.world_size),
        Column("", "batch", lambda point: point.at.batch_size),
        Column("", "s/batch", lambda point: None, seconds),
        Column("", "items/s", lambda point: None, items),
        *_gain_columns(STRONG, "strong", "eff."),
        *_gain_columns(WEAK, "weak", "eff."),
        *(_gain_columns(ONE_PROCESS, "1 process") if any(point.found[ONE_PROCESS] for point in curve.points) else []),
    ]
    title = f"{work_name(curve.cell)}: {_row(curve)}, on {curve.host.name}"
    return table(columns, curve.points, title, notes=_notes(curve), widths=(1,) * len(columns), keys=2 + with_threads)


def _notes(curve: Curve) -> Iterator[str]:
    """Yield the conclusions of a table, and why numbers are missing."""
    teams = teams_of(curve)
    verdicts: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for point in teams:
        for way, gain in _gains(point).items():
            if way == ONE_PROCESS and gain["speedup"] is not None:
                where = f"{_team(point)} on {point.at.batch_size}"
                verdicts.setdefault(_verdict(curve, point, gain["speedup"]), []).append(where)
            if point.cell.timed is not None and gain["reason"] and gain["measured"]:
                words = "against 1 process" if way == ONE_PROCESS else way
                missing.setdefault(f"{words}: {gain['reason']}", []).append(_team(point))
    if verdicts:
        said = "; ".join(f"{', '.join(where)} {verdict}" for verdict, where in verdicts.items())
        yield f"Compared with one process of as many threads: {said}."
    if sharing := dict.fromkeys(_team(point) for point in teams if point.found["shares_cpus"]):
        yield (
            f"More threads altogether than the {curve.host.effective_cpus} CPUs here, which they share, so that no "
            f"speed-up can be expected: {', '.join(sharing)}."
        )
    empty = [(layout.why_hole(p.cell), _team(p), str(p.at.batch_size)) for p in curve.points if not p.cell.shown]
    yield from layout.reasons(empty)
    yield from (f"No figure for {', '.join(dict.fromkeys(of))}, {why}." for why, of in missing.items())


def _verdict(curve: Curve, team: Point, speedup: Ratio) -> str:
    """Return whether a team is faster than one process of as many threads: above 1 it is."""
    verdict = "no clear difference" if speedup.low is None else judge(speedup)
    word = {"worse": "faster", "better": "slower"}.get(verdict, "not clearly different")
    sides = {team.at, _rivals(team.at)[ONE_PROCESS]}
    disturbed = any(each.at in sides and each.cell.has(flags.CONTENDED) for each in curve.points)
    return word + " (other programs interfered)" * disturbed


def _legend(found: Curves, common: set[flags.FlagKind]) -> list[str]:
    points = [point for curve in found.curves for point in curve.points]
    lines = [
        "p threads of each worker; w workers, on GPUs each on one of its own; batch the whole mini-batch; strong "
        "speed-up over one worker on the same mini-batch (Amdahl 1967); weak throughput over that of one worker on a "
        "mini-batch of as many examples as each of the w has (Gustafson 1988); eff. that speed-up / w."
    ]
    if any(point.found[ONE_PROCESS] for point in points):
        lines.append(
            "1 process: seconds of one worker with w x p threads / those of w workers with p each; above 1 the workers "
            "are faster. On a CPU that is the fair comparison: strong and weak compare more threads with fewer."
        )
    few = (
        f"; of a ratio with fewer than {ENOUGH_LAUNCHES} launches on a side from their steps, widened by the "
        f"deviation between launches that other cells of the machine show ({LAUNCH_DEVIATION:.0%} without enough)"
    )
    few = few if any(point.cell.has(flags.FEW_LAUNCHES) for point in points) else ""
    lines.append(f"± half-width of the 95 % interval (the wider side){few}")
    if any(gain["speedup"] is None for point in points for gain in _gains(point).values()):
        lines.append(f"{layout.MISSING} the rival was not measured, or cannot be used")
    return [*lines, *layout.flag_lines((point.cell for point in points), common), *found.notes]


_GAIN = (*(f"{ratio}.{part}" for ratio in ("speedup", "efficiency") for part in VALUE), "reason")
_CURVE: tuple[Column[Curve], ...] = (
    *curve_columns(*AXES),
    Column("effective_cpus", None, lambda curve: curve.host.effective_cpus, fields=None),
)
_POINT: tuple[Column[Point], ...] = (
    *attributes(lambda point: point.cell.column, *AXES[:2]),
    *attributes(lambda point: point.at, AXES[2]),
    *cell_columns("status", "reason", "seconds", "items_per_second"),
    *found_columns(*WAYS, "shares_cpus", **dict.fromkeys(WAYS, _GAIN)),
    *cell_columns("flags"),
)


def _picture(curves: list[Curve]) -> pictures.Picture:
    """Return a page: a panel for each network; strong scaling with solid lines, weak scaling with broken ones."""
    panels: dict[str, dict[tuple[str, bool], dict[int, Ratio]]] = {}
    for curve in curves:
        for point in teams_of(curve):
            threads = threads_name(point.cell.column.threads) if _with_threads(curve) else ""
            name = ", ".join(filter(None, (_row(curve), threads)))
            for way, rival in _rivals(point.at).items():
                if way != ONE_PROCESS and (speedup := point.found[way]["speedup"]) is not None:
                    key = f"{name}, batch {rival.batch_size}{' each' * (way == WEAK)}", way == WEAK
                    panels.setdefault(work_name(curve.cell), {}).setdefault(key, {})[point.at.world_size] = speedup
    if not panels:
        missing = "No cell of several workers has a matching cell of one worker." if curves else NOTHING
        return pictures.Picture(missing, (), ())
    names = list(dict.fromkeys(name for of in panels.values() for name in of))
    styles = {name: pictures.style(number, number, int(name[1])) for number, name in enumerate(names)}
    drawn = []
    for title, of in panels.items():
        counts = sorted({1, *(count for speedups in of.values() for count in speedups)})
        lines = [
            pictures.Line(
                [(1, (1.0, None, None)), *((count, (r.value, r.low, r.high)) for count, r in sorted(speedups.items()))],
                styles[name],
            )
            for name, speedups in of.items()
        ]
        drawn.append(pictures.Panel(title, lines, counts, [(count, count) for count in counts]))
    legend: list[tuple[str, pictures.Style]] = [(name, styles[name, weak]) for name, weak in names]
    kinds = ((pictures.SOLID, "strong: the same mini-batch"), (pictures.BROKEN, "weak: it grows with the workers"))
    legend += [(label, {"color": "black", "linestyle": dashes}) for dashes, label in kinds]
    legend += [("ideal", {"color": pictures.GREY, "linestyle": pictures.DOTTED})]
    title = f"Speed-up over one worker, on {curves[0].host.name}"
    return pictures.Picture(title, drawn, legend, "workers; bars: interval of the ratio", "speed-up", binary=True)


REPORT = Report(
    name="scaling",
    summary="""Speed-up from several workers (GPUs, or processes on the CPU) that share a mini-batch.

Strong scaling compares them with one worker on the same mini-batch, weak scaling with one on a mini-batch as large
as each worker's part: measure both sizes for it. On the CPU they are also compared with one process with as many
threads as they have together, where that was measured.""",
    examples=(
        "dlbench run quick --frameworks torch --threads 1,2 --world-sizes 1,2 --batch-sizes 32,64",
        "dlbench report scaling",
        "dlbench report scaling --plot scaling.png --format markdown",
    ),
    analyse=lambda source: scaling(source.matrix()),
    page=lambda found, options: scaling_page(found),
    data=lambda found: {"lines": curve_objects(found.curves, _CURVE, _POINT), "notes": list(found.notes)},
    rows=lambda found: curve_rows(found.curves, _CURVE, _POINT),
    draw=lambda found, path, options: pictures.draw(map(_picture, by_machine(found.curves) or [[]]), path),
    drawable=lambda found: bool(found.curves),
    suggestion="the gain of several workers over one",
    applies=lambda cells: any(each.world_size > 1 for each in cells),
    options=frozenset({ALL_RUNS}),
    heading="Several workers",
    place=45,
    has_section=lambda found: bool(found.curves),
)

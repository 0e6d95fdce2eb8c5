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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, Matrix, Place, group_of, row_of
from dlbench.reports.columns import Column, attributes
from dlbench.reports.curve.curve import CurveColumns, along, cell_columns, line_columns
from dlbench.reports.curve.plot import BROKEN, DOTTED, SOLID, Panel, Picture, Style, draw
from dlbench.reports.curve.plot import Line as Drawn
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.formats.pictures import GREY
from dlbench.reports.naming import row_name, threads_name, work_name
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Ratio, judge, ratio
from dlbench.reports.storage.hosts import Host

NOTHING = "Nothing was measured with several workers yet; `dlbench run` does it with --world-sizes 1,2."
WAYS = ("strong", "weak", "one_process")


class At(NamedTuple):
    """Where a cell stands in its line."""

    threads: int | None
    """Of each worker; None: the device has none to choose."""
    world_size: int
    batch_size: int
    """Of the whole mini-batch."""


@dataclass(frozen=True)
class Gain:
    """The gain of several workers over one: a speed-up, or the reason why there is none."""

    speedup: Ratio | None
    efficiency: Ratio | None
    """Speed-up / workers."""
    reason: str = ""
    """Empty where there is a speed-up."""
    measured: bool = True
    """Whether one worker was measured for the comparison."""


@dataclass(frozen=True)
class Point:
    """One cell of a line; a missing one has a status and no seconds."""

    at: At
    cell: CellResult
    shares_cpus: bool = False
    """Whether the workers have more threads altogether than the machine has CPUs."""
    strong: Gain | None = None
    """Against one worker on the same mini-batch; None for one worker, as the next two."""
    weak: Gain | None = None
    """Against one worker on a mini-batch of as many examples as each of these gets."""
    one_process: Gain | None = None
    """Against as many threads in one process, without an efficiency; None too where threads do not compute."""

    @property
    def gains(self) -> dict[str, Gain]:
        """The gains that there are, by the names of `WAYS`."""
        return {way: gain for way in WAYS if (gain := getattr(self, way)) is not None}

    @property
    def name(self) -> str:
        """The workers and their threads in words: "2 x 1 thread", on GPUs "2 workers"."""
        if not self.at.threads or not self.cell.column.on_cpu:
            return f"{self.at.world_size} worker{'s' if self.at.world_size != 1 else ''}"
        return f"{self.at.world_size} x {self.at.threads} thread{'s' if self.at.threads != 1 else ''}"


class Line(NamedTuple):
    """Several workers and their rivals: one row of the matrix on one network at one place."""

    host: Host
    place: Place
    points: tuple[Point, ...]
    """By threads, mini-batch and workers."""

    @property
    def teams(self) -> list[Point]:
        """The points of several workers."""
        return [point for point in self.points if point.at.world_size > 1]

    @property
    def row(self) -> str:
        """The row and its device in words."""
        return row_name(self.place.cell) + ("" if self.place.on_cpu else f", {self.place.device}")

    @property
    def with_threads(self) -> bool:
        """Whether thread counts distinguish its points."""
        return self.place.on_cpu or len({point.at.threads for point in self.points}) > 1


class Workers(NamedTuple):
    """All lines of a matrix."""

    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def workers(matrix: Matrix) -> Workers:
    """Return a line for each row, network and place that was measured with several workers, in the matrix's order."""
    networks = list(dict.fromkeys(group.network for group in matrix.rows))
    devices = list(dict.fromkeys((column.machine, column.device) for column in matrix.columns))

    def order(place: Place) -> tuple[object, ...]:
        # The precision that parity is proved at comes first.
        in_order = axes.sort_key(group_of(place.cell)), row_of(place.cell)
        return devices.index((place.machine, place.device)), networks.index(place.cell.network), *in_order

    found = along(matrix.cells.values(), *At._fields)
    lines = []
    for place in sorted(found, key=order):
        cells = {At(cell.column.threads, cell.column.world_size, cell.group.batch_size): cell for cell in found[place]}
        if any(at.world_size > 1 for at in cells):
            lines.append(_line(matrix.hosts[place.machine], place, cells))
    return Workers(tuple(lines), matrix.notes)


def _line(host: Host, place: Place, cells: Mapping[At, CellResult]) -> Line:
    teams = [at for at in cells if at.world_size > 1]
    shown = {*teams, *(rival for at in teams for rival in _rivals(at, place.on_cpu).values() if rival in cells)}
    in_order = sorted(shown, key=lambda at: (at.threads or 0, at.batch_size, at.world_size))
    return Line(host, place, tuple(_point(at, cells, place.on_cpu, host) for at in in_order))


def _rivals(at: At, on_cpu: bool) -> dict[str, At]:
    """Return the single workers that a team is compared with: of strong and weak scaling, and in one process."""
    found = {
        "strong": at._replace(world_size=1),
        "weak": at._replace(batch_size=at.batch_size // at.world_size, world_size=1),
    }
    if on_cpu and at.threads:
        found["one_process"] = At(at.threads * at.world_size, 1, at.batch_size)
    return found


def _point(at: At, cells: Mapping[At, CellResult], on_cpu: bool, host: Host) -> Point:
    cell, count = cells[at], at.world_size
    if count == 1:
        return Point(at, cell)
    gains = {}
    for way, rival in _rivals(at, on_cpu).items():
        found = _against(cells.get(rival), cell, rival, on_cpu)
        if isinstance(found, Ratio):
            # Weak scaling's ratio is of one worker's part; in one process both sides have as many threads.
            speedup = found.changed(lambda value: value * count) if way == "weak" else found
            efficiency = None if way == "one_process" else speedup.changed(lambda value: value * (1 / count))
            found = Gain(speedup, efficiency)
        gains[way] = found
    shares = on_cpu and host.effective_cpus is not None and (at.threads or 0) * count > host.effective_cpus
    return Point(at, cell, shares, **gains)


def _against(alone: CellResult | None, team: CellResult, at: At, on_cpu: bool) -> Ratio | Gain:
    """Return the seconds of one worker over those of several, or a gain with the reason why there is no such ratio."""
    if (doubt := _doubt(team)) is not None:
        return Gain(None, None, doubt, alone is not None)
    threads = f" of {at.threads} thread{'s' if at.threads != 1 else ''}" if at.threads and on_cpu else ""
    which = f"one worker{threads} at mini-batch {at.batch_size}"
    if alone is None:
        return Gain(None, None, f"{which} was not measured", False)
    if (doubt := _doubt(alone)) is not None:
        return Gain(None, None, f"{which}: {doubt}")
    if alone.environment != team.environment:
        return Gain(None, None, f"{which} was measured with another build")
    assert alone.timed is not None
    assert team.timed is not None
    return ratio(alone.timed, team.timed)


def _doubt(cell: CellResult) -> str | None:
    """Return why a cell is in no ratio; None where it may be."""
    if cell.timed is None:
        wrong = cell.status is Status.OK and cell.seconds is not None
        return cell.reason or ("it computed something else than the reference" if wrong else cell.status.value)
    return "more threads worked than were asked for" if cell.has(flags.THREADS_EXCEEDED) else None


def _speedup(gain: Gain | None) -> str:
    if gain is None or gain.speedup is None:
        return "" if gain is None else layout.MISSING
    found = gain.speedup
    return f"{layout.number(found.value)}x{layout.deviation(found.value, found.low, found.high)}"


def _efficiency(gain: Gain | None) -> str:
    return "" if gain is None or gain.efficiency is None else f"{gain.efficiency.value:.2f}"


_FIELDS: tuple[tuple[str, Callable[[Point], str]], ...] = (
    ("items/s", lambda point: layout.number(point.cell.items_per_second or 0.0)),
    ("strong", lambda point: _speedup(point.strong)),
    ("eff.", lambda point: _efficiency(point.strong)),
    ("weak", lambda point: _speedup(point.weak)),
    ("eff.", lambda point: _efficiency(point.weak)),
    ("1 process", lambda point: _speedup(point.one_process)),
)


def workers_page(found: Workers) -> layout.Page:
    """Return a table for each row, network and place."""
    if not found.lines:
        return layout.Page((NOTHING,), (), found.notes)
    common = layout.common_flags(p.cell for line in found.lines for p in line.points if p.cell.timed is not None)
    before = (
        "Synchronous data-parallel training: each step w workers compute the gradients of their equal parts of the "
        "mini-batch, average them, and make the same update.",
    )
    tables = tuple(_table(line, common) for line in found.lines)
    return layout.Page(before, tables, tuple(_legend(found, common)))


def _table(line: Line, common: set[flags.FlagKind]) -> layout.Table:
    fields = _FIELDS if any(point.one_process for point in line.points) else _FIELDS[:-1]
    rows = tuple(
        (
            *([layout.Entry(str(point.at.threads or "own"))] if line.with_threads else []),
            layout.Entry(str(point.at.world_size)),
            layout.Entry(str(point.at.batch_size)),
            layout.entry(point.cell, layout.QUANTITIES["seconds"], common)._replace(best=False),
            *(layout.Entry(text(point) if point.cell.timed is not None else "") for _, text in fields),
        )
        for point in line.points
    )
    head = (*(["p"] if line.with_threads else []), "w", "batch", "s/batch", *(name for name, _ in fields))
    title = f"{work_name(line.place.cell)}: {line.row}, on {line.host.name}"
    return layout.Table(title, head, rows, tuple(_notes(line)), (1,) * len(head), keys=2 + line.with_threads)


def _notes(line: Line) -> list[str]:
    """Return the conclusions of a table, and why numbers are missing."""
    lines = list(_verdicts(line))
    sharing = dict.fromkeys(point.name for point in line.teams if point.shares_cpus)
    if sharing:
        lines.append(
            f"More threads altogether than the {line.host.effective_cpus} CPUs here, which they share, so that no "
            f"speed-up can be expected: {', '.join(sharing)}."
        )
    empty = [(layout.why_hole(p.cell), p.name, str(p.at.batch_size)) for p in line.points if not p.cell.shown]
    missing: dict[str, list[str]] = {}
    for point in line.teams:
        for way, gain in point.gains.items():
            if point.cell.timed is not None and gain.reason and gain.measured:
                words = "against 1 process" if way == "one_process" else way
                missing.setdefault(f"{words}: {gain.reason}", []).append(point.name)
    reasons = (f"No figure for {', '.join(dict.fromkeys(of))}, {why}." for why, of in missing.items())
    return [*lines, *layout.reasons(empty), *reasons]


def _verdicts(line: Line) -> Iterable[str]:
    """Yield a sentence that compares teams with one process of as many threads."""
    found: dict[str, list[str]] = {}
    for point in line.teams:
        rival = None if point.one_process is None else point.one_process.speedup
        if rival is None:
            continue
        # The ratio is of speeds: above 1 the workers are faster.
        verdict = "no clear difference" if rival.low is None else judge(rival)
        word = {"worse": "faster", "better": "slower"}.get(verdict, "not clearly different")
        sides = {point.at, _rivals(point.at, True)["one_process"]}
        disturbed = any(each.at in sides and each.cell.has(flags.CONTENDED) for each in line.points)
        where = f"{point.name} on {point.at.batch_size}"
        found.setdefault(word + " (other programs interfered)" * disturbed, []).append(where)
    if found:
        said = "; ".join(f"{', '.join(teams)} {word}" for word, teams in found.items())
        yield f"Compared with one process of as many threads: {said}."


def _legend(found: Workers, common: set[flags.FlagKind]) -> list[str]:
    points = [point for line in found.lines for point in line.points]
    lines = [
        "p threads of each worker; w workers, on GPUs each on one of its own; batch the whole mini-batch; strong "
        "speed-up over one worker on the same mini-batch (Amdahl 1967); weak throughput over that of one worker on a "
        "mini-batch of as many examples as each of the w has (Gustafson 1988); eff. that speed-up / w."
    ]
    if any(point.one_process is not None for point in points):
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
    if any(gain.speedup is None for point in points for gain in point.gains.values()):
        lines.append(f"{layout.MISSING} the rival was not measured, or cannot be used")
    return [*lines, *layout.flag_lines((point.cell for point in points), common), *found.notes]


_GAIN = (*(f"{ratio}.{part}" for ratio in ("speedup", "efficiency") for part in VALUE), "reason")


COLUMNS: CurveColumns[Line, Point] = CurveColumns(
    (
        *line_columns(lambda line: line.host, lambda line: line.place.cell, *At._fields),
        Column("effective_cpus", None, lambda line: line.host.effective_cpus, fields=None),
    ),
    (
        *attributes(lambda point: point.at, *At._fields),
        *cell_columns(lambda point: point.cell, "status", "reason", "seconds", "items_per_second"),
        *attributes(lambda point: point, *WAYS, "shares_cpus", strong=_GAIN, weak=_GAIN, one_process=_GAIN),
        *cell_columns(lambda point: point.cell, "flags"),
    ),
    lambda line: line.points,
)


def workers_to_picture(found: Workers, path: Path) -> list[Path]:
    """Draw speed-ups, each machine on a page of its own, and return the files written; raises ReportError."""
    machines = dict.fromkeys(line.place.machine for line in found.lines) or {"": None}
    return draw((_picture([line for line in found.lines if line.place.machine == each]) for each in machines), path)


def _picture(lines: list[Line]) -> Picture:
    """Return a page: a panel for each network; strong scaling with solid lines, weak scaling with broken ones."""
    panels: dict[str, dict[tuple[str, bool], dict[int, Ratio]]] = {}
    for line in lines:
        for point in line.teams:
            at = point.at
            threads = f", {threads_name(at.threads)}" if at.threads else ""
            name = line.row + (threads if line.with_threads else "")
            for way, batch in (("strong", at.batch_size), ("weak", at.batch_size // at.world_size)):
                gain = point.gains.get(way)
                if gain is not None and gain.speedup is not None:
                    label = f"{name}, batch {batch}{' each' * (way == 'weak')}"
                    curves = panels.setdefault(work_name(line.place.cell), {})
                    curves.setdefault((label, way == "weak"), {})[at.world_size] = gain.speedup
    if not panels:
        return Picture("No cell of several workers has a matching cell of one worker." if lines else NOTHING, (), ())
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    styles = {name: Style(number, number, int(name[1])) for number, name in enumerate(names)}
    drawn = []
    for title, curves in panels.items():
        counts = sorted({1, *(count for speedups in curves.values() for count in speedups)})
        of_panel = [
            Drawn(
                [(1, (1.0, None, None)), *((count, (r.value, r.low, r.high)) for count, r in sorted(of.items()))],
                styles[name],
            )
            for name, of in curves.items()
        ]
        drawn.append(Panel(title, of_panel, counts, [(count, count) for count in counts]))
    legend: list[tuple[str, Any]] = [(name, styles[name, weak]) for name, weak in names]
    kinds = ((SOLID, "strong: the same mini-batch"), (BROKEN, "weak: it grows with the workers"))
    legend += [(label, {"color": "black", "linestyle": dashes}) for dashes, label in kinds]
    legend += [("ideal", {"color": GREY, "linestyle": DOTTED})]
    title = f"Speed-up over one worker, on {lines[0].host.name}"
    return Picture(title, drawn, legend, "workers; bars: interval of the ratio", "speed-up", binary=True)


REPORT = Report(
    name="scaling",
    summary="""The gain of several workers (GPUs, or processes on the CPU) that share a mini-batch over one.

Strong scaling compares them with one worker on the same mini-batch, weak scaling with one on a mini-batch as large
as each worker's part: measure both sizes for it. On the CPU they are also compared with one process with as many
threads as they have together, where that was measured.""",
    examples=(
        "dlbench run quick --frameworks torch --threads 1,2 --world-sizes 1,2 --batch-sizes 32,64",
        "dlbench report scaling",
        "dlbench report scaling --plot scaling.png --format markdown",
    ),
    analyse=lambda source: workers(source.matrix()),
    page=lambda found, options: workers_page(found),
    data=lambda found: {"lines": COLUMNS.data(found.lines), "notes": list(found.notes)},
    rows=lambda found: COLUMNS.rows(found.lines),
    draw=lambda found, path, options: workers_to_picture(found, path),
    drawable=lambda found: bool(found.lines),
    suggestion="the gain of several workers over one",
    applies=lambda cells: any(each.world_size > 1 for each in cells),
    options=frozenset({ALL_RUNS}),
    heading="Several workers",
    place=45,
    has_section=lambda found: bool(found.lines),
)

"""Scaling over workers: the gain of several workers that share a mini-batch over a single one.

Training is data-parallel: each of w workers computes the gradients of an equal part of the
mini-batch. With sync ``step`` all average them, and each makes the same update; a step ends when
the slowest worker is done. With ``local:H`` each updates its own parameters, and all average them
after every H steps; with ``async`` each updates parameters that all share, without waiting. T(w, b)
is the seconds of a step of w workers on a mini-batch of b examples in total, including its share of
an exchange, with all else the same, even the build.

- Strong scaling (Amdahl 1967, "Validity of the single processor approach to achieving large scale
  computing capabilities"): speed-up S = T(1, b) / T(w, b), efficiency S / w.
- Weak scaling (Gustafson 1988, "Reevaluating Amdahl's law"): speed-up w T(1, b) / T(w, w b), that
  of the throughput; efficiency T(1, b) / T(w, w b).
- Against one process: T'(1, b) / T(w, b), where T' is of one worker with w times as many threads.
  On a CPU this is the fair rival: the speed-ups above compare more threads with fewer.
- Doubling the workers saves 1 - T(w, b) / T(w / 2, b) of a step's time, exchanging less often 1 - T
  / T(step).
- Seconds to a loss: the further steps of each launch (`Protocol.loss_steps`) until the loss is as
  low as all cells of these threads and this mini-batch reached, times T.

Ratios leave out cells that failed parity, used more threads than asked or were measured with
another build, and cells with ``async`` whose last loss is more than `ALIKE` off that of ``step``;
the reason is shown instead. CPU workers with more threads in total than the machine has CPUs share
these, so no speed-up can be expected.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dlbench.adapters import axes
from dlbench.adapters.protocol import ASYNC, EVERY_STEP, Cell, Status
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
    filled,
    found_column,
    found_columns,
    usable,
)
from dlbench.reports.curve.training import steps_to
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.ratio.pairs import seconds_column
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results import flags
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, row_name, threads_name, work_name
from dlbench.reports.results.number_text import deviation, number
from dlbench.reports.results.record import Record, last_attempts
from dlbench.reports.results.statistics import Ratio, judge, ratio

NOTHING = (
    "Nothing was measured with several workers yet; `dlbench run` does it with --world-sizes 1,2."
)
STRONG, WEAK, ONE_PROCESS, DOUBLING, EXCHANGE = (
    "strong",
    "weak",
    "one_process",
    "doubling",
    "exchange",
)
WAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((STRONG, WEAK, ONE_PROCESS), ("speedup", "efficiency")),
    **dict.fromkeys((DOUBLING, EXCHANGE), ("share",)),
}
"""What workers are compared with, and the figures of each comparison."""
AXES = ("threads", "world_size", "batch_size", "sync")
"""Of each worker, of the workers, of the whole mini-batch, of exchanges: the points of a curve
differ in these axes."""
Gain = dict[str, Any]
"""The ratios of a comparison, or the ``reason`` for their absence. ``measured``: whether its rival
was."""
ALIKE = 0.05
"""Relative difference from the loss of synchronous workers up to which asynchronous ones count."""


class Training(NamedTuple):
    """Losses and staleness of a cell's launches."""

    losses: tuple[tuple[int, float], ...] = ()
    """Of the further steps: steps so far and the loss, the median over launches."""
    ended: str = ""
    """Why the further steps ended early; empty where they did not."""
    staleness: Mapping[str, float] | None = None


def trainings(records: Iterable[Record]) -> dict[Place, Training]:
    """Return the training of each cell; if records have different numbers of further steps, the
    newest counts.
    """
    good = [record for record in last_attempts(records) if record.outcome.status is Status.OK]
    good.sort(key=lambda record: record.started)
    of_cells = grouped(
        good, lambda record: Place(record.machine, axes.project(record.cell, axes.NAMES))
    )
    return {place: _training(of_cell) for place, of_cell in of_cells.items()}


def _training(records: list[Record]) -> Training:
    asked = records[-1].protocol.loss_steps
    listed = [record.outcome.losses for record in records if record.protocol.loss_steps == asked]
    whole = [
        each
        for each in listed
        if each and all(len(point) == 2 for point in each) and each[-1][0] == asked
    ]
    alike = np.array([each for each in whole if len(each) == len(whole[-1])])
    losses = [(int(step), float(loss)) for step, loss in np.median(alike, axis=0)] if whole else []
    ended = (
        str(records[-1].outcome.software.get("losses_ended", "they took too long"))
        if asked and not whole
        else ""
    )
    stale = [
        each
        for record in records
        if isinstance(each := record.outcome.software.get("staleness"), Mapping)
    ]
    middle, most = (
        [each[n] for each in stale if isinstance(each.get(n), int | float)]
        for n in ("median", "maximum")
    )
    staleness = {"median": median(middle), "maximum": max(most)} if middle and most else None
    return Training(tuple(losses), ended, staleness)


class _Seen(NamedTuple):
    """The inputs of a report's comparisons."""

    matrix: Matrix
    trainings: Mapping[Place, Training]

    def training(self, machine: str, cell: Cell) -> Training:
        return self.trainings.get(Place(machine, cell), Training())

    def doubt(self, cell: CellResult) -> str:
        """Return why a cell is left out of ratios; empty if it may take part."""
        if cell.timed is None:
            wrong = cell.shown
            return cell.reason or (
                "it computed something other than the reference" if wrong else cell.status.value
            )
        if cell.has(flags.THREADS_EXCEEDED):
            return "more threads worked than were asked for"
        own, other = (
            self.training(cell.machine, cell.cell._replace(sync=of))
            for of in (cell.cell.sync, EVERY_STEP)
        )
        if cell.cell.sync != ASYNC:
            return ""
        if own.ended:
            return f"the steps that show its loss ended early: {own.ended}"
        if not own.losses or not other.losses or own.losses[-1][0] != other.losses[-1][0]:
            return ""
        (steps, loss), (_, right) = own.losses[-1], other.losses[-1]
        words = (
            f"its loss after {steps} steps is {number(loss)}, that of {EVERY_STEP} {number(right)}"
        )
        return words if abs(loss - right) > ALIKE * abs(right) else ""


def scaling(matrix: Matrix, records: Iterable[Record] = ()) -> Curves:
    """Return a curve for each row, network and place that was measured with several workers, in the
    matrix's order.
    """
    seen = _Seen(matrix, trainings(records))
    networks = list(dict.fromkeys(group.network for group in matrix.rows))
    devices = list(dict.fromkeys((column.machine, column.device) for column in matrix.columns))

    def order(place: Place) -> tuple[int, int]:
        return devices.index((place.machine, place.device)), networks.index(place.cell.network)

    found = along(matrix.cells.values(), *AXES)
    curves = []
    for place in sorted(found, key=order):
        teams = [cell.cell for cell in found[place] if cell.cell.world_size > 1]
        rivals = {rival for team in teams for rival in _rivals(team).values()}
        shown = [cell for cell in found[place] if cell.cell in {*teams, *rivals}]
        shown.sort(key=_in_order)
        if teams:
            targets = _targets(shown, seen)
            host = matrix.hosts[place.machine]
            points = (_point(cell, seen, targets, host.effective_cpus) for cell in shown)
            curves.append(Curve(host, place.cell, tuple(points)))
    return Curves(tuple(curves), matrix.notes)


def _in_order(cell: CellResult) -> tuple[object, ...]:
    at = cell.cell
    return (
        cell.column.threads or 0,
        axes.order_of(at.batch_size),
        at.world_size,
        at.sync == ASYNC,
        at.local_steps,
    )


def _rivals(team: Cell) -> dict[str, Cell]:
    """Return the cells that a team is compared with."""
    count = team.world_size
    alone = team._replace(world_size=1, sync=EVERY_STEP)
    found = {STRONG: alone}
    if team.batch_size is not None:
        found[WEAK] = alone._replace(batch_size=team.batch_size // count)
    if team.on_cpu and team.threads > 0:
        found[ONE_PROCESS] = alone._replace(threads=team.threads * count)
    if count % 2 == 0:
        found[DOUBLING] = alone if count == 2 else team._replace(world_size=count // 2)
    if team.sync != EVERY_STEP:
        found[EXCHANGE] = team._replace(sync=EVERY_STEP)
    return found


def _targets(cells: Iterable[CellResult], seen: _Seen) -> dict[tuple[int, int | None], float]:
    """Return the lowest loss that all cells of as many threads and examples reached."""
    reached: dict[tuple[int, int | None], list[float]] = {}
    for cell in cells:
        losses = [loss for _, loss in seen.training(cell.machine, cell.cell).losses]
        if losses and not seen.doubt(cell):
            reached.setdefault((cell.cell.threads, cell.cell.batch_size), []).append(min(losses))
    return {key: max(losses) for key, losses in reached.items()}


def _point(
    cell: CellResult, seen: _Seen, targets: Mapping[tuple[int, int | None], float], cpus: int | None
) -> Point:
    team, count = cell.cell, cell.cell.world_size
    found: dict[str, Any] = dict.fromkeys(WAYS)
    if count > 1:
        found |= {way: _gain(way, rival, cell, seen) for way, rival in _rivals(team).items()}
    threads = (cell.column.threads or 0) * count
    training = seen.training(cell.machine, team)
    target = steps = seconds = None
    if training.losses and cell.timed is not None and not seen.doubt(cell):
        target = targets[team.threads, team.batch_size]
        steps = steps_to(target, *zip(*training.losses, strict=True))
        seconds = steps and steps * cell.timed.median
    found |= {
        "shares_cpus": count > 1 and team.on_cpu and cpus is not None and threads > cpus,
        "losses": [list(point) for point in training.losses],
        "loss": training.losses[-1][1] if training.losses else None,
        "target_loss": target,
        "steps_to_target": steps,
        "seconds_to_target": seconds,
        "staleness": training.staleness,
    }
    return Point(team, cell, usable(cell), found=found)


def _gain(way: str, rival: Cell, team: CellResult, seen: _Seen) -> Gain:
    """Return the seconds of a rival over those of a team as a gain, or the reason why there is no
    such ratio.
    """
    other, count = seen.matrix.cells.get(Place(team.machine, rival)), team.cell.world_size
    workers = "one worker" if rival.world_size == 1 else f"{rival.world_size} workers"
    threads = f" of {threads_name(rival.threads)}" * (rival.on_cpu and rival.threads > 0)
    size = "" if rival.batch_size is None else f" at mini-batch {rival.batch_size}"
    which = f"{workers}{threads}{size}" + f", {rival.sync}" * (rival.world_size > 1)
    reason = seen.doubt(team)
    if reason or other is None:
        reason = reason or f"{which} was not measured"
    elif doubt := seen.doubt(other):
        reason = f"{which}: {doubt}"
    elif other.environment != team.environment:
        reason = f"{which} was measured with another build"
    gain: Gain = {**dict.fromkeys(WAYS[way]), "reason": reason, "measured": other is not None}
    if reason or other is None or other.timed is None or team.timed is None:
        return gain
    # Weak scaling's ratio is of one worker's part; in one process both sides have as many threads.
    found = ratio(other.timed, team.timed)
    if "share" in gain:
        return {**gain, "share": found.changed(lambda value: 1 - 1 / value)}
    speedup = found.changed(lambda value: value * count) if way == WEAK else found
    efficiency = None if way == ONE_PROCESS else speedup.changed(lambda value: value * (1 / count))
    return {**gain, "speedup": speedup, "efficiency": efficiency}


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
    """Return workers, threads and when they exchange in words: "2 x 1 thread, local:4", on GPUs "2
    workers".
    """
    count, threads = point.at.world_size, point.cell.column.threads
    sync = f", {point.at.sync}" if point.at.sync != EVERY_STEP else ""
    if not threads or not point.at.on_cpu:
        return counted(count, "worker") + sync
    return f"{count} x {threads_name(threads)}{sync}"


# Tables, JSON and CSV.


def scaling_page(found: Curves) -> layout.Page:
    """Return a table or two for each row, network and place."""
    if not found.curves:
        return layout.Page((NOTHING,), (), found.notes)
    points = [point for curve in found.curves for point in curve.points]
    common = layout.common_flags(point.cell for point in points if point.cell.timed is not None)
    before = [
        (
            "Data-parallel training: in each step w workers compute the gradients of equal parts "
            "of the mini-batch, average them, and make the same update."
        )
    ]
    if any(point.at.sync != EVERY_STEP for point in points):
        before += [
            (
                "sync local:H: each worker updates its own parameters, and all average them after "
                "every H steps; async: each updates parameters that all share, without waiting."
            )
        ]
    tables = [each for curve in found.curves for each in _tables(curve, common)]
    return layout.Page(tuple(before), tuple(tables), tuple(_legend(found, points, common)))


def _gain_column(way: str, heading: str, name: str = "") -> Column[Point]:
    """Return a column of a figure of a comparison, the first one without a name."""

    def text(point: Point) -> str:
        gain: Gain | None = point.found[way]
        if gain is None or point.cell.timed is None:
            return ""
        found: Ratio | None = gain[name or WAYS[way][0]]
        if found is None:
            return "" if name else layout.MISSING
        if name:
            return f"{found.value:.2f}"
        if "speedup" in gain:
            return f"{number(found.value)}x{deviation(found.value, found.low, found.high)}"
        ends = [abs(end - found.value) for end in (found.low, found.high) if end is not None]
        deviation_text = f"±{math.ceil(100 * max(ends))}" if ends else ""
        return f"{100 * found.value:.0f}{deviation_text}%"

    return Column("", heading, text)


def _tables(curve: Curve, common: set[flags.FlagKind]) -> Iterator[layout.Table]:
    """Yield the table of speed-ups and that of time saved and losses; columns that would be empty
    are left out.
    """

    def items(point: Point) -> str:
        return "" if point.cell.timed is None else number(point.cell.items_per_second or 0.0)

    apart = any(point.at.sync != EVERY_STEP for point in curve.points)
    keys: list[Column[Point]] = [
        *(
            [Column("", "p", lambda point: point.cell.column.threads or "default")]
            if _with_threads(curve)
            else []
        ),
        Column("", "w", lambda point: point.at.world_size),
        *(
            [Column("", "sync", lambda point: point.at.sync if point.at.world_size > 1 else "")]
            if apart
            else []
        ),
        Column("", "batch", lambda point: point.at.batch_size),
    ]
    others = (
        _gain_column(WEAK, "weak"),
        _gain_column(WEAK, "eff.", "efficiency"),
        _gain_column(ONE_PROCESS, "1 process"),
    )
    columns = [
        *keys,
        seconds_column(lambda point: point.cell, common),
        Column("", "items/s", items),
        _gain_column(STRONG, "strong"),
        _gain_column(STRONG, "eff.", "efficiency"),
        *filled(others, curve.points),
    ]
    title = f"{work_name(curve.cell)}: {_row(curve)}"
    on = f"on {curve.host.name}"
    yield table(columns, curve.points, f"{title}, {on}", notes=_notes(curve), keys=len(keys))
    costs = (
        _gain_column(DOUBLING, "doubling"),
        _gain_column(EXCHANGE, "exchange"),
        found_column("loss", "loss"),
        found_column("seconds_to_target", "s to loss"),
        found_column("staleness", "stale", lambda seen: f"{seen['median']:g}, {seen['maximum']:g}"),
    )
    if further := filled(costs, curve.points):
        points = [
            point for point in curve.points if any(each.entry(point).text for each in further)
        ]
        losses = {
            (point.at.threads, point.at.batch_size): point.found["target_loss"]
            for point in points
            if point.found["target_loss"] is not None
        }
        notes = [
            (
                f"s to loss: seconds to a loss of {number(loss)} (mini-batch "
                f"{axes.word('batch_size', batch_size)}"
            )
            + (f", {threads_name(threads)})." if threads > 0 else ").")
            for (threads, batch_size), loss in losses.items()
        ]
        title = f"{title}, time saved and losses, {on}"
        yield table([*keys, *further], points, title, notes=notes, keys=len(keys))


def _notes(curve: Curve) -> Iterator[str]:
    """Yield the conclusions of a table, and why numbers are missing."""
    teams = teams_of(curve)
    verdicts: dict[str, list[str]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    missing: dict[str, list[str]] = {}
    for point in teams:
        for way, gain in _gains(point).items():
            if way == ONE_PROCESS and gain["speedup"] is not None:
                where = f"{_team(point)} on {axes.word('batch_size', point.at.batch_size)}"
                verdicts.setdefault(_verdict(curve, point, gain["speedup"]), []).append(where)
            if point.cell.timed is not None and gain["reason"] and gain["measured"]:
                words = "against 1 process" if way == ONE_PROCESS else way
                reasons.setdefault((gain["reason"], _team(point)), []).append(words)
    for (reason, team), ways in reasons.items():
        missing.setdefault(f"{', '.join(ways)}: {reason}", []).append(team)
    if verdicts:
        said = "; ".join(f"{', '.join(where)} {verdict}" for verdict, where in verdicts.items())
        yield f"Compared with one process of as many threads: {said}."
    if sharing := dict.fromkeys(_team(point) for point in teams if point.found["shares_cpus"]):
        yield (
            f"More threads in total than the {curve.host.effective_cpus} CPUs here, so no speed-up "
            f"can be expected: {', '.join(sharing)}."
        )
    empty = [
        (layout.why_hole(p.cell), _team(p), axes.word("batch_size", p.at.batch_size))
        for p in curve.points
        if not p.cell.shown
    ]
    yield from layout.reasons(empty)
    yield from (
        f"No figure for {', '.join(dict.fromkeys(of))}, {why}." for why, of in missing.items()
    )


def _verdict(curve: Curve, team: Point, speedup: Ratio) -> str:
    """Return whether a team is faster than one process of as many threads: above 1 it is."""
    verdict = "no clear difference" if speedup.low is None else judge(speedup)
    word = {"worse": "faster", "better": "slower"}.get(verdict, "not clearly different")
    sides = {team.at, _rivals(team.at)[ONE_PROCESS]}
    disturbed = any(each.at in sides and each.cell.has(flags.CONTENDED) for each in curve.points)
    return word + " (other programs interfered)" * disturbed


def _legend(found: Curves, points: list[Point], common: set[flags.FlagKind]) -> list[str]:
    gains = [gain for point in points for gain in _gains(point).items()]
    figures = {way for way, gain in gains if gain[WAYS[way][0]] is not None}
    lines = [
        (
            "p: threads per worker; w: workers, on GPUs one per GPU; batch: the whole mini-batch; "
            "strong: speed-up over one worker on the same mini-batch (Amdahl 1967); weak: "
            "throughput over that of one worker on a mini-batch as large as each worker's part "
            "(Gustafson 1988); eff.: that speed-up / w."
        )
    ]
    if ONE_PROCESS in figures:
        lines.append(
            "1 process: seconds of one worker with w x p threads over those of w workers with p "
            "each; above 1 the workers are faster. On a CPU this is the fair comparison: strong "
            "and weak compare more threads with fewer."
        )
    if DOUBLING in figures:
        lines.append(
            "doubling: the share of a step's time that doubling the workers saves; below 0 the "
            "step takes longer. Wuensche 2018 (IV.C) gives for GPUs 35 % with CNTK and MXNet, 28 % "
            "with Caffe, 10 % with Torch and TensorFlow."
        )
    if EXCHANGE in figures:
        lines.append(
            "exchange: the share of a step's time saved by exchanging less often than at every "
            "step; with many local steps, nearly all the time spent exchanging and waiting."
        )
    if any(point.found["loss"] is not None for point in points):
        lines.append(
            "loss: that of the last of the further steps, which follow the timed ones on one "
            "mini-batch. s to loss: steps to the lowest loss that all cells with these threads and "
            "this mini-batch reached, times the seconds of a step. Asynchronous workers whose loss "
            f"is more than {ALIKE:.0%} off that of step get no ratios."
        )
    if any(point.found["staleness"] for point in points):
        lines.append(
            "stale: updates by other workers between a worker's first read of the parameters in a "
            "step and its own update, median and maximum."
        )
    shares = ", of doubling and exchange in percentage points" * bool(
        figures & {DOUBLING, EXCHANGE}
    )
    lines.append(layout.HALF_WIDTH + shares)
    if any(point.cell.has(flags.FEW_LAUNCHES) for point in points):
        lines.append(layout.WIDENED)
    if any(gain[WAYS[way][0]] is None for way, gain in gains if way in figures | {STRONG}):
        lines.append(f"{layout.MISSING} the rival was not measured, or cannot be used")
    return [*lines, *layout.flag_lines((point.cell for point in points), common), *found.notes]


_CURVE: tuple[Column[Curve], ...] = (
    *curve_columns(*AXES),
    Column("effective_cpus", None, lambda curve: curve.host.effective_cpus, fields=None),
)
_POINT: tuple[Column[Point], ...] = (
    *attributes(lambda point: point.cell.column, *AXES[:2]),
    *attributes(lambda point: point.at, *AXES[2:]),
    *cell_columns("status", "reason", "seconds", "items_per_second"),
    *found_columns(
        *WAYS,
        **{
            way: (*(f"{name}.{part}" for name in names for part in VALUE), "reason")
            for way, names in WAYS.items()
        },
    ),
    *found_columns(
        "shares_cpus",
        "losses",
        "loss",
        "target_loss",
        "steps_to_target",
        "seconds_to_target",
        losses=None,
    ),
    *found_columns("staleness", staleness=("median", "maximum")),
    *cell_columns("flags"),
)


def _picture(curves: list[Curve]) -> pictures.Picture:
    """Return a page: a panel for each network; strong scaling with solid lines, weak scaling with
    broken ones.
    """
    panels: dict[str, dict[tuple[str, bool], dict[int, Ratio]]] = {}
    for curve in curves:
        for point in teams_of(curve):
            threads = threads_name(point.cell.column.threads) if _with_threads(curve) else ""
            sync = point.at.sync if point.at.sync != EVERY_STEP else ""
            name = ", ".join(filter(None, (_row(curve), threads, sync)))
            rivals = _rivals(point.at)
            for way in (STRONG, WEAK):
                gain: Gain | None = point.found[way]
                if gain is None or gain["speedup"] is None:
                    continue
                size = axes.word("batch_size", rivals[way].batch_size)
                key = f"{name}, batch {size}{' each' * (way == WEAK)}", way == WEAK
                of_panel = panels.setdefault(work_name(curve.cell), {})
                of_panel.setdefault(key, {})[point.at.world_size] = gain["speedup"]
    if not panels:
        return pictures.Picture(
            "No cell of several workers has a matching cell of one worker.", (), ()
        )
    names = list(dict.fromkeys(name for of in panels.values() for name in of))
    styles = {
        name: pictures.style(number, number, int(name[1])) for number, name in enumerate(names)
    }
    drawn = []
    for title, of in panels.items():
        counts = sorted({1, *(count for speedups in of.values() for count in speedups)})
        lines = [
            pictures.Line(
                [
                    (1, (1.0, None, None)),
                    *((count, (r.value, r.low, r.high)) for count, r in sorted(speedups.items())),
                ],
                styles[name],
            )
            for name, speedups in of.items()
        ]
        drawn.append(pictures.Panel(title, lines, counts, [(count, count) for count in counts]))
    legend: list[tuple[str, pictures.Style]] = [(name, styles[name, weak]) for name, weak in names]
    kinds = (
        (pictures.SOLID, "strong: the same mini-batch"),
        (pictures.BROKEN, "weak: it grows with the workers"),
    )
    legend += [(label, {"color": "black", "linestyle": dashes}) for dashes, label in kinds]
    legend += [("ideal", {"color": pictures.GREY, "linestyle": pictures.DOTTED})]
    title = f"Speed-up over one worker, on {curves[0].host.name}"
    return pictures.Picture(
        title, drawn, legend, "workers; bars: interval of the ratio", "speed-up", binary=True
    )


REPORT = Report(
    name="scaling",
    summary="""Speed-up from several workers (GPUs, or processes on the CPU) that share a
mini-batch.

Strong scaling compares them with one worker on the same mini-batch, weak scaling with one on a
mini-batch as large as each worker's part: measure both sizes for it. On the CPU they are also
compared with one process with as many threads as they have together, where that was measured.

With `--sync step,local:4,async` it shows what exchanging and waiting take, and with losses
(`dlbench run sync`) the seconds to a loss.""",
    examples=(
        "dlbench run quick --frameworks torch --threads 1,2 --world-sizes 1,2 --batch-sizes 32,64",
        (
            "dlbench run scaling --networks fcn5 --frameworks torch,jax --sync "
            "step,local:4,local:16,async"
        ),
        "dlbench report scaling",
        "dlbench report scaling --plot scaling.png --format markdown",
    ),
    analyse=lambda source: scaling(source.matrix(), source.results().records),
    page=lambda found, options: scaling_page(found),
    data=lambda found: {
        "lines": curve_objects(found.curves, _CURVE, _POINT),
        "notes": list(found.notes),
    },
    rows=lambda found: curve_rows(found.curves, _CURVE, _POINT),
    draw=lambda found, path, options: pictures.draw(map(_picture, by_machine(found.curves)), path),
    drawable=lambda found: bool(found.curves),
    suggestion="the gain of several workers over one",
    applies=lambda cells: any(each.world_size > 1 for each in cells),
    options=frozenset({ALL_RUNS}),
    heading="Several workers",
    place=45,
    has_section=lambda found: bool(found.curves),
)

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
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dlbench.adapters import axes
from dlbench.adapters.protocol import ASYNC, EVERY_STEP, Cell, Status
from dlbench.reports.columns import Column, attributes, table
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    CurvePoint,
    Curves,
    along,
    by_machine,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    estimate_fields,
    filled,
    finding_column,
    finding_columns,
    points_of,
    usable,
)
from dlbench.reports.curve.training import steps_to
from dlbench.reports.formats import layout
from dlbench.reports.formats.pictures import Interval
from dlbench.reports.ratio.pairs import seconds_column
from dlbench.reports.report import ALL_RUNS, Report, ReportOptions, ReportSource
from dlbench.reports.results import flag_kinds
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, network_name, row_name, threads_name
from dlbench.reports.results.number_text import deviation, number
from dlbench.reports.results.record import Record, last_attempts
from dlbench.reports.results.statistics import Estimate, judge_ratio, ratio

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
ALIKE = 0.05
"""Relative difference from the loss of synchronous workers up to which asynchronous ones count."""


class SpeedUp(NamedTuple):
    """The speed-up over a rival, or the reason why there is none."""

    speedup: Estimate | None
    efficiency: Estimate | None
    reason: str
    """Why there is no ratio; empty where there is one."""
    measured: bool
    """Whether the rival was measured."""

    @property
    def figure(self) -> Estimate | None:
        """The first of its figures."""
        return self.speedup


class Saving(NamedTuple):
    """The share of a step's time saved against a rival, or the reason why there is none."""

    share: Estimate | None
    reason: str
    measured: bool

    @property
    def figure(self) -> Estimate | None:
        """The only figure."""
        return self.share


Gain = SpeedUp | Saving


class WorkerFindings(NamedTuple):
    """The findings about a number of workers."""

    strong: SpeedUp | None
    """None without such a rival."""
    weak: SpeedUp | None
    one_process: SpeedUp | None
    doubling: Saving | None
    exchange: Saving | None
    shares_cpus: bool
    """Whether the workers have more threads than the machine has CPUs."""
    losses: list[list[float]]
    """Of the further steps: steps so far and the loss."""
    loss: float | None
    target_loss: float | None
    steps_to_target: float | None
    seconds_to_target: float | None
    staleness: Mapping[str, float] | None

    def gains(self) -> "dict[str, Gain]":
        """Return the comparisons that there are, by their names."""
        gains: dict[str, Gain] = {}
        for way in WAYS:
            gain = getattr(self, way)
            if gain is not None:
                gains[way] = gain
        return gains


TeamPoint = CurvePoint[Cell, WorkerFindings]
TeamCurve = Curve[Cell, WorkerFindings, None]
TeamCurves = Curves[Cell, WorkerFindings, None, None]


class WorkerTraining(NamedTuple):
    """Losses and staleness of a cell's launches."""

    losses: tuple[tuple[int, float], ...] = ()
    """Of the further steps: steps so far and the loss, the median over launches."""
    ended: str = ""
    """Why the further steps ended early; empty where they did not."""
    staleness: Mapping[str, float] | None = None


def trainings(records: Iterable[Record]) -> dict[Place, WorkerTraining]:
    """Return the training of each cell.

    If records have different numbers of further steps, the newest counts.
    """
    good = [record for record in last_attempts(records) if record.outcome.status is Status.OK]
    good.sort(key=lambda record: record.started)
    by_place = {}
    for place, records_of_cell in grouped(good, lambda record: record.place).items():
        by_place[place] = _training(records_of_cell)
    return by_place


def _training(records: list[Record]) -> WorkerTraining:
    """Return the training of the records of a cell, the newest last."""
    newest = records[-1]
    asked = newest.protocol.loss_steps
    whole = []
    for record in records:
        losses = record.outcome.losses
        if record.protocol.loss_steps != asked or not losses:
            continue
        if all(len(point) == 2 for point in losses) and losses[-1][0] == asked:
            whole.append(losses)
    ended = ""
    if asked and not whole:
        ended = str(newest.outcome.software.get("losses_ended", "they took too long"))
    medians: list[tuple[int, float]] = []
    if whole:
        alike = [losses for losses in whole if len(losses) == len(whole[-1])]
        for step, loss in np.median(np.array(alike), axis=0):
            medians.append((int(step), float(loss)))
    return WorkerTraining(tuple(medians), ended, _staleness(records))


def _staleness(records: Iterable[Record]) -> dict[str, float] | None:
    """Return the median and the maximum over launches, or None if none was reported."""
    medians, maxima = [], []
    for record in records:
        reported = record.outcome.software.get("staleness")
        if isinstance(reported, Mapping):
            if isinstance(reported.get("median"), int | float):
                medians.append(reported["median"])
            if isinstance(reported.get("maximum"), int | float):
                maxima.append(reported["maximum"])
    if not medians or not maxima:
        return None
    return {"median": median(medians), "maximum": max(maxima)}


class _Inputs(NamedTuple):
    """The inputs of a report's comparisons."""

    matrix: Matrix
    trainings: Mapping[Place, WorkerTraining]

    def training(self, machine: str, cell: Cell) -> WorkerTraining:
        return self.trainings.get(Place(machine, cell), WorkerTraining())

    def doubt(self, cell: CellResult) -> str:
        """Return why a cell is left out of ratios, or an empty text if it is not."""
        if cell.timed is None:
            if cell.reason:
                return cell.reason
            if cell.shown:
                return "it computed something other than the reference"
            return cell.status.value
        if cell.has(flag_kinds.THREADS_EXCEEDED):
            return "more threads worked than were asked for"
        if cell.cell.sync != ASYNC:
            return ""
        own = self.training(cell.machine, cell.cell)
        synchronous = self.training(cell.machine, cell.cell._replace(sync=EVERY_STEP))
        if own.ended:
            return f"the steps that show its loss ended early: {own.ended}"
        if not own.losses or not synchronous.losses:
            return ""
        steps, loss = own.losses[-1]
        last_step, right = synchronous.losses[-1]
        if steps != last_step or not abs(loss - right) > ALIKE * abs(right):
            return ""
        words = f"its loss after {steps} steps is {number(loss)}"
        return f"{words}, that of {EVERY_STEP} {number(right)}"


def scaling(matrix: Matrix, records: Iterable[Record] = ()) -> TeamCurves:
    """Return a curve for each row, network and place that was measured with several workers.

    The curves are in the matrix's order.
    """
    inputs = _Inputs(matrix, trainings(records))
    networks = list(dict.fromkeys(work.network for work in matrix.rows))
    devices = list(dict.fromkeys((column.machine, column.device) for column in matrix.columns))

    def order(place: Place) -> tuple[int, int]:
        return devices.index((place.machine, place.device)), networks.index(place.cell.network)

    cells_by_place = along(matrix.cells.values(), *AXES)
    curves = []
    for place in sorted(cells_by_place, key=order):
        cells = cells_by_place[place]
        with_rivals: set[Cell] = set()
        for cell in cells:
            team = cell.cell
            if team.world_size > 1:
                with_rivals.update((team, *_rivals(team).values()))
        if not with_rivals:
            continue
        shown = [cell for cell in cells if cell.cell in with_rivals]
        shown.sort(key=_point_order)
        targets = _targets(shown, inputs)
        host = matrix.hosts[place.machine]
        points = [_point(cell, inputs, targets, host.effective_cpus) for cell in shown]
        curves.append(Curve(host, place.cell, tuple(points), None))
    return Curves(tuple(curves), matrix.notes, None)


def _point_order(cell: CellResult) -> tuple[object, ...]:
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
    rivals = {STRONG: alone}
    if team.batch_size is not None:
        rivals[WEAK] = alone._replace(batch_size=team.batch_size // count)
    if team.on_cpu and team.threads > 0:
        rivals[ONE_PROCESS] = alone._replace(threads=team.threads * count)
    if count % 2 == 0:
        rivals[DOUBLING] = alone if count == 2 else team._replace(world_size=count // 2)
    if team.sync != EVERY_STEP:
        rivals[EXCHANGE] = team._replace(sync=EVERY_STEP)
    return rivals


Targets = Mapping[tuple[int, int | None], float]
"""Losses by threads and mini-batch."""


def _targets(cells: Iterable[CellResult], inputs: _Inputs) -> Targets:
    """Return the lowest loss that all cells of as many threads and examples reached."""
    targets: dict[tuple[int, int | None], float] = {}
    for cell in cells:
        losses = [loss for _, loss in inputs.training(cell.machine, cell.cell).losses]
        if losses and not inputs.doubt(cell):
            key = (cell.cell.threads, cell.cell.batch_size)
            lowest = min(losses)
            targets[key] = max(targets.get(key, lowest), lowest)
    return targets


def _point(cell: CellResult, inputs: _Inputs, targets: Targets, cpus: int | None) -> TeamPoint:
    team = cell.cell
    gains: dict[str, Any] = dict.fromkeys(WAYS)
    shares_cpus = False
    if team.world_size > 1:
        for way, rival in _rivals(team).items():
            gains[way] = _gain(way, rival, cell, inputs)
        threads = (cell.column.threads or 0) * team.world_size
        shares_cpus = team.on_cpu and cpus is not None and threads > cpus
    training = inputs.training(cell.machine, team)
    loss = target = steps = seconds = None
    if training.losses:
        loss = training.losses[-1][1]
        if cell.timed is not None and not inputs.doubt(cell):
            target = targets[team.threads, team.batch_size]
            steps = steps_to(target, *zip(*training.losses, strict=True))
            if steps is not None:
                seconds = steps * cell.timed.median
    findings = WorkerFindings(
        **gains,
        shares_cpus=shares_cpus,
        losses=[list(point) for point in training.losses],
        loss=loss,
        target_loss=target,
        steps_to_target=steps,
        seconds_to_target=seconds,
        staleness=training.staleness,
    )
    return CurvePoint(team, cell, usable(cell), findings)


def _gain(way: str, rival: Cell, team: CellResult, inputs: _Inputs) -> Gain:
    """Return the gain of a team over a rival, or the reason why there is no such ratio."""
    other = inputs.matrix.cells.get(Place(team.machine, rival))
    reason = _why_no_gain(rival, other, team, inputs)
    over_team = None
    if not reason and other is not None and other.timed is not None and team.timed is not None:
        over_team = ratio(other.timed, team.timed)
    measured = other is not None
    if way in (DOUBLING, EXCHANGE):
        share = None if over_team is None else over_team.changed(_share_saved)
        return Saving(share, reason, measured)
    if over_team is None:
        return SpeedUp(None, None, reason, measured)
    count = team.cell.world_size

    def multiply(value: float) -> float:
        return value * count

    def divide(value: float) -> float:
        return value * (1 / count)

    speedup = over_team
    if way == WEAK:
        # The ratio is of one worker's part.
        speedup = over_team.changed(multiply)
    efficiency = None
    if way != ONE_PROCESS:  # in one process both sides have as many threads
        efficiency = speedup.changed(divide)
    return SpeedUp(speedup, efficiency, reason, measured)


def _share_saved(speedup: float) -> float:
    return 1 - 1 / speedup


def _why_no_gain(
    rival: Cell, measured: CellResult | None, team: CellResult, inputs: _Inputs
) -> str:
    """Return why a team cannot be compared with a rival, or an empty text if it can."""
    doubt = inputs.doubt(team)
    if doubt:
        return doubt
    which = _describe_rival(rival)
    if measured is None:
        return f"{which} was not measured"
    doubt = inputs.doubt(measured)
    if doubt:
        return f"{which}: {doubt}"
    if measured.environment != team.environment:
        return f"{which} was measured with another build"
    return ""


def _describe_rival(rival: Cell) -> str:
    """Return a rival in words: "one worker of 2 threads at mini-batch 32"."""
    words = "one worker" if rival.world_size == 1 else f"{rival.world_size} workers"
    if rival.on_cpu and rival.threads > 0:
        words += f" of {threads_name(rival.threads)}"
    if rival.batch_size is not None:
        words += f" at mini-batch {rival.batch_size}"
    if rival.world_size > 1:
        words += f", {rival.sync}"
    return words


def teams_of(curve: TeamCurve) -> list[TeamPoint]:
    """Return the points of several workers."""
    return [point for point in curve.points if point.at.world_size > 1]


def _row(curve: TeamCurve) -> str:
    """Return the row and its device in words."""
    name = row_name(curve.cell)
    if curve.cell.on_cpu:
        return name
    return f"{name}, {curve.cell.device}"


def _shows_threads(curve: TeamCurve) -> bool:
    """Return whether thread counts distinguish the points."""
    return curve.cell.on_cpu or len({point.at.threads for point in curve.points}) > 1


def _team(point: TeamPoint) -> str:
    """Return a team in words: "2 x 1 thread, local:4", on GPUs "2 workers"."""
    count, threads = point.at.world_size, point.cell.column.threads
    sync = f", {point.at.sync}" if point.at.sync != EVERY_STEP else ""
    if not threads or not point.at.on_cpu:
        return counted(count, "worker") + sync
    return f"{count} x {threads_name(threads)}{sync}"


# Tables, JSON and CSV.


def scaling_page(content: TeamCurves) -> layout.Page:
    """Return a table or two for each row, network and place."""
    if not content.curves:
        return layout.Page((NOTHING,), (), content.notes)
    points = points_of(content.curves)
    common = layout.common_flags(point.cell for point in points if point.cell.timed is not None)
    before = [
        "Data-parallel training: in each step w workers compute the gradients of equal parts of "
        "the mini-batch, average them, and make the same update."
    ]
    if any(point.at.sync != EVERY_STEP for point in points):
        before.append(
            "sync local:H: each worker updates its own parameters, and all average them after "
            "every H steps; async: each updates parameters that all share, without waiting."
        )
    tables: list[layout.Table] = []
    for curve in content.curves:
        tables += _tables(curve, common)
    return layout.Page(tuple(before), tuple(tables), tuple(_legend(content, points, common)))


def _speedup_column(way: str, heading: str) -> Column[TeamPoint]:
    def text(point: TeamPoint) -> str:
        gain: SpeedUp | None = getattr(point.findings, way)
        if gain is None or point.cell.timed is None:
            return ""
        speedup = gain.speedup
        if speedup is None:
            return layout.MISSING
        return f"{number(speedup.value)}x{deviation(speedup.value, speedup.low, speedup.high)}"

    return Column("", heading, text)


def _efficiency_column(way: str) -> Column[TeamPoint]:
    def text(point: TeamPoint) -> str:
        gain: SpeedUp | None = getattr(point.findings, way)
        if gain is None or gain.efficiency is None or point.cell.timed is None:
            return ""
        return f"{gain.efficiency.value:.2f}"

    return Column("", "eff.", text)


def _saving_column(way: str) -> Column[TeamPoint]:
    def text(point: TeamPoint) -> str:
        gain: Saving | None = getattr(point.findings, way)
        if gain is None or point.cell.timed is None:
            return ""
        share = gain.share
        if share is None:
            return layout.MISSING
        halves = [abs(end - share.value) for end in (share.low, share.high) if end is not None]
        words = f"{100 * share.value:.0f}"
        if halves:
            words += f"±{math.ceil(100 * max(halves))}"
        return f"{words}%"

    return Column("", way, text)


def _key_columns(curve: TeamCurve) -> list[Column[TeamPoint]]:
    """Return the columns that identify a point of a curve."""
    columns: list[Column[TeamPoint]] = []
    if _shows_threads(curve):
        columns.append(Column("", "p", _threads))
    columns.append(Column("", "w", lambda point: point.at.world_size))
    if any(point.at.sync != EVERY_STEP for point in curve.points):
        columns.append(Column("", "sync", _sync))
    columns.append(Column("", "batch", lambda point: point.at.batch_size))
    return columns


def _threads(point: TeamPoint) -> int | str:
    return point.cell.column.threads or "default"


def _sync(point: TeamPoint) -> str:
    return point.at.sync if point.at.world_size > 1 else ""


def _items(point: TeamPoint) -> str:
    if point.cell.timed is None:
        return ""
    return number(point.cell.items_per_second or 0.0)


def _describe_staleness(staleness: Mapping[str, float]) -> str:
    return f"{staleness['median']:g}, {staleness['maximum']:g}"


def _tables(curve: TeamCurve, common: set[flag_kinds.FlagKind]) -> Iterator[layout.Table]:
    """Yield the table of speed-ups and that of time saved and losses.

    Columns that would be empty are left out.
    """
    keys = _key_columns(curve)
    others = (
        _speedup_column(WEAK, "weak"),
        _efficiency_column(WEAK),
        _speedup_column(ONE_PROCESS, "1 process"),
    )
    columns = [
        *keys,
        seconds_column(lambda point: point.cell, common),
        Column("", "items/s", _items),
        _speedup_column(STRONG, "strong"),
        _efficiency_column(STRONG),
        *filled(others, curve.points),
    ]
    title = f"{network_name(curve.cell)}: {_row(curve)}"
    machine = f"on {curve.host.name}"
    yield table(columns, curve.points, f"{title}, {machine}", notes=_notes(curve), keys=len(keys))
    costs = (
        _saving_column(DOUBLING),
        _saving_column(EXCHANGE),
        finding_column("loss", "loss"),
        finding_column("seconds_to_target", "s to loss"),
        finding_column("staleness", "stale", _describe_staleness),
    )
    further = filled(costs, curve.points)
    if further:
        points = []
        for point in curve.points:
            if any(column.entry(point).text for column in further):
                points.append(point)
        yield table(
            [*keys, *further],
            points,
            f"{title}, time saved and losses, {machine}",
            notes=_target_notes(points),
            keys=len(keys),
        )


def _target_notes(points: Iterable[TeamPoint]) -> list[str]:
    """Return a note for each loss whose time a table shows."""
    losses = {}
    for point in points:
        if point.findings.target_loss is not None:
            losses[point.at.threads, point.at.batch_size] = point.findings.target_loss
    notes = []
    for (threads, batch_size), loss in losses.items():
        work = f"mini-batch {axes.word('batch_size', batch_size)}"
        if threads > 0:
            work += f", {threads_name(threads)}"
        notes.append(f"s to loss: seconds to a loss of {number(loss)} ({work}).")
    return notes


def _notes(curve: TeamCurve) -> Iterator[str]:
    """Yield the conclusions of a table, and why numbers are missing."""
    teams = teams_of(curve)
    verdicts: dict[str, list[str]] = {}
    sharing: dict[str, None] = {}
    for team in teams:
        one_process = team.findings.one_process
        if one_process is not None and one_process.speedup is not None:
            where = f"{_team(team)} on {axes.word('batch_size', team.at.batch_size)}"
            verdict = _verdict(curve, team, one_process.speedup)
            verdicts.setdefault(verdict, []).append(where)
        if team.findings.shares_cpus:
            sharing[_team(team)] = None
    if verdicts:
        words = [f"{', '.join(places)} {verdict}" for verdict, places in verdicts.items()]
        yield f"Compared with one process of as many threads: {'; '.join(words)}."
    if sharing:
        yield (
            f"More threads in total than the {curve.host.effective_cpus} CPUs of this machine, so "
            f"no speed-up can be expected: {', '.join(sharing)}."
        )
    holes = []
    for point in curve.points:
        if not point.cell.shown:
            size = axes.word("batch_size", point.at.batch_size)
            holes.append((layout.why_hole(point.cell), _team(point), size))
    yield from layout.reasons(holes)
    yield from _missing_notes(teams)


def _missing_notes(teams: Iterable[TeamPoint]) -> Iterator[str]:
    """Yield the teams without a figure for each reason."""
    ways_by_reason: dict[tuple[str, str], list[str]] = {}
    for team in teams:
        for way, gain in team.findings.gains().items():
            if team.cell.timed is not None and gain.reason and gain.measured:
                name = "against 1 process" if way == ONE_PROCESS else way
                ways_by_reason.setdefault((gain.reason, _team(team)), []).append(name)
    teams_by_reason: dict[str, list[str]] = {}
    for (reason, name), ways in ways_by_reason.items():
        teams_by_reason.setdefault(f"{', '.join(ways)}: {reason}", []).append(name)
    for reason, names in teams_by_reason.items():
        yield f"No figure for {', '.join(dict.fromkeys(names))}, {reason}."


def _verdict(curve: TeamCurve, team: TeamPoint, speedup: Estimate) -> str:
    """Return whether a team is faster than one process of as many threads: above 1 it is."""
    word = "not clearly different"
    if speedup.low is not None and judge_ratio(speedup).clear:
        word = "faster" if speedup.value > 1 else "slower"
    sides = {team.at, _rivals(team.at)[ONE_PROCESS]}
    for point in curve.points:
        if point.at in sides and point.cell.has(flag_kinds.CONTENDED):
            return f"{word} (other programs interfered)"
    return word


def _legend(
    content: TeamCurves, points: list[TeamPoint], common: set[flag_kinds.FlagKind]
) -> list[str]:
    figures = set()
    missing = set()
    for point in points:
        for way, gain in point.findings.gains().items():
            if gain.figure is None:
                missing.add(way)
            else:
                figures.add(way)
    lines = [
        "p: threads per worker; w: workers, on GPUs one per GPU; batch: the whole mini-batch; "
        "strong: speed-up over one worker on the same mini-batch (Amdahl 1967); weak: throughput "
        "over that of one worker on a mini-batch as large as each worker's part (Gustafson 1988); "
        "eff.: that speed-up / w."
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
    if any(point.findings.loss is not None for point in points):
        lines.append(
            "loss: that of the last of the further steps, which follow the timed ones on one "
            "mini-batch. s to loss: steps to the lowest loss that all cells with these threads and "
            "this mini-batch reached, times the seconds of a step. Asynchronous workers whose loss "
            f"is more than {ALIKE:.0%} off that of step get no ratios."
        )
    if any(point.findings.staleness for point in points):
        lines.append(
            "stale: updates by other workers between a worker's first read of the parameters in a "
            "step and its own update, median and maximum."
        )
    if DOUBLING in figures or EXCHANGE in figures:
        lines.append(f"{layout.HALF_WIDTH}, of doubling and exchange in percentage points")
    else:
        lines.append(layout.HALF_WIDTH)
    cells = [point.cell for point in points]
    if any(cell.has(flag_kinds.FEW_LAUNCHES) for cell in cells):
        lines.append(layout.WIDENED)
    columns = figures | {STRONG}
    if missing & columns:
        lines.append(f"{layout.MISSING} the rival was not measured, or cannot be used")
    return [*lines, *layout.flag_lines(cells, common), *content.notes]


_CURVE: tuple[Column[TeamCurve], ...] = (
    *curve_columns(*AXES),
    Column("effective_cpus", None, lambda curve: curve.host.effective_cpus, fields=None),
)
_CSV_OF_GAINS = {way: (*estimate_fields(figures), "reason") for way, figures in WAYS.items()}
_POINT: tuple[Column[TeamPoint], ...] = (
    *attributes(lambda point: point.cell.column, *AXES[:2]),
    *attributes(lambda point: point.at, *AXES[2:]),
    *cell_columns("status", "reason", "seconds", "items_per_second"),
    *finding_columns(*WAYS, **_CSV_OF_GAINS),
    *finding_columns(
        "shares_cpus",
        "losses",
        "loss",
        "target_loss",
        "steps_to_target",
        "seconds_to_target",
        losses=None,
    ),
    *finding_columns("staleness", staleness=("median", "maximum")),
    *cell_columns("flags"),
)


class _LineName(NamedTuple):
    """The name of a line of the picture, and whether it is of weak scaling."""

    text: str
    weak: bool


Speedups = dict[_LineName, dict[int, Estimate]]
"""The speed-ups of a panel, by line and workers."""


def _picture(curves: list[TeamCurve]) -> pictures.Picture:
    """Return the page of one machine: a panel for each network.

    Strong scaling has solid lines, weak scaling broken ones.
    """
    speedups_by_title: dict[str, Speedups] = {}
    for curve in curves:
        for name, count, speedup in _drawn_speedups(curve):
            speedups = speedups_by_title.setdefault(network_name(curve.cell), {})
            speedups.setdefault(name, {})[count] = speedup
    if not speedups_by_title:
        return pictures.Picture(
            "No cell of several workers has a matching cell of one worker.", (), ()
        )
    names: dict[_LineName, None] = {}
    for speedups in speedups_by_title.values():
        names.update(dict.fromkeys(speedups))
    styles = {}
    legend: list[tuple[str, pictures.Style]] = []
    for place, name in enumerate(names):
        styles[name] = pictures.style(place, place, int(name.weak))
        legend.append((name.text, styles[name]))
    legend += [
        ("strong: the same mini-batch", {"color": "black", "linestyle": pictures.SOLID}),
        ("weak: it grows with the workers", {"color": "black", "linestyle": pictures.BROKEN}),
        ("ideal", {"color": pictures.GREY, "linestyle": pictures.DOTTED}),
    ]
    return pictures.Picture(
        f"Speed-up over one worker, on {curves[0].host.name}",
        [_panel(title, speedups, styles) for title, speedups in speedups_by_title.items()],
        legend,
        "workers; bars: interval of the ratio",
        "speed-up",
        binary=True,
    )


def _drawn_speedups(curve: TeamCurve) -> Iterator[tuple[_LineName, int, Estimate]]:
    """Yield the speed-ups of a curve's teams, with their lines and workers."""
    for team in teams_of(curve):
        words = [_row(curve)]
        if _shows_threads(curve):
            words.append(threads_name(team.cell.column.threads))
        if team.at.sync != EVERY_STEP:
            words.append(team.at.sync)
        name = ", ".join(filter(None, words))
        rivals = _rivals(team.at)
        for way in (STRONG, WEAK):
            gain: SpeedUp | None = getattr(team.findings, way)
            if gain is not None and gain.speedup is not None:
                size = axes.word("batch_size", rivals[way].batch_size)
                text = f"{name}, batch {size}"
                if way == WEAK:
                    text += " each"
                yield _LineName(text, way == WEAK), team.at.world_size, gain.speedup


def _panel(
    title: str, speedups: Speedups, styles: Mapping[_LineName, pictures.Style]
) -> pictures.CurvePanel:
    counts = {1}
    lines = []
    for name, by_count in speedups.items():
        counts |= by_count.keys()
        points: list[tuple[float, Interval]] = [(1, (1.0, None, None))]
        for count, speedup in sorted(by_count.items()):
            points.append((count, (speedup.value, speedup.low, speedup.high)))
        lines.append(pictures.Line(points, styles[name]))
    ticks = sorted(counts)
    return pictures.CurvePanel(title, lines, ticks, [(count, count) for count in ticks])


def _analyse(source: ReportSource) -> TeamCurves:
    return scaling(source.matrix(), source.results().records)


def _data(content: TeamCurves) -> dict[str, Any]:
    return {"lines": curve_objects(content.curves, _CURVE, _POINT), "notes": list(content.notes)}


def _draw(content: TeamCurves, path: Path, options: ReportOptions) -> list[Path]:
    return pictures.draw(map(_picture, by_machine(content.curves)), path)


def _applies(cells: Iterable[Cell]) -> bool:
    return any(cell.world_size > 1 for cell in cells)


REPORT = Report(
    name="scaling",
    summary="""Speed-up from several workers that share a mini-batch.

Strong scaling compares them with one worker on the same mini-batch, weak scaling with one on a
mini-batch as large as each worker's part: measure both sizes for it. On the CPU they are also
compared with one process with as many threads as they have together, where that was measured.

With `--sync step,local:4,async` it shows what exchanging and waiting take, and with losses
(`dlbench run sync`) the seconds to a loss.""",
    examples=(
        "dlbench run scaling --networks fcn5 --frameworks torch,jax",
        "dlbench report scaling",
        "dlbench report scaling --plot scaling.png --format markdown",
    ),
    analyse=_analyse,
    page=lambda content, options: scaling_page(content),
    data=_data,
    rows=lambda content: curve_rows(content.curves, _CURVE, _POINT),
    draw=_draw,
    drawable=lambda content: bool(content.curves),
    suggestion="the gain of several workers over one",
    applies=_applies,
    options=frozenset({ALL_RUNS}),
    heading="Several workers",
    place=45,
    has_section=lambda content: bool(content.curves),
)

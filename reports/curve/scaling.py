"""Scaling over workers: the gain of several that train on parts of one mini-batch together over one.

Training is data-parallel: each of w workers computes the gradients of its equal part of the mini-batch. Mostly
(``step``) all average them, and each makes the same update; a step lasts until the slowest has. With ``local:H`` each
updates parameters of its own, and all average these after every H steps; with ``async`` each updates parameters that
all share, and none waits. T(w, b) is the seconds of a step of w workers on a mini-batch of b examples altogether (of
local steps the mean, their share of an exchange included), with all else the same: network, framework and
mode, machine, device, threads of each worker, precision, placement, affinity, and the environment (build).

- Strong scaling (Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
  capabilities"): the same work on more workers. Speed-up S = T(1, b) / T(w, b), efficiency S / w.
- Weak scaling (Gustafson 1988, "Reevaluating Amdahl's law"): the work grows with the workers. Speed-up is that of the
  throughput, (w b / T(w, w b)) / (b / T(1, b)) = w T(1, b) / T(w, w b), efficiency T(1, b) / T(w, w b).
- Against one process: on a CPU as many threads could also work in one process. T'(1, b) / T(w, b), where T' is of one
  worker with w times as many threads: above 1 the workers are faster. This is the fair rival there, since the
  speed-ups above compare more threads with fewer.
- Against waiting at every step: T of ``step`` / T of ``local:H`` or ``async``, of as many workers.
- What doubling the workers saves: 1 - T(w, b) / T(w / 2, b).
- The exchange: 1 - T of the longest local steps measured / T. What is left of it in those, one H-th, is not in this
  share, so it is the least that exchanging and waiting take.
- Seconds to a loss: the further steps of each launch (`Protocol.loss_steps`) until the loss is as low as all cells of
  these threads and this mini-batch reached, times T. Nothing proves the mathematics of ``async``, so a cell of it whose
  last loss is more than `ALIKE` off that of ``step`` is in no ratio.

Intervals are those of `statistics.ratio`, changed by the same functions. A cell that failed parity, used more threads
than asked or was measured with another build is in no ratio; the reason stands in its place. CPU workers with more
threads altogether than the machine has CPUs share these, and then no speed-up can be expected.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dlbench.adapters import axes
from dlbench.adapters.protocol import ASYNC, EVERY_STEP, Cell, Status
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
from dlbench.reports.storage.record import Record

NOTHING = "Nothing was measured with several workers yet; `dlbench run` does it with --world-sizes 1,2."
STRONG, WEAK, ONE_PROCESS, WAITING, DOUBLING, EXCHANGE = WAYS = (
    *("strong", "weak", "one_process"),
    *("waiting", "doubling", "exchange"),
)
FIGURES = {
    STRONG: ("speedup", "efficiency"),
    WEAK: ("speedup", "efficiency"),
    ONE_PROCESS: ("speedup", "efficiency"),
    WAITING: ("speedup",),
    DOUBLING: ("share",),
    EXCHANGE: ("share",),
}
"""What a comparison gives, the figure of its name first."""
AXES = ("threads", "world_size", "batch_size", "sync")
"""Of each worker, of the workers, of the whole mini-batch, of exchanges: the points of a curve differ in these axes."""
Gain = dict[str, Any]
"""The `FIGURES` of a comparison (ratios), or the ``reason`` why there are none. ``measured``: whether its rival was."""
ALIKE = 0.05
"""Relative difference from the loss of synchronous workers up to which asynchronous ones count."""


class Training(NamedTuple):
    """The further steps of a cell's launches, the median over them."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    ended: str
    """Why a launch ended them early; empty: none did."""

    def steps_to(self, loss: float) -> float | None:
        """Return after how many steps the loss is first this low, linear in between; None: never."""
        place = next((place for place, each in enumerate(self.losses) if each <= loss), None)
        if not place:
            return None if place is None else float(self.steps[0])
        return float(np.interp(-loss, -np.array(self.losses[place - 1 : place + 1]), self.steps[place - 1 : place + 1]))


def trainings(records: Iterable[Record]) -> dict[Place, Training]:
    """Return what the launches with further steps showed, by cell; of different numbers of steps the newest's count."""
    found: dict[Place, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.started):
        if record.protocol.loss_steps and record.outcome.status is Status.OK:
            found.setdefault(_place_of(record), []).append(record)
    return {place: _training(of_cell) for place, of_cell in found.items()}


def _place_of(record: Record) -> Place:
    return Place(record.machine, axes.project(record.cell, axes.NAMES))


def _training(records: list[Record]) -> Training:
    asked = records[-1].protocol.loss_steps
    alike = [record for record in records if record.protocol.loss_steps == asked]
    whole = [each.outcome.losses for each in alike if each.outcome.losses and each.outcome.losses[-1][0] == asked]
    early = [each for each in alike if not each.outcome.losses or each.outcome.losses[-1][0] != asked]
    why = str(early[-1].outcome.software.get("losses_ended", "they took too long")) if early else ""
    if not whole:
        return Training((), (), why)
    middle = np.median(np.array([points for points in whole if len(points) == len(whole[-1])]), axis=0)
    return Training(tuple(int(step) for step, _ in middle), tuple(float(loss) for _, loss in middle), why)


def stalenesses(records: Iterable[Record]) -> dict[Place, dict[str, float]]:
    """Return the median and the maximum of the staleness of each cell's steps, over its launches."""
    found: dict[Place, list[Mapping[str, float]]] = {}
    for record in records:
        seen = record.outcome.software.get("staleness")
        if isinstance(seen, Mapping) and all(isinstance(seen.get(key), int | float) for key in ("median", "maximum")):
            found.setdefault(_place_of(record), []).append(seen)
    return {
        place: {"median": median(each["median"] for each in of), "maximum": max(each["maximum"] for each in of)}
        for place, of in found.items()
    }


class _Seen(NamedTuple):
    """What the comparisons of one report go by."""

    matrix: Matrix
    trainings: Mapping[Place, Training]
    stalenesses: Mapping[Place, Mapping[str, float]]

    def off(self, cell: CellResult) -> str:
        """Return why the losses of asynchronous workers do not show that they train; empty where they do, or may."""
        own = self.trainings.get(Place(cell.machine, cell.cell))
        other = self.trainings.get(Place(cell.machine, cell.cell._replace(sync=EVERY_STEP)))
        if cell.cell.sync != ASYNC or own is None:
            return ""
        if own.ended:
            return f"the steps that show its loss ended early: {own.ended}"
        if other is None or not other.losses or other.steps != own.steps:
            return ""
        loss, right = own.losses[-1], other.losses[-1]
        if abs(loss - right) <= ALIKE * abs(right):
            return ""
        return (
            f"its loss after {own.steps[-1]} steps is {layout.number(loss)}, that of {EVERY_STEP} "
            f"{layout.number(right)}"
        )


def scaling(matrix: Matrix, records: Iterable[Record] = ()) -> Curves:
    """Return a curve for each row, network and place that was measured with several workers, in the matrix's order."""
    records = list(records)
    seen = _Seen(matrix, trainings(records), stalenesses(records))
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
        shown.sort(key=_in_order)
        if teams:
            host = matrix.hosts[place.machine]
            points = [_point(cell, seen, shown, host.effective_cpus) for cell in shown]
            curves.append(Curve(host, place.cell, tuple(_with_times_to_a_loss(points, seen))))
    return Curves(tuple(curves), matrix.notes)


def _in_order(cell: CellResult) -> tuple[object, ...]:
    at = cell.cell
    return cell.column.threads or 0, at.batch_size, at.world_size, at.sync == ASYNC, at.local_steps


def _rivals(team: Cell) -> dict[str, Cell]:
    """Return the cells that a team is compared with, but for the longest local steps, of which there may be any."""
    count = team.world_size
    alone = team._replace(world_size=1, sync=EVERY_STEP)
    found = {
        STRONG: alone,
        WEAK: alone._replace(batch_size=team.batch_size // count),
    }
    if team.on_cpu and team.threads > 0:
        found[ONE_PROCESS] = alone._replace(threads=team.threads * count)
    if team.sync != EVERY_STEP:
        found[WAITING] = team._replace(sync=EVERY_STEP)
    if count % 2 == 0:
        found[DOUBLING] = alone if count == 2 else team._replace(world_size=count // 2)
    return found


def _longest(team: Cell, cells: Iterable[CellResult]) -> Cell | None:
    """Return the workers of a team with the most local steps of these cells; None without more than the team's own."""
    alike = [each.cell for each in cells if each.cell._replace(sync=team.sync) == team and each.timed is not None]
    longest = max(alike, key=lambda cell: cell.local_steps, default=team)
    return longest if team.sync != ASYNC and longest.local_steps > team.local_steps else None


def _point(cell: CellResult, seen: _Seen, shown: Iterable[CellResult], cpus: int | None) -> Point:
    team, count = cell.cell, cell.cell.world_size
    found: dict[str, Any] = dict.fromkeys(WAYS)
    if count > 1:
        rivals = _rivals(team)
        if (longest := _longest(team, shown)) is not None:
            rivals[EXCHANGE] = longest
        for way, rival in rivals.items():
            found[way] = _gain(way, rival, seen.matrix.cells.get(Place(cell.machine, rival)), cell, seen)
    threads = (cell.column.threads or 0) * count
    shares = count > 1 and team.on_cpu and cpus is not None and threads > cpus
    training = seen.trainings.get(Place(cell.machine, team))
    points = [list(each) for each in zip(training.steps, training.losses, strict=True)] if training else []
    further = {
        "shares_cpus": shares,
        "losses": points,
        "loss": points[-1][1] if points else None,
        "staleness": seen.stalenesses.get(Place(cell.machine, team)),
    }
    return Point(team, cell, usable(cell), found={**found, **further, **dict.fromkeys(_TO_A_LOSS)})


_TO_A_LOSS = ("target_loss", "steps_to_target", "seconds_to_target")


def _with_times_to_a_loss(points: Iterable[Point], seen: _Seen) -> Iterator[Point]:
    """Yield the points with the seconds to the lowest loss that all with as many threads and examples reached."""
    points = list(points)
    trained = [(point, seen.trainings.get(Place(point.cell.machine, point.at))) for point in points]
    reached: dict[tuple[int, int], list[float]] = {}
    for point, training in trained:
        if training is not None and training.losses and not training.ended and not seen.off(point.cell):
            reached.setdefault((point.at.threads, point.at.batch_size), []).append(min(training.losses))
    for point, training in trained:
        target = max(reached.get((point.at.threads, point.at.batch_size), ()), default=None)
        steps = None if target is None or training is None or seen.off(point.cell) else training.steps_to(target)
        if steps is None or point.seconds is None:
            yield point
            continue
        times = dict(zip(_TO_A_LOSS, (target, steps, steps * point.seconds.median), strict=True))
        yield point._replace(found={**point.found, **times})


def _words(rival: Cell) -> str:
    """Return the rival in words: "one worker of 1 thread at mini-batch 64"."""
    workers = "one worker" if rival.world_size == 1 else f"{rival.world_size} workers"
    threads = f" of {threads_name(rival.threads)}" * (rival.on_cpu and rival.threads > 0)
    sync = f", {rival.sync}" if rival.world_size > 1 else ""
    return f"{workers}{threads} at mini-batch {rival.batch_size}{sync}"


def _gain(way: str, rival: Cell, other: CellResult | None, team: CellResult, seen: _Seen) -> Gain:
    """Return what comes of comparing a team with its rival, or the reason why there is no such ratio."""
    count, which = team.cell.world_size, _words(rival)
    reason = _doubt(team, seen)
    if reason is None and other is None:
        reason = f"{which} was not measured"
    elif reason is None and other is not None:
        if (doubt := _doubt(other, seen)) is not None:
            reason = f"{which}: {doubt}"
        elif other.environment != team.environment:
            reason = f"{which} was measured with another build"
    gain: Gain = {**dict.fromkeys(FIGURES[way]), "reason": reason or "", "measured": other is not None}
    if reason or other is None or other.timed is None or team.timed is None:
        return gain
    if way == EXCHANGE:
        return {**gain, "share": ratio(team.timed, other.timed).changed(_share)}
    # Weak scaling's ratio is of one worker's part; in one process both sides have as many threads.
    found = ratio(other.timed, team.timed)
    if way == DOUBLING:
        return {**gain, "share": found.changed(_share)}
    speedup = found.changed(lambda value: value * count) if way == WEAK else found
    gain["speedup"] = speedup
    if way in (STRONG, WEAK):
        gain["efficiency"] = speedup.changed(lambda value: value * (1 / count))
    return gain


def _share(times: float) -> float:
    """Return the share of its time that something saves which takes so many times less."""
    return 1 - 1 / times


def _doubt(cell: CellResult, seen: _Seen) -> str | None:
    """Return why a cell is in no ratio; None where it may be."""
    if cell.timed is None:
        wrong = cell.shown
        return cell.reason or ("it computed something else than the reference" if wrong else cell.status.value)
    if cell.has(flags.THREADS_EXCEEDED):
        return "more threads worked than were asked for"
    return seen.off(cell) or None


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
    """Return workers, threads and when they exchange in words: "2 x 1 thread, local:4", on GPUs "2 workers"."""
    count, threads = point.at.world_size, point.cell.column.threads
    sync = f", {point.at.sync}" if point.at.sync != EVERY_STEP else ""
    if not threads or not point.at.on_cpu:
        return f"{count} worker{'s' if count != 1 else ''}{sync}"
    return f"{count} x {threads_name(threads)}{sync}"


# Tables, JSON and CSV.


def scaling_page(found: Curves) -> layout.Page:
    """Return a table for each row, network and place."""
    if not found.curves:
        return layout.Page((NOTHING,), (), found.notes)
    common = layout.common_flags(p.cell for curve in found.curves for p in curve.points if p.cell.timed is not None)
    apart = " With local:H each updates parameters of its own, and all average these after every H steps."
    shared = " With async each updates parameters that all share, without waiting."
    before = (
        "Synchronous data-parallel training: each step w workers compute the gradients of their equal parts of the "
        "mini-batch, average them, and make the same update."
        + apart * any(point.at.local_steps for point in _points(found))
        + shared * any(point.at.sync == ASYNC for point in _points(found)),
    )
    tables = [each for curve in found.curves for each in (_table(curve, common), _exchange_table(curve)) if each]
    return layout.Page(before, tuple(tables), tuple(_legend(found, common)))


def _points(found: Curves) -> list[Point]:
    return [point for curve in found.curves for point in curve.points]


def _key_columns(curve: Curve) -> list[Column[Point]]:
    """Return the columns that identify a point: threads where they differ, workers, exchanges likewise, mini-batch."""
    columns: list[Column[Point]] = [
        Column("", "p", lambda point: point.cell.column.threads or "own"),
        Column("", "w", lambda point: point.at.world_size),
        Column("", "sync", lambda point: point.at.sync if point.at.world_size > 1 else ""),
        Column("", "batch", lambda point: point.at.batch_size),
    ]
    with_sync = any(point.at.sync != EVERY_STEP for point in curve.points)
    shown = {"p": _with_threads(curve), "sync": with_sync}
    return [each for each in columns if shown.get(each.heading or "", True)]


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
    def seconds(point: Point) -> layout.Entry:
        return layout.entry(point.cell, quantities.QUANTITIES["seconds"], common)._replace(best=False)

    def items(point: Point) -> str:
        return "" if point.cell.timed is None else layout.number(point.cell.items_per_second or 0.0)

    keys = _key_columns(curve)
    columns: list[Column[Point]] = [
        *keys,
        Column("", "s/batch", lambda point: None, seconds),
        Column("", "items/s", lambda point: None, items),
        *_gain_columns(STRONG, "strong", "eff."),
        *_gain_columns(WEAK, "weak", "eff."),
        *(_gain_columns(ONE_PROCESS, "1 process") if any(point.found[ONE_PROCESS] for point in curve.points) else []),
    ]
    title = f"{work_name(curve.cell)}: {_row(curve)}, on {curve.host.name}"
    return table(columns, curve.points, title, notes=_notes(curve), widths=(1,) * len(columns), keys=len(keys))


def _share_column(way: str, heading: str) -> Column[Point]:
    """Return a column of a share, with its interval in percentage points."""

    def text(point: Point) -> str:
        gain: Gain | None = point.found[way]
        if gain is None or point.cell.timed is None:
            return ""
        if (share := gain["share"]) is None:
            return layout.MISSING
        if share.low is None or share.high is None:
            return f"{share.value:.0%}"
        half = max(share.high - share.value, share.value - share.low)
        return f"{100 * share.value:.0f}±{math.ceil(100 * half)}%"

    return Column("", heading, lambda point: None, text)


def _found_column(heading: str, name: str, written: Callable[[Any], str] = layout.number) -> Column[Point]:
    """Return a column of what was found of a point, empty where there is nothing."""

    def text(point: Point) -> str:
        value = point.found[name]
        return "" if value is None else written(value)

    return Column("", heading, lambda point: None, text)


def _stale(seen: Mapping[str, float]) -> str:
    return f"{seen['median']:g}, {seen['maximum']:g}"


def _exchange_table(curve: Curve) -> layout.Table | None:
    """Return the table of exchanges and losses, with the columns that have a figure; None without any."""
    points = [point for point in curve.points if point.at.world_size > 1 or point.found["loss"] is not None]
    by_ways: dict[str, Column[Point]] = {
        DOUBLING: _share_column(DOUBLING, "doubling"),
        EXCHANGE: _share_column(EXCHANGE, "exchange"),
        WAITING: _gain_columns(WAITING, "vs step")[0],
    }
    by_names = {
        "loss": _found_column("loss", "loss"),
        "seconds_to_target": _found_column("s to loss", "seconds_to_target"),
        "staleness": _found_column("stale", "staleness", _stale),
    }
    gains = [gain for point in points for gain in _gains(point).items()]
    columns = [each for way, each in by_ways.items() if any(of == way and _figure(way, gain) for of, gain in gains)]
    columns += [each for name, each in by_names.items() if any(point.found[name] is not None for point in points)]
    if not columns:
        return None
    keys = _key_columns(curve)
    title = f"{work_name(curve.cell)}: {_row(curve)}, exchanges and losses, on {curve.host.name}"
    widths = (1,) * (len(keys) + len(columns))
    return table([*keys, *columns], points, title, notes=_targets(points), widths=widths, keys=len(keys))


def _targets(points: Iterable[Point]) -> Iterator[str]:
    """Yield the loss that times lead to, for each thread count and mini-batch."""
    targets = {
        (point.at.threads, point.at.batch_size): point.found["target_loss"]
        for point in points
        if point.found["target_loss"] is not None
    }
    for (threads, batch_size), loss in targets.items():
        of = f", {threads_name(threads)}" if threads > 0 else ""
        yield f"s to loss: seconds to a loss of {layout.number(loss)} (mini-batch {batch_size}{of})."


def _figure(way: str, gain: Gain) -> Any:
    return gain[FIGURES[way][0]]


_WORDS = {
    ONE_PROCESS: "against 1 process",
    WAITING: "vs step",
}


def _notes(curve: Curve) -> Iterator[str]:
    """Yield the conclusions of a table, and why numbers are missing."""
    teams = teams_of(curve)
    verdicts: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for point in teams:
        for way, gain in _gains(point).items():
            if way == ONE_PROCESS and gain["speedup"] is not None:
                where = f"{_team(point)} on {point.at.batch_size}"
                verdicts.setdefault(_verdict(curve, point, gain["speedup"]), []).append(where)
            if point.cell.timed is not None and gain["reason"] and gain["measured"]:
                reasons.setdefault((gain["reason"], _team(point)), []).append(_WORDS.get(way, way))
    for (reason, team), ways in reasons.items():
        missing.setdefault(f"{', '.join(ways)}: {reason}", []).append(team)
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
    points = _points(found)
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
    lines += _legend_of_exchanges(points)
    few = (
        f"; of a ratio with fewer than {ENOUGH_LAUNCHES} launches on a side from their steps, widened by the "
        f"deviation between launches that other cells of the machine show ({LAUNCH_DEVIATION:.0%} without enough)"
    )
    few = few if any(point.cell.has(flags.FEW_LAUNCHES) for point in points) else ""
    shares = any(_figure(way, gain) for point in points for way, gain in _gains(point).items() if "share" in gain)
    percent = ", of doubling and exchange in percentage points" * shares
    lines.append(f"± half-width of the 95 % interval (the wider side){percent}{few}")
    if any(_figure(way, gain) is None for point in points for way, gain in _gains(point).items()):
        lines.append(f"{layout.MISSING} the rival was not measured, or cannot be used")
    return [*lines, *layout.flag_lines((point.cell for point in points), common), *found.notes]


def _legend_of_exchanges(points: Iterable[Point]) -> Iterator[str]:
    """Yield what the columns of exchanges and losses mean, of those that have a figure."""
    points = list(points)

    def shown(way: str) -> bool:
        return any(point.found[way] is not None and _figure(way, point.found[way]) for point in points)

    if shown(DOUBLING):
        yield (
            "doubling: what twice the workers save of a step's time, 1 - T(w) / T(w / 2). Wuensche 2018 (IV.C) "
            "says of GPUs 35 % for CNTK and MXNet, 28 % for Caffe, 10 % for Torch and TensorFlow."
        )
    if shown(EXCHANGE):
        yield (
            "exchange: what exchanging and waiting take of a step at least, 1 - T(local:H) / T with the most "
            "local steps H measured."
        )
    if shown(WAITING):
        yield "vs step: seconds of as many workers that exchange at every step / those of these (above 1: faster)."
    if any(point.found["loss"] is not None for point in points):
        yield (
            "loss: that of the last of the further steps on one mini-batch behind the timed ones. s to loss: steps to "
            "the lowest loss that all cells of these threads and this mini-batch reach, times the seconds of a step. "
            f"Asynchronous workers are in no ratio where their loss is more than {ALIKE:.0%} off that of step."
        )
    if any(point.found["staleness"] is not None for point in points):
        yield (
            "stale: updates by other workers between a worker's first read of the parameters in a step and its own "
            "update, median and maximum."
        )


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
        **{way: (*(f"{name}.{part}" for name in FIGURES[way] for part in VALUE), "reason") for way in WAYS},
    ),
    *found_columns("shares_cpus", "loss", *_TO_A_LOSS, "losses", losses=None),
    *found_columns("staleness", staleness=("median", "maximum")),
    *cell_columns("flags"),
)


def _picture(curves: list[Curve]) -> pictures.Picture:
    """Return a page: a panel for each network; strong scaling with solid lines, weak scaling with broken ones."""
    panels: dict[str, dict[tuple[str, bool], dict[int, Ratio]]] = {}
    for curve in curves:
        for point in teams_of(curve):
            threads = threads_name(point.cell.column.threads) if _with_threads(curve) else ""
            sync = point.at.sync if point.at.sync != EVERY_STEP else ""
            name = ", ".join(filter(None, (_row(curve), threads, sync)))
            rivals = _rivals(point.at)
            for way, rival in ((way, rivals[way]) for way in (STRONG, WEAK)):
                if (speedup := point.found[way]["speedup"]) is not None:
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
threads as they have together, where that was measured.

With `--sync step,local:4,async` it shows what exchanging and waiting take, and with losses (`dlbench run sync`) the
seconds to a loss.""",
    examples=(
        "dlbench run quick --frameworks torch --threads 1,2 --world-sizes 1,2 --batch-sizes 32,64",
        "dlbench run scaling --networks fcn5 --frameworks torch,jax --sync step,local:4,local:16,async",
        "dlbench report scaling",
        "dlbench report scaling --plot scaling.png --format markdown",
    ),
    analyse=lambda source: scaling(source.matrix(), source.results().records),
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

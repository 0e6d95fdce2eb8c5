"""`dlbench report recurrent`: recurrent cells: speed, losses on a text, and times to a loss.

A curve is one row of the matrix at one place; its points are networks of one mini-batch and number
of steps. Speeds come from the newest run that timed a cell; losses come from `training`, whichever
framework trained: parity has shown that all compute the same. Hours to the target of a text are a
network's steps times a row's seconds, with the interval of the seconds, which ignores the
resolution of the blocks of 50 steps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.families import ALPHABET, Recurrent
from dlbench.adapters.protocol import Cell
from dlbench.reports.claims.claims import ClaimVerdict, Evidence, answers, evidence, loss_questions
from dlbench.reports.claims.figures import (
    ONE_TRAINING,
    Claimed,
    Question,
    time_question,
    value_question,
)
from dlbench.reports.claims.report import figures
from dlbench.reports.columns import Column, attributes, csv_rows, objects, table, within
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    CurvePoint,
    Curves,
    cell_columns,
    curve_columns,
    grid,
    points_of,
)
from dlbench.reports.curve.training import (
    ALIKE,
    KNOWS_NOTHING,
    SHARES,
    Learnt,
    Losses,
    Net,
    TrainingLosses,
    cell_order,
    learnt_of,
    losses_of,
    net_of,
    published_losses,
)
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE, Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report, ReportOptions, ReportSource
from dlbench.reports.results import flag_kinds, quantities
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, place_name, rest_of, row_name
from dlbench.reports.results.number_text import deviation, interval, number
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import Summary, clearly_slower

KARPATHY = "karpathy2016"
NOTHING = (
    "None of these networks was measured yet; `dlbench run char` and `dlbench run cells-quick` do "
    "that."
)
NOT_CONFIRMED, UNCHECKED = "!", "?"
QUANTITIES = {
    "seconds": "Seconds per update",
    "characters": "Characters per second",
    "gflops": quantities.QUANTITIES["gflops"].title,
    "ceiling": quantities.QUANTITIES["ceiling"].title,
    "loss": "Loss",
}
_UNITS = {"hours": 1, "minutes": 60, "seconds": 3600}
"""How many of these units an hour has."""
_SHOWN_ONCE = {flag_kinds.FEW_LAUNCHES}


NetPoint = CurvePoint[Net, None]
NetCurve = Curve[Net, None, None]


class Hours(NamedTuple):
    """Hours with the ends of their interval."""

    value: float
    low: float | None
    high: float | None


class TimeToTarget(NamedTuple):
    """The time of a network in a row to the target of a text."""

    curve: NetCurve
    point: NetPoint
    seconds: Summary
    """Of an update."""
    learnt: Learnt
    loss: float
    steps_to_target: float | None
    """None where the network never reached the target."""
    hours_to_target: Hours | None
    pareto: bool = False
    """Whether no other network of the machine is both clearly faster and lower."""

    @property
    def text(self) -> str:
        """The digest of the text."""
        return self.learnt.text.digest


class LectureFinding(NamedTuple):
    """One of the lecture's claims, or a cost, tried on the user's curves."""

    name: str
    finding: str
    evidence: Evidence


class CellConclusions(NamedTuple):
    """The findings about several curves together."""

    texts: tuple[Learnt, ...]
    times: list[TimeToTarget]
    findings: list[LectureFinding]


NetCurves = Curves[Net, None, None, CellConclusions]


def study(matrix: Matrix, records: Sequence[Record]) -> NetCurves:
    """Return the curves of a matrix over networks (`Net`), and the trainings in these records."""
    curves = _curves(matrix, records)
    texts = learnt_of(records)
    notes = []
    times: list[TimeToTarget] = []
    for learnt in texts:
        times += _times(curves, learnt)
        for net, training in learnt.nets.items():
            ended = training.record.outcome.curve_ended
            if ended:
                framework = training.record.cell.framework
                notes.append(f"{net.name}: training in {framework} ended: {ended}")
    conclusions = CellConclusions(texts, times, list(_findings(curves, texts, times)))
    return Curves(curves, (*notes, *matrix.notes), conclusions)


def _curves(matrix: Matrix, records: Iterable[Record]) -> tuple[NetCurve, ...]:
    nets = {}
    for record in records:
        cell = record.cell
        nets[cell.network, cell.specification, cell.batch_size] = net_of(record)
    points = []
    for result in matrix.cells.values():
        work = result.work
        net = nets.get((work.network, work.specification, work.batch_size))
        if net is not None and (work.precision, work.placement) == ("float32", "resident"):
            points.append(CurvePoint(net, result, result.timed, None))

    def order(point: NetPoint) -> tuple[object, ...]:
        column = matrix.columns.index(point.cell.column)
        return point.at.work, column, point.cell.row, point.at.order

    points.sort(key=order)
    curves = []
    for points_of_row in grouped(points, _work_and_row).values():
        first = points_of_row[0].cell
        shared = axes.without(first.cell, "network", "specification", "batch_size")
        curves.append(Curve(matrix.hosts[first.machine], shared, tuple(points_of_row), None))
    return tuple(curves)


def _work_and_row(point: NetPoint) -> tuple[object, ...]:
    return point.at.work, point.cell.column, point.cell.row


def _times(curves: Iterable[NetCurve], learnt: Learnt) -> list[TimeToTarget]:
    """Return the times to the target of a text.

    One is on the Pareto front where no other network in any row of its machine is both clearly
    faster and lower.
    """
    times = []
    for curve in curves:
        for point in curve.timed:
            loss = learnt.loss(point.at)
            if loss is None or point.seconds is None:
                continue
            hours = None
            steps = learnt.nets[point.at].steps_to(learnt.target)
            if steps is not None:
                hours = _hours(steps, point.seconds)
            times.append(TimeToTarget(curve, point, point.seconds, learnt, loss, steps, hours))
    return [time._replace(pareto=not _is_beaten(time, times)) for time in times]


def _hours(steps: float, seconds: Summary) -> Hours:
    hours_of_second = steps / 3600
    low = high = None
    if seconds.low is not None:
        low = hours_of_second * seconds.low
    if seconds.high is not None:
        high = hours_of_second * seconds.high
    return Hours(hours_of_second * seconds.median, low, high)


def _is_beaten(time: TimeToTarget, times: Iterable[TimeToTarget]) -> bool:
    """Return whether another network of the machine is both clearly faster and lower."""
    return any(
        rival.curve.host == time.curve.host
        and rival.loss < time.loss
        and clearly_slower(time.seconds, rival.seconds)
        for rival in times
    )


# Findings: the lecture's claims on the user's curves, and the costs of cells and layers.


def _findings(
    curves: Sequence[NetCurve], texts: Sequence[Learnt], times: Sequence[TimeToTarget]
) -> Iterator[LectureFinding]:
    """Yield the findings that have any figure."""
    losses = losses_of(texts)
    rnn = {"cell": "rnn"}
    gru_costs = _costs(curves, {"cell": "gru"}, rnn)
    lstm_costs = _costs(curves, {"cell": "lstm"}, rnn)
    layers_cost = _costs(curves, {"layers": 3}, {"layers": 1})
    asked: list[tuple[str, str, list[Question]]] = [
        (
            "G1",
            "LSTM and GRU have a lower loss than rnn of equal size",
            loss_questions("G1", losses),
        ),
        ("G1t", "and after equal time", _gated_at_equal_time(times)),
        ("G2", "Another layer lowers the loss", loss_questions("G2", losses)),
        ("G3", "Doubling the size lowers the loss", loss_questions("G3", losses)),
        ("gru", "A GRU takes longer than rnn, by its FLOPs", gru_costs),
        ("lstm", "An LSTM takes longer than rnn, by its FLOPs", lstm_costs),
        ("layers", "3 layers take longer than 1, by their FLOPs", layers_cost),
    ]
    # All questions together are one family of comparisons.
    family: list[Question] = []
    for _, _, questions in asked:
        family += questions
    answered = iter(answers(family))
    for name, sentence, questions in asked:
        support = evidence([(question, next(answered)) for question in questions])
        if support.figures:
            yield LectureFinding(name, sentence, support)


def _gated_at_equal_time(times: Iterable[TimeToTarget]) -> list[Question]:
    """Ask for each row whether a gated network has the lower loss after the plain one's time."""
    by_net = {}
    for time in times:
        row = (rest_of(time.curve.cell), time.curve.place, time.text)
        by_net[row, time.point.at] = time
    questions = []
    for (row, net), time in by_net.items():
        rival = by_net.get((row, net._replace(cell="rnn")))
        if net.cell == "rnn" or rival is None:
            continue
        common = time.learnt.common_steps
        steps = rival.seconds.median * common / time.seconds.median
        loss = time.learnt.nets[net].loss_at(min(steps, common))
        if loss is not None:
            what = f"{row[0]}, {net.name} after {steps:.0f} steps: loss of rnn / its own"
            claimed = Claimed(least=1.0)
            questions.append(value_question(what, rival.loss / loss, claimed, ONE_TRAINING))
    return questions


def _costs(
    curves: Iterable[NetCurve], numbers: Mapping[str, Any], numbers_of_rival: Mapping[str, Any]
) -> list[Question]:
    """Ask how much longer an update of these networks takes than that of their rivals.

    A rival differs in these numbers only.
    """
    questions = []
    for curve in curves:
        cells = {point.at: point.cell for point in curve.points}
        for net, cell in cells.items():
            rival = net._replace(**numbers_of_rival)
            if net == net._replace(**numbers) and rival in cells:
                what = f"{rest_of(curve.cell)}, {net.name} / {rival.name}"
                claimed = Claimed(least=1.0, size=flops(net) / flops(rival))
                questions.append(time_question(what, cell, cells[rival], claimed))
    return questions


def flops(net: Net) -> int:
    """Return the operations of a step, as the matrix counts them."""
    family = Recurrent(ALPHABET, net.embedding, net.size, net.layers, net.steps, net.cell)
    return family.training_flops(net.batch_size)


# Tables.


def cells_page(content: NetCurves, quantity: str = "seconds", against: str = "") -> Page:
    """Return speeds, losses, times to a loss, and findings, as tables."""
    conclusions: CellConclusions = content.conclusions
    if not content.curves and not conclusions.texts:
        return Page((NOTHING,), (), content.notes)
    tables: list[Table] = []
    if quantity != "loss":
        tables += [_speeds(curve, quantity) for curve in content.curves]
    for learnt in conclusions.texts:
        tables += _loss_tables(learnt)
    if against:
        tables += _published_tables()
    if quantity != "loss":
        tables += _times_tables(conclusions.times)
    if conclusions.findings:
        tables.append(_findings_table(conclusions.findings))
    names = dict.fromkeys(curve.host.name for curve in content.curves)
    before = [f"On {name}." for name in names]
    if against:
        before += _order_lines(losses_of(conclusions.texts), against)
    return Page(tuple(before), tuple(tables), tuple(_legend(content, quantity)))


def _grid(
    title: str, entries: Mapping[tuple[int, tuple[str, int]], Entry], notes: Iterable[str] = ()
) -> Table:
    """Return a table of networks by (size, (cell, layers)): sizes down, cells and layers across."""
    columns = sorted({column for _, column in entries}, key=_column_order)
    head = ["size"]
    layers_of_cells: Counter[str] = Counter()
    for cell, layers in columns:
        head.append(f"{cell} {layers}")
        layers_of_cells[cell] += 1
    spans: tuple[tuple[str, int], ...] = ()
    if len(columns) > len(layers_of_cells):
        spans = tuple(layers_of_cells.items())
    return Table(title, tuple(head), tuple(grid(entries, columns)), tuple(notes), spans=spans)


def _column_order(column: tuple[str, int]) -> tuple[object, ...]:
    cell, layers = column
    return cell_order(cell), layers


def _place(net: Net) -> tuple[int, tuple[str, int]]:
    return net.size, (net.cell, net.layers)


def _characters(cell: CellResult, net: Net) -> float | None:
    return cell.items_per_second and cell.items_per_second * net.steps


def _speeds(curve: NetCurve, quantity: str) -> Table:
    reasons: dict[str, list[str]] = {}
    entries = {}
    for point in curve.points:
        net, cell = point.at, point.cell
        value = quantities.QUANTITIES.get(quantity)
        if value is None:
            characters = partial(_characters, net=net)
            value = quantities.Quantity("", quantities.follows_time(characters), of_time=True)
        entries[_place(net)] = layout.entry(cell, value, _SHOWN_ONCE)._replace(best=False)
        if not cell.shown:
            reasons.setdefault(layout.why_hole(cell), []).append(net.name)
    notes = [f"{', '.join(nets)}: {why}" for why, nets in reasons.items()]
    title = f"{QUANTITIES[quantity]}: {rest_of(curve.cell)}; {curve.points[0].at.work_name}"
    return _grid(title, entries, notes)


def _loss_tables(learnt: Learnt) -> Iterator[Table]:
    text = learnt.text
    floor = "lowest loss" if text.floor is None else "floor, its entropy,"
    note = (
        f"{learnt.title}, {text.symbols:,} symbols; {floor} {learnt.floor:.3f}; uniform guessing "
        f"has {KNOWS_NOTHING:.3f}."
    )
    for nets in grouped(learnt.nets, lambda net: net.work).values():
        trainings = {}
        entries = {}
        for net in nets:
            trainings[net] = learnt.nets[net]
            entries[_place(net)] = _loss(learnt.loss(net), trainings[net])
        title = f"Loss after {learnt.common_steps} steps, nats a symbol; {nets[0].work_name}"
        yield _grid(title, entries, [note, *_check_lines(trainings)])


def _loss(loss: float | None, training: TrainingLosses) -> Entry:
    marks = {None: UNCHECKED, True: "", False: NOT_CONFIRMED}[training.confirmed]
    if loss is None:
        return Entry("ended", "", marks, hole=True)
    return Entry(f"{loss:.3f}", "", marks)


def _check_lines(trainings: Mapping[Net, TrainingLosses]) -> Iterator[str]:
    confirming: dict[tuple[str, str, int], list[float]] = {}
    for net, training in trainings.items():
        main = training.record.cell.framework
        for check in training.checks:
            if check.difference < ALIKE:
                key = (main, check.framework, check.steps)
                confirming.setdefault(key, []).append(check.difference)
            else:
                yield (
                    f"{NOT_CONFIRMED} {net.name}: not confirmed. {check.framework} differs from "
                    f"{main} by {check.difference:.1%} in a block up to step {check.steps}."
                )
    for (main, other, steps), differences in confirming.items():
        count = counted(len(differences), "curve")
        most = max(differences)
        shown = f"{most:.2%}" if most >= 0.0001 else "0.01 %"
        yield (
            f"{other} confirms {count} of {main}: block means up to step {steps} differ by at most "
            f"{shown}."
        )
    if any(training.confirmed is None for training in trainings.values()):
        yield f"{UNCHECKED} trained in one framework only, so not checked"


def _published_tables() -> Iterator[Table]:
    note = "Another text and another training: compare the order."
    for text, losses in published_losses().items():
        entries = {}
        for (cell, layers, size), loss in losses.items():
            entries[size, (cell, layers)] = Entry(f"{loss:.3f}")
        yield _grid(f"Loss, {text} ({KARPATHY})", entries, [note])


def _order_lines(own: Losses, against: str) -> Iterator[str]:
    """Yield how many pairs of networks are in the published order."""
    published = published_losses()
    for own_text, own_losses in own.items():
        for text, losses in published.items():
            shared = [net for net in own_losses if net in losses]
            pairs = list(combinations(shared, 2))
            alike = 0
            for first, second in pairs:
                own_order = own_losses[first] < own_losses[second]
                alike += own_order == (losses[first] < losses[second])
            if pairs:
                yield (
                    f"{own_text}: {alike} of {len(pairs)} pairs of networks have losses in the "
                    f"order of {against}'s {text}."
                )


def _times_tables(times: Sequence[TimeToTarget]) -> Iterator[Table]:
    """Yield a table for each text and place: rows and their networks down."""
    for times_of_place in grouped(times, _text_and_place).values():
        first = times_of_place[0]
        learnt = first.learnt
        longest = 0.0
        for time in times_of_place:
            if time.hours_to_target is not None:
                longest = max(longest, time.hours_to_target.value)
        unit = _unit(longest)
        rows: list[tuple[Entry, ...]] = []
        for time in times_of_place:
            heading = (Entry(row_name(time.curve.cell)),)
            if heading not in rows:
                rows.append(heading)
            rows.append(_time(time, unit))
        title = (
            f"Time to a loss of {learnt.target:.3f}, {learnt.share:.0%} of the way to the floor: "
            f"{place_name(first.curve.cell)}; {learnt.title}"
        )
        yield Table(title, ("network", "s/update", "steps", unit, "loss", "lowest"), tuple(rows))


def _text_and_place(time: TimeToTarget) -> tuple[object, ...]:
    machine = time.curve.host.fingerprint
    return time.learnt.text, machine, place_name(time.curve.cell), time.point.at.work


def _unit(hours: float) -> str:
    """Return the largest unit of which this time has two or more, else seconds."""
    for unit, count in _UNITS.items():
        if hours * count >= 2:
            return unit
    return "seconds"


def _time(time: TimeToTarget, unit: str) -> tuple[Entry, ...]:
    net, seconds = time.point.at, time.seconds
    training = time.learnt.nets[net]
    if time.steps_to_target is None or time.hours_to_target is None:
        steps = Entry("never", hole=True)
        taken = Entry(f"not in {training.last}", hole=True)
    else:
        hours = time.hours_to_target
        steps = Entry(f"{time.steps_to_target:.0f}")
        taken = Entry(number(hours.value * _UNITS[unit]), deviation(*hours))
    return (
        Entry(net.name, best=time.pareto),
        Entry(number(seconds.median), interval(seconds)),
        steps,
        taken,
        Entry(f"{time.loss:.3f}"),
        Entry(f"{min(training.losses):.3f}"),
    )


def _verdict(finding: LectureFinding) -> Entry:
    support = finding.evidence
    text = support.verdict.value
    if support.verdict is ClaimVerdict.PARTLY:
        text += f", {support.holds} of {support.of}"
    return Entry(text, hole=support.verdict is ClaimVerdict.DIFFERS)


def _numbers(finding: LectureFinding) -> list[dict[str, Any]]:
    numbers = []
    for question, answer in finding.evidence.figures:
        asked = {"what": question.what, "answer": answer, "claimed": question.claimed}
        numbers.append({**asked, **(plain(question.found) or {})})
    return numbers


_FINDING: tuple[Column[LectureFinding], ...] = (
    Column("name", "", lambda finding: finding.name),
    Column("finding", "finding", lambda finding: finding.finding),
    Column("verdict", "verdict", lambda finding: finding.evidence.verdict, _verdict),
    *attributes(lambda finding: finding.evidence, "holds", "of"),
    Column("numbers", None, _numbers),
)


def _findings_table(findings: Sequence[LectureFinding]) -> Table:
    notes = []
    for finding in findings:
        if finding.evidence.of:
            notes.append(f"{finding.name}: {figures(finding.evidence)}.")
    return table(_FINDING, findings, "Findings", notes=notes, words=True)


def _legend(content: NetCurves, quantity: str) -> Iterator[str]:
    points = points_of(content.curves)
    cells = [point.cell for point in points if point.cell.shown]
    if quantity != "loss" and cells:
        yield layout.HALF_WIDTH
        yield from layout.flag_lines(cells, _SHOWN_ONCE)
    if content.conclusions.times:
        yield (
            f"{layout.BEST} no other network in any row of the machine is both clearly faster and "
            "lower. The time is steps to the loss times seconds per update; its interval is that "
            "of the seconds. The number of steps is accurate to about half a block of 50."
        )
        shares = ", ".join(f"{share:.0%}" for share in SHARES)
        yield (
            "A loss is the mean over the block of steps that ends there, each taken before its "
            "update on freshly drawn stretches. The share of the way is the largest of "
            f"{shares} that any network reached."
        )
    if any(training.confirmed is False for training in _trainings(content)):
        yield (
            f"{NOT_CONFIRMED} another framework's block means differ by {ALIKE:.0%} or more: do "
            "not rely on it"
        )
    yield from content.notes


def _trainings(content: NetCurves) -> list[TrainingLosses]:
    trainings: list[TrainingLosses] = []
    for learnt in content.conclusions.texts:
        trainings += learnt.nets.values()
    return trainings


# JSON and CSV: a row is a curve, its point, and the point's time on a text where it was trained.


class _Row(NamedTuple):
    """A line of JSON or CSV."""

    curve: NetCurve
    point: NetPoint
    time: TimeToTarget | None = None
    """On a text; None without one, and for the speeds of JSON."""


def _curve_of_row(row: _Row) -> NetCurve:
    return row.curve


def _point_of_row(row: _Row) -> NetPoint:
    return row.point


def _characters_of_point(point: NetPoint) -> float | None:
    return _characters(point.cell, point.at)


_PLACE: tuple[Column[_Row], ...] = (
    *within(curve_columns(*(axis.name for axis in axes.with_role(axes.WORK))), _curve_of_row),
    *attributes(
        lambda row: row.point.at, "batch_size", "cell", "layers", "size", "steps", "embedding"
    ),
)
_SPEED: tuple[Column[_Row], ...] = within(
    (
        *cell_columns("status", "reason", "seconds"),
        Column("characters_per_second", None, _characters_of_point),
        *cell_columns("gflops", "ceiling_fraction", "flags", "run"),
    ),
    _point_of_row,
)
_TIME: tuple[Column[_Row], ...] = attributes(
    lambda row: row.time,
    "text",
    "loss",
    "steps_to_target",
    "hours_to_target",
    "pareto",
    hours_to_target=VALUE,
)


def cells_data(content: NetCurves) -> dict[str, Any]:
    """Return a JSON object: texts with their curves, speeds, times to a loss, findings."""
    conclusions: CellConclusions = content.conclusions
    speeds = []
    for curve in content.curves:
        speeds += [_Row(curve, point) for point in curve.points]
    times = [_Row(time.curve, time.point, time) for time in conclusions.times]
    return {
        "texts": [_text(learnt) for learnt in conclusions.texts],
        "speeds": objects((*_PLACE, *_SPEED), speeds),
        "times": objects((*_PLACE, *_TIME), times),
        "findings": objects(_FINDING, conclusions.findings),
        "notes": list(content.notes),
    }


def cells_rows(content: NetCurves) -> Rows:
    """Return a CSV line for each speed, and for each text on which its network was trained."""
    rows = []
    for curve in content.curves:
        for point in curve.points:
            rows_of_point = []
            for time in content.conclusions.times:
                if time.curve is curve and time.point is point:
                    rows_of_point.append(_Row(curve, point, time))
            rows += rows_of_point or [_Row(curve, point)]
    return csv_rows((*_PLACE, *_SPEED, *_TIME), rows)


def _text(learnt: Learnt) -> dict[str, Any]:
    return {
        **learnt.text._asdict(),
        "floor_taken": learnt.floor,
        "loss_knowing_nothing": KNOWS_NOTHING,
        "target_share": learnt.share,
        "target_loss": learnt.target,
        "common_steps": learnt.common_steps,
        "curves": [_loss_curve(net, training, learnt) for net, training in learnt.nets.items()],
    }


def _loss_curve(net: Net, training: TrainingLosses, learnt: Learnt) -> dict[str, Any]:
    record = training.record
    blocks = [list(block) for block in zip(training.steps, training.losses, strict=True)]
    return {
        **net._asdict(),
        "framework": record.cell.framework,
        "mode": record.cell.mode,
        "machine": record.machine,
        "run": record.run,
        "test_loss": record.outcome.test_loss,
        "ended": record.outcome.curve_ended,
        "loss": learnt.loss(net),
        "steps_to_target": training.steps_to(learnt.target),
        "blocks": blocks,
        "confirmed": training.confirmed,
        "checks": [check._asdict() for check in training.checks],
    }


# The picture.


def _picture(content: NetCurves, learnt: Learnt) -> pictures.Picture:
    """Return a page: a panel against steps, then one for each curve against seconds.

    A cell has a colour, the number of layers a kind of line, a size a mark.
    """
    trained = [net for net, training in learnt.nets.items() if training.steps]
    nets = sorted(trained, key=_style_order)
    sizes = sorted({net.size for net in nets})
    styles: dict[Net, pictures.Style] = {}
    legend: list[tuple[str, pictures.Style]] = []
    for net in nets:
        colour = cell_order(net.cell)[0]
        styles[net] = pictures.style(colour, sizes.index(net.size), net.layers - 1)
        legend.append((net.name, styles[net]))
    levels = (learnt.floor, learnt.target)
    against_steps = _loss_lines(learnt, dict.fromkeys(nets, 1.0), styles)
    panels = [
        pictures.CurvePanel(
            "against steps", against_steps, levels=levels, across="steps", linear=True
        )
    ]
    across = "seconds of updates (logarithmic)"
    for curve in content.curves:
        medians = {net: seconds.median for net, seconds in curve.times.items()}
        lines = _loss_lines(learnt, medians, styles)
        if lines:
            title = rest_of(curve.cell)
            panels.append(pictures.CurvePanel(title, lines, levels=levels, across=across))
    lowest = "lowest" if learnt.text.floor is None else "floor"
    names_of_levels = {
        f"{lowest}, {learnt.floor:.3f}": pictures.SOLID,
        f"{learnt.share:.0%} of the way, {learnt.target:.3f}": pictures.BROKEN,
    }
    for name, dashes in names_of_levels.items():
        legend.append((name, {"color": pictures.GREY, "linestyle": dashes}))
    title = f"Loss on the {learnt.title}, nats a symbol"
    return pictures.Picture(title, panels, legend, linear=True)


def _loss_lines(
    learnt: Learnt, seconds_of_step: Mapping[Net, float], styles: Mapping[Net, pictures.Style]
) -> list[pictures.Line]:
    """Return a line for each network with a style and a time: its losses against the time."""
    lines = []
    for net, line_style in styles.items():
        if net not in seconds_of_step:
            continue
        training = learnt.nets[net]
        points = []
        for middle, loss in zip(training.middles, training.losses, strict=True):
            points.append((middle * seconds_of_step[net], (loss, None, None)))
        lines.append(pictures.Line(points, line_style))
    return lines


def _style_order(net: Net) -> tuple[object, ...]:
    return net.work, cell_order(net.cell), net.layers, net.size


def _analyse(source: ReportSource) -> NetCurves:
    return study(source.matrix(), source.results().records)


def _draw(content: NetCurves, path: Path, options: ReportOptions) -> list[Path]:
    pages = [_picture(content, learnt) for learnt in content.conclusions.texts]
    return pictures.draw(pages, path)


def _is_drawable(content: NetCurves) -> bool:
    return any(training.steps for training in _trainings(content))


def _applies(cells: Iterable[Cell]) -> bool:
    return any(cell.network.startswith("char-") for cell in cells)


REPORT = Report(
    name="recurrent",
    summary="""Recurrent layers by size: speed, loss, time to a given loss.

Speeds come from any suite that timed such a network (cells, cells-quick, char), losses from those
that trained it on a text (char). `--against karpathy2016` adds the published losses.""",
    examples=(
        "dlbench report recurrent",
        "dlbench report recurrent --quantity characters --suite cells",
        "dlbench report recurrent --quantity loss --against karpathy2016",
    ),
    analyse=_analyse,
    page=lambda content, options: cells_page(content, options.quantity, options.against),
    data=cells_data,
    rows=cells_rows,
    draw=_draw,
    drawable=_is_drawable,
    suggestion="recurrent cells: speed, loss, and time to a loss",
    applies=_applies,
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    published=(KARPATHY,),
    trainings=True,
    heading="Recurrent cells",
    place=71,
)

"""`dlbench report cells`: recurrent cells by their speed in each framework, losses on a text, and
times to a loss.

A curve is one row of the matrix at one place; its points are networks of one mini-batch and number
of steps. Speeds come from the newest run that timed a cell; losses come from `training`, whichever
framework trained: parity has shown that all compute the same. Hours to the target of a text are a
network's steps times a row's seconds, with the interval of the seconds, which ignores the
resolution of the blocks of 50 steps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from operator import itemgetter
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.families import ALPHABET, Recurrent
from dlbench.reports.claims.claims import Answer, Evidence, answers, evidence, of_losses
from dlbench.reports.claims.figures import ONE_TRAINING, Claimed, Question, of_times, of_value
from dlbench.reports.claims.report import figures
from dlbench.reports.columns import Column, attributes, csv_rows, objects, table, within
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import Curve, Curves, Point, cell_columns, curve_columns, grid
from dlbench.reports.curve.training import (
    ALIKE,
    KNOWS_NOTHING,
    SHARES,
    TEXT,
    Learnt,
    Losses,
    Net,
    Training,
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
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report
from dlbench.reports.results import flags, quantities
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, place_name, rest_of, row_name
from dlbench.reports.results.number_text import deviation, interval, number
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import clearly_slower

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
"""How many of each are an hour."""
_SAID_ONCE = {flags.FEW_LAUNCHES}


def study(matrix: Matrix, records: Sequence[Record]) -> Curves:
    """Return the curves of a matrix over networks (`Net`), and the trainings in these records."""
    curves, learnt = _curves(matrix, records), learnt_of(records)
    notes = [
        f"{net.name}: training in {each.record.cell.framework} ended: {ended}"
        for of_text in learnt
        for net, each in of_text.nets.items()
        if (ended := each.record.outcome.curve_ended)
    ]
    times = [row for each in learnt for row in _times(curves, each)]
    conclusions = {
        "texts": learnt,
        "times": times,
        "findings": list(_findings(curves, learnt, times)),
    }
    return Curves(curves, (*notes, *matrix.notes), conclusions)


def _curves(matrix: Matrix, records: Iterable[Record]) -> tuple[Curve, ...]:
    nets = {
        (each.cell.network, each.cell.specification, each.cell.batch_size): net_of(each)
        for each in records
    }
    points = []
    for cell in matrix.cells.values():
        group = cell.group
        net = nets.get((group.network, group.specification, group.batch_size))
        if net is not None and (group.precision, group.placement) == ("float32", "resident"):
            points.append(Point(net, cell, cell.timed))
    points.sort(
        key=lambda each: (
            each.at.work,
            matrix.columns.index(each.cell.column),
            each.cell.row,
            each.at.order,
        )
    )
    return tuple(
        Curve(
            matrix.hosts[place.machine],
            axes.without(of[0].cell.cell, "network", "specification", "batch_size"),
            tuple(of),
        )
        for (_, place, _), of in grouped(
            points, lambda each: (each.at.work, each.cell.column, each.cell.row)
        ).items()
    )


def _times(curves: Iterable[Curve], learnt: Learnt) -> list[dict[str, Any]]:
    """Return the times to the target of a text.

    One is on the Pareto front where no other network in any row of its machine is both clearly
    faster and lower.
    """
    found: list[dict[str, Any]] = []
    for curve in curves:
        for point in curve.timed:
            if (loss := learnt.loss(point.at)) is not None and point.seconds is not None:
                steps = learnt.nets[point.at].steps_to(learnt.target)
                hours = (
                    None
                    if steps is None
                    else [end and steps / 3600 * end for end in pictures.ends(point.seconds)]
                )
                row: dict[str, Any] = {
                    "curve": curve,
                    "point": point,
                    "learnt": learnt,
                    "text": learnt.text[1],
                    "loss": loss,
                }
                row |= {
                    "steps_to_target": steps,
                    "hours_to_target": hours and dict(zip(VALUE, hours, strict=True)),
                }
                found.append(row)
    for row in found:
        rivals = (
            each
            for each in found
            if each["curve"].host == row["curve"].host and each["loss"] < row["loss"]
        )
        row["pareto"] = not any(
            clearly_slower(row["point"].seconds, each["point"].seconds) for each in rivals
        )
    return found


# Findings: the lecture's claims on the user's curves, and the costs of cells and layers.


def _findings(
    curves: Sequence[Curve], learnt: Sequence[Learnt], times: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the findings that have any figure."""
    losses = losses_of(learnt)
    asked: list[tuple[str, str, Iterable[Question]]] = [
        ("G1", "LSTM and GRU have a lower loss than rnn of equal size", of_losses("G1", losses)),
        ("G1t", "and after equal time", _gated_at_equal_time(times)),
        ("G2", "Another layer lowers the loss", of_losses("G2", losses)),
        ("G3", "Doubling the size lowers the loss", of_losses("G3", losses)),
        (
            "gru",
            "A GRU takes longer than rnn, by its FLOPs",
            _costs(curves, {"cell": "gru"}, {"cell": "rnn"}),
        ),
        (
            "lstm",
            "An LSTM takes longer than rnn, by its FLOPs",
            _costs(curves, {"cell": "lstm"}, {"cell": "rnn"}),
        ),
        (
            "layers",
            "3 layers take longer than 1, by their FLOPs",
            _costs(curves, {"layers": 3}, {"layers": 1}),
        ),
    ]
    questions = [tuple(each) for *_, each in asked]
    answered = iter(answers([question for each in questions for question in each]))
    for (name, said, _), each in zip(asked, questions, strict=True):
        found = evidence([(question, next(answered)) for question in each])
        if found.figures:
            yield {"name": name, "finding": said, "evidence": found}


def _gated_at_equal_time(times: Iterable[Mapping[str, Any]]) -> Iterator[Question]:
    """Ask for each row whether a gated network has the lower loss after the time that the plain one
    took.
    """
    rows = {
        (rest_of(row["curve"].cell), row["curve"].place, row["text"], row["point"].at): row
        for row in times
    }
    for (name, place, text, net), row in rows.items():
        rival = rows.get((name, place, text, net._replace(cell="rnn")))
        if net.cell == "rnn" or rival is None:
            continue
        common = row["learnt"].common_steps
        steps = rival["point"].seconds.median * common / row["point"].seconds.median
        loss = row["learnt"].nets[net].loss_at(min(steps, common))
        if loss is not None:
            what = f"{name}, {net.name} after {steps:.0f} steps: loss of rnn / its own"
            yield of_value(what, rival["loss"] / loss, Claimed(least=1.0), ONE_TRAINING)


def _costs(
    curves: Iterable[Curve], of: Mapping[str, Any], against: Mapping[str, Any]
) -> Iterator[Question]:
    """Ask how much longer an update of these networks takes than that of networks differing in one
    number only.
    """
    for curve in curves:
        cells = {point.at: point.cell for point in curve.points}
        for net, cell in cells.items():
            other = net._replace(**against)
            if net == net._replace(**of) and other in cells:
                what = f"{rest_of(curve.cell)}, {net.name} / {other.name}"
                yield of_times(
                    what, cell, cells[other], Claimed(least=1.0, size=flops(net) / flops(other))
                )


def flops(net: Net) -> int:
    """Return the operations of a step, as the matrix counts them."""
    family = Recurrent(ALPHABET, net.embedding, net.size, net.layers, net.steps, net.cell)
    return family.training_flops(net.batch_size)


# Tables.


def cells_page(found: Curves, quantity: str = "seconds", against: str = "") -> Page:
    """Return speeds, losses, times to a loss, and findings, as tables."""
    if not found.curves and not found.conclusions["texts"]:
        return Page((NOTHING,), (), found.notes)
    tables = [] if quantity == "loss" else [_speeds(curve, quantity) for curve in found.curves]
    tables += [each for learnt in found.conclusions["texts"] for each in _loss_tables(learnt)]
    tables += _published_tables() if against else []
    tables += [] if quantity == "loss" else _times_tables(found.conclusions["times"])
    tables += [_findings_table(findings)] if (findings := found.conclusions["findings"]) else []
    before = [f"On {name}." for name in dict.fromkeys(curve.host.name for curve in found.curves)]
    before += _order_lines(losses_of(found.conclusions["texts"]), against) if against else []
    return Page(tuple(before), tuple(tables), tuple(_legend(found, quantity)))


def _grid(
    title: str, entries: Mapping[tuple[int, tuple[str, int]], Entry], notes: Iterable[str] = ()
) -> Table:
    """Return a table of networks by their (size, (cell, layers)): sizes down, cells with their
    layers across.
    """
    columns = sorted(
        {column for _, column in entries}, key=lambda each: (cell_order(each[0]), each[1])
    )
    cells = list(dict.fromkeys(cell for cell, _ in columns))
    spans = tuple((cell, sum(each == cell for each, _ in columns)) for cell in cells)
    head = ("size", *(f"{cell} {layers}" for cell, layers in columns))
    rows = tuple(grid(entries, columns))
    return Table(title, head, rows, tuple(notes), spans=spans if len(columns) > len(cells) else ())


def _place(net: Net) -> tuple[int, tuple[str, int]]:
    return net.size, (net.cell, net.layers)


def _characters(cell: CellResult, net: Net) -> float | None:
    return cell.items_per_second and cell.items_per_second * net.steps


def _speeds(curve: Curve, quantity: str) -> Table:
    reasons: dict[str, list[str]] = {}
    entries = {}
    for net, cell, *_ in curve.points:
        value = quantities.QUANTITIES.get(quantity)
        if value is None:
            characters = partial(_characters, net=net)
            value = quantities.Quantity("", quantities.follows_time(characters), of_time=True)
        entries[_place(net)] = layout.entry(cell, value, _SAID_ONCE)._replace(best=False)
        if not cell.shown:
            reasons.setdefault(layout.why_hole(cell), []).append(net.name)
    notes = [f"{', '.join(nets)}: {why}" for why, nets in reasons.items()]
    return _grid(
        f"{QUANTITIES[quantity]}: {rest_of(curve.cell)}; {curve.points[0].at.work_name}",
        entries,
        notes,
    )


def _loss_tables(learnt: Learnt) -> Iterator[Table]:
    *_, symbols, known = learnt.text
    for work in dict.fromkeys(net.work for net in learnt.nets):
        nets = {net: each for net, each in learnt.nets.items() if net.work == work}
        floor = "floor, its entropy," if known is not None else "lowest loss"
        notes = [
            (
                f"{learnt.title}, {symbols:,} symbols; {floor} {learnt.floor:.3f}; uniform "
                f"guessing has {KNOWS_NOTHING:.3f}."
            ),
            *_check_lines(nets),
        ]
        title = (
            f"Loss after {learnt.common_steps} steps, nats a symbol; {next(iter(nets)).work_name}"
        )
        yield _grid(
            title, {_place(net): _loss(learnt.loss(net), each) for net, each in nets.items()}, notes
        )


def _loss(loss: float | None, found: Training) -> Entry:
    marks = {None: UNCHECKED, True: "", False: NOT_CONFIRMED}[found.confirmed]
    return Entry("ended" if loss is None else f"{loss:.3f}", "", marks, hole=loss is None)


def _check_lines(nets: Mapping[Net, Training]) -> Iterator[str]:
    good: dict[tuple[str, str, int], list[float]] = {}
    for net, each in nets.items():
        for check in each.checks:
            by, main, steps = check["framework"], each.record.cell.framework, check["steps"]
            if check["difference"] < ALIKE:
                good.setdefault((main, by, steps), []).append(check["difference"])
            else:
                yield (
                    f"{NOT_CONFIRMED} {net.name}: not confirmed. {by} differs from {main} by "
                    f"{check['difference']:.1%} in a block up to step {steps}."
                )
    for (main, by, steps), differences in good.items():
        count = counted(len(differences), "curve")
        shown = f"{most:.2%}" if (most := max(differences)) >= 0.0001 else "0.01 %"
        yield (
            f"{by} confirms {count} of {main}: block means up to step {steps} differ by at most "
            f"{shown}."
        )
    if any(each.confirmed is None for each in nets.values()):
        yield f"{UNCHECKED} trained in one framework only, so not checked"


def _published_tables() -> Iterator[Table]:
    note = "Another text and another training: compare the order."
    for text, losses in published_losses().items():
        entries = {
            (size, (cell, layers)): Entry(f"{loss:.3f}")
            for (cell, layers, size), loss in losses.items()
        }
        yield _grid(f"Loss, {text} ({KARPATHY})", entries, [note])


def _order_lines(own: Losses, against: str) -> Iterator[str]:
    """Yield how many pairs of networks are in the published order."""
    for (mine, here), (text, there) in product(own.items(), published_losses().items()):
        both = combinations([(loss, there[net]) for net, loss in here.items() if net in there], 2)
        if alike := [(a < c) == (b < d) for (a, b), (c, d) in both]:
            yield (
                f"{mine}: {sum(alike)} of {len(alike)} pairs of networks have losses in the order "
                f"of {against}'s {text}."
            )


def _times_tables(times: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Yield a table for each text and place: rows and their networks down."""

    def place_of(row: Mapping[str, Any]) -> tuple[object, ...]:
        curve: Curve = row["curve"]
        return (
            row["learnt"].text,
            curve.host.fingerprint,
            place_name(curve.cell),
            row["point"].at.work,
        )

    for of_place in grouped(times, place_of).values():
        learnt: Learnt = of_place[0]["learnt"]
        longest = max(
            (row["hours_to_target"]["value"] for row in of_place if row["hours_to_target"]),
            default=0.0,
        )
        unit = next((unit for unit, count in _UNITS.items() if longest * count >= 2), "seconds")
        rows: list[tuple[Entry, ...]] = []
        for row in of_place:
            heading = (Entry(row_name(row["curve"].cell)),)
            rows += [*([] if heading in rows else [heading]), _time(row, unit)]
        title = (
            f"Time to a loss of {learnt.target:.3f}, {learnt.share:.0%} of the way to the floor: "
            f"{place_name(of_place[0]['curve'].cell)}; {learnt.title}"
        )
        yield Table(title, ("network", "s/update", "steps", unit, "loss", "lowest"), tuple(rows))


def _time(row: Mapping[str, Any], unit: str) -> tuple[Entry, ...]:
    net, seconds, steps = row["point"].at, row["point"].seconds, row["steps_to_target"]
    training = row["learnt"].nets[net]
    taken, reached = Entry(f"not in {training.last}", hole=True), Entry("never", hole=True)
    if steps is not None:
        value, *_ = hours = row["hours_to_target"].values()
        taken, reached = (
            Entry(number(value * _UNITS[unit]), deviation(*hours)),
            Entry(f"{steps:.0f}"),
        )
    return (
        Entry(net.name, best=row["pareto"]),
        Entry(number(seconds.median), interval(seconds)),
        reached,
        taken,
        Entry(f"{row['loss']:.3f}"),
        Entry(f"{min(training.losses):.3f}"),
    )


def _verdict(finding: Mapping[str, Any]) -> Entry:
    found: Evidence = finding["evidence"]
    holds = f", {found.holds} of {found.of}" if found.verdict is Answer.PARTLY else ""
    return Entry(found.verdict.value + holds, hole=found.verdict is Answer.DIFFERS)


def _numbers(finding: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "what": question.what,
            "answer": answer,
            "claimed": question.claimed,
            **(plain(question.found) or {}),
        }
        for question, answer in finding["evidence"].figures
    ]


_FINDING: tuple[Column[Mapping[str, Any]], ...] = (
    Column("name", "", itemgetter("name")),
    Column("finding", "finding", itemgetter("finding")),
    Column("verdict", "verdict", lambda finding: finding["evidence"].verdict, _verdict),
    *attributes(lambda finding: finding["evidence"], "holds", "of"),
    Column("numbers", None, _numbers),
)


def _findings_table(findings: Sequence[Mapping[str, Any]]) -> Table:
    notes = [
        f"{each['name']}: {figures(each['evidence'])}." for each in findings if each["evidence"].of
    ]
    return table(_FINDING, findings, "Findings", notes=notes, words=True)


def _legend(found: Curves, quantity: str) -> Iterator[str]:
    cells = [point.cell for curve in found.curves for point in curve.points if point.cell.shown]
    if quantity != "loss" and cells:
        yield layout.HALF_WIDTH
        yield from layout.flag_lines(cells, _SAID_ONCE)
    if found.conclusions["times"]:
        yield (
            f"{layout.BEST} no other network in any row of the machine is both clearly faster and "
            "lower. The time is steps to the loss times seconds per update; its interval is that "
            "of the seconds. The number of steps is accurate to about half a block of 50."
        )
        yield (
            "A loss is the mean over the block of steps that ends there, each taken before its "
            "update on freshly drawn stretches. The share of the way is the largest of "
            f"{', '.join(f'{each:.0%}' for each in SHARES)} that any network reached."
        )
    if any(
        each.confirmed is False
        for of_text in found.conclusions["texts"]
        for each in of_text.nets.values()
    ):
        yield (
            f"{NOT_CONFIRMED} another framework's block means differ by {ALIKE:.0%} or more: do "
            "not rely on it"
        )
    yield from found.notes


# JSON and CSV: a row is a curve, its point, and the point's time on a text where it was trained.


_Row = tuple[Curve, Point, Mapping[str, Any]]
_PLACE: tuple[Column[Any], ...] = (
    *within(curve_columns(*(axis.name for axis in axes.of_role(axes.GROUP))), itemgetter(0)),
    *attributes(
        lambda row: row[1].at, "batch_size", "cell", "layers", "size", "steps", "embedding"
    ),
)
_SPEED: tuple[Column[Any], ...] = within(
    (
        *cell_columns("status", "reason", "seconds"),
        Column("characters_per_second", None, lambda point: _characters(point.cell, point.at)),
        *cell_columns("gflops", "ceiling_fraction", "flags", "run"),
    ),
    itemgetter(1),
)
_TIME: tuple[Column[_Row], ...] = attributes(
    lambda row: row[2],
    "text",
    "loss",
    "steps_to_target",
    "hours_to_target",
    "pareto",
    hours_to_target=VALUE,
)


def cells_data(found: Curves) -> dict[str, Any]:
    """Return a JSON object: texts with their curves, speeds, times to a loss, findings."""
    speeds: list[_Row] = [(curve, point, {}) for curve in found.curves for point in curve.points]
    return {
        "texts": [_text(each) for each in found.conclusions["texts"]],
        "speeds": objects((*_PLACE, *_SPEED), speeds),
        "times": objects(
            (*_PLACE, *_TIME),
            [(row["curve"], row["point"], row) for row in found.conclusions["times"]],
        ),
        "findings": objects(_FINDING, found.conclusions["findings"]),
        "notes": list(found.notes),
    }


def cells_rows(found: Curves) -> Rows:
    """Return a CSV line for each speed, and for each text on which its network was trained."""
    rows: list[_Row] = []
    for curve in found.curves:
        for point in curve.points:
            times = [
                row
                for row in found.conclusions["times"]
                if row["curve"] is curve and row["point"] is point
            ]
            rows += [(curve, point, row) for row in times or [{}]]
    return csv_rows((*_PLACE, *_SPEED, *_TIME), rows)


def _text(learnt: Learnt) -> dict[str, Any]:
    return {
        **dict(zip(TEXT, learnt.text, strict=True)),
        "floor_taken": learnt.floor,
        "loss_knowing_nothing": KNOWS_NOTHING,
        "target_share": learnt.share,
        "target_loss": learnt.target,
        "common_steps": learnt.common_steps,
        "curves": [
            {
                **net._asdict(),
                **{name: getattr(each.record.cell, name) for name in ("framework", "mode")},
                **{name: getattr(each.record, name) for name in ("machine", "run")},
                "test_loss": each.record.outcome.test_loss,
                "ended": each.record.outcome.curve_ended,
                "loss": learnt.loss(net),
                "steps_to_target": each.steps_to(learnt.target),
                "blocks": [list(block) for block in zip(each.steps, each.losses, strict=True)],
                "confirmed": each.confirmed,
                "checks": list(each.checks),
            }
            for net, each in learnt.nets.items()
        ],
    }


# The picture.


def _picture(found: Curves, learnt: Learnt) -> pictures.Picture:
    """Return a page: a panel against steps, then one for each curve against seconds.

    A cell has a colour, the number of layers a kind of line, a size a mark.
    """
    nets = sorted(
        (net for net, each in learnt.nets.items() if each.steps),
        key=lambda net: (net.work, cell_order(net.cell), net.layers, net.size),
    )
    sizes = sorted({net.size for net in nets})
    styles = {
        net: pictures.style(cell_order(net.cell)[0], sizes.index(net.size), net.layers - 1)
        for net in nets
    }

    def lines(seconds: Callable[[Net], float | None]) -> list[pictures.Line]:
        return [
            pictures.Line(
                [(x * step, (y, None, None)) for x, y in zip(of.middles, of.losses, strict=True)],
                styles[net],
            )
            for net in nets
            if (step := seconds(net)) is not None and (of := learnt.nets[net])
        ]

    levels = (learnt.floor, learnt.target)
    panels = [
        pictures.Panel(
            "against steps", lines(lambda net: 1.0), levels=levels, across="steps", linear=True
        )
    ]
    for curve in found.curves:
        medians = {net: seconds.median for net, seconds in curve.times.items() if net in nets}
        if medians:
            across = "seconds of updates (logarithmic)"
            panels.append(
                pictures.Panel(
                    rest_of(curve.cell), lines(medians.get), levels=levels, across=across
                )
            )
    lowest = "floor" if learnt.text[3] is not None else "lowest"
    legend: list[tuple[str, pictures.Style]] = [(net.name, styles[net]) for net in nets]
    named = (f"{lowest}, {learnt.floor:.3f}", f"{learnt.share:.0%} of the way, {learnt.target:.3f}")
    dashes = (pictures.SOLID, pictures.BROKEN)
    legend += [
        (name, {"color": pictures.GREY, "linestyle": each})
        for name, each in zip(named, dashes, strict=True)
    ]
    return pictures.Picture(
        f"Loss on the {learnt.title}, nats a symbol", panels, legend, linear=True
    )


REPORT = Report(
    name="cells",
    summary="""Recurrent cells (rnn, GRU, LSTM) by layers and size: speed, loss, and time to reach a
given loss.

Speeds come from any suite that timed such a network (cells, cells-quick, char), losses from those
that trained it on a text (char). `--against karpathy2016` adds the published losses.""",
    examples=(
        "dlbench report cells",
        "dlbench report cells --quantity characters --suite cells",
        "dlbench report cells --quantity loss --against karpathy2016",
        "dlbench report cells --plot curves.png",
    ),
    analyse=lambda source: study(source.matrix(), source.results().records),
    page=lambda found, options: cells_page(found, options.quantity, options.against),
    data=cells_data,
    rows=cells_rows,
    draw=lambda found, path, options: pictures.draw(
        (_picture(found, each) for each in found.conclusions["texts"]), path
    ),
    drawable=lambda found: any(
        each.steps for of in found.conclusions["texts"] for each in of.nets.values()
    ),
    suggestion="recurrent cells: speed, loss, and time to a loss",
    applies=lambda cells: any(each.network.startswith("char-") for each in cells),
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    published=(KARPATHY,),
    trainings=True,
    heading="Recurrent cells",
    place=71,
)

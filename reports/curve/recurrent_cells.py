"""`dlbench report cells`: recurrent cells by their speed in each framework, losses on a text, and times to a loss.

A line is one row of the matrix at one place; its cells are networks of one mini-batch and number of steps. Speeds are
of the newest run that timed a cell; losses are those of `training`, whatever framework trained: parity has shown that
all compute the same. Hours to the target of a text are a network's steps times a row's seconds, with the interval of
the seconds; the blur of blocks of 50 steps is not in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.families import ALPHABET, Recurrent
from dlbench.adapters.protocol import Cell
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, Matrix, Place
from dlbench.reports.claims.claims import Answer, Evidence, answers, evidence, of_losses
from dlbench.reports.claims.figures import ONE_TRAINING, Claimed, Question, of_times, of_value
from dlbench.reports.claims.report import figures
from dlbench.reports.columns import Column, attributes, axis_columns, csv_rows, objects
from dlbench.reports.curve.curve import cell_columns
from dlbench.reports.curve.plot import BROKEN, SOLID, Panel, Picture, Style, draw
from dlbench.reports.curve.plot import Line as Drawn
from dlbench.reports.curve.training import (
    ALIKE,
    KNOWS_NOTHING,
    SHARES,
    Learnt,
    Losses,
    Net,
    Trained,
    Work,
    cell_order,
    learnt_of,
    losses_of,
    net_of,
    published_losses,
)
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE, Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.formats.pictures import GREY
from dlbench.reports.naming import place_name, row_name
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report, Source
from dlbench.reports.statistics import Summary, clearly_slower
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

KARPATHY = "karpathy2016"
NOTHING = "Nothing of these networks was measured yet; `dlbench run char` and `dlbench run cells-quick` do it."
NOT_CONFIRMED, UNCHECKED = "!", "?"
QUANTITIES = {
    "seconds": "Seconds per update",
    "characters": "Characters per second",
    "gflops": layout.QUANTITIES["gflops"].title,
    "ceiling": layout.QUANTITIES["ceiling"].title,
    "loss": "Loss",
}
_UNITS = {"hours": 1, "minutes": 60, "seconds": 3600}
"""How many of each are an hour."""
_SAID_ONCE = {flags.FEW_LAUNCHES}


@dataclass(frozen=True)
class Line:
    """One row of the matrix at one place."""

    row: Cell
    place: Place
    host: Host
    work: Work
    cells: Mapping[Net, CellResult]

    @property
    def name(self) -> str:
        """In words: "torch eager, 2 threads"."""
        return f"{row_name(self.row)}, {place_name(self.place.cell)}"

    def seconds(self, net: Net) -> Summary | None:
        """Return the seconds of an update; None where there is no number of the right mathematics."""
        cell = self.cells.get(net)
        return None if cell is None else cell.timed


@dataclass(frozen=True)
class Way:
    """A network trained in a row: the time to the target."""

    line: Line
    learnt: Learnt
    net: Net
    seconds: Summary
    """Of an update."""
    steps_to_target: float | None
    """None: it was never reached."""
    loss: float
    """At the common steps."""
    pareto: bool = False
    """No other network in any row of this machine is both clearly faster and lower."""

    @property
    def hours(self) -> tuple[float, float | None, float | None] | None:
        """To the target, and the ends of the interval; None where it was never reached."""
        if self.steps_to_target is None:
            return None
        one = self.steps_to_target / 3600
        low, high = (None if end is None else one * end for end in (self.seconds.low, self.seconds.high))
        return one * self.seconds.median, low, high


class Finding(NamedTuple):
    """A sentence, and its evidence."""

    name: str
    said: str
    evidence: Evidence


@dataclass(frozen=True)
class CellStudy:
    """The report."""

    lines: tuple[Line, ...]
    learnt: tuple[Learnt, ...]
    ways: tuple[Way, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def study(matrix: Matrix, records: Sequence[Record]) -> CellStudy:
    """Return the study of a matrix's cells and of the trainings of these records."""
    lines, learnt = _lines(matrix, records), learnt_of(records)
    ended = [each.curve for of_text in learnt for each in of_text.nets.values() if each.curve.ended]
    notes = [f"{each.net.name}: training in {each.row.framework} ended: {each.ended}" for each in ended]
    found = CellStudy(lines, learnt, _ways(lines, learnt), (*notes, *matrix.notes))
    return replace(found, findings=_findings(found))


def _lines(matrix: Matrix, records: Iterable[Record]) -> tuple[Line, ...]:
    nets = {(each.cell.network, each.cell.specification, each.cell.batch_size): net_of(each) for each in records}
    found: dict[tuple[Work, Place, Cell], dict[Net, CellResult]] = {}
    for cell in matrix.cells.values():
        group, column, row = cell.group, cell.column, cell.row
        net = nets.get((group.network, group.specification, group.batch_size))
        if net is not None and (group.precision, group.placement) == ("float32", "resident"):
            found.setdefault((net.work, column, row), {})[net] = cell
    keys = sorted(found, key=lambda key: (key[0], matrix.columns.index(key[1]), key[2]))
    return tuple(
        Line(row, place, matrix.hosts[place.machine], work, {net: of[net] for net in sorted(of, key=lambda n: n.order)})
        for (work, place, row), of in ((key, found[key]) for key in keys)
    )


def _ways(lines: Sequence[Line], learnt: Sequence[Learnt]) -> tuple[Way, ...]:
    found = []
    for of_text in learnt:
        ways = [
            Way(line, of_text, net, seconds, of_text.nets[net].curve.steps_to(of_text.target), loss)
            for line in lines
            for net in line.cells
            if (loss := of_text.loss(net)) is not None and (seconds := line.seconds(net)) is not None
        ]
        for way in ways:
            rivals = (each for each in ways if each.line.host == way.line.host and each.loss < way.loss)
            found.append(replace(way, pareto=not any(clearly_slower(way.seconds, each.seconds) for each in rivals)))
    return tuple(found)


# Findings: the lecture's claims on one's own curves, and the costs of cells and layers.


def _findings(found: CellStudy) -> tuple[Finding, ...]:
    """Return the findings that have any figure."""
    losses = losses_of(found.learnt)
    asked: list[tuple[str, str, Iterable[Question]]] = [
        ("G1", "LSTM and GRU have a lower loss than rnn of equal size", of_losses("G1", losses)),
        ("G1t", "and after equal time", _gated_at_equal_time(found)),
        ("G2", "A layer more lowers the loss", of_losses("G2", losses)),
        ("G3", "Twice the size lowers the loss", of_losses("G3", losses)),
        ("gru", "A GRU takes longer than rnn, by its FLOPs", _costs(found, _plain_instead_of("gru"))),
        ("lstm", "An LSTM takes longer than rnn, by its FLOPs", _costs(found, _plain_instead_of("lstm"))),
        ("layers", "3 layers take longer than 1, by their FLOPs", _costs(found, _one_layer)),
    ]
    questions = [tuple(each) for *_, each in asked]
    answered = iter(answers([question for each in questions for question in each]))
    made = [
        Finding(name, said, evidence([(question, next(answered)) for question in each]))
        for (name, said, _), each in zip(asked, questions, strict=True)
    ]
    return tuple(each for each in made if each.evidence.figures)


def _gated_at_equal_time(found: CellStudy) -> Iterator[Question]:
    """Ask for each row whether a gated network has the lower loss after the time that the plain one took."""
    ways = {(way.line.row, way.line.place, way.learnt.text, way.net): way for way in found.ways}
    for (row, place, text, net), way in ways.items():
        rival = ways.get((row, place, text, net._replace(cell="rnn")))
        if net.cell == "rnn" or rival is None:
            continue
        steps = rival.seconds.median * way.learnt.common_steps / way.seconds.median
        loss = way.learnt.nets[net].curve.loss_at(min(steps, way.learnt.common_steps))
        if loss is not None:
            what = f"{way.line.name}, {net.name} after {steps:.0f} steps: loss of rnn / its own"
            yield of_value(what, rival.loss / loss, Claimed(least=1.0), ONE_TRAINING)


def _costs(found: CellStudy, other: Callable[[Net], Net | None]) -> Iterator[Question]:
    """Ask how many times as long an update takes as that of the other network, whose work is known too."""
    for line in found.lines:
        for net, cell in line.cells.items():
            against = other(net)
            if against is not None and against in line.cells:
                what = f"{line.name}, {net.name} / {against.name}"
                claimed = Claimed(least=1.0, size=flops(net) / flops(against))
                yield of_times(what, cell, line.cells[against], claimed)


def flops(net: Net) -> int:
    """Return the operations of a step, as the matrix counts them."""
    family = Recurrent(ALPHABET, net.embedding, net.size, net.layers, net.steps, net.cell)
    return family.training_flops(net.batch_size)


def _plain_instead_of(cell: str) -> Callable[[Net], Net | None]:
    return lambda net: net._replace(cell="rnn") if net.cell == cell else None


def _one_layer(net: Net) -> Net | None:
    return net._replace(layers=1) if net.layers == 3 else None


# Tables.


def cells_page(found: CellStudy, quantity: str = "seconds", against: str = "") -> Page:
    """Return speeds, losses, times to a loss, and findings, as tables."""
    if not found.lines and not found.learnt:
        return Page((NOTHING,), (), found.notes)
    tables = [] if quantity == "loss" else [_speeds(line, quantity) for line in found.lines]
    tables += [table for each in found.learnt for table in _loss_tables(each)]
    tables += _published_tables() if against else []
    tables += [] if quantity == "loss" else _times(found.ways)
    tables += [_findings_table(found.findings)] if found.findings else []
    before = [f"On {name}." for name in dict.fromkeys(line.host.name for line in found.lines)]
    before += _order_lines(losses_of(found.learnt), against) if against else []
    return Page(tuple(before), tuple(tables), tuple(_legend(found, quantity)))


def _grid(title: str, nets: Mapping[Net, Entry], notes: Iterable[str] = ()) -> Table:
    """Return a table of networks that differ in cell, layers and size: sizes down, cells with their layers across."""
    columns = sorted({(net.cell, net.layers) for net in nets}, key=lambda each: (cell_order(each[0]), each[1]))
    at = {(net.size, (net.cell, net.layers)): entry for net, entry in nets.items()}
    rows = tuple(
        (Entry(str(size)), *(at.get((size, column), Entry(layout.MISSING)) for column in columns))
        for size in sorted({net.size for net in nets})
    )
    cells = list(dict.fromkeys(cell for cell, _ in columns))
    spans = tuple((cell, sum(each == cell for each, _ in columns)) for cell in cells)
    head = ("size", *(f"{cell} {layers}" for cell, layers in columns))
    return Table(title, head, rows, tuple(notes), spans=spans if len(columns) > len(cells) else ())


def _quantity(net: Net, quantity: str) -> layout.Quantity:
    if quantity == "characters":
        return layout.Quantity("", lambda cell: cell.items_per_second and cell.items_per_second * net.steps)
    return layout.QUANTITIES[quantity]


def _speeds(line: Line, quantity: str) -> Table:
    reasons: dict[str, list[str]] = {}
    for net, cell in line.cells.items():
        if not cell.shown:
            reasons.setdefault(layout.why_hole(cell), []).append(net.name)
    notes = [f"{', '.join(nets)}: {why}" for why, nets in reasons.items()]
    shown = {net: layout.entry(cell, _quantity(net, quantity), _SAID_ONCE) for net, cell in line.cells.items()}
    entries = {net: entry._replace(best=False) for net, entry in shown.items()}
    return _grid(f"{QUANTITIES[quantity]}: {line.name}; {line.work.name}", entries, notes)


def _loss_tables(learnt: Learnt) -> Iterator[Table]:
    text = learnt.text
    for work in dict.fromkeys(net.work for net in learnt.nets):
        nets = {net: each for net, each in learnt.nets.items() if net.work == work}
        floor = "floor, its entropy," if text.floor is not None else "lowest loss"
        notes = [
            f"{text.title}, {text.symbols:,} symbols; {floor} {learnt.floor:.3f}; uniform guessing has "
            f"{KNOWS_NOTHING:.3f}.",
            *_of_checks(nets),
        ]
        title = f"Loss after {learnt.common_steps} steps, nats a symbol; {work.name}"
        yield _grid(title, {net: _loss(learnt.loss(net), each) for net, each in nets.items()}, notes)


def _loss(loss: float | None, found: Trained) -> Entry:
    marks = UNCHECKED if found.confirmed is None else "" if found.confirmed else NOT_CONFIRMED
    return Entry("ended" if loss is None else f"{loss:.3f}", "", marks, hole=loss is None)


def _of_checks(nets: Mapping[Net, Trained]) -> Iterator[str]:
    good: dict[tuple[str, str, int], list[float]] = {}
    for net, each in nets.items():
        for check in each.checks:
            by, main = check.by.row.framework, each.curve.row.framework
            if check.confirms:
                good.setdefault((main, by, check.steps), []).append(check.difference)
            else:
                yield (
                    f"{NOT_CONFIRMED} {net.name}: not confirmed. {by} differs from {main} by {check.difference:.1%} "
                    f"in a block up to step {check.steps}."
                )
    for (main, by, steps), differences in good.items():
        count = f"{len(differences)} curve{'s' if len(differences) != 1 else ''}"
        shown = f"{most:.2%}" if (most := max(differences)) >= 0.0001 else "0.01 %"
        yield f"{by} confirms {count} of {main}: means of blocks up to step {steps} differ by {shown} at most."
    if any(each.confirmed is None for each in nets.values()):
        yield f"{UNCHECKED} trained in one framework only, so not checked"


def _published_tables() -> list[Table]:
    texts: dict[str, dict[Net, Entry]] = {}
    for setting, loss in published_losses().items():
        net = Net(setting.cell, setting.layers, setting.size, 0, 0, 0)
        texts.setdefault(setting.text, {})[net] = Entry(f"{loss:.3f}")
    note = "Another text and another training: compare the order."
    return [_grid(f"Loss, {text} ({KARPATHY})", nets, [note]) for text, nets in texts.items()]


def _order_lines(own: Losses, against: str) -> Iterator[str]:
    """Yield how many pairs of networks are in the published order."""
    theirs = published_losses()
    for mine in dict.fromkeys(setting.text for setting in own):
        for text in dict.fromkeys(setting.text for setting in theirs):
            both = [
                (loss, theirs[there])
                for setting, loss in own.items()
                if setting.text == mine and (there := setting._replace(text=text)) in theirs
            ]
            alike = [(a < c) == (b < d) for place, (a, b) in enumerate(both) for c, d in both[:place]]
            if alike:
                yield (
                    f"{mine}: {sum(alike)} of {len(alike)} pairs of networks have losses in the order of {against}'s "
                    f"{text}."
                )


def _times(ways: Sequence[Way]) -> Iterator[Table]:
    """Yield a table for each text and place: rows and their networks down."""
    groups: dict[tuple[object, ...], list[Way]] = {}
    for way in ways:
        groups.setdefault((way.learnt.text, way.line.place, way.line.work), []).append(way)
    for of_place in groups.values():
        learnt, line = of_place[0].learnt, of_place[0].line
        longest = max((way.hours[0] for way in of_place if way.hours is not None), default=0.0)
        unit = next((unit for unit, count in _UNITS.items() if longest * count >= 2), "seconds")
        rows: list[tuple[Entry, ...]] = []
        for row in dict.fromkeys(way.line.row for way in of_place):
            rows.append((Entry(row_name(row)),))
            rows += [_way(way, unit) for way in of_place if way.line.row == row]
        title = (
            f"Time to a loss of {learnt.target:.3f}, {learnt.share:.0%} of the way to the floor: "
            f"{place_name(line.place.cell)}; {learnt.text.title}"
        )
        yield Table(title, ("network", "s/update", "steps", unit, "loss", "lowest"), tuple(rows))


def _way(way: Way, unit: str) -> tuple[Entry, ...]:
    curve, hours = way.learnt.nets[way.net].curve, way.hours
    taken = Entry(f"not in {curve.last}", hole=True)
    if hours is not None:
        taken = Entry(number(hours[0] * _UNITS[unit]), layout.deviation(*hours))
    return (
        Entry(way.net.name, best=way.pareto),
        Entry(number(way.seconds.median), layout.interval(way.seconds)),
        Entry(
            "never" if way.steps_to_target is None else f"{way.steps_to_target:.0f}", hole=way.steps_to_target is None
        ),
        taken,
        Entry(f"{way.loss:.3f}"),
        Entry(f"{min(curve.losses):.3f}"),
    )


def _findings_table(findings: Sequence[Finding]) -> Table:
    rows = []
    for name, said, found in findings:
        holds = f", {found.holds} of {found.of}" if found.verdict is Answer.PARTLY else ""
        verdict = Entry(found.verdict.value + holds, hole=found.verdict is Answer.DIFFERS)
        rows.append((Entry(name), Entry(said), verdict))
    notes = tuple(f"{each.name}: {figures(each.evidence)}." for each in findings if each.evidence.of)
    return Table("Findings", ("", "finding", "verdict"), tuple(rows), notes, words=True)


def _legend(found: CellStudy, quantity: str) -> Iterator[str]:
    cells = [cell for line in found.lines for cell in line.cells.values() if cell.shown]
    if quantity == "seconds" and cells:
        yield "± half-width of the 95 % interval (the wider side)"
        yield from layout.flag_lines(cells, _SAID_ONCE)
    if found.ways:
        yield (
            f"{layout.BEST} no other network in any row of the machine is both clearly faster and lower. The time "
            "is steps to the loss times seconds per update; its interval is that of the seconds. Steps are known to "
            "about half a block of 50."
        )
        yield (
            f"A loss is the mean of the block of steps that ends there, each before its update, on stretches drawn "
            f"anew. The share of the way is the largest of {', '.join(f'{each:.0%}' for each in SHARES)} that a "
            "network reached."
        )
    if any(each.confirmed is False for of_text in found.learnt for each in of_text.nets.values()):
        yield f"{NOT_CONFIRMED} another framework's means of blocks differ by {ALIKE:.0%} or more: do not rely on it"
    yield from found.notes


# JSON and CSV.


class _Speed(NamedTuple):
    """A network in a row, and its time on a text, where it was trained."""

    line: Line
    net: Net
    way: Way | None = None

    @property
    def cell(self) -> CellResult:
        return self.line.cells[self.net]


def _hours(way: Way) -> dict[str, float | None] | None:
    return None if way.hours is None else dict(zip(VALUE, way.hours, strict=True))


_PLACE: tuple[Column[_Speed], ...] = (
    Column("machine", None, lambda each: each.line.place.machine),
    Column("machine_name", None, lambda each: each.line.host.name),
    *axis_columns(lambda each: each.cell.cell, [axis.name for axis in axes.of_role(axes.ROW, axes.COLUMN)]),
    *attributes(lambda each: each.net, "batch_size", "cell", "layers", "size", "steps", "embedding"),
)
_SPEED: tuple[Column[_Speed], ...] = (
    *cell_columns(lambda each: each.cell, "status", "reason", "seconds"),
    Column("characters_per_second", None, lambda each: _quantity(each.net, "characters").value(each.cell)),
    *cell_columns(lambda each: each.cell, "gflops", "ceiling_fraction", "flags", "run"),
)
_TIME: tuple[Column[_Speed], ...] = (
    Column("text", None, lambda each: each.way and each.way.learnt.text.digest),
    *attributes(lambda each: each.way, "loss", "steps_to_target"),
    Column("hours_to_target", None, lambda each: each.way and _hours(each.way), fields=VALUE),
    *attributes(lambda each: each.way, "pareto"),
)


def cells_data(found: CellStudy) -> dict[str, Any]:
    """Return a JSON object: texts with their curves, speeds, times to a loss, findings."""
    speeds = [_Speed(line, net) for line in found.lines for net in line.cells]
    return {
        "texts": [_text(each) for each in found.learnt],
        "speeds": objects((*_PLACE, *_SPEED), speeds),
        "times": objects((*_PLACE, *_TIME), [_Speed(way.line, way.net, way) for way in found.ways]),
        "findings": [_finding(each) for each in found.findings],
        "notes": list(found.notes),
    }


def cells_rows(found: CellStudy) -> Rows:
    """Return a CSV line for each speed, and for each text on which its network was trained."""
    ways: dict[tuple[int, Net], list[Way | None]] = {}
    for way in found.ways:
        ways.setdefault((id(way.line), way.net), []).append(way)
    speeds = [
        _Speed(line, net, way)
        for line in found.lines
        for net in line.cells
        for way in ways.get((id(line), net), [None])
    ]
    return csv_rows((*_PLACE, *_SPEED, *_TIME), speeds)


def _text(learnt: Learnt) -> dict[str, Any]:
    return {
        **learnt.text._asdict(),
        "floor_taken": learnt.floor,
        "loss_knowing_nothing": KNOWS_NOTHING,
        "target_share": learnt.share,
        "target_loss": learnt.target,
        "common_steps": learnt.common_steps,
        "curves": [_curve(learnt, net, each) for net, each in learnt.nets.items()],
    }


def _curve(learnt: Learnt, net: Net, trained: Trained) -> dict[str, Any]:
    curve = trained.curve
    return {
        **net._asdict(),
        **{name: getattr(curve.row, name) for name in ("framework", "mode")},
        **{name: getattr(curve, name) for name in ("machine", "run", "test_loss", "ended")},
        "loss": learnt.loss(net),
        "steps_to_target": curve.steps_to(learnt.target),
        "blocks": [list(block) for block in zip(curve.steps, curve.losses, strict=True)],
        "confirmed": trained.confirmed,
        "checks": [
            {"framework": check.by.row.framework, "difference": check.difference, "steps": check.steps}
            for check in trained.checks
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    found = finding.evidence
    ratio = ("value", "low", "high", "method")
    return {
        "name": finding.name,
        "finding": finding.said,
        "verdict": found.verdict.value,
        "holds": found.holds,
        "of": found.of,
        "numbers": [
            {
                "what": question.what,
                "answer": answer.value,
                "claimed": plain(question.claimed),
                **({} if question.found is None else {key: getattr(question.found, key) for key in ratio}),
            }
            for question, answer in found.figures
        ],
    }


# The picture.


def curves_to_picture(found: CellStudy, path: Path) -> list[Path]:
    """Draw the losses, a page for each text, and return the files written; raises ReportError."""
    return draw((_picture(found, learnt) for learnt in found.learnt), path)


def _picture(found: CellStudy, learnt: Learnt) -> Picture:
    """Return a page: a panel against steps, then one for each line against seconds.

    A cell has a colour, the number of layers a kind of line, a size a mark.
    """
    nets = sorted((net for net, each in learnt.nets.items() if each.curve.steps), key=lambda net: net.name)
    nets.sort(key=lambda net: (net.work, cell_order(net.cell), net.layers, net.size))
    sizes = sorted({net.size for net in nets})
    styles = {net: Style(cell_order(net.cell)[0], sizes.index(net.size), net.layers - 1) for net in nets}

    def curves(seconds: Callable[[Net], float | None]) -> list[Drawn]:
        drawn = []
        for net in nets:
            curve, step = learnt.nets[net].curve, seconds(net)
            if step is not None:
                points = [
                    (middle * step, (loss, None, None))
                    for middle, loss in zip(curve.middles, curve.losses, strict=True)
                ]
                drawn.append(Drawn(points, styles[net]))
        return drawn

    levels = (learnt.floor, learnt.target)
    panels = [Panel("against steps", curves(lambda net: 1.0), levels=levels, across="steps", linear=True)]
    for line in found.lines:
        medians = {net: seconds.median for net in nets if (seconds := line.seconds(net)) is not None}
        if medians:
            across = "seconds of updates (logarithmic)"
            panels.append(Panel(line.name, curves(medians.get), levels=levels, across=across))
    named = "floor" if learnt.text.floor is not None else "lowest"
    legend: list[tuple[str, Any]] = [(net.name, styles[net]) for net in nets]
    legend.append((f"{named}, {learnt.floor:.3f}", {"color": GREY, "linestyle": SOLID}))
    legend.append((f"{learnt.share:.0%} of the way, {learnt.target:.3f}", {"color": GREY, "linestyle": BROKEN}))
    return Picture(f"Loss on the {learnt.text.title}, nats a symbol", panels, legend, linear=True)


def _analyse(source: Source) -> CellStudy:
    return study(source.matrix(), source.results().records)


REPORT = Report(
    name="cells",
    summary="""Recurrent cells (rnn, GRU, LSTM) by layers and size: speed, loss, and the time to a loss.

Speeds are of whatever suite timed such a network (cells, cells-quick, char); losses of those that trained it on a
text (char). With `--against karpathy2016` the published losses stand beside one's own.""",
    examples=(
        "dlbench report cells",
        "dlbench report cells --quantity characters --suite cells",
        "dlbench report cells --quantity loss --against karpathy2016",
        "dlbench report cells --plot curves.png",
    ),
    analyse=_analyse,
    page=lambda found, options: cells_page(found, options.quantity, options.against),
    data=cells_data,
    rows=cells_rows,
    draw=lambda found, path, options: curves_to_picture(found, path),
    drawable=lambda found: any(each.curve.steps for of in found.learnt for each in of.nets.values()),
    suggestion="recurrent cells: speed, loss, and time to a loss",
    applies=lambda cells: any(each.network.startswith("char-") for each in cells),
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    published=(KARPATHY,),
    trainings=True,
    heading="Recurrent cells",
    place=71,
)

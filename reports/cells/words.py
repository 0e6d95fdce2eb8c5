"""The study as words and tables; `data` has it for scripts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlbench.reports.cells.analysis import CellStudy, Line, Way, Work
from dlbench.reports.cells.curves import ALIKE, Net, Trained, cell_order
from dlbench.reports.cells.findings import Finding, line_name
from dlbench.reports.cells.learnt import KNOWS_NOTHING, SHARES, Learnt, words
from dlbench.reports.cells.settings import Losses, losses_of
from dlbench.reports.claims.gurari2021 import losses as published
from dlbench.reports.claims.questions import Answer
from dlbench.reports.claims.words import figures
from dlbench.reports.evidence import flag_kinds
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.matrix.analysis import MatrixCell
from dlbench.reports.naming import row_name

NOTHING = "Nothing of these networks was measured yet; `dlbench run char` and `dlbench run cells-quick` do it."
KARPATHY = "karpathy2016"
NOT_CONFIRMED, UNCHECKED = "!", "?"
QUANTITIES = {
    "seconds": "Seconds per update",
    "characters": "Characters per second",
    "gflops": layout.QUANTITIES["gflops"].title,
    "ceiling": layout.QUANTITIES["ceiling"].title,
    "loss": "Loss",
}


def cells_page(found: CellStudy, told: Sequence[Finding], quantity: str = "seconds", against: str = "") -> Page:
    """Return speeds, losses, times to a loss, and findings, as tables."""
    if not found.lines and not found.learnt:
        return Page((NOTHING,), (), found.notes)
    speeds = [] if quantity == "loss" else [_speeds(line, quantity) for line in found.lines]
    tables = [*speeds, *(table for each in found.learnt for table in _losses(each))]
    if against:
        tables += _published()
    if quantity != "loss":
        tables += list(_times(found.ways))
    tables += [_findings(told)] if told else []
    machines = dict.fromkeys(found.hosts[line.place.machine].name for line in found.lines)
    before = [f"On {name}." for name in machines]
    before += _order(found, against) if against else []
    return Page(tuple(before), tuple(tables), tuple(_legend(found, quantity)))


def _grid(title: str, nets: Mapping[Net, Entry], notes: Iterable[str] = ()) -> Table:
    """Return a table of networks that differ in cell, layers and size: sizes down, cells with their layers across."""
    columns = sorted({(net.cell, net.layers) for net in nets}, key=lambda each: (cell_order(each[0]), each[1]))
    by_place = {(net.size, (net.cell, net.layers)): entry for net, entry in nets.items()}
    sizes = sorted({net.size for net in nets})
    rows = tuple(
        (Entry(str(size)), *(by_place.get((size, column), Entry(layout.MISSING)) for column in columns))
        for size in sizes
    )
    head = ("size", *(f"{cell} {layers}" for cell, layers in columns))
    cells = list(dict.fromkeys(cell for cell, _ in columns))
    spans = tuple((cell, sum(each == cell for each, _ in columns)) for cell in cells) if len(columns) > len(cells) else ()
    return Table(title, head, rows, tuple(notes), spans=spans)


def _work(work: Work) -> str:
    embedded = f", embedding {work.embedding}" if work.embedding else ""
    return f"sequences of {work.steps}, mini-batch {work.batch_size}{embedded}"


def value_of(cell: MatrixCell, net: Net, quantity: str) -> float | None:
    """Return what a cell shows."""
    if quantity == "characters":
        return None if cell.items_per_second is None else cell.items_per_second * net.steps
    return layout.QUANTITIES[quantity].value(cell)


def _speeds(line: Line, quantity: str) -> Table:
    entries = {net: _speed(cell, net, quantity) for net, cell in line.cells.items()}
    reasons: dict[str, list[str]] = {}
    for net, cell in line.cells.items():
        if not cell.shown:
            reasons.setdefault(layout.why_hole(cell), []).append(words(net))
    notes = [f"{', '.join(nets)}: {why}" for why, nets in reasons.items()]
    return _grid(f"{QUANTITIES[quantity]}: {line_name(line)}; {_work(line.work)}", entries, notes)


def _speed(cell: MatrixCell, net: Net, quantity: str) -> Entry:
    if not cell.shown or cell.seconds is None:
        return Entry(layout.HOLES[cell.status], hole=True)
    value = value_of(cell, net, quantity)
    marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in _SAID_ONCE)
    spread = layout.interval(cell.seconds) if quantity == "seconds" else ""
    return Entry(layout.MISSING) if value is None else Entry(number(value), spread, marks)


_SAID_ONCE = (flag_kinds.FEW_LAUNCHES,)


def _losses(learnt: Learnt) -> Iterator[Table]:
    """Yield a table of losses for each kind of work."""
    text = learnt.text
    for work in dict.fromkeys(Work(*net[3:]) for net in learnt.nets):
        nets = {net: each for net, each in learnt.nets.items() if Work(*net[3:]) == work}
        entries = {net: _loss(learnt, net, each) for net, each in nets.items()}
        floor = "floor, its entropy," if text.floor is not None else "lowest loss"
        notes = [
            f"{text.name} text {text.digest[:6]}, {text.symbols:,} symbols; {floor} {learnt.floor:.3f}; a network that "
            f"knows nothing has {KNOWS_NOTHING:.3f}.",
            *_of_checks(nets),
        ]
        title = f"Loss after {learnt.common_steps} steps, nats a symbol; {_work(work)}"
        yield _grid(title, entries, notes)


def _loss(learnt: Learnt, net: Net, found: Trained) -> Entry:
    loss = learnt.loss(net)
    marks = UNCHECKED if found.confirmed is None else "" if found.confirmed else NOT_CONFIRMED
    return Entry("-" if loss is None else f"{loss:.3f}", "", marks, hole=loss is None)


def _of_checks(nets: Mapping[Net, Trained]) -> Iterator[str]:
    """Yield how far other frameworks' curves are."""
    good: dict[tuple[str, str, int], list[float]] = {}
    for net, each in nets.items():
        for check in each.checks:
            by, main = check.by.row.framework, each.curve.row.framework
            if check.confirms:
                good.setdefault((main, by, check.steps), []).append(check.difference)
            else:
                yield (
                    f"{NOT_CONFIRMED} {words(net)}: not confirmed. {by} differs from {main} by {check.difference:.1%} in "
                    f"a block up to step {check.steps}."
                )
    for (main, by, steps), differences in good.items():
        count = f"{len(differences)} curve{'s' if len(differences) != 1 else ''}"
        most = max(differences)
        shown = f"{most:.2%}" if most >= 0.0001 else "0.01 %"
        yield f"{by} confirms {count} of {main}: means of blocks up to step {steps} differ by {shown} at most."
    if any(each.confirmed is None for each in nets.values()):
        yield f"{UNCHECKED} trained in one framework only, so not checked"


def _published() -> list[Table]:
    found = published()
    tables = []
    for text in dict.fromkeys(setting.text for setting in found):
        nets = {
            Net(setting.cell, setting.layers, setting.size, 0, 0, 0): Entry(f"{loss:.3f}")
            for setting, loss in found.items()
            if setting.text == text
        }
        tables.append(_grid(f"Loss, {text} ({KARPATHY})", nets, ["Another text and another training: compare the order."]))
    return tables


def _order(found: CellStudy, against: str) -> Iterator[str]:
    """Yield how many pairs of networks stand in the published order."""
    own, theirs = losses_of(found.learnt), published()
    for mine in dict.fromkeys(setting.text for setting in own):
        for text in dict.fromkeys(setting.text for setting in theirs):
            alike = list(_pairs_alike(own, mine, theirs, text))
            if alike:
                yield (
                    f"{mine}: {sum(alike)} of {len(alike)} pairs of networks have the losses in the order of {against}'s "
                    f"{text}."
                )


def _pairs_alike(own: Losses, mine: str, theirs: Losses, text: str) -> Iterator[bool]:
    both = [
        (loss, theirs[there])
        for setting, loss in own.items()
        if setting.text == mine and (there := setting._replace(text=text)) in theirs
    ]
    for place, (loss, published_loss) in enumerate(both):
        for other, published_other in both[:place]:
            yield (loss < other) == (published_loss < published_other)


def _times(ways: Sequence[Way]) -> Iterator[Table]:
    """Yield a table for each text and place: rows and their networks down."""
    groups: dict[tuple[object, ...], list[Way]] = {}
    for way in ways:
        groups.setdefault((way.learnt.text, way.line.place, way.line.work), []).append(way)
    for of_place in groups.values():
        first = of_place[0]
        learnt = first.learnt
        rows: list[tuple[Entry, ...]] = []
        for row in dict.fromkeys(way.line.row for way in of_place):
            rows.append((Entry(row_name(row)),))
            rows += [_way(way) for way in of_place if way.line.row == row]
        title = (
            f"Time to a loss of {learnt.target:.3f}, {learnt.share:.0%} of the way to the floor: "
            f"{line_name(first.line).partition(', ')[2]}; {learnt.text.name} text {learnt.text.digest[:6]}"
        )
        head = ("network", "s/update", "steps", "hours", "loss", "lowest")
        yield Table(title, head, tuple(rows))


def _way(way: Way) -> tuple[Entry, ...]:
    curve = way.learnt.nets[way.net].curve
    hours = way.hours
    seconds = Entry(number(way.seconds.median), layout.interval(way.seconds))
    steps = Entry("never" if way.steps is None else f"{way.steps:.0f}", hole=way.steps is None)
    taken = Entry(f"not in {curve.last}", hole=True) if hours is None else Entry(number(hours[0]), layout.deviation(*hours))
    return (
        Entry(words(way.net), best=way.best),
        seconds,
        steps,
        taken,
        Entry(f"{way.loss:.3f}"),
        Entry(f"{min(curve.losses):.3f}"),
    )


def _findings(told: Sequence[Finding]) -> Table:
    rows = []
    for each in told:
        verdict = each.evidence.verdict
        holds = f", {each.evidence.holds} of {each.evidence.of}" if verdict is Answer.PARTLY else ""
        rows.append((Entry(each.name), Entry(each.said), Entry(verdict.value + holds, hole=verdict is Answer.DIFFERS)))
    notes = tuple(f"{each.name}: {figures(each.evidence)}." for each in told if each.evidence.of)
    return Table("Findings", ("", "finding", "verdict"), tuple(rows), notes, words=True)


def _legend(found: CellStudy, quantity: str) -> Iterator[str]:
    cells = [cell for line in found.lines for cell in line.cells.values() if cell.shown]
    if quantity == "seconds" and cells:
        yield "± half-width of the 95 % interval (the wider side)"
        yield from layout.flag_lines(cells, _SAID_ONCE)
    if found.ways:
        yield (
            f"{layout.BEST} no other network in any row of the machine is both clearly faster and lower. Hours are steps "
            "to the loss times seconds per update; their interval is that of the seconds. Steps are known to about half "
            "a block of 50."
        )
        yield (
            f"A loss is the mean of the block of steps that ends there, each before its update, on stretches drawn anew. "
            f"The share of the way is the largest of {', '.join(f'{each:.0%}' for each in SHARES)} that a network reached."
        )
    if any(each.confirmed is False for of_text in found.learnt for each in of_text.nets.values()):
        yield f"{NOT_CONFIRMED} another framework's means of blocks differ by {ALIKE:.0%} or more: do not rely on it"
    yield from found.notes

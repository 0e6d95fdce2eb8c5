"""Tables of losses: one's own with what confirms them, and the published ones beside."""

from collections.abc import Iterable, Iterator, Mapping

from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import Entry, Table
from dlbench.reports.recurrent_cells.analysis import CellStudy, Work
from dlbench.reports.recurrent_cells.curves import Net, Trained, cell_order
from dlbench.reports.recurrent_cells.learnt import KNOWS_NOTHING, Learnt, words
from dlbench.reports.recurrent_cells.settings import Losses, losses_of, published_losses

KARPATHY = "karpathy2016"
NOT_CONFIRMED, UNCHECKED = "!", "?"


def grid(title: str, nets: Mapping[Net, Entry], notes: Iterable[str] = ()) -> Table:
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
    spans = (
        tuple((cell, sum(each == cell for each, _ in columns)) for cell in cells) if len(columns) > len(cells) else ()
    )
    return Table(title, head, rows, tuple(notes), spans=spans)


def work_name(work: Work) -> str:
    """Return what networks of one table have in common, in words."""
    embedded = f", embedding {work.embedding}" if work.embedding else ""
    return f"sequences of {work.steps}, mini-batch {work.batch_size}{embedded}"


def loss_tables(learnt: Learnt) -> Iterator[Table]:
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
        title = f"Loss after {learnt.common_steps} steps, nats a symbol; {work_name(work)}"
        yield grid(title, entries, notes)


def _loss(learnt: Learnt, net: Net, found: Trained) -> Entry:
    loss = learnt.loss(net)
    marks = UNCHECKED if found.confirmed is None else "" if found.confirmed else NOT_CONFIRMED
    return Entry("ended" if loss is None else f"{loss:.3f}", "", marks, hole=loss is None)


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
                    f"{NOT_CONFIRMED} {words(net)}: not confirmed. {by} differs from {main} by {check.difference:.1%} "
                    f"in a block up to step {check.steps}."
                )
    for (main, by, steps), differences in good.items():
        count = f"{len(differences)} curve{'s' if len(differences) != 1 else ''}"
        most = max(differences)
        shown = f"{most:.2%}" if most >= 0.0001 else "0.01 %"
        yield f"{by} confirms {count} of {main}: means of blocks up to step {steps} differ by {shown} at most."
    if any(each.confirmed is None for each in nets.values()):
        yield f"{UNCHECKED} trained in one framework only, so not checked"


def published_tables() -> list[Table]:
    """Return the published losses, a table for each text."""
    found = published_losses()
    tables = []
    for text in dict.fromkeys(setting.text for setting in found):
        nets = {
            Net(setting.cell, setting.layers, setting.size, 0, 0, 0): Entry(f"{loss:.3f}")
            for setting, loss in found.items()
            if setting.text == text
        }
        tables.append(
            grid(f"Loss, {text} ({KARPATHY})", nets, ["Another text and another training: compare the order."])
        )
    return tables


def order_lines(found: CellStudy, against: str) -> Iterator[str]:
    """Yield how many pairs of networks stand in the published order."""
    own, theirs = losses_of(found.learnt), published_losses()
    for mine in dict.fromkeys(setting.text for setting in own):
        for text in dict.fromkeys(setting.text for setting in theirs):
            alike = list(_pairs_alike(own, mine, theirs, text))
            if alike:
                yield (
                    f"{mine}: {sum(alike)} of {len(alike)} pairs of networks have losses in the order of {against}'s "
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

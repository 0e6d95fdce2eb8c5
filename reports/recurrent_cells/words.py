"""The study as words and tables; `data` has it for scripts."""

from collections.abc import Iterator, Sequence

from dlbench.reports.cells import CellResult
from dlbench.reports.claims.claims import Answer
from dlbench.reports.claims.report import figures
from dlbench.reports.flags import FEW_LAUNCHES
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.naming import row_name
from dlbench.reports.recurrent_cells.analysis import CellStudy, Line, Way
from dlbench.reports.recurrent_cells.curves import ALIKE, Net
from dlbench.reports.recurrent_cells.findings import Finding, line_name
from dlbench.reports.recurrent_cells.learnt import SHARES, words
from dlbench.reports.recurrent_cells.losses import (
    NOT_CONFIRMED,
    grid,
    loss_tables,
    order_lines,
    published_tables,
    work_name,
)

NOTHING = "Nothing of these networks was measured yet; `dlbench run char` and `dlbench run cells-quick` do it."
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
    tables = [*speeds, *(table for each in found.learnt for table in loss_tables(each))]
    if against:
        tables += published_tables()
    if quantity != "loss":
        tables += list(_times(found.ways))
    tables += [_findings(told)] if told else []
    machines = dict.fromkeys(found.hosts[line.place.machine].name for line in found.lines)
    before = [f"On {name}." for name in machines]
    before += order_lines(found, against) if against else []
    return Page(tuple(before), tuple(tables), tuple(_legend(found, quantity)))


def value_of(cell: CellResult, net: Net, quantity: str) -> float | None:
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
    return grid(f"{QUANTITIES[quantity]}: {line_name(line)}; {work_name(line.work)}", entries, notes)


def _speed(cell: CellResult, net: Net, quantity: str) -> Entry:
    if not cell.shown or cell.seconds is None:
        return Entry(layout.HOLES[cell.status], hole=True)
    value = value_of(cell, net, quantity)
    marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in _SAID_ONCE)
    spread = layout.interval(cell.seconds) if quantity == "seconds" else ""
    return Entry(layout.MISSING) if value is None else Entry(number(value), spread, marks)


_IN_AN_HOUR = {"hours": 1, "minutes": 60, "seconds": 3600}
_SAID_ONCE = (FEW_LAUNCHES,)


def _times(ways: Sequence[Way]) -> Iterator[Table]:
    """Yield a table for each text and place: rows and their networks down."""
    groups: dict[tuple[object, ...], list[Way]] = {}
    for way in ways:
        groups.setdefault((way.learnt.text, way.line.place, way.line.work), []).append(way)
    for of_place in groups.values():
        first = of_place[0]
        learnt = first.learnt
        rows: list[tuple[Entry, ...]] = []
        unit = _unit(of_place)
        for row in dict.fromkeys(way.line.row for way in of_place):
            rows.append((Entry(row_name(row)),))
            rows += [_way(way, unit) for way in of_place if way.line.row == row]
        title = (
            f"Time to a loss of {learnt.target:.3f}, {learnt.share:.0%} of the way to the floor: "
            f"{line_name(first.line).partition(', ')[2]}; {learnt.text.name} text {learnt.text.digest[:6]}"
        )
        head = ("network", "s/update", "steps", unit, "loss", "lowest")
        yield Table(title, head, tuple(rows))


def _unit(ways: Sequence[Way]) -> str:
    """Return the largest unit in which the longest time is two or more."""
    longest = max((way.hours[0] for way in ways if way.hours is not None), default=0.0)
    return "hours" if longest >= 2 else "minutes" if longest * 60 >= 2 else "seconds"


def _way(way: Way, unit: str) -> tuple[Entry, ...]:
    curve = way.learnt.nets[way.net].curve
    hours = way.hours
    seconds = Entry(number(way.seconds.median), layout.interval(way.seconds))
    steps = Entry("never" if way.steps is None else f"{way.steps:.0f}", hole=way.steps is None)
    taken = (
        Entry(f"not in {curve.last}", hole=True)
        if hours is None
        else Entry(number(hours[0] * _IN_AN_HOUR[unit]), layout.deviation(*hours))
    )
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

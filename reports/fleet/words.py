"""Node against node as words, tables and a picture."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from dlbench.reports.flags import CONTENDED, SHARED_NODE
from dlbench.reports.fleet.analysis import Finding, FleetFound, KindFound, Spread
from dlbench.reports.fleet.contrasts import FAST, SLOW
from dlbench.reports.fleet.headline import counted, headline
from dlbench.reports.fleet.missing import missing
from dlbench.reports.fleet.nodes import BANDWIDTH, NodeSeen, Thing
from dlbench.reports.formats.dots import Dots, Panel, dots_to_picture
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table, number, times
from dlbench.reports.naming import group_name, rest_of
from dlbench.reports.report import ReportOptions

NONE = "No node of a fleet was measured here; `dlbench fleet run SUITE` measures many into one store."
_ITSELF = "the machine itself, one thread"
_DETAILED = 5
"""So many nodes are shown thing by thing."""
_DRAWN = 11
"""Panels of things in a picture, beside the one of the mean."""
_LEGEND = (
    "mean: time over that of the other nodes of the kind, geometric mean of so many things, with its 95 % interval; "
    "above 1 the node is slower. Nodes that are told apart are not among the others. slow, fast: on how many things.",
    "slow, fast: by more than 2 %, and noise does not explain it (a t-test, adjusted after Holm for all nodes, or for "
    "all nodes and things; of fewer than 3 launches an interval that allows for as many tests). like the others: the "
    "whole interval lies within 2 % of 1.",
)
_SPREAD_LEGEND = (
    "between: standard deviation of the nodes' means, in per cent of the time. within: of launches on one node. noise: "
    "what the means would deviate by if all nodes were the same.",
)
_Part = TypeVar("_Part")


def fleet_page(found: FleetFound, options: ReportOptions) -> Page:
    """Return for each kind its nodes, those told apart thing by thing, and how much nodes and launches differ."""
    if not found.kinds:
        return Page((NONE,), ())
    sentences = headline(found)
    more = len(sentences) - options.top
    further = (f"So are {counted(more, 'further node')}.",) if more > 0 else ()
    before, tables = [*sentences[: options.top], *further], []
    for kind in found.compared:
        before.append(_summary(kind))
        tables.append(_nodes(kind, options.top))
        told = [each for each in kind.nodes if each.told]
        tables += [_details(each, kind, options.top) for each in told[:_DETAILED]]
        tables.append(_spreads(kind))
    after = (*_LEGEND, *_marks_legend(found), *_SPREAD_LEGEND) if found.compared else ()
    return Page(tuple(before), tuple(tables), (*after, *missing(found)))


def draw_fleet(found: FleetFound, path: Path, options: ReportOptions) -> list[Path]:
    """Draw a page for each kind: a panel of the mean, one of each thing, nodes down. Raises ReportError."""
    return dots_to_picture([_dots(each, options.top) for each in found.compared], path)


def unit_of(thing: Thing) -> str:
    """Return what the times of a thing are, for a column's head."""
    return "s/batch" if thing.cell is not None else "s/GB" if thing.name == BANDWIDTH else "s/GFLOP"


def _summary(found: KindFound) -> str:
    spreads = [each for each in found.spreads if each.within is not None and each.by_noise is not None]
    line = f"{found.kind.host.name}: {counted(len(found.nodes), 'node')}, {counted(len(found.spreads), 'thing')}."
    if not spreads:
        return f"{line} With one launch of each nothing tells how much launches differ."
    between = statistics.median(each.between for each in spreads)
    within, noise = (statistics.median(_all(spreads, name)) for name in ("within", "by_noise"))
    return (
        f"{line} In the median thing the nodes' means deviate by {_share(between)}, launches on one node by "
        f"{_share(within)}; if all nodes were the same their means would deviate by {_share(noise)}."
    )


def _all(spreads: Iterable[Spread], name: str) -> list[float]:
    return [getattr(each, name) for each in spreads]


def _nodes(found: KindFound, top: int) -> Table:
    rows = [
        (
            Entry(each.node.name, marks=_marks(each.node)),
            Entry(times(each.mean.ratio)),
            Entry(str(len(each.things))),
            *(Entry(str(sum(on.judged.verdict == word for on in each.told) or MISSING)) for word in (SLOW, FAST)),
            Entry(str(each.node.launches)),
            Entry(each.mean.verdict, hole=each.mean.verdict == SLOW, best=False),
        )
        for each in found.nodes[:top]
    ]
    head = ("", "mean", "things", "slow", "fast", "launches", "verdict")
    rest = Counter(each.mean.verdict for each in found.nodes[top:])
    words = ", ".join(f"{count} {word}" for word, count in rest.most_common())
    notes = (f"{counted(rest.total(), 'further node')}: {words}.",) if rest else ()
    return Table(f"{found.kind.host.name}: nodes", head, tuple(rows), notes)


def _details(found: Finding, kind: KindFound, top: int) -> Table:
    """Return on which things a node is told apart, those with the largest differences."""
    largest = sorted(found.told, key=lambda each: -max(each.judged.ratio.value, 1 / each.judged.ratio.value))[:top]
    order = {thing.name: place for place, thing in enumerate(kind.kind.things)}
    shown = sorted(largest, key=lambda each: order[each.thing.name])
    rows: list[tuple[Entry, ...]] = []
    for heading, group in _grouped(shown, lambda each: each.thing):
        rows.append((Entry(heading),))
        rows += [
            (
                Entry(_row_of(each.thing)),
                Entry(number(each.time.median)),
                Entry(number(each.usual)),
                Entry(times(each.judged.ratio)),
                Entry(each.judged.verdict, hole=each.judged.verdict == SLOW),
            )
            for each in group
        ]
    left = len(found.told) - len(shown)
    notes = (f"{counted(left, 'further thing')} with smaller differences.",) if left else ()
    return Table(
        f"{found.node.name}, thing by thing", ("", "seconds", "others", "ratio", "verdict"), tuple(rows), notes
    )


def _spreads(found: KindFound) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for heading, group in _grouped(found.spreads, lambda each: each.thing):
        rows.append((Entry(heading),))
        rows += [
            (
                Entry(_row_of(each.thing)),
                Entry(str(len(each.thing.times))),
                *(Entry(_share(share)) for share in (each.between, each.within, each.by_noise)),
            )
            for each in group
        ]
    head = ("", "nodes", "between", "within", "noise")
    return Table(f"{found.kind.host.name}: nodes and launches", head, tuple(rows))


def _grouped(parts: Sequence[_Part], thing_of: Callable[[_Part], Thing]) -> Iterator[tuple[str, list[_Part]]]:
    """Yield parts under the headings of their things, in the order given."""
    found: dict[str, list[_Part]] = {}
    for part in parts:
        cell = thing_of(part).cell
        found.setdefault(_ITSELF if cell is None else group_name(cell), []).append(part)
    yield from found.items()


def _row_of(thing: Thing) -> str:
    return f"{thing.name}, {unit_of(thing)}" if thing.cell is None else rest_of(thing.cell)


def _share(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def _marks(node: NodeSeen) -> str:
    kinds = ((SHARED_NODE, bool(node.shared)), (CONTENDED, bool(node.disturbed)))
    return "".join(f" {kind.symbol}" for kind, raised in kinds if raised)


def _marks_legend(found: FleetFound) -> list[str]:
    nodes = [each.node for kind in found.compared for each in kind.nodes]
    shared, contended = SHARED_NODE, CONTENDED
    lines = [f"{shared.symbol} {shared.legend}"] if any(node.shared for node in nodes) else []
    return [*lines, *([f"{contended.symbol} {contended.legend}"] if any(node.disturbed for node in nodes) else [])]


def _drawn(found: KindFound) -> list[Thing]:
    """Return the things on which the nodes differ most, in the order of the kind."""
    most = sorted(found.spreads, key=lambda each: -each.between)[:_DRAWN]
    kept = {each.thing.name for each in most}
    return [thing for thing in found.kind.things if thing.name in kept]


def _dots(found: KindFound, top: int) -> Dots:
    shown = found.nodes[:top]
    names = tuple(each.node.name for each in shown)
    against = "the other nodes"
    means = {(each.node.name, against): each.mean.ratio for each in shown}
    panels = [Panel("Geometric mean", names, {key: (r.value, r.low, r.high) for key, r in means.items()})]
    for thing in _drawn(found):
        points = {
            (each.node.name, against): (on.judged.ratio.value, on.judged.ratio.low, on.judged.ratio.high)
            for each in shown
            for on in each.things
            if on.thing is thing
        }
        panels.append(Panel(thing.name, names, points))
    return Dots(
        found.kind.host.name, "time over that of the other nodes; 95 % intervals", tuple(panels), "against", 1.0
    )

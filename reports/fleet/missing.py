"""What fleets do not tell, in words: nodes without results or alone of their kind, and what only some of them have."""

from collections.abc import Iterator

from dlbench.reports.fleet.analysis import FleetFound
from dlbench.reports.fleet.headline import counted, listed
from dlbench.reports.fleet.nodes import Kind, nodes_without_results

_THINGS = 2
"""Names of things in a line."""


def missing(found: FleetFound) -> list[str]:
    """Return a line for each gap, alike ones together."""
    return [line for each in found.kinds for line in (*_nodes(each.kind), *_things(each.kind))]


def _nodes(kind: Kind) -> Iterator[str]:
    empty = nodes_without_results(kind)
    for node in empty:
        failed = ", ".join(f"{count} {word}" for word, count in sorted(node.failed.items()))
        yield f"{node.name} has no result that counts{f' ({failed})' if failed else ''}."
    there = [name for name, node in kind.nodes.items() if node not in empty]
    if len(there) == 1:
        yield f"{there[0]} is the only node of its kind with results ({kind.host.name}): nothing to compare it with."


def _things(kind: Kind) -> Iterator[str]:
    empty = {node.name for node in nodes_without_results(kind)}
    other_builds: dict[str, list[str]] = {}
    lacking: dict[str, list[str]] = {}
    for thing in kind.things:
        for node in thing.apart:
            other_builds.setdefault(node, []).append(thing.name)
        for node in kind.nodes:
            if node not in thing.times and node not in thing.apart and node not in empty:
                lacking.setdefault(node, []).append(thing.name)
    for node, names in other_builds.items():
        yield f"{node} is not compared on {_count(names)}, measured with another build than on most nodes."
    together: dict[tuple[str, ...], list[str]] = {}
    for node, names in lacking.items():
        together.setdefault(tuple(names), []).append(node)
    for things, nodes in together.items():
        verb = "has" if len(nodes) == 1 else "have"
        yield f"{listed(nodes)} {verb} no result of {_count(things)}, which other nodes have."
    if len(kind.nodes) > 1 and kind.lonely:
        yield f"Compared with nothing, since no two nodes have it of one build: {listed(kind.lonely, _THINGS)}."


def _count(names: list[str] | tuple[str, ...]) -> str:
    return f"{counted(len(names), 'thing')} ({listed(names, _THINGS)})"

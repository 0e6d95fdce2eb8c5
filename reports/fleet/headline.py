"""What fleets show, in sentences: which node is slow, by how much, and on what."""

from collections import Counter
from collections.abc import Sequence

from dlbench.reports.fleet.analysis import Finding, FleetFound, KindFound
from dlbench.reports.fleet.contrasts import FAST, SLOW, Judged
from dlbench.reports.formats.layout import number
from dlbench.reports.statistics import SIGNIFICANCE, Ratio

NOTHING = "The nodes do not differ by more than noise explains."
_LITTLE = "The nodes differ by more than noise explains, but by less than 2 %."
_NAMED = 4
"""Names in a list, before it says how many others there are."""


def headline(found: FleetFound) -> list[str]:
    """Return a sentence for each node that is told apart, the slowest first; else that there is none."""
    if not found.compared:
        return []
    lines = [line for kind in found.compared for line in _of_kind(kind)]
    if lines:
        return lines
    judged = [each for kind in found.compared for node in kind.nodes for each in (node.mean, *_things(node))]
    differ = any(each.p_adjusted is not None and each.p_adjusted < SIGNIFICANCE for each in judged)
    return [_LITTLE if differ else NOTHING]


def counted(count: int, what: str) -> str:
    """Return "1 node", "2 nodes"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int = _NAMED) -> str:
    """Return the first of these names, and how many others there are."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} others"


def _things(found: Finding) -> list[Judged]:
    return [each.judged for each in found.things]


def _of_kind(found: KindFound) -> list[str]:
    told = [each for each in found.nodes if each.out_of_line]
    if not found.two_alone:
        return [_sentence(each) for each in told]
    # Of two the faster one says the same over again.
    slower = next((each for each in told if each.slow_somewhere), None)
    return [] if slower is None else [_of_two(slower, found)]


def _sentence(found: Finding) -> str:
    mean = found.mean
    others = f"{mean.others} other nodes of its kind"
    if mean.verdict in (SLOW, FAST):
        line = f"{found.node.name} is {mean.verdict}: {_size(mean.ratio)} the time of the {others} ({_mean(found)})"
        return f"{line}{_most(found)}.{_excuse(found)}"
    words = Counter(each.judged.verdict for each in found.told)
    verdict = SLOW if SLOW in words else FAST
    on = [each for each in found.told if each.judged.verdict == verdict]
    first = on[0] if verdict == SLOW else on[-1]
    rest = f" and on {counted(len(on) - 1, 'other thing')}" if len(on) > 1 else ""
    return (
        f"{found.node.name} is {verdict} on {first.thing.name}: {_size(first.judged.ratio)} the time of the {others}"
        f"{rest}; {_size(mean.ratio)} over all ({_mean(found)}).{_excuse(found)}"
    )


def _of_two(slower: Finding, found: KindFound) -> str:
    other = next(each for each in found.nodes if each is not slower)
    if slower.mean.verdict == SLOW:
        line = f"{slower.node.name} takes {_size(slower.mean.ratio)} the time of {other.node.name} ({_mean(slower)})"
        line += _most(slower)
    else:
        first = slower.told[0]
        line = f"{slower.node.name} takes {_size(first.judged.ratio)} the time of {other.node.name} on "
        line += first.thing.name
    return f"{line}. Of two nodes alone nobody can say which one is at fault.{_excuse(slower)}"


def _size(found: Ratio) -> str:
    ends = "" if found.low is None or found.high is None else f" ({number(found.low)}-{number(found.high)})"
    return f"{number(found.value)}x{ends}"


def _mean(found: Finding) -> str:
    return f"geometric mean of {counted(len(found.things), 'thing')}"


def _most(found: Finding) -> str:
    """Return on what a slow node is slowest, or a fast one fastest."""
    if len(found.things) < 2 or not found.told:
        return ""
    slow = found.mean.verdict == SLOW
    most = found.told[0] if slow else found.told[-1]
    if most.judged.verdict != found.mean.verdict:
        return ""
    alone = sum(each.judged.verdict == most.judged.verdict for each in found.told) == 1
    return f"; {'clearly so only' if alone else 'most'} on {most.thing.name}, {number(most.judged.ratio.value)}x"


def _excuse(found: Finding) -> str:
    """Return what may be why a slow node is slow, other than the node."""
    if not found.slow_somewhere:
        return ""
    node, lines = found.node, ""
    if node.shared:
        lines += f" It was shared when it was measured ({'; '.join(node.shared)}), which may be why."
    if node.disturbed:
        lines += f" Other programs disturbed {node.disturbed} of its {node.launches} launches."
    return lines

"""What the threads say in one sentence a machine, for the head of a page."""

from collections.abc import Sequence

from dlbench.adapters.protocol import Cell
from dlbench.reports.formats.layout import times
from dlbench.reports.naming import group_name
from dlbench.reports.statistics import Contrast
from dlbench.reports.threads.curve import Curve


def headline(curves: Sequence[Curve]) -> list[str]:
    """Return for each machine on how many of its rows more threads than cores cost time, and where it costs most."""
    lines = []
    for fingerprint in dict.fromkeys(each.host.fingerprint for each in curves):
        here = [each for each in curves if each.host.fingerprint == fingerprint and each.computes and not each.bound]
        found = [(each, past) for each in here if (past := _past(each))]
        worse = [
            (contrast, each.points[0].cell.cell, each.name)
            for each, past in found
            for contrast in past
            if contrast.verdict == "worse"
        ]
        if not found:
            continue
        hurt = len({(cell, name) for _, cell, name in worse})
        head = f"{here[0].host.name}: more threads than its {here[0].host.physical_cores} cores"
        if worse:
            most = _worst(max(worse, key=lambda each: each[0].value))
            lines.append(f"{head} cost time on {hurt} of {len(found)} rows{most}.")
        else:
            lines.append(f"{head} cost none of {len(found)} rows time that noise does not explain.")
    return lines


def _past(curve: Curve) -> list[Contrast]:
    return [point.past_cores for point in curve.points if point.calm and point.past_cores is not None]


def _worst(found: tuple[Contrast, Cell, str]) -> str:
    contrast, cell, name = found
    return f", most on {group_name(cell)}: {name} takes {times(contrast.ratio)} with {contrast.threads} threads"

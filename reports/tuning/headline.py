"""What tuning is worth, in a sentence or two a machine, for the head of a page."""

from collections.abc import Sequence

from dlbench.reports.naming import name_of
from dlbench.reports.storage.hosts import name_among
from dlbench.reports.tuning.analysis import FASTER, Row, Tuning, verdict
from dlbench.reports.tuning.over_networks import names_of_means, over_networks


def headline(found: Tuning) -> list[str]:
    """Return what all settings are worth over networks, and where they help most, of what noise does not explain."""
    lines = []
    for machine in dict.fromkeys(row.machine for row in found.rows):
        rows = [row for row in found.rows if row.machine == machine]
        name = name_among(found.hosts, machine)
        lines += [f"{name}: {sentence}." for sentence in (_over_networks(rows), _most(rows)) if sentence]
    return lines


def _over_networks(rows: Sequence[Row]) -> str:
    means = over_networks(rows)
    faster = [each for each in means if verdict(each.ratio) == FASTER]
    if not faster:
        return ""
    names = names_of_means(means)
    ratios = [(names[each], each.ratio) for each in faster]
    told = [f"{name} {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" for name, ratio in ratios]
    others = len(means) - len(faster)
    rest = f"; of {others} other{'' if others == 1 else 's'} this cannot be said" if others else ""
    return f"over networks, tuning takes rows to so much of their time as installed: {', '.join(told)}{rest}"


def _most(rows: Sequence[Row]) -> str:
    compared = [(row.together.alone, row) for row in rows if row.together.alone]
    helped = [(ratio, row) for ratio, row in compared if verdict(ratio) == FASTER]
    if not helped:
        return ""
    ratio, row = min(helped, key=lambda each: each[0].ratio)
    return (
        f"tuning makes {len(helped)} of {len(compared)} rows faster, most {name_of(row.cell)}, to {ratio.ratio:.2f} of "
        f"its time as installed ({ratio.low:.2f} to {ratio.high:.2f}, {ratio.pairs} pairs)"
    )

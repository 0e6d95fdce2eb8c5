"""What all settings of a row are worth together, over the networks that it was measured on as installed and tuned."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.adapters.protocol import Cell
from dlbench.reports.naming import extra_of_place, row_name, work_name
from dlbench.reports.statistics import Ratio, summarise
from dlbench.reports.tuning.analysis import Row

FEWEST_NETWORKS = 3
"""For an interval."""


@dataclass(frozen=True)
class Mean:
    """One row over its networks."""

    machine: str
    cell: Cell
    """Its first; only what names a row is common to all."""
    ratio: Ratio
    """Geometric mean of tuned over installed; a network that was measured at several places counts once."""
    networks: int


def over_networks(rows: Sequence[Row]) -> list[Mean]:
    """Return the mean of each row of each machine that has two networks at least, the least ratio first.

    The networks are the unit: the interval is Student's t over their log-ratios, and covers noise as well as that a
    setting is worth more to one network than to another. So it needs no pairs, and is wide where networks differ.
    """
    found: dict[tuple[str, Cell], list[Row]] = {}
    for row in rows:
        if row.together.alone:
            cell = row.cell._replace(network="", specification="", batch_size=1, threads=1)
            found.setdefault((row.machine, cell), []).append(row)
    means = (_mean(of_row) for of_row in found.values())
    return sorted((each for each in means if each.networks > 1), key=lambda each: (each.machine, each.ratio.value))


def names_of_means(means: Sequence[Mean]) -> dict[Mean, str]:
    """Return a name for each mean: with its work and device where those of a machine share a name."""
    rows = Counter((each.machine, row_name(each.cell)) for each in means)

    def name(machine: str, cell: Cell) -> str:
        if rows[machine, row_name(cell)] == 1:
            return row_name(cell)
        others = (
            work_name(cell._replace(network="")).strip(", "),
            "" if cell.on_cpu else cell.device,
            extra_of_place(cell).strip(),
        )
        return ", ".join(word for word in (row_name(cell), *others) if word)

    return {each: name(each.machine, each.cell) for each in means}


def _mean(rows: Sequence[Row]) -> Mean:
    logs: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.together.alone:
            logs.setdefault((row.cell.network, row.cell.specification), []).append(math.log(row.together.alone.ratio))
    networks = [math.exp(math.fsum(each) / len(each)) for each in logs.values()]
    over = summarise([network] for network in networks)  # each network as if it were a launch
    value = math.exp(math.fsum(map(math.log, networks)) / len(networks))
    ends = (over.low, over.high) if len(networks) >= FEWEST_NETWORKS else (None, None)
    method = f"geometric mean over {len(networks)} networks, 95% Student t over their log-ratios"
    return Mean(rows[0].machine, rows[0].cell, Ratio(value, *ends, method), len(networks))

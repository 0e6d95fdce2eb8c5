"""Duet pairs: both launches of a pair at once, each on CPUs of its own (Bulej et al. 2020, arXiv 2001.05811).

What slows the whole machine then slows both sides alike, and their ratio keeps still. The launches begin their timed
steps together, and neither goes on to its parity check before the other has ended its own
(`launcher.LaunchMonitor`). Which side has which CPUs is drawn for each pair. Of a pair, the samples of their common
time are compared (`reports.compare.comparison.common_time`).
"""

import os
from collections.abc import Sequence

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Cpu
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.reports.naming import name_of

from ..errors import UsageError
from ..planning import values

SEQUENTIAL, DUET = PAIRINGS = ("sequential", "duet")
Masks = tuple[tuple[int, ...], tuple[int, ...]]
"""The CPUs of each of two launches."""


def masks_of(cell: Cell, cpu: Cpu) -> Masks | str:
    """Return CPUs for both launches of a pair, a core for each thread; or why two launches cannot run at once here."""
    if not cell.on_cpu:
        return "on a GPU both would share the device"
    if cell.instances > 1:
        return "its instances run at once already"
    if not hasattr(os, "sched_setaffinity"):
        return "this system cannot bind a process to CPUs"
    if not cell.threads:
        return "without a thread count nothing says how many CPUs each side needs"
    needed, usable = 2 * cell.all_threads, len(cpu.affinity)
    if needed > usable:
        return f"both sides need {needed} CPUs and may use {usable}"
    if cpu.quota_cpus is not None and needed > cpu.quota_cpus:
        return f"both sides need {needed} CPUs and have a quota of {cpu.quota_cpus:.3g}"
    if needed > cpu.usable_physical_cores:
        return f"both sides need {needed} cores, and {usable} CPUs here are SMT siblings on {cpu.usable_physical_cores}"
    dealt = bound_mask(cpu, needed, 2 * cell.world_size)
    assert dealt is not None
    first, second = dealt[: needed // 2], dealt[needed // 2 :]
    places = zip(cpu.core_siblings, cpu.core_places, strict=True) if cpu.core_places else ()
    kinds = {number: place["kind"] for core, place in places for number in core}
    if len({tuple(sorted(kinds.get(number, 0) for number in side)) for side in (first, second)}) > 1:
        return f"both sides need {needed} cores, and there are fewer of one kind"
    return first, second


def choose(pairing: str, cells: Sequence[Cell], cpu: Cpu) -> tuple[dict[Cell, Masks], list[str]]:
    """Return the CPUs of the cells that are measured in duet pairs, and lines that say why others are not.

    Raises UsageError for an unknown pairing, and for duet pairs where no cell can have them.
    """
    values.one_of(pairing, "pairing", PAIRINGS)
    if pairing == SEQUENTIAL:
        return {}, []
    masks = {cell: masks_of(cell, cpu) for cell in cells}
    found = {cell: each for cell, each in masks.items() if not isinstance(each, str)}
    refused = [f"{name_of(cell)}: {each}" for cell, each in masks.items() if isinstance(each, str)]
    if refused and not found:
        raise UsageError(f"No cell can be measured in duet pairs. {refused[0]}. Use --pairing sequential.")
    return found, [f"sequential pairs of {each}" for each in refused]

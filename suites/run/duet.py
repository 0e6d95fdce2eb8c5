"""Duet pairs: both launches of a pair at once, each on its own CPUs (Bulej et al. 2020, arXiv 2001.05811).

A disturbance of the whole machine then slows both sides alike and leaves their ratio unchanged. The launches start
their timed steps together, and neither starts its parity check before the other has finished its timed steps
(`launcher.LaunchMonitor`). The assignment of CPUs to sides is drawn for each pair. The samples of a pair are compared
over their common time (`reports.compare.comparison.common_time`).
"""

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Cpu
from dlbench.hardware_probe.cpu import bound_mask

Masks = tuple[tuple[int, ...], tuple[int, ...]]
"""The CPUs of each of two launches."""


def masks_of(cell: Cell, cpu: Cpu, helpers: int = 0) -> Masks | str:
    """Return CPUs for both launches of a pair, a core for each thread; or why two launches cannot run at once here.

    ``helpers`` load the data of a step of the user's own, beside the cell's threads.
    """
    if not cell.on_cpu:
        return "on a GPU both would share the device"
    if cell.instances > 1:
        return "its instances run at once already"
    if not cell.threads:
        return "without a thread count, the number of CPUs for each side is unknown"
    needed, usable = 2 * (cell.all_threads + helpers), len(cpu.affinity)
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

"""Who computes on the GPUs of a plan before anything is measured there."""

from collections.abc import Iterable

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Gpus
from dlbench.hardware_probe.telemetry import computing

from ..planning.devices import CPU, present


def busy_gpus(cells: Iterable[Cell], gpus: Gpus, nvml: object = None) -> list[str]:
    """Return a line for each device of these cells that others compute on already, and one where they hold all of them.

    Several workers may be given any GPU: all are looked at then. Launches on a GPU in use are measured all the same,
    and marked: whoever holds it may take any part of it at any time.
    """
    asked = {cell.device: cell.world_size for cell in sorted(cells, key=lambda cell: cell.world_size)}
    several = any(size > 1 and name != CPU for name, size in asked.items())
    wanted = [device for device in present(gpus) if device.name in asked or several]
    if not wanted:
        return []
    found = computing(nvml)
    held = {device: count for device in wanted if device.uuid is not None and (count := found.get(device.uuid, 0))}
    lines = [
        f"{device.words}: {count} other process{'es compute' if count > 1 else ' computes'} on it now; what is "
        "measured there meanwhile is marked (~)"
        for device, count in held.items()
    ]
    if len(held) == len(wanted):
        lines.append("every GPU of this run is in use: end what runs there, or name others with --devices")
    return lines

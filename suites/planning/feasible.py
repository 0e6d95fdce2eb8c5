"""What is too much for a machine or a run, told before anything is launched."""

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine

from ..errors import UsageError
from .plan import Plan

MOST_CELLS = 10_000
"""More than these are measured when --yes is given: most who ask for so many mistyped a list."""
_GB = 1e9


def check_count(plan: Plan, confirmed: bool) -> None:
    """Raise UsageError for a plan of very many cells that nobody confirmed."""
    if len(plan.cells) > MOST_CELLS and not confirmed:
        raise UsageError(
            f"{plan.suite} has {len(plan.cells)} cells here, more than {MOST_CELLS}. Narrow it (--networks, "
            "--frameworks, --threads), or give --yes to measure them all."
        )


def too_large(plan: Plan, cell: Cell, machine: Machine) -> str:
    """Return why a cell cannot fit into the memory of this machine or its GPU; empty where it may."""
    if not plan.row_of(cell).build.framework.computes:
        return ""
    family = plan.network_of(cell).family
    everywhere = family.least_bytes(cell.batch_size, cell.world_size)
    of_machine = min(machine.memory.total_bytes, machine.memory.limit_bytes or machine.memory.total_bytes)
    if everywhere > of_machine:
        return _words(everywhere, of_machine, "this machine")
    if cell.on_cpu:
        return ""
    gpu = next((each for each in machine.gpus.devices if f"cuda:{each.index}" == cell.device), None)
    of_one = family.least_bytes(max(1, cell.batch_size // cell.world_size)) // 2  # half where of 16 bits
    if gpu is None or gpu.memory_bytes is None or of_one <= gpu.memory_bytes:
        return ""
    return _words(of_one, gpu.memory_bytes, cell.device)


def memory_line(plan: Plan, machine: Machine) -> str:
    """Return in a sentence which cells cannot fit into memory; empty where all may."""
    found = {cell: why for cell in plan.cells if (why := too_large(plan, cell, machine))}
    if not found:
        return ""
    first, why = next(iter(found.items()))
    several = "1 cell does" if len(found) == 1 else f"{len(found)} cells do"
    of_first = f"{first.network}, mini-batch {first.batch_size}: {why}"
    return f"{several} not fit into memory and will not be launched; {of_first}."


def _words(needed: int, there: int, where: str) -> str:
    return (
        f"weights, gradients and mini-batch need at least {needed / _GB:,.1f} GB, and {where} has {there / _GB:,.1f} GB"
    )

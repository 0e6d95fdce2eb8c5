"""The doctor's checks of memory: how much there is, swap, huge pages, page migration."""

from collections.abc import Iterator

from dlbench.hardware_probe.doctor.facts import Settings
from dlbench.hardware_probe.doctor.findings import Finding, Remedy, Severity

_GIB = 1024**3
# On the safe side: the 130 million parameters of fcn8 are half a gigabyte, of which a framework may hold several copies
# (weights, gradients, an optimiser's and a parity check's) beside its own gigabyte or two.
_ENOUGH_BYTES = 6 * _GIB
# Swapped-out pages of programs that sleep come back seldom; more than this share of the memory is another matter.
_MUCH_SWAPPED = 0.01


def findings(settings: Settings) -> Iterator[Finding]:
    """Judge the memory."""
    yield _room(settings)
    yield _swap(settings)
    yield _huge_pages(settings)
    yield _numa_balancing(settings)


def gib(size_bytes: float) -> str:
    """Return a size in GiB, to three digits."""
    return f"{size_bytes / _GIB:.3g} GiB"


def _room(settings: Settings) -> Finding:
    memory = settings.memory
    title, why = "Memory", "A launch that runs out of memory is ended by the kernel, or swaps before that."
    seen = f"{gib(memory.available_bytes)} of {gib(memory.total_bytes)} available"
    room = memory.available_bytes
    limited = memory.limit_bytes is not None and memory.limit_bytes < memory.total_bytes
    if memory.limit_bytes is not None and limited:
        seen += f", limited to {gib(memory.limit_bytes)} here"
        room = min(room, memory.limit_bytes)
    if room >= _ENOUGH_BYTES:
        return Finding("memory", title, Severity.FINE, seen, why)
    advice = "Raise the limit of this container or job" if limited else "End programs that hold much of it"
    remedy = Remedy(f"{advice}, or leave out the largest networks and mini-batches.")
    return Finding("memory", title, Severity.MAY_HARM, seen, why, remedy)


def _swap(settings: Settings) -> Finding:
    memory = settings.memory
    title, why = "Swap", "A page that was swapped out comes back from disk in the middle of a step."
    if not memory.swap_total_bytes:
        return Finding("swap", title, Severity.FINE, "none", why)
    used = memory.swap_total_bytes - memory.swap_free_bytes
    willing = "" if settings.swappiness is None else f", swappiness {settings.swappiness}"
    seen = f"{gib(used) if used else 'nothing'} of {gib(memory.swap_total_bytes)} in use{willing}"
    if used < _MUCH_SWAPPED * memory.total_bytes:
        return Finding("swap", title, Severity.FINE, seen, why)
    if used < memory.available_bytes:
        remedy = Remedy("Bring the pages back and do without swap while measuring.", "sudo swapoff --all", True)
    else:
        remedy = Remedy("End programs that hold much memory: what is swapped out does not fit into what is left.")
    return Finding("swap", title, Severity.MAY_HARM, seen, why, remedy)


def _huge_pages(settings: Settings) -> Finding:
    title, setting = "Transparent huge pages", settings.memory.transparent_huge_pages
    why = "With `always`, luck decides how many huge pages a launch gets, and launches of one cell differ by it."
    if setting is None:
        return Finding("huge_pages", title, Severity.UNKNOWN, "not told by this system", why)
    if setting != "always":
        return Finding("huge_pages", title, Severity.FINE, setting, why)
    remedy = Remedy(
        "Leave the choice to each program, until the next boot.",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        needs_root=True,
    )
    return Finding("huge_pages", title, Severity.MAY_HARM, setting, why, remedy)


def _numa_balancing(settings: Settings) -> Finding:
    title, balancing, nodes = "NUMA balancing", settings.memory.numa_balancing, settings.cpu.numa_nodes
    why = "The kernel takes pages away to see who uses them, and moves them between the nodes in the middle of a step."
    if nodes < 2:
        return Finding("numa_balancing", title, Severity.FINE, "one node, nothing to balance", why)
    if balancing is None:
        return Finding("numa_balancing", title, Severity.UNKNOWN, "not told by this system", why)
    if not balancing:
        return Finding("numa_balancing", title, Severity.FINE, f"off, {nodes} nodes", why)
    remedy = Remedy("Switch it off, until the next boot.", "sudo sysctl kernel.numa_balancing=0", needs_root=True)
    return Finding("numa_balancing", title, Severity.MAY_HARM, f"on, {nodes} nodes", why, remedy)

"""The memory of the machine, and the system's settings for it."""

from dataclasses import dataclass
from pathlib import Path

from dlbench.hardware_probe.cgroups import memory_limit
from dlbench.hardware_probe.files import ROOT, parse_fields, read_int, read_text, selected_option


@dataclass(frozen=True)
class Memory:
    """Main memory and swap; sizes in bytes, None where the system does not report them."""

    total_bytes: int
    """The installed memory less the reservations of firmware and kernel."""
    available_bytes: int
    """The bytes available without swapping at the moment of the probe."""
    limit_bytes: int | None
    swap_total_bytes: int
    swap_free_bytes: int
    transparent_huge_pages: str | None
    numa_balancing: bool | None
    """Whether the kernel itself migrates pages between NUMA nodes, which adds noise to timings."""


def probe_memory(root: Path = ROOT) -> Memory:
    """Read the memory of this machine, or of a tree recorded from another one.

    Raises ValueError where a recorded tree holds no /proc/meminfo.
    """
    balancing = read_int(root / "proc/sys/kernel/numa_balancing")
    text = read_text(root / "proc/meminfo")
    if text is None:
        raise ValueError(f"{root} holds no readable proc/meminfo: record it with the tree")
    fields = parse_fields(text.splitlines())

    def size(name: str) -> int:
        return int(fields.get(name, "0").split()[0]) * 1024

    huge_pages = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    balances = None if balancing is None else balancing > 0
    return Memory(
        total_bytes=size("MemTotal"),
        available_bytes=size("MemAvailable"),
        limit_bytes=memory_limit(root),
        swap_total_bytes=size("SwapTotal"),
        swap_free_bytes=size("SwapFree"),
        transparent_huge_pages=selected_option(huge_pages),
        numa_balancing=balances,
    )

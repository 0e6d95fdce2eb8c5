"""How many threads of a machine can have a core each."""

from dlbench.reports.storage.hosts import Host


def own_cores(host: Host) -> int | None:
    """Return up to how many threads each can have a physical core to itself; None where nobody told.

    A container may have a quota of fewer CPUs than there are cores in its affinity mask: the smaller counts.
    """
    told = [count for count in (host.physical_cores, host.effective_cpus) if count is not None]
    return min(told, default=None)

"""Which CPUs this process may use: set before anything that starts threads, read back as evidence."""

import os
from typing import List, Optional

from ..protocol import Launch, ProtocolError, read_launch


def share(launch: Launch, worker: int) -> Optional[List[int]]:
    """Return the CPUs of this worker, from 0: its part of the launch's, as many as every other's; None: any."""
    if launch.cpus is None:
        return None
    each = len(launch.cpus) // launch.cell.world_size
    return launch.cpus[worker * each : (worker + 1) * each]


def apply(directory: str, worker: int = 0) -> None:
    """Bind this process to the CPUs that the launch names, a further worker to its part; `refusal` tells a failure.

    The first worker may turn out to drive all of them from its one process, or else is narrowed later.
    """
    try:
        launch = read_launch(directory)
        cpus = share(launch, worker) if worker else launch.cpus
        if cpus is None:
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)
        # The kernel leaves out, without a word, those of a mask that are not there.
        if os.sched_getaffinity(0) != set(cpus):
            os.sched_setaffinity(0, before)
    except (ProtocolError, AttributeError, OSError, OverflowError, ValueError, TypeError):
        # A mask that could not be set is refused by the worker (see `refusal`), as is a cell.json it cannot read.
        pass


def narrow(cpus: Optional[List[int]]) -> None:
    """Bind every thread of this process to these CPUs, as `apply` bound the process; None: to no others than before."""
    if cpus is None:
        return
    try:
        for name in os.listdir("/proc/self/task"):
            try:
                os.sched_setaffinity(int(name), cpus)
            except ProcessLookupError:
                pass  # this thread has ended, the others have not
    except (AttributeError, OSError, ValueError):
        pass  # `refusal` tells


def refusal(cpus: Optional[List[int]]) -> str:
    """Return why this process is not bound to these CPUs and no others; empty where it is, or where None are named."""
    if cpus is None:
        return ""
    if not hasattr(os, "sched_getaffinity"):
        return "CPUs %s: this system cannot bind a process to CPUs" % _listed(cpus)
    allowed = sorted(os.sched_getaffinity(0))
    if allowed == sorted(set(cpus)):
        return ""
    return "CPUs %s: this process cannot be bound to them, it may use %s" % (_listed(cpus), _listed(allowed))


def _listed(cpus: List[int]) -> str:
    return ",".join(str(cpu) for cpu in cpus[:16]) + (",..." if len(cpus) > 16 else "") if cpus else "(none)"


def cpus_allowed() -> Optional[List[int]]:
    """Return the CPUs that the threads of this process may use between them, rising; None where nothing tells.

    Of all threads, since thread pools bind theirs one by one, the main one too.
    """
    try:
        cpus = set(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None
    try:
        threads = [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        threads = []
    for thread in threads:
        try:
            cpus |= os.sched_getaffinity(thread)
        except OSError:
            pass  # it has ended
    return sorted(cpus)

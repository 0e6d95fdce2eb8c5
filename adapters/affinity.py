"""Which CPUs this process may use: set before anything that starts threads, read back as evidence."""

import os
from typing import List, Optional

from .protocol import ProtocolError, read_launch


def apply(directory):
    # type: (str) -> None
    """Bind this process to the CPUs that the launch names; what goes wrong is left for the worker to report."""
    try:
        cpus = read_launch(directory).cpus
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
    except (ProtocolError, OSError, ValueError, TypeError):
        # A mask that could not be set shows in the evidence; a cell.json that cannot be read, in the worker.
        pass


def cpus_allowed():
    # type: () -> Optional[List[int]]
    """Return the CPUs this process may use, rising; None where this system does not tell."""
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None

"""Whether a job has its node to itself: what it may use of the machine, and who else has a job there."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dlbench.hardware_probe import Machine
from dlbench.reports.storage.hosts import Node

_GIB = 1024**3
_LEAST_MEMORY = 0.9
"""Of the memory: a limit above this share is a scheduler's reserve for the system, and keeps nothing from a job."""
_LOOK_SECONDS = 300.0
"""Other jobs are looked for again after so long: a question to the controller of a large cluster is not free."""
_PATIENCE = 20.0


def name_of_node(asked: str, variables: Mapping[str, str] = os.environ) -> str:
    """Return the name of the node that this process is on: Slurm's, else the one asked for, else the host's.

    Several of Slurm's nodes may be one host.
    """
    return variables.get("SLURMD_NODENAME") or asked or platform.node() or "unnamed"


def lacking(machine: Machine, gpus_given: int | None = None) -> list[str]:
    """Return what of the machine a job may not use, in words; empty where it may use all.

    ``gpus_given``: how many GPUs the scheduler gave it, None where it says nothing.
    """
    found = []
    cpu, memory, gpus = machine.cpu, machine.memory, len(machine.gpus.devices)
    if len(cpu.affinity) < cpu.logical_cpus:
        found.append(f"it may use {len(cpu.affinity)} of {cpu.logical_cpus} CPUs")
    elif cpu.quota_cpus is not None and cpu.quota_cpus < cpu.logical_cpus:
        found.append(f"a quota of {cpu.quota_cpus:.3g} of {cpu.logical_cpus} CPUs' time")
    if memory.limit_bytes is not None and memory.limit_bytes < _LEAST_MEMORY * memory.total_bytes:
        found.append(f"it may use {memory.limit_bytes / _GIB:.3g} of {memory.total_bytes / _GIB:.3g} GiB of memory")
    if gpus_given is not None and gpus_given < gpus:
        found.append(f"it may use {gpus_given} of {gpus} GPUs")
    return found


def gpus_given(variables: Mapping[str, str] = os.environ) -> int | None:
    """Return how many GPUs Slurm gave this job; None outside Slurm, and where its GPUs are nobody's to give."""
    told = variables.get("SLURM_JOB_GPUS") or variables.get("SLURM_STEP_GPUS")
    return len(told.split(",")) if told else None


def other_jobs(node: str, variables: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return Slurm's numbers of the other jobs that are on a node now; None where that cannot be told."""
    own = variables.get("SLURM_JOB_ID")
    if own is None:
        return None
    asked = ["squeue", "--noheader", "--nodelist", node, "--states", "R,CG,S", "--format", "%A"]
    try:
        answer = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return sorted(set(answer.stdout.split()) - {own}) if answer.returncode == 0 else None


@dataclass
class Occupation:
    """What is known of a job's node: asked before each launch, looked at anew now and then."""

    fleet: str
    name: str
    lacking: list[str]
    """What of the node this job may not use: the same while it lasts."""
    others: Callable[[str], list[str] | None] = other_jobs
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _others: list[str] = field(default_factory=list)

    def now(self) -> Node:
        """Return the node as it is now; where nobody tells who else is there, as it was seen last."""
        if self._looked_at is None or self.clock() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self.clock()
            seen = self.others(self.name)
            self._others = self._others if seen is None else seen
        jobs = [f"other jobs are on it: {', '.join(self._others)}"] if self._others else []
        return Node(self.fleet, self.name, (*self.lacking, *jobs))

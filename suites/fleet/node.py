"""A run as one job of a fleet: its node, whether that is shared, and the run that it resumes."""

import os
import platform
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dlbench.hardware_probe import Machine
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.hosts import Node
from dlbench.reports.results.record import Run
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store

from ..errors import FrameworkEnvironmentError, UsageError
from ..run import quiet
from .slurm import ask

_GIB = 1024**3
_LEAST_MEMORY = 0.9
"""A memory limit above this share is a scheduler's reserve for the system, and costs a job
nothing."""
_LOOK_SECONDS = 300.0
"""Seconds between two looks at other jobs: a query to a large cluster's controller is not free."""


def lacking(machine: Machine, gpus_given: int | None = None) -> list[str]:
    """Return which parts of the machine a job may not use, in words; empty where it may use all.

    ``gpus_given``: how many GPUs the scheduler gave it, None where it does not say.
    """
    limits = []
    cpu = machine.cpu
    memory = machine.memory
    gpus = len(machine.gpus.devices)
    if len(cpu.affinity) < cpu.logical_cpus:
        limits.append(f"it may use {len(cpu.affinity)} of {cpu.logical_cpus} CPUs")
    elif cpu.quota_cpus is not None and cpu.quota_cpus < cpu.logical_cpus:
        limits.append(f"a quota of {cpu.quota_cpus:.3g} of {cpu.logical_cpus} CPUs' time")
    if memory.limit_bytes is not None and memory.limit_bytes < _LEAST_MEMORY * memory.total_bytes:
        limits.append(
            f"it may use {memory.limit_bytes / _GIB:.3g} of {memory.total_bytes / _GIB:.3g} GiB of "
            "memory"
        )
    if gpus_given is not None and gpus_given < gpus:
        limits.append(f"it may use {gpus_given} of {gpus} GPUs")
    return limits


def gpus_of_job(variables: Mapping[str, str] = os.environ) -> int | None:
    """Return how many GPUs Slurm gave this job; None outside Slurm or where it manages no GPUs."""
    given = variables.get("SLURM_JOB_GPUS") or variables.get("SLURM_STEP_GPUS")
    return len(given.split(",")) if given else None


def other_jobs(node: str, variables: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return Slurm's numbers of the other jobs on a node; None where Slurm cannot be asked."""
    own = variables.get("SLURM_JOB_ID")
    if own is None:
        return None
    try:
        answer = ask("squeue", "-h", "-w", node, "-t", "R,CG,S", "-o", "%A")
    except FrameworkEnvironmentError:
        return None
    return sorted(set(answer.split()) - {own})


@dataclass
class FleetNode:
    """A node of a fleet: the machine that this process runs on."""

    fleet: str
    name: str
    lacking: list[str]
    """Parts of the node that this job may not use: the same while it lasts."""
    others: Callable[[str], list[str] | None] = other_jobs
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _others: list[str] = field(default_factory=list)

    def now(self) -> Node:
        """Return the node with the reasons why the job shares it at this moment."""
        if self._looked_at is None or self.clock() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self.clock()
            others = self.others(self.name)
            if others is not None:
                self._others = others
        reasons = list(self.lacking)
        if self._others:
            reasons.append(f"other jobs are on it: {', '.join(self._others)}")
        return Node(self.fleet, self.name, tuple(reasons))

    def newest_run(self, target: str, suite: str) -> Run | None:
        """Return the newest run of a suite that this node began for its fleet; None without one."""
        try:
            with Store.open(delivery.local_or(target), create=False) as store:
                runs = store.runs()
        except StoreError:
            # None yet. Any other error is reported when it is opened for writing.
            return None
        newest = None
        for run in runs:
            node = run.node
            if run.suite != suite or node is None:
                continue
            if node.fleet == self.fleet and node.name == self.name:
                newest = run
        return newest

    def resume_command(self, suite: str) -> str:
        """Return the command that submits the job again."""
        return f"dlbench fleet run {shlex.quote(suite)} --resume --fleet {self.fleet}"


def fleet_node(
    given: str | None,
    machine: Machine,
    report: Callable[[str], None],
    variables: Mapping[str, str] = os.environ,
) -> FleetNode | None:
    """Return the node that ``--node FLEET/NODE`` names, and report why it is shared.

    Returns None without the option.

    Slurm's own name for the node takes precedence: several of its nodes may be one host. Raises
    UsageError.
    """
    if given is None:
        return None
    fleet, slash, name = given.partition("/")
    name = variables.get("SLURMD_NODENAME") or name or platform.node()
    if not fleet or not slash or not name:
        raise UsageError(f"--node {given} names no node of a fleet. Write FLEET/NODE.")
    node = FleetNode(fleet, name, lacking(machine, gpus_of_job(variables)))
    for reason in node.now().shared:
        report(f"node {name} is shared: {reason}; its records say so")
    reason = quiet.why_narrow(bool(machine.cpu.virtualisation.container))
    if reason:
        report(reason)
    return node

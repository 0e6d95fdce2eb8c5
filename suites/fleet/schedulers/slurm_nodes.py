"""The nodes of a Slurm partition: which there are, in what state, and which of them to use."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...display.screen import counted
from ...errors import UsageError, unknown_name
from . import slurm_programs

_TAKES_JOBS = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
#: What sinfo writes behind a state: the node does not answer, is under maintenance, or will not be there for long.
_KEEPS_JOBS_AWAY = frozenset("*$!%")
_MARKS = "*~#!%$@^-"


@dataclass(frozen=True)
class SlurmNode:
    """A node as sinfo shows it."""

    name: str
    state: str
    """In its long form, with marks behind it: "idle", "down*", "idle~"."""
    reason: str = ""
    """Why an administrator or Slurm took it out."""

    @property
    def usable(self) -> bool:
        """Whether a job could start there, now or once others end."""
        return self.state.rstrip(_MARKS) in _TAKES_JOBS and not _KEEPS_JOBS_AWAY & set(self.state)

    @property
    def idle(self) -> bool:
        """Whether a job would start there at once."""
        return self.usable and self.state.rstrip(_MARKS) == "idle"

    def __str__(self) -> str:
        return f"{self.name} is {self.state}" + (f" ({self.reason})" if self.reason else "")


def nodes_of(partition: str) -> dict[str, SlurmNode]:
    """Return the nodes of a partition by name, in Slurm's order; of "" those of the default one, else of all.

    Raises UsageError for a partition that does not exist, FrameworkEnvironmentError where Slurm cannot be asked.
    """
    rows = slurm_programs.table(slurm_programs.ask("sinfo", "-h", "-a", "-N", "-o", "%P|%N|%T|%E"), 4)
    partitions = {row[0].rstrip("*"): row[0] for row in rows}
    if partition and partition not in partitions:
        raise unknown_name("Slurm partition", partition, partitions)
    default = [written for written in partitions.values() if written.endswith("*")]
    wanted = {partitions[partition]} if partition else set(default or partitions.values())
    # A node of several partitions has a row for each.
    return {
        name: SlurmNode(name, state, "" if reason == "none" else reason)
        for of, name, state, reason in rows
        if of in wanted
    }


def expanded(named: Sequence[str]) -> list[str]:
    """Return names with Slurm's short forms written out: n[1-2,5] is n1, n2, n5. Raises as `nodes_of` does."""
    if not any("[" in name for name in named):
        return list(named)
    # A comma within brackets has parted them: together they are what the user wrote.
    return slurm_programs.ask("scontrol", "show", "hostnames", ",".join(named)).split()


def chosen(known: Mapping[str, SlurmNode], count: int | None, named: Sequence[str]) -> list[str]:
    """Return the nodes to use: those named, else all that take jobs; of more than ``count`` the idle ones first.

    Raises UsageError where a named node does not exist or takes no jobs, or where there are fewer than asked for.
    """
    for name in named:
        if name not in known:
            raise unknown_name("node", name, known)
        if not known[name].usable:
            raise UsageError(f"No job can run there: node {known[name]}. Name other nodes.")
    pool = [known[name] for name in dict.fromkeys(named)] or [node for node in known.values() if node.usable]
    if not pool or (count is not None and len(pool) < count):
        asked = "Nodes" if count is None else counted(count, "node")
        raise UsageError(f"{asked} asked for, {len(pool) or 'none'} can be used: {_states(known, named)}.")
    return [node.name for node in sorted(pool, key=lambda node: not node.idle)[:count]]


def _states(known: Mapping[str, SlurmNode], named: Sequence[str]) -> str:
    counted = Counter(known[name].state for name in dict.fromkeys(named or known))
    return ", ".join(f"{number} {state}" for state, number in counted.most_common()) or "there are none"

"""The little that reports need of a machine: how many threads fit on it, and what to call it, in a fleet too."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dlbench.hardware_probe import Machine, describe
from dlbench.hardware_probe.doctor import Finding
from dlbench.hardware_probe.machine import rounded_memory_gib


@dataclass(frozen=True)
class Host:
    """A machine as the reports see it; None is what nobody told."""

    fingerprint: str
    name: str
    """For column heads: a model and its cores."""
    physical_cores: int | None = None
    """Those with at least one logical CPU in the affinity mask, whatever the quota."""
    effective_cpus: int | None = None
    """Affinity mask or quota, the smaller, in whole CPUs: more threads than this share CPUs."""
    capacity_cpus: float | None = None
    """The same with the fraction that a quota may have."""
    description: tuple[tuple[str, str], ...] = ()
    """Label and value, as in a hardware table."""
    logical_cpus: int | None = None
    """Those in the affinity mask, SMT siblings counted singly, whatever the quota."""
    machine_cpus: int | None = None
    """All logical CPUs of the machine, whoever may use them."""
    cpu_model: str = ""
    memory_gib: int | None = None
    """What is installed, as the fingerprint has it."""

    @property
    def own_cores(self) -> int | None:
        """Up to how many threads each can have a physical core to itself; None where nobody told.

        A container may have a quota of fewer CPUs than there are cores in its affinity mask: the smaller counts.
        """
        told = [count for count in (self.physical_cores, self.effective_cpus) if count is not None]
        return min(told, default=None)


@dataclass(frozen=True)
class Node:
    """One machine of a fleet: machines of one kind have one fingerprint, and their names alone tell them apart."""

    fleet: str
    """The fleet's id."""
    name: str
    """As the scheduler calls it."""
    shared: tuple[str, ...] = ()
    """Why the job did not have the node to itself, in words; empty: it had."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {**asdict(self), "shared": list(self.shared)}


def read_node(told: Any) -> Node | None:
    """Return the node that a run or a record names; None for one outside a fleet, or of another form."""
    if not isinstance(told, dict) or not isinstance(told.get("shared"), list):
        return None
    words = (told.get("fleet"), told.get("name"), *told["shared"])
    if not all(isinstance(word, str) for word in words):
        return None
    return Node(told["fleet"], told["name"], tuple(told["shared"]))


def read_findings(told: Any) -> tuple[Finding, ...] | None:
    """Return what a run says that the doctor found; None where nobody asked, or in another form than this version's."""
    try:
        return tuple(Finding.from_dict(each) for each in told) if isinstance(told, list) else None
    except ValueError:
        return None


def name_among(hosts: Mapping[str, Host], machine: str) -> str:
    """Return a machine's name, with the start of its fingerprint where another of these has the same name."""
    name = hosts[machine].name
    same = sum(host.name == name for host in hosts.values())
    return f"{name} [{machine[:6]}]" if same > 1 else name


def unlike(one: Host, other: Host) -> list[str]:
    """Return why two machines are not of the same kind, in words: CPU model, cores, CPUs to use, memory.

    Empty where they are; one of which nobody told is of no known kind.
    """
    told = [
        ("the CPU is {} and {}", one.cpu_model, other.cpu_model),
        ("{} and {} physical cores", one.physical_cores, other.physical_cores),
        ("{} and {} CPUs to use", one.effective_cpus, other.effective_cpus),
        ("{} and {} GiB of memory", one.memory_gib, other.memory_gib),
    ]
    if not all(first and second for _, first, second in told):
        return ["CPU, cores and memory are not known of both"]
    return [words.format(first, second) for words, first, second in told if first != second]


def read_host(fingerprint: str, description: Mapping[str, Any] | None) -> Host:
    """Return the host that a stored machine describes; a bare one where it is missing or from a newer version."""
    try:
        return host_of(Machine.from_dict(dict(description or {})))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Host(fingerprint, fingerprint[:12])


def host_of(machine: Machine) -> Host:
    """Return what the reports need of a probed machine."""
    cpu = machine.cpu
    effective = cpu.effective_cpus
    return Host(
        fingerprint=machine.fingerprint,
        name=f"{cpu.model}, {effective} CPU{'s' if effective != 1 else ''}",
        physical_cores=max(1, cpu.usable_physical_cores),
        effective_cpus=effective,
        capacity_cpus=cpu.capacity_cpus if math.isfinite(cpu.capacity_cpus) else None,
        description=tuple(describe(machine)),
        logical_cpus=len(cpu.affinity),
        machine_cpus=cpu.logical_cpus,
        cpu_model=cpu.model,
        memory_gib=rounded_memory_gib(machine.memory.total_bytes),
    )

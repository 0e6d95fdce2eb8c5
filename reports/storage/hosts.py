"""The little that reports need of a machine: how many threads fit on it, and what to call it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlbench.hardware_probe import Machine, describe


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

    @property
    def own_cores(self) -> int | None:
        """Up to how many threads each can have a physical core to itself; None where nobody told.

        A container may have a quota of fewer CPUs than there are cores in its affinity mask: the smaller counts.
        """
        told = [count for count in (self.physical_cores, self.effective_cpus) if count is not None]
        return min(told, default=None)


def name_among(hosts: Mapping[str, Host], machine: str) -> str:
    """Return a machine's name, with the start of its fingerprint where another of these has the same name."""
    name = hosts[machine].name
    same = sum(host.name == name for host in hosts.values())
    return f"{name} [{machine[:6]}]" if same > 1 else name


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
    )

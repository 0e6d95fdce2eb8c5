"""The few facts that reports need about a machine: its capacity for threads, and its name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dlbench.hardware_probe import Machine, describe
from dlbench.hardware_probe.files import JsonRecord
from dlbench.hardware_probe.machine import rounded_memory_gib
from dlbench.reports.results.safe_text import FIELD, one_line

FOREIGN_KEY = "pytest_benchmark"
"""Key of an imported file's own facts in the software of a record, and in its machine's
description."""
UNKNOWN_MACHINE = "unknown"
"""The fingerprint of every machine that a file does not describe: two of them may be the same or
not."""


@dataclass(frozen=True)
class Host:
    """A machine as the reports see it; None is unknown."""

    fingerprint: str
    name: str
    """For column heads: a model and its cores."""
    physical_cores: int | None = None
    """Those with at least one logical CPU in the affinity mask, regardless of the quota."""
    effective_cpus: int | None = None
    """The smaller of affinity mask and quota, in whole CPUs: more threads than this share CPUs."""
    capacity_cpus: float | None = None
    """The same without rounding a fractional quota."""
    description: tuple[tuple[str, str], ...] = ()
    """Label and value, as in a hardware table."""
    logical_cpus: int | None = None
    """Those in the affinity mask, SMT siblings counted singly, regardless of the quota."""
    machine_cpus: int | None = None
    cpu_model: str = ""
    memory_gib: int | None = None
    """What is installed, as the fingerprint has it."""

    def under(self, quota: float) -> "Host":
        """Return the machine as a launch under this CPU quota has it; 0: as it is."""
        if not quota:
            return self
        cpus = min(self.effective_cpus or math.inf, math.ceil(quota))
        capacity = min(self.capacity_cpus or math.inf, quota)
        return replace(self, effective_cpus=int(cpus), capacity_cpus=capacity)

    @property
    def own_cores(self) -> int | None:
        """Most threads that can each have a physical core to themselves; None if unknown.

        A container may have a quota of fewer CPUs than there are cores in its affinity mask: the
        smaller counts.
        """
        counts = (self.physical_cores, self.effective_cpus)
        return min((count for count in counts if count is not None), default=None)


@dataclass(frozen=True)
class Node(JsonRecord):
    """One machine of a fleet: those of one kind share a fingerprint and differ only in name."""

    fleet: str
    name: str
    """As the scheduler calls it."""
    shared: tuple[str, ...] = ()
    """Why the job did not have the node to itself, in words; empty if it had."""


def name_among(hosts: Mapping[str, Host], machine: str) -> str:
    """Return a machine's name, with the start of its fingerprint where another has the same."""
    name = hosts[machine].name
    same = sum(host.name == name for host in hosts.values())
    return f"{name} [{machine[:6]}]" if same > 1 else name


def unlike(one: Host, other: Host) -> list[str]:
    """Return why two machines are not of the same kind, in words.

    A kind has one CPU model, and the same cores, CPUs to use and memory. Empty where they are
    alike; an unknown machine is of no kind.
    """
    facts = [
        ("the CPU is {} and {}", one.cpu_model, other.cpu_model),
        ("{} and {} physical cores", one.physical_cores, other.physical_cores),
        ("{} and {} CPUs to use", one.effective_cpus, other.effective_cpus),
        ("{} and {} GiB of memory", one.memory_gib, other.memory_gib),
    ]
    if not all(first and second for _, first, second in facts):
        return ["CPU, cores and memory are not known of both"]
    return [words.format(first, second) for words, first, second in facts if first != second]


class RecordedCpu(NamedTuple):
    """A CPU as a file of pytest-benchmark of any version describes it; empty or None if unknown."""

    model: str = ""
    vendor: str = ""
    logical_cpus: int | None = None
    family: int | None = None
    model_number: int | None = None
    stepping: int | None = None


def recorded_cpu(machine_info: Mapping[str, Any]) -> RecordedCpu:
    """Return the CPU of a file's ``machine_info``.

    Versions before 3.3 have other keys, and the word "unknown".
    """
    cpu = machine_info.get("cpu")
    if not isinstance(cpu, Mapping):
        return RecordedCpu()

    def words(*keys: str) -> str:
        for key in keys:
            word = str(cpu.get(key) or "").strip()
            if word.lower() not in ("", "unknown"):
                return word
        return ""

    def number(key: str) -> int | None:
        value = cpu.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    return RecordedCpu(
        model=words("brand_raw", "brand"),
        vendor=words("vendor_id_raw", "vendor_id"),
        logical_cpus=number("count"),
        family=number("family"),
        model_number=number("model"),
        stepping=number("stepping"),
    )


def _host_of_file(fingerprint: str, machine_info: Mapping[str, Any]) -> Host:
    """Return the host that a file of pytest-benchmark describes.

    Its counts of CPUs are not those of a launch.
    """
    cpu = recorded_cpu(machine_info)
    if not cpu.model:
        return Host(fingerprint, "an unknown machine")
    model = one_line(cpu.model, FIELD)
    facts = [("CPU", cpu.model)]
    if cpu.logical_cpus is not None:
        facts.append(("Logical CPUs", str(cpu.logical_cpus)))
    words = [str(machine_info.get(key) or "") for key in ("system", "release", "machine")]
    system = " ".join(words).strip()
    if system:
        facts.append(("Operating system", system))
    description = tuple((label, one_line(value, FIELD)) for label, value in facts)
    return Host(fingerprint, model, description=description, cpu_model=model)


def read_host(fingerprint: str, description: Mapping[str, Any] | None) -> Host:
    """Return the host that a stored machine describes.

    It is a bare one where the description is missing or from a newer version.
    """
    machine_info = (description or {}).get(FOREIGN_KEY)
    if isinstance(machine_info, Mapping):
        return _host_of_file(fingerprint, machine_info)
    if fingerprint == UNKNOWN_MACHINE:
        return _host_of_file(fingerprint, {})
    try:
        return host_of(Machine.from_dict(dict(description or {})))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Host(fingerprint, fingerprint[:12])


def host_of(machine: Machine) -> Host:
    """Return the facts that reports need about a probed machine."""
    cpu = machine.cpu
    effective = cpu.effective_cpus
    unit = "CPU" if effective == 1 else "CPUs"
    capacity = cpu.capacity_cpus if math.isfinite(cpu.capacity_cpus) else None
    return Host(
        fingerprint=machine.fingerprint,
        name=f"{cpu.model}, {effective} {unit}",
        physical_cores=max(1, cpu.usable_physical_cores),
        effective_cpus=effective,
        capacity_cpus=capacity,
        description=tuple(describe(machine)),
        logical_cpus=len(cpu.affinity),
        machine_cpus=cpu.logical_cpus,
        cpu_model=cpu.model,
        memory_gib=rounded_memory_gib(machine.memory.total_bytes),
    )

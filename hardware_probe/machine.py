"""The machine as one record: probed, written as JSON, told apart by a fingerprint, described for people.

No record holds a host name, user name, path, serial number or network address, so that results may be
published as they are.
"""

import hashlib
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench.hardware_probe._files import ROOT, read_text
from dlbench.hardware_probe.cpu import Cpu, probe_cpu
from dlbench.hardware_probe.gpu.inventory import Gpus, probe_gpus
from dlbench.hardware_probe.memory import Memory, probe_memory
from dlbench.hardware_probe.records import JsonRecord

# Part of what is hashed. To be raised when `_identity` changes, so that old and new fingerprints never meet
# by accident.
_FINGERPRINT_VERSION = 1


@dataclass(frozen=True)
class OperatingSystem:
    """The software between the hardware and the frameworks."""

    system: str
    """"Linux", "Darwin", "Windows"."""
    kernel: str
    """The kernel's release."""
    distribution: str | None
    """With its version, as the distribution writes it."""
    libc: str | None
    """The C library of the probing process, "glibc 2.36"; a container's may differ from its host's."""


@dataclass(frozen=True)
class Machine(JsonRecord):
    """What a measurement was made on."""

    cpu: Cpu
    memory: Memory
    gpus: Gpus
    operating_system: OperatingSystem

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits that stay the same for the same hardware.

        What moves them: CPU model, sockets, cores, SMT, NUMA nodes, caches, instruction sets, memory size,
        the GPUs' names and memory, whether the machine is virtual. What does not: clock rates, free memory,
        affinity and quota of the moment, the state of the GPUs. Neither do kernel, driver and C library: with
        them upgraded it is the same machine under other software, which a comparison can then say.
        """
        identity = json.dumps(_identity(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(identity.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """The record in JSON's types; the fingerprint goes along for people, and is not read back."""
        return {"fingerprint": self.fingerprint, **super().to_dict()}


def probe(root: Path = ROOT, nvml: Any = None) -> Machine:
    """Probe this machine, or a tree recorded from another one. Takes milliseconds; starts no process."""
    return Machine(
        cpu=probe_cpu(root),
        memory=probe_memory(root),
        gpus=probe_gpus(nvml),
        operating_system=_probe_operating_system(root),
    )


def rounded_memory_gib(size_bytes: int) -> int:
    """The installed memory in GiB that a kernel or driver reporting `size_bytes` probably has.

    Firmware, kernel and driver always report less than is installed, by an amount that changes with every
    upgrade. So the size is rounded up, to sixteenths of the next power of two: 23.5 GiB is 24, 251 GiB is
    256, 754 GiB is 768. Fine enough to tell the sizes apart in which memory is sold.
    """
    power = 1 << max(0, size_bytes - 1).bit_length()
    step = max(power // 16, 1024**2)
    return round(-(-size_bytes // step) * step / 1024**3)


def _identity(machine: Machine) -> dict[str, Any]:
    """What the fingerprint is made of."""
    cpu = machine.cpu
    return {
        "version": _FINGERPRINT_VERSION,
        "architecture": cpu.architecture,
        # Hypervisors often hide the model's name ("AMD EPYC"); family and number tell the generations apart.
        "model": [cpu.vendor, cpu.model, cpu.family, cpu.model_number],
        "sockets": cpu.sockets,
        "cores": cpu.physical_cores,
        "logical": cpu.logical_cpus,
        "smt": cpu.threads_per_core,
        "numa": cpu.numa_nodes,
        "caches": [[cache.name, cache.size_bytes, cache.instances] for cache in cpu.caches],
        "instruction_sets": list(cpu.instruction_sets),
        "memory_gib": rounded_memory_gib(machine.memory.total_bytes),
        # Sorted: the order in which the driver finds the boards may change from boot to boot.
        "gpus": sorted(
            [gpu.name or "unknown", rounded_memory_gib(gpu.memory_bytes or 0)] for gpu in machine.gpus.devices
        ),
        "virtual": cpu.virtualisation.kind,
    }


def _probe_operating_system(root: Path) -> OperatingSystem:
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")  # of the running process, where libc_ver guesses from a file
    except (AttributeError, ValueError, OSError):
        libc = None
    return OperatingSystem(
        system="Linux" if root != ROOT else platform.system(),
        kernel=read_text(root / "proc/sys/kernel/osrelease") or platform.release(),
        distribution=_distribution(root),
        libc=libc or " ".join(platform.libc_ver()).strip() or None,
    )


def _distribution(root: Path) -> str | None:
    for name in ("etc/os-release", "usr/lib/os-release"):
        for line in (read_text(root / name) or "").splitlines():
            key, _, value = line.partition("=")
            if key == "PRETTY_NAME":
                return value.strip().strip("\"'") or None
    return None

"""The machine as one record.

It is probed, written as JSON, identified by a fingerprint, and described for people. No record
holds a host name, user name, path, serial number or network address, so that results may be
published as they are.
"""

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench.hardware_probe.cpu import Cpu, Virtualisation, probe_cpu
from dlbench.hardware_probe.files import ROOT, JsonRecord, parse_fields, read_text
from dlbench.hardware_probe.gpu import Gpu, Gpus, probe_gpus
from dlbench.hardware_probe.memory import Memory, probe_memory

# Part of the hash. Raise it when `_identity` changes, so that old and new fingerprints never match
# by accident.
_FINGERPRINT_VERSION = 1


@dataclass(frozen=True)
class OperatingSystem:
    """The software between the hardware and the frameworks."""

    system: str
    kernel: str
    distribution: str | None
    """With its version, as the distribution writes it."""
    libc: str | None
    """The C library of the probing process, "glibc 2.36"; in a container it may be another one."""


@dataclass(frozen=True)
class Machine(JsonRecord):
    """The machine that a measurement was made on."""

    cpu: Cpu
    memory: Memory
    gpus: Gpus
    operating_system: OperatingSystem

    @property
    def fingerprint(self) -> str:
        """Return 12 hexadecimal digits that stay the same for the same hardware.

        They depend on CPU model, sockets, cores, SMT, NUMA nodes, caches, instruction sets, memory
        size, the GPUs' names and memory, and whether the machine is virtual. They do not depend on
        clock rates, free memory, current affinity and quota, or the state of the GPUs. Nor do they
        depend on kernel, driver and C library: after an upgrade it is the same machine with
        different software, which a comparison can then report.
        """
        identity = json.dumps(_identity(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(identity.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Return the record in JSON's types.

        The fingerprint is added for people, and is not read back.
        """
        return {"fingerprint": self.fingerprint, **super().to_dict()}


def probe(root: Path = ROOT, nvml: Any = None) -> Machine:
    """Probe this machine, or a tree recorded from another one.

    It takes milliseconds, and starts no process.
    """
    return Machine(
        cpu=probe_cpu(root),
        memory=probe_memory(root),
        gpus=probe_gpus(nvml),
        operating_system=_probe_operating_system(root),
    )


def rounded_memory_gib(size_bytes: int) -> int:
    """Return the installed memory in GiB of a machine whose kernel or driver reports `size_bytes`.

    Firmware, kernel and driver always report less than is installed, by an amount that changes with
    every upgrade. So the size is rounded up, to sixteenths of the next power of two: 23.5 GiB is
    24, 251 GiB is 256, 754 GiB is 768. Fine enough for the sizes in which memory is sold.
    """
    power = 1 << max(0, size_bytes - 1).bit_length()
    step = max(power // 16, 1024**2)
    return round(-(-size_bytes // step) * step / 1024**3)


def _identity(machine: Machine) -> dict[str, Any]:
    cpu = machine.cpu
    boards = []
    for gpu in machine.gpus.devices:
        boards.append([gpu.name or "unknown", rounded_memory_gib(gpu.memory_bytes or 0)])
    return {
        "version": _FINGERPRINT_VERSION,
        "architecture": cpu.architecture,
        # Hypervisors often hide the model's name ("AMD EPYC"); family and number distinguish
        # generations.
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
        "gpus": sorted(boards),
        "virtual": cpu.virtualisation.kind,
    }


def _probe_operating_system(root: Path) -> OperatingSystem:
    lines: list[str] = []
    for name in ("etc/os-release", "usr/lib/os-release"):
        lines += (read_text(root / name) or "").splitlines()
    pretty_name = parse_fields(lines, "=").get("PRETTY_NAME", "")
    return OperatingSystem(
        system="Linux",
        kernel=read_text(root / "proc/sys/kernel/osrelease") or platform.release(),
        distribution=pretty_name.strip("\"'") or None,
        libc=" ".join(platform.libc_ver()).strip() or None,
    )


def describe(machine: Machine) -> list[tuple[str, str]]:
    """Return the machine as (label, value) rows for a table; unknown facts have no row."""
    memory = machine.memory
    system = machine.operating_system
    swap = "none"
    if memory.swap_total_bytes:
        swap = _size(memory.swap_total_bytes)
    rows = [
        ("Fingerprint", machine.fingerprint),
        *_describe_cpu(machine.cpu),
        ("Memory", _describe_memory(memory)),
        ("Swap", swap),
        ("Transparent huge pages", memory.transparent_huge_pages or ""),
        *_describe_gpus(machine.gpus),
        ("Operating system", system.distribution or system.system),
        ("Kernel", f"{system.system} {system.kernel}"),
        ("C library", system.libc or ""),
    ]
    return [(label, value) for label, value in rows if value]


def _describe_cpu(cpu: Cpu) -> list[tuple[str, str]]:
    architecture = _join_known(
        ("{}", cpu.architecture),
        ("family {}", cpu.family or None),
        ("model {}", cpu.model_number or None),
        ("stepping {}", cpu.stepping or None),
    )
    sockets = _count(cpu.sockets, "socket")
    cores = _count(cpu.physical_cores, "physical core")
    cpus = _count(cpu.logical_cpus, "logical CPU")
    smt = "no SMT"
    if cpu.threads_per_core > 1:
        smt = f"{cpu.threads_per_core} threads per core"
    usable_cores = _count(cpu.usable_physical_cores, "physical core")
    quota = "no quota"
    if cpu.quota_cpus is not None:
        quota = f"quota of {cpu.quota_cpus:g}"
    usable = f"affinity mask of {len(cpu.affinity)} on {usable_cores}, {quota}"
    caches = [f"{cache.name} {cache.instances} x {_size(cache.size_bytes)}" for cache in cpu.caches]
    frequency = _join_known(
        ("min {:.0f} MHz", cpu.frequency.minimum_mhz),
        ("max {:.0f} MHz", cpu.frequency.maximum_mhz),
        ("now {:.0f} MHz", cpu.frequency.current_mhz),
        ("governor {}", cpu.frequency.governor),
        ("boost {}", _switch(cpu.frequency.boost)),
    )
    return [
        ("CPU", cpu.model),
        ("Architecture", architecture),
        ("Cores", f"{sockets}, {cores}, {cpus} ({smt})"),
        ("CPUs usable here", f"{cpu.effective_cpus} ({usable})"),
        ("NUMA nodes", str(cpu.numa_nodes)),
        ("Caches", ", ".join(caches)),
        ("Instruction sets", " ".join(cpu.instruction_sets)),
        ("Frequency", frequency),
        ("Virtualisation", _describe_virtualisation(cpu.virtualisation)),
    ]


def _describe_virtualisation(virtual: Virtualisation) -> str:
    words = "none"
    if virtual.kind == "vm":
        words = f"virtual machine ({virtual.hypervisor or 'unknown hypervisor'})"
    if virtual.container:
        words += f", {virtual.container} container"
    return words


def _describe_memory(memory: Memory) -> str:
    words = f"{_size(memory.total_bytes)} ({_size(memory.available_bytes)} available)"
    if memory.limit_bytes is not None:
        words += f", limited to {_size(memory.limit_bytes)}"
    return words


def _describe_gpus(gpus: Gpus) -> list[tuple[str, str]]:
    driver = gpus.driver_version or ""
    if driver and gpus.cuda_driver_version:
        driver += f" (CUDA up to {gpus.cuda_driver_version})"
    rows = [(f"GPU {gpu.index}", _describe_gpu(gpu)) for gpu in gpus.devices]
    if not gpus.devices:
        rows.append(("GPUs", "none"))
    return [*rows, ("GPU driver", driver), ("GPU note", gpus.reason or "")]


def _size(size_bytes: float) -> str:
    """Return bytes in the largest binary unit that keeps the number at 1 or more."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:g} B"


def _count(number: int, word: str) -> str:
    if number == 1:
        return f"{number} {word}"
    return f"{number} {word}s"


def _join_known(*facts: tuple[str, object]) -> str:
    """Return the facts that are not None, each written by its format, with commas."""
    return ", ".join(words.format(value) for words, value in facts if value is not None)


def _switch(state: bool | None) -> str | None:
    if state is None:
        return None
    return "on" if state else "off"


def _describe_gpu(gpu: Gpu) -> str:
    width = None if gpu.pcie_generation_max is None else gpu.pcie_width_max
    memory = None
    if gpu.memory_bytes is not None:
        memory = _size(gpu.memory_bytes)
    mig = None
    if gpu.mig_enabled:
        mig = _count(len(gpu.mig_devices), "device")
    return _join_known(
        ("{}", gpu.name or "not reachable"),
        ("{}", memory),
        ("compute capability {}", gpu.compute_capability),
        ("SM clock up to {} MHz", gpu.sm_clock_max_mhz),
        ("power limit {:g} W", gpu.power_limit_watts),
        (f"PCIe {gpu.pcie_generation_max} x{{}}", width),
        ("ECC {}", _switch(gpu.ecc_enabled)),
        ("MIG with {}", mig),
    )

"""A machine in words: label and value pairs, as in the hardware table of a paper."""

from dlbench.hardware_probe.cpu import Cache, Cpu, Frequency
from dlbench.hardware_probe.gpu.inventory import Gpu, Gpus
from dlbench.hardware_probe.machine import Machine
from dlbench.hardware_probe.memory import Memory


def describe(machine: Machine) -> list[tuple[str, str]]:
    """The machine as (label, value) rows, ready for a table; what is not known has no row."""
    cpu, memory = machine.cpu, machine.memory
    gpus, system = machine.gpus, machine.operating_system
    rows = [
        ("Fingerprint", machine.fingerprint),
        ("CPU", cpu.model),
        ("Architecture", _architecture(cpu)),
        ("Cores", _cores(cpu)),
        ("CPUs usable here", _usable(cpu)),
        ("NUMA nodes", str(cpu.numa_nodes)),
        ("Caches", ", ".join(_cache(cache) for cache in cpu.caches)),
        ("Instruction sets", " ".join(cpu.instruction_sets)),
        ("Frequency", _frequency(cpu.frequency)),
        ("Virtualisation", _virtualisation(cpu)),
        ("Memory", _memory(memory)),
        ("Swap", _size(memory.swap_total_bytes) if memory.swap_total_bytes else "none"),
        ("Transparent huge pages", memory.transparent_huge_pages or ""),
    ]
    rows += [(f"GPU {gpu.index}", _gpu(gpu)) for gpu in gpus.devices]
    rows += [
        ("GPUs", "" if gpus.devices else "none"),
        ("GPU driver", _driver(gpus)),
        ("GPU note", gpus.reason or ""),
        ("Operating system", system.distribution or system.system),
        ("Kernel", f"{system.system} {system.kernel}"),
        ("C library", system.libc or ""),
    ]
    return [(label, value) for label, value in rows if value]


def _size(size_bytes: float) -> str:
    """Bytes in the largest binary unit that keeps the number at 1 or more."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:g} B"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _architecture(cpu: Cpu) -> str:
    parts = [
        f"{label} {value}"
        for label, value in (("family", cpu.family), ("model", cpu.model_number), ("stepping", cpu.stepping))
        if value
    ]
    return ", ".join([cpu.architecture, *parts])


def _cores(cpu: Cpu) -> str:
    smt = f"{cpu.threads_per_core} threads per core" if cpu.threads_per_core > 1 else "no SMT"
    return (
        f"{_count(cpu.sockets, 'socket')}, {_count(cpu.physical_cores, 'physical core')}, "
        f"{_count(cpu.logical_cpus, 'logical CPU')} ({smt})"
    )


def _usable(cpu: Cpu) -> str:
    text = f"{cpu.effective_cpus} (affinity mask of {len(cpu.affinity)}"
    quota = "no quota" if cpu.quota_cpus is None else f"quota of {cpu.quota_cpus:g}"
    return f"{text} on {_count(cpu.usable_physical_cores, 'physical core')}, {quota})"


def _cache(cache: Cache) -> str:
    return f"{cache.name} {cache.instances} x {_size(cache.size_bytes)}"


def _frequency(frequency: Frequency) -> str:
    bounds = (("min", frequency.minimum_mhz), ("max", frequency.maximum_mhz), ("now", frequency.current_mhz))
    parts = [f"{label} {value:.0f} MHz" for label, value in bounds if value is not None]
    if frequency.governor is not None:
        parts.append(f"governor {frequency.governor}")
    if frequency.boost is not None:
        parts.append("boost on" if frequency.boost else "boost off")
    return ", ".join(parts)


def _virtualisation(cpu: Cpu) -> str:
    found = cpu.virtualisation
    host = f"virtual machine ({found.hypervisor or 'unknown hypervisor'})" if found.kind == "vm" else "none"
    return host if found.container is None else f"{host}, {found.container} container"


def _memory(memory: Memory) -> str:
    text = f"{_size(memory.total_bytes)} ({_size(memory.available_bytes)} available)"
    return text if memory.limit_bytes is None else f"{text}, limited to {_size(memory.limit_bytes)}"


def _gpu(gpu: Gpu) -> str:
    width = None if gpu.pcie_generation_max is None else gpu.pcie_width_max
    told = (
        ("{}", gpu.name or "not reachable"),
        ("{}", None if gpu.memory_bytes is None else _size(gpu.memory_bytes)),
        ("compute capability {}", gpu.compute_capability),
        ("SM clock up to {} MHz", gpu.sm_clock_max_mhz),
        ("power limit {:g} W", gpu.power_limit_watts),
        (f"PCIe {gpu.pcie_generation_max} x{{}}", width),
        ("ECC {}", None if gpu.ecc_enabled is None else "on" if gpu.ecc_enabled else "off"),
        ("MIG with {}", _count(len(gpu.mig_devices), "device") if gpu.mig_enabled else None),
    )
    return ", ".join(words.format(value) for words, value in told if value is not None)


def _driver(gpus: Gpus) -> str:
    if gpus.driver_version is None:
        return ""
    cuda = f" (CUDA up to {gpus.cuda_driver_version})" if gpus.cuda_driver_version else ""
    return f"{gpus.driver_version}{cuda}"

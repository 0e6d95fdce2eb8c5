"""The processors: their kind, their abilities, and how much of them this process may use.

Read from ``/proc`` and ``/sys`` directly. py-cpuinfo knows no topology, and on an AMD machine it
gave /proc/cpuinfo's "cache size" (the second level) as the third level's. Besides, py-cpuinfo and
py-cpuinfo2, which pytest-benchmark requires, overwrite one another's package. ``lscpu`` and
``systemd-detect-virt`` are missing in small images.
"""

import math
import platform
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dlbench.hardware_probe.cgroups import cpu_quota
from dlbench.hardware_probe.files import (
    ROOT,
    parse_cpu_list,
    parse_fields,
    parse_size,
    read_int,
    read_text,
)

# The kernel's flag -> the name shown. Only what a BLAS or a framework dispatches on: a longer list
# would make the fingerprint move with kernels that learn to name further flags of the same CPU.
_SAME_NAME = (
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx_vnni_int8",
    "avx_ne_convert",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "amx_fp16",
    "neon",
    "i8mm",
    "bf16",
    "sve",
    "sve2",
    "sme",
    "sme2",
)
KNOWN = {name: name for name in _SAME_NAME} | {
    "asimd": "neon",
    "asimdhp": "fp16",
    "asimddp": "dotprod",
}

# (implementer, part), as in the kernel's arch/arm64/include/asm/cputype.h, for the cores of servers
# and boards.
_ARM_CORES: dict[tuple[str | None, str | None], str] = {
    ("0x41", "0xd03"): "Arm Cortex-A53",
    ("0x41", "0xd07"): "Arm Cortex-A57",
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0x43", "0x0af"): "Cavium ThunderX2",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x48", "0xd01"): "HiSilicon Kunpeng-920",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1A",
}


# The firmware's name of the machine, in lower case, and the hypervisor that it betrays. The order
# counts: clouds name themselves as the vendor and sometimes KVM as the product. Amazon's
# "c6g.metal" is the hardware itself.
_FIRMWARE_NAMES = {
    "amazon ec2": "Amazon Nitro",
    "google": "Google (KVM)",
    "microsoft corporation": "Microsoft Hyper-V",
    "vmware": "VMware",
    "virtualbox": "VirtualBox",
    "xen": "Xen",
    "parallels": "Parallels",
    "openstack": "KVM",
    "rhev": "KVM",
    "kvm": "KVM",
    "qemu": "KVM",
    "bochs": "Bochs",
}

# The clock that a guest shares with its host. Offered by the kernel also where the guest uses
# another one, and the only trace in very small virtual machines, which have no firmware tables at
# all.
_CLOCKS = {"kvm-clock": "KVM", "hyperv_clocksource": "Microsoft Hyper-V", "xen": "Xen"}


# containerd leaves no trace but Kubernetes' own.
_CONTAINER_FILES = {
    "run/.containerenv": "podman",
    ".dockerenv": "docker",
    "var/run/secrets/kubernetes.io": "kubernetes",
}


@dataclass(frozen=True)
class Virtualisation:
    """The origin of the CPUs that this process sees."""

    kind: str
    """"none" (the kernel runs on the hardware itself) or "vm"; part of the fingerprint."""
    hypervisor: str | None
    container: str | None
    """"docker", "podman", "lxc", ... where this process runs in a container; None otherwise."""


def _virtualisation(cpu_flags: frozenset[str], root: Path) -> Virtualisation:
    """Judge from the CPU flag of x86 hypervisors, the firmware, the clocks and the device tree."""
    hypervisor = _hypervisor(root)
    container = _container(root)
    # A physical machine made by Google or Microsoft has the vendor's name too, but not the CPU
    # flag. Arm has no such flag, so there the name alone decides.
    is_virtual = "hypervisor" in cpu_flags or ("fpu" not in cpu_flags and hypervisor is not None)
    if not is_virtual:
        return Virtualisation("none", None, container)
    return Virtualisation("vm", hypervisor, container)


def _container(root: Path) -> str | None:
    for file, name in _CONTAINER_FILES.items():
        if (root / file).exists():
            return name
    # systemd copies the word from PID 1's environment to this file, readable to everyone.
    return read_text(root / "run/systemd/container")


def _hypervisor(root: Path) -> str | None:
    sys = root / "sys"
    if (read_text(sys / "hypervisor/type") or "").lower() == "xen":
        return "Xen"
    names = []
    for file in ("sys_vendor", "product_name", "bios_vendor"):
        names.append(read_text(sys / "class/dmi/id" / file) or "")
    firmware = " ".join(names).lower()
    if ".metal" not in firmware:
        for trace, hypervisor in _FIRMWARE_NAMES.items():
            if trace in firmware:
                return hypervisor
    clocks = read_text(sys / "devices/system/clocksource/clocksource0/available_clocksource") or ""
    for trace, hypervisor in _CLOCKS.items():
        if trace in clocks.split():
            return hypervisor
    compatible = read_text(root / "proc/device-tree/hypervisor/compatible") or ""
    for trace, hypervisor in (("kvm", "KVM"), ("xen", "Xen")):
        if trace in compatible:
            return hypervisor
    return None


@dataclass(frozen=True)
class Cache:
    """One kind of cache: "L1d", "L1i", "L2", "L3", ..."""

    name: str
    size_bytes: int
    """One instance; the largest where the cores differ."""
    instances: int
    total_bytes: int


@dataclass(frozen=True)
class Frequency:
    """Clock rates; None where the system does not report them, as on most virtual machines."""

    minimum_mhz: float | None
    maximum_mhz: float | None
    current_mhz: float | None
    """Mean over the CPUs at the moment of the probe."""
    governor: str | None
    """Several, joined by commas, where the CPUs differ."""
    boost: bool | None


@dataclass(frozen=True)
class Cpu:
    """All processors of the machine together."""

    architecture: str
    vendor: str | None
    model: str
    family: str | None
    model_number: str | None
    stepping: str | None
    microcode: str | None
    sockets: int
    physical_cores: int
    logical_cpus: int
    threads_per_core: int
    """SMT siblings per core; the largest where the cores differ."""
    core_siblings: tuple[tuple[int, ...], ...]
    """For each physical core the numbers of its logical CPUs, from which masks are chosen."""
    numa_nodes: int
    caches: tuple[Cache, ...]
    """In the order L1d, L1i, L2, L3, ...; empty where they are unknown."""
    instruction_sets: tuple[str, ...]
    """Values of `KNOWN`, sorted."""
    frequency: Frequency
    virtualisation: Virtualisation
    affinity: tuple[int, ...]
    quota_cpus: float | None
    """CPUs' worth of time that control groups allow (1.5 is possible); None without a quota."""
    core_places: tuple[dict[str, int], ...] = ()
    """For each core in `core_siblings` its "socket", NUMA "node" and "kind".

    The kind is 0 for the fastest kind of core, 1 for the next, and so on. Empty in records of older
    versions.
    """

    @property
    def usable_physical_cores(self) -> int:
        """Return the number of physical cores with a logical CPU in the affinity mask."""
        allowed = set(self.affinity)
        return sum(1 for core in self.core_siblings if allowed.intersection(core))

    @property
    def capacity_cpus(self) -> float:
        """Return the CPUs' worth of time for this process: the smaller of mask and quota."""
        return min(float(len(self.affinity)), self.quota_cpus or math.inf)

    @property
    def effective_cpus(self) -> int:
        """Return `capacity_cpus` in whole CPUs, at least 1; rounded up, as loky and joblib do.

        With a quota of 1.5 this is 2: two threads can be kept running, but both will be throttled
        now and then.
        """
        return max(1, math.ceil(self.capacity_cpus))

    @property
    def last_level_cache_bytes(self) -> int | None:
        """Return the size of all last-level caches together; None where caches are unknown."""
        if not self.caches:
            return None
        return self.caches[-1].total_bytes


def bound_mask(cpu: Cpu, threads: int, workers: int = 1) -> tuple[int, ...] | None:
    """Return the logical CPUs for this many threads; None with more threads than usable CPUs.

    Ascending for one worker. For several, which have equal shares of the threads, they come worker
    by worker: each takes the first cores that it has threads for, and part of a core only where no
    whole one fits.

    One logical CPU of each usable physical core comes first, then their SMT siblings. Fast kinds of
    core come before slow ones. Within a kind one socket is filled before the next, and within it
    one NUMA node, beginning with those that have most usable cores: threads of one step share the
    last level of cache and the memory next to it. That is "compact,1,0", which Intel recommends for
    oneDNN, and equals binding to one node with numactl; work limited by memory bandwidth alone may
    run faster spread over sockets. The mask of p + 1 CPUs adds one CPU to that of p, so that
    nothing else changes along T(p).

    Raises ValueError for fewer than 1 thread.
    """
    if threads < 1:
        raise ValueError(f"{threads} threads cannot be bound; give 1 or more")
    cores = _cores_in_order(cpu)
    most_siblings = max((len(core) for core in cores), default=0)
    chosen: list[int] = []
    for sibling in range(most_siblings):
        chosen += [core[sibling] for core in cores if sibling < len(core)]
    chosen = chosen[:threads]
    if threads > len(chosen):
        return None
    if workers == 1:
        return tuple(sorted(chosen))
    return _deal(cores, set(chosen), workers)


class _UsableCore(NamedTuple):
    kind: int
    socket: int
    node: int
    cpus: list[int]


def _cores_in_order(cpu: Cpu) -> list[list[int]]:
    """Return the usable logical CPUs of each core, in the order in which threads are bound."""
    allowed = set(cpu.affinity)
    places = cpu.core_places or ({"socket": 0, "node": 0, "kind": 0},) * cpu.physical_cores
    cores = []
    cores_by_socket: Counter[tuple[int, int]] = Counter()
    cores_by_node: Counter[tuple[int, int, int]] = Counter()
    for place, siblings in zip(places, cpu.core_siblings, strict=True):
        usable = sorted(allowed.intersection(siblings))
        if usable:
            core = _UsableCore(place["kind"], place["socket"], place["node"], usable)
            cores.append(core)
            cores_by_socket[core.kind, core.socket] += 1
            cores_by_node[core.kind, core.socket, core.node] += 1

    def rank(core: _UsableCore) -> tuple[int, ...]:
        socket = core.kind, core.socket
        node = core.kind, core.socket, core.node
        return (
            core.kind,
            -cores_by_socket[socket],
            core.socket,
            -cores_by_node[node],
            core.node,
            core.cpus[0],
        )

    return [core.cpus for core in sorted(cores, key=rank)]


def _deal(cores: list[list[int]], chosen: set[int], workers: int) -> tuple[int, ...]:
    """Return the chosen CPUs worker by worker, whole cores first."""
    left = []
    for core in cores:
        chosen_of_core = [cpu for cpu in core if cpu in chosen]
        if chosen_of_core:
            left.append(chosen_of_core)
    dealt: list[int] = []
    for worker in range(workers):
        end = (worker + 1) * (len(chosen) // workers)
        while len(dealt) < end:
            wanted = end - len(dealt)
            core = next((core for core in left if len(core) <= wanted), left[0])
            dealt += core[:wanted]
            del core[:wanted]
            left = [core for core in left if core]
    return tuple(dealt)


def node_mask(cpu: Cpu) -> tuple[int, ...]:
    """Return the usable logical CPUs of the NUMA node that has most of them, ascending."""
    nodes = {}
    # Older records have no places.
    for core, place in zip(cpu.core_siblings, cpu.core_places, strict=False):
        nodes.update(dict.fromkeys(core, place["node"]))
    cpus_by_node: dict[int, list[int]] = {}
    for number in sorted(cpu.affinity):
        cpus_by_node.setdefault(nodes.get(number, 0), []).append(number)
    # The largest node, and of several the first.
    largest = max(sorted(cpus_by_node), key=lambda node: len(cpus_by_node[node]))
    return tuple(cpus_by_node[largest])


def probe_cpu(root: Path = ROOT) -> Cpu:
    """Read the processors of this machine, or of a tree recorded from another one."""
    cpuinfo = read_text(root / "proc/cpuinfo") or ""
    processors = {}
    listed = []
    for block in cpuinfo.split("\n\n"):
        fields = parse_fields(block.splitlines())
        number = fields.get("processor")
        if number is None:
            continue
        if number.isdecimal() and number not in processors:
            listed.append(int(number))
        processors[number] = fields
    first = parse_fields(cpuinfo.splitlines())  # On Arm some facts stand after the last processor.
    flags = frozenset((first.get("flags") or first.get("Features") or "").split())
    instruction_sets = {name for flag, name in KNOWN.items() if flag in flags}
    online = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online"))
    online = online or tuple(sorted(listed)) or (0,)
    cores = _core_siblings(root, online, processors)
    places = _core_places(root, cores, processors)
    status = parse_fields((read_text(root / "proc/self/status") or "").splitlines())
    # The mask may name CPUs that do not exist (the kernel's default allows all that it was built
    # for).
    allowed = set(parse_cpu_list(status.get("Cpus_allowed_list"))).intersection(online)
    return Cpu(
        architecture=_architecture(root, flags),
        vendor=first.get("vendor_id") or first.get("CPU implementer"),
        model=_model(first),
        family=first.get("cpu family") or first.get("CPU architecture"),
        model_number=first.get("model") or first.get("CPU part"),
        stepping=first.get("stepping") or first.get("CPU revision"),
        microcode=first.get("microcode"),
        sockets=len({place["socket"] for place in places}),
        physical_cores=len(cores),
        logical_cpus=len(online),
        threads_per_core=max(len(core) for core in cores),
        core_siblings=cores,
        numa_nodes=len(parse_cpu_list(read_text(root / "sys/devices/system/node/online"))) or 1,
        caches=_caches(root, online),
        instruction_sets=tuple(sorted(instruction_sets)),
        frequency=_frequency(root, online, processors),
        virtualisation=_virtualisation(flags, root),
        affinity=tuple(sorted(allowed)) or online,
        quota_cpus=cpu_quota(root),
        core_places=places,
    )


def _topology(root: Path, cpu: int, name: str) -> str | None:
    return read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology" / name)


def _core_siblings(
    root: Path, online: tuple[int, ...], processors: dict[str, dict[str, str]]
) -> tuple[tuple[int, ...], ...]:
    """Return the online logical CPUs grouped by physical core, both sorted."""
    groups: dict[object, list[int]] = {}
    for cpu in online:
        # "core_cpus_list" is the newer name (Linux 5.3) of "thread_siblings_list".
        siblings = _topology(root, cpu, "core_cpus_list")
        siblings = siblings or _topology(root, cpu, "thread_siblings_list")
        fields = processors.get(str(cpu), {})
        key: object = cpu
        if siblings is not None:
            key = parse_cpu_list(siblings)
        elif "core id" in fields:
            # The number of a core is unique only within its socket.
            key = (fields.get("physical id"), fields["core id"])
        groups.setdefault(key, []).append(cpu)
    return tuple(sorted(tuple(sorted(group)) for group in groups.values()))


# Below this share of the fastest core's capacity a core is of a slower kind. "Favoured" cores
# differ by a few per cent.
_SAME_KIND = 0.85


def _core_places(
    root: Path, cores: tuple[tuple[int, ...], ...], processors: dict[str, dict[str, str]]
) -> tuple[dict[str, int], ...]:
    nodes: dict[int, int] = {}
    for node in parse_cpu_list(read_text(root / "sys/devices/system/node/online")):
        cpus = parse_cpu_list(read_text(root / f"sys/devices/system/node/node{node}/cpulist"))
        nodes.update(dict.fromkeys(cpus, node))
    kinds = _kinds(root, tuple(core[0] for core in cores))
    places = []
    for cpu, *_ in cores:
        fields = processors.get(str(cpu), {})
        package = _topology(root, cpu, "physical_package_id") or fields.get("physical id", "")
        socket = int(package) if package.isdecimal() else 0
        places.append({"socket": socket, "node": nodes.get(cpu, 0), "kind": kinds.get(cpu, 0)})
    return tuple(places)


def _kinds(root: Path, cpus: tuple[int, ...]) -> dict[int, int]:
    """Return the kind of core of each CPU, 0 the fastest.

    Intel's drivers name the kinds. Elsewhere the kernel's capacities show them.
    """
    named: dict[int, int] = {}
    for kind, device in enumerate(("cpu_core", "cpu_atom", "cpu_lowpower")):
        listed = parse_cpu_list(read_text(root / f"sys/devices/{device}/cpus"))
        named.update(dict.fromkeys(listed, kind))
    if named:
        return named
    capacities: dict[int, int] = {}
    for cpu in cpus:
        path = root / f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity"
        capacities[cpu] = read_int(path) or 0
    kinds: dict[int, int] = {}
    kind = -1
    fastest = math.inf
    for cpu in sorted(cpus, key=lambda cpu: -capacities[cpu]):
        if capacities[cpu] < _SAME_KIND * fastest:
            kind += 1
            fastest = capacities[cpu]
        kinds[cpu] = kind
    return kinds


def _architecture(root: Path, flags: frozenset[str]) -> str:
    if root == ROOT:
        return platform.machine() or "unknown"
    # A recorded tree has no file with it. The flags distinguish the two that matter.
    if "lm" in flags:
        return "x86_64"
    if "asimd" in flags:
        return "aarch64"
    return "unknown"


def _model(first: dict[str, str]) -> str:
    name = first.get("model name")
    implementer = first.get("CPU implementer")
    if not name and implementer:
        part = first.get("CPU part")
        unknown = f"Arm implementer {implementer} part {part}"
        name = _ARM_CORES.get((implementer, part), unknown)
    # The last two on POWER and RISC-V.
    name = name or first.get("cpu") or first.get("uarch")
    if not name:
        return "unknown"
    return " ".join(name.split())


def _caches(root: Path, online: tuple[int, ...]) -> tuple[Cache, ...]:
    sizes_by_kind: dict[tuple[int, str], dict[object, int]] = {}
    for cpu in online:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index in sorted(folder.glob("index[0-9]*")):
            level = read_int(index / "level")
            size = parse_size(read_text(index / "size"))
            if level is None or size is None:
                continue
            suffix = {"Data": "d", "Instruction": "i"}.get(read_text(index / "type") or "", "")
            # CPUs that share an instance all list the same CPUs; without the list it counts as
            # private.
            instance = read_text(index / "shared_cpu_list") or cpu
            sizes_by_kind.setdefault((level, suffix), {})[instance] = size
    caches = []
    for (level, suffix), sizes_by_instance in sorted(sizes_by_kind.items()):
        sizes = sizes_by_instance.values()
        caches.append(Cache(f"L{level}{suffix}", max(sizes), len(sizes), sum(sizes)))
    return tuple(caches)


def _frequency(
    root: Path, online: tuple[int, ...], processors: dict[str, dict[str, str]]
) -> Frequency:
    system = root / "sys/devices/system/cpu"
    folders = [system / f"cpu{cpu}/cpufreq" for cpu in online]

    def mhz(name: str) -> list[float]:
        rates = []
        for folder in folders:
            khz = read_int(folder / name)
            if khz is not None:
                rates.append(khz / 1000)
        return rates

    current = mhz("scaling_cur_freq")
    if not current:
        # On a virtual machine this is the nominal rate that the host reports, not the core's
        # present one.
        for processor in processors.values():
            rate = processor.get("cpu MHz", "")
            if rate.replace(".", "", 1).isdecimal():
                current.append(float(rate))
    current_mhz = None
    if current:
        current_mhz = round(sum(current) / len(current), 1)
    boost = read_int(system / "cpufreq/boost")
    no_turbo = read_int(system / "intel_pstate/no_turbo")
    if no_turbo is not None:
        boost = 1 - no_turbo
    governors = set()
    for folder in folders:
        governor = read_text(folder / "scaling_governor")
        if governor is not None:
            governors.add(governor)
    return Frequency(
        minimum_mhz=min(mhz("cpuinfo_min_freq"), default=None),
        maximum_mhz=max(mhz("cpuinfo_max_freq"), default=None),
        current_mhz=current_mhz,
        governor=",".join(sorted(governors)) or None,
        boost=None if boost is None else bool(boost),
    )

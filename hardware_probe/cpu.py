"""The processors: what they are, what they can do, and how much of them this process may use.

Read from ``/proc`` and ``/sys`` directly. py-cpuinfo was tried and not taken: it tells no topology, and on an
AMD machine it gave /proc/cpuinfo's "cache size" (the second level) as the third level's and as a cache line's
size; besides, two distributions (py-cpuinfo, and py-cpuinfo2, which pytest-benchmark requires) overwrite one
another's package. ``lscpu --json`` reads the same files, but is missing in small images and names its fields
differently from version to version. Where there is no /proc (macOS, Windows), psutil and the standard library
fill in what they know.
"""

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from dlbench.hardware_probe._files import ROOT, parse_cpu_list, parse_fields, parse_size, read_int, read_text
from dlbench.hardware_probe.cgroups import cpu_quota
from dlbench.hardware_probe.instruction_sets import arm_model, instruction_sets
from dlbench.hardware_probe.virtualisation import Virtualisation, probe_virtualisation


@dataclass(frozen=True)
class Cache:
    """One kind of cache."""

    name: str
    """"L1d", "L1i", "L2", "L3", ..."""
    size_bytes: int
    """One instance; the largest where the cores differ."""
    instances: int
    total_bytes: int
    """All instances together."""


@dataclass(frozen=True)
class Frequency:
    """Clock rates in MHz; None where the system does not tell, as on most virtual machines."""

    minimum_mhz: float | None
    maximum_mhz: float | None
    current_mhz: float | None
    """Mean over the CPUs at the moment of the probe."""
    governor: str | None
    """The frequency governor; several, joined by commas, where the CPUs differ."""
    boost: bool | None
    """Whether turbo frequencies are allowed."""


@dataclass(frozen=True)
class Cpu:
    """All processors of the machine together."""

    architecture: str
    """The kernel's name of it: "x86_64", "aarch64", ..."""
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
    """For each physical core the numbers of its logical CPUs: the masks to choose from when binding."""
    numa_nodes: int
    caches: tuple[Cache, ...]
    instruction_sets: tuple[str, ...]
    """Those that matter to numerical kernels, sorted; see `instruction_sets.KNOWN`."""
    frequency: Frequency
    virtualisation: Virtualisation
    affinity: tuple[int, ...]
    """The logical CPUs that this process may run on."""
    quota_cpus: float | None
    """CPUs' worth of time that control groups allow (1.5 is possible); None without a quota."""

    @property
    def usable_physical_cores(self) -> int:
        """Physical cores with at least one logical CPU in the affinity mask."""
        allowed = set(self.affinity)
        return sum(1 for core in self.core_siblings if allowed.intersection(core))

    @property
    def capacity_cpus(self) -> float:
        """CPUs' worth of time that this process can get: the smaller of affinity mask and quota."""
        return min(float(len(self.affinity)), self.quota_cpus or math.inf)

    @property
    def effective_cpus(self) -> int:
        """`capacity_cpus` in whole CPUs, at least 1; a fraction rounds up, as loky and joblib do.

        With a quota of 1.5 this is 2: two threads can be kept running, but both will be throttled now and
        then.
        """
        return max(1, math.ceil(self.capacity_cpus))

    @property
    def last_level_cache_bytes(self) -> int | None:
        """All instances of the last level of cache together; None where caches are not told."""
        return self.caches[-1].total_bytes if self.caches else None


def probe_cpu(root: Path = ROOT) -> Cpu:
    """Read the processors of this machine, or of a tree recorded from another one."""
    cpuinfo = read_text(root / "proc/cpuinfo") or ""
    blocks = [parse_fields(block.splitlines()) for block in cpuinfo.split("\n\n")]
    processors = [block for block in blocks if "processor" in block]
    first = parse_fields(cpuinfo.splitlines())  # On Arm some facts stand after the last processor.
    flags = frozenset((first.get("flags") or first.get("Features") or "").split())

    online = _online(root, processors)
    cores = _core_siblings(root, online, processors)
    status = parse_fields((read_text(root / "proc/self/status") or "").splitlines())
    # The mask may name CPUs that do not exist (the kernel's default allows all that it was built for).
    allowed = set(parse_cpu_list(status.get("Cpus_allowed_list"))).intersection(online)
    return Cpu(
        architecture=_architecture(root, flags),
        vendor=first.get("vendor_id") or first.get("CPU implementer"),
        model=_model(root, first),
        family=first.get("cpu family") or first.get("CPU architecture"),
        model_number=first.get("model") or first.get("CPU part"),
        stepping=first.get("stepping") or first.get("CPU revision"),
        microcode=first.get("microcode"),
        sockets=_sockets(root, online, processors),
        physical_cores=len(cores),
        logical_cpus=len(online),
        threads_per_core=max(len(core) for core in cores),
        core_siblings=cores,
        numa_nodes=len(parse_cpu_list(read_text(root / "sys/devices/system/node/online"))) or 1,
        caches=_caches(root, online),
        instruction_sets=instruction_sets(flags),
        frequency=_frequency(root, online, processors),
        virtualisation=probe_virtualisation(flags, root),
        affinity=tuple(sorted(allowed)) or online,
        quota_cpus=cpu_quota(root),
    )


def _online(root: Path, processors: list[dict[str, str]]) -> tuple[int, ...]:
    numbers = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online"))
    if not numbers:
        numbers = tuple(int(each["processor"]) for each in processors if each["processor"].isdecimal())
    return numbers or tuple(range(os.cpu_count() or 1))


def _topology(root: Path, cpu: int, name: str) -> str | None:
    return read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology" / name)


def _core_siblings(
    root: Path, online: tuple[int, ...], processors: list[dict[str, str]]
) -> tuple[tuple[int, ...], ...]:
    """The online logical CPUs grouped by physical core, both sorted."""
    listed = {each["processor"]: each for each in processors}
    groups: dict[object, list[int]] = {}
    for cpu in online:
        # "core_cpus_list" is the newer name (Linux 5.3) of what "thread_siblings_list" tells.
        siblings = _topology(root, cpu, "core_cpus_list") or _topology(root, cpu, "thread_siblings_list")
        fields = listed.get(str(cpu), {})
        key: object
        if siblings is not None:
            key = parse_cpu_list(siblings)
        elif "core id" in fields:
            # The number of a core is unique only within its socket.
            key = (fields.get("physical id"), fields["core id"])
        else:
            key = cpu
        groups.setdefault(key, []).append(cpu)
    if root == ROOT and not processors:
        # No /proc: the grouping is unknown, but psutil counts cores; deal the CPUs out evenly.
        cores = psutil.cpu_count(logical=False) or len(online)
        each = max(1, len(online) // cores)
        return tuple(online[start : start + each] for start in range(0, len(online), each))
    return tuple(sorted(tuple(sorted(group)) for group in groups.values()))


def _sockets(root: Path, online: tuple[int, ...], processors: list[dict[str, str]]) -> int:
    packages = {_topology(root, cpu, "physical_package_id") for cpu in online} - {None}
    if not packages:
        packages = {each.get("physical id") for each in processors} - {None}
    return max(1, len(packages))


def _architecture(root: Path, flags: frozenset[str]) -> str:
    if root == ROOT:
        return platform.machine() or "unknown"
    # A recorded tree does not tell it in one place; the flags tell the two that matter.
    if "lm" in flags:
        return "x86_64"
    return "aarch64" if "asimd" in flags else "unknown"


def _model(root: Path, first: dict[str, str]) -> str:
    name = first.get("model name") or arm_model(first.get("CPU implementer"), first.get("CPU part"))
    name = name or first.get("cpu") or first.get("uarch")  # POWER's and RISC-V's words for it
    if not name and root == ROOT:
        name = platform.processor()
    return " ".join(name.split()) if name else "unknown"


def _caches(root: Path, online: tuple[int, ...]) -> tuple[Cache, ...]:
    """The caches in the order L1d, L1i, L2, L3, ...; empty where sysfs does not tell."""
    found: dict[tuple[int, str], dict[object, int]] = {}
    for cpu in online:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index in sorted(folder.glob("index[0-9]*")):
            level, size = read_int(index / "level"), parse_size(read_text(index / "size"))
            if level is None or size is None:
                continue
            suffix = {"Data": "d", "Instruction": "i"}.get(read_text(index / "type") or "", "")
            # CPUs that share an instance all list the same CPUs; without the list it counts as private.
            instance = read_text(index / "shared_cpu_list") or cpu
            found.setdefault((level, suffix), {})[instance] = size
    return tuple(
        Cache(f"L{level}{suffix}", max(sizes.values()), len(sizes), sum(sizes.values()))
        for (level, suffix), sizes in sorted(found.items())
    )


def _frequency(root: Path, online: tuple[int, ...], processors: list[dict[str, str]]) -> Frequency:
    system = root / "sys/devices/system/cpu"
    folders = [system / f"cpu{cpu}/cpufreq" for cpu in online]

    def mhz(name: str) -> list[float]:
        return [khz / 1000 for folder in folders if (khz := read_int(folder / name)) is not None]

    current = mhz("scaling_cur_freq")
    if not current:
        # On a virtual machine this is the nominal rate that the host reports, not what the core does now.
        rates = [each.get("cpu MHz", "") for each in processors]
        current = [float(rate) for rate in rates if rate.replace(".", "", 1).isdecimal()]
    if not current and root == ROOT and not processors and (reported := psutil.cpu_freq()) is not None:
        current = [reported.current]
    no_turbo, boost = read_int(system / "intel_pstate/no_turbo"), read_int(system / "cpufreq/boost")
    if no_turbo is not None:
        boost = 1 - no_turbo
    governors = {read_text(folder / "scaling_governor") for folder in folders} - {None}
    return Frequency(
        minimum_mhz=min(mhz("cpuinfo_min_freq"), default=None),
        maximum_mhz=max(mhz("cpuinfo_max_freq"), default=None),
        current_mhz=round(sum(current) / len(current), 1) if current else None,
        governor=",".join(sorted(str(governor) for governor in governors)) or None,
        boost=None if boost is None else bool(boost),
    )

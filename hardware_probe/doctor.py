"""The doctor: what on this machine harms measurement, and how to fix it. It changes nothing by itself.

`gather_settings` reads files of /proc and /sys under a root, so that recorded trees can stand for other machines;
`take_sample` watches the machine for a few seconds; `diagnose` judges both. No fact holds a user's name or a path.
Randomised addresses are left out on purpose: each launch has its own layout, and launches are the unit of statistics.
"""

import dataclasses
import fnmatch
import math
import re
import shlex
import statistics
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path

import psutil

from dlbench.hardware_probe import sentinel
from dlbench.hardware_probe.cpu import Cpu, probe_cpu
from dlbench.hardware_probe.files import ROOT, JsonRecord, parse_cpu_list, read_int, read_text
from dlbench.hardware_probe.memory import Memory, probe_memory
from dlbench.hardware_probe.sentinel import Contention, Reading

# Variables by which a shell changes how fast numerical programs run; a trailing * stands for any ending.
_TELLING_VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "BLIS_*", "CUDA_VISIBLE_DEVICES", "DNNL_*", "GLIBC_TUNABLES", "GOMP_*"),
    *("GOTO_NUM_THREADS", "KMP_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_*", "MKL_*", "MXNET_*"),
    *("NPY_DISABLE_CPU_FEATURES", "NUMEXPR_*", "OMP_*", "ONEDNN_*", "OPENBLAS_*", "PYTHONMALLOC", "PYTHONPATH"),
    *("PYTORCH_*", "TF_ENABLE_*", "TF_NUM_*", "TF_XLA_FLAGS", "TORCHINDUCTOR_*", "TORCH_*"),
    *("VECLIB_MAXIMUM_THREADS", "XLA_FLAGS"),
)
_BOOST_FILES = ("sys/devices/system/cpu/intel_pstate/no_turbo", "sys/devices/system/cpu/cpufreq/boost")
# A process that takes less than this share of one CPU is not worth its line.
_BUSY_SHARE = 0.02

# Shares of time, and of the CPUs, that harm; a fifth of it may.
_WAITING_LIMIT, _OTHERS_LIMIT = 0.05, 0.10
# Spread of readings within a few seconds, (largest - smallest) / median: ordinary for a quiet machine, and too large
# for any comparison.
_GEMM_SPREAD, _BANDWIDTH_SPREAD = (0.03, 0.10), (0.10, 0.30)
_PROCESSES_SHOWN, _NAMES_SHOWN = 4, 4
_REST_CPUS = 0.1
_GIB = 1024**3
# On the safe side: the 130 million parameters of fcn8 are half a gigabyte, and a framework may hold several copies
# (weights, gradients, an optimiser's and a parity check's) beside its own gigabyte or two.
_ENOUGH_BYTES = 6 * _GIB
# Swapped-out pages of programs that sleep seldom come back; more than this share of the memory is another matter.
_MUCH_SWAPPED = 0.01
_CONTAINERS_WITH_MASKS = ("docker", "podman")

# Of each check by its name: title, and why it matters to a measurement.
_CHECKS = {
    "load": (
        "Current load",
        "What runs beside a measurement slows it down, and how well work repeats itself bounds every number.",
    ),
    "others": ("Other programs", "They take CPUs, caches, memory bandwidth and turbo clock from what is measured."),
    "waiting": ("Waiting for a CPU", "A step that waits for a CPU is timed as if it computed."),
    "steal": (
        "CPU time withheld by the host",
        "Other guests of the host run on the CPUs that this machine believes to have.",
    ),
    "repeatability": (
        "Repeatability",
        "No difference smaller than the spread of one and the same work on one thread can be seen in a few launches.",
    ),
    "load_average": (
        "Load average",
        "It counts programs that ran or waited for CPU or disk; what was busy a minute ago may be so again.",
    ),
    "cpu_quota": (
        "CPU quota",
        "A group of processes that has used up its CPU time is stopped until the period, mostly 100 ms, is over.",
    ),
    "affinity": (
        "CPUs allowed",
        "The CPUs outside the mask belong to others, who share caches, memory bandwidth and heat with this process.",
    ),
    "isolated_cpus": (
        "Isolated CPUs",
        "The kernel keeps other work away from isolated CPUs, but it does not spread threads over them either.",
    ),
    "virtual_machine": (
        "Virtual machine",
        "A host decides when and where virtual CPUs run, and what else runs beside them, and shows little of it.",
    ),
    "smt": (
        "SMT siblings",
        "Two threads on one core share its arithmetic units: beyond the cores, more threads are not more hardware.",
    ),
    "core_kinds": (
        "Kinds of cores",
        "Every parallel step waits for its slowest thread, and chance decides which threads get the slow cores.",
    ),
    "variables_passed_on": (
        "Variables passed on",
        "What is measured gets to see these, so that another shell may give another number.",
    ),
    "variables": (
        "Variables of this shell",
        "dlbench sets what it measures with itself; other programs started from this shell obey these variables.",
    ),
    "governor": (
        "Frequency governor",
        "Any but `performance` lets the clock follow the load, so that the same step takes longer after a pause.",
    ),
    "turbo": (
        "Turbo frequencies",
        "The turbo clock falls as more cores work and as they warm up, which looks like poor scaling over threads.",
    ),
    "heat": (
        "Slowed down for heat",
        "A processor that is too hot lowers its clock, later steps more than earlier ones.",
    ),
    "power": ("Power", "On battery the firmware caps the clock, by more as the charge falls."),
    "memory": ("Memory", "A launch that runs out of memory is ended by the kernel, or swaps before that."),
    "swap": ("Swap", "A page that was swapped out comes back from disk in the middle of a step."),
    "huge_pages": (
        "Transparent huge pages",
        "With `always`, luck decides how many huge pages a launch gets, and launches of one cell differ by it.",
    ),
    "numa_balancing": (
        "NUMA balancing",
        "The kernel takes pages away to see who uses them, and moves them between the nodes in the middle of a step.",
    ),
}
_HIDDEN = "hidden by the host of this virtual machine"
_NOT_REPORTED = "not reported by this system"
_WAIT = "End what is not needed, or measure when it is done"
_BIND = "taskset --all-tasks --cpu-list --pid {} $$"


class Severity(StrEnum):
    """How much a finding harms measurement, the worst first."""

    HARMS = "harms"
    MAY_HARM = "may harm"
    UNKNOWN = "cannot tell"
    FINE = "fine"


@dataclass(frozen=True)
class Remedy:
    """How to mend it."""

    advice: str
    """One sentence; it introduces the command where there is one."""
    command: str | None = None
    """To be typed as it stands into a shell; None where no command mends it."""
    needs_root: bool = False


@dataclass(frozen=True)
class Finding(JsonRecord):
    """One thing that was looked at."""

    name: str
    """Stable, for scripts: "governor", "cpu_quota", ..."""
    title: str
    severity: Severity
    seen: str
    """What was seen, with the number."""
    why: str
    """Why it matters to a measurement, in one sentence."""
    remedy: Remedy | None = None
    """None where nothing is to be mended."""


@dataclass(frozen=True)
class Variable:
    """A variable of this shell that changes how fast numerical programs run."""

    name: str
    passed_on: bool
    """Whether the programs measured see it."""


@dataclass(frozen=True)
class Settings:
    """How the machine is set up; None where the system does not report it."""

    cpu: Cpu
    memory: Memory
    boost_file: str | None
    """The knob for turbo frequencies under /sys; None without one."""
    smt_control: bool
    """Whether SMT can be switched off while the system runs."""
    isolated: tuple[int, ...]
    """CPUs that the kernel spreads no threads over."""
    core_kinds: tuple[tuple[str, tuple[int, ...]], ...]
    """Kinds of cores with their logical CPUs, where there is more than one kind."""
    throttle_events: int | None
    """How often the hardware has slowed down for heat since it was started."""
    swappiness: int | None
    on_battery: bool | None
    """None on machines without a battery."""
    load_average: tuple[float, float] | None
    """Over one and five minutes."""
    variables: tuple[Variable, ...]


@dataclass(frozen=True)
class Sample:
    """What happened within a few seconds; this process and the sentinel's are not counted as others."""

    seconds: float
    contention: Contention
    processes: tuple[tuple[str, float], ...]
    """Name of other processes and the CPUs that they used together, the busiest first."""
    throttle_events: int | None
    """Events of overheating meanwhile."""
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class Facts:
    """All that a diagnosis is made of."""

    settings: Settings
    sample: Sample | None
    no_sample: str = ""
    """Why there is no sample."""


def gather_settings(
    root: Path = ROOT, variables: Mapping[str, str] | None = None, passed_on: Collection[str] = ()
) -> Settings:
    """Read how this machine, or a recorded one, is set up. `passed_on` names what reaches the programs measured."""
    cpu = probe_cpu(root)
    system = root / "sys/devices/system/cpu"
    return Settings(
        cpu=cpu,
        memory=probe_memory(root),
        boost_file=next((f"/{file}" for file in _BOOST_FILES if read_int(root / file) is not None), None),
        smt_control=read_text(system / "smt/control") in ("on", "off"),
        isolated=parse_cpu_list(read_text(system / "isolated")),
        core_kinds=_kinds_of_cores(root, cpu),
        throttle_events=_throttle_events(root, cpu),
        swappiness=read_int(root / "proc/sys/vm/swappiness"),
        on_battery=_on_battery(root),
        load_average=_load_averages(root),
        variables=_telling_variables(variables or {}, passed_on),
    )


def take_sample(count: int = 5, pause_seconds: float = 0.2, root: Path = ROOT) -> Sample:
    """Take so many readings of the sentinel and watch this machine meanwhile, for about half a second each.

    Raises SentinelError where the sentinel cannot run.
    """
    cpu = probe_cpu(root)
    heat, processes, before = _throttle_events(root, cpu), _process_times(), sentinel.snapshot(root)
    readings: list[Reading] = []
    for _ in range(count):
        readings.append(sentinel.take())
        time.sleep(pause_seconds)
    after = sentinel.snapshot(root)
    seconds = after.wall - before.wall
    heat_after = _throttle_events(root, cpu)
    return Sample(
        seconds=seconds,
        contention=sentinel.between(before, after),
        processes=_busiest(processes, _process_times(), seconds),
        throttle_events=None if heat is None or heat_after is None else max(0, heat_after - heat),
        readings=tuple(readings),
    )


def _throttle_events(root: Path, cpu: Cpu) -> int | None:
    """Return the events of overheating since the start, over cores and packages; None where nothing counts them."""
    folders = [root / f"sys/devices/system/cpu/cpu{core[0]}/thermal_throttle" for core in cpu.core_siblings]
    counts = [read_int(folder / f"{part}_throttle_count") for folder in folders for part in ("core", "package")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _kinds_of_cores(root: Path, cpu: Cpu) -> tuple[tuple[str, tuple[int, ...]], ...]:
    # Intel's hybrid processors have a counter unit for each kind of core.
    units = (("cpu_core", "performance"), ("cpu_atom", "efficiency"), ("cpu_lowpower", "low-power"))
    named = [(name, parse_cpu_list(read_text(root / f"sys/devices/{unit}/cpus"))) for unit, name in units]
    kinds = [(name, cpus) for name, cpus in named if cpus]
    if not kinds:
        # Arm's big and little cores: the kernel's estimate, 1024 for the fastest.
        capacities: dict[int, list[int]] = {}
        for number in sorted(each for core in cpu.core_siblings for each in core):
            capacity = read_int(root / f"sys/devices/system/cpu/cpu{number}/cpu_capacity")
            if capacity is not None:
                capacities.setdefault(capacity, []).append(number)
        kinds = [(f"{capacity / 1024:.0%} speed", tuple(capacities[capacity])) for capacity in sorted(capacities)][::-1]
    return tuple(kinds) if len(kinds) > 1 else ()


def _on_battery(root: Path) -> bool | None:
    folder = root / "sys/class/power_supply"
    supplies = sorted(folder.iterdir()) if folder.is_dir() else []
    # A mouse has a battery too: those have the scope "Device".
    batteries = [
        each for each in supplies if read_text(each / "type") == "Battery" and read_text(each / "scope") != "Device"
    ]
    if not batteries:
        return None
    mains = [online for each in supplies if (online := read_int(each / "online")) is not None]
    return not any(mains) if mains else any(read_text(each / "status") == "Discharging" for each in batteries)


def _load_averages(root: Path) -> tuple[float, float] | None:
    fields = (read_text(root / "proc/loadavg") or "").split()
    try:
        return float(fields[0]), float(fields[1])
    except (IndexError, ValueError):
        return None


def _telling_variables(variables: Mapping[str, str], passed_on: Collection[str]) -> tuple[Variable, ...]:
    telling = re.compile("|".join(map(fnmatch.translate, _TELLING_VARIABLES)))
    return tuple(
        Variable(name, name in passed_on) for name in sorted(variables) if variables[name] and telling.match(name)
    )


#: Name and CPU seconds of processes, by process number and start.
_Times = dict[tuple[int, float], tuple[str, float]]


def _process_times() -> _Times:
    times: _Times = {}
    own = psutil.Process()
    for process in psutil.process_iter(["pid", "ppid", "create_time", "name", "cpu_times"]):
        seen = process.info
        if own.pid in (seen["pid"], seen["ppid"]) or seen["cpu_times"] is None or not seen["name"]:
            continue
        spent = seen["cpu_times"].user + seen["cpu_times"].system
        times[seen["pid"], seen["create_time"]] = seen["name"], spent
    return times


def _busiest(before: _Times, after: _Times, seconds: float) -> tuple[tuple[str, float], ...]:
    """Return other processes by name; those that began and ended meanwhile are not seen."""
    shares: dict[str, float] = {}
    for key, (name, spent) in after.items():
        share = (spent - before.get(key, (name, 0.0))[1]) / seconds if seconds > 0 else 0.0
        shares[name] = shares.get(name, 0.0) + share
    busy = [(name, share) for name, share in shares.items() if share >= _BUSY_SHARE]
    return tuple(sorted(busy, key=lambda each: (-each[1], each[0])))


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Judge the facts: every finding, the worst first, and of one severity in the order of the checks.

    The current load comes before the settings: it is what most often spoils a number.
    """
    return _sorted(chain(_load(facts), _checked_settings(facts)), facts.settings)


def faults(settings: Settings) -> tuple[Finding, ...]:
    """Judge the settings alone, which takes no time, and leave out what is fine."""
    found = _sorted(_checked_settings(Facts(settings, None)), settings)
    return tuple(each for each in found if each.severity is not Severity.FINE)


def _sorted(findings: Iterable[Finding], settings: Settings) -> tuple[Finding, ...]:
    order = list(Severity)
    if settings.cpu.virtualisation.container:
        findings = map(_from_within, findings)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def _from_within(finding: Finding) -> Finding:
    """Say where to apply the remedy: a container sees the kernel's settings and cannot change them."""
    if finding.remedy is None or not finding.remedy.needs_root:
        return finding
    advice = f"{finding.remedy.advice} To be done on the container's host."
    return dataclasses.replace(finding, remedy=dataclasses.replace(finding.remedy, advice=advice))


def _finding(name: str, severity: Severity, seen: str, remedy: Remedy | None = None) -> Finding:
    title, why = _CHECKS[name]
    return Finding(name, title, severity, seen, why, remedy)


def _fine(name: str, seen: str) -> Finding:
    return _finding(name, Severity.FINE, seen)


def _checked_settings(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    yield _quota(settings.cpu)
    yield _mask(settings.cpu)
    yield _isolated(settings)
    yield _virtual(settings.cpu)
    yield _siblings(settings)
    yield from _core_kinds(settings)
    yield from _variables(settings)
    yield _governor(settings)
    yield _turbo(settings)
    yield _heat(settings, facts.sample)
    if settings.on_battery is not None:
        yield (
            _finding("power", Severity.HARMS, "battery", Remedy("Plug it in."))
            if settings.on_battery
            else _fine("power", "mains")
        )
    yield _memory(settings.memory)
    yield _swap(settings)
    yield _huge_pages(settings.memory)
    yield _numa_balancing(settings)


def _load(facts: Facts) -> Iterator[Finding]:
    sample, cpu = facts.sample, facts.settings.cpu
    if sample is None:
        yield _finding("load", Severity.UNKNOWN, facts.no_sample or "not sampled")
    else:
        yield _others(sample, cpu.capacity_cpus)
        yield _waiting(sample)
        if cpu.virtualisation.kind == "vm":
            yield _steal(sample.contention.steal_share)
        yield _repeatability(sample)
    if load := facts.settings.load_average:
        seen = f"{load[0]:.2f} over 1 minute, {load[1]:.2f} over 5, on {cpu.logical_cpus} CPUs"
        busy = load[0] >= 0.5 * cpu.logical_cpus
        yield (
            _finding("load_average", Severity.MAY_HARM, seen, Remedy(f"{_WAIT}."))
            if busy
            else _fine("load_average", seen)
        )


def _repeatability(sample: Sample) -> Finding:
    gemm = [each.gemm_flops_per_second for each in sample.readings]
    bandwidth = [each.bandwidth_bytes_per_second for each in sample.readings]
    spreads = [(max(rates) - min(rates)) / statistics.median(rates) for rates in (gemm, bandwidth)]
    seen = (
        f"{len(gemm)} readings: matrix products {statistics.median(gemm) / 1e9:.0f} GFLOP/s, spread {spreads[0]:.1%}"
        f"; memory {statistics.median(bandwidth) / 1e9:.1f} GB/s, spread {spreads[1]:.1%}"
    )
    worst = max(
        sum(spread >= limit for limit in limits)
        for spread, limits in zip(spreads, (_GEMM_SPREAD, _BANDWIDTH_SPREAD), strict=True)
    )
    severity = (Severity.FINE, Severity.MAY_HARM, Severity.HARMS)[worst]
    remedy = Remedy("Mend what else is listed here, then look again.") if worst else None
    return _finding("repeatability", severity, seen, remedy)


def _others(sample: Sample, cpus: float) -> Finding:
    others = sample.contention.others_cpus
    if others is None:
        return _finding("others", Severity.UNKNOWN, _NOT_REPORTED)
    named = sample.processes[:_PROCESSES_SHOWN]
    shown = [f"{name} {used:.2f}" for name, used in named]
    # What began or ended within the sample has no times to compare.
    rest = others - sum(used for _, used in named)
    if shown and rest >= _REST_CPUS:
        shown.append(f"the rest {rest:.2f}")
    seen = f"used {others:.2f} of {cpus:g} CPUs" + (f": {', '.join(shown)}" if shown else "")
    severity = _graded(others / cpus, _OTHERS_LIMIT)
    remedy = Remedy(f"{_WAIT}. What is running:", "ps -eo comm,pcpu --sort=-pcpu | head")
    return _finding("others", severity, seen, None if severity is Severity.FINE else remedy)


def _waiting(sample: Sample) -> Finding:
    share = sample.contention.pressure_share
    waits = [each.waiting_share for each in sample.readings if each.waiting_share is not None]
    own = statistics.mean(waits) if waits else None
    parts = [f"some program {share:.1%} of the time"] if share is not None else []
    if own is not None:
        parts.append(f"the sentinel {own:.1%} of its own time")
    if not parts:
        return _finding("waiting", Severity.UNKNOWN, _NOT_REPORTED)
    # Starting the sentinel alone makes some process wait now and then: there is no "may harm" here.
    harms = _graded(max(share or 0.0, own or 0.0), _WAITING_LIMIT) is Severity.HARMS
    seen = ", ".join(parts)
    return _finding("waiting", Severity.HARMS, seen, Remedy(f"{_WAIT}.")) if harms else _fine("waiting", seen)


def _steal(share: float | None) -> Finding:
    if share is None:
        return _finding("steal", Severity.UNKNOWN, _NOT_REPORTED)
    severity = _graded(share, _WAITING_LIMIT)
    remedy = Remedy("Measure at another hour, or take an instance with dedicated CPUs.")
    return _finding("steal", severity, f"{share:.1%} of the time wanted", None if severity is Severity.FINE else remedy)


def _graded(share: float, limit: float) -> Severity:
    if share >= limit:
        return Severity.HARMS
    return Severity.MAY_HARM if share >= limit / 5 else Severity.FINE


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers as the kernel and taskset write them: "0-3,8"."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1][1:] = [cpu]
        else:
            ranges.append([cpu])
    return ",".join("-".join(map(str, each)) for each in ranges)


def _quota(cpu: Cpu) -> Finding:
    quota = cpu.quota_cpus
    if quota is None:
        return _fine("cpu_quota", "none")
    seen = f"{quota:g} CPUs' worth of time on {len(cpu.affinity)} CPUs"
    if quota >= len(cpu.affinity):
        return _fine("cpu_quota", seen)
    whole = max(1, math.floor(quota))
    container = cpu.virtualisation.container
    if container in _CONTAINERS_WITH_MASKS:
        remedy = Remedy(
            "Give the container whole CPUs instead of a share of time (on its host, in place of --cpus).",
            f"{container} run --cpuset-cpus={cpu_list(cpu.affinity[:whole])} ...",
        )
    else:
        remedy = Remedy(
            "Have this container or job given whole CPUs (a cpuset) instead of a quota; until then "
            f"measure at {whole} thread{'' if whole == 1 else 's'} or fewer."
        )
    # A whole number of CPUs is harmless as long as no more threads than that ever work.
    return _finding("cpu_quota", Severity.MAY_HARM if quota == whole else Severity.HARMS, seen, remedy)


def _mask(cpu: Cpu) -> Finding:
    if len(cpu.affinity) >= cpu.logical_cpus:
        return _fine("affinity", f"all {cpu.logical_cpus}")
    remedy = Remedy(
        "If the mask is not intended, allow this shell all CPUs; a container's mask is set on its host.",
        _BIND.format(cpu_list(each for core in cpu.core_siblings for each in core)),
    )
    seen = f"{len(cpu.affinity)} of {cpu.logical_cpus}: {cpu_list(cpu.affinity)}"
    return _finding("affinity", Severity.MAY_HARM, seen, remedy)


def _isolated(settings: Settings) -> Finding:
    inside = set(settings.isolated) & set(settings.cpu.affinity)
    outside = [cpu for cpu in settings.cpu.affinity if cpu not in inside]
    if not inside:
        seen = cpu_list(settings.isolated) + ", outside this process's mask" if settings.isolated else "none"
        return _fine("isolated_cpus", seen)
    seen = f"{cpu_list(inside)}, within this process's mask"
    if len(inside) == 1 and not outside:
        return _fine("isolated_cpus", seen)
    remedy = Remedy("Boot without isolcpus= to measure more than one thread.")
    if outside:
        remedy = Remedy(
            "Keep this shell off them, or boot without isolcpus=: on them, threads crowd together unless bound.",
            _BIND.format(cpu_list(outside)),
        )
    return _finding("isolated_cpus", Severity.HARMS, seen, remedy)


def _virtual(cpu: Cpu) -> Finding:
    virtual = cpu.virtualisation
    if virtual.kind != "vm":
        return _fine("virtual_machine", "no")
    remedy = Remedy(
        "Cannot be fixed from inside the virtual machine: take a dedicated host or a real machine for numbers that "
        "are to last, and here compare only what was measured in turns within one run."
    )
    seen = f"yes, under {virtual.hypervisor}" if virtual.hypervisor else "yes"
    return _finding("virtual_machine", Severity.MAY_HARM, seen, remedy)


def _siblings(settings: Settings) -> Finding:
    cpu = settings.cpu
    virtual = cpu.virtualisation.kind == "vm"
    if cpu.threads_per_core < 2:
        if virtual:
            return _finding("smt", Severity.UNKNOWN, "none shown, but a virtual CPU may be half a core")
        return _fine("smt", "none")
    seen = f"{cpu.threads_per_core} threads on each of {cpu.physical_cores} cores"
    used = [allowed for core in cpu.core_siblings if (allowed := set(core) & set(cpu.affinity))]
    if all(len(allowed) == 1 for allowed in used):
        return _fine("smt", f"{seen}; the mask holds one of each core")
    if settings.smt_control and not virtual:
        remedy = Remedy(
            "Measure at `--threads 1-cores`, or switch the siblings off until the next boot.",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control",
            needs_root=True,
        )
    else:
        remedy = Remedy(
            "Measure at `--threads 1-cores`, or allow this shell one thread of each core.",
            _BIND.format(cpu_list(map(min, used))),
        )
    return _finding("smt", Severity.MAY_HARM, seen, remedy)


def _core_kinds(settings: Settings) -> Iterator[Finding]:
    allowed = set(settings.cpu.affinity)
    kinds = [(name, shared) for name, cpus in settings.core_kinds if (shared := sorted(allowed.intersection(cpus)))]
    seen = ", ".join(f"{name} {cpu_list(cpus)}" for name, cpus in kinds)
    if len(kinds) == 1:
        yield _fine("core_kinds", seen)
    elif kinds:
        name, cpus = kinds[0]
        remedy = Remedy(f"Allow this shell the {name} cores alone.", _BIND.format(cpu_list(cpus)))
        yield _finding("core_kinds", Severity.HARMS, seen, remedy)


def _variables(settings: Settings) -> Iterator[Finding]:
    kept = [each.name for each in settings.variables if each.passed_on]
    dropped = [each.name for each in settings.variables if not each.passed_on]
    if kept:
        advice = "Unset what the frameworks do not need, in the shell that starts dlbench."
        remedy = Remedy(advice, shlex.join(["unset", *kept]))
        yield _finding("variables_passed_on", Severity.MAY_HARM, _names(kept), remedy)
    yield _fine("variables", f"{_names(dropped)}: not passed on" if dropped else "none that matters")


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMES_SHOWN])} and {more} more"


def _unknown(name: str, settings: Settings) -> Finding:
    hidden = settings.cpu.virtualisation.kind == "vm"
    return _finding(name, Severity.UNKNOWN, _HIDDEN if hidden else _NOT_REPORTED)


def _governor(settings: Settings) -> Finding:
    governor = settings.cpu.frequency.governor
    if governor is None:
        return _unknown("governor", settings)
    if governor == "performance":
        return _fine("governor", governor)
    remedy = Remedy(
        "Set it, until the next boot.",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        needs_root=True,
    )
    return _finding("governor", Severity.HARMS, governor.replace(",", ", "), remedy)


def _turbo(settings: Settings) -> Finding:
    frequency = settings.cpu.frequency
    if frequency.boost is None:
        return _unknown("turbo", settings)
    if not frequency.boost:
        return _fine("turbo", "off")
    value = 1 if settings.boost_file and settings.boost_file.endswith("no_turbo") else 0
    remedy = Remedy(
        "For scaling curves switch it off until the next boot; comparisons in turns within one run may keep it.",
        f"echo {value} | sudo tee {settings.boost_file}",
        needs_root=True,
    )
    seen = "on" if frequency.maximum_mhz is None else f"on, up to {frequency.maximum_mhz:.0f} MHz"
    return _finding("turbo", Severity.MAY_HARM, seen, remedy)


def _heat(settings: Settings, sample: Sample | None) -> Finding:
    since_start = settings.throttle_events
    if since_start is None:
        return _unknown("heat", settings)
    now = sample.throttle_events if sample else None
    remedy = Remedy("Let it cool down, clear its fans and vents, and put pauses between runs.")
    if sample and now:
        return _finding("heat", Severity.HARMS, f"{now} times in {sample.seconds:.1f} s", remedy)
    if since_start:
        seen = f"{since_start} times since it was started" + (", not now" if now is not None else "")
        return _finding("heat", Severity.MAY_HARM, seen, remedy)
    return _fine("heat", "never since it was started")


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / _GIB:.3g} GiB"


def _memory(memory: Memory) -> Finding:
    seen = f"{_gib(memory.available_bytes)} of {_gib(memory.total_bytes)} available"
    room = memory.available_bytes
    limited = memory.limit_bytes is not None and memory.limit_bytes < memory.total_bytes
    if memory.limit_bytes is not None and limited:
        seen += f", limited to {_gib(memory.limit_bytes)} here"
        room = min(room, memory.limit_bytes)
    if room >= _ENOUGH_BYTES:
        return _fine("memory", seen)
    advice = "Raise the limit of this container or job" if limited else "End programs that hold much of it"
    remedy = Remedy(f"{advice}, or leave out the largest networks and mini-batches.")
    return _finding("memory", Severity.MAY_HARM, seen, remedy)


def _swap(settings: Settings) -> Finding:
    memory = settings.memory
    if not memory.swap_total_bytes:
        return _fine("swap", "none")
    used = memory.swap_total_bytes - memory.swap_free_bytes
    willing = "" if settings.swappiness is None else f", swappiness {settings.swappiness}"
    seen = f"{_gib(used) if used else 'nothing'} of {_gib(memory.swap_total_bytes)} in use{willing}"
    if used < _MUCH_SWAPPED * memory.total_bytes:
        return _fine("swap", seen)
    remedy = Remedy("End programs that hold much memory: what is swapped out does not fit into what is left.")
    if used < memory.available_bytes:
        remedy = Remedy("Bring the pages back and do without swap while measuring.", "sudo swapoff --all", True)
    return _finding("swap", Severity.MAY_HARM, seen, remedy)


def _huge_pages(memory: Memory) -> Finding:
    setting = memory.transparent_huge_pages
    if setting is None:
        return _finding("huge_pages", Severity.UNKNOWN, _NOT_REPORTED)
    if setting != "always":
        return _fine("huge_pages", setting)
    remedy = Remedy(
        "Leave the choice to each program, until the next boot.",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        needs_root=True,
    )
    return _finding("huge_pages", Severity.MAY_HARM, setting, remedy)


def _numa_balancing(settings: Settings) -> Finding:
    balancing, nodes = settings.memory.numa_balancing, settings.cpu.numa_nodes
    if nodes < 2:
        return _fine("numa_balancing", "one node, nothing to balance")
    if balancing is None:
        return _finding("numa_balancing", Severity.UNKNOWN, _NOT_REPORTED)
    if not balancing:
        return _fine("numa_balancing", f"off, {nodes} nodes")
    remedy = Remedy("Switch it off, until the next boot.", "sudo sysctl kernel.numa_balancing=0", needs_root=True)
    return _finding("numa_balancing", Severity.MAY_HARM, f"on, {nodes} nodes", remedy)

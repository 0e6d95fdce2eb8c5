"""The facts that a doctor judges by: how this machine is set up, and what happens on it just now.

The first are files of /proc and /sys under a root, so that recorded trees can stand for other machines; the second are
a sample of a few seconds. Nothing is changed. No fact holds a user's name or a path: of variables only the names are
kept, of processes only their own names.
"""

import fnmatch
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from dlbench.hardware_probe import pressure, sentinel
from dlbench.hardware_probe._files import ROOT, parse_cpu_list, read_int, read_text
from dlbench.hardware_probe.cpu import Cpu, probe_cpu
from dlbench.hardware_probe.memory import Memory, probe_memory
from dlbench.hardware_probe.pressure import Contention
from dlbench.hardware_probe.sentinel import Reading

# Variables by which a shell changes how fast numerical programs run; a trailing * stands for any ending.
_TELLING_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "BLIS_*",
    "CUDA_VISIBLE_DEVICES",
    "DNNL_*",
    "GLIBC_TUNABLES",
    "GOMP_*",
    "GOTO_NUM_THREADS",
    "KMP_*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MALLOC_*",
    "MKL_*",
    "MXNET_*",
    "NPY_DISABLE_CPU_FEATURES",
    "NUMEXPR_*",
    "OMP_*",
    "ONEDNN_*",
    "OPENBLAS_*",
    "PYTHONMALLOC",
    "PYTHONPATH",
    "PYTORCH_*",
    "TF_ENABLE_*",
    "TF_NUM_*",
    "TF_XLA_FLAGS",
    "TORCHINDUCTOR_*",
    "TORCH_*",
    "VECLIB_MAXIMUM_THREADS",
    "XLA_FLAGS",
)

_BOOST_FILES = ("sys/devices/system/cpu/intel_pstate/no_turbo", "sys/devices/system/cpu/cpufreq/boost")

# A process that takes less than this share of one CPU is not worth its line.
_BUSY_SHARE = 0.02


@dataclass(frozen=True)
class Variable:
    """A variable of this shell that changes how fast numerical programs run."""

    name: str
    passed_on: bool
    """Whether what is measured gets to see it."""


@dataclass(frozen=True)
class Settings:
    """How the machine is set up; None where the system does not tell."""

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
class BusyProcess:
    """Other processes of one name."""

    name: str
    cpus: float
    """CPUs' worth of time that they took together."""


@dataclass(frozen=True)
class Sample:
    """What happened within a few seconds; this process and the sentinel's are not counted as others."""

    seconds: float
    contention: Contention
    processes: tuple[BusyProcess, ...]
    """The busiest first."""
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


#: Name and CPU seconds of the processes that are there, by process number and start.
_Times = dict[tuple[int, float], tuple[str, float]]


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
        core_kinds=_core_kinds(root, cpu),
        throttle_events=throttle_events(root, cpu),
        swappiness=read_int(root / "proc/sys/vm/swappiness"),
        on_battery=_on_battery(root),
        load_average=_load_average(root),
        variables=_variables(variables or {}, passed_on),
    )


def take_sample(
    count: int = 5, pause_seconds: float = 0.2, progress: Callable[[int], None] = lambda number: None, root: Path = ROOT
) -> Sample:
    """Take so many readings of the sentinel and watch this machine meanwhile, for about half a second each.

    `progress` is called with each reading's number, from 1. Raises SentinelError where the sentinel cannot run.
    """
    cpu = probe_cpu(root)
    heat, processes, before = throttle_events(root, cpu), _process_times(), pressure.snapshot(root)
    readings: list[Reading] = []
    for number in range(1, count + 1):
        progress(number)
        readings.append(sentinel.take())
        time.sleep(pause_seconds)
    after = pressure.snapshot(root)
    seconds = after.wall - before.wall
    heat_after = throttle_events(root, cpu)
    return Sample(
        seconds=seconds,
        contention=pressure.between(before, after),
        processes=_busiest(processes, _process_times(), seconds),
        throttle_events=None if heat is None or heat_after is None else max(0, heat_after - heat),
        readings=tuple(readings),
    )


def throttle_events(root: Path, cpu: Cpu) -> int | None:
    """Return the events of overheating since the start, over cores and packages; None where nothing counts them."""
    folders = [root / f"sys/devices/system/cpu/cpu{core[0]}/thermal_throttle" for core in cpu.core_siblings]
    told = [read_int(folder / f"{part}_throttle_count") for folder in folders for part in ("core", "package")]
    counts = [count for count in told if count is not None]
    return sum(counts) if counts else None


def _core_kinds(root: Path, cpu: Cpu) -> tuple[tuple[str, tuple[int, ...]], ...]:
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


def _load_average(root: Path) -> tuple[float, float] | None:
    fields = (read_text(root / "proc/loadavg") or "").split()
    try:
        return float(fields[0]), float(fields[1])
    except (IndexError, ValueError):
        return None


def _variables(variables: Mapping[str, str], passed_on: Collection[str]) -> tuple[Variable, ...]:
    telling = re.compile("|".join(map(fnmatch.translate, _TELLING_VARIABLES)))
    return tuple(
        Variable(name, name in passed_on) for name in sorted(variables) if variables[name] and telling.match(name)
    )


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


def _busiest(before: _Times, after: _Times, seconds: float) -> tuple[BusyProcess, ...]:
    """Other processes by name; those that began and ended meanwhile are not seen."""
    shares: dict[str, float] = {}
    for key, (name, spent) in after.items():
        share = (spent - before.get(key, (name, 0.0))[1]) / seconds if seconds > 0 else 0.0
        shares[name] = shares.get(name, 0.0) + share
    busy = [BusyProcess(name, share) for name, share in shares.items() if share >= _BUSY_SHARE]
    return tuple(sorted(busy, key=lambda each: (-each.cpus, each.name)))

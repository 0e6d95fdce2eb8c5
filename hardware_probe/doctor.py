"""The doctor: find causes of bad measurements on this machine and advise how to fix them.

It changes nothing. `gather_facts` reads files of /proc and /sys under a root, so that recorded
trees can stand in for other machines. `take_sample` watches the machine for a few seconds.
`diagnose` judges both by a table of checks. Facts contain no user names and no paths. Address
randomisation is left out on purpose: each launch has its own layout, and launches are the unit of
statistics.
"""

import dataclasses
import fnmatch
import math
import re
import shlex
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from dlbench.hardware_probe import sentinel
from dlbench.hardware_probe.cpu import Cpu, probe_cpu
from dlbench.hardware_probe.files import ROOT, JsonRecord, parse_cpu_list, read_int, read_text
from dlbench.hardware_probe.memory import Memory, probe_memory
from dlbench.hardware_probe.sentinel import OTHERS_LIMIT, WAITING_LIMIT, Reading

# Variables by which a shell changes how fast numerical programs run. A trailing * stands for any
# ending.
TELLING_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "BLIS_*",
    "CUBLAS_*",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "CUDNN_*",
    "DNNL_*",
    "GLIBC_TUNABLES",
    "GOMP_*",
    "GOTO_NUM_THREADS",
    "JAX_*",
    "KMP_*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MALLOC_*",
    "MKLDNN_*",
    "MKL_*",
    "MXNET_*",
    "NCCL_*",
    "NPY_DISABLE_CPU_FEATURES",
    "NUMEXPR_*",
    "OMP_*",
    "ONEDNN_*",
    "OPENBLAS_*",
    "PYTHONMALLOC",
    "PYTHONPATH",
    "PYTORCH_*",
    "TF_DISABLE_*",
    "TF_ENABLE_*",
    "TF_FORCE_*",
    "TF_GPU_*",
    "TF_NUM_*",
    "TF_USE_*",
    "TF_XLA_FLAGS",
    "TORCHDYNAMO_*",
    "TORCHINDUCTOR_*",
    "TORCH_*",
    "TRITON_*",
    "VECLIB_MAXIMUM_THREADS",
    "XLA_*",
)
_BOOST_FILES = (
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/cpufreq/boost",
)
_KINDS_OF_CORES = ("performance", "efficiency", "low-power")
# Processes that use less than this share of one CPU are not listed.
_BUSY_SHARE = 0.02

# Spread of readings within a few seconds, (largest - smallest) / median: the limit of a quiet
# machine, and the one from which on nothing can be compared.
_GEMM_SPREAD = (0.03, 0.10)
_BANDWIDTH_SPREAD = (0.10, 0.30)
_NAMES_SHOWN = 4
_REST_CPUS = 0.1
_GIB = 1024**3
# With a margin: the 130 million parameters of fcn8 are half a gigabyte, and a framework may hold
# several copies (weights, gradients, an optimiser's and a parity check's) on top of its own
# gigabyte or two.
_ENOUGH_BYTES = 6 * _GIB
# Swapped-out pages of sleeping programs seldom come back. More than this share of the memory may
# harm.
_MUCH_SWAPPED = 0.01
# Launches on virtual machines measured 0.5 to 2 us. A step of a framework has up to 90,000 faults.
_CHEAP_FAULT_SECONDS = 1e-6
_FAULTS_SHOWN = 10_000
_FREE_PAGE_REPORTING = 5
_CONTAINERS_WITH_MASKS = ("docker", "podman")
_WAIT = "Stop programs that you do not need, or wait until they are done"
_BIND = "taskset --all-tasks --cpu-list --pid {} $$"


class Severity(StrEnum):
    """How much a finding harms measurement, the worst first."""

    HARMS = "harms"
    MAY_HARM = "may harm"
    UNKNOWN = "cannot tell"
    FINE = "fine"


@dataclass(frozen=True)
class Finding(JsonRecord):
    """The result of one check: the observation, its effect on measurements, and the remedy."""

    name: str
    """Stable, for scripts: "governor", "cpu_quota", ..."""
    title: str
    severity: Severity
    seen: str
    why: str
    advice: str = ""
    """One sentence, which introduces the command if any; empty where nothing needs fixing."""
    command: str | None = None
    """A shell command, ready to run; None where no command fixes it."""

    @property
    def needs_root(self) -> bool:
        """Return whether the command needs root."""
        return "sudo" in (self.command or "")


@dataclass(frozen=True)
class Sample:
    """The machine's load over a few seconds.

    This process and the sentinel's do not count as others.
    """

    seconds: float
    contention: dict[str, float | None]
    """As `sentinel.between` returns it."""
    processes: tuple[tuple[str, float], ...]
    """Names of other processes, with the CPUs that all of that name used; the busiest first."""
    throttle_events: int | None
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class Facts:
    """The machine's setup and a sample of its load; None where the system does not report it."""

    cpu: Cpu
    memory: Memory
    boost_file: str | None
    smt_control: bool
    isolated: tuple[int, ...]
    throttle_events: int | None
    """Thermal throttling events since boot."""
    swappiness: int | None
    on_battery: bool | None
    """None on machines without a battery."""
    load_average: tuple[float, float] | None
    """Over one and five minutes."""
    variables: dict[str, bool]
    """Variables of this shell that change the speed of programs; True: frameworks inherit them."""
    free_memory_returns: bool | None = None
    """Whether this virtual machine returns free memory to its host; None: no balloon device."""
    sample: Sample | None = None
    no_sample: str = "not sampled"
    fault_seconds: float | None = None
    """Of one minor page fault; None where it was not measured."""


def gather_facts(
    root: Path = ROOT, variables: Mapping[str, str] | None = None, passed_on: Collection[str] = ()
) -> Facts:
    """Read the setup of this machine or a recorded one.

    `passed_on` names the variables that frameworks inherit.
    """
    cpu = probe_cpu(root)
    system = root / "sys/devices/system/cpu"
    load = re.match(r"([\d.]+) ([\d.]+) ", read_text(root / "proc/loadavg") or "")
    telling = re.compile("|".join(map(fnmatch.translate, TELLING_VARIABLES)))
    telling_names = []
    for name, value in sorted((variables or {}).items()):
        if value and telling.match(name):
            telling_names.append(name)
    boost_file = None
    for file in _BOOST_FILES:
        if read_int(root / file) is not None:
            boost_file = f"/{file}"
            break
    load_average = None
    if load:
        load_average = (float(load[1]), float(load[2]))
    return Facts(
        cpu=cpu,
        memory=probe_memory(root),
        boost_file=boost_file,
        smt_control=read_text(system / "smt/control") in ("on", "off"),
        isolated=parse_cpu_list(read_text(system / "isolated")),
        throttle_events=_throttle_events(root, cpu),
        swappiness=read_int(root / "proc/sys/vm/swappiness"),
        on_battery=_on_battery(root / "sys/class/power_supply"),
        load_average=load_average,
        variables={name: name in passed_on for name in telling_names},
        free_memory_returns=_free_memory_returns(root / "sys/bus/virtio/drivers/virtio_balloon"),
    )


def _free_memory_returns(driver: Path) -> bool | None:
    """Return whether a balloon device has negotiated free page reporting.

    It is the virtio specification's feature 5.
    """
    devices = sorted(driver.glob("virtio*"))
    if not devices:
        return None
    for device in devices:
        bits = read_text(device / "features") or ""
        if bits[_FREE_PAGE_REPORTING : _FREE_PAGE_REPORTING + 1] == "1":
            return True
    return False


def take_sample(count: int = 5, pause_seconds: float = 0.2, root: Path = ROOT) -> Sample:
    """Take `count` sentinel readings, about half a second each, and watch this machine.

    Raises ProbeError where the sentinel cannot run.
    """
    cpu = probe_cpu(root)
    events_before = _throttle_events(root, cpu)
    times_before = _process_times()
    before = sentinel.snapshot(root)
    readings: list[Reading] = []
    for _ in range(count):
        readings.append(sentinel.take())
        time.sleep(pause_seconds)
    after = sentinel.snapshot(root)
    events_after = _throttle_events(root, cpu)
    throttle_events: int | None = None
    if events_before is not None and events_after is not None:
        throttle_events = max(0, events_after - events_before)
    # Processes by name. Those that start and end within the sample are missed.
    seconds = after.wall - before.wall
    shares: dict[str, float] = {}
    for process, (name, spent) in _process_times().items():
        _, spent_before = times_before.get(process, (name, 0.0))
        shares[name] = shares.get(name, 0.0) + (spent - spent_before) / seconds
    busy = [(name, share) for name, share in shares.items() if share >= _BUSY_SHARE]
    return Sample(
        seconds=seconds,
        contention=sentinel.between(before, after),
        processes=tuple(sorted(busy, key=_by_share)),
        throttle_events=throttle_events,
        readings=tuple(readings),
    )


def _by_share(process: tuple[str, float]) -> tuple[float, str]:
    """Return a sort key: the busiest process first."""
    name, share = process
    return -share, name


def _throttle_events(root: Path, cpu: Cpu) -> int | None:
    """Return the thermal throttling events since boot, over cores and packages.

    It is None where nothing counts them.
    """
    counts = []
    for core in cpu.core_siblings:
        folder = root / f"sys/devices/system/cpu/cpu{core[0]}/thermal_throttle"
        for part in ("core", "package"):
            count = read_int(folder / f"{part}_throttle_count")
            if count is not None:
                counts.append(count)
    if not counts:
        return None
    return sum(counts)


def _on_battery(folder: Path) -> bool | None:
    supplies = sorted(folder.iterdir()) if folder.is_dir() else []
    has_battery = discharging = False
    mains = []
    for supply in supplies:
        has_battery = has_battery or _is_machine_battery(supply)
        discharging = discharging or read_text(supply / "status") == "Discharging"
        online = read_int(supply / "online")
        if online is not None:
            mains.append(online)
    if not has_battery:
        return None
    if mains:
        return not any(mains)
    return discharging


def _is_machine_battery(supply: Path) -> bool:
    # A mouse has a battery too. Such batteries have the scope "Device".
    return read_text(supply / "type") == "Battery" and read_text(supply / "scope") != "Device"


def _process_times() -> dict[tuple[int, float], tuple[str, float]]:
    """Return name and CPU seconds of other processes, by process number and start."""
    times = {}
    own = psutil.Process().pid
    for process in psutil.process_iter(["pid", "ppid", "create_time", "name", "cpu_times"]):
        facts = process.info
        if own in (facts["pid"], facts["ppid"]):
            continue
        if facts["cpu_times"] is not None and facts["name"]:
            spent = facts["cpu_times"].user + facts["cpu_times"].system
            times[facts["pid"], facts["create_time"]] = facts["name"], spent
    return times


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers as the kernel and taskset write them: "0-3,8"."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1][1:] = [cpu]
        else:
            ranges.append([cpu])
    return ",".join("-".join(map(str, ends)) for ends in ranges)


#: The result of a check: severity, observation, advice, command. None: it does not apply to this
#: machine.
_Result = tuple[Severity, str, str, str | None] | None


def _fine(seen: str) -> _Result:
    return Severity.FINE, seen, "", None


def _harms(seen: str, advice: str, command: str | None = None) -> _Result:
    return Severity.HARMS, seen, advice, command


def _may_harm(seen: str, advice: str, command: str | None = None) -> _Result:
    return Severity.MAY_HARM, seen, advice, command


def _graded(
    share: float, limit: float, seen: str, advice: str, command: str | None = None
) -> _Result:
    """Judge a share of time, or of the CPUs.

    It harms from the limit on, and may harm from a fifth of it on.
    """
    if share < limit / 5:
        return _fine(seen)
    if share < limit:
        return _may_harm(seen, advice, command)
    return _harms(seen, advice, command)


def _unknown(facts: Facts | None = None) -> _Result:
    words = "not reported by this system"
    if facts is not None and facts.cpu.virtualisation.kind == "vm":
        words = "hidden by the host of this virtual machine"
    return Severity.UNKNOWN, words, "", None


def _load(facts: Facts) -> _Result:
    if facts.sample is None:
        return Severity.UNKNOWN, facts.no_sample, "", None
    return None


def _others(facts: Facts) -> _Result:
    sample = facts.sample
    if sample is None:
        return None
    others = sample.contention["others_cpus"]
    cpus = facts.cpu.capacity_cpus
    if others is None:
        return _unknown()
    busiest = sample.processes[:_NAMES_SHOWN]
    shares = [f"{name} {used:.2f}" for name, used in busiest]
    # Processes that started or ended within the sample have no times to compare.
    rest = others - sum(used for _, used in busiest)
    if shares and rest >= _REST_CPUS:
        shares.append(f"the rest {rest:.2f}")
    seen = f"used {others:.2f} of {cpus:g} CPUs"
    if shares:
        seen += f": {', '.join(shares)}"
    command = "ps -eo comm,pcpu --sort=-pcpu | head"
    return _graded(others / cpus, OTHERS_LIMIT, seen, f"{_WAIT}. To list the busiest:", command)


def _waiting(facts: Facts) -> _Result:
    sample = facts.sample
    if sample is None:
        return None
    shares = []
    parts = []
    pressure = sample.contention["pressure_share"]
    if pressure is not None:
        shares.append(pressure)
        parts.append(f"some program {pressure:.1%} of the time")
    waits = []
    for reading in sample.readings:
        if reading.waiting_share is not None:
            waits.append(reading.waiting_share)
    if waits:
        own = statistics.mean(waits)
        shares.append(own)
        parts.append(f"the sentinel {own:.1%} of its own time")
    if not parts:
        return _unknown()
    # Merely starting the sentinel makes some process wait now and then, so this check has no "may
    # harm".
    if max(shares) >= WAITING_LIMIT:
        return _harms(", ".join(parts), f"{_WAIT}.")
    return _fine(", ".join(parts))


def _steal(facts: Facts) -> _Result:
    if facts.sample is None or facts.cpu.virtualisation.kind != "vm":
        return None
    share = facts.sample.contention["steal_share"]
    if share is None:
        return _unknown()
    advice = "Measure at another time, or use an instance with dedicated CPUs."
    return _graded(share, WAITING_LIMIT, f"{share:.1%} of the time wanted", advice)


def _repeatability(facts: Facts) -> _Result:
    sample = facts.sample
    if sample is None:
        return None
    gemm = [reading.gemm_flops_per_second for reading in sample.readings]
    bandwidth = [reading.bandwidth_bytes_per_second for reading in sample.readings]
    gemm_spread = _spread(gemm)
    bandwidth_spread = _spread(bandwidth)
    seen = (
        f"{len(gemm)} readings: matrix products {statistics.median(gemm) / 1e9:.0f} GFLOP/s, "
        f"spread {gemm_spread:.1%}; memory {statistics.median(bandwidth) / 1e9:.1f} GB/s, spread "
        f"{bandwidth_spread:.1%}"
    )
    advice = "Fix the other findings listed here, then check again."
    if gemm_spread >= _GEMM_SPREAD[1] or bandwidth_spread >= _BANDWIDTH_SPREAD[1]:
        return _harms(seen, advice)
    if gemm_spread >= _GEMM_SPREAD[0] or bandwidth_spread >= _BANDWIDTH_SPREAD[0]:
        return _may_harm(seen, advice)
    return _fine(seen)


def _spread(rates: Sequence[float]) -> float:
    return (max(rates) - min(rates)) / statistics.median(rates)


def _load_average(facts: Facts) -> _Result:
    if facts.load_average is None:
        return None
    minute, five = facts.load_average
    cpus = facts.cpu.logical_cpus
    seen = f"{minute:.2f} over 1 minute, {five:.2f} over 5, on {cpus} CPUs"
    if minute < 0.5 * cpus:
        return _fine(seen)
    return _may_harm(seen, f"{_WAIT}.")


def _cpu_quota(facts: Facts) -> _Result:
    cpu = facts.cpu
    quota = cpu.quota_cpus
    if quota is None:
        return _fine("none")
    seen = f"{quota:g} CPUs' worth of time on {len(cpu.affinity)} CPUs"
    if quota >= len(cpu.affinity):
        return _fine(seen)
    whole = max(1, math.floor(quota))
    container = cpu.virtualisation.container
    command = None
    if container in _CONTAINERS_WITH_MASKS:
        advice = (
            "On the container's host, give it whole CPUs instead of a share of CPU time (--cpus)."
        )
        command = f"{container} run --cpuset-cpus={cpu_list(cpu.affinity[:whole])} ..."
    else:
        threads = "1 thread" if whole == 1 else f"{whole} threads"
        advice = (
            "Give this container or job whole CPUs (a cpuset) instead of a quota; until then "
            f"measure with at most {threads}."
        )
    # A whole number of CPUs is harmless as long as no more threads than that ever run.
    if quota == whole:
        return _may_harm(seen, advice, command)
    return _harms(seen, advice, command)


def _affinity(facts: Facts) -> _Result:
    cpu = facts.cpu
    if len(cpu.affinity) >= cpu.logical_cpus:
        return _fine(f"all {cpu.logical_cpus}")
    all_cpus: list[int] = []
    for core in cpu.core_siblings:
        all_cpus += core
    return _may_harm(
        f"{len(cpu.affinity)} of {cpu.logical_cpus}: {cpu_list(cpu.affinity)}",
        "If the mask is not intended, allow this shell all CPUs; a container's mask is set on its "
        "host.",
        _BIND.format(cpu_list(all_cpus)),
    )


def _isolated_cpus(facts: Facts) -> _Result:
    inside = set(facts.isolated) & set(facts.cpu.affinity)
    outside = [cpu for cpu in facts.cpu.affinity if cpu not in inside]
    if not facts.isolated:
        return _fine("none")
    if not inside:
        return _fine(f"{cpu_list(facts.isolated)}, outside this process's mask")
    seen = f"{cpu_list(inside)}, within this process's mask"
    if outside:
        advice = (
            "Keep this shell off isolated CPUs, where unbound threads crowd together, or boot "
            "without isolcpus=."
        )
        return _harms(seen, advice, _BIND.format(cpu_list(outside)))
    if len(inside) == 1:
        return _fine(seen)
    return _harms(seen, "Boot without isolcpus= to measure more than one thread.")


def _virtual_machine(facts: Facts) -> _Result:
    virtual = facts.cpu.virtualisation
    if virtual.kind != "vm":
        return _fine("no")
    seen = "yes"
    if virtual.hypervisor:
        seen += f", under {virtual.hypervisor}"
    return _may_harm(
        seen,
        "This cannot be fixed inside the virtual machine: use a dedicated host or bare metal for "
        "results that are to last, and here compare only cells whose launches were interleaved "
        "within one run.",
    )


def _smt(facts: Facts) -> _Result:
    cpu = facts.cpu
    is_virtual = cpu.virtualisation.kind == "vm"
    if cpu.threads_per_core < 2 and is_virtual:
        return Severity.UNKNOWN, "none shown, but a virtual CPU may be half a core", "", None
    if cpu.threads_per_core < 2:
        return _fine("none")
    seen = f"{cpu.threads_per_core} threads on each of {cpu.physical_cores} cores"
    usable = []
    for core in cpu.core_siblings:
        cpus = set(core) & set(cpu.affinity)
        if cpus:
            usable.append(cpus)
    if all(len(cpus) == 1 for cpus in usable):
        return _fine(f"{seen}; the mask allows one thread of each core")
    if facts.smt_control and not is_virtual:
        remedy = "switch the siblings off until the next boot"
        command = "echo off | sudo tee /sys/devices/system/cpu/smt/control"
    else:
        remedy = "allow this shell one thread of each core"
        command = _BIND.format(cpu_list(map(min, usable)))
    return _may_harm(seen, f"Measure with `--threads 1-cores`, or {remedy}.", command)


def _core_kinds(facts: Facts) -> _Result:
    cpus: dict[int, list[int]] = {}
    for place, core in zip(facts.cpu.core_places, facts.cpu.core_siblings, strict=True):
        cpus.setdefault(place["kind"], []).extend(set(core) & set(facts.cpu.affinity))
    kinds = []
    for kind, allowed in sorted(cpus.items()):
        if allowed:
            kinds.append((_KINDS_OF_CORES[min(kind, 2)], allowed))
    if len(cpus) < 2 or not kinds:
        return None
    seen = ", ".join(f"{name} {cpu_list(allowed)}" for name, allowed in kinds)
    if len(kinds) == 1:
        return _fine(seen)
    name, fastest = kinds[0]
    advice = f"Restrict this shell to the {name} cores."
    return _harms(seen, advice, _BIND.format(cpu_list(fastest)))


def _variables_passed_on(facts: Facts) -> _Result:
    kept = [name for name, passed_on in facts.variables.items() if passed_on]
    if not kept:
        return None
    advice = "Unset what the frameworks do not need, in the shell that starts dlbench."
    return _may_harm(_names(kept), advice, shlex.join(["unset", *kept]))


def _variables(facts: Facts) -> _Result:
    dropped = [name for name, passed_on in facts.variables.items() if not passed_on]
    if not dropped:
        return _fine("none that matters")
    return _fine(f"{_names(dropped)}: not passed on")


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    if more <= 0:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMES_SHOWN])} and {more} more"


def _governor(facts: Facts) -> _Result:
    governor = facts.cpu.frequency.governor
    if governor is None:
        return _unknown(facts)
    if governor == "performance":
        return _fine(governor)
    command = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    seen = governor.replace(",", ", ")
    return _harms(seen, "Set it to `performance` until the next boot.", command)


def _turbo(facts: Facts) -> _Result:
    frequency = facts.cpu.frequency
    if frequency.boost is None:
        return _unknown(facts)
    if not frequency.boost:
        return _fine("off")
    seen = "on"
    if frequency.maximum_mhz is not None:
        seen = f"on, up to {frequency.maximum_mhz:.0f} MHz"
    value = 1 if facts.boost_file and facts.boost_file.endswith("no_turbo") else 0
    return _may_harm(
        seen,
        "For scaling curves, switch it off until the next boot; interleaved comparisons within "
        "one run may keep it.",
        f"echo {value} | sudo tee {facts.boost_file}",
    )


def _heat(facts: Facts) -> _Result:
    since_boot = facts.throttle_events
    sample = facts.sample
    if since_boot is None:
        return _unknown(facts)
    now = sample.throttle_events if sample else None
    advice = "Let the machine cool down, clean its fans and vents, and pause between runs."
    if sample and now:
        return _harms(f"{now} times in {sample.seconds:.1f} s", advice)
    if not since_boot:
        return _fine("never since boot")
    seen = f"{since_boot} times since boot"
    if now is not None:
        seen += ", not now"
    return _may_harm(seen, advice)


def _power(facts: Facts) -> _Result:
    if facts.on_battery is None:
        return None
    if facts.on_battery:
        return _harms("battery", "Plug it in.")
    return _fine("mains")


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / _GIB:.3g} GiB"


def _memory(facts: Facts) -> _Result:
    memory = facts.memory
    seen = f"{_gib(memory.available_bytes)} of {_gib(memory.total_bytes)} available"
    room = memory.available_bytes
    advice = "Stop programs that use a lot of it"
    if memory.limit_bytes is not None and memory.limit_bytes < memory.total_bytes:
        seen += f", limited to {_gib(memory.limit_bytes)} here"
        room = min(room, memory.limit_bytes)
        advice = "Raise the limit of this container or job"
    if room >= _ENOUGH_BYTES:
        return _fine(seen)
    return _may_harm(seen, f"{advice}, or leave out the largest networks and mini-batches.")


def _swap(facts: Facts) -> _Result:
    memory = facts.memory
    if not memory.swap_total_bytes:
        return _fine("none")
    used = memory.swap_total_bytes - memory.swap_free_bytes
    amount = _gib(used) if used else "nothing"
    seen = f"{amount} of {_gib(memory.swap_total_bytes)} in use"
    if facts.swappiness is not None:
        seen += f", swappiness {facts.swappiness}"
    if used < _MUCH_SWAPPED * memory.total_bytes:
        return _fine(seen)
    if used < memory.available_bytes:
        advice = "Load the pages back and keep swap off while measuring."
        return _may_harm(seen, advice, "sudo swapoff --all")
    return _may_harm(
        seen,
        "Stop programs that use a lot of memory: the swapped-out pages do not fit into the rest.",
    )


def _huge_pages(facts: Facts) -> _Result:
    setting = facts.memory.transparent_huge_pages
    if setting is None:
        return _unknown()
    if setting != "always":
        return _fine(setting)
    command = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    return _may_harm(setting, "Let each program choose, until the next boot.", command)


def _page_faults(facts: Facts) -> _Result:
    seconds = facts.fault_seconds
    if seconds is None:
        return None
    seen = f"{seconds * 1e6:.1f} us each, {_FAULTS_SHOWN * seconds:.3f} s for {_FAULTS_SHOWN:,}"
    if seconds < _CHEAP_FAULT_SECONDS:
        return _fine(seen)
    return _may_harm(
        seen,
        "Let freed memory stay with the process: the setting keep_heap of `dlbench run --tuning`.",
    )


def _free_memory(facts: Facts) -> _Result:
    if facts.free_memory_returns is None:
        return None
    if not facts.free_memory_returns:
        return _fine("kept by this virtual machine")
    advice = (
        "Let freed memory stay with the process (keep_heap), or have the host switch free page "
        "reporting off."
    )
    return _may_harm("returned to the host after about two seconds (free page reporting)", advice)


def _numa_balancing(facts: Facts) -> _Result:
    balancing = facts.memory.numa_balancing
    nodes = facts.cpu.numa_nodes
    if nodes < 2:
        return _fine("one node, nothing to balance")
    if balancing is None:
        return _unknown()
    if not balancing:
        return _fine(f"off, {nodes} nodes")
    return _may_harm(
        f"on, {nodes} nodes",
        "Switch it off, until the next boot.",
        "sudo sysctl kernel.numa_balancing=0",
    )


#: Title of each check, which is named after its function, and why it matters to a measurement. The
#: current load comes first, since it spoils measurements most often.
_CHECKS: dict[Callable[[Facts], _Result], str] = {
    _load: (
        "Current load. Other programs slow a measurement down, and no number is more precise than "
        "the machine is repeatable."
    ),
    _others: (
        "Other programs. They take CPUs, caches, memory bandwidth and turbo clock away from the "
        "measurement."
    ),
    _waiting: "Waiting for a CPU. A step that waits for a CPU is timed as if it computed.",
    _steal: (
        "CPU time withheld by the host. The host runs other guests on the CPUs that this machine "
        "believes it has."
    ),
    _repeatability: (
        "Repeatability. A few launches cannot resolve a difference smaller than the spread of "
        "identical work on one thread."
    ),
    _load_average: (
        "Load average. It counts programs that ran or waited for CPU or disk; a program that was "
        "busy a minute ago may be busy again."
    ),
    _cpu_quota: (
        "CPU quota. Once a control group has used up its CPU time, the kernel stops it until the "
        "end of the period, usually 100 ms."
    ),
    _affinity: (
        "CPUs allowed. The CPUs outside the mask are for other programs, which share caches, "
        "memory bandwidth and heat with this process."
    ),
    _isolated_cpus: (
        "Isolated CPUs. The kernel keeps other work away from isolated CPUs, but it does not "
        "spread threads over them either."
    ),
    _virtual_machine: (
        "Virtual machine. The host decides when and where virtual CPUs run and what else runs "
        "beside them, and the guest sees little of it."
    ),
    _smt: (
        "SMT siblings. Two threads on one core share its arithmetic units: threads beyond the "
        "number of cores add no hardware."
    ),
    _core_kinds: (
        "Kinds of cores. Every parallel step waits for its slowest thread, and chance decides "
        "which threads get the slow cores."
    ),
    _variables_passed_on: (
        "Variables passed on. The frameworks measured inherit these, so another shell may give "
        "different numbers."
    ),
    _variables: (
        "Variables of this shell. dlbench sets the variables of its launches itself; other "
        "programs started from this shell obey these."
    ),
    _governor: (
        "Frequency governor. Any governor but `performance` lets the clock follow the load, so the "
        "same step takes longer after a pause."
    ),
    _turbo: (
        "Turbo frequencies. The turbo clock drops as more cores are busy and as they warm up, "
        "which looks like poor scaling over threads."
    ),
    _heat: (
        "Thermal throttling. A processor that is too hot lowers its clock, for later steps more "
        "than for earlier ones."
    ),
    _power: (
        "Power. On battery the firmware caps the clock, and lowers the cap as the charge falls."
    ),
    _memory: "Memory. The kernel kills a launch that runs out of memory, or swaps first.",
    _swap: "Swap. A page that was swapped out comes back from disk in the middle of a step.",
    _huge_pages: (
        "Transparent huge pages. With `always`, chance decides how many huge pages a launch gets, "
        "so launches of the same cell differ."
    ),
    _page_faults: (
        "Page faults. Memory that a framework gives back after each step comes back page by page, "
        "and launches of the same cell differ in how much they give back."
    ),
    _free_memory: (
        "Free memory. The host must find a page that it took back before a launch can use it "
        "again, which made a page fault five times as expensive on one machine."
    ),
    _numa_balancing: (
        "NUMA balancing. The kernel unmaps pages to see which node uses them, and moves them "
        "between nodes in the middle of a step."
    ),
}
#: Checks of the present load, which need a sample.
_LOAD_CHECKS = ("load", "others", "waiting", "steal", "repeatability", "load_average")


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Judge the facts and return every finding, the worst first.

    Within a severity they are in the order of the checks.
    """
    findings = []
    for check, text in _CHECKS.items():
        result = check(facts)
        if result is None:
            continue
        severity, seen, advice, command = result
        title, _, why = text.partition(". ")
        name = check.__name__.removeprefix("_")
        finding = Finding(name, title, severity, seen, why, advice, command)
        if finding.needs_root and facts.cpu.virtualisation.container:
            # A container sees the kernel's settings and cannot change them.
            advice = f"{advice} Run this on the container's host."
            finding = dataclasses.replace(finding, advice=advice)
        findings.append(finding)
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return tuple(sorted(findings, key=lambda finding: ranks[finding.severity]))


def faults(facts: Facts) -> tuple[Finding, ...]:
    """Judge the settings alone, which takes no time, and return the findings that are not fine."""
    findings = []
    for finding in diagnose(facts):
        if finding.name not in _LOAD_CHECKS and finding.severity is not Severity.FINE:
            findings.append(finding)
    return tuple(findings)

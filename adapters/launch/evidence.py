"""What the operating system saw while the steps were timed: threads that worked, and others in the way.

Everything is read before and after the timed region, never within. What this system does not tell is None, never a
guess: on many virtual machines and in containers parts of /proc are absent.
"""

import os
import resource
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..protocol import Contention, ThreadEvidence
from . import companions
from .companions import read

_TICKS = os.sysconf("SC_CLK_TCK")


class Snapshot(NamedTuple):
    """One reading of the clocks and counters."""

    wall: float
    cpu: float
    thread_cpu: Optional[Dict[str, float]]  # seconds by thread id
    run_queue: Optional[Dict[str, float]]  # seconds waited by thread id
    involuntary: int
    voluntary: int
    major_faults: int
    pressure: Optional[float]
    pressure_avg10: Optional[float]
    steal: Optional[float]
    machine_cpu: Optional[float]  # seconds that the launch's CPUs together were busy
    throttled: Optional[float]
    company: companions.Companions = companions.Companions({}, 0.0)


def _schedules() -> Optional[Dict[str, List[int]]]:
    """Nanoseconds each thread ran and waited to run; no numbers of a thread that the kernel does not tell of."""
    try:
        names = os.listdir("/proc/self/task")
    except OSError:
        return None
    found = {}
    for name in names:
        fields = (read("/proc/self/task/%s/schedstat" % name) or "").split()
        if not fields and not os.path.isdir("/proc/self/task/%s" % name):
            continue  # it has ended meanwhile
        found[name] = [int(field) for field in fields[:2]] if len(fields) == 3 else []
    return found


def _thread_times(schedules: Optional[Dict[str, List[int]]]) -> Optional[Dict[str, float]]:
    if schedules is None:
        return None
    times = {}
    for name, schedule in schedules.items():
        if schedule and schedule[0]:
            times[name] = schedule[0] * 1e-9
            continue
        content = read("/proc/self/task/%s/stat" % name)
        if content is not None:
            times[name] = companions.seconds(companions.stat_fields(content))
    return times


def _run_queue(schedules: Optional[Dict[str, List[int]]]) -> Optional[Dict[str, float]]:
    if schedules is None or not all(schedules.values()):
        return None
    return {name: schedule[1] * 1e-9 for name, schedule in schedules.items()}


def _pressure(what: str) -> Optional[float]:
    content = read("/proc/pressure/cpu")
    if content is None:
        return None
    told = dict(word.split("=", 1) for word in content.splitlines()[0].split()[1:])
    return float(told[what]) if what in told else None


def _machine_times(cpus: Optional[Sequence[int]]) -> Tuple[Optional[float], Optional[float]]:
    """Return the seconds that these CPUs (None: all) were busy, and those that the hypervisor took of all CPUs."""
    told = {}
    for line in (read("/proc/stat") or "").splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("cpu"):
            told[name] = [int(field) / float(_TICKS) for field in rest.split()]
    if len(told.get("cpu", [])) < 8:
        return None, None
    names = ["cpu%d" % cpu for cpu in cpus or ()]
    busy = 0.0
    for name in names if names and all(name in told for name in names) else ["cpu"]:
        user, nice, system, _idle, _iowait, irq, softirq = told[name][:7]
        busy += user + nice + system + irq + softirq
    return busy, told["cpu"][7]


def _cgroups() -> List[Tuple[str, str]]:
    """Return where control groups of the CPU may be mounted, with this process's path below."""
    found = []
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        # What lies above a container's own group ("/../..") cannot be seen.
        path = "/" if ".." in path.split("/") else path
        if controllers == "":
            found.append(("/sys/fs/cgroup", path))
        elif "cpu" in controllers.split(","):
            found.append(("/sys/fs/cgroup/" + controllers, path))
            found.append(("/sys/fs/cgroup/cpu", path))
    return found


def _throttled() -> Optional[float]:
    """Return the seconds for which this process's group and those around it were throttled: any may have a quota."""
    for mount, path in _cgroups():
        levels = [name for name in path.split("/") if name]
        total: Optional[float] = None
        for depth in range(len(levels), -1, -1):
            for line in (read("/".join([mount] + levels[:depth] + ["cpu.stat"])) or "").splitlines():
                key, _, value = line.partition(" ")
                if key in ("throttled_usec", "throttled_time"):
                    total = (total or 0.0) + int(value) * (1e-6 if key == "throttled_usec" else 1e-9)
        if total is not None:
            return total
    return None


def snapshot(cpus: Optional[Sequence[int]] = None) -> Snapshot:
    """Read every clock and counter once; the launch may use these CPUs (None: all)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    total = _pressure("total")
    machine_cpu, steal = _machine_times(cpus)
    schedules = _schedules()
    return Snapshot(
        wall=time.perf_counter(),
        cpu=usage.ru_utime + usage.ru_stime,
        thread_cpu=_thread_times(schedules),
        run_queue=_run_queue(schedules),
        involuntary=usage.ru_nivcsw,
        voluntary=usage.ru_nvcsw,
        major_faults=usage.ru_majflt,
        pressure=None if total is None else total * 1e-6,
        pressure_avg10=_pressure("avg10"),
        steal=steal,
        machine_cpu=machine_cpu,
        throttled=_throttled(),
        company=companions.snapshot(),
    )


def _difference(after: Optional[float], before: Optional[float]) -> Optional[float]:
    return None if after is None or before is None else after - before


def thread_evidence(requested: int, framework_says: Optional[int], before: Snapshot, after: Snapshot) -> ThreadEvidence:
    """Return how the CPU time of the region was spread over threads: the process's and its companions'."""
    others = companions.cpu_seconds(before.company, after.company)
    spread: Optional[List[float]] = None
    if before.thread_cpu is not None and after.thread_cpu is not None:
        spread = sorted(
            companions.risen(before.thread_cpu, after.thread_cpu)
            + [each for each in companions.cpu_seconds_by_thread(before.company, after.company) if each > 0.0],
            reverse=True,
        )[:64]
    return ThreadEvidence(
        requested=requested,
        framework_says=framework_says,
        os_threads=None if after.thread_cpu is None else len(after.thread_cpu),
        cpu_seconds=after.cpu - before.cpu + sum(others),
        wall_seconds=after.wall - before.wall,
        cpu_seconds_by_thread=spread,
    )


def contention(before: Snapshot, after: Snapshot) -> Contention:
    """Return what stood in this process's way during the region."""
    waited: Optional[float] = None
    if before.run_queue is not None and after.run_queue is not None:
        waited = sum(companions.risen(before.run_queue, after.run_queue))
        waited += companions.waited_seconds(before.company, after.company)
    busy = _difference(after.machine_cpu, before.machine_cpu)
    own = after.cpu - before.cpu + sum(companions.cpu_seconds(before.company, after.company))
    return Contention(
        run_queue_seconds=waited,
        involuntary_switches=after.involuntary - before.involuntary,
        voluntary_switches=after.voluntary - before.voluntary,
        pressure_seconds=_difference(after.pressure, before.pressure),
        pressure_avg10_before=before.pressure_avg10,
        steal_seconds=_difference(after.steal, before.steal),
        throttled_seconds=_difference(after.throttled, before.throttled),
        major_faults=after.major_faults - before.major_faults,
        others_cpu_seconds=None if busy is None else max(0.0, busy - own),
    )


def reset_peak_memory() -> bool:
    """Let the kernel forget the peak resident size of this process and its descendants; False where it cannot."""
    for process in companions.processes():
        _reset_peak(process)
    return _reset_peak("self")


def _reset_peak(process: str) -> bool:
    try:
        with open("/proc/%s/clear_refs" % process, "w") as file:
            file.write("5")
        return True
    except OSError:
        return False


def peak_memory_bytes() -> int:
    """Return the peak resident sizes of this process and its living descendants, in bytes, added up.

    Each one's since its start or the last reset: at no moment were they larger together.
    """
    own = _peak("self")
    if own is None:
        # Linux counts ru_maxrss in KiB. It survives a reset: an upper bound.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return own + sum(_peak(process) or 0 for process in companions.processes())


def _peak(process: str) -> Optional[int]:
    for line in (read("/proc/%s/status" % process) or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None

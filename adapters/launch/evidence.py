"""What the operating system saw while the steps were timed: threads that worked, and others in the way.

Everything is read before and after the timed region, never within. What this system does not tell is None, never a
guess: on many virtual machines and in containers parts of /proc are absent.
"""

import ctypes
import os
import resource
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..protocol import Contention, Launch, ProtocolError, ThreadEvidence, read_launch

# Other processes that work for this launch: a framework's helpers, an adapter's forks.
#
# Their CPU time is the launch's own, or a step done by eight hidden processes would pass for one of a single thread.

_TICKS = os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that a helper forked twice is still counted.

    A descendant's descendants come to this process too, unless one nearer did the same.
    """
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER, Linux
    try:
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: nothing there counts other processes either


class Companions(NamedTuple):
    """The CPU seconds of this process's descendants up to now."""

    living: Dict[str, float]  # by process id
    ended: float  # of those that were waited for, their own descendants included
    threads: Dict[str, float] = {}  # of the living ones, by process and thread id
    waits: Dict[str, float] = {}  # seconds for which these threads could run and did not


def read_file(path: str) -> Optional[str]:
    """Return the content of a file; None where this system has no such file, or does not show it."""
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def stat_fields(content: str) -> List[str]:
    """Return the fields of a process's or thread's stat from its state on."""
    # The command may hold spaces and parentheses: fields count from behind its last one.
    return content.rpartition(")")[2].split()


def cpu_seconds_of(fields: List[str]) -> float:
    """Return the CPU seconds in the fields of a stat."""
    return (int(fields[11]) + int(fields[12])) / float(_TICKS)


def risen(before: Dict[str, float], after: Dict[str, float]) -> List[float]:
    """Return by how much each of the counters there after has risen; one that is new counts in full."""
    return [max(0.0, value - before.get(name, 0.0)) for name, value in after.items()]


def _times() -> Optional[Dict[str, List[str]]]:
    """Return the fields of every process's stat from its state on, by process id; None where there is no /proc."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    told = {name: read_file("/proc/%s/stat" % name) for name in names}
    return {name: stat_fields(content) for name, content in told.items() if content is not None}


def company() -> Companions:
    """Read the CPU time of every descendant of this process once."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = usage.ru_utime + usage.ru_stime
    stats = _times() or {}
    living = {}
    threads: Dict[str, float] = {}
    waits: Dict[str, float] = {}
    for name in _descendants(stats):
        living[name] = cpu_seconds_of(stats[name])
        _add_threads(name, threads, waits)
    return Companions(living, ended, threads, waits)


def processes() -> List[str]:
    """Return the process ids of the living descendants of this process."""
    return _descendants(_times() or {})


def _descendants(stats: Dict[str, List[str]]) -> List[str]:
    children: Dict[str, List[str]] = {}
    for name, fields in stats.items():
        children.setdefault(fields[1], []).append(name)
    found = []
    waiting = list(children.get(str(os.getpid()), []))
    while waiting:
        name = waiting.pop()
        found.append(name)
        waiting += children.get(name, [])
    return found


def _add_threads(process: str, threads: Dict[str, float], waits: Dict[str, float]) -> None:
    """Add the CPU seconds of each thread of a process, and those it waited for a CPU where the system tells."""
    try:
        names = os.listdir("/proc/%s/task" % process)
    except OSError:
        return  # it ended just now, or this system has no such folder
    for name in names:
        key = "%s/%s" % (process, name)
        stat, schedule = (read_file("/proc/%s/task/%s/%s" % (process, name, what)) for what in ("stat", "schedstat"))
        if stat is not None:
            threads[key] = cpu_seconds_of(stat_fields(stat))
        if schedule is not None and len(schedule.split()) == 3:
            waits[key] = int(schedule.split()[1]) * 1e-9


def cpu_seconds_by_process(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings, one number for each process; those that ended are one together."""
    # What ended brings all its time into `ended`; what of it was there before does not belong to the region.
    gone = sum(spent for name, spent in before.living.items() if name not in after.living)
    return risen(before.living, after.living) + [max(0.0, after.ended - before.ended - gone)]


def cpu_seconds_by_thread(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings of each thread of the living, and of what ended as one together."""
    return risen(before.threads, after.threads) + cpu_seconds_by_process(before, after)[-1:]


def waited_seconds(before: Companions, after: Companions) -> float:
    """Return the seconds for which the living's threads waited for a CPU between two readings, summed."""
    return sum(risen(before.waits, after.waits))


def oom_kills() -> int:
    """Return how many processes the kernel's out-of-memory killer has ended on this machine so far; 0: not told."""
    for line in (read_file("/proc/vmstat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill":
            return int(value)
    return 0


def cpus_of_worker(launch: Launch, worker: int) -> Optional[List[int]]:
    """Return the CPUs of this worker, from 0: its part of the launch's, as many as every other's; None: any."""
    if launch.cpus is None:
        return None
    each = len(launch.cpus) // launch.cell.world_size
    return launch.cpus[worker * each : (worker + 1) * each]


def bind(directory: str, worker: int = 0) -> None:
    """Bind this process to the CPUs that the launch names, a further worker to its part; `refusal` tells a failure.

    The first worker may turn out to drive all of them from its one process, or else is narrowed later.
    """
    try:
        launch = read_launch(directory)
        cpus = cpus_of_worker(launch, worker) if worker else launch.cpus
        if cpus is None:
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)
        # The kernel leaves out, without a word, those of a mask that are not there.
        if os.sched_getaffinity(0) != set(cpus):
            os.sched_setaffinity(0, before)
    except (ProtocolError, AttributeError, OSError, OverflowError, ValueError, TypeError):
        # A mask that could not be set is refused by the worker (see `refusal`), as is a cell.json it cannot read.
        pass


def bind_threads(cpus: Optional[List[int]]) -> None:
    """Bind every thread of this process to these CPUs, as `apply` bound the process; None: to no others than before."""
    if cpus is None:
        return
    try:
        for name in os.listdir("/proc/self/task"):
            try:
                os.sched_setaffinity(int(name), cpus)
            except ProcessLookupError:
                pass  # this thread has ended, the others have not
    except (AttributeError, OSError, ValueError):
        pass  # `refusal` tells


def binding_refusal(cpus: Optional[List[int]]) -> str:
    """Return why this process is not bound to these CPUs and no others; empty where it is, or where None are named."""
    if cpus is None:
        return ""
    if not hasattr(os, "sched_getaffinity"):
        return "CPUs %s: this system cannot bind a process to CPUs" % _listed(cpus)
    allowed = sorted(os.sched_getaffinity(0))
    if allowed == sorted(set(cpus)):
        return ""
    return "CPUs %s: this process cannot be bound to them, it may use %s" % (_listed(cpus), _listed(allowed))


def _listed(cpus: List[int]) -> str:
    return ",".join(str(cpu) for cpu in cpus[:16]) + (",..." if len(cpus) > 16 else "") if cpus else "(none)"


def cpus_allowed() -> Optional[List[int]]:
    """Return the CPUs that the threads of this process may use between them, rising; None where nothing tells.

    Of all threads, since thread pools bind theirs one by one, the main one too.
    """
    try:
        cpus = set(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None
    try:
        threads = [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        threads = []
    for thread in threads:
        try:
            cpus |= os.sched_getaffinity(thread)
        except OSError:
            pass  # it has ended
    return sorted(cpus)


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
    company: Companions = Companions({}, 0.0)


def _schedules() -> Optional[Dict[str, List[int]]]:
    """Nanoseconds each thread ran and waited to run; no numbers of a thread that the kernel does not tell of."""
    try:
        names = os.listdir("/proc/self/task")
    except OSError:
        return None
    found = {}
    for name in names:
        fields = (read_file("/proc/self/task/%s/schedstat" % name) or "").split()
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
        content = read_file("/proc/self/task/%s/stat" % name)
        if content is not None:
            times[name] = cpu_seconds_of(stat_fields(content))
    return times


def _run_queue(schedules: Optional[Dict[str, List[int]]]) -> Optional[Dict[str, float]]:
    if schedules is None or not all(schedules.values()):
        return None
    return {name: schedule[1] * 1e-9 for name, schedule in schedules.items()}


def _pressure(what: str) -> Optional[float]:
    content = read_file("/proc/pressure/cpu")
    if content is None:
        return None
    told = dict(word.split("=", 1) for word in content.splitlines()[0].split()[1:])
    return float(told[what]) if what in told else None


def _machine_times(cpus: Optional[Sequence[int]]) -> Tuple[Optional[float], Optional[float]]:
    """Return the seconds that these CPUs (None: all) were busy, and those that the hypervisor took of all CPUs."""
    told = {}
    for line in (read_file("/proc/stat") or "").splitlines():
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
    for line in (read_file("/proc/self/cgroup") or "").splitlines():
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
            for line in (read_file("/".join([mount] + levels[:depth] + ["cpu.stat"])) or "").splitlines():
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
        company=company(),
    )


def _difference(after: Optional[float], before: Optional[float]) -> Optional[float]:
    return None if after is None or before is None else after - before


def thread_evidence(requested: int, framework_says: Optional[int], before: Snapshot, after: Snapshot) -> ThreadEvidence:
    """Return how the CPU time of the region was spread over threads: the process's and its companions'."""
    others = cpu_seconds_by_process(before.company, after.company)
    spread: Optional[List[float]] = None
    if before.thread_cpu is not None and after.thread_cpu is not None:
        spread = sorted(
            risen(before.thread_cpu, after.thread_cpu)
            + [each for each in cpu_seconds_by_thread(before.company, after.company) if each > 0.0],
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
        waited = sum(risen(before.run_queue, after.run_queue))
        waited += waited_seconds(before.company, after.company)
    busy = _difference(after.machine_cpu, before.machine_cpu)
    own = after.cpu - before.cpu + sum(cpu_seconds_by_process(before.company, after.company))
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
    for process in processes():
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
    return own + sum(_peak(process) or 0 for process in processes())


def _peak(process: str) -> Optional[int]:
    for line in (read_file("/proc/%s/status" % process) or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None

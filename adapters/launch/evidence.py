"""Operating-system evidence of the timed steps: busy threads, and contention with other programs.

Everything is read before and after the timed region, never within a sample. A value that this
system does not report is None, never a guess. On many virtual machines and in containers parts of
/proc are absent.
"""

import ctypes
import mmap
import os
import re
import resource
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..protocol import Contention, Launch, ProtocolError, SampleCounts, ThreadEvidence, read_launch

_TICKS = float(os.sysconf("SC_CLK_TCK"))
#: Threads in a record's spread of CPU time.
MOST_THREADS = 64


class Companions(NamedTuple):
    """CPU seconds up to now of this process's descendants.

    They are a framework's helpers, or an adapter's forks. Their CPU time counts for the launch, or
    a step by eight hidden processes would pass for a single-threaded one.
    """

    living: Dict[str, float]  # by process id
    ended: float  # of those that were waited for, their own descendants included
    threads: Dict[str, float] = {}  # of the living ones, by process and thread id
    waits: Dict[str, float] = {}  # seconds for which these threads could run and did not


class LaunchCounters(NamedTuple):
    """One reading of the clocks and counters, in seconds unless noted otherwise."""

    wall: float
    cpu: float
    thread_cpu: Optional[Dict[str, float]]  # by thread id
    run_queue: Optional[Dict[str, float]]  # waited, by thread id
    involuntary: int
    voluntary: int
    major_faults: int
    pressure: Optional[float]
    pressure_avg10: Optional[float]  # per cent
    steal: Optional[float]
    machine_cpu: Optional[float]  # that the launch's CPUs together were busy
    throttled: Optional[float]
    companions: Companions = Companions({}, 0.0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends.

    Thus a helper that was forked twice is still counted. A descendant's descendants come to this
    process too, unless one nearer did the same.
    """
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER, Linux
    try:
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: nothing there counts other processes either


def read_file(path: str) -> Optional[str]:
    """Return the content of a file; None where this system does not have or show it."""
    try:
        # The text need not be ASCII, which Python 3.6 in the C locale would refuse to read.
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _list_numbers(folder: str) -> Optional[List[str]]:
    """Return the numbers that this folder of /proc lists: processes or threads."""
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return None


def _pairs(path: str) -> Dict[str, str]:
    """Return the rest of each line of a file by its first word."""
    pairs = {}
    for line in (read_file(path) or "").splitlines():
        words = line.split(None, 1)
        if len(words) == 2:
            pairs[words[0]] = words[1]
    return pairs


def stat_fields(content: str) -> List[str]:
    """Return the fields of a process's or thread's stat from its state on."""
    # The command may hold spaces and parentheses: fields count from behind its last one.
    return content.rpartition(")")[2].split()


def cpu_seconds_of(fields: List[str]) -> float:
    """Return the CPU seconds in the fields of a stat."""
    return (int(fields[11]) + int(fields[12])) / _TICKS


def thread_times(process: str) -> Optional[Tuple[Dict[str, float], Dict[str, float]]]:
    """Return a process's CPU seconds, and those waited for a CPU, by thread id.

    It is None without a list of threads.
    """
    names = _list_numbers("/proc/%s/task" % process)
    if names is None:
        return None
    cpu = {}
    waited = {}
    for name in names:
        folder = "/proc/%s/task/%s/" % (process, name)
        schedule = (read_file(folder + "schedstat") or "").split()
        if len(schedule) == 3:
            waited[name] = int(schedule[1]) * 1e-9
        if len(schedule) == 3 and int(schedule[0]):
            cpu[name] = int(schedule[0]) * 1e-9
        else:
            stat = read_file(folder + "stat")
            if stat is not None:  # else it has ended meanwhile
                cpu[name] = cpu_seconds_of(stat_fields(stat))
    return cpu, waited


def _descendants() -> Dict[str, List[str]]:
    """Return the stat, from its state on, of each living descendant of this process by its id."""
    stats = {}
    for name in _list_numbers("/proc") or ():
        content = read_file("/proc/%s/stat" % name)
        if content is not None:
            stats[name] = stat_fields(content)
    children: Dict[str, List[str]] = {}
    for name, fields in stats.items():
        children.setdefault(fields[1], []).append(name)
    names = list(children.get(str(os.getpid()), []))
    for name in names:
        names += children.get(name, [])
    return {name: stats[name] for name in names}


def companions() -> Companions:
    """Read the CPU time of every descendant of this process once."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    companions = Companions({}, usage.ru_utime + usage.ru_stime, {}, {})
    for process, fields in _descendants().items():
        companions.living[process] = cpu_seconds_of(fields)
        cpu, waited = thread_times(process) or ({}, {})
        for thread, seconds in cpu.items():
            companions.threads["%s/%s" % (process, thread)] = seconds
        for thread, seconds in waited.items():
            companions.waits["%s/%s" % (process, thread)] = seconds
    return companions


def increases(before: Dict[str, float], after: Dict[str, float]) -> List[float]:
    """Return the increase of each counter in ``after``; a new one counts in full."""
    return [max(0.0, value - before.get(name, 0.0)) for name, value in after.items()]


def cpu_seconds_by_process(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings: by process, and last of all that ended."""
    # A process that ended adds all its CPU time to `ended`. The part from before the region does
    # not count.
    gone = sum(spent for name, spent in before.living.items() if name not in after.living)
    return increases(before.living, after.living) + [max(0.0, after.ended - before.ended - gone)]


def cpu_seconds_by_thread(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings: by living thread, and last of all that ended."""
    return increases(before.threads, after.threads) + cpu_seconds_by_process(before, after)[-1:]


def oom_kills() -> int:
    """Return how many processes the out-of-memory killer has ended on this machine.

    It is 0 where this is unknown.
    """
    return int(_pairs("/proc/vmstat").get("oom_kill", 0))


def cpus_of_worker(launch: Launch, worker: int) -> Optional[List[int]]:
    """Return the CPUs of this worker, from 0; None: any.

    They are its part of the launch's CPUs, as many as every other's.
    """
    if launch.cpus is None:
        return None
    count = len(launch.cpus) // launch.cell.world_size
    return launch.cpus[worker * count : (worker + 1) * count]


def bind(directory: str, worker: int = 0) -> None:
    """Bind this process to the CPUs that the launch names, a further worker to its part.

    The first worker may turn out to drive all workers from its one process. If not, it is bound to
    its part later. A failure shows in `binding_refusal`.
    """
    try:
        launch = read_launch(directory)
        cpus = cpus_of_worker(launch, worker) if worker else launch.cpus
        if cpus is None:
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)
        # The kernel silently leaves out CPUs of a mask that are not there.
        if os.sched_getaffinity(0) != set(cpus):
            os.sched_setaffinity(0, before)
    except (ProtocolError, AttributeError, OSError, OverflowError, ValueError, TypeError):
        pass  # the worker refuses a mask that could not be set, and a cell.json that it cannot read


def bind_threads(cpus: Optional[List[int]]) -> None:
    """Bind every thread of this process to these CPUs; None: to no others than before."""
    if cpus is None:
        return
    for thread in _list_numbers("/proc/self/task") or ():
        try:
            os.sched_setaffinity(int(thread), cpus)
        except (AttributeError, OSError, ValueError):
            pass  # this thread has ended, or `binding_refusal` shows it


def binding_refusal(cpus: Optional[List[int]]) -> str:
    """Return why this process is not bound to exactly these CPUs; empty where it is.

    It is also empty where None are named.
    """
    if cpus is None:
        return ""
    if not hasattr(os, "sched_getaffinity"):
        return "CPUs %s: this system cannot bind a process to CPUs" % _cpu_list(cpus)
    allowed = sorted(os.sched_getaffinity(0))
    if allowed == sorted(set(cpus)):
        return ""
    words = "CPUs %s: this process cannot be bound to them, it may use %s"
    return words % (_cpu_list(cpus), _cpu_list(allowed))


def preload_refusal() -> str:
    """Return which library of LD_PRELOAD is missing in this process.

    The loader skips libraries that do not fit.
    """
    maps = read_file("/proc/self/maps")
    for path in re.split("[: ]", os.environ.get("LD_PRELOAD", "")):
        if path and maps is not None and os.path.realpath(path) not in maps:
            return (
                "LD_PRELOAD: %s was not loaded: it is missing, or needs a newer C library; choose "
                "another --tuning" % path
            )
    return ""


def _cpu_list(cpus: List[int]) -> str:
    if not cpus:
        return "(none)"
    words = ",".join(str(cpu) for cpu in cpus[:16])
    return words + ",..." if len(cpus) > 16 else words


def cpus_allowed() -> Optional[List[int]]:
    """Return the CPUs that the threads of this process may use together, ascending.

    It is None where the system does not show them. All threads count, since thread pools bind
    theirs one by one, the main thread included.
    """
    cpus = set()
    for thread in ["0", *(_list_numbers("/proc/self/task") or ())]:
        try:
            cpus |= os.sched_getaffinity(int(thread))
        except (AttributeError, OSError):
            pass  # this thread has ended
    return sorted(cpus) or None


def _pressure(key: str) -> Optional[float]:
    for share in _pairs("/proc/pressure/cpu").get("some", "").split():
        name, _, value = share.partition("=")
        if name == key:
            return float(value)
    return None


def _machine_times(cpus: Optional[Sequence[int]]) -> Tuple[Optional[float], Optional[float]]:
    """Return the seconds that these CPUs (None: all) were busy, and those the hypervisor took.

    The latter are those of all CPUs.
    """
    times = {}
    for name, line in _pairs("/proc/stat").items():
        if name.startswith("cpu"):
            times[name] = [int(field) / _TICKS for field in line.split()]
    if len(times.get("cpu", [])) < 8:
        return None, None
    names = ["cpu%d" % cpu for cpu in cpus or ()]
    if not names or not all(name in times for name in names):
        names = ["cpu"]
    busy = 0.0
    for name in names:
        user, nice, system, _idle, _iowait, irq, softirq = times[name][:7]
        busy += user + nice + system + irq + softirq
    return busy, times["cpu"][7]


def _cgroups() -> List[Tuple[str, str]]:
    """Return where control groups of the CPU may be mounted, with this process's path below."""
    places = []
    for line in (read_file("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if ".." in path.split("/"):
            path = "/"  # groups above a container's own ("/../..") cannot be seen
        if controllers == "":
            places.append(("/sys/fs/cgroup", path))
        elif "cpu" in controllers.split(","):
            places += [("/sys/fs/cgroup/" + controllers, path), ("/sys/fs/cgroup/cpu", path)]
    return places


def _throttled() -> Optional[float]:
    """Return the seconds for which this process's control group and those around it were throttled.

    Any of them may have a quota.
    """
    for mount, path in _cgroups():
        levels = [name for name in path.split("/") if name]
        seconds = []
        for depth in range(len(levels), -1, -1):
            counts = _pairs("/".join([mount] + levels[:depth] + ["cpu.stat"]))
            for key, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
                if key in counts:
                    seconds.append(int(counts[key]) * unit)
        if seconds:
            return sum(seconds)
    return None


def snapshot(cpus: Optional[Sequence[int]] = None) -> LaunchCounters:
    """Read every clock and counter once; the launch may use these CPUs (None: all)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    total = _pressure("total")
    machine_cpu, steal = _machine_times(cpus)
    thread_cpu, waited = thread_times("self") or (None, None)
    run_queue = None
    if thread_cpu and waited and set(waited) >= set(thread_cpu):
        run_queue = waited
    return LaunchCounters(
        wall=time.perf_counter(),
        cpu=usage.ru_utime + usage.ru_stime,
        thread_cpu=thread_cpu,
        run_queue=run_queue,
        involuntary=usage.ru_nivcsw,
        voluntary=usage.ru_nvcsw,
        major_faults=usage.ru_majflt,
        pressure=None if total is None else total * 1e-6,
        pressure_avg10=_pressure("avg10"),
        steal=steal,
        machine_cpu=machine_cpu,
        throttled=_throttled(),
        companions=companions(),
    )


def without_pauses(
    before: LaunchCounters, after: LaunchCounters, seconds: float
) -> Tuple[LaunchCounters, LaunchCounters]:
    """Return two readings as if the turns between them had followed one another.

    The turns took so many seconds in all. Counters of the whole machine also include the launches
    that had their turns in the pauses, so the share of other programs is unknown.
    """
    unknown: Dict[str, Any] = dict.fromkeys(
        ("pressure", "pressure_avg10", "steal", "machine_cpu", "throttled")
    )
    return before._replace(**unknown), after._replace(wall=before.wall + seconds, **unknown)


class SampleCounter:
    """Counter of the kernel's events in each timed sample.

    Events are page faults and context switches of this process. The counters are read between two
    samples, so no sample includes the cost of reading them. With ``memory`` the resident memory is
    read there too.
    """

    def __init__(self, memory: bool = False) -> None:
        self._memory = memory
        self._readings: List[Tuple[int, int, int]] = []
        self._resident: List[int] = []
        self._last = (0, 0, 0)

    def begin(self) -> None:
        """Forget the events since the last sample."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._last = (usage.ru_minflt, usage.ru_nvcsw, usage.ru_nivcsw)

    def note(self) -> None:
        """Count the events in the sample that has just ended."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        now = (usage.ru_minflt, usage.ru_nvcsw, usage.ru_nivcsw)
        last, self._last = self._last, now
        self._readings.append((now[0] - last[0], now[1] - last[1], now[2] - last[2]))
        if self._memory:
            self._resident.append(resident_pages() * resource.getpagesize())

    def counts(self, skipped: int) -> SampleCounts:
        """Return the counts of all samples but the first ``skipped``."""
        faults, voluntary, involuntary = zip(*self._readings[skipped:])
        resident = self._resident[skipped:]
        return SampleCounts(list(faults), list(voluntary), list(involuntary), resident)


def minor_faults() -> int:
    """Return how many pages the kernel has mapped for this process without reading a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_pages() -> int:
    """Return how many pages of memory this process has; 0 where the system does not say."""
    fields = (read_file("/proc/self/statm") or "").split()
    return int(fields[1]) if len(fields) > 1 else 0


_FAULTS_TIMED = 1024
_ROUNDS_OF_FAULTS = 3


def fault_seconds() -> Optional[float]:
    """Return the seconds of one minor page fault, zeroing the page included.

    It is None where the system counts no faults. New pages are written to once, and the best of
    some rounds counts, since noise only adds.
    """
    size = resource.getpagesize()
    ones = bytes([1]) * _FAULTS_TIMED
    best: Optional[float] = None
    for _ in range(_ROUNDS_OF_FAULTS):
        pages = mmap.mmap(-1, _FAULTS_TIMED * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            # Without NumPy, whose threads must not start before `bind`.
            with memoryview(pages) as every_byte, every_byte[::size] as first_bytes:
                before = minor_faults()
                start = time.perf_counter()
                first_bytes[:] = ones
                seconds = time.perf_counter() - start
                faults = minor_faults() - before
        finally:
            pages.close()
        if faults > 0 and (best is None or seconds / faults < best):
            best = seconds / faults
    return best


def thread_evidence(
    requested: int, framework_says: Optional[int], before: LaunchCounters, after: LaunchCounters
) -> ThreadEvidence:
    """Return how the region's CPU time was spread over the process's and companions' threads."""
    spread: Optional[List[float]] = None
    if before.thread_cpu is not None and after.thread_cpu is not None:
        others = cpu_seconds_by_thread(before.companions, after.companions)
        spread = increases(before.thread_cpu, after.thread_cpu)
        spread += [seconds for seconds in others if seconds > 0.0]
        spread = sorted(spread, reverse=True)[:MOST_THREADS]
    return ThreadEvidence(
        requested=requested,
        framework_says=framework_says,
        os_threads=None if after.thread_cpu is None else len(after.thread_cpu),
        cpu_seconds=_all_cpu_seconds(before, after),
        wall_seconds=after.wall - before.wall,
        cpu_seconds_by_thread=spread,
    )


def _all_cpu_seconds(before: LaunchCounters, after: LaunchCounters) -> float:
    """Return the CPU seconds of this process and its companions between two readings."""
    companions_seconds = cpu_seconds_by_process(before.companions, after.companions)
    return after.cpu - before.cpu + sum(companions_seconds)


def contention(before: LaunchCounters, after: LaunchCounters) -> Contention:
    """Return the contention that this process met in the timed region."""

    def difference(name: str) -> Optional[float]:
        earlier = getattr(before, name)
        later = getattr(after, name)
        return None if earlier is None or later is None else later - earlier

    waited: Optional[float] = None
    if before.run_queue is not None and after.run_queue is not None:
        waits = increases(before.run_queue, after.run_queue)
        waits += increases(before.companions.waits, after.companions.waits)
        waited = sum(waits)
    busy = difference("machine_cpu")
    own = _all_cpu_seconds(before, after)
    return Contention(
        run_queue_seconds=waited,
        involuntary_switches=after.involuntary - before.involuntary,
        voluntary_switches=after.voluntary - before.voluntary,
        pressure_seconds=difference("pressure"),
        pressure_avg10_before=before.pressure_avg10,
        steal_seconds=difference("steal"),
        throttled_seconds=difference("throttled"),
        major_faults=after.major_faults - before.major_faults,
        others_cpu_seconds=None if busy is None else max(0.0, busy - own),
    )


def reset_peak_memory() -> bool:
    """Reset the peak resident size of this process and its descendants.

    Return False where the kernel cannot.
    """
    for process in [*_descendants(), "self"]:
        try:
            with open("/proc/%s/clear_refs" % process, "w") as file:
                file.write("5")
        except OSError:
            if process == "self":
                return False
    return True


def peak_memory_bytes() -> int:
    """Return the sum of the peak resident sizes of this process and its living descendants.

    Each peak is since the process's start or the last reset: at no moment did they use more
    together.
    """
    own = _peak("self")
    if own is None:
        # Linux counts ru_maxrss in KiB. It survives a reset: an upper bound.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return own + sum(_peak(process) or 0 for process in _descendants())


def _peak(process: str) -> Optional[int]:
    peak = _pairs("/proc/%s/status" % process).get("VmHWM:")
    return None if peak is None else int(peak.split()[0]) * 1024

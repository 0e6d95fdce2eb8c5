"""Other processes that work for this launch: a framework's helpers, an adapter's forks.

Their CPU time is the launch's own, or a step done by eight hidden processes would pass for one of a single thread.
"""

import ctypes
import os
import resource
from typing import Dict, List, NamedTuple, Optional

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


def read(path: str) -> Optional[str]:
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


def seconds(fields: List[str]) -> float:
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
    told = {name: read("/proc/%s/stat" % name) for name in names}
    return {name: stat_fields(content) for name, content in told.items() if content is not None}


def snapshot() -> Companions:
    """Read the CPU time of every descendant of this process once."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = usage.ru_utime + usage.ru_stime
    stats = _times() or {}
    living = {}
    threads: Dict[str, float] = {}
    waits: Dict[str, float] = {}
    for name in _descendants(stats):
        living[name] = seconds(stats[name])
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
        stat, schedule = (read("/proc/%s/task/%s/%s" % (process, name, what)) for what in ("stat", "schedstat"))
        if stat is not None:
            threads[key] = seconds(stat_fields(stat))
        if schedule is not None and len(schedule.split()) == 3:
            waits[key] = int(schedule.split()[1]) * 1e-9


def cpu_seconds(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings, one number for each process; those that ended are one together."""
    # What ended brings all its time into `ended`; what of it was there before does not belong to the region.
    gone = sum(spent for name, spent in before.living.items() if name not in after.living)
    return risen(before.living, after.living) + [max(0.0, after.ended - before.ended - gone)]


def cpu_seconds_by_thread(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings of each thread of the living, and of what ended as one together."""
    return risen(before.threads, after.threads) + cpu_seconds(before, after)[-1:]


def waited_seconds(before: Companions, after: Companions) -> float:
    """Return the seconds for which the living's threads waited for a CPU between two readings, summed."""
    return sum(risen(before.waits, after.waits))


def oom_kills() -> int:
    """Return how many processes the kernel's out-of-memory killer has ended on this machine so far; 0: not told."""
    for line in (read("/proc/vmstat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill":
            return int(value)
    return 0

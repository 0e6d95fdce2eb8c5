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


def _times() -> Optional[Dict[str, List[str]]]:
    """Return the fields of every process's stat from its state on, by process id; None where there is no /proc."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    found = {}
    for name in names:
        try:
            with open("/proc/%s/stat" % name) as file:
                # The command may hold spaces and parentheses: fields count from behind its last one.
                found[name] = file.read().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue
    return found


def snapshot() -> Companions:
    """Read the CPU time of every descendant of this process once."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = usage.ru_utime + usage.ru_stime
    stats = _times() or {}
    living = {}
    threads: Dict[str, float] = {}
    waits: Dict[str, float] = {}
    for name in _descendants(stats):
        living[name] = _seconds(stats[name])
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


def _seconds(fields: List[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / float(_TICKS)


def _add_threads(process: str, threads: Dict[str, float], waits: Dict[str, float]) -> None:
    """Add the CPU seconds of each thread of a process, and those it waited for a CPU where the system tells."""
    try:
        for name in os.listdir("/proc/%s/task" % process):
            folder, key = "/proc/%s/task/%s" % (process, name), "%s/%s" % (process, name)
            with open(folder + "/stat") as file:
                threads[key] = _seconds(file.read().rpartition(")")[2].split())
            with open(folder + "/schedstat") as file:
                fields = file.read().split()
            if len(fields) == 3:
                waits[key] = int(fields[1]) * 1e-9
    except (OSError, UnicodeDecodeError):
        pass  # it ended just now, or this system has no such file


def cpu_seconds(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings, one number for each process; those that ended are one together."""
    living = [max(0.0, seconds - before.living.get(name, 0.0)) for name, seconds in after.living.items()]
    # What ended brings all its time into `ended`; what of it was there before does not belong to the region.
    gone = sum(seconds for name, seconds in before.living.items() if name not in after.living)
    return living + [max(0.0, after.ended - before.ended - gone)]


def cpu_seconds_by_thread(before: Companions, after: Companions) -> List[float]:
    """Return the CPU seconds between two readings of each thread of the living, and of what ended as one together."""
    each = [max(0.0, seconds - before.threads.get(name, 0.0)) for name, seconds in after.threads.items()]
    return each + cpu_seconds(before, after)[-1:]


def waited_seconds(before: Companions, after: Companions) -> float:
    """Return the seconds for which the living's threads waited for a CPU between two readings, summed."""
    return sum(max(0.0, seconds - before.waits.get(name, 0.0)) for name, seconds in after.waits.items())


def oom_kills() -> int:
    """Return how many processes the kernel's out-of-memory killer has ended on this machine so far; 0: not told."""
    try:
        with open("/proc/vmstat") as file:
            for line in file:
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    except (OSError, ValueError):
        pass
    return 0

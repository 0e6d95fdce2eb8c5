"""Other processes that work for this launch: a framework's helpers, an adapter's forks.

Their CPU time is the launch's own, or a step done by eight hidden processes would pass for one of a single thread.
"""

import os
import resource
from typing import Dict, List, NamedTuple, Optional

_TICKS = os.sysconf("SC_CLK_TCK")


class Companions(NamedTuple):
    """The CPU seconds of this process's descendants up to now."""

    living: Dict[str, float]  # by process id
    ended: float  # of those that were waited for, their own descendants included
    threads: Dict[str, float] = {}  # of the living ones, by process and thread id


def _times():
    # type: () -> Optional[Dict[str, List[str]]]
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


def snapshot():
    # type: () -> Companions
    """Read the CPU time of every descendant of this process once."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = usage.ru_utime + usage.ru_stime
    stats = _times() or {}
    children = {}  # type: Dict[str, List[str]]
    for name, fields in stats.items():
        children.setdefault(fields[1], []).append(name)
    living = {}
    threads = {}  # type: Dict[str, float]
    waiting = list(children.get(str(os.getpid()), []))
    while waiting:
        name = waiting.pop()
        living[name] = _seconds(stats[name])
        threads.update(_threads_of(name))
        waiting += children.get(name, [])
    return Companions(living, ended, threads)


def _seconds(fields):
    # type: (List[str]) -> float
    return (int(fields[11]) + int(fields[12])) / float(_TICKS)


def _threads_of(process):
    # type: (str) -> Dict[str, float]
    found = {}
    try:
        for name in os.listdir("/proc/%s/task" % process):
            with open("/proc/%s/task/%s/stat" % (process, name)) as file:
                found["%s/%s" % (process, name)] = _seconds(file.read().rpartition(")")[2].split())
    except (OSError, UnicodeDecodeError):
        pass  # it ended just now
    return found


def cpu_seconds(before, after):
    # type: (Companions, Companions) -> List[float]
    """Return the CPU seconds between two readings, one number for each process; those that ended are one together."""
    living = [max(0.0, seconds - before.living.get(name, 0.0)) for name, seconds in after.living.items()]
    # What ended brings all its time into `ended`; what of it was there before does not belong to the region.
    gone = sum(seconds for name, seconds in before.living.items() if name not in after.living)
    return living + [max(0.0, after.ended - before.ended - gone)]


def cpu_seconds_by_thread(before, after):
    # type: (Companions, Companions) -> List[float]
    """Return the CPU seconds between two readings of each thread of the living, and of what ended as one together."""
    each = [max(0.0, seconds - before.threads.get(name, 0.0)) for name, seconds in after.threads.items()]
    return each + cpu_seconds(before, after)[-1:]

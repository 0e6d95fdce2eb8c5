"""How much other programs, and other guests of the same host, are in the way: two snapshots and what lies between.

The kernel counts since boot; only the growth over an interval says what happened in it. Load averages and PSI's
`avg10` remember for many seconds, and would hold the previous launch of a benchmark against the next.
What a system does not tell is None, never a guess.
"""

import os
import resource
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from dlbench.hardware_probe._files import ROOT, read_text

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class Snapshot:
    """The counters of one moment, all in seconds."""

    wall: float
    """A monotonic clock."""
    own_cpu: float
    """CPU time of this process and of the children it has waited for."""
    stalled: float | None
    """Pressure stall information: for how long some task could run and had no CPU."""
    stalled_avg10: float | None
    """The same as the kernel's own mean over about ten seconds, as a share from 0 to 1."""
    busy: float | None
    """CPU time of everybody, over these CPUs."""
    stolen: float | None
    """Time in which a virtual CPU could run and its host did not let it, over these CPUs."""


@dataclass(frozen=True)
class Contention:
    """What happened between two snapshots."""

    pressure_share: float | None
    """Share of the interval, from 0 to 1, in which some task waited for a CPU."""
    pressure_avg10: float | None
    """The kernel's mean at the end of it."""
    steal_share: float | None
    """Of the time that CPUs were wanted, the share that the host withheld; 0 on hardware without a host."""
    others_cpus: float | None
    """CPUs' worth of time that others than this process and its children took."""


def snapshot(root: Path = ROOT) -> Snapshot:
    """Read the counters of the CPUs that this process may use, or of all CPUs of a recorded tree."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    stalled, average = _stalled(root)
    mask = os.sched_getaffinity(0) if root == ROOT and hasattr(os, "sched_getaffinity") else ()
    busy, stolen = _cpu_times(root, mask)
    return Snapshot(
        wall=time.monotonic(),
        own_cpu=sum(usage.ru_utime + usage.ru_stime for usage in usages),
        stalled=stalled,
        stalled_avg10=average,
        busy=busy,
        stolen=stolen,
    )


def between(before: Snapshot, after: Snapshot) -> Contention:
    """Return what happened between two snapshots of the same machine."""
    wall = after.wall - before.wall
    stalled, busy, stolen = (
        _growth(before.stalled, after.stalled),
        _growth(before.busy, after.busy),
        _growth(before.stolen, after.stolen),
    )
    others = None
    if busy is not None and wall > 0:
        # Ticks and run times are counted apart, so a little less than nothing can be left over.
        others = max(0.0, busy - (after.own_cpu - before.own_cpu)) / wall
    wanted = (busy or 0.0) + (stolen or 0.0)
    return Contention(
        pressure_share=None if stalled is None or wall <= 0 else min(1.0, stalled / wall),
        pressure_avg10=after.stalled_avg10,
        steal_share=None if stolen is None else (stolen / wanted if wanted > 0 else 0.0),
        others_cpus=others,
    )


def _growth(before: float | None, after: float | None) -> float | None:
    # A virtual machine that has moved to another host may see its counters fall.
    return None if before is None or after is None else max(0.0, after - before)


def _stalled(root: Path) -> tuple[float | None, float | None]:
    """The `some` line of PSI: total in seconds, avg10 as a share."""
    for line in (read_text(root / "proc/pressure/cpu") or "").splitlines():
        kind, *words = line.split()
        if kind != "some":
            continue
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            return int(fields["total"]) * 1e-6, float(fields["avg10"]) / 100
        except (KeyError, ValueError):
            return None, None
    return None, None


def _cpu_times(root: Path, mask: Collection[int]) -> tuple[float | None, float | None]:
    """Busy and stolen seconds of these CPUs together, of all where there are none or /proc/stat lacks one."""
    told = {}
    for line in (read_text(root / "proc/stat") or "").splitlines():
        name, *fields = line.split() or [""]
        if name.startswith("cpu") and len(fields) >= 8 and all(field.isdecimal() for field in fields[:8]):
            told[name] = [int(field) for field in fields[:8]]
    names = [f"cpu{cpu}" for cpu in mask]
    chosen = names if names and all(name in told for name in names) else ["cpu"]
    if not all(name in told for name in chosen):
        return None, None
    # A guest's time is counted in user and nice already; of these eight, idle and waiting for a disk are not busy.
    summed = [sum(told[name][place] for name in chosen) for place in range(8)]
    user, nice, system, _idle, _iowait, interrupts, soft_interrupts, stolen = summed
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS_PER_SECOND, stolen / _TICKS_PER_SECOND

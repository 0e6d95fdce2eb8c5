"""The sentinel: the same short work, repeated to see whether this machine is as fast as it can be.

It runs matrix products and a loop over memory on one thread, in a fresh process, for about a third
of a second. Their speed is one sign of neighbours. The growth of the kernel's counters during that
time is the other. These count since boot. Load averages and PSI's `avg10` look back many seconds,
and would charge a benchmark's previous launch to the next. A counter that a system does not report
is None, never a guess.
"""

import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from dlbench.hardware_probe.ceilings import run_worker
from dlbench.hardware_probe.cpu import probe_cpu
from dlbench.hardware_probe.files import ROOT, JsonRecord, read_text

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class KernelCounters(NamedTuple):
    """The kernel's counters at one moment, all in seconds but the share.

    They are None where the system does not count.
    """

    wall: float
    own_cpu: float
    """CPU time of this process and of the children it has waited for."""
    stalled: float | None
    """Pressure stall information: for how long some task could run and had no CPU."""
    stalled_avg10: float | None
    """The same as the kernel's own mean over about ten seconds, as a share from 0 to 1."""
    busy: float | None
    """CPU time of all programs on these CPUs."""
    stolen: float | None
    """Time in which these virtual CPUs could run, but their host did not let them."""


def snapshot(root: Path = ROOT) -> KernelCounters:
    """Read the counters of the CPUs that this process may use.

    For a recorded tree they are those of all CPUs.
    """
    own_cpu = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        own_cpu += usage.ru_utime + usage.ru_stime
    mask = os.sched_getaffinity(0) if root == ROOT else ()
    return KernelCounters(time.monotonic(), own_cpu, *_stalled(root), *_cpu_times(root, mask))


def between(before: KernelCounters, after: KernelCounters) -> dict[str, float | None]:
    """Return the load between two snapshots of a machine, under the names of `Reading`'s fields."""

    def growth(name: str) -> float | None:
        # A virtual machine that has moved to another host may see its counters fall.
        first: float | None = getattr(before, name)
        last: float | None = getattr(after, name)
        if first is None or last is None:
            return None
        return max(0.0, last - first)

    wall = after.wall - before.wall
    stalled = growth("stalled")
    busy = growth("busy")
    stolen = growth("stolen")
    others: float | None = None
    if busy is not None and wall > 0:
        # Ticks and run times are counted apart, so a little less than nothing can be left over.
        others = max(0.0, busy - (after.own_cpu - before.own_cpu)) / wall
    pressure: float | None = None
    if stalled is not None and wall > 0:
        pressure = min(1.0, stalled / wall)
    steal: float | None = None
    if stolen is not None:
        wanted = (busy or 0.0) + stolen
        steal = stolen / wanted if wanted > 0 else 0.0
    return {
        "pressure_share": pressure,
        "pressure_avg10": after.stalled_avg10,
        "steal_share": steal,
        "others_cpus": others,
    }


def _stalled(root: Path) -> tuple[float | None, float | None]:
    """Return the `some` line of PSI: total in seconds, avg10 as a share."""
    text = read_text(root / "proc/pressure/cpu") or ""
    some = re.search(r"^some avg10=([\d.]+) .*total=(\d+)$", text, re.MULTILINE)
    if some is None:
        return None, None
    return int(some[2]) * 1e-6, float(some[1]) / 100


def _cpu_times(root: Path, mask: Collection[int]) -> tuple[float | None, float | None]:
    """Return busy and stolen seconds of these CPUs together.

    They are those of all CPUs where none are named or /proc/stat lacks one.
    """
    times = {}
    for line in (read_text(root / "proc/stat") or "").splitlines():
        name, *fields = line.split() or [""]
        ticks = [int(field) for field in fields[:8] if field.isdecimal()]
        if name.startswith("cpu") and len(ticks) == 8:
            times[name] = ticks
    names = [f"cpu{cpu}" for cpu in mask]
    if not names or not all(name in times for name in names):
        if "cpu" not in times:
            return None, None
        names = ["cpu"]
    busy_ticks = 0
    stolen_ticks = 0
    for name in names:
        # A guest's time is counted in user and nice already. Of these eight, idle and waiting for a
        # disk are not busy.
        user, nice, system, _idle, _iowait, interrupts, soft_interrupts, stolen = times[name]
        busy_ticks += user + nice + system + interrupts + soft_interrupts
        stolen_ticks += stolen
    return busy_ticks / _TICKS_PER_SECOND, stolen_ticks / _TICKS_PER_SECOND


_TIMEOUT_SECONDS = 60.0
# Of both arrays together: so many times the size of the caches, so that memory is reached.
_CACHES = 3
_SMALLEST = 32_000_000
# Any machine can spare this much for a moment. Processors with larger caches than a third of it
# show those instead.
_LARGEST = 128_000_000

# The share of time spent waiting for a CPU, or without one that the host withholds, above which a
# machine is not quiet.
WAITING_LIMIT = 0.05
# Of the CPUs that this process may use, the share that others may take. Counted in ticks of 10 ms,
# a reading of a third of a second on two CPUs cannot resolve less than about 5 %.
OTHERS_LIMIT = 0.10


@dataclass(frozen=True)
class Reading(JsonRecord):
    """One measurement of the sentinel; None where this system does not report it."""

    gemm_flops_per_second: float
    """Median over single-precision products of 512 x 512 matrices on one thread."""
    bandwidth_bytes_per_second: float
    """Median over passes of a += b on one thread, three times the array's size each."""
    waiting_share: float | None
    """Run-queue delay / (run-queue delay + CPU time) of the sentinel's thread, from 0 to 1."""
    steal_share: float | None
    """Of the CPU time wanted, the share that a virtual machine's host withheld; otherwise 0."""
    pressure_share: float | None
    """Share of the reading in which some task of the machine waited for a CPU (PSI's `some`)."""
    pressure_avg10: float | None
    """PSI's own mean, which includes load from before the reading, the caller's own work too."""
    others_cpus: float | None
    """CPUs' worth of time that programs other than this process and its children used."""
    cpus: float
    """CPUs in the affinity mask, of which others' time is counted; a quota reserves none."""
    method: str
    """NumPy's version and the sizes measured; rates are comparable only where it is equal."""
    taken: str


def unquiet_reasons(reading: Reading) -> list[str]:
    """Return the signs in the kernel's counters that the machine is not quiet.

    Unknown counts give none.
    """
    reasons = []
    if reading.others_cpus is not None and reading.others_cpus >= OTHERS_LIMIT * reading.cpus:
        reasons.append(f"other programs used {reading.others_cpus:.1f} of {reading.cpus:g} CPUs")
    for share, event in (
        (reading.pressure_share, "programs waited for a CPU"),
        (reading.waiting_share, "the sentinel itself waited for a CPU"),
        (reading.steal_share, "the host of this virtual machine withheld the CPU"),
    ):
        if share is not None and share >= WAITING_LIMIT:
            reasons.append(f"{event} {share:.0%} of the time (limit {WAITING_LIMIT:.0%})")
    return reasons


def take() -> Reading:
    """Take one reading.

    Raises ProbeError where the process cannot be started, fails or takes far too long.
    """
    cpu = probe_cpu()
    # Depends on the machine alone, never on the memory that happens to be free.
    array_bytes = min(_LARGEST, max(_SMALLEST, _CACHES * (cpu.last_level_cache_bytes or 0))) // 2
    request = {"threads": 1, "array_bytes": array_bytes}
    before = snapshot()
    result = run_worker("The sentinel", request, sys.executable, _TIMEOUT_SECONDS)
    load = between(before, snapshot())
    running, waiting = result["schedule"] or (0, 0)
    waiting_share: float | None = None
    if running + waiting > 0:
        waiting_share = waiting / (running + waiting)
    order = result["gemm_order"]
    return Reading(
        gemm_flops_per_second=statistics.median(result["gemm"]),
        bandwidth_bytes_per_second=statistics.median(result["bandwidth"]),
        waiting_share=waiting_share,
        **load,
        cpus=float(len(cpu.affinity)),
        method=f"NumPy {result['numpy']}, {order} x {order}, 2 x {array_bytes} bytes",
        taken=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )

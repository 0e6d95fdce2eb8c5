"""The sentinel: the same short work again and again, to tell whether this machine is now as fast as it can be.

A product of matrices and a loop over memory on one thread, in a fresh process of about a third of a second.
How fast they went is one sign of neighbours; what the kernel counted meanwhile (`pressure`) is the other. Only others
can be the cause: a lone thread keeps nobody waiting, as long as there is a CPU.
"""

import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlbench.hardware_probe import pressure, workers
from dlbench.hardware_probe.cpu import probe_cpu
from dlbench.hardware_probe.records import JsonRecord

WORKER = Path(__file__).with_name("sentinel_worker.py")

_TIMEOUT_SECONDS = 60.0
# Both arrays together. Three times what the caches hold, so that memory is reached; no more than what any machine can
# spare for a moment, so that processors with larger caches than a third of it show those instead.
_CACHES, _SMALLEST, _LARGEST = 3, 32_000_000, 128_000_000

# Shares of time above which a machine is not quiet.
PRESSURE_LIMIT = 0.05
WAITING_LIMIT = 0.05
STEAL_LIMIT = 0.05
# Of the CPUs that this process may use, the share that others may take. Counted in ticks of 10 ms, a reading of a third
# of a second on two CPUs cannot tell less than about 5 %.
OTHERS_LIMIT = 0.10


class SentinelError(RuntimeError):
    """The sentinel could not run; the message says why, and what to do."""


@dataclass(frozen=True)
class Reading(JsonRecord):
    """What the sentinel saw once. None where this system does not tell."""

    gemm_flops_per_second: float
    """Median over single-precision products of 512 x 512 matrices on one thread."""
    bandwidth_bytes_per_second: float
    """Median over passes of a += b on one thread, three times the array's size each."""
    waiting_share: float | None
    """Run-queue delay / (run-queue delay + CPU time) of the sentinel's thread, from 0 to 1."""
    steal_share: float | None
    """Of the CPU time wanted, the share that the host of a virtual machine withheld."""
    pressure_share: float | None
    """Share of the reading in which some task of the machine waited for a CPU (PSI's `some`)."""
    pressure_avg10: float | None
    """PSI's own mean: it remembers what was before the reading, the caller's own work too."""
    others_cpus: float | None
    """CPUs' worth of time that other programs took meanwhile."""
    cpus: float
    """CPUs in the affinity mask: others' time is counted on these alone. A quota's share of them is nobody's own."""
    method: str
    """What was measured with; rates compare only where it is equal."""
    taken: str
    """When, in UTC, ISO 8601."""


def disturbances(reading: Reading) -> list[str]:
    """Return what the kernel counted that a quiet machine does not show; what it does not tell is no reason."""
    reasons = []
    if reading.others_cpus is not None and reading.others_cpus >= OTHERS_LIMIT * reading.cpus:
        reasons.append(f"other programs used {reading.others_cpus:.1f} of {reading.cpus:g} CPUs")
    for share, limit, what in (
        (reading.pressure_share, PRESSURE_LIMIT, "programs waited for a CPU"),
        (reading.waiting_share, WAITING_LIMIT, "the sentinel itself waited for a CPU"),
        (reading.steal_share, STEAL_LIMIT, "the host of this virtual machine withheld the CPU"),
    ):
        if share is not None and share >= limit:
            reasons.append(f"{what} {share:.0%} of the time (limit {limit:.0%})")
    return reasons


def take(timeout_seconds: float = _TIMEOUT_SECONDS) -> Reading:
    """Take one reading. Raises SentinelError where the process cannot be started, fails or takes far too long."""
    cpu = probe_cpu()
    array_bytes = _array_bytes(cpu.last_level_cache_bytes or 0)
    before = pressure.snapshot()
    try:
        with tempfile.TemporaryDirectory(prefix="dlbench-sentinel-") as folder:
            result = _run(Path(folder), array_bytes, timeout_seconds)
    except OSError as error:
        raise SentinelError(f"The sentinel cannot write to the folder of temporary files: {error.strerror}.") from error
    contention = pressure.between(before, pressure.snapshot())
    return Reading(
        gemm_flops_per_second=statistics.median(result["gemm"]),
        bandwidth_bytes_per_second=statistics.median(result["bandwidth"]),
        waiting_share=_waiting_share(result["schedule"]),
        steal_share=contention.steal_share,
        pressure_share=contention.pressure_share,
        pressure_avg10=contention.pressure_avg10,
        others_cpus=contention.others_cpus,
        cpus=float(len(cpu.affinity)),
        method=f"NumPy {result['numpy']}, {result['gemm_order']} x {result['gemm_order']}, 2 x {array_bytes} bytes",
        taken=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _run(folder: Path, array_bytes: int, timeout_seconds: float) -> dict[str, Any]:
    """What the worker measured."""
    request = {"threads": 1, "array_bytes": array_bytes}
    try:
        result: dict[str, Any] = workers.run(WORKER, request, folder, sys.executable, timeout_seconds)
    except subprocess.TimeoutExpired as error:
        raise SentinelError(
            f"The sentinel took longer than {timeout_seconds:g} s instead of a third of a second: this machine is too "
            "busy to measure anything. End what else runs on it."
        ) from error
    except OSError as error:
        raise SentinelError(f"The sentinel's interpreter cannot be started: {error}.") from error
    except workers.WorkerFailed as error:
        size = 2 * array_bytes / 1e6
        raise SentinelError(f"The sentinel failed {error}. It needs NumPy and {size:.0f} MB of memory.") from error
    return result


def _array_bytes(cache_bytes: int) -> int:
    """Each of the two arrays; from the machine alone, never from the memory that happens to be free."""
    return min(_LARGEST, max(_SMALLEST, _CACHES * cache_bytes)) // 2


def _waiting_share(schedule: list[float] | None) -> float | None:
    if schedule is None:
        return None
    running, waiting = schedule
    return waiting / (running + waiting) if running + waiting > 0 else None

"""Measured ceilings of this machine, with which the rates of frameworks are compared.

Single-precision matrix products by NumPy's BLAS give FLOP/s, a loop over arrays far larger than the
caches gives memory bandwidth. Each thread count is measured in a fresh process (`worker`), since
thread pools are sized once, at import.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench.hardware_probe.cpu import probe_cpu
from dlbench.hardware_probe.files import JsonRecord
from dlbench.hardware_probe.memory import probe_memory

# Every variable that a BLAS or OpenMP runtime of NumPy may read.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

# Variables that restrict a BLAS to older instructions than the CPU has. Users may have reasons to
# set them, but this measures the machine. With OPENBLAS_CORETYPE=Haswell left in place, a CPU with
# AVX-512 showed half its rate.
RESTRAINING_VARIABLES = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "BLIS_ARCH_TYPE",
)


WORKER = Path(__file__).with_name("worker.py")


class ProbeError(RuntimeError):
    """A ceiling or the sentinel could not be measured; the message gives reason and remedy."""


def run_worker(
    task: str, request: dict[str, Any], python: str | Path, timeout_seconds: float
) -> dict[str, Any]:
    """Run ``python -I worker.py REQUEST.json RESULT.json``, and return the result.

    It runs in a folder of its own. The request holds "threads" and "array_bytes" at least (see
    `worker`). Raises ProbeError, whose text begins with the task.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in RESTRAINING_VARIABLES
    }
    environment.update(dict.fromkeys(THREAD_VARIABLES, str(request["threads"])))
    # Otherwise a runtime may use fewer threads on a loaded machine.
    environment.update(OMP_DYNAMIC="FALSE", MKL_DYNAMIC="FALSE")
    try:
        with tempfile.TemporaryDirectory(prefix="dlbench-probe-") as folder:
            request_path = Path(folder, "request.json")
            result_path = Path(folder, "result.json")
            request_path.write_text(json.dumps(request))
            # Standard error goes through a pipe, so that this process sleeps in the kernel until
            # the end. Waiting with a time-out and no pipe would wake up again and again during the
            # measurement.
            process = subprocess.run(
                [str(python), "-I", str(WORKER), str(request_path), str(result_path)],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=timeout_seconds,
            )
            if result_path.exists():
                result: dict[str, Any] = json.loads(result_path.read_text(encoding="utf-8"))
                return result
    except subprocess.TimeoutExpired as error:
        raise ProbeError(
            f"{task} took longer than {timeout_seconds:g} s: this machine is too busy to measure "
            "anything. Stop other programs."
        ) from error
    except OSError as error:
        failure = "no temporary file can be written"
        if error.filename == str(python):
            failure = f"{python} cannot be started"
        raise ProbeError(f"{task} failed: {failure}: {error.strerror}.") from error
    lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
    last_line = lines[-1] if lines else "no message"
    megabytes = 2 * request["array_bytes"] / 1e6
    raise ProbeError(
        f"{task} failed (exit status {process.returncode}): {last_line}. {python} needs NumPy and "
        f"{megabytes:.0f} MB of memory."
    )


# The share of the requested CPUs that must have been busy. A quiet machine reached 0.99. With a
# neighbour that is always busy, fair sharing leaves two threads on two CPUs at most two thirds.
_BUSY_ENOUGH = 0.85

_LARGEST_ORDER = 8192
_SMALLEST_ARRAY = 64 * 1024**2
_LARGEST_ARRAY = 1024**3


@dataclass(frozen=True)
class Ceiling:
    """The ceilings at one thread count; each rate is that of the best sample.

    The best, not the mean: noise only ever lowers a rate.
    """

    threads: int
    gemm_flops_per_second: float
    bandwidth_bytes_per_second: float
    """Bytes read and written by a += b, without traffic that the caches add."""
    gemm_samples: tuple[float, ...]
    bandwidth_samples: tuple[float, ...]
    gemm_order: int
    """n of the n x n matrices."""
    gemm_cpus_busy: float
    """CPU seconds per second."""
    bandwidth_cpus_busy: float
    cpus_available: float
    array_bytes: int
    """Each of the two arrays of the bandwidth loop."""
    numpy: str
    blas: str | None
    """Library, version and kernel family; None where threadpoolctl is not installed."""
    blas_threads: int | None
    """The threads that the BLAS reports; some never use more than there are CPUs."""

    @property
    def doubt(self) -> str | None:
        """Why this may be less than the machine can do; None where all requested CPUs were busy.

        Even the best repetition is too slow where other programs run all the time, and a framework
        measured in a quieter hour would then seem to exceed the ceiling.
        """
        wanted = min(float(self.threads), self.cpus_available)
        for phase, busy in (
            ("products", self.gemm_cpus_busy),
            ("bandwidth loop", self.bandwidth_cpus_busy),
        ):
            if busy < _BUSY_ENOUGH * wanted:
                return (
                    f"only {busy:.2g} of {wanted:g} CPUs were busy during the {phase}: other "
                    "programs used them, or not all threads were used; measure again on a quiet "
                    "machine"
                )
        return None


@dataclass(frozen=True)
class Ceilings(JsonRecord):
    """The ceilings for several numbers of threads."""

    measured: tuple[Ceiling, ...]
    """In ascending order of threads."""

    def gemm_flops_per_second(self, threads: int) -> float | None:
        """Return the ceiling at `threads` in FLOP/s; None where it was not measured at so few.

        It is the maximum over all measured thread counts up to this one: a program may leave some
        of its threads idle, so a ceiling never falls as threads are added.
        """
        return self._highest(threads, lambda ceiling: ceiling.gemm_flops_per_second)

    def bandwidth_bytes_per_second(self, threads: int) -> float | None:
        """Return the same for memory bandwidth, in bytes per second."""
        return self._highest(threads, lambda ceiling: ceiling.bandwidth_bytes_per_second)

    def _highest(self, threads: int, rate: Callable[[Ceiling], float]) -> float | None:
        rates = [rate(ceiling) for ceiling in self.measured if ceiling.threads <= threads]
        return max(rates, default=None)


def measure(
    thread_counts: Iterable[int],
    *,
    python: str | Path = sys.executable,
    seconds: float = 1.0,
    array_bytes: int | None = None,
    largest_order: int | None = None,
    timeout_seconds: float = 120.0,
) -> Ceilings:
    """Measure the ceilings of the CPUs that this process may use.

    There is one fresh process per number of threads. `python` is the interpreter, which needs
    NumPy. `seconds` is the time to measure each thread count, in addition to starting the process
    and creating the arrays (well under a second, more on machines with very large caches).
    `array_bytes`, for each of two arrays, defaults to four times all last-level caches together,
    and `largest_order`, of the matrices, to 8192. Both default to less where memory is short.

    Raises ValueError where a thread count is not positive or none is given, and ProbeError where
    the interpreter cannot be started, fails, or takes longer than `timeout_seconds` for one thread
    count.
    """
    counts = sorted(set(thread_counts))
    if not counts or counts[0] < 1:
        raise ValueError(f"thread_counts must be one or more positive numbers, not {counts}")
    cpu = probe_cpu()
    # Use at most a quarter of the memory that is available under the group's limit.
    memory = probe_memory()
    spare_bytes = min(memory.available_bytes, memory.limit_bytes or memory.available_bytes) // 4
    # Four times all last-level caches together, as STREAM's run rules ask. The upper bound keeps
    # the time bounded on servers with over 256 MiB of cache. Two arrays of 1 GiB are still more
    # than the caches hold there.
    wanted = min(_LARGEST_ARRAY, max(_SMALLEST_ARRAY, 4 * (cpu.last_level_cache_bytes or 0)))
    fitting_order = int((spare_bytes / (3 * 4)) ** 0.5)  # three matrices of float32
    order = max(64, min(_LARGEST_ORDER, fitting_order))
    measured = []
    for threads in counts:
        request = {
            "threads": threads,
            "seconds": seconds,
            "array_bytes": array_bytes or min(wanted, spare_bytes // 2),
            "largest_order": largest_order or order,
        }
        task = f"Measuring the ceilings with {threads} threads"
        result = run_worker(task, request, python, timeout_seconds)
        gemm_samples = tuple(result.pop("gemm_samples"))
        bandwidth_samples = tuple(result.pop("bandwidth_samples"))
        ceiling = Ceiling(
            cpus_available=cpu.capacity_cpus,
            gemm_flops_per_second=max(gemm_samples),
            bandwidth_bytes_per_second=max(bandwidth_samples),
            gemm_samples=gemm_samples,
            bandwidth_samples=bandwidth_samples,
            **result,
        )
        measured.append(ceiling)
    return Ceilings(tuple(measured))

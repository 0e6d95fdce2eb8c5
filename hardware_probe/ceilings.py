"""Measured ceilings of this machine: what a framework's rate is compared with.

Single-precision matrix products by NumPy's BLAS give FLOP/s, a loop over arrays far larger than the caches gives memory
bandwidth, both for each number of threads, each in a fresh process (`worker`): thread pools are sized once, at
import.
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

# Variables that hold a BLAS to older instructions than the CPU has. A user may have reasons for them, but what is
# measured here is the machine: with OPENBLAS_CORETYPE=Haswell left in place, a CPU with AVX-512 showed half its rate.
RESTRAINING_VARIABLES = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "BLIS_ARCH_TYPE",
)


class WorkerFailed(Exception):  # noqa: N818 - the caller raises its own error
    """The program wrote no result; the text is its exit status and its last words."""


def run_worker(worker: Path, request: dict[str, Any], folder: Path, python: str | Path, timeout_seconds: float) -> Any:
    """Run ``python -I worker REQUEST.json RESULT.json`` in this folder and return what it wrote.

    The request holds "threads", and what else the program asks for. Raises WorkerFailed, subprocess.TimeoutExpired, and
    OSError where the interpreter cannot be started.
    """
    environment = {name: value for name, value in os.environ.items() if name not in RESTRAINING_VARIABLES}
    environment.update(dict.fromkeys(THREAD_VARIABLES, str(request["threads"])))
    # Else a runtime may decide for fewer threads on a machine that it finds loaded.
    environment.update(OMP_DYNAMIC="FALSE", MKL_DYNAMIC="FALSE")
    request_path, result_path = folder / "request.json", folder / "result.json"
    request_path.write_text(json.dumps(request))
    # Standard error goes through a pipe, so that this process sleeps in the kernel until the end; waiting with a
    # time-out and no pipe would wake up again and again beside the measurement.
    process = subprocess.run(
        [str(python), "-I", str(worker), str(request_path), str(result_path)],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=timeout_seconds,
        check=False,
    )
    if not result_path.exists():
        last_words = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise WorkerFailed(f"(exit status {process.returncode}): {last_words[0]}")
    return json.loads(result_path.read_text(encoding="utf-8"))


WORKER = Path(__file__).with_name("worker.py")

# The share of the CPUs asked for that must have been at work: 0.99 on a quiet machine, when tried; a neighbour
# that is always busy leaves two threads on two CPUs at most two thirds by fair sharing.
_BUSY_ENOUGH = 0.85

_LARGEST_ORDER = 8192
_SMALLEST_ARRAY, _LARGEST_ARRAY = 64 * 1024**2, 1024**3


class CeilingError(RuntimeError):
    """A ceiling could not be measured; the message says for how many threads, why, and what to do."""


@dataclass(frozen=True)
class Ceiling:
    """What was measured with one number of threads; the rates are the best of the samples.

    The best, not the mean: noise only ever takes away from what the machine can do.
    """

    threads: int
    gemm_flops_per_second: float
    bandwidth_bytes_per_second: float
    """Bytes read and written by a += b, without traffic that the caches add."""
    gemm_samples: tuple[float, ...]
    """FLOP/s of each repetition."""
    bandwidth_samples: tuple[float, ...]
    """Bytes per second of each round."""
    gemm_order: int
    """n of the n x n matrices."""
    gemm_cpus_busy: float
    """CPU seconds per second during the products."""
    bandwidth_cpus_busy: float
    """The same during the bandwidth loop."""
    cpus_available: float
    """What affinity mask and quota left to this process; see `Cpu.capacity_cpus`."""
    array_bytes: int
    """Each of the two arrays of the bandwidth loop."""
    numpy: str
    blas: str | None
    """Library, version and kernel family; None where threadpoolctl is not installed."""
    blas_threads: int | None
    """The threads that the BLAS says it has; some never take more than there are CPUs."""

    @property
    def doubt(self) -> str | None:
        """Why this may be less than the machine can do; None where all CPUs that were asked for were at work.

        Even the best repetition is too slow where other programs run all the time, and a framework measured
        in a quieter hour would then seem to exceed the ceiling.
        """
        wanted = min(float(self.threads), self.cpus_available)
        for what, busy in (("products", self.gemm_cpus_busy), ("bandwidth loop", self.bandwidth_cpus_busy)):
            if busy < _BUSY_ENOUGH * wanted:
                return (
                    f"only {busy:.2g} of {wanted:g} CPUs were at work during the {what}: other programs used them, "
                    "or not all threads were used; measure again on a quiet machine"
                )
        return None


@dataclass(frozen=True)
class Ceilings(JsonRecord):
    """The ceilings for several numbers of threads."""

    measured: tuple[Ceiling, ...]
    """In ascending order of threads."""

    def gemm_flops_per_second(self, threads: int) -> float | None:
        """Return the ceiling at `threads` in FLOP/s; None where nothing was measured at so few threads.

        The maximum over all measured numbers of threads up to this one: a program with p threads at its
        disposal could leave some idle, so a ceiling never falls as threads are added.
        """
        return self._highest(threads, lambda each: each.gemm_flops_per_second)

    def bandwidth_bytes_per_second(self, threads: int) -> float | None:
        """Return the same for memory bandwidth, in bytes per second."""
        return self._highest(threads, lambda each: each.bandwidth_bytes_per_second)

    def _highest(self, threads: int, rate: Callable[[Ceiling], float]) -> float | None:
        return max((rate(each) for each in self.measured if each.threads <= threads), default=None)


def measure(
    thread_counts: Iterable[int],
    *,
    python: str | Path = sys.executable,
    seconds: float = 1.0,
    array_bytes: int | None = None,
    largest_order: int | None = None,
    timeout_seconds: float = 120.0,
) -> Ceilings:
    """Measure the ceilings of the CPUs that this process may use, one fresh process per number of threads.

    `python` is the interpreter, which needs NumPy; `seconds` of timing per number of threads, to which come
    the process's start and the making of the arrays (well under a second, more on machines with very large
    caches). `array_bytes`, for each of two arrays, defaults to four times all last-level caches together, and
    `largest_order`, of the matrices, to 8192; both to less where memory is short.

    Raises ValueError for numbers of threads that are not positive or are none at all, and CeilingError where
    the interpreter cannot be started, fails, or takes longer than `timeout_seconds` for one number of
    threads.
    """
    counts = sorted(set(thread_counts))
    if not counts or counts[0] < 1:
        raise ValueError(f"thread_counts must be one or more positive numbers, not {counts}")
    cpu = probe_cpu()
    request = {
        "seconds": seconds,
        "array_bytes": array_bytes or _default_array_bytes(cpu.last_level_cache_bytes or 0),
        "largest_order": largest_order or _default_largest_order(),
    }
    measured: list[Ceiling] = []
    for threads in counts:
        ceiling = _measure_one({"threads": threads, **request}, python, timeout_seconds, cpu.capacity_cpus)
        measured.append(ceiling)
    return Ceilings(tuple(measured))


def _measure_one(request: dict[str, Any], python: str | Path, timeout_seconds: float, cpus_available: float) -> Ceiling:
    measuring = f"measuring the ceilings with {request['threads']} threads"
    with tempfile.TemporaryDirectory(prefix="dlbench-ceiling-") as folder:
        try:
            result = run_worker(WORKER, request, Path(folder), python, timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise CeilingError(
                f"{measuring} took longer than {timeout_seconds:g} s: allow more time, or give a smaller array_bytes "
                "or largest_order"
            ) from error
        except OSError as error:
            raise CeilingError(f"the interpreter {python} cannot be started: {error}") from error
        except WorkerFailed as error:
            raise CeilingError(
                f"{measuring} failed in {python} {error}. The interpreter needs NumPy and memory for two arrays of "
                f"{request['array_bytes']} bytes"
            ) from error
    samples: dict[str, Any] = {name: tuple(result.pop(name)) for name in ("gemm_samples", "bandwidth_samples")}
    return Ceiling(
        gemm_flops_per_second=max(samples["gemm_samples"]),
        bandwidth_bytes_per_second=max(samples["bandwidth_samples"]),
        cpus_available=cpus_available,
        **samples,
        **result,
    )


def _default_array_bytes(cache_bytes: int) -> int:
    """Return four times all last-level caches together, as STREAM's run rules ask; within what memory allows."""
    # The upper bound keeps the time bounded on servers with over 256 MiB of cache; two arrays of 1 GiB are
    # still more than the caches hold there.
    wanted = min(_LARGEST_ARRAY, max(_SMALLEST_ARRAY, 4 * cache_bytes))
    return min(wanted, _spare_bytes() // 2)


def _default_largest_order() -> int:
    return max(64, min(_LARGEST_ORDER, int((_spare_bytes() / (3 * 4)) ** 0.5)))  # three matrices of float32


def _spare_bytes() -> int:
    """Return the memory that may be taken for a while: a quarter of what is available under the group's limit."""
    memory = probe_memory()
    return min(memory.available_bytes, memory.limit_bytes or memory.available_bytes) // 4

"""The sentinel's program, run by path in a fresh interpreter.

``python -I sentinel_worker.py REQUEST.json RESULT.json``. It does a fixed amount of two kinds of work on one thread and
writes how fast that went. The sizes never depend on how busy the machine is: the readings of one machine must stay
comparable. The request holds "array_bytes", the size of each of two arrays.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# 3 MiB of matrices, in reach of a core's own caches; 0.27 GFLOP, some milliseconds, so that a time slice lost to
# another program spoils a few products and not the median.
GEMM_ORDER = 512
# Of timing, for each of the two kinds of work.
SECONDS = 0.1
MINIMUM_REPETITIONS = 5


def times(work: Callable[[], object]) -> list[float]:
    """Return the seconds of each repetition: at least so many, and until the time is over."""
    work()  # caches and pages cold
    measured: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(measured) < MINIMUM_REPETITIONS or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        measured.append(time.perf_counter() - start)
    return measured


def gemm() -> list[float]:
    """Return FLOP/s of each single-precision product of two 512 x 512 matrices: 2 n^3 operations."""
    block = np.random.default_rng(0).random(4099, dtype=np.float32)
    a = np.resize(block, (GEMM_ORDER, GEMM_ORDER))
    b = np.resize(block[::-1], (GEMM_ORDER, GEMM_ORDER))
    c = np.empty((GEMM_ORDER, GEMM_ORDER), dtype=np.float32)
    return [2 * GEMM_ORDER**3 / each for each in times(lambda: np.dot(a, b, out=c))]


def bandwidth(array_bytes: int) -> list[float]:
    """Return bytes per second of each pass of a += b: both read, a written (as `ceiling_worker` counts)."""
    a = np.ones(array_bytes // 4, dtype=np.float32)
    b = np.ones(array_bytes // 4, dtype=np.float32)
    return [3 * a.nbytes / each for each in times(lambda: np.add(a, b, out=a))]


def schedule() -> tuple[float, float] | None:
    """Return the seconds this thread has run, and waited for a CPU while it could have; None where not told."""
    try:
        running, waiting, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(running) * 1e-9, int(waiting) * 1e-9


def main(request_path: str, result_path: str) -> None:
    """Measure, and write the result under its name only when it is complete."""
    result = {
        "gemm": gemm(),
        "bandwidth": bandwidth(json.loads(Path(request_path).read_text())["array_bytes"]),
        "schedule": schedule(),
        "gemm_order": GEMM_ORDER,
        "numpy": np.__version__,
    }
    partial = Path(result_path + ".part")
    partial.write_text(json.dumps(result))
    partial.replace(result_path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

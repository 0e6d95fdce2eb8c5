"""Measure what this machine can do: run by path, ``python -I worker.py REQUEST.json RESULT.json``.

The thread variables are set before the start, because thread pools read them at import. Needs NumPy
alone, and keeps to the syntax of Python 3.6, as it runs in the interpreters of old frameworks too.
A request for ceilings holds "threads", "seconds" (of timing, in all), "array_bytes" (each of the
two arrays of the bandwidth loop) and "largest_order" (of the matrices). The sentinel's holds
"threads" (1) and "array_bytes".
"""

import importlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MINIMUM_REPETITIONS = 3
# One repetition should last at least this long, in seconds, to stand clear of timer and barrier.
REPETITION_SECONDS = 0.04
# The first round finds caches and threads cold. The second shows how many passes make a repetition.
CALIBRATION_ROUNDS = 2
# Of the matrices, unless the request says less. On a loaded machine every product looks slow, and
# the order that suits the time would be so small that threads spend it waiting for one another.
SMALLEST_ORDER = 1024


def gemm(seconds: float, largest_order: int) -> "dict[str, object]":
    """Time C = A B in single precision.

    Return the order n of the matrices, the FLOP/s of each repetition, and the CPUs busy. A product
    has 2 n^3 floating-point operations. The first, small products start the thread pool and are
    not counted.
    """
    order = min(256, largest_order)
    time_gemm(order, 1)  # pool and caches cold
    # The best of many: one disturbed product here would lead to matrices that are too small.
    elapsed = min(time_gemm(order, MINIMUM_REPETITIONS, seconds / 10)[0])
    # The rate grows with the order, so the largest is taken that leaves several repetitions within
    # the time.
    target = max(REPETITION_SECONDS, seconds / 8)
    order = int(order * (target / max(elapsed, 1e-9)) ** (1 / 3))
    order = min(largest_order, max(SMALLEST_ORDER, order // 64 * 64))
    times, cpus_busy = time_gemm(order, MINIMUM_REPETITIONS, seconds)
    return {
        "gemm_order": order,
        "gemm_samples": [2 * order**3 / seconds for seconds in times],
        "gemm_cpus_busy": cpus_busy,
    }


def time_gemm(order: int, repetitions: int, seconds: float = 0.0) -> "tuple[list[float], float]":
    """Return the seconds of each product of two square matrices, and CPU seconds per second.

    At least `repetitions` products are timed, and until `seconds` have passed.
    """
    block = np.random.RandomState(0).random_sample(4099).astype(np.float32)
    a = np.resize(block, (order, order))
    b = np.resize(block[::-1], (order, order))
    c = np.empty((order, order), dtype=np.float32)
    np.dot(a, b, out=c)  # touches the pages of c
    times = []  # type: list[float]
    cpu = time.process_time()
    while len(times) < repetitions or sum(times) < seconds:
        start = time.perf_counter()
        np.dot(a, b, out=c)
        times.append(time.perf_counter() - start)
    return times, (time.process_time() - cpu) / sum(times)


def run_together(work: "Callable[[int], None]", barrier: threading.Barrier) -> None:
    """Run `work` in as many threads as meet at the barrier, each given its number.

    Raise the first failure.
    """
    failures = []  # type: list[BaseException]

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)
            barrier.abort()  # or the others would wait for ever

    workers = []
    for number in range(barrier.parties):
        workers.append(threading.Thread(target=guarded, args=(number,)))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]


def bandwidth(threads: int, seconds: float, array_bytes: int) -> "dict[str, object]":
    """Time a += b over two float32 arrays, split among Python threads.

    Return the bytes per second of each round, and the CPUs busy. Three passes count: a and b read,
    a written. Each cache line written was read before, so all traffic is counted. A copy, or
    STREAM's triad, into another array makes most CPUs read that one too, uncounted. It is also the
    shape of an SGD update. NumPy releases the GIL in the loop.
    """
    length = max(1024, array_bytes // 4 // threads)
    barrier = threading.Barrier(threads)
    spans = [[] for _ in range(threads)]  # type: list[list[tuple[float, float]]]
    plan = {"passes": 1, "rounds": CALIBRATION_ROUNDS}
    clocks = {"cpu": 0.0, "wall": 0.0}  # where the timed rounds begin

    def wall(index: int) -> float:
        starts = [spans_of_thread[index][0] for spans_of_thread in spans]
        ends = [spans_of_thread[index][1] for spans_of_thread in spans]
        return max(ends) - min(starts)

    def work(number: int) -> None:
        # Each thread makes its own chunk: the pages then lie on the NUMA node where it runs.
        a = np.ones(length, dtype=np.float32)
        b = np.ones(length, dtype=np.float32)
        for index in itertools.count():
            barrier.wait()
            if index == plan["rounds"]:
                break
            # Each thread reads the clock itself. One reading for all would start late: the thread
            # that takes it may be the last to wake from the barrier, with the work of the others
            # half done, and the rate would be too high (six times, when tried).
            start = time.perf_counter()
            for _ in range(plan["passes"]):
                np.add(a, b, out=a)
            spans[number].append((start, time.perf_counter()))
            # All have written their spans, and none continues before the next barrier.
            leader = barrier.wait() == 0
            if leader and index == CALIBRATION_ROUNDS - 1:
                single = wall(index)
                passes = max(1, int(REPETITION_SECONDS / single + 1))
                rounds = max(MINIMUM_REPETITIONS, int(seconds / (single * passes)))
                plan.update(passes=passes, rounds=CALIBRATION_ROUNDS + rounds)
                clocks.update(cpu=time.process_time(), wall=time.perf_counter())

    run_together(work, barrier)
    cpus_busy = (time.process_time() - clocks["cpu"]) / (time.perf_counter() - clocks["wall"])
    counted = 3 * 4 * length * threads * plan["passes"]
    timed_rounds = range(CALIBRATION_ROUNDS, plan["rounds"])
    return {
        "bandwidth_samples": [counted / wall(index) for index in timed_rounds],
        "bandwidth_cpus_busy": cpus_busy,
        "array_bytes": array_bytes,
    }


def blas() -> "dict[str, object]":
    """Return the BLAS of NumPy and its threads; None where threadpoolctl is not installed."""
    try:
        threadpoolctl = importlib.import_module("threadpoolctl")
    except ImportError:
        return {"blas": None, "blas_threads": None}
    for pool in threadpoolctl.threadpool_info():
        if pool.get("user_api") == "blas":
            words = [pool.get("internal_api"), pool.get("version"), pool.get("architecture")]
            return {
                "blas": " ".join(str(word) for word in words if word),
                "blas_threads": pool["num_threads"],
            }
    return {"blas": None, "blas_threads": None}


# The sentinel does a fixed amount of work, however busy the machine: readings of one machine must
# stay comparable. Its matrices have 3 MiB, in reach of a core's own caches. A product has 0.27
# GFLOP, some milliseconds, so that a time slice lost to another program spoils a few products and
# not the median.
SENTINEL_ORDER = 512
SENTINEL_SECONDS = 0.1
SENTINEL_REPETITIONS = 5


def sentinel_times(work: "Callable[[], object]") -> "list[float]":
    """Return the seconds of each repetition: at least this many, and until the time is over."""
    work()  # caches and pages cold
    measured = []  # type: list[float]
    until = time.perf_counter() + SENTINEL_SECONDS
    while len(measured) < SENTINEL_REPETITIONS or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        measured.append(time.perf_counter() - start)
    return measured


def sentinel(array_bytes: int) -> "dict[str, object]":
    """Return FLOP/s of products, bytes per second of passes of a += b, and the schedule.

    The schedule is how long this thread ran and waited.
    """
    order = SENTINEL_ORDER
    block = np.random.default_rng(0).random(4099, dtype=np.float32)
    left = np.resize(block, (order, order))
    right = np.resize(block[::-1], (order, order))
    out = np.empty((order, order), dtype=np.float32)
    products = sentinel_times(lambda: np.dot(left, right, out=out))
    a = np.ones(array_bytes // 4, dtype=np.float32)
    b = np.ones(array_bytes // 4, dtype=np.float32)
    passes = sentinel_times(lambda: np.add(a, b, out=a))
    try:
        running, waiting, _ = Path("/proc/thread-self/schedstat").read_text().split()
        schedule = [int(running) * 1e-9, int(waiting) * 1e-9]  # type: list[float] | None
    except (OSError, ValueError):
        schedule = None  # not reported by this system
    return {
        "gemm": [2 * order**3 / seconds for seconds in products],
        "bandwidth": [3 * a.nbytes / seconds for seconds in passes],
        "schedule": schedule,
        "gemm_order": order,
    }


def main(request_path: str, result_path: str) -> None:
    """Read the request, measure, and write the result under its name only when it is complete."""
    request = json.loads(Path(request_path).read_text())
    result = {"numpy": np.__version__}  # type: dict[str, object]
    if "seconds" in request:
        half = request["seconds"] / 2
        result["threads"] = request["threads"]
        result.update(gemm(half, request["largest_order"]))
        result.update(blas())
        result.update(bandwidth(request["threads"], half, request["array_bytes"]))
    else:
        result.update(sentinel(request["array_bytes"]))
    partial = Path(result_path + ".part")
    partial.write_text(json.dumps(result))
    partial.replace(result_path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

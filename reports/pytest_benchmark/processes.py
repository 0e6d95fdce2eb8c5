"""Several processes that measured the same benchmarks, as one pytest-benchmark JSON.

Such a file is an ordinary one: ``stats.data`` of a benchmark holds the samples of all processes,
one process after another. ``extra_info["dlbench_processes"]`` says which samples are of which
process, so that `dlbench.reports.pytest_benchmark.imported.launches_of` returns each process as a
launch.
"""

from collections.abc import Sequence
from typing import Any

from dlbench.reports.pytest_benchmark.export import PROCESSES_KEY, stats


def merged(contents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one file's content for these, each of one process with all samples, in order; at least
    one.
    """
    first = contents[0]
    by_name: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for content in contents:
        for benchmark in _last_of_each(content["benchmarks"]):
            by_name.setdefault(benchmark["fullname"], []).append((content["datetime"], benchmark))
    benchmarks = [_merged_benchmark(of_processes) for of_processes in by_name.values()]
    return {**first, "benchmarks": benchmarks}


def _last_of_each(benchmarks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the benchmarks without those that were run again."""
    return list({benchmark["fullname"]: benchmark for benchmark in benchmarks}.values())


def _merged_benchmark(of_processes: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    data: list[float] = []
    processes = []
    for moment, benchmark in of_processes:
        samples, iterations = benchmark["stats"]["data"], benchmark["stats"]["iterations"]
        data += samples
        processes.append({"datetime": moment, "samples": len(samples), "iterations": iterations})
    counts = {process["iterations"] for process in processes}
    shared = counts.pop() if len(counts) == 1 else 1
    _, last = of_processes[-1]
    extra_info = {**last["extra_info"], PROCESSES_KEY: processes}
    return {**last, "extra_info": extra_info, "stats": stats(data, shared)}

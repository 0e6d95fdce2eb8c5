"""Several processes that measured the same benchmarks, as one pytest-benchmark JSON.

Such a file is an ordinary one: ``stats.data`` of a benchmark holds the samples of all processes,
one process after another. ``extra_info["dlbench_processes"]`` has the number of samples of each
process and its quantities besides time, so that
`dlbench.reports.pytest_benchmark.imported.launches_of` returns each process as a launch.
"""

from collections.abc import Sequence
from typing import Any

from dlbench.reports.pytest_benchmark.export import PROCESSES_KEY, QUANTITIES_KEY, stats


def merged(contents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the contents of files of one process each, with all samples, as that of one file.

    The contents, at least one, are in order.
    """
    measured_by_name: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for content in contents:
        # The last one of a benchmark that was run again counts.
        last = {benchmark["fullname"]: benchmark for benchmark in content["benchmarks"]}
        for name, benchmark in last.items():
            measured_by_name.setdefault(name, []).append((content["datetime"], benchmark))
    benchmarks = [_merge_benchmark(measured) for measured in measured_by_name.values()]
    return {**contents[0], "benchmarks": benchmarks}


def _merge_benchmark(measured: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return a benchmark with the samples of all processes, given with the time of each."""
    data: list[float] = []
    processes = []
    for moment, benchmark in measured:
        samples = benchmark["stats"]["data"]
        iterations = benchmark["stats"]["iterations"]
        data += samples
        process = {"datetime": moment, "samples": len(samples), "iterations": iterations}
        quantities = benchmark["extra_info"].get(QUANTITIES_KEY)
        if quantities:
            process["quantities"] = quantities
        processes.append(process)
    counts = {process["iterations"] for process in processes}
    shared = counts.pop() if len(counts) == 1 else 1
    _, last = measured[-1]
    extra_info = {**last["extra_info"], PROCESSES_KEY: processes}
    extra_info.pop(QUANTITIES_KEY, None)
    return {**last, "extra_info": extra_info, "stats": stats(data, shared)}

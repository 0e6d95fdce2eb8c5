"""What the harness itself costs, measured with the null framework, as one table.

    .venv/bin/python tests/benchmarks/harness.py            about five minutes; nothing else should run
    .venv/bin/python tests/benchmarks/harness.py --cells 100 --launches 10      shorter

Goals: timed loop at most 2 microseconds a step; a launch, from spawn to stored record, at most 0.25
s beyond its steps; the host under 1 % of a core while a child is measured; a sweep of 1,000 cells
in at most 200 MB.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from dlbench.adapters.launch.timing import timed_loop
from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import Cell, Launch, Protocol
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.storage.store import Store
from dlbench.suites.planning.networks import shipped
from dlbench.suites.run.launcher import LaunchRequest, launch_process

CELL = Cell("null", "null", "null", "fcn5", "cpu", 1, 64)
ROUNDS = 9


def loop_overhead(steps: int = 200_000) -> list[float]:
    """Return, for each round, the seconds per step of the timed loop around a step that does
    nothing."""

    def nothing() -> None:
        return

    results = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        timed_loop(nothing, nothing, Protocol(3, steps, 1, 1e6))
        results.append((time.perf_counter() - start) / steps)
    return results


def null_order(seconds: float, steps: int, step_seconds: float, folder: Path) -> LaunchRequest:
    """Return the order of one null launch."""
    network = to_data(shipped()[CELL.network])
    settings = {"step_seconds": step_seconds}
    launch = Launch(CELL, Protocol(3, steps, 1, seconds), settings, str(folder), network=network)
    return LaunchRequest(launch, Path(sys.executable), {}, 120.0)


def launch_overhead(launches: int, folder: Path) -> list[float]:
    """Return, for each launch, the seconds from before the spawn to the stored record, less its own
    steps."""
    order = null_order(10.0, 10, 0.001, folder)
    started = datetime.now(UTC)
    results = []
    with Store.open(folder / "overhead.sqlite") as store:
        store.add_machine("none", {})
        store.begin_run(
            Run(
                "overhead",
                "harness",
                order.launch.protocol,
                launches,
                (CELL,),
                "none",
                started,
                "0",
                None,
                0,
            )
        )
        for index in range(launches):
            start = time.perf_counter()
            done = launch_process(order)
            outcome = done.outcome()
            record = Record(
                "overhead", "harness", index, CELL, outcome, "none", "", "", order.launch.protocol, started,
                done.wall_seconds, "0",
            )  # fmt: skip
            store.append(record)
            steps = sum(outcome.samples_ns + outcome.warmup_ns) * 1e-9
            results.append(time.perf_counter() - start - steps - (outcome.first_step_seconds or 0))
    return results


def parent_share(folder: Path, seconds: float = 5.0) -> list[float]:
    """Return, for each of three launches, this process's CPU seconds per second while the child is
    measured."""
    results = []
    for _ in range(3):
        order = null_order(seconds, int(seconds / 0.01), 0.01, folder)
        start, cpu = time.perf_counter(), time.process_time()
        launch_process(order)
        results.append((time.process_time() - cpu) / (time.perf_counter() - start))
    return results


def sweep(cells: int, folder: Path) -> tuple[float, float]:
    """Run the real command over so many null cells; return its seconds and its peak memory in
    MB."""
    batches = list(range(1, -(-cells // 40) + 1))
    definition = folder / "sweep.toml"
    networks = ["fcn5", "fcn8", "alexnet", "lstm32", "lstm64"]
    sizes = "\n".join(f"{network} = {batches}" for network in networks)
    definition.write_text(
        f'name = "sweep"\nsummary = "null cells"\nnetworks = {networks}\nframeworks = ["null"]\nthreads = "1-8"\n'
        f"[protocol]\nsteps = 5\n[batch_sizes]\n{sizes}\n"
    )
    command = [
        sys.executable,
        "-m",
        "dlbench.suites",
        "run",
        str(definition),
        "--store",
        str(folder / "sweep.sqlite"),
    ]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    # The largest single process below this one: the host, since a null guest is smaller.
    return time.perf_counter() - start, resource.getrusage(
        resource.RUSAGE_CHILDREN
    ).ru_maxrss / 1024


def main(cells: int = 1000, launches: int = 30) -> None:
    """Measure the sweep of so many cells (a multiple of 40), the overhead of so many launches, and
    all else."""
    table = Table(
        "what", "median", "quartiles", "goal", "met", title="The harness itself", box=None
    )

    def row(quantity: str, values: list[float], scale: float, unit: str, goal: float) -> None:
        low, middle, high = np.percentile(values, [25, 50, 75]) * scale
        verdict = "yes" if middle <= goal else "NO"
        table.add_row(
            quantity,
            f"{middle:.3g} {unit}",
            f"{low:.3g} - {high:.3g}",
            f"<= {goal:g} {unit}",
            verdict,
        )

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row("timed loop, per step", loop_overhead(), 1e6, "us", 2.0)
        row("launch, spawn to stored record", launch_overhead(launches, folder), 1.0, "s", 0.25)
        row("host's share of a core while measuring", parent_share(folder), 100.0, "%", 1.0)
        seconds, megabytes = sweep(cells, folder)
        row(f"sweep of {cells} cells, host memory", [megabytes], 1.0, "MB", 200.0)
    table.add_row(
        f"sweep of {cells} cells, time",
        f"{seconds:.0f} s",
        "",
        f"{seconds / cells:.3f} s a cell",
        "",
    )
    Console(width=110).print(table)
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} CPUs; medians of repeated measurements on "
        "this machine."
    )


if __name__ == "__main__":
    typer.run(main)

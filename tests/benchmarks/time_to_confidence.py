"""How long until a suite's cells are known to +-2 %: our planner against fixed protocols, and what each achieves.

    dlbench run quick --threads cores --launches 12 --store pool.sqlite
    python tests/benchmarks/time_to_confidence.py pool.sqlite

The pool is a run with many launches of each cell. Every protocol is replayed on it: a launch is drawn with replacement
from the cell's launches and its steps with replacement from that launch's steps, and it costs what that launch cost
(start-up, parity, warm-up) plus the steps drawn. The truth of a cell is the geometric mean of all its launches'
medians. Replayed, not carried out: pyperf and pytest-benchmark never ran these networks here.

- ours: launches until the interval is +-2 % (5 to 20), steps by variance and cost: `suites.run.schedules` itself.
- fixed 20 x 50: 20 launches of 50 steps; Student's t over launches.
- pyperf: its defaults, 20 worker processes of 3 values after 1 warm-up value, each value as many loops as make
  0.1 s, and one calibrating process (documentation of pyperf, "Runner"); Student's t over processes.
- pytest-benchmark: its defaults, one process, at least 5 rounds and 1 s; the interval of the median over rounds.

Columns: wall time for all cells; the interval's half-width (median over cells and replays); the real error (its 95 %
quantile over replays, the worst cell's in brackets); how often the interval covered the truth.
"""

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.disturbance import disturbed
from dlbench.reports.statistics import summarise
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.record import last_attempts
from dlbench.reports.storage.store import Store
from dlbench.suites.run.schedules import LaunchStats, launch_stats, launches_needed, samples_of_launch

PRECISION, FEWEST, MOST = 0.02, 5, 20
FEWEST_STEPS, MOST_STEPS = 5, 12  # as the suite `quick` has them


def drawn(pool, lot, count):
    """Return a launch of the pool, ``count(stats)`` of its steps, and what they cost in seconds."""
    stats, steps = pool[lot.integers(len(pool))]
    values = lot.choice(steps, count(stats))
    return stats, values, stats.startup_seconds + float(values.sum())


# Each protocol takes a cell's pool and returns the launches drawn, and what they cost in seconds.


def ours(pool, lot):
    """Launch until the target is reached, as the planner does."""
    launches, steps, cost = [], [], 0.0
    while launches_needed(launches, PRECISION, FEWEST, MOST):
        count = samples_of_launch(launches, FEWEST_STEPS, MOST_STEPS, searching=True)
        stats, values, seconds = drawn(pool, lot, lambda stats, count=count: count)
        low, high = np.quantile(np.log(values), [0.25, 0.75])
        noise = (float(high - low) / 1.349) ** 2
        launches.append(replace(stats, seconds=float(np.median(values)), log_variance=noise, samples=len(values)))
        steps.append(values)
        cost += seconds
    return steps, cost


def fixed(pool, lot):
    """Launch twenty times fifty steps."""
    _, steps, costs = zip(*(drawn(pool, lot, lambda stats: 50) for _ in range(20)), strict=True)
    return steps, sum(costs)


def pyperf(pool, lot):
    """Start twenty processes of three values after a warm-up, and one that calibrates."""

    def loops(stats):
        return max(1, 2 ** math.ceil(math.log2(0.1 / stats.seconds))) if stats.seconds < 0.1 else 1

    launches = [drawn(pool, lot, lambda stats: 4 * loops(stats)) for _ in range(21)]
    means = [values.reshape(4, loops(stats)).mean(axis=1)[1:] for stats, values, _ in launches[1:]]
    return means, sum(cost for *_, cost in launches)


def pytest_benchmark(pool, lot):
    """Start one process: five rounds or one second, whichever is more."""
    _, values, cost = drawn(pool, lot, lambda stats: max(5, math.ceil(1.0 / stats.seconds)))
    return [values], cost


PROTOCOLS = {
    "ours, to 2 %": ours,
    "fixed 20 x 50": fixed,
    "pyperf defaults": pyperf,
    "pytest-benchmark defaults": pytest_benchmark,
}


def read(path: str, run: str | None) -> dict[Cell, list[tuple[LaunchStats, np.ndarray]]]:
    """Return the pool: every cell with at least five launches that gave a number and were not disturbed."""
    with Store.open(path, create=False) as store:
        chosen = run or store.runs()[-1].id
        records = store.records(run=chosen)
        host = read_host(records[0].machine, store.machine(records[0].machine))
    pool = defaultdict(list)
    for record in last_attempts(records):
        found = launch_stats(record) if record.outcome.status is Status.OK else None
        if found is not None and not disturbed(record, host):
            pool[record.cell].append((found, np.asarray(record.outcome.step_seconds())))
    return {cell: launches for cell, launches in pool.items() if len(launches) >= 5}


def main(store: str, run: str | None = None, replays: int = 1000) -> None:
    """Replay every protocol and print the table."""
    pool = read(store, run)
    if not pool:
        raise SystemExit("No cell of this run has five launches: make a pool first (--launches 12).")
    launches = sorted(len(found) for found in pool.values())
    console = Console(width=100)
    console.print(f"{len(pool)} cells, {launches[0]} to {launches[-1]} launches each; {replays} replays")
    table = Table(*("protocol", "wall time", "against ours", "interval", "real error, 95 %", "coverage"), box=None)
    base = 0.0
    for name, protocol in PROTOCOLS.items():
        lot = np.random.default_rng(20261120)
        seconds, halves, errors, covered = 0.0, [], [], []
        for found in pool.values():
            truth = float(np.exp(np.mean([math.log(stats.seconds) for stats, _ in found])))
            replayed, costs = zip(*(protocol(found, lot) for _ in range(replays)), strict=True)
            summaries = [summarise([values.tolist() for values in launches]) for launches in replayed]
            intervals = [(each.low or each.median, each.high or each.median) for each in summaries]
            seconds += float(np.mean(costs))
            halves += [(high - low) / 2 / each.median for each, (low, high) in zip(summaries, intervals, strict=True)]
            errors.append(float(np.quantile([abs(each.median / truth - 1) for each in summaries], 0.95)))
            covered += [low <= truth <= high for low, high in intervals]
        base = base or seconds
        table.add_row(
            name,
            f"{seconds / 60:.1f} min",
            f"{seconds / base:.2f}",
            f"+-{np.median(halves):.1%}",
            f"{np.median(errors):.1%} ({max(errors):.1%})",
            f"{np.mean(covered):.1%}",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

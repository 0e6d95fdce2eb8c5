"""How long until a suite's cells are known to +-2 %: our planner against fixed protocols, and what
each achieves.

    dlbench run quick --threads cores --launches 12 --store pool.sqlite
    python tests/benchmarks/time_to_confidence.py pool.sqlite
    python tests/benchmarks/time_to_confidence.py --simulated

The pool is a run with many launches of each cell. Every protocol is replayed on it: a launch is
drawn with replacement from the cell's launches and its steps with replacement from that launch's
steps, and it costs what that launch cost (start-up, parity, warm-up) plus the steps drawn. The
truth of a cell is the geometric mean of all its launches' medians. Replayed, not carried out:
pyperf and pytest-benchmark never ran these networks here.

- ours: blocks of launches until the interval is +-2 % (3 to 20), steps by variance and cost, the
  variance of launches shared between cells: `suites.run.schedules` and `reports.results.statistics`
  themselves.
- each cell alone: the same, each cell by its own launches (how dlbench did it until November 2026).
- pyperf: its defaults, 20 worker processes of 3 values after 1 warm-up value, each value as many
  loops as make 0.1 s, and one calibrating process (documentation of pyperf, "Runner"); Student's t
  over processes.
- pytest-benchmark: its defaults, one process, at least 5 rounds and 1 s; the interval of the median
  over rounds.

Columns: wall time for all cells; launches of a cell; the interval's half-width (median over cells
and replays); the real error (its 95 % quantile over replays, the worst cell's in brackets); how
often it was 2 % at most; how often the interval covered the truth.

``--simulated`` makes the pools: 24 cells with steps of 0.3 to 1.4 s that vary by 2 % within a
launch, launches that cost 2.5 s and deviate by 0.5 to 5 %, alike in all cells or not.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.record import last_attempts
from dlbench.reports.results.statistics import UNKNOWN_SPREAD, summarise, with_common_spread
from dlbench.reports.results.storage.store import Store
from dlbench.suites.planning import suite
from dlbench.suites.run.schedules import (
    LaunchStats,
    launch_stats,
    launches_needed,
    log_variance,
    samples_of_launch,
    spread_of,
)

PRECISION, FEWEST, MOST = 0.02, 3, 20
PROTOCOL = suite.load("quick").protocol.protocol()
MOST_STEPS = PROTOCOL.steps


def drawn(pool, lot, count):
    """Return a launch of the pool, ``count(stats)`` of its steps, and what they cost in seconds."""
    stats, steps = pool[lot.integers(len(pool))]
    values = lot.choice(steps, count(stats))
    return stats, values, stats.startup_seconds + float(values.sum())


# Each protocol takes the pools of all cells; it returns for each its launches' steps, and what all
# cost in seconds.


def ours(pools, lot, shared=True):
    """Launch until the target is reached, as the planner does: block after block of all cells that
    need it."""
    launches, steps, cost = [[] for _ in pools], [[] for _ in pools], 0.0
    for _ in range(MOST):
        spread = spread_of(launches) if shared else UNKNOWN_SPREAD
        for cell, pool in enumerate(pools):
            if not launches_needed(launches[cell], PRECISION, FEWEST, MOST, spread):
                continue
            alike = [launch for launches_of_cell in launches for launch in launches_of_cell]
            count = samples_of_launch(
                launches[cell], PROTOCOL.minimum_steps, MOST_STEPS, False, spread, alike
            )
            stats, values, seconds = drawn(pool, lot, lambda stats, count=count: count)
            median, noise = float(np.median(values)), log_variance(values)
            launched = replace(stats, seconds=median, log_variance=noise, samples=len(values))
            launches[cell].append(launched)
            steps[cell].append(values)
            cost += seconds
    return steps, cost


def each_alone(pools, lot):
    """Launch until the target is reached, each cell by its own launches."""
    return ours(pools, lot, shared=False)


def for_each_cell(protocol):
    """Return a protocol for all cells that treats one after the other."""

    def of_all(pools, lot):
        steps, costs = zip(*(protocol(pool, lot) for pool in pools), strict=True)
        return steps, sum(costs)

    return of_all


@for_each_cell
def pyperf(pool, lot):
    """Start twenty processes of three values after a warm-up, and one that calibrates."""

    def loops(stats):
        return max(1, 2 ** math.ceil(math.log2(0.1 / stats.seconds))) if stats.seconds < 0.1 else 1

    launches = [drawn(pool, lot, lambda stats: 4 * loops(stats)) for _ in range(21)]
    means = [values.reshape(4, loops(stats)).mean(axis=1)[1:] for stats, values, _ in launches[1:]]
    return means, sum(cost for *_, cost in launches)


@for_each_cell
def pytest_benchmark(pool, lot):
    """Start one process: five rounds or one second, whichever is more."""
    _, values, cost = drawn(pool, lot, lambda stats: max(5, math.ceil(1.0 / stats.seconds)))
    return [values], cost


PROTOCOLS = {
    "ours, to 2 %": ours,
    "each cell alone, to 2 %": each_alone,
    "pyperf defaults": pyperf,
    "pytest-benchmark defaults": pytest_benchmark,
}


def read(path: str, run: str | None) -> dict[Cell, list[tuple[LaunchStats, np.ndarray]]]:
    """Return the pool: every cell with at least five launches that gave a number and were not
    disturbed."""
    with Store.open(path, create=False) as store:
        chosen = run or store.runs()[-1].id
        records = store.records(run=chosen)
        host = read_host(records[0].machine, store.machine(records[0].machine))
    pool = defaultdict(list)
    for record in last_attempts(records):
        result = launch_stats(record) if record.outcome.status is Status.OK else None
        if result is not None and not disturbed(record, host):
            pool[record.cell].append((result, np.asarray(record.outcome.step_seconds())))
    return {cell: launches for cell, launches in pool.items() if len(launches) >= 5}


def simulated() -> Iterator[tuple[str, list[list[tuple[LaunchStats, np.ndarray]]]]]:
    """Yield pools of known deviation: what they are, and the launches of each cell."""
    cells, launches, steps, within, startup = 24, 200, 50, 0.02, 2.5
    random = np.random.default_rng(20261125)
    deviations = {
        f"launches deviate by {deviation:.1%}": np.full(cells, deviation)
        for deviation in (0.005, 0.01, 0.02, 0.03, 0.05)
    }
    for centre, factor in ((0.01, 1.5), (0.02, 1.5), (0.015, 2.2)):
        unlike = centre * factor ** random.standard_normal(cells)
        deviations[f"by {centre:.1%}, each cell by a factor of {factor} more or less"] = unlike
    deviations["by 1.0%, three cells by 6.0%"] = np.where(np.arange(cells) < 3, 0.06, 0.01)
    for name, of_cells in deviations.items():
        pools = []
        for deviation, level in zip(of_cells, np.geomspace(0.3, 1.4, cells), strict=True):
            medians = level * np.exp(deviation * random.standard_normal(launches))
            samples = medians[:, None] * np.exp(within * random.standard_normal((launches, steps)))
            pools.append(
                [
                    (LaunchStats(float(np.median(s)), within**2, steps, level, startup), s)
                    for s in samples
                ]
            )
        yield name, pools


def replayed(
    pools, protocol, replays: int
) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray]:
    """Return mean seconds of all cells and launches of one; by replay and cell its half-width,
    error and coverage."""
    lot, shared = np.random.default_rng(20261120), protocol is ours
    truth = np.array(
        [math.exp(np.mean([math.log(stats.seconds) for stats, _ in pool])) for pool in pools]
    )
    seconds, launches, halves, errors, covered = [], [], [], [], []
    for _ in range(replays):
        steps, cost = protocol(pools, lot)
        summaries = [summarise([values.tolist() for values in of_cell]) for of_cell in steps]
        summaries = with_common_spread(summaries) if shared else summaries
        ends = np.array(
            [
                (summary.low or summary.median, summary.median, summary.high or summary.median)
                for summary in summaries
            ]
        )
        seconds.append(cost)
        launches.append(np.mean([summary.launches for summary in summaries]))
        halves.append((ends[:, 2] - ends[:, 0]) / 2 / ends[:, 1])
        errors.append(np.abs(ends[:, 1] / truth - 1))
        covered.append((ends[:, 0] <= truth) & (truth <= ends[:, 2]))
    return (
        float(np.mean(seconds)),
        float(np.mean(launches)),
        np.array(halves),
        np.array(errors),
        np.array(covered),
    )


def show(title: str, pools, replays: int, names: list[str]) -> None:
    """Replay these protocols on the pools of all cells and print the table."""
    columns = (
        "protocol",
        "wall time",
        "launches",
        "interval",
        "real error, 95 %",
        "<= 2 %",
        "coverage",
    )
    table = Table(*columns, box=None, title=title, title_justify="left")
    for name in names:
        seconds, launches, halves, errors, covered = replayed(pools, PROTOCOLS[name], replays)
        of_cells = np.quantile(errors, 0.95, axis=0)
        table.add_row(
            name,
            f"{seconds / 60:.1f} min",
            f"{launches:.1f}",
            f"+-{np.median(halves):.1%}",
            f"{np.quantile(errors, 0.95):.1%} ({max(of_cells):.1%})",
            f"{np.mean(errors <= PRECISION):.1%}",
            f"{np.mean(covered):.1%}",
        )
    Console(width=100).print(table)


def main(
    store: Annotated[
        str, typer.Argument(help="A store with a run of many launches of each cell.")
    ] = "",
    run: str | None = None,
    replays: int = 300,
    simulated_pools: Annotated[
        bool, typer.Option("--simulated", help="Made-up pools of known deviation.")
    ] = False,
) -> None:
    """Replay every protocol and print the table."""
    if simulated_pools:
        for title, pools in simulated():
            show(title, pools, replays, ["ours, to 2 %", "each cell alone, to 2 %"])
        return
    pool = read(store, run) if store else {}
    if not pool:
        raise SystemExit(
            "No cell of this run has five launches: make a pool first (--launches 12)."
        )
    launches = sorted(len(launches) for launches in pool.values())
    title = f"{len(pool)} cells, {launches[0]} to {launches[-1]} launches each; {replays} replays"
    show(title, list(pool.values()), replays, list(PROTOCOLS))


if __name__ == "__main__":
    typer.run(main)

"""How much do pairs of launches of identical code deviate, one after the other and in turns?

    .venv/bin/python tests/benchmarks/pair_deviation.py --store /tmp/deviation.sqlite --frameworks torch,tensorflow
    .venv/bin/python tests/benchmarks/pair_deviation.py --store /tmp/deviation.sqlite      the table alone

Measures `dlbench compare --now --same` for each framework, network and thread count, in each way to
make a pair. The table has the standard deviation of the log ratio of a pair, its mean (a bias if it
is not zero), the seconds that a pair took, and the deviation over a minute of measuring: `deviation
* sqrt(seconds / 60)`. For pairs in turns it has each way to compare: by the median over rounds, the
lower quartile of a side's turns, and its fastest turn.
"""

import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from dlbench.reports.results.comparison import complete_pairs, seconds_of_pair
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import name_of
from dlbench.reports.results.record import Record
from dlbench.reports.results.rounds import seconds_by_round, took_turns
from dlbench.reports.results.storage.store import Store

SUITE = """name = "deviation"
summary = "identical code: steps of 5 ms to 0.5 s"
frameworks = ["torch"]
threads = "1"

[[network]]
name = "dense"
family = "feedforward"
inputs = 4096
hidden = [1024, 1024]
outputs = 4096
activation = "relu"
batch_size = 64

[[network]]
name = "lstm"
family = "recurrent"
vocabulary = 1000
embedding = 128
hidden = 128
layers = 1
steps = 32
batch_size = 4

[[network]]
name = "convolutional"
family = "convolutional"
channels = 3
side = 32
layers = [
    { convolution = 32, kernel = 3, padding = 1 },
    { pool = 2, stride = 2 },
    { convolution = 64, kernel = 3, padding = 1 },
]
outputs = 10
batch_size = 16
"""


def measure(
    store: Path, frameworks: str, networks: str, threads: str, order: str, pairs: int
) -> None:
    """Measure pairs of identical code in one way; a gate of its exit codes says nothing here."""
    suite = store.with_suffix(".toml")
    suite.write_text(SUITE)
    program = shutil.which("dlbench", path=str(Path(sys.executable).parent)) or "dlbench"
    command = [program, "compare", "--now", "--same", "--suite", str(suite), "--store", str(store)]
    command += ["--frameworks", frameworks, "--threads", threads, "--networks", networks]
    command += ["--order", order, "--pairs", str(pairs)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def log_ratio(pair: tuple[Record, Record]) -> float | None:
    """Return the logarithm of a pair's ratio as reports have it."""
    first, second = seconds_of_pair(*pair)
    return None if first is None or second is None else math.log(second / first)


def by_polish(pair: tuple[Record, Record]) -> float | None:
    """Return the median over rounds of the log ratio of the turns."""
    first, second = (seconds_by_round(record.outcome) for record in pair)
    return float(
        np.median(
            [math.log(second[number] / first[number]) for number in first.keys() & second.keys()]
        )
    )


def by_lower_quartile(pair: tuple[Record, Record]) -> float | None:
    """Return the log ratio of the lower quartiles of the turns."""
    first, second = (
        np.quantile(list(seconds_by_round(record.outcome).values()), 0.25) for record in pair
    )
    return float(np.log(second / first))


def by_fastest_turn(pair: tuple[Record, Record]) -> float | None:
    """Return the log ratio of the fastest turns."""
    first, second = (min(seconds_by_round(record.outcome).values()) for record in pair)
    return math.log(second / first)


def _percent(values: Sequence[float | None]) -> tuple[str, str]:
    matching_values = [value for value in values if value is not None]
    if len(matching_values) < 3:
        return "-", "-"
    return f"{100 * np.std(matching_values, ddof=1):.2f}", f"{100 * np.mean(matching_values):+.2f}"


def table(store: Path) -> Table:
    """Return the table of what a store has."""
    result = Table(
        "cell", "way", "pairs", "step ms", "sd %", "mean %", "s a pair", "sd % a minute", box=None
    )
    with Store.open(store, create=False) as opened:
        runs = list(opened.runs())
        records = {run.id: list(opened.records(run=run.id)) for run in runs}
    ways: dict[tuple[str, str], list[tuple[Record, Record]]] = {}
    for of_run in records.values():
        for cell, of_cell in grouped(of_run, lambda record: record.cell).items():
            for pair in complete_pairs(of_cell):
                way = "turns" if took_turns(pair[0].outcome, pair[1].outcome) else "sequential"
                ways.setdefault((name_of(cell), way), []).append(pair)
    for (name, way), pairs in sorted(ways.items()):
        locations = {way: log_ratio}
        if way == "turns":
            locations |= {
                "  median of rounds": by_polish,
                "  lower quartile": by_lower_quartile,
                "  fastest turn": by_fastest_turn,
            }
        seconds = float(np.mean([sum(record.wall_seconds for record in pair) for pair in pairs]))
        step = float(np.median([pair[0].outcome.median_seconds() or math.nan for pair in pairs]))
        for location, of_pair in locations.items():
            ratios = [of_pair(pair) for pair in pairs]
            deviation, mean = _percent(ratios)
            minute = (
                "-" if deviation == "-" else f"{float(deviation) * math.sqrt(seconds / 60):.2f}"
            )
            result.add_row(
                name,
                location,
                str(len(ratios)),
                f"{1e3 * step:.1f}",
                deviation,
                mean,
                f"{seconds:.1f}",
                minute,
            )
    return result


def main(
    store: Annotated[Path, typer.Option(help="The store of the measurements.")],
    frameworks: Annotated[
        str, typer.Option(help="Frameworks to measure, with commas; none: the table alone.")
    ] = "",
    networks: Annotated[
        str, typer.Option(help="Networks of this script's suite.")
    ] = "dense,lstm,convolutional",
    threads: Annotated[str, typer.Option(help="Thread counts.")] = "1,2",
    pairs: Annotated[int, typer.Option(help="Pairs of each cell in each way.")] = 6,
    ways: Annotated[str, typer.Option(help="Ways to make a pair.")] = "sequential,turns",
) -> None:
    """Measure, and print the table."""
    for framework in filter(None, frameworks.split(",")):
        for way in ways.split(","):
            measure(store, framework, networks, threads, way, pairs)
    Console(width=130).print(table(store))


if __name__ == "__main__":
    typer.run(main)

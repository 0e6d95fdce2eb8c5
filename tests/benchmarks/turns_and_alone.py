"""Does a step take as long in turns as in a launch that has the machine alone?

    .venv/bin/python tests/benchmarks/turns_and_alone.py --store /tmp/alone.sqlite --threads 1 --threads 2
    .venv/bin/python tests/benchmarks/turns_and_alone.py --store /tmp/alone.sqlite      the table alone

Measures groups of launches whose rounds are alternately usual and long: in a long round each launch
has a whole turn of 1.5 s, while the others stand still. Its steps but the first are those of a
launch that has the machine alone. So both kinds of step come from one process and from the same
seconds of the machine. Each ``--threads`` is a group of its own: ``--threads 1,2,4`` takes turns
across thread counts.

The ratio is that of a launch's usual turns to its long turns in the rounds next to them. The row of
a cell has their middle over its launches and rounds, as a launch's seconds do, with an interval by
their median deviation. Nothing else should run. Goal: 0.99 to 1.01.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from scipy import stats

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.naming import name_of
from dlbench.reports.results.record import Record
from dlbench.reports.results.rounds import middle, variance_of_middle
from dlbench.reports.results.statistics import NORMAL_PER_MEDIAN
from dlbench.reports.results.storage.store import Store
from dlbench.suites.__main__ import main as dlbench
from dlbench.suites.run import launch, turns

LONG_SECONDS = 1.5
"""Length of the turns that show a launch alone."""
FEWEST_STEPS = 4
"""Fewest steps of them. The first one does not count."""


class AlternatingTurns(turns.Turns):
    """Turns that are long and whole in every other round."""

    def shape(self, member: int) -> turns.TurnShape:
        """Return the usual content of a turn, or that of a long one."""
        usual = super().shape(member)
        if self.round % 2 == 0:
            return usual
        sample = self._sample_seconds[self._alike(member)]
        samples = max(FEWEST_STEPS, math.ceil(LONG_SECONDS / sample))
        return turns.TurnShape(samples, lead_in=False, slice_seconds=math.inf)


def measure(store: Path, frameworks: str, networks: str, threads: str, rounds: int) -> None:
    """Measure a launch of each cell with so many rounds, half of them long."""

    def rounds_of(*words: Any, **named: Any) -> turns.Rounds:
        usual = turns.rounds_of(*words, **named)
        return replace(usual, fewest=rounds, least=rounds, seconds=0.0, least_seconds=0.0)

    command = ["dlbench", "run", "table4", "--networks", networks, "--frameworks", frameworks]
    command += ["--threads", threads, "--tuning", "tuned", "--launches", "1"]
    command += ["--store", str(store)]
    with (
        patch.object(launch, "Turns", AlternatingTurns),
        patch.object(launch, "rounds_of", rounds_of),
        patch.object(sys, "argv", command),
        suppress(SystemExit),
    ):
        dlbench()


def log_ratios(record: Record) -> list[float]:
    """Return the logarithm of a usual step to a long turn's steps, of each usual turn."""
    outcome = record.outcome
    if outcome.outside is None or not outcome.turns:
        return []
    steps = np.log(outcome.step_seconds())
    parts = np.split(steps, np.cumsum(outcome.turns)[:-1])
    alone: dict[int, float] = {}
    usual: dict[int, float] = {}
    for part, turn in zip(parts, outcome.outside.turns, strict=True):
        if turn.round % 2:
            alone[turn.round] = float(np.median(part[1:]))
        else:
            usual[turn.round] = float(np.median(part))
    ratios = []
    for number, step in usual.items():
        near = [alone[other] for other in (number - 1, number + 1) if other in alone]
        if near:
            ratios.append(step - float(np.mean(near)))
    return ratios


def table_of(records: Sequence[Record]) -> Table:
    """Return the table of all cells, with the middle of the cells in its last line."""
    by_cell: dict[Cell, list[float]] = defaultdict(list)
    for record in records:
        by_cell[record.cell] += log_ratios(record)
    table = Table("cell", "in turns / alone", "95 % interval", "turns", box=None)
    middles = []
    for cell, ratios in sorted(by_cell.items(), key=lambda item: name_of(item[0])):
        if len(ratios) < 2:
            continue
        middles.append(middle(np.asarray(ratios)))
        table.add_row(name_of(cell), *_middle_and_interval(ratios), str(len(ratios)))
    if len(middles) > 1:
        table.add_row("middle of the cells", *_middle_and_interval(middles), "")
    return table


def _middle_and_interval(logs: Sequence[float]) -> tuple[str, str]:
    centre = middle(np.asarray(logs))
    deviation = NORMAL_PER_MEDIAN * float(np.median(np.abs(np.subtract(logs, centre))))
    error = deviation * math.sqrt(variance_of_middle(len(logs)))
    half = float(stats.t.ppf(0.975, len(logs) - 1)) * error
    interval = f"{math.exp(centre - half):.3f} - {math.exp(centre + half):.3f}"
    return f"{math.exp(centre):.3f}", interval


def main(
    store: Annotated[Path, typer.Option()],
    frameworks: str = "torch,tensorflow,jax,mxnet,onnxruntime",
    networks: str = "fcn5,lstm32",
    threads: Annotated[list[str] | None, typer.Option()] = None,
    rounds: int = 16,
) -> None:
    """Measure groups of each of the ``threads``; print a row for each cell of the store."""
    for counts in threads or ():
        for network in networks.split(","):
            measure(store, frameworks, network, counts, rounds)
    with Store.open(store, create=False) as opened:
        Console(width=120).print(table_of(list(opened.records())))


if __name__ == "__main__":
    typer.run(main)

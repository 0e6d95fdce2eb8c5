"""Launches of small recurrent networks: on one thread and on four, on a GPU, in another mode, on another machine."""

from collections.abc import Callable, Iterable

import factory_of_records as make
from records_of_claims import small, tables_of

from dlbench.reports.curve.rnn import Size, Study, study

GRID = [Size(n, t) for n in (10, 100, 500) for t in (20, 50, 100)]


def launches(time: Callable[[Size], float], sizes: Iterable[Size] = GRID, **of_cell: object) -> list[make.Record]:
    return [each for size in sizes for each in small(time(size), *size, **{"mode": "eager", **of_cell})]


def everything() -> list[make.Record]:
    """A row with one thread and four, and on a GPU; another row; another machine."""
    gpu = {"device": "cuda:0", "threads": 4}
    return [
        *launches(lambda size: 1e-5 * size.steps * size.hidden, threads=1),
        *launches(lambda size: 1e-5 * size.steps * (20 + size.hidden / 2), threads=4),
        *launches(lambda size: 2e-3 * size.steps, **gpu),
        *launches(lambda size: 3e-5 * size.steps * size.hidden, threads=1, mode="loop"),
        *launches(lambda size: 2e-3 * size.steps**1.0, threads=1, machine="m-two"),
        *launches(lambda size: 1e-3, [Size(10, 20, 100), Size(100, 20, 2, "sigmoid")], threads=1),
    ]


def found(records: Iterable[make.Record]) -> Study:
    cells = tables_of(records)
    return study(cells.matrix, cells.networks)

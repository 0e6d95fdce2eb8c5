"""Records of recurrent networks: timed, and trained on a text, with what is known of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import factory_of_records as make

from dlbench.reports.cells import build_matrix
from dlbench.reports.curve.recurrent_cells import CellStudy, study
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

TEXT = {"name": "generated", "digest": "0123456789abcdef", "symbols": 1000, "floor": 2.0}
KNOWS_NOTHING = math.log(96)


def falling(length: float, least: float = 2.0) -> Callable[[float], float]:
    """A loss that falls exponentially from that of a network which knows nothing."""
    return lambda step: least + (KNOWS_NOTHING - least) * math.exp(-step / length)


def blocks(loss: Callable[[float], float], steps: int = 600, block: int = 50) -> list[list[float]]:
    """The curve of these losses: means over the blocks."""
    return [[end, sum(map(loss, range(end - block, end))) / block] for end in range(block, steps + 1, block)]


def network(cell: str = "gru", layers: int = 1, size: int = 64, **numbers: Any) -> dict[str, Any]:
    """The fields of a record of this network."""
    named = f"char-{cell}-l{layers}-h{size}-t100"
    data = {"vocabulary": 96, "embedding": 0, "hidden": size, "layers": layers, "steps": 100, "cell": cell, **numbers}
    return {"network": named, "specification": f"of {named}", "batch_size": 100, "data": data}


def launches(
    seconds: float,
    curve: Sequence[Sequence[float]] = (),
    *,
    text: dict[str, Any] | None = None,
    ended: str = "",
    of: dict[str, Any] | None = None,
    **of_cell: Any,
) -> list[Record]:
    """Three launches of a network, the first of which trained."""
    fields = dict(of or network())
    numbers = fields.pop("data")
    found = [
        replace(each, network={"family": "recurrent", "numbers": numbers})
        for each in make.launches(seconds, **{**fields, **of_cell})
    ]
    if curve or ended:
        told = {**found[0].outcome.software, "text": TEXT if text is None else text}
        trained = found[0].outcome._replace(curve=[list(each) for each in curve], curve_ended=ended, software=told)
        found[0] = replace(found[0], outcome=trained)
    return found


def study_of(records: Sequence[Record]) -> CellStudy:
    """What the report makes of them."""
    results = Results(tuple(records), {make.MACHINE: Host(make.MACHINE, "A machine", 2, 2)})
    return study(build_matrix(results), results.records)

"""Launches of one cell on several thread counts, and the curve made of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import factory_of_records as make

from dlbench.reports.cells import build_matrix
from dlbench.reports.curve.threads import Curve, curves
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

HOST = Host(make.MACHINE, "two cores, four CPUs", 2, 4, 4.0, logical_cpus=4)
TESTED = "Welch's t, Holm-adjusted for {} comparisons, p < 0.05"


def records_of(times: Mapping[int, float | Sequence[float]], **of_cell: Any) -> list[Record]:
    """Launches with these times (three of each, one per cent apart, unless given)."""
    return [r for p, t in times.items() for r in make.launches(t, threads=p, **of_cell)]


def curves_of(records: Iterable[Record], host: Host = HOST) -> list[Curve]:
    return curves(build_matrix(Results(tuple(records), {make.MACHINE: host})))


def curve_of(times: Mapping[int, float | Sequence[float]], host: Host = HOST, extra: Sequence[Record] = ()) -> Curve:
    """The one curve of launches with these times."""
    (found,) = curves_of([*extra, *records_of(times)], host)
    return found

"""Launches of mini-batches of many sizes, and the figure made of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import factory_of_records as make
from exported import exporter

from dlbench.adapters.protocol import Status
from dlbench.reports.figure1.analysis import Figure1, figure1
from dlbench.reports.figure1.tables import figure1_page
from dlbench.reports.formats import latex, markdown, terminal
from dlbench.reports.matrix.analysis import build_matrix
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

FORMATS: dict[str, Callable[[Figure1], str]] = {
    "terminal": lambda found: terminal.page_to_terminal(figure1_page(found)),
    "markdown": lambda found: markdown.page_to_markdown(figure1_page(found)),
    "latex": lambda found: latex.page_to_latex(figure1_page(found)),
    "csv": exporter("figure1", "csv"),
    "json": exporter("figure1", "json"),
}
SIZES = (16, 32, 64, 128, 256, 512)


def saturating(half: float, sizes: Sequence[int] = SIZES, highest: float = 1000.0) -> dict[int, float]:
    """Seconds of a device that gives half of its highest rate at a mini-batch of ``half``: T(b) = (b + half) / highest.

    A doubling from b multiplies the rate by 2 (b + half) / (2 b + half), which falls under 1.1 at b = 4.5 half.
    """
    return {size: (size + half) / highest for size in sizes}


def records_of(times: Mapping[int, float | Sequence[float]], **of_cell: Any) -> list[Record]:
    """Launches with these times by mini-batch size (three of each, half a per cent apart, unless given)."""
    records = []
    for size, given_times in times.items():
        each = [f * given_times for f in (0.995, 1.0, 1.005)] if isinstance(given_times, float) else given_times
        records += [make.record([t] * 5, launch=n, batch_size=size, **of_cell) for n, t in enumerate(each)]
    return records


def figure_of(records: Sequence[Record], **of_host: Any) -> Figure1:
    hosts = {r.machine: Host(r.machine, f"machine {r.machine}", 2, 2, 2.0, **of_host) for r in records}
    return figure1(build_matrix(Results(tuple(records), hosts)))


def holes(sizes: Mapping[int, Status], **of_cell: Any) -> list[Record]:
    return [make.hole(status, f"{status.value}!", batch_size=size, **of_cell) for size, status in sizes.items()]

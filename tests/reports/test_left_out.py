"""Reports name the cells that they leave out, each with its reason."""

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.catalogue import report
from dlbench.reports.left_out import left_out
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix, not_compared
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

HOST = Host(make.MACHINE, "two CPUs", 2, 2, 2.0, logical_cpus=2)


def records() -> list[Record]:
    """Launches of two rows that can be compared, of one with too many threads, and one that
    crashed."""
    started = {"import_seconds": 1.0, "prepare_seconds": 1.0, "first_step_seconds": 1.0}
    right = make.outcome([1.0] * 5)._replace(**started)
    greedy = right._replace(threads=make.threads(1, 5.0, 3.0))
    records = []
    for launch in range(3):
        for name, result in (("torch", right), ("mxnet", right), ("jax", greedy)):
            records.append(make.record(result=result, launch=launch, framework=name, threads=1))
        records.append(
            make.hole(Status.CRASHED, "signal 11", launch=launch, framework="onnx", threads=1)
        )
    return records


def results() -> Results:
    return Results(tuple(records()), {make.MACHINE: HOST})


def test_each_reason_is_a_sentence_with_the_cells() -> None:
    lines = left_out(not_compared(build_matrix(results())))
    assert sorted(lines) == [
        (
            "Left out: 1 cell (fcn5, mini-batch 64, jax eager, 1 thread): more threads worked than "
            "were asked for (>)."
        ),
        "Left out: 1 cell (fcn5, mini-batch 64, onnx eager, 1 thread): crash "
        "(`dlbench report matrix` has the reasons).",
    ]


def test_more_cells_than_a_line_can_name_are_counted() -> None:
    cells = [cell for cell in build_matrix(results()).cells.values() if cell.row.framework == "jax"]
    (line,) = left_out(cells * 5)
    assert line.startswith("Left out: 5 cells (")
    assert "; and 2 more): " in line


@pytest.mark.parametrize("name", ["costs", "frameworks", "fastest"])
def test_a_report_names_what_it_leaves_out(name: str) -> None:
    declared = report(name)
    page = declared.page(declared.analyse(ReportSource(results)), ReportOptions())
    text = " ".join(map(str, page))
    assert "jax eager, 1 thread): more threads worked than were asked for (>)" in text
    assert "onnx eager, 1 thread): crash" in text

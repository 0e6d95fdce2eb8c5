"""The picture of the matrix: shares of the measured ceiling."""

from dataclasses import replace

import factory_of_records as make
import pytest
from pictures import texts

from dlbench.reports.cells import Matrix, build_matrix
from dlbench.reports.matrix import REPORT, _share, drawn_cells
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.results import Results


def matrix_of(*records):
    hosts = {make.MACHINE: Host(make.MACHINE, "two cores", 2, 2, 2.0)}
    return build_matrix(Results(tuple(records), hosts, products={(make.MACHINE, "cpu", "float32"): ((1, 1e12),)}))


def test_rows_networks_and_threads_are_named(tmp_path):
    records = [r for name in ("torch", "mxnet") for p in (1, 2) for r in make.launches(1.0, framework=name, threads=p)]
    (written,) = REPORT.draw(matrix_of(*records), tmp_path / "m.svg", ReportOptions())
    assert {"fcn5, mini-batch 64", "torch eager", "mxnet eager", "1", "2", "threads"} <= set(texts(written))


def test_the_shorter_the_time_the_larger_the_share():
    (cell,) = drawn_cells(matrix_of(*make.launches(1.0)))
    share, low, high = _share(cell)
    assert share == pytest.approx(100 * cell.ceiling_fraction)
    assert low < share < high
    assert low * cell.seconds.high == pytest.approx(high * cell.seconds.low)


def test_wrong_mathematics_and_cells_without_a_ceiling_are_not_drawn():
    wrong = make.record(result=make.outcome(parity=make.parity("disagrees", "no")))
    assert drawn_cells(matrix_of(wrong)) == []
    matrix = matrix_of(*make.launches(1.0))
    bare = {place: replace(cell, ceiling_fraction=None) for place, cell in matrix.cells.items()}
    assert not REPORT.drawable(replace(matrix, cells=bare))
    assert not REPORT.drawable(Matrix())

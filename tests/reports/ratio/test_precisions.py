"""`dlbench report precisions`: the ratio of each precision to float32, by an independent
computation."""

import math
from statistics import geometric_mean

import factory_of_records as make
import pytest

from dlbench.reports.ratio.precisions import REPORT, precisions
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.results import Results

FLOAT32, BFLOAT16 = [0.20, 0.21, 0.22], [0.10, 0.11, 0.12]


def of(records):
    return precisions(build_matrix(Results(tuple(records))))


def measured(**axes):
    in_float32 = make.launches(FLOAT32, **axes)
    return [*in_float32, *make.launches(BFLOAT16, precision="bfloat16", **axes)]


def test_each_row_is_compared_with_itself_in_float32():
    (pair,) = of(
        [*measured(threads=2), *make.launches(FLOAT32, precision="bfloat16", threads=4)]
    ).rows
    assert (pair.cell.cell.precision, pair.other.cell.precision) == ("bfloat16", "float32")
    assert pair.ratio.value == pytest.approx(geometric_mean(BFLOAT16) / geometric_mean(FLOAT32))
    assert pair.verdict == "faster"


def test_cells_without_a_partner_are_named_and_nothing_is_made_up():
    analysis = of([*measured(threads=2), *make.launches(FLOAT32, precision="bfloat16", threads=4)])
    page = REPORT.page(analysis, None)
    assert any(line.startswith("Left out: 1 cell (") for line in page.after)
    (cell,) = REPORT.as_data(analysis)["cells"]
    assert cell["threads"] == 2
    assert math.isclose(cell["ratio"]["value"], analysis.rows[0].ratio.value)


def test_without_another_precision_it_says_how_to_measure_one():
    (line, *_) = REPORT.page(of(make.launches(FLOAT32)), None).before
    assert "--precisions" in line

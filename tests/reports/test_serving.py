"""The choices of a server: most examples per second within a limit of the tail, beside the usual
choice."""

import factory_of_records as make
import numpy as np
import pytest

from dlbench.reports.report import ReportOptions
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.record import Record
from dlbench.reports.serving import REPORT, limit_of, serving

CALLS = 400


def answers(
    seconds: float, tail: float = 1.0, count: int = CALLS, **of_cell: object
) -> list[Record]:
    """Return two launches of so many calls, the slowest in fifty of which take ``tail`` times as
    long."""
    calls = np.full(count, seconds)
    calls[::50] *= tail
    result = make.outcome(list(calls))
    return [
        make.record(result=result, launch=launch, task="inference", **of_cell)
        for launch in range(2)
    ]


SINGLE = answers(0.010, batch_size=1, threads=1)
BOTH = answers(0.008, batch_size=1, threads=2)
DEFAULT = answers(0.009, batch_size=1, threads=0)
MANY = answers(0.040, batch_size=16, threads=2)
UNEVEN = answers(0.030, tail=4.0, batch_size=16, threads=1)
FASTER_WITH_FEW_CALLS = answers(0.1, count=50, batch_size=64, threads=1)


def test_the_best_choice_has_most_examples_and_the_usual_one_is_one_default_process() -> None:
    of_many = answers(0.045, batch_size=16, threads=0)
    (row,) = serving(make.matrix(*SINGLE, *BOTH, *DEFAULT, *MANY, *UNEVEN, *of_many), None).rows
    assert row.best is not None
    assert (row.best.cell.batch_size, row.best.cell.threads) == (16, 1)
    assert row.best.items_per_second == pytest.approx(16 / 0.030)
    assert (row.usual.cell.threads, row.usual.cell.batch_size) == (0, 16)
    assert row.times == pytest.approx(0.045 / 0.030)
    (row,) = serving(make.matrix(*SINGLE, *BOTH, *MANY, *UNEVEN), 0.009).rows
    assert (row.usual.cell.threads, row.usual.cell.batch_size, row.choices) == (2, 1, 4)


def test_a_faster_choice_with_too_few_calls_is_named() -> None:
    content = serving(make.matrix(*SINGLE, *FASTER_WITH_FEW_CALLS), 0.2)
    (row,) = content.rows
    assert row.best is not None
    assert row.unknown is not None
    assert row.unknown.cell.batch_size == 64
    text = " ".join(REPORT.page(content, ReportOptions(within="200ms")).after)
    assert "mini-batch 64, 1 thread answered" in text
    assert serving(make.matrix(*SINGLE), 0.2).rows[0].unknown is None


@pytest.mark.parametrize(
    ("within", "chosen"), [(0.2, (16, 1)), (0.05, (16, 2)), (0.009, (1, 2)), (0.001, None)]
)
def test_a_choice_counts_where_its_slowest_calls_stay_within_the_limit(
    within: float, chosen: tuple[int, int] | None
) -> None:
    (row,) = serving(make.matrix(*SINGLE, *BOTH, *MANY, *UNEVEN), within).rows
    assert (row.best and (row.best.cell.batch_size, row.best.cell.threads)) == chosen


def test_rows_networks_and_quotas_choose_for_themselves_and_training_is_no_answer() -> None:
    other_places = [
        *answers(0.010, framework="onnx", threads=1),
        *answers(0.010, cpu_quota=1.0, threads=1),
    ]
    content = serving(
        make.matrix(*SINGLE, *other_places, *answers(0.01, network="lstm32"), *make.launches(0.5)),
        None,
    )
    assert len(content.rows) == 4
    (table,) = REPORT.page(content, ReportOptions()).tables
    assert sum("q1" in str(row[0]) for row in table.rows) == 1
    assert sum("CPU quota" in line for line in REPORT.page(content, ReportOptions()).after) == 1


def test_cells_of_few_calls_count_only_without_a_limit() -> None:
    matrix = make.matrix(*answers(0.010, count=20, batch_size=16), *SINGLE)
    assert serving(matrix, None).rows[0].best.cell.batch_size == 16
    content = serving(matrix, 0.02)
    assert content.rows[0].best.cell.batch_size == 1
    page = REPORT.page(content, ReportOptions())
    assert any("needs 200 calls in a launch: 1 cell" in line for line in page.after)


def test_a_row_of_few_calls_alone_is_not_said_to_be_slow() -> None:
    few, slow = answers(0.010, count=20), answers(0.1, framework="onnx")
    content = serving(make.matrix(*few, *slow), 0.02)
    (table,) = REPORT.page(content, ReportOptions(within="20ms")).tables
    words = [getattr(row[1], "text", row[1]) for row in table.rows if len(row) > 1]
    assert sorted(words) == ["none within the limit", "too few calls to tell"]


@pytest.mark.parametrize(("text", "seconds"), [("20ms", 0.02), ("0.5 s", 0.5), ("", None)])
def test_a_limit_is_a_time(text: str, seconds: float | None) -> None:
    assert limit_of(text) == seconds


@pytest.mark.parametrize("text", ["20", "ms", "0ms", "-5ms", "10m", "x" * 100])
def test_another_word_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ReportError, match=r"cannot be read\. Write a time such as 20ms") as refused:
        limit_of(text)
    assert len(str(refused.value)) < 120

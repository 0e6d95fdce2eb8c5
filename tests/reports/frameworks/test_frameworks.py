"""Framework against framework, of records whose truth is known."""

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import texts

from dlbench.reports.cells import build_matrix
from dlbench.reports.frameworks.analysis import frameworks
from dlbench.reports.frameworks.report import REPORT
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.results import Results

NETWORKS = ("fcn5", "fcn8", "lstm32")


def compared(records):
    hosts = {r.machine: Host(r.machine, f"machine {r.machine}", 2, 2, 2.0) for r in records}
    return frameworks(build_matrix(Results(tuple(records), hosts)))


def row(framework, times, **of_cell):
    """Return launches of these seconds, by network."""
    where = {"framework": framework, **of_cell}
    return [r for network, t in times.items() for r in make.launches(t, network=network, **where)]


def standing(found, framework):
    (machine,) = found.machines
    return next(each for each in machine.standings if each.row.framework == framework)


@given(st.lists(st.floats(0.1, 10.0), min_size=3, max_size=3), st.floats(0.2, 5.0), st.floats(0.01, 100.0))
def test_a_row_that_is_as_much_slower_everywhere_has_that_mean_whatever_the_scale(times, factor, scale):
    base = dict(zip(NETWORKS, times, strict=True))
    found = compared(
        [
            *row("torch", {n: t * scale for n, t in base.items()}, threads=2),
            *row("a", {n: t * scale for n, t in base.items()}),
            *row("torch", {n: t * scale for n, t in base.items()}),
            *row("mxnet", {n: t * scale * factor for n, t in base.items()}),
        ]
    )
    (machine,) = found.machines
    assert machine.reference.framework == "torch"  # the most cells
    assert standing(found, "mxnet").overall.ratio.value == pytest.approx(factor, rel=1e-4)
    same = standing(found, "a").overall
    assert same.ratio.value == pytest.approx(1.0, rel=1e-4)
    assert (same.wins, same.losses) == (0, 0)
    assert same.ratio.low <= 1.0001
    assert same.ratio.high >= 0.9999


def test_only_networks_of_both_count_and_how_many_is_told():
    found = compared(
        [*row("torch", {"fcn5": 1.0, "fcn8": 1.0, "lstm32": 1.0}), *row("mxnet", {"fcn5": 0.5, "fcn8": 2.0})]
    )
    mxnet = standing(found, "mxnet")
    assert [group.network for group in mxnet.overall.networks] == ["fcn5", "fcn8"]
    assert mxnet.overall.ratio.value == pytest.approx(1.0)
    assert (mxnet.overall.wins, mxnet.overall.losses) == (1, 1)
    page = REPORT.page(found, ReportOptions())
    entry = next(r for r in page.tables[0].rows if r[0].text == "mxnet eager")[1]
    assert entry.marks == " (2)"


def test_columns_are_apart_and_the_reference_is_the_row_with_the_most_cells_then_the_first_by_name():
    found = compared([*row("mxnet", {"fcn5": 1.0}), *row("jax", {"fcn5": 2.0}), *row("jax", {"fcn5": 1.0}, threads=2)])
    (machine,) = found.machines
    assert machine.reference.framework == "jax"
    assert [column.threads for column in machine.columns] == [1]
    (machine,) = compared([*row("mxnet", {"fcn5": 1.0}), *row("jax", {"fcn5": 2.0})]).machines
    assert machine.reference.framework == "jax"


def test_a_row_with_nothing_in_common_is_named():
    records = [*row("torch", {"fcn5": 1.0, "fcn8": 1.0}), *row("jax", {"fcn5": 1.0}), *row("caffe", {"lstm32": 1.0})]
    page = REPORT.page(compared(records), ReportOptions())
    assert page.tables[0].notes == ("Nothing in common with the reference: caffe eager.",)


@pytest.mark.parametrize("records", [[], row("torch", {"fcn5": 1.0})], ids=["nothing", "one row"])
def test_with_nothing_to_compare_it_says_so(records):
    found = compared(records)
    assert found.machines == ()
    assert not REPORT.drawable(found)
    assert "nothing to compare" in REPORT.page(found, ReportOptions()).before[0]


def test_a_headline_only_where_noise_does_not_explain_it():
    slow = compared([*row("a", {"fcn5": 2.0, "fcn8": 2.0}), *row("b", {"fcn5": 1.0, "fcn8": 1.0})])
    (line,) = REPORT.headline(slow)
    assert "b eager takes 0.500x" in line
    assert REPORT.headline(compared([*row("a", {"fcn5": 1.001}), *row("b", {"fcn5": 1.0})])) == []


def test_every_row_and_place_is_in_the_picture_and_the_lines(tmp_path):
    records = [*row("torch", {"fcn5": 1.0}), *row("jax", {"fcn5": 2.0}), *row("torch", {"fcn5": 1.0}, threads=2)]
    found = compared([*records, *row("jax", {"fcn5": 1.5}, threads=2), *row("jax", {"fcn5": 1.5}, machine="m-two")])
    (written,) = REPORT.draw(found, tmp_path / "f.svg", ReportOptions())
    assert {"torch eager", "jax eager", "1", "2", "threads"} <= set(texts(written))
    assert len(list(REPORT.as_rows(found).lines)) == 4
    (again,) = REPORT.draw(found, tmp_path / "again.svg", ReportOptions())
    assert written.read_bytes() == again.read_bytes()

"""Machine against machine, of records whose truth is known."""

from dataclasses import replace

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import texts

from dlbench.reports.cells import build_matrix
from dlbench.reports.machines.analysis import FASTER, SAME, SLOWER, UNKNOWN, machines
from dlbench.reports.machines.report import REPORT
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.hosts import Host, unlike
from dlbench.reports.storage.results import Results

KIND = Host("one", "alpha", 2, 2, 2.0, cpu_model="EPYC", memory_gib=8)
TWIN = replace(KIND, fingerprint="two", name="beta")
LARGE = replace(TWIN, physical_cores=4, effective_cpus=4, memory_gib=16)


def compared(one, two, other=TWIN, **of_cell):
    """Return the report of these seconds on two machines, by network."""
    records = [
        record
        for machine, times in (("one", one), ("two", two))
        for network, seconds in times.items()
        for record in make.launches(seconds, network=network, machine=machine, **of_cell)
    ]
    return machines(build_matrix(Results(tuple(records), {"one": KIND, "two": other})))


@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0)), min_size=3, max_size=3), st.floats(0.1, 10.0))
def test_swapping_machines_inverts_the_ratio_and_a_scale_of_both_changes_nothing(times, scale):
    names = ("fcn5", "fcn8", "lstm32")
    one, two = ({name: pair[side] for name, pair in zip(names, times, strict=True)} for side in (0, 1))
    (there,), (back,) = compared(one, two).against, compared(two, one).against
    for found, turned in zip(there.pairs, back.pairs, strict=True):
        assert found.ratio.value * turned.ratio.value == pytest.approx(1.0, rel=1e-4)
        assert found.ratio.low * turned.ratio.high == pytest.approx(1.0, rel=1e-4)
        assert {SLOWER: FASTER, FASTER: SLOWER}.get(found.verdict, found.verdict) == turned.verdict
    assert there.overall.value * back.overall.value == pytest.approx(1.0, rel=1e-4)
    (scaled,) = compared(*({name: t * scale for name, t in of.items()} for of in (one, two))).against
    assert scaled.overall.value == pytest.approx(there.overall.value, rel=1e-4)


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [(2.0, SLOWER), (0.5, FASTER), ([1.0, 1.0001, 1.0002], SAME), ([0.9, 1.0, 1.12], UNKNOWN)],
    ids=str,
)
def test_machines_of_one_kind_have_a_verdict(seconds, verdict):
    (found,) = compared({"fcn5": [1.0, 1.0001, 1.0002]}, {"fcn5": seconds}).against
    assert [pair.verdict for pair in found.pairs] == [verdict]
    assert [mean.verdict for mean in found.means] == [verdict]


def test_machines_of_other_kinds_have_a_ratio_and_the_reason_why_no_verdict():
    found = compared({"fcn5": 1.0}, {"fcn5": 0.5}, LARGE)
    (against,) = found.against
    assert against.overall.value == pytest.approx(0.5)
    assert {pair.verdict for pair in against.pairs} == {""}
    page = REPORT.page(found, ReportOptions())
    assert "No verdict, since the machines are of different kinds: 2 and 4 physical cores" in page.before[0]
    assert "verdict" not in page.tables[0].head
    (line,) = REPORT.headline(found)
    assert "takes 0.500x" in line


def test_what_differs_between_machines_is_told():
    assert unlike(KIND, TWIN) == []
    assert unlike(KIND, LARGE) == ["2 and 4 physical cores", "2 and 4 CPUs to use", "8 and 16 GiB of memory"]
    assert unlike(KIND, replace(TWIN, cpu_model="Xeon")) == ["the CPU is EPYC and Xeon"]
    assert unlike(KIND, Host("two", "beta")) == ["CPU, cores and memory are not known of both"]


def test_cells_of_one_machine_only_are_left_out_and_another_build_is_told():
    records = [
        *make.launches(1.0, machine="one"),
        *make.launches(1.0, machine="one", network="fcn8"),
        *(replace(each, environment="other") for each in make.launches(1.0, machine="two")),
    ]
    found = machines(build_matrix(Results(tuple(records), {"one": KIND, "two": TWIN})))
    (against,) = found.against
    assert [pair.one.group.network for pair in against.pairs] == ["fcn5"]
    assert "On 1 of 1 the framework is another build there" in REPORT.page(found, ReportOptions()).before[0]


def test_one_machine_alone_is_a_clear_line():
    found = compared({"fcn5": 1.0}, {})
    assert found.against == ()
    assert "give the stores of others too" in REPORT.page(found, ReportOptions()).before[0]
    assert not REPORT.drawable(found)
    assert not REPORT.worth_a_section(found)


def test_two_machines_without_a_cell_in_common_say_so():
    found = compared({"fcn5": 1.0}, {"fcn8": 1.0})
    assert REPORT.page(found, ReportOptions()).before == ("beta and alpha have no cell with a time in common.",)
    assert not REPORT.drawable(found)


def test_the_picture_and_the_lines_have_every_cell(tmp_path):
    found = compared({"fcn5": 1.0, "fcn8": 1.0}, {"fcn5": 1.0, "fcn8": 2.0})
    (written,) = REPORT.draw(found, tmp_path / "m.svg", ReportOptions())
    assert {"beta against alpha", "fcn5, mini-batch 64", "fcn8, mini-batch 64"} <= set(texts(written))
    assert [line["verdict"] for line in REPORT.as_rows(found).lines] == [UNKNOWN, SLOWER]

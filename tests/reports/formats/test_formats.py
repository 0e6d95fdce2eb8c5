"""Every format of every kind of report: whole, narrow enough, and escaped."""

import re
from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
from exported import exporters, texts
from hostile import CHECKS
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import Status
from dlbench.reports import matrix as of_matrix
from dlbench.reports.curve.threads import threads
from dlbench.reports.formats import layout
from dlbench.reports.formats.export import to_stdout
from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.formats.markup import page_to_html
from dlbench.reports.formats.terminal import page_to_terminal, wrapped
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.quantities import QUANTITIES
from dlbench.reports.results.results import Results

pytestmark = pytest.mark.usefixtures("few_replicates")
HOST = Host(make.MACHINE, "AMD EPYC, 2 CPUs", 2, 2, 2.0, (("CPU", "AMD EPYC"), ("Memory", "8 GiB")))
OTHER = Host("m-two", "Somebody & Sons_100% {fast} CPU", 4, 8, 8.0)


def results_of(*records: Any) -> Results:
    return Results(tuple(records), {host.fingerprint: host for host in (HOST, OTHER)})


def busy() -> Results:
    """One of everything."""
    records = [make.record([0.5 * f] * 5, launch=n) for n, f in enumerate((0.99, 1.0, 1.01))]
    records += [
        make.record([0.8 * f] * 5, launch=n, threads=8) for n, f in enumerate((0.99, 1.0, 1.01))
    ]
    for status in Status:
        if status not in (Status.OK, Status.PARITY_FAILED):
            records.append(
                make.hole(
                    status,
                    f"a reason | with_signs & {status.value} 100% <b>",
                    framework=status.value,
                )
            )
    wrong = make.outcome()._replace(
        status=Status.PARITY_FAILED, parity=make.parity("disagrees", "update error 0.4")
    )
    records.append(make.record(framework="wrong", result=wrong))
    nan = make.outcome()._replace(
        parity=make.parity("agrees")._replace(losses=[float("nan")]), final_loss_finite=False
    )
    records.append(make.record(framework="diverged", result=nan))
    records.append(
        make.record(
            framework="knob", threads=2, result=make.outcome(threads=make.threads(2, 3.0, 1.0))
        )
    )
    return results_of(*records)


MATRICES = {
    "empty": lambda: build_matrix(Results()),
    "holes": lambda: build_matrix(
        results_of(make.hole(Status.CRASHED, "signal 11"), make.hole(Status.SKIPPED, ""))
    ),
    "two machines": lambda: build_matrix(
        results_of(*busy().records, make.record(machine="m-two", threads=4))
    ),
    "workers": lambda: build_matrix(
        results_of(
            *(make.record(world_size=w, threads=p) for w in (1, 2) for p in (1, 2)),
            *(make.record(world_size=w, device="cuda:0") for w in (1, 2, 4)),
        )
    ),
}
OF_THREADS, OF_MATRIX = exporters("threads"), exporters("matrix")


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("name", OF_MATRIX)
def test_every_exporter_takes_every_matrix(name: str, kind: str) -> None:
    matrix = MATRICES[kind]()
    for text in (OF_MATRIX[name](matrix), OF_THREADS[name](threads(matrix))):
        assert text.endswith("\n")
        CHECKS[name](text)


def test_columns_that_do_not_fit_are_stacked_not_cut() -> None:
    records = [
        make.record([t] * 5, launch=n, threads=p, framework="torch-nightly", mode="compile")
        for p in (1, 2, 4, 8, 16, 32)
        for n, t in enumerate((0.8, 0.91, 0.93))
    ]
    text = OF_MATRIX["terminal"](build_matrix(results_of(*records)))
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith("threads")]
    assert heads == [["1", "2", "4"], ["8", "16", "32"]]
    wide = OF_MATRIX["terminal"](build_matrix(results_of(*records)), width=120)
    assert "threads" in wide
    assert len([line for line in wide.splitlines() if line.startswith("threads")]) == 1


def test_colour_only_adds_to_the_text() -> None:
    matrix = build_matrix(busy())
    plain, coloured = OF_MATRIX["terminal"](matrix), OF_MATRIX["terminal"](matrix, colour=True)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5231, "0.523"),
        (0.99999, "1.00"),
        (1234.5, "1234"),
        (0.001, "0.00100"),
        (1e-6, "1.00e-06"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert layout.number(value) == text


words = st.text(
    st.characters(codec="ascii", exclude_categories=("C",)), min_size=1, max_size=30
).map(str.strip)
frameworks = st.sampled_from(
    ["torch", "torch-nightly", "tensorflow", "onnxruntime", "mxnet", "x" * 40]
)
modes = st.sampled_from(["eager", "compile", "hybrid", ""])
thread_counts = st.sampled_from([1, 2, 4, 8, 16, 32])


def a_record(seconds: float, status: Status, reason: str, *of_cell: Any) -> Any:
    names = ("framework", "mode", "threads", "network", "batch_size", "machine")
    where = dict(zip(names, of_cell, strict=True))
    return (
        make.record([seconds], **where)
        if status is Status.OK
        else make.hole(status, reason, **where)
    )


some_records = st.builds(
    a_record,
    st.floats(1e-9, 1e5),
    st.sampled_from(Status),
    words,
    frameworks,
    modes,
    thread_counts,
    st.sampled_from(["fcn5", "resnet50", "lstm32", "a_network_with_a_name_that_does_not_end"]),
    st.sampled_from([1, 64, 100_000]),
    st.sampled_from([HOST.fingerprint, OTHER.fingerprint, "f" * 64]),
)


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(some_records, min_size=1, max_size=40), st.sampled_from(sorted(QUANTITIES)))
def test_no_line_is_longer_than_a_terminal_and_no_number_is_cut(
    records: list[Any], quantity: str
) -> None:
    matrix = build_matrix(
        replace(results_of(*records), products={(make.MACHINE, "cpu", "float32"): ((1, 1e12),)})
    )
    text = OF_MATRIX["terminal"](matrix, quantity)
    CHECKS["terminal"](text)
    fields = [
        entry.plain
        for row in of_matrix.matrix_page(matrix, quantity).tables[0].rows
        for entry in row[1:]
        if entry.plain != layout.MISSING
    ]
    words = re.split(r"\s+", text)
    assert all(field in words for field in fields)
    for name, export in OF_THREADS.items():
        CHECKS[name](export(threads(matrix)))
    for name in ("markdown", "latex", "csv", "json"):
        CHECKS[name](OF_MATRIX[name](matrix))


def test_heads_groups_and_spans_are_said_to_a_screen_reader() -> None:
    rows = (
        (Entry("fcn5"),),
        (Entry("torch"), Entry("0.5", "±2%", "~", best=True), Entry("oom", hole=True)),
    )
    table = Table("Seconds", ("threads", "1", "2"), rows, ("a note",), spans=(("A machine", 2),))
    html = str(page_to_html(Page(("before",), (table,), ("after",))))
    assert '<th scope="colgroup" colspan="2">A machine</th>' in html
    assert '<th scope="rowgroup" colspan="3">fcn5</th>' in html
    assert '<th scope="row">torch</th>' in html
    assert '★</span> 0.5<span class="spread">±2%</span>~' in html
    assert html.index("before") < html.index("<table") < html.index("a note") < html.index("after")


COMMAND = "`dlbench run table4 --networks fcn5 --frameworks torch --threads 1,2,4`"


def test_a_command_is_never_broken_over_lines() -> None:
    lines = wrapped(
        f"Not measured for A1 to A4: seconds of fcn5 with 4 threads. Measure: {COMMAND}", 80
    )
    assert [COMMAND in line for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(len(line) <= 80 for line in lines)


@given(
    st.lists(st.from_regex(r"[a-z`-]{1,12}", fullmatch=True), min_size=1, max_size=40),
    st.integers(20, 100),
)
def test_wrapping_loses_no_word_and_fits_the_width(words: list[str], width: int) -> None:
    line = " ".join(words)
    lines = wrapped(line, width)
    assert " ".join(" ".join(lines).split()) == line
    assert all(len(line) <= width for line in lines)


def test_rows_networks_and_threads_are_named(tmp_path):
    records = [
        r
        for name in ("torch", "mxnet")
        for p in (1, 2)
        for r in make.launches(1.0, framework=name, threads=p)
    ]
    matrix = build_matrix(
        replace(results_of(*records), products={(make.MACHINE, "cpu", "float32"): ((1, 1e12),)})
    )
    (written,) = of_matrix.REPORT.draw(matrix, tmp_path / "m.svg", ReportOptions())
    assert {"fcn5, mini-batch 64", "torch eager", "mxnet eager", "1", "2", "threads"} <= set(
        texts(written)
    )


def test_marks_are_spelled_where_an_encoding_lacks_them_and_lines_still_fit() -> None:
    matrix = build_matrix(busy())
    report = of_matrix.REPORT
    text = page_to_terminal(report.page(matrix, ReportOptions()), encoding="ascii")
    text.encode("ascii")
    assert "+/-" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("columns", "width"), [("45", 45), ("10", 40), ("wide", 80)])
def test_a_report_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = to_stdout(of_matrix.REPORT, build_matrix(busy()), ReportOptions(), "terminal")
    assert width - 10 < max(map(len, text.splitlines())) <= width

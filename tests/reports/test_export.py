import csv as csv_of_python
import io
import json as json_of_python
import re
from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
from exported import exporters
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from matrices_to_export import HOST, MATRICES, OF_THREADS, OTHER, busy, results_of
from properties import examples

from dlbench.adapters.protocol import DeviceEvidence, Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.curve import threads as scaling
from dlbench.reports.errors import ReportError
from dlbench.reports.formats import layout
from dlbench.reports.matrix import words as matrix_words
from dlbench.reports.storage.results import Results
from dlbench.reports.tables import tables

OF_MATRIX, OF_TABLES = exporters("matrix"), exporters("tables")


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("name", OF_MATRIX)
def test_every_exporter_takes_every_matrix(name: str, kind: str) -> None:
    matrix = MATRICES[kind]()
    for text in (OF_MATRIX[name](matrix), OF_THREADS[name](scaling.curves(matrix))):
        assert text.endswith("\n")
        check(name, text)


@pytest.mark.parametrize("name", OF_TABLES)
@pytest.mark.parametrize("results", [Results(), busy()], ids=["empty", "busy"])
def test_every_exporter_takes_the_tables(name: str, results: Results) -> None:
    check(name, OF_TABLES[name](tables(results)))


def check(name: str, text: str) -> None:
    if name == "terminal":
        assert max(map(len, text.splitlines())) <= 80
        assert "\x1b" not in text
        assert all(line == line.rstrip() for line in text.splitlines())
    elif name == "json":
        json_of_python.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    elif name == "csv":
        list(csv_of_python.reader(io.StringIO(text)))
    elif name == "latex":
        assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}")
        # What remains when the characters that were written with care are taken out must need no care.
        careful = r"\\(ensuremath\{(\\pm|[<>|])\}|text\w+\{\})"
        body = [re.sub(careful, "", line) for line in text.splitlines() if not line.startswith("%")]
        for line in body:
            assert not re.search(r"(?<!\\)[%#~^<>|±]", line), line
            assert not re.search(r"(?<![\\])_", line), line
            assert line.count("{") - line.count(r"\{") == line.count("}") - line.count(r"\}"), line
    elif name == "markdown":
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        tables_found: list[list[int]] = [[]]
        for line in text.splitlines():
            if line.startswith("| "):
                tables_found[-1].append(len(re.findall(r"(?<!\\)\|", line)))
            elif tables_found[-1]:
                tables_found.append([])
        assert all(len(set(found)) <= 1 for found in tables_found)
        assert rows or "Nothing was measured" in text or not text.strip("#\n -") or "|" not in text


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


def test_an_unknown_quantity_is_refused_with_the_names() -> None:
    with pytest.raises(ReportError, match="seconds, items, gflops, ceiling"):
        OF_MATRIX["terminal"](build_matrix(busy()), "parsecs")


def test_columns_of_several_workers_say_how_many_and_what_that_is() -> None:
    matrix = MATRICES["workers"]()
    names = [matrix_words.column_name(matrix, column) for column in matrix.columns]
    assert names == ["1", "2", "1 x2", "2 x2", "cuda:0", "cuda:0 x2", "cuda:0 x4"]
    of_threads = [make.record(world_size=w, threads=p, device="cuda:0") for w in (1, 2) for p in (1, 2)]
    matrix = build_matrix(results_of(*of_threads))
    names = [matrix_words.column_name(matrix, column) for column in matrix.columns]
    assert names == ["cuda:0/1", "cuda:0/2", "cuda:0/1 x2", "cuda:0/2 x2"]


def test_the_board_of_each_gpu_column_is_named_once() -> None:
    def on(device: str, board: str, **of_cell: Any) -> Any:
        result = make.outcome(device=DeviceEvidence(board))
        return make.record(result=result, device=device, **of_cell)

    records = [on("cuda:1", "Board B"), on("cuda:0", "Board A"), on("cuda:0", "Board A", network="lstm32")]
    matrix = build_matrix(results_of(make.record(), *records))
    assert matrix_words.machine_lines(matrix) == ["On AMD EPYC, 2 CPUs, cuda:0 Board A, cuda:1 Board B."]
    # A framework that does not know its board calls it by the device; the driver tells.
    told = {"schema": 1, "origin": 0.0, "gpu": {"uuid": "GPU-1", "name": "Board A"}, "samples": {"at": []}}
    unknown = replace(on("cuda:0", "cuda:0"), telemetry={**told, "slow_samples": {"at": []}, "processes": None})
    assert matrix_words.machine_lines(build_matrix(results_of(unknown))) == ["On AMD EPYC, 2 CPUs, cuda:0 Board A."]
    moved = build_matrix(results_of(*records, on("cuda:0", "Board C", network="fcn8")))
    assert "cuda:0 Board A or Board C, cuda:1 Board B." in matrix_words.machine_lines(moved)[0]
    both = build_matrix(results_of(*records, make.record(machine="m-two")))
    lines = matrix_words.machine_lines(both)
    assert [("Board" in line) for line in lines] == [line.startswith("A: AMD EPYC") for line in lines]
    assert matrix_words.machine_lines(build_matrix(results_of(make.record()))) == ["On AMD EPYC, 2 CPUs."]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5231, "0.523"),
        (0.99999, "1.00"),
        (12.345, "12.3"),
        (123.45, "123"),
        (1234.5, "1234"),
        (0.001, "0.00100"),
        (1e-6, "1.00e-06"),
        (1e9, "1.00e+09"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert layout.number(value) == text


words = st.text(st.characters(codec="ascii", exclude_categories=("C",)), min_size=1, max_size=30).map(str.strip)
frameworks = st.sampled_from(["torch", "torch-nightly", "tensorflow", "onnxruntime", "mxnet", "x" * 40])
modes = st.sampled_from(["eager", "compile", "hybrid", ""])
thread_counts = st.sampled_from([1, 2, 4, 8, 16, 32])


def a_record(seconds: float, status: Status, reason: str, *of_cell: Any) -> Any:
    names = ("framework", "mode", "threads", "network", "batch_size", "machine")
    where = dict(zip(names, of_cell, strict=True))
    return make.record([seconds], **where) if status is Status.OK else make.hole(status, reason, **where)


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


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(some_records, min_size=1, max_size=40), st.sampled_from(sorted(layout.QUANTITIES)))
def test_no_line_is_longer_than_a_terminal_and_no_number_is_cut(records: list[Any], quantity: str) -> None:
    matrix = build_matrix(results_of(*records))
    text = OF_MATRIX["terminal"](matrix, quantity)
    check("terminal", text)
    fields = [
        entry.plain
        for row in matrix_words.matrix_table(matrix, matrix.columns, quantity).rows
        for entry in row[1:]
        if entry.plain != layout.MISSING
    ]
    shown = re.split(r"\s+", text)
    assert all(field in shown for field in fields)
    for name, export in OF_THREADS.items():
        check(name, export(scaling.curves(matrix)))
    for name in ("markdown", "latex", "csv", "json"):
        check(name, OF_MATRIX[name](matrix))

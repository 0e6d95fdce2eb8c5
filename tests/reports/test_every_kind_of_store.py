"""Every report, page and site over every kind of store (`kinds_of_stores`): no traceback, and no
number made up.

What reports may show of a record is what the launch recorded, or what follows from it. A value that
nobody recorded is left out or named unknown in every format, and is neither 0 nor a usual value.
"""

import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import kinds_of_stores as stores
import numpy as np
import pandas as pd
import pytest
from hostile import CHECKS, check_csv, check_html, check_json, check_terminal, check_xml
from kept_stores import block
from kinds_of_stores import IMPORTED, KINDS, Said, call

import dlbench
from dlbench.adapters import axes
from dlbench.reports import catalogue
from dlbench.reports.formats.export import export, formats_of
from dlbench.reports.report import Report, ReportOptions, ReportSource
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.storage.store import Store
from dlbench.suites.commands.report import SourceOptions, source_of

pytestmark = pytest.mark.usefixtures("few_replicates", "folder")

KIND = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(f"store: {kind}")) for kind in KINDS]
)
EVERYTHING = pytest.param(
    "everything", marks=[pytest.mark.xdist_group("store: everything"), pytest.mark.slow]
)
"""All stores in one: its page shows every report of it, and each report alone takes as long as
those of all others."""
KIND_OF_REPORTS = pytest.mark.parametrize(
    "kind",
    [
        EVERYTHING
        if kind == "everything"
        else pytest.param(kind, marks=pytest.mark.xdist_group(f"store: {kind}"))
        for kind in KINDS
    ],
)
REPORTS = [name for name, report in catalogue.reports().items() if report.of_stores]
SITES = (
    "imports",
    "imports without samples",
    "failures",
    "one launch",
    "interrupted",
    "own steps",
    "gates",
)
"""Kinds of which a whole site is written: each of its pages takes as long as the page of a
store."""
DRAWN = (
    "imports",
    "imports without samples",
    "unknown mini-batches",
    "failures",
    "one step",
    "gpu",
    "a search",
)
"""Kinds whose page has its pictures, which take most of its time."""
WRITTEN = (*DRAWN, "own steps", "gates", "null")
"""Kinds whose reports are written as Markdown and LaTeX, too: these are made of the terminal's
page."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder in which commands run; the stores are built in one that all workers of a
    session share."""
    base = tmp_path_factory.getbasetemp()
    stores.put_into(
        (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kinds-of-stores"
    )
    _source.cache_clear()
    return tmp_path_factory.mktemp("stores")


@cache
def _source(kind: str) -> ReportSource:
    target = str(stores.built(kind))
    return source_of([target], SourceOptions(), ReportOptions(), trainings=True)


@cache
def _contents(kind: str) -> tuple[tuple[Run, ...], tuple[Record, ...]]:
    with Store.open(stores.built(kind), create=False) as store:
        return tuple(store.runs()), tuple(store.records())


# What no report may say.

NOT_A_NUMBER = re.compile(r"(?<![\w.:/-])(nan|NaN|inf|Infinity|None|null|NaT)(?![\w:/-])")
_WORDS = re.compile(
    r"None of these|\bnull (framework|device|file|eager)|\bnull\b(?=[ ,:*_.)\]]|$)|\\?_?null"
)
MADE_UP = re.compile(
    r"mini-batch 0\b|\bb0\b|(?<![\d.])0(\.0)? items/s|unknown thread|default threads? unknown"
)
OF_IMPORTS = re.compile(
    r"float32(?!\])|\btuned\b|\bresident\b|\bcpu\b|default threads|\bon a GPU\b|cells on GPUs|mini-batch \d|1 thread\b"
    r"|SGD|cross-entropy|same packages|before dlbench read energy"
)
"""What nobody recorded of an imported benchmark: no test's name of `kinds_of_stores` but
"[1000-float32]" has it."""


def check_words(text: str) -> None:
    """Check that a text for people shows nothing that is no number, and nothing made up."""
    for line in text.splitlines():
        plain = _WORDS.sub("", line)
        assert not NOT_A_NUMBER.search(plain), line
        assert not MADE_UP.search(plain), line


def check_command(ended: Said) -> None:
    """Check that a command ended well, or with one line that says why."""
    assert "Traceback" not in ended.err
    assert ended.code in (0, 1, 2, 3), ended.err
    assert ended.err.isprintable() or all(line.isprintable() for line in ended.err.splitlines())
    if ended.code > 1:
        (line,) = ended.err.splitlines()
        assert line.startswith("dlbench: "), line


# Reports.


@KIND_OF_REPORTS
def test_every_report_in_every_format(kind: str) -> None:
    for name in REPORTS:
        try:
            check_report(kind, name)
        except Exception as error:
            raise AssertionError(f"the report {name}: {error}") from error


def check_report(kind: str, name: str) -> None:
    """Check a report of a kind of store in its formats: a refusal is one line."""
    report: Report[Any] = catalogue.report(name)
    default = next(iter(report.quantities), "seconds")
    source = replace(_source(kind), options=ReportOptions(quantity=default))
    try:
        content = report.analyse(source)
    except ReportError as refusal:
        (line,) = str(refusal).splitlines()
        assert line.isprintable()
        return
    for quantity in report.quantities or ("seconds",):
        chosen = ReportOptions(quantity=quantity)
        for form in formats_of(report):
            if quantity != default and form != "terminal":
                # CSV and JSON have every quantity at once. The others are made of the same page.
                continue
            if form in ("markdown", "latex") and kind not in WRITTEN:
                continue
            text = export(report, content, chosen, form)
            CHECKS[form](text)
            if form == "csv":
                check_frame(text)
            elif form == "json":
                check_numbers(json.loads(text))
            elif form != "junit":
                check_words(text)
    text = export(report, content, ReportOptions(quantity=default), "terminal")
    if kind in IMPORTED and name not in _OF_PAPERS:
        assert not OF_IMPORTS.search(text.replace("[1000-float32]", "")), text
    report.headline(content)


_OF_PAPERS = ("claims", "against")
"""Reports that speak of published results too."""


def check_frame(text: str) -> None:
    """Check that pandas reads a CSV, and that it says nothing that nobody knows."""
    check_csv(text)
    frame = pd.read_csv(io.StringIO(text))
    if {"batch_size", "items_per_second"} <= set(frame):
        assert frame.items_per_second[frame.batch_size.isna()].isna().all()
    for name in frame.select_dtypes("number"):
        assert not np.isinf(frame[name]).any(), name


def check_numbers(content: Any) -> None:
    """Check that no object of a report's JSON has a rate without a mini-batch size, or a size of
    0."""
    for item in _objects(content):
        if "batch_size" in item:
            assert item["batch_size"] != 0, item
            if item["batch_size"] is None:
                assert item.get("items_per_second") is None, item
                assert item.get("gflops") is None, item


def _objects(content: Any) -> Iterator[dict[str, Any]]:
    """Return every object of a JSON document."""
    inner: Iterable[Any] = ()
    if isinstance(content, dict):
        yield content
        inner = content.values()
    elif isinstance(content, list):
        inner = content
    for item in inner:
        yield from _objects(item)


# The matrix, recomputed.


@KIND_OF_REPORTS
def test_the_matrix_follows_from_the_raw_samples(kind: str) -> None:
    report = catalogue.report("matrix")
    cells = json.loads(export(report, report.analyse(_source(kind)), ReportOptions(), "json"))
    _, records = _contents(kind)
    for cell in cells:
        own = [record for record in records if _is_of(record, cell)]
        assert own, cell
        batch_size = own[-1].cell.batch_size
        assert cell["batch_size"] == batch_size
        seconds = cell["seconds_per_minibatch"]
        if seconds is None:
            assert cell["items_per_second"] is None
            assert all(value is None for value in cell["costs"].values())
            continue
        medians = [
            _median(record) for record in own if record.outcome.status in ("ok", "parity_failed")
        ]
        possible = [value for value in medians if value is not None]
        for value in seconds["launch_medians"]:
            assert any(math.isclose(value, median, rel_tol=1e-9) for median in possible), (
                value,
                possible,
            )
        if seconds["covers_launches"]:
            assert seconds["median"] == pytest.approx(
                np.exp(np.mean(np.log(seconds["launch_medians"]))), rel=1e-9
            )
        else:
            assert min(possible) * (1 - 1e-9) <= seconds["median"] <= max(possible) * (1 + 1e-9)
        if batch_size is None:
            assert cell["items_per_second"] is None
        else:
            assert cell["items_per_second"] == pytest.approx(
                batch_size / seconds["median"], rel=1e-9
            )
        for name, field in (
            ("import", "import_seconds"),
            ("prepare", "prepare_seconds"),
            ("memory", "peak_memory_bytes"),
        ):
            recorded = [getattr(record.outcome, field) for record in own]
            assert (cell["costs"][name] is None) == (not any(recorded)), (name, cell["costs"][name])
        if own[-1].cell.adapter == "imported":
            unknown = (
                "batch_size",
                "threads",
                "world_size",
                "cpu_quota",
                "instances",
                "loader_workers",
                "gflops",
            )
            assert {cell[name] for name in unknown} == {None}
            words = ("device", "precision", "placement", "tuning", "affinity", "storage", "sync")
            assert {cell[name] for name in words} == {"unknown"}
            evidence = (
                "threads_evidence",
                "device_evidence",
                "ceiling_fraction",
                "peak_memory_bytes",
                "break_even",
            )
            assert {cell[name] for name in evidence} == {None}


def _is_of(record: Record, cell: dict[str, Any]) -> bool:
    """Tell whether a record is of a cell of the matrix, by what the record itself says."""
    if (record.machine, record.run, record.environment) != (
        cell["machine"],
        cell["run"],
        cell["environment"],
    ):
        return False
    names = (
        "network",
        "specification",
        "framework",
        "mode",
        "tuning",
        "device",
        "precision",
        "placement",
    )
    same = (
        all(getattr(record.cell, name) == cell[name] for name in names)
        and record.side != "baseline"
    )
    numbers = (
        "threads",
        "batch_size",
        "world_size",
        "instances",
        "cpu_quota",
        "loader_workers",
        "affinity",
        "storage",
    )
    return same and all(
        cell[name] in (None, "unknown", getattr(record.cell, name)) for name in (*numbers, "sync")
    )


def _median(record: Record) -> float | None:
    """Return the median seconds of a launch's steps, from its samples or, where they were not kept,
    as it was saved."""
    if record.outcome.statistics is not None:
        return record.outcome.statistics.median
    if not record.outcome.samples_ns:
        return None
    return (
        float(np.median(np.maximum(record.outcome.samples_ns, 1)))
        * 1e-9
        / record.outcome.steps_per_sample
    )


# Page and site.


@KIND
def test_the_page(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind not in DRAWN:
        monkeypatch.setattr("dlbench.reports.page.sections.MOST_CELLS_DRAWN", 0)
    path = folder / f"{kind.replace(' ', '-')}.html"
    output = call(folder, "report", "page", "--store", str(stores.built(kind)), "--out", str(path))
    check_command(output)
    assert output.code == 0, output.err
    page = path.read_text(encoding="utf-8")
    check_html(page)
    check_visible(page, kind)
    for opened in block(page, "view")["cells"]:
        check_visible(opened, kind)
    data = block(page)
    check_numbers(data)
    _, records = _contents(kind)
    recorded: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        recorded.setdefault((record.run, record.started.isoformat(timespec="seconds")), []).append(
            record
        )
    for cell in data["cells"]:
        for launch in cell["launches"]:
            alike = recorded[launch["run"], launch["started"]]
            samples = [list(record.outcome.samples_ns)[:: data["thinned"]] for record in alike]
            assert launch["samples_ns"] in samples
    for name in ("cells.csv", "matrix.md", "matrix.tex"):
        text = block(page, "view")["files"][name]
        if name == "cells.csv":
            check_frame(text)
        else:
            CHECKS["markdown" if name.endswith("md") else "latex"](text)
            check_words(text)


def check_visible(page: str, kind: str) -> None:
    """Check what a page shows: its tables and words, without its data and its pictures."""
    visible = re.sub(r"<(script|style|svg|button)\b.*?</\1>", "", page, flags=re.DOTALL)
    visible = re.sub(r"<(li|p)>None[.:].*?</\1>", "", visible)
    text = re.sub(r"<[^>]*>", "\n", visible)
    check_words(text)
    if kind in IMPORTED:
        match = OF_IMPORTS.search(text.replace("[1000-float32]", ""))
        assert not match, text[max(0, match.start() - 200) : match.end() + 100]
    if all(record.cell.batch_size is None for record in _contents(kind)[1]):
        assert "Items per second" not in text


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(f"store: {kind}")) for kind in SITES]
)
def test_the_site(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlbench.reports.page.sections.MOST_CELLS_DRAWN", 0)
    store = str(stores.built(kind))
    for _ in range(2):  # the second time over what the first wrote
        output = call(
            tmp_path,
            "report",
            "site",
            "--store",
            store,
            "--out",
            "site",
            "--url",
            "https://example.org/",
        )
        check_command(output)
        assert output.code == 0, output.err
    pages = [path for path in (tmp_path / "site").rglob("*.html") if path.is_file()]
    _, records = _contents(kind)
    assert len(pages) > len({record.run for record in records})
    for path in pages:
        text = path.read_text(encoding="utf-8")
        links = re.findall(r'href="([^"#:]+\.(?:html|xml))"', text)
        check_html(text, frozenset(links))
        check_visible(text, kind)
        for link in links:
            assert (path.parent / link).is_file(), link
    check_xml((tmp_path / "site" / "feed.xml").read_text(encoding="utf-8"))


# Other commands.


@KIND_OF_REPORTS
def test_history_compare_and_export(kind: str, folder: Path) -> None:
    store = ("--store", str(stores.built(kind)))
    runs, records = _contents(kind)
    for form in ("terminal", "markdown", "latex", "csv", "json"):
        output = call(folder, "history", *store, "--format", form)
        check_command(output)
        if output.code == 0:
            CHECKS[form](output.out)
    for words in (["previous", "latest"], *([run.id] for run in runs if run.sides)):
        for form in ("terminal", "json"):
            output = call(folder, "compare", *words, *store, "--format", form)
            check_command(output)
            if output.out:
                CHECKS[form](output.out)
    for form in ("csv", "pytest-benchmark", "parquet"):
        output = call(folder, "export", *store, "--format", form)
        assert output.code in (0, 2), output.err
        assert "Traceback" not in output.err
        if output.code == 0 and form == "csv":
            assert len(pd.read_csv(io.StringIO(output.out))) <= len(records)
        if output.code == 0 and form == "pytest-benchmark":
            check_json(output.out)
    output = call(folder, "report", "runs", *store)
    check_command(output)
    check_terminal(output.out)


@KIND_OF_REPORTS
def test_frames(kind: str) -> None:
    path = stores.built(kind)
    launches, cells = dlbench.launches(path, all_runs=True), dlbench.cells(path)
    _, records = _contents(kind)
    assert len(launches) <= len(records)
    imported = launches[launches.framework == "pytest-benchmark"]
    for name in (
        "threads",
        "batch_size",
        "world_size",
        "import_seconds",
        "peak_memory_bytes",
        "cpu_joules",
    ):
        assert imported[name].isna().all(), name
    unknown = cells[cells.batch_size.isna()]
    assert unknown.items_per_second.isna().all()
    assert unknown.gflops.isna().all()
    assert not (cells.batch_size == 0).any()
    assert set(axes.NAMES) <= set(launches) & set(cells)
    for name in cells.select_dtypes("number").columns.drop("break_even_steps", errors="ignore"):
        assert not np.isinf(cells[name]).any(), name


@pytest.mark.parametrize("kind", ["imports", "one launch", "empty", "begun", "failures"])
@pytest.mark.parametrize("name", ["matrix", "threads", "costs", "figure1", "fastest", "tables"])
def test_the_command_prints_what_the_report_is(kind: str, name: str, folder: Path) -> None:
    output = call(folder, "report", name, "--store", str(stores.built(kind)))
    check_command(output)
    assert output.code == 0
    check_terminal(output.out)
    check_words(output.out)

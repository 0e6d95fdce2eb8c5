"""The report page of real stores: every number, every launch and every reason is on it, and nothing
else runs."""

import base64
import hashlib
import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
from hostile import HOSTILE, check_csv, check_html, hostile_store
from kept_stores import EXAMPLE, block, kept_store

from dlbench.hardware_probe.doctor import Finding, Severity
from dlbench.reports.catalogue import reports
from dlbench.reports.matrix import matrix_cells
from dlbench.reports.page.document import Document
from dlbench.reports.page.overview import (
    findings,
    overview_column,
    overview_place,
    panels,
    rankings,
)
from dlbench.reports.page.provenance import provenance_tables
from dlbench.reports.page.render import note_to_html, page_to_file_text
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.record import Run
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import summarise
from dlbench.reports.results.storage.store import Store

pytestmark = pytest.mark.usefixtures("few_replicates")
MADE = datetime(2026, 11, 23, tzinfo=UTC)
SECTIONS: dict[str, set[str]] = {
    "cpu": {"threads"},
    "faults": set(),
    "gates": set(),
    "gpu": {"ceilings", "figure1"},
    "workers": {"scaling"},
}
"""Sections that the page of each of these stores must have."""
DRAWN = "gpu"
"""Drawing takes long: the page of this store has its pictures."""


def document(path: Path, all_runs: bool = False, **changes: Any) -> Document:
    with Store.open(path, create=False) as store:
        counts = store.record_counts()
        runs = [(run, counts.get(run.id, 0)) for run in store.runs()]
    results = Results.read([path], newest=True, all_runs=all_runs)
    source = ReportSource(lambda: results, lambda: runs, ReportOptions(all_runs=all_runs))
    return Document(
        **{"title": "A page", "source": source, "made": MADE, "version": "0", **changes}
    )


@pytest.fixture(scope="module", params=SECTIONS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stored(name: str, tmp_path_factory: pytest.TempPathFactory) -> Document:
    return document(kept_store(tmp_path_factory.mktemp("stores"), name))


@pytest.fixture(scope="module")
def page(name: str, stored: Document) -> str:
    with pytest.MonkeyPatch.context() as patch:
        if name != DRAWN:
            patch.setattr("dlbench.reports.page.sections.MOST_CELLS_DRAWN", 0)
        return page_to_file_text(stored)


def check_opened(page: str) -> None:
    """Check what the script puts into the dialog as HTML, and the files to be saved."""
    view = block(page, "view")
    for text in (*view["cells"], *view["software"]):
        check_html(text)
    check_csv(view["files"]["cells.csv"])


def test_the_page_has_every_cell_with_its_numbers_launches_and_reasons(
    stored: Document, page: str
) -> None:
    check_html(page)
    check_opened(page)
    assert not re.search(r"<th[^>]*></th>", page)
    data = block(page)
    for cell, expected in zip(data["cells"], matrix_cells(stored.matrix), strict=True):
        for name in ("machine", "status", "flags"):
            assert cell[name] == expected[name]
        # The raw samples on the page give the number again.
        counting = [
            launch for launch in cell["launches"] if launch["counts"] and launch.get("samples_ns")
        ]
        samples = [
            [ns * 1e-9 / launch["steps_per_sample"] for ns in launch["samples_ns"]]
            for launch in counting
        ]
        if expected["seconds_per_minibatch"] and cell["status"] == "ok":
            assert summarise(samples).median == pytest.approx(
                expected["seconds_per_minibatch"]["median"], rel=1e-6
            )


def test_the_doctors_findings_stand_in_the_provenance_once_a_machine(tmp_path: Path) -> None:
    faults = document(kept_store(tmp_path, "faults"))
    finding = Finding(
        "governor", "CPU governor", Severity.HARMS, "powersave", "The clock <changes>."
    )
    runs = faults.source.runs()

    def with_runs(*runs: tuple[Run, int]) -> Document:
        return replace(faults, source=replace(faults.source, runs=lambda: list(runs)))

    nothing = [(replace(run, doctor=()), count) for run, count in runs]
    later = [(replace(run, doctor=(finding,), started=MADE), count) for run, count in runs]
    assert examined(faults) == []  # the doctor was not asked then
    once = [["harms", "CPU governor: powersave", finding.why]] * len(
        {run.machine for run, _ in runs}
    )
    assert examined(with_runs(*nothing, *later)) == once
    assert {row[1] for row in examined(with_runs(*nothing))} == {
        "Settings: nothing that harms measurement"
    }
    text = page_to_file_text(with_runs(*later))
    check_html(text)
    assert "The clock &lt;changes&gt;." in text
    assert block(text, "provenance-data")["runs"][0]["doctor"][0]["name"] == "governor"


def examined(page_document: Document) -> list[list[str]]:
    tables = [table for table in provenance_tables(page_document) if "examined" in table.title]
    rows = itertools.chain.from_iterable(table.rows for table in tables)
    return [[entry.text for entry in row[1:]] for row in rows]


def test_the_sections_are_those_of_the_reports_that_have_something_to_tell(
    name: str, page: str
) -> None:
    names = set(re.findall(r'<section id="report-([^"]+)"', page))
    assert names >= SECTIONS[name]
    assert name != "faults" or "scaling" not in names
    assert "cells have a time that counts" in page or "Nothing was measured yet." in page


def test_every_address_on_the_page_is_there_once(page: str) -> None:
    text = page
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'href="#([^"?]+)"', text):
        assert target in ids


def test_the_policy_allows_the_one_style_and_the_one_script_alone(page: str) -> None:
    text = page
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;;")
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy[1]
    assert "style=" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize(("name", "turn"), [("cpu", 0), ("faults", 1)])
def test_hostile_texts_are_inert(tmp_path: Path, name: str, turn: int) -> None:
    store = hostile_store(tmp_path, name, turn)
    text = page_to_file_text(document(store, title=HOSTILE[turn * 7], note="\n\n".join(HOSTILE)))
    check_html(text)
    check_opened(text)
    assert len(text) < 3_000_000


def test_a_note_is_markdown_that_loads_and_runs_nothing() -> None:
    html = note_to_html(
        "# Head\n\n**bold** ![i](https://example.org/i.png) <b>x</b> [l](javascript:alert(1))"
    )
    assert "<strong>bold</strong>" in html
    assert "<img" not in html
    assert "<b>" not in html
    assert '<a href="https://example.org/i.png">i</a>' in html
    assert 'href="javascript' not in html


def test_an_empty_result_and_nothing_but_failures_have_a_page() -> None:
    text = page_to_file_text(Document("Nothing", ReportSource(Results), MADE, "0"))
    assert "Nothing was measured yet." in text
    check_html(text)


@pytest.mark.parametrize("name", [DRAWN], indirect=True)
def test_a_page_is_the_same_for_the_same_results(stored: Document, page: str) -> None:
    assert page_to_file_text(replace(stored, source=replace(stored.source))) == page


def test_each_cell_without_a_time_is_counted_once(tmp_path: Path) -> None:
    faults = document(kept_store(tmp_path, "faults"))
    counts = [int(count) for count in re.findall(r"\b\d+\b", findings(faults.matrix, [])[0])]
    timed, cells, *reasons = counts
    assert timed + sum(reasons) == cells == len(faults.matrix.cells)


def test_the_head_has_sentences_of_the_reports() -> None:
    example = document(EXAMPLE, all_runs=True)
    tuning = reports()["tuning"]
    headlines = [tuning.headline(tuning.analyse(example.source))]
    assert "tuning makes 3 of 9 rows faster" in " ".join(findings(example.matrix, headlines))


@pytest.mark.parametrize("tunings", [["installed"], ["installed", "tuned"]])
def test_settings_that_all_rows_have_in_common_stand_in_the_heading_alone(
    tunings: list[str],
) -> None:
    names = itertools.product(["torch", "jax"], tunings)
    matrix = make.matrix(*(make.record(framework=name, tuning=tuning) for name, tuning in names))
    column = overview_column(matrix)
    assert column is not None
    (_, picture, _), *further_panels = panels(matrix, column, rankings(matrix, column))
    assert not further_panels
    assert overview_place(matrix, column).endswith("as installed") == (len(tunings) == 1)
    assert (", installed" in picture) == (len(tunings) > 1)


def test_the_overview_shows_the_threads_with_most_numbers_and_of_these_none_beyond_the_cores() -> (
    None
):
    def column(*threads: int, cores: int | None = 2) -> int | None:
        records = [make.record(threads=count) for count in threads]
        chosen = overview_column(make.matrix(*records, cores=cores))
        return None if chosen is None else chosen.threads

    assert column(1, 2, 4) == 2
    assert column(1, 2, 4, cores=None) == 4
    assert column(4) == 4

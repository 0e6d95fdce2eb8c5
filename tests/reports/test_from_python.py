"""The objects that `measure`, `compare` and `gate` return, made of stored runs: they say what the
commands print, and notebooks show them as safe HTML."""

import json
import pickle
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from factory_of_records import record

import dlbench
from dlbench.adapters.protocol import Status
from dlbench.reports.from_python import GateResult, MeasureResult
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.results import Results

STORES = Path(__file__).parents[1] / "goldens" / "stores"
CPU, GATES = STORES / "cpu.sqlite.xz", STORES / "gates.sqlite.xz"


@pytest.fixture(scope="module")
def measured() -> MeasureResult:
    return MeasureResult(Results.read([CPU], newest=True), "a-run", "cpu.sqlite")


@pytest.fixture(scope="module")
def compared() -> dlbench.CompareResult:
    (first, *_) = Results.read([GATES]).comparisons
    return dlbench.compare(first, store=GATES)


class Tags(HTMLParser):
    """The tags of a fragment, of which each must be closed, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_measurement_is_the_matrix(measured, command):
    code, out, _ = command("report", "matrix", "--store", str(CPU), "--json")
    assert code == 0
    assert out == f"{measured.to_json()}\n"
    assert json.loads(out) == json.loads(json.dumps(measured.to_dict()))
    code, out, _ = command("report", "matrix", "--store", str(CPU))
    assert repr(measured).startswith(out.rstrip("\n"))
    assert len(measured.table) == len(measured.to_dict())
    assert set(measured.launches["run"]) == set(measured.table.attrs["runs"])


def test_a_measurement_names_its_fastest_cell(measured):
    timed = measured.table[measured.table["status"] == "ok"]
    best = timed.loc[timed["seconds"].idxmin()]
    assert measured.sentence.startswith(
        f"Fastest of {len(measured.table)} cells: {best['network']}"
    )
    assert f"{int(best['launches'])} launch" in measured.sentence


def test_a_comparison_is_that_of_the_command(compared, command):
    code, out, _ = command("compare", compared_run(), "--store", str(GATES), "--json")
    assert code in (0, 1)
    assert out == f"{compared.to_json()}\n"
    assert json.loads(out)["counts"][compared.verdict] > 0
    code, out, _ = command("compare", compared_run(), "--store", str(GATES))
    assert out.rstrip("\n") == repr(compared)


def compared_run() -> str:
    return Results.read([GATES]).comparisons[0]


def test_the_table_of_a_comparison_has_its_ratios(compared):
    cells = compared.to_dict()["cells"]
    table = compared.table
    assert len(table) == len(cells) > 0
    assert list(table["verdict"]) == [cell["finding"] for cell in cells]
    assert np.allclose(table["ratio"], [cell["ratio"] for cell in cells])
    assert (table["low"] <= table["ratio"]).all()
    assert (table["ratio"] <= table["high"]).all()
    # Not the ratio of the medians, which takes no pairs into account, but near to it.
    medians = table["candidate_seconds"] / table["baseline_seconds"]
    assert np.allclose(medians, table["ratio"], rtol=0.1)
    assert table.attrs["units"] == {"baseline_seconds": "s", "candidate_seconds": "s"}


def test_notebooks_show_what_the_command_prints(measured, compared):
    for result in (measured, compared):
        tags = Tags(result._repr_html_())
        assert {"table", "th", "td"} <= tags.seen
        assert not {"script", "style", "iframe"} & tags.seen
        text = " ".join(" ".join(tags.texts).split())
        assert result.sentence in text
        assert result.table["network"].iloc[0] in text


def test_in_a_notebook_the_text_is_returned_and_not_displayed(compared, monkeypatch, capsys):
    text = repr(compared)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(compared) == text
    assert capsys.readouterr().out == ""


def test_names_from_a_store_are_no_markup():
    results = Results(
        (record([1.0] * 5, network="<img src=x onerror=y>"),), {"m": read_host("m", None)}
    )
    markup = MeasureResult(results, "a", "b")._repr_html_()
    assert "<img" not in markup
    assert "&lt;img" in markup


def test_plots_have_the_numbers(measured, compared):
    mpl.use("agg")
    from matplotlib import pyplot as plt

    axes = compared.plot()
    ratios = np.concatenate([container.lines[0].get_xdata() for container in axes.containers])
    assert sorted(ratios) == pytest.approx(sorted(compared.table["ratio"]))
    _, own_axes = plt.subplots()
    assert measured.plot(own_axes) is own_axes
    seconds = np.concatenate([container.lines[0].get_ydata() for container in own_axes.containers])
    timed = measured.table[measured.table["status"] == "ok"]
    assert sorted(seconds) == pytest.approx(sorted(timed["seconds"]))
    assert "seconds" in own_axes.get_ylabel()
    plt.close("all")


def test_a_measurement_without_a_number_has_the_reason():
    failed = replace(record([1.0]), outcome=Outcome(Status.CRASHED, "no data"))
    result = MeasureResult(Results((failed,), {}), "a", "b")
    assert result.sentence == "No cell has a number: no data"
    assert result.table["seconds"].isna().all()
    result.plot()


def test_gates_say_whether_they_passed(compared):
    gate = GateResult(compared._content, "store", "run")
    assert gate.verdict == ("passed" if gate.passed else gate.to_dict()["gate"]["outcome"])
    assert gate.sentence.startswith(f"gate {gate.verdict}: ")


def test_tables_survive_pickling(compared):
    table = pickle.loads(pickle.dumps(compared.table))
    assert table.attrs == compared.table.attrs

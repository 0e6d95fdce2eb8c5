"""pytest-benchmark files named where a store or a run is expected, and runs named in `dlbench
export`."""

import gzip
import json
import shutil
from datetime import timedelta
from importlib import util
from pathlib import Path

import factory_of_records as make
import pytest
from processes import null_cell, refusal

from dlbench.reports.results.storage.store import Store
from dlbench.suites.commands import stores

INPUTS = Path(__file__).resolve().parents[2] / "goldens" / "inputs"


@pytest.fixture
def files(command):
    """Copy three files of a baseline and three of a candidate into the working folder."""
    names = [f"{side}{number}.json" for side in "ab" for number in (1, 2, 3)]
    for name in names:
        shutil.copy(INPUTS / f"foreign-{name}", name)
    return names


def test_files_are_compared_as_they_are_and_stored_nowhere(command, files):
    code, output, _ = command(
        "compare", "a1.json,a2.json,a3.json", "b1.json,b2.json,b3.json", "--json"
    )
    assert code == 0
    directly = json.loads(output)
    assert sorted(path.name for path in Path.cwd().iterdir()) == files
    assert directly["baseline"].startswith("a1.json,a2.json,a3.json")
    for side in "ab":
        assert (
            command("import", "--one-run", *(f"{side}{number}.json" for number in (1, 2, 3)))[0]
            == 0
        )
    stored = json.loads(command("compare", "previous", "latest", "--json")[1])
    assert len(directly["cells"]) == 2
    for cell, stored_cell in zip(directly["cells"], stored["cells"], strict=True):
        assert cell["cell"]["network"] == stored_cell["cell"]["network"]
        assert cell["ratio"] == stored_cell["ratio"]
    one_each = json.loads(command("compare", "a1.json", "b1.json", "--json")[1])
    assert {tuple(cell["launches_used"].values()) for cell in one_each["cells"]} == {(1, 1)}


def test_a_file_with_a_comma_in_its_name_is_one_file(command, files):
    shutil.copy("a1.json", "a1,b1.json")
    assert "a1,b1.json and a1.json are the same run" in refusal(
        command, "compare", "a1,b1.json", "a1.json"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "a1.json"), "has one side only"),
        (("compare", "a1.json", "nope.json"), "There is no file nope.json."),
        (
            ("compare", "notes.json", "b1.json"),
            "notes.json cannot be read as a file of pytest-benchmark",
        ),
        (("compare", "empty.json", "b1.json"), "empty.json have no benchmark"),
        (("compare", "wide.json", "b1.json"), "it is text in UTF-16"),
        (("compare", "packed.json.gz", "b1.json"), "it is compressed by gzip"),
        (("compare", "nothing.json", "b1.json"), "it is empty"),
    ],
)
def test_files_that_cannot_be_compared_are_refused_in_one_line(command, files, words, message):
    Path("notes.json").write_text('{"notes": 1}')
    Path("wide.json").write_text(Path("a1.json").read_text(), encoding="utf-16")
    Path("packed.json.gz").write_bytes(gzip.compress(Path("a1.json").read_bytes()))
    Path("nothing.json").touch()
    content = json.loads(Path("a1.json").read_text())
    Path("empty.json").write_text(json.dumps({**content, "benchmarks": []}))
    assert message in refusal(command, *words)


@pytest.mark.parametrize(
    "words", [("report", "matrix", "--store"), ("history", "--store"), ("export", "--store")]
)
@pytest.mark.parametrize("text", ['{"benchmarks": []}', "notes\n", "Grüße " * 1000])
def test_a_text_file_in_place_of_a_store_leads_to_import(command, words, text):
    Path("file.json").write_text(text, encoding="utf-8")
    line = refusal(command, *words, "file.json", code=4)
    assert "file.json is not a database but a text file" in line
    assert "`dlbench import file.json --store STORE`" in line
    assert Path("file.json").read_text(encoding="utf-8") == text
    Path("file.json").write_bytes(b"\x00\x01\x02" * 1000)
    assert "import" not in refusal(command, *words, "file.json", code=4)


def fill(run_id, days, network="fcn5"):
    cell = null_cell(threads=1)._replace(network=network)
    started = make.START + timedelta(days=days)
    with Store.open("dlbench.sqlite") as store:
        store.begin_run(make.run(id=run_id, started=started, plan=(cell,), machine="m"))
        store.append(
            make.record(
                [1.0, 1.1], 0, run=run_id, machine="m", minutes=1440 * days, **cell._asdict()
            )
        )


@pytest.mark.parametrize("form", ["pytest-benchmark", "csv"])
def test_export_takes_the_words_for_runs_that_reports_take(command, form):
    fill("20261101-a", 0)
    fill("20261102-b", 1)
    for word, meant in (
        ("latest", "20261102-b"),
        ("previous", "20261101-a"),
        ("20261101", "20261101-a"),
    ):
        code, output, errors = command("export", "--run", word, "--format", form)
        assert code == 0, errors
        assert meant in output
        assert ({"20261101-a", "20261102-b"} - {meant}).pop() not in output


def test_export_without_pytest_benchmark_names_a_format_that_needs_no_package(command, monkeypatch):
    fill("run-1", 0)
    find_spec = util.find_spec
    monkeypatch.setattr(
        stores.importlib.util,
        "find_spec",
        lambda name: None if name == "pytest_benchmark" else find_spec(name),
    )
    line = refusal(command, "export")
    assert "pip install pytest-benchmark" in line
    assert "--format csv" in line
    assert command("export", "--format", "csv")[0] == 0


def test_runs_without_a_shared_cell_are_answered_with_runs_that_share_one(command):
    for day, (run, network) in enumerate(
        [("one-a", "fcn5"), ("one-b", "fcn5"), ("two-a", "fcn8"), ("two-b", "fcn8")]
    ):
        fill(run, day, network)
    line = refusal(command, "compare", "one-b", "two-b")
    assert "Run one-b shares cells with dlbench.sqlite:one-a." in line
    assert "Run two-b shares cells with dlbench.sqlite:two-a." in line


def test_a_store_holds_each_measurement_once_whichever_files_it_comes_with(command, files):
    assert command("import", "a1.json", "a2.json", "a3.json")[0] == 0
    output = refusal(command, "import", "--one-run", "a1.json", "a2.json", "a3.json")
    assert "holds these measurements already" in output
    assert command("import", "b1.json")[0] == 0


def test_a_file_that_is_missing_and_a_folder_are_named(command, files):
    assert "There is no file nope.json." in refusal(
        command, "compare", "a1.json,nope.json", "b1.json"
    )
    assert "is a folder" in refusal(command, "compare", ".", "b1.json")


def test_a_store_with_the_name_of_a_json_file_stays_a_store(command, files):
    assert command("import", "a1.json", "b1.json", "--store", "store.json")[0] == 0
    assert command("compare", "store.json", "store.json")[2].find("cannot be read as a file") == -1
    assert command("report", "runs", "--store", "store.json")[0] == 0


def test_benchmarks_that_a_store_holds_are_not_imported_again(command, files):
    content = json.loads(Path("a1.json").read_text())
    assert command("import", "a1.json")[0] == 0
    content["benchmarks"][0]["extra_info"] = {"machine": "mine"}
    Path("again.json").write_text(json.dumps(content, indent=3))
    assert "holds run" in refusal(command, "import", "again.json")
    removed = content["benchmarks"].pop()
    Path("part.json").write_text(json.dumps(content))
    assert "holds these measurements already" in refusal(command, "import", "part.json")
    content["benchmarks"].append({**removed, "fullname": "test_it.py::test_new"})
    Path("more.json").write_text(json.dumps(content))
    code, _, errors = command("import", "more.json")
    assert code == 0
    assert "1 record left out, whose measurements dlbench.sqlite holds already" in errors
    assert "1 record into dlbench.sqlite" in errors


def test_reports_say_why_imports_have_no_items_per_second(command, files):
    command("import", "a1.json")
    output = command("report", "matrix", "--quantity", "items")[1]
    assert "not measured: the mini-batch size is not known" in " ".join(output.split())
    curves = command("report", "figure1")[1]
    assert "Nothing was measured" not in curves
    assert "Not shown: 2 cells whose mini-batch size is not known." in curves

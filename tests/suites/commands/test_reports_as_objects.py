"""Every report is asked in the same way; one that is added is a module (the guide
write-a-report.md).

Also: runs of two stores that share no cell are named, and those that would do.
"""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import factory_of_records as make
import pytest
import typer
from typer.testing import CliRunner

import dlbench.reports
from dlbench.reports.catalogue import report, reports
from dlbench.reports.formats.export import FORMATS
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.results import run_named
from dlbench.reports.results.storage.store import Store
from dlbench.suites.commands.report import command_of
from dlbench.suites.planning.axes import AXIS_OPTIONS

Call = Callable[..., tuple[int, str, str]]
GUIDES = Path(__file__).resolve().parents[3] / "reports" / "docs" / "how-to"


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "kept.sqlite"
    with Store.open(path) as opened:
        for network in ("fcn5", "lstm32"):
            for framework, seconds in (("torch", 1.0), ("mxnet", 2.0)):
                for threads in (1, 2):
                    opened.append(
                        make.record(
                            [seconds] * 5, network=network, framework=framework, threads=threads
                        )
                    )
    return str(path)


def test_the_tutorial_makes_a_report_as_it_stands(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (GUIDES / "write-a-report.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (name,) = re.findall(r"Make `reports/(\w+).py`", guide)
    room = tmp_path / "room"
    room.mkdir()
    (room / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(dlbench.reports, "__path__", [*dlbench.reports.__path__, str(room)])
    content = report(name)
    app = typer.Typer()
    app.command()(command_of(content))
    for form in FORMATS:
        result = CliRunner().invoke(app, ["--store", store, "--networks", "fcn5", "--format", form])
        assert result.exit_code == 0, result.output
        assert "mxnet" in result.output
        assert "lstm32" not in result.output
    assert "Only these: " in " ".join(CliRunner().invoke(app, ["--help"]).output.split())


def test_every_report_of_a_store_is_a_command(store: str, command: Call) -> None:
    for name in [name for name, report_of_name in reports().items() if report_of_name.of_stores]:
        code, out, err = command("report", name, "--store", store, "--format", "json")
        assert code == 0, err
        json.loads(out)
    help_text = command("report", "matrix", "--help")[1]
    assert all(axis_option.option in help_text for axis_option in AXIS_OPTIONS)


def test_a_report_is_narrowed_by_values_of_axes_and_by_words_for_runs(
    store: str, command: Call
) -> None:
    def rows(*words: str) -> list[tuple[str, str, str]]:
        code, out, err = command("report", "matrix", "--store", store, "--format", "csv", *words)
        assert code == 0, err
        return [
            (row["network"], row["threads"], row["framework"])
            for row in csv.DictReader(io.StringIO(out))
        ]

    assert len(rows()) == len(rows("--run", "run-1")) == 8
    assert {network for network, _, _ in rows("--networks", "lstm*")} == {"lstm32"}
    assert {row[1:] for row in rows("--threads", "2", "--frameworks", "torch:eager")} == {
        ("2", "torch")
    }
    code, _, err = command("report", "matrix", "--store", store, "--networks", "fcn9")
    assert code == 2
    assert "named 'fcn9'. Did you mean 'fcn5'?" in err


def test_words_for_runs() -> None:
    runs = [
        make.run(id=name, started=make.START.replace(day=day))
        for day, name in enumerate(("ab1", "ab2", "b3"), 1)
    ]
    words = {"latest": "b3", "previous": "ab2", "b": "b3", "ab1": "ab1", "unknown": "unknown"}
    assert {word: run_named(word, runs) for word in words} == words
    with pytest.raises(ReportError, match="2 runs begin with 'ab'"):
        run_named("ab", runs)
    with pytest.raises(ReportError, match="no earlier run"):
        run_named("previous", runs[:1])


def keep(path: Path, name: str, day: int, threads: int) -> None:
    cell = make.cell(threads=threads)
    with Store.open(path) as store:
        store.begin_run(make.run(id=name, started=make.START.replace(day=day), plan=(cell,)))
        for launch in range(6):
            store.append(
                make.record([1.0 + launch / 100], run=name, launch=launch, threads=threads)
            )


def test_runs_that_share_no_cell_are_named_and_others_suggested(
    tmp_path: Path, command: Call
) -> None:
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    keep(first, "old-a", 1, threads=2)
    keep(first, "new-a", 2, threads=1)
    keep(second, "new-b", 3, threads=2)
    code, _, err = command("compare", "first.sqlite", "second.sqlite")
    output = " ".join(err.split())
    assert code == 2
    assert "run new-a of" in output
    assert "run new-b of" in output
    assert "shares cells with first.sqlite:old-a." in output
    code, out, err = command("compare", "first.sqlite:old-a", "second.sqlite")
    assert code in (0, 1), err
    assert "old-a" in out


def test_a_report_that_another_command_makes_names_it(command: Call) -> None:
    made_elsewhere = [name for name, entry in reports().items() if not entry.of_stores]
    assert made_elsewhere
    for name in made_elsewhere:
        code, _, complaint = command("report", name)
        assert code == 2
        assert f"`dlbench report` has no {name}: `dlbench " in complaint

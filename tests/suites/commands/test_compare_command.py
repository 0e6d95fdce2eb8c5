"""`dlbench compare` of stored runs: its exit codes, and what it says about runs that differ in more
than their code."""

import json
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Record
from dlbench.reports.results.storage.store import Store

INPUTS = Path(__file__).parents[2] / "goldens" / "inputs"
TRAINED, UNTRAINED = [2.0, 1.97401], [2.0, 1.98560]


def own(seconds: float, run: str, losses: list[float]) -> list[Record]:
    """Launches of a step of the user's own."""
    parity = make.parity()._replace(losses=losses, loss_tolerance=1e-3)
    records = make.changed(
        make.launches([seconds, seconds * 1.01, seconds * 1.02], run=run), parity=parity
    )
    return [
        Record(**{**vars(record), "network": {"family": "own", "numbers": {}}})
        for record in records
    ]


@pytest.fixture
def compare(command, tmp_path):
    """Give a function that compares two stored runs of these records."""

    def compared(before: list[Record], after: list[Record], *words: str) -> tuple[int, str, str]:
        with Store.open(tmp_path / "two.sqlite") as store:
            store.add_machine(make.MACHINE, make.MACHINE_DICT)
            for name, records in (("run-1", before), ("run-2", after)):
                store.begin_run(make.run(id=name, plan=(records[0].cell,)))
                for record in records:
                    store.append(record)
        result: tuple[int, str, str] = command(
            "compare", "run-1", "run-2", "--store", "two.sqlite", *words
        )
        return result

    return compared


@pytest.mark.parametrize(
    ("after", "losses", "words", "code", "verdict"),
    [
        (1.0, TRAINED, (), 0, "no regression"),
        (2.0, TRAINED, (), 1, "REGRESSION"),
        (2.0, TRAINED, ("--exit-zero",), 0, "REGRESSION"),
        (0.5, TRAINED, (), 0, "improvement"),
        (0.5, UNTRAINED, (), 7, "DIFFERENT"),
        (0.5, UNTRAINED, ("--exit-zero",), 0, "DIFFERENT"),
        (0.5, UNTRAINED, ("--allow-different",), 0, "improvement"),
        (1.05, TRAINED, (), 0, "inconclusive"),
        (1.05, TRAINED, ("--undecided", "fail"), 6, "inconclusive"),
    ],
)
def test_the_exit_code_says_what_was_found(compare, after, losses, words, code, verdict) -> None:
    wide = () if verdict != "no regression" else ("--tolerance", "30%")
    ended, output, complaints = compare(
        own(1.0, "run-1", TRAINED), own(after, "run-2", losses), *words, *wide
    )
    assert ended == code, complaints
    assert output.rstrip().endswith(f"1 cell: 1 {verdict}.")
    assert max(map(len, output.splitlines())) <= 80


def test_nothing_measured_on_both_sides_is_no_success_and_a_wrong_word_is_refused(
    compare, command
) -> None:
    before = own(1.0, "run-1", TRAINED)
    skipped = Outcome(Status.SKIPPED, "no interpreter")
    hole = [Record(**{**vars(record), "run": "run-2", "outcome": skipped}) for record in before]
    assert compare(before, hole)[0] == 6
    code, _, complaint = command("compare", "run-1", "run-2", "--undecided", "maybe")
    assert (code, "Known: fail, pass" in complaint) == (2, True)


def test_other_work_is_compared_on_request_and_a_line_says_so(compare) -> None:
    records = own(1.0, "run-1", TRAINED), own(0.5, "run-2", UNTRAINED)
    _, output, _ = compare(*records, "--allow-different", "--json")
    content = json.loads(output)
    assert content["rule"]["allow_different"] is True
    assert content["notes"][-1].startswith(
        "The candidate computes something else; compared all the same, as asked: "
    )
    assert content["cells"][0]["loss_difference"]["candidate"] == UNTRAINED[1]


def saved(folder: Path, name: str, factor: float, change: Any = None) -> list[str]:
    """Write three sessions of two benchmarks, of which steps take this many times as long."""
    files = []
    for number in (1, 2, 3):
        content = json.loads((INPUTS / f"foreign-a{number}.json").read_text())
        for place, benchmark in enumerate(content["benchmarks"]):
            # Alike but for the factor, so that the noise of the recorded sessions has no part in
            # it.
            seconds = [factor * 1e-3 * (1 + 0.001 * (step + number + place)) for step in range(5)]
            benchmark["stats"].update(data=seconds, median=seconds[2], iterations=1)
        content["datetime"] = content["datetime"].replace("T14", "T15" if factor > 1 else "T14")
        if change is not None:
            change(content)
        files.append(f"{name}{number}.json")
        (folder / files[-1]).write_text(json.dumps(content))
    return files


def test_an_imported_regression_says_that_the_interpreter_differs_and_names_what_is_missing(
    command, tmp_path
) -> None:
    def newer(content: dict[str, Any]) -> None:
        content["machine_info"]["python_implementation_version"] = "3.13.1"
        content["benchmarks"][1].update(name="test_renamed", fullname="test_f.py::test_renamed")

    for files in (saved(tmp_path, "a", 1.0), saved(tmp_path, "b", 1.5, newer)):
        code, _, complaints = command("import", "--one-run", *files, "--store", "imported.sqlite")
        assert code == 0, complaints
    code, output, complaints = command(
        "compare", "previous", "latest", "--store", "imported.sqlite"
    )
    assert code == 1, complaints
    words = " ".join(output.split())
    assert "The sides also differ in: interpreter CPython 3.11.7 -> CPython 3.13.1." in words
    assert "Only in the candidate: test_f.py::test_renamed" in words
    assert words.endswith("1 cell: 1 REGRESSION; 1 only in the baseline; 1 only in the candidate.")
    assert "--now" not in words

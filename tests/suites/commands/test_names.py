"""Names of stored cells in commands: a test id is taken as it is, and an unknown one is answered
with the nearest."""

import json
from datetime import timedelta

import factory_of_records as make
import pytest
from processes import refusal

from dlbench.reports.results.storage.store import Store

TESTS = (
    "tests/test_a.py::test_c1",
    "tests/test_a.py::test_c[1]",
    "tests/test_a.py::test_c[1,2]",
    "test[a-b]",
)


@pytest.fixture
def store(command):
    """Make a store with two runs, of three launches of each benchmark."""
    with Store.open("dlbench.sqlite") as opened:
        for day in range(2):
            opened.begin_run(make.run(id=f"run-{day}", started=make.START + timedelta(days=day)))
            for name in TESTS:
                for launch in range(3):
                    fields = {
                        "network": name,
                        "framework": "pytest-benchmark",
                        "mode": "imported",
                        "run": f"run-{day}",
                    }
                    opened.append(
                        make.record([1.0, 1.1, 0.9], launch, minutes=24 * 60 * day, **fields)
                    )


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize(
    "words", [("report", "matrix"), ("report", "matrix", "--run", "latest"), ("history", "--all")]
)
def test_a_command_shows_the_named_benchmark_alone(command, store, words, name):
    code, output, errors = command(*words, "--networks", name, "--json")
    assert code == 0, errors
    content = json.loads(output)
    cells = content["cells"] if words[0] == "history" else content
    assert {cell["network"] for cell in cells} == {name}


def test_a_list_of_names_with_commas(command, store):
    matrix = json.loads(
        command("report", "matrix", "--networks", ",".join(TESTS[1:3]), "--json")[1]
    )
    assert {cell["network"] for cell in matrix} == set(TESTS[1:3])


@pytest.mark.parametrize("words", [("report", "matrix"), ("history",)])
def test_an_unknown_name_is_answered_with_the_nearest_ones(command, store, words):
    line = refusal(command, *words, "--networks", "tests/test_a.py::test_d[1]")
    assert (
        "There is no network in dlbench.sqlite named 'tests/test_a.py::test_d[1]'. Did you mean"
        in line
    )
    assert repr(TESTS[1]) in line
    assert "no framework in dlbench.sqlite named 'torhc'" in refusal(
        command, *words, "--frameworks", "torhc"
    )

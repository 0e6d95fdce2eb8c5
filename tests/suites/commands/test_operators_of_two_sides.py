"""Both sides of a step under a profiler: `explain --against`, and what `compare --now` does with a
slower cell."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dlbench.reports.results import disturbance
from dlbench.reports.results.storage.store import Store
from dlbench.suites.run import runner

STEP = """
import numpy as np

BATCH_SIZE = 1


def prepare(cell):
    numbers = np.linspace(0.0, 1.0, 200_000)
    state = {"found": 0.0}

    def product():
        state["found"] = float(numbers @ numbers)

    def sort():
        np.sort(numbers[::-1])

    def step():
        for _ in range(10):
            product()
        for _ in range(TIMES):
            sort()

    return step, lambda: state["found"]
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a step, and another that sorts three times as often."""
    monkeypatch.chdir(tmp_path)
    Path("fast.py").write_text(f"TIMES = 2\n{STEP}")
    Path("slow.py").write_text(f"TIMES = 6\n{STEP}")


@pytest.mark.usefixtures("steps")
def test_a_slower_operator_is_named_against_another_file(command: Any) -> None:
    words = [
        "--step",
        "slow.py",
        "--python",
        sys.executable,
        "--threads",
        "1",
        "--against",
        "fast.py",
    ]
    code, output, complaints = command("explain", "slow", *words, "--json")
    assert code == 0, complaints
    content = json.loads(output)
    assert content["named"][0] == "method 'sort' of 'numpy.ndarray' objects"
    (sort,) = [
        operator for operator in content["operators"] if operator["name"] == content["named"][0]
    ]
    assert (sort["baseline_calls"], sort["candidate_calls"]) == (2.0, 6.0)
    # NumPy has no profiler, so Python's counts its functions.
    assert (
        "explains the step. By Python's own: The difference lies in method 'sort'"
        in content["sentence"]
    )
    assert "2 -> 6 calls" in content["sentence"]


@pytest.mark.usefixtures("steps")
def test_a_comparison_profiles_a_slower_cell_once_and_every_report_of_it_says_so(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside other tests most pairs would be disturbed, and the step takes almost three times as
    # long in any case.
    monkeypatch.setattr(disturbance, "disturbances", lambda record, host: "")
    monkeypatch.setattr(runner, "QuietWait", lambda *arguments: None)
    words = [
        "--baseline-step",
        "fast.py",
        "--threads",
        "1",
        "--pairs",
        "7-7",
        "--store",
        "two.sqlite",
    ]
    words = ["--now", "--step", "slow.py", "--python", sys.executable, *words]
    code, output, complaints = command(
        "compare", *words, "--write", "comment.md", "--write", "junit.xml"
    )
    assert code == 1, complaints
    assert "profiling 1 slower cell on both sides" in complaints
    assert "The difference lies in method 'sort'" in " ".join(output.split())
    assert "The difference lies in method 'sort'" in Path("comment.md").read_text()
    assert "The difference lies in method" in Path("junit.xml").read_text()
    code, again, _ = command("report", "comparisons", "--store", "two.sqlite")
    assert code == 0
    assert "The difference lies in method 'sort'" in " ".join(again.split())
    with Store.open("two.sqlite", create=False) as store:
        (run,) = store.runs()
        profiles = list(store.profiles(run.id))
    assert profiles
    assert all(record.group for record in profiles)  # they took turns, as the pairs did
    # Its profiled launches are no part of the comparison.
    code, stored, _ = command("compare", "latest", "--store", "two.sqlite", "--json")
    content = json.loads(stored)
    assert content["cells"][0]["launches_used"] == {"baseline": 7, "candidate": 7}
    assert content["operators"][0]["named"][0] == "method 'sort' of 'numpy.ndarray' objects"


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("1.2.3", "name the framework whose release is meant, as in jax==1.2.3"),
        ("missing.py", "missing.py"),
        ("nothing==1.0", "nothing"),
    ],
)
def test_a_baseline_that_cannot_be_is_refused_before_anything_is_launched(
    command: Any, word: str, message: str
) -> None:
    words = ["--step", "slow.py", "--python", sys.executable, "--threads", "1", "--against", word]
    code, _, complaints = command("explain", "slow", *words)
    assert code == 2
    assert message in complaints
    assert "profiling" not in complaints

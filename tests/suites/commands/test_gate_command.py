"""`dlbench gate` and `dlbench compare` as a person or a nightly job runs them, with the null
framework."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from processes import records_in, run_command, running_command, suite_of_null, wait_until

from dlbench.hardware_probe import probe
from dlbench.reports.results.storage.store import Store
from dlbench.suites.commands import compare

SUITE = suite_of_null("nightly", 0.001, threads=[1, 2], protocol={"steps": 5})
# A step of 1 ms becomes one of 21 ms: whatever else this machine does meanwhile, that is slower.
SLOWER = ["--candidate-env", "DLBENCH_EXTRA_PRODUCTS=1x20000"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nightly.toml").write_text(SUITE)
    return tmp_path


def test_identical_code_passes_in_a_report_that_fits_a_terminal(folder) -> None:
    done = run_command(folder, "gate", "nightly.toml", "--same", "--threads", "1", COLUMNS="80")
    # This machine may be too busy for a pass.
    assert f"gate {({0: 'passed', 6: 'undecided'})[done.returncode]}: " in " ".join(
        done.stdout.split()
    ), done.stderr
    assert "1 cell" in done.stdout
    assert "REGRESSION" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


@pytest.mark.slow
def test_a_slowdown_fails_the_build_however_often_the_gate_was_ended(folder) -> None:
    files = ["report.md", "junit.xml", "report.json", "report.csv"]
    written = [word for name in files for word in ("--write", name)]
    words = ["gate", "nightly.toml", *SLOWER, "--threads", "1", "--store", "my.sqlite", *written]
    with running_command(folder, *words) as child:
        wait_until(lambda: len(records_in(folder / "my.sqlite")) > 1, "records")
        os.kill(child.pid, signal.SIGINT)
        child.wait()
        errors = child.said()
    (hint,) = re.findall(r"Resume: .*?(gate .*)", errors)
    assert shlex.split(hint) == [*words, "--resume"]
    with running_command(folder, *words, "--resume") as child:
        wait_until(lambda: len(records_in(folder / "my.sqlite")) > 6, "records")
        os.kill(child.pid, signal.SIGKILL)
    before = len(records_in(folder / "my.sqlite"))
    refused = run_command(
        folder,
        "gate",
        "nightly.toml",
        "--same",
        "--resume",
        "--threads",
        "1",
        "--store",
        "my.sqlite",
    )
    assert refused.returncode == 2
    assert "The unfinished run's candidate was" in refused.stderr
    done = run_command(folder, *shlex.split(hint))
    assert done.returncode == 1, done.stderr
    assert "REGRESSION" in done.stdout
    assert "pair 12" in done.stderr
    assert ElementTree.parse(folder / "junit.xml").getroot().find(".//testcase/failure") is not None
    (cell,) = json.loads((folder / "report.json").read_text())["cells"]
    assert cell["verdict"] == "REGRESSION"
    assert 5 < cell["ratio"] < 100
    assert "REGRESSION" in (folder / "report.md").read_text()
    again = run_command(folder, "compare", "latest", "--store", "my.sqlite")
    assert (again.returncode, "REGRESSION" in again.stdout) == (1, True)
    with Store.open(folder / "my.sqlite", create=False) as store:
        (stored,) = store.runs()
    assert stored.finished is not None
    assert stored.purpose == "gate"
    firsts = [
        (record.launch, record.side)
        for record in records_in(folder / "my.sqlite")
        if record.attempt == 0
    ]
    assert len(firsts) == len(set(firsts)), "what was measured was measured again"
    assert len(records_in(folder / "my.sqlite")) > before
    nothing = run_command(folder, *shlex.split(hint))
    assert nothing.returncode == 2
    assert "no unfinished gate" in nothing.stderr


def test_the_command_that_measures_again_has_no_secret_no_private_path_and_the_seed() -> None:
    sides = [
        "--candidate-env",
        "MY_TOKEN=a=b",
        "--baseline-env=API_KEY=c",
        "--python=torch=/data/me/bin/python",
    ]
    reported = [
        "--write",
        "a.md",
        "--write=b.md",
        "--json",
        "--store",
        "s.sqlite",
        "--resume",
        "--seed",
        "1",
    ]
    again = compare.rerun_command(["gate", "quick", *sides, *reported, "--threads=1"], 7)
    masked = [
        "--candidate-env",
        "MY_TOKEN=***",
        "--baseline-env=API_KEY=***",
        "--python=torch=<path>/python",
    ]
    assert shlex.split(again) == ["dlbench", "gate", "quick", *masked, "--threads=1", "--seed", "7"]


def test_a_baselines_interpreter_is_of_the_suites_rows_of_its_framework(folder) -> None:
    text = SUITE.replace(
        'frameworks = ["null"]', 'frameworks = ["null", "torch:compile", "torch:eager", "jax"]'
    )
    assert text != SUITE
    (folder / "rows.toml").write_text(text)
    options = compare.CompareOptions(interval="2%")
    plan, _ = compare.planned(
        options, str(folder / "rows.toml"), probe(), [f"torch={sys.executable}"]
    )
    assert {(cell.framework, cell.mode) for cell in plan.cells} == {
        ("torch", "compile"),
        ("torch", "eager"),
    }
    assert plan.interval is None  # that of `compare --now` is about pairs


def test_a_budget_ends_a_gate_without_an_alarm_and_without_a_pass(folder) -> None:
    ending = ["--budget", "1s", "--undecided", "pass"]
    done = run_command(
        folder,
        "gate",
        "nightly.toml",
        *SLOWER,
        *ending,
        "--threshold",
        "4%",
        "--store",
        "my.sqlite",
    )
    assert done.returncode == 0, done.stderr
    # A fast machine begins a pair of the second cell within the budget, too.
    outcome = " ".join(done.stdout.split())
    assert re.search(r"gate undecided: (1 of 2 cells is|2 of 2 cells are) inconclusive", outcome)
    assert "The budget of 1 s is short: the first look at every cell takes" in " ".join(
        done.stderr.split()
    )
    assert "The budget ran out" in done.stderr
    with Store.open(folder / "my.sqlite", create=False) as store:
        (stored,) = store.runs()
    assert stored.rule == {"threshold": 0.04}
    assert stored.doctor is not None
    refused = run_command(
        folder, "gate", "nightly.toml", *SLOWER, "--resume", "--store", "my.sqlite"
    )
    assert refused.returncode == 2
    assert (
        "begun with another --threshold, --tolerance, --judge or --allow-different. Give the same "
        "options" in " ".join(refused.stderr.split())
    )
    again = run_command(
        folder, "compare", stored.id, "--tolerance", "9%", "--json", "--store", "my.sqlite"
    )
    assert again.returncode == 0, again.stderr
    rule = json.loads(again.stdout)["rule"]
    assert (rule["threshold"], rule["tolerance"]) == (0.04, 0.09)


@pytest.mark.slow
def test_neighbours_that_take_the_cpus_are_blamed_and_no_code_is(folder) -> None:
    (folder / "nightly.toml").write_text(
        SUITE.replace("0.001", "0.02").replace("steps = 5", "steps = 20")
    )
    burn = "while True: pass"
    cpus = len(os.sched_getaffinity(0))
    neighbours = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2 * cpus)]
    try:
        done = run_command(folder, "gate", "nightly.toml", "--same", "--threads", "1", "--json")
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    assert done.returncode == 6, done.stderr
    report = json.loads(done.stdout)
    assert report["cells"][0]["verdict"] == "CONTENDED"
    assert report["gate"]["outcome"] == "undecided"
    assert "gate undecided: 1 of 1 cell is disturbed by other programs" in done.stderr


OWN_STEP = """
import numpy

def prepare(cell):
    random = numpy.random.default_rng(0)
    inputs, labels = random.normal(size=(64, 32)), random.normal(size=(64, 1))
    state = {"weights": random.normal(size=(32, 1)) * 0.1, "loss": 0.0}

    def step():
        error = inputs @ state["weights"] - labels
        state["loss"] = float((error**2).mean())
        state["weights"] = state["weights"] - 0.01 * GRADIENT

    return step, lambda: state["loss"]
"""


@pytest.mark.slow
def test_a_gate_fails_where_the_candidate_no_longer_trains(folder) -> None:
    (folder / "trains.py").write_text(
        OWN_STEP.replace("GRADIENT", "sum(inputs.T @ error / 32 for _ in range(50)) / 50")
    )
    (folder / "faster.py").write_text(OWN_STEP.replace("GRADIENT", "0.0"))
    words = [
        "gate",
        "nightly.toml",
        "--step",
        "trains.py",
        "--candidate-step",
        "faster.py",
        "--threads",
        "1",
    ]
    done = run_command(
        folder, *words, "--python", sys.executable, "--write", "junit.xml", "--write", "comment.md"
    )
    assert done.returncode == 7, done.stderr
    output = " ".join(done.stdout.split())
    assert "the candidate computes something else: loss of step 2 " in output
    assert "gate failed: 1 of 1 cell is other work than the baseline" in output
    assert (
        len([record for record in records_in(folder) if record.attempt == 0]) == 4
    )  # two pairs show it
    failure = ElementTree.parse(folder / "junit.xml").getroot().find(".//testcase/failure")
    assert failure is not None
    assert failure.get("type") == "DIFFERENT"
    assert (
        "DIFFERENT: the candidate computes something else: loss of step 2"
        in (folder / "comment.md").read_text()
    )
    again = run_command(folder, "compare", "latest")
    assert again.returncode == 7
    allowed = run_command(folder, "compare", "latest", "--allow-different")
    assert "compared all the same, as asked" in " ".join(allowed.stdout.split())

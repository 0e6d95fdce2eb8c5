"""`dlbench gate` and `dlbench compare` as a person or a nightly job runs them, with the null framework."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from processes import run_command, running_command, wait_until
from suites_of_null import suite_of_null

from dlbench.reports.storage.store import Store

SUITE = suite_of_null("nightly", 0.001, threads=[1, 2], protocol={"steps": 5})
# A step of 1 ms becomes one of 21 ms: whatever else this machine does meanwhile, that is slower.
SLOWER = ["--candidate-env", "DLBENCH_EXTRA_PRODUCTS=1x20000"]
FASTER = ["--baseline-env", "DLBENCH_EXTRA_PRODUCTS=1x20000"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nightly.toml").write_text(SUITE)
    return tmp_path


def run(folder, *words):
    return run_command(folder, *words)


def agrees(done) -> None:
    """Hold the exit code to the gate's last line: this machine may be too busy for a pass."""
    said = re.findall(r"gate (passed|failed|undecided): ", " ".join(done.stdout.split()) + done.stderr)
    assert done.returncode in {"passed": (0,), "failed": (1, 5), "undecided": (6,)}[said[-1]], done.stderr


def test_identical_code_passes_in_a_report_that_fits_a_terminal(folder) -> None:
    done = run(folder, "gate", "nightly.toml", "--same")
    agrees(done)
    assert done.returncode in (0, 6), done.stderr
    assert "2 cells" in done.stdout
    assert "REGRESSION" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_slowdown_fails_the_build_with_reports_that_others_can_read(folder) -> None:
    files = ["report.md", "junit.xml", "report.json", "report.csv"]
    words = [word for name in files for word in ("--write", name)]
    done = run(folder, "gate", "nightly.toml", *SLOWER, "--threads", "1", *words)
    assert done.returncode == 1, done.stderr
    assert "REGRESSION" in done.stdout
    assert "confirming pair 20" in done.stderr
    case = ElementTree.parse(folder / "junit.xml").getroot().find(".//testcase/failure")
    assert case is not None
    (cell,) = json.loads((folder / "report.json").read_text())["cells"]
    assert cell["verdict"] == "REGRESSION"
    assert 5 < cell["ratio"] < 100
    assert "REGRESSION" in (folder / "report.md").read_text()
    # The stored run tells the same again.
    again = run(folder, "compare", "latest")
    assert again.returncode == 0
    assert "REGRESSION" in again.stdout


def test_an_improvement_fails_nothing(folder) -> None:
    done = run(folder, "gate", "nightly.toml", *FASTER, "--threads", "1")
    agrees(done)
    assert done.returncode in (0, 6), done.stderr
    assert "improvement" in done.stdout.lower()


def test_a_candidate_that_breaks_is_told_from_one_that_is_slow(folder) -> None:
    done = run(folder, "gate", "nightly.toml", "--candidate-env", "DLBENCH_EXTRA_PRODUCTS=nonsense")
    assert done.returncode == 5, done.stdout
    assert "DLBENCH_EXTRA_PRODUCTS" in done.stdout


def test_a_gate_that_was_killed_goes_on(folder) -> None:
    words = ["gate", "nightly.toml", *SLOWER, "--threads", "1"]
    with running_command(folder, *words) as child:
        wait_until(lambda: (folder / "dlbench.sqlite").exists() and len(records_in(folder)) > 4, "records")
        os.kill(child.pid, signal.SIGKILL)
    before = len(records_in(folder))
    other = run(folder, "gate", "nightly.toml", "--same", "--resume", "--threads", "1")
    assert other.returncode == 2
    assert "The unfinished run's candidate was" in other.stderr
    done = run(folder, *words, "--resume")
    assert done.returncode == 1, done.stderr
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        (stored,) = store.runs()
    assert stored.finished is not None
    assert stored.purpose == "gate"
    firsts = [(each.stage, each.launch, each.side) for each in records_in(folder) if each.attempt == 0]
    assert len(firsts) == len(set(firsts)), "what was measured was measured again"
    assert len(records_in(folder)) > before
    nothing = run(folder, *words, "--resume")
    assert nothing.returncode == 2
    assert "no unfinished gate" in nothing.stderr


def records_in(folder, name="dlbench.sqlite"):
    try:
        with Store.open(folder / name, create=False) as store:
            return store.records()
    except Exception:
        return []


def test_neighbours_that_take_the_cpus_are_blamed_and_no_code_is(folder) -> None:
    (folder / "nightly.toml").write_text(SUITE.replace("0.001", "0.02").replace("steps = 5", "steps = 20"))
    burn = "while True: pass"
    cpus = len(os.sched_getaffinity(0))
    neighbours = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2 * cpus)]
    try:
        done = run(folder, "gate", "nightly.toml", "--same", "--threads", "1", "--json")
    finally:
        for each in neighbours:
            each.kill()
            each.wait()
    assert done.returncode == 6, done.stderr
    told = json.loads(done.stdout)
    assert told["cells"][0]["verdict"] == "CONTENDED"
    assert told["gate"]["outcome"] == "undecided"
    assert "gate undecided: of 1 cell 1 disturbed by other programs" in done.stderr


@pytest.mark.parametrize(("words", "code"), [([], 6), (["--undecided", "pass"], 0)])
def test_a_budget_ends_a_gate_without_an_alarm_and_without_a_pass(folder, words, code) -> None:
    done = run(folder, "gate", "nightly.toml", *SLOWER, "--budget", "1s", *words)
    assert done.returncode == code, done.stderr
    assert "gate undecided: of 2 cells " in " ".join(done.stdout.split())
    assert "The budget is spent" in done.stderr
    assert "REGRESSION" not in done.stdout.split("inconclusive")[0] or "inconclusive" in done.stdout


def test_two_stored_runs_are_compared_with_the_warning_that_they_were_not_side_by_side(folder) -> None:
    for _ in range(2):
        assert run(folder, "run", "nightly.toml", "--launches", "4").returncode == 0
    done = run(folder, "compare", "previous", "latest")
    assert done.returncode == 0, done.stderr
    assert "different sessions" in done.stdout
    assert "--now" in done.stdout
    as_json = json.loads(run(folder, "compare", "previous", "latest", "--json").stdout)
    assert len(as_json["cells"]) == 2


def test_one_launch_is_too_few_and_says_so(folder) -> None:
    for _ in range(2):
        assert run(folder, "run", "nightly.toml", "--launches", "1").returncode == 0
    done = run(folder, "compare", "previous", "latest")
    assert done.returncode == 0
    assert "too few launches" in done.stdout


def test_different_machines_are_compared_and_never_judged(folder) -> None:
    for store in ("here.sqlite", "there.sqlite"):
        assert run(folder, "run", "nightly.toml", "--launches", "3", "--store", store).returncode == 0
    with sqlite3.connect(folder / "there.sqlite") as connection:
        for table, column in (("runs", "content"), ("records", "content")):
            connection.execute(f"UPDATE {table} SET machine = 'elsewhere'")
            for key, content in connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                changed = {**json.loads(content), "machine": "elsewhere"}
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (json.dumps(changed), key))
    done = run(folder, "compare", "here.sqlite", "there.sqlite", "--json")
    assert done.returncode == 0, done.stderr
    assert {cell["verdict"] for cell in json.loads(done.stdout)["cells"]} == {"COMPARISON"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["compare"], "Name two runs"),
        (["compare", "latest", "previous"], "no store|No such|no result store|There is no store"),
        (["compare", "--now"], "Both sides are the same"),
        (["compare", "--now", "a", "--same"], "leave the names of stored runs out"),
        (["compare", "--now", "--same", "--pairs", "x"], "cannot be read"),
        (["compare", "--now", "--same", "--interval", "0%"], "out of range"),
        (["gate", "nightly.toml"], "Both sides are the same"),
        (["gate", "nightly.toml", "--same", "--threshold", "200%"], "out of range"),
        (["gate", "nightly.toml", "--same", "--write", "report.exe"], "must end in"),
        (["gate", "nightly.toml", "--same", "--format", "tape"], "no format named"),
        (["gate", "nightly.toml", "--baseline", "null=/nowhere/python"], "not a Python interpreter"),
        (["gate", "nightly.toml", "--baseline-adapters", "no-such-revision"], "no revision"),
        (["gate", "no-such-suite", "--same"], "no suite named"),
        (["gate", "nightly.toml", "--baseline", f"torch={sys.executable}"], "not a row here"),
        (["gate", "nightly.toml", "--same", "--write", "nowhere/report.md"], "cannot be written"),
        (["compare", "a", "b", "--networks", "fcn5"], "go with --now"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, words, complaint) -> None:
    done = run(folder, *words)
    assert done.returncode in (2, 3, 4), done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dlbench: ")]
    assert "Traceback" not in done.stderr
    assert re.search(complaint, line), line
    assert not [path for path in folder.iterdir() if path.suffix in (".part", ".exe", ".md")]


def test_a_gate_that_measured_nothing_is_no_pass(folder) -> None:
    (folder / "nightly.toml").write_text(SUITE + 'fault = "unsupported"\n')
    done = run(folder, "gate", "nightly.toml", "--same", "--threads", "1")
    assert done.returncode == 6, done.stdout
    assert "gate undecided: no cell was measured on both sides" in done.stdout


def test_a_run_is_not_compared_with_itself_and_its_sides_are_exported(folder) -> None:
    agrees(run(folder, "gate", "nightly.toml", "--same", "--threads", "1"))
    done = run(folder, "compare", "latest", "dlbench.sqlite")
    assert done.returncode == 2
    assert "same run" in done.stderr
    exported = run(folder, "export")
    assert exported.returncode == 0, exported.stderr
    assert len(json.loads(exported.stdout)["benchmarks"]) == 2


def test_the_hint_after_an_interruption_can_be_typed_as_it_stands(folder) -> None:
    with running_command(folder, "gate", "nightly.toml", "--same", "--threads", "1", "--store", "my.sqlite") as child:
        wait_until(lambda: len(records_in(folder, "my.sqlite")) > 1, "records")
        os.kill(child.pid, signal.SIGINT)
        _, errors = child.communicate()
    (hint,) = re.findall(r"go on with: .*?(gate .*)", errors)
    assert shlex.split(hint) == ["gate", "nightly.toml", "--same", "--threads", "1", "--store", "my.sqlite", "--resume"]
    agrees(run(folder, *shlex.split(hint)))


def test_nothing_in_common_is_said(folder) -> None:
    (folder / "other.toml").write_text(SUITE.replace('"nightly"', '"other"').replace("fcn5", "lstm32"))
    for name in ("nightly.toml", "other.toml"):
        assert run(folder, "run", name).returncode == 0
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        ids = [each.id for each in store.runs()]
    done = run(folder, "compare", *ids)
    assert done.returncode == 2
    assert "no cell in common" in done.stderr
    done = run(folder, "compare", ids[0])
    assert done.returncode == 2
    assert "one side only" in done.stderr
    assert run(folder, "compare", ids[0], "2026xyz").returncode == 2

"""The pytest plugin in sessions of its own: cells as benchmarks, missing cells as skips and
failures, verdicts."""

import ast
import json
import shutil
import subprocess
import sys

import pytest
from hostile import check_seen, write_hostile_adapter
from pytest_sessions import PLUGIN, SUITE, sessions_of

from dlbench.reports.pytest_benchmark import imported as files
from dlbench.reports.pytest_benchmark.imported import runs_of
from dlbench.reports.results.storage.store import Store

pytest_plugins = ["pytester"]

HEAVY = {"numpy", "pandas", "pydantic", "rich", "scipy", "sqlalchemy", "typer"}
FAST, SLOW = "dlbench[fcn5-b64-null-null-cpu-2]", "dlbench[fcn5-b64-null-null-cpu-1]"
# Launches that were made up: verdicts must not depend on other programs. Reading a file of them
# checks that replaying two steps a sample gave the times that were recorded.
MADE_UP = """
from dlbench.adapters.protocol import Answer, Status
from dlbench.reports.results.outcome import LaunchVerdict
from dlbench.suites.run import runner
from dlbench.suites.run.launcher import Launched

class MadeUp:
    made = 0

    def __call__(self, order, tick):
        MadeUp.made += 1
        seconds = order.launch.settings["step_seconds"] / order.launch.cell.threads
        samples = [round(2 * seconds * 1e9 * (1 + 0.001 * (MadeUp.made % 3))) for _ in range(5)]
        answer = Answer(Status.OK, samples_ns=samples, steps_per_sample=2)
        return Launched(LaunchVerdict(Status.OK), 0.1, answer)

runner.launch_process = MadeUp()
"""


@pytest.fixture
def session(pytester, monkeypatch, tmp_path):
    return sessions_of(pytester, monkeypatch, tmp_path)


def test_the_plugin_loads_nothing_heavy_until_it_is_used():
    code = (
        f"import sys, pytest; before = set(sys.modules); import {PLUGIN}; "
        "print(sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    roots = {name.partition(".")[0] for name in ast.literal_eval(loaded)}
    assert not roots & HEAVY
    assert len(ast.literal_eval(loaded)) < 40


def test_a_session_of_others_is_left_alone(session, pytester):
    pytester.makepyfile("def test_theirs(): pass\ndef test_cells(dlbench_cell): pass")
    for benchmark in (True, False):
        session("-W", "error", suite=None, benchmark=benchmark).assert_outcomes(passed=1, skipped=1)


def test_without_pytest_benchmark_it_says_what_is_missing(session):
    result = session(suite="quick", benchmark=False)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*needs pytest-benchmark. Install it: pip install pytest-benchmark*"]
    )


@pytest.mark.slow
def test_a_file_holds_the_samples_to_the_nanosecond_and_comes_back_as_the_run(session, pytester):
    session("--benchmark-json", "out.json", "--dlbench-store", "s.sqlite").assert_outcomes(passed=2)
    with Store.open("s.sqlite", create=False) as store:
        (run,) = store.runs()
        records = store.records()
    content = json.loads(pytester.path.joinpath("out.json").read_text())
    assert [record["fullname"] for record in content["benchmarks"]] == [
        f"dlbench::{SLOW}",
        f"dlbench::{FAST}",
    ]
    for benchmark in content["benchmarks"]:
        threads = benchmark["extra_info"]["dlbench"]["cell"]["threads"]
        own = [record for record in records if record.cell.threads == threads]
        expected = []
        for record in sorted(own, key=lambda record: record.launch):
            expected += [ns * 1e-9 for ns in record.outcome.samples_ns]
        assert len(expected) == 6
        assert benchmark["stats"]["data"] == pytest.approx(expected, rel=1e-9)
        assert benchmark["group"] == "fcn5, mini-batch 64"
    assert content["machine_info"]["dlbench"]["fingerprint"] == run.machine
    assert content["machine_info"]["python_implementation"] == "CPython"
    assert content["commit_info"]["dlbench"]["run"] == run.id
    assert "branch" in content["commit_info"]
    (imported,) = runs_of([files.read("out.json")], "9.9")
    assert imported.run == run
    assert {repr(record) for record in imported.records} == {repr(record) for record in records}


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("crash", "failed", "crashed: ended by signal 11 (SIGSEGV)"),
        (
            "unsupported",
            "skipped",
            "unsupported: the null framework was set not to support this cell",
        ),
    ],
)
def test_a_hole_is_a_skip_or_a_failure_with_its_reason(session, pytester, fault, kind, message):
    pytester.path.joinpath("mine.toml").write_text(SUITE + f'fault = "{fault}"\n')
    words = "--dlbench-launches", "1", "--dlbench-threads", "1"
    result = session("-rfEs", "-W", "error", *words)
    result.assert_outcomes(**{kind: 1})
    text = " ".join(result.stdout.str().split())
    assert message in text
    assert "Traceback" not in text


def test_tests_of_ones_own_are_run_over_the_cells(session, pytester):
    pytester.makepyfile(
        """
        import pytest

        def test_other(): pass

        @pytest.mark.benchmark(group="mine")
        def test_step(dlbench_cell, benchmark):
            dlbench_cell.replay(benchmark)

        def test_numbers(dlbench_cell):
            assert len(dlbench_cell.samples) == 6
            assert len(dlbench_cell.launch_medians) == 2
            assert min(dlbench_cell.launch_medians) > 1e-4

        def test_real_time(dlbench_cell, benchmark):
            benchmark(lambda: None)
        """
    )
    result = session("--benchmark-json", "out.json", "--benchmark-max-time", "0.01")
    result.assert_outcomes(passed=7)
    by_name = {
        benchmark["name"]: benchmark
        for benchmark in json.loads(pytester.path.joinpath("out.json").read_text())["benchmarks"]
    }
    assert set(by_name) == {
        f"test_{test_name}[fcn5-b64-null-null-cpu-{n}]"
        for test_name in ("step", "real_time")
        for n in (1, 2)
    }
    assert by_name["test_step[fcn5-b64-null-null-cpu-1]"]["group"] == "mine"
    assert 0 < by_name["test_real_time[fcn5-b64-null-null-cpu-1]"]["stats"]["median"] < 1e-4


def test_only_what_was_chosen_is_measured(session):
    session("-k", "cpu-2", "--dlbench-store", "s.sqlite").assert_outcomes(passed=1, deselected=1)
    with Store.open("s.sqlite", create=False) as store:
        assert {record.cell.threads for record in store.records()} == {2}
        assert store.runs()[0].finished is not None


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--dlbench-suite", "quik"], "no suite named 'quik'. Did you mean 'quick'?"),
        (
            ["--dlbench-baseline", "none.sqlite"],
            "no result store none.sqlite. Measure first (`dlbench run quick`), or name "
            "another: --dlbench-baseline FILE",
        ),
        (["--dlbench-python", "null"], "--dlbench-python 'null' cannot be read"),
    ],
)
def test_wrong_options_of_pytest_are_refused_in_one_line(session, words, part):
    result = session(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR")]
    assert part in line


@pytest.mark.slow
def test_tests_spread_over_processes_are_refused(session, pytester):
    session("--dist", "no", "--dlbench-threads", "1", "--dlbench-launches", "1").assert_outcomes(
        passed=1
    )
    result = session("--dist", "load")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*run it without pytest-xdist (-n 0)*"])


OWN_STEP = """
def prepare(cell):
    losses = iter(1.0 / n for n in range(1, 1000))
    state = {"examples": cell.batch_size}

    def step():
        state["loss"] = next(losses)
        sum(range(100_000))

    return step, lambda: state["loss"]
"""


def test_a_step_of_ones_own_is_a_benchmark(session, pytester):
    pytester.path.joinpath("train_step.py").write_text(OWN_STEP)
    # Where an existing path is a word of its own, pytest looks for its root folder there.
    words = (
        "--dlbench-step=train_step.py",
        f"--dlbench-python={sys.executable}",
        "--dlbench-loss-tolerance=1%",
    )
    result = session(
        *words,
        "-v",
        "--dlbench-no-wait-for-quiet",
        "--dlbench-threads",
        "1",
        "--dlbench-batch-sizes",
        "8",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["dlbench::dlbench[[]train_step-*-b8-train_step-file-cpu-1[]] PASSED*"]
    )


def test_launches_of_a_session_get_environment_variables(session, tmp_path):
    words = (
        "--dlbench-no-wait-for-quiet",
        "--dlbench-threads",
        "1",
        "--dlbench-store",
        str(tmp_path / "s.sqlite"),
    )
    session(*words, "--dlbench-env", "A=1", "--dlbench-env=B=2").assert_outcomes(passed=1)
    with Store.open(tmp_path / "s.sqlite", create=False) as store:
        assert {tuple(record.variables.items()) for record in store.records()} == {
            (("A", "1"), ("B", "2"))
        }
    result = session(*words, "--dlbench-env", "NOT_SET_ANYWHERE")
    assert "--dlbench-env NOT_SET_ANYWHERE: NOT_SET_ANYWHERE is not set in this shell" in str(
        result.stderr
    )


@pytest.mark.slow
def test_neither_names_nor_reasons_do_anything(session, tmp_path):
    word = write_hostile_adapter(tmp_path / "adapter")
    store, file = str(tmp_path / "s.sqlite"), str(tmp_path / "out.json")
    words = "-rs", "-v", "--dlbench-adapter", word
    for further in (
        ("--dlbench-store", store, "--benchmark-json", file),
        ("--dlbench-baseline", store),
    ):
        result = session(*words, *further, suite=str(tmp_path / "mine.toml"))
        result.assert_outcomes(passed=1, skipped=1)
        check_seen("\n".join((*result.outlines, *result.errlines)))
    assert r"INCONCLUSIVE  dlbench[fcn5-b64-mine-able\x1b[2J" in result.stdout.str()
    assert ": unsupported: " in result.stdout.str()
    assert len(json.loads((tmp_path / "out.json").read_text())["benchmarks"]) == 1


# Sessions with a baseline.


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tmp_path_factory.mktemp("saved") / "folder"


@pytest.fixture
def base(session, pytester, saved):
    """Save what the made-up launches of the suite give, as a file, in a store, and by
    --benchmark-save."""
    if not saved.exists():
        pytester.makeconftest(MADE_UP)
        words = (
            "--benchmark-json",
            "base.json",
            "--dlbench-store",
            "base.sqlite",
            "--benchmark-save",
            "base",
        )
        session(*words, "--dlbench-launches", "4").assert_outcomes(passed=2)
        shutil.copytree(pytester.path, saved)
    shutil.copytree(saved, pytester.path, dirs_exist_ok=True)


def slower(pytester, by):
    pytester.path.joinpath("slow.toml").write_text(SUITE.replace("0.002", str(0.002 * by)))
    return "slow.toml"


@pytest.mark.parametrize(
    ("words", "factor", "code", "verdict", "message", "ending"),
    [
        ("4 base.json", 1.25, 1, "REGRESSION", "2* % slower *", "failed"),
        pytest.param(
            "4 base.sqlite",
            1.25,
            1,
            "REGRESSION",
            "2* % slower *",
            "failed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "4 base.json", 0.75, 0, "IMPROVEMENT", "2* % faster *", "passed", marks=pytest.mark.slow
        ),
        pytest.param(
            *(
                "2 base.json",
                1.25,
                0,
                "INCONCLUSIVE",
                "2*% slower; too few launches: 2, and 3 *",
                "undecided",
            ),
            marks=pytest.mark.slow,
        ),
        (
            "2 base.json --dlbench-undecided=fail",
            1.0,
            6,
            "INCONCLUSIVE",
            "*too few launches: 2*",
            "undecided",
        ),
    ],
)
@pytest.mark.usefixtures("base")
def test_only_a_regression_fails_the_session(
    session, pytester, words, factor, code, verdict, message, ending
):
    launches, baseline, *more = words.split()
    options = "--dlbench-launches", launches, "--dlbench-baseline", baseline, *more
    result = session(*options, suite=slower(pytester, factor))
    assert result.ret == code
    hint = "Which operator got slower: `dlbench explain null/fcn5 --against RELEASE|PYTHON`."
    assert (hint in result.stdout.str()) == (verdict == "REGRESSION")
    result.assert_outcomes(passed=2)
    expected_lines = [f"{verdict}  dlbench*-cpu-{threads}?: {message}" for threads in (1, 2)]
    result.stdout.fnmatch_lines(
        [*expected_lines, f"2 {verdict}", f"verdict {ending}: *2 benchmarks*"]
    )


@pytest.mark.usefixtures("base")
def test_benchmark_compare_is_judged_where_the_ini_file_says_so(session, pytester):
    words = "--dlbench-launches", "4", "--benchmark-compare", "0001"
    slow = slower(pytester, 1.25)
    result = session(*words, suite=slow)
    assert result.ret == pytest.ExitCode.OK
    assert "REGRESSION" not in result.stdout.str()
    pytester.makeini("[pytest]\ndlbench_verdict = true\n")
    result = session(*words, suite=slow)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["2 REGRESSION"])


@pytest.mark.slow
def test_a_baseline_of_another_machine_gives_a_comparison(session, pytester):
    benchmark = {
        "name": "test_sum",
        "fullname": "test_mine.py::test_sum",
        "stats": {"median": 1e-9},
    }
    pytester.makepyfile(
        test_mine="def test_sum(benchmark): benchmark.pedantic(sum, args=([1],), rounds=5)"
    )
    content = {
        "benchmarks": [benchmark],
        "datetime": "2026-01-01T00:00:00",
        "version": "5.0.0",
        "machine_info": {},
    }
    pytester.path.joinpath("other.json").write_text(json.dumps(content))
    result = session("--dlbench-baseline", "other.json", suite=None)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["COMPARISON*; not measured on one known machine: a comparison*"])
    pytester.makepyfile(test_new="def test_new(benchmark): benchmark.pedantic(sum, args=([1],))")
    result = session("--dlbench-baseline", "other.json", "test_new.py", suite=None)
    result.stdout.fnmatch_lines(["no verdict: no benchmark of this session is in the baseline"])

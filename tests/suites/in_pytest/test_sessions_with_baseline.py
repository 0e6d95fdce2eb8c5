"""Sessions that are judged against a baseline."""

import json
import shutil

import pytest
from plugin_sessions import MADE_UP, SUITE

pytest_plugins = ["pytester"]


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(("undecided", "code"), [("pass", 0), ("fail", 6)])
@pytest.mark.slow
def test_a_session_says_when_it_decides_nothing(session, pytester, undecided, code):
    words = "--dlbench-launches", "2", "--dlbench-baseline", "base.json", "--dlbench-undecided", undecided
    found = session(*words, suite=slower(pytester, 1.0))
    assert found.ret == code
    found.stdout.fnmatch_lines(["verdict undecided: of 2 benchmarks 2 inconclusive"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tmp_path_factory.mktemp("saved") / "folder"


@pytest.fixture
def base(session, pytester, saved):
    """Save what the made-up launches of the suite give, as a file, in a store, and by --benchmark-save."""
    if not saved.exists():
        pytester.makeconftest(MADE_UP)
        words = "--benchmark-json", "base.json", "--dlbench-store", "base.sqlite", "--benchmark-save", "base"
        session(*words, "--dlbench-launches", "4").assert_outcomes(passed=2)
        shutil.copytree(pytester.path, saved)
    shutil.copytree(saved, pytester.path, dirs_exist_ok=True)


def slower(pytester, by):
    pytester.path.joinpath("slow.toml").write_text(SUITE.replace("0.002", str(0.002 * by)))
    return "slow.toml"


@pytest.mark.parametrize(
    ("baseline", "factor", "launches", "code", "said"),
    [
        ("base.json", 1.25, 4, pytest.ExitCode.TESTS_FAILED, "slower by +2*"),
        pytest.param("base.sqlite", 1.25, 4, pytest.ExitCode.TESTS_FAILED, "slower by +2*", marks=pytest.mark.slow),
        pytest.param("base.json", 0.75, 4, pytest.ExitCode.OK, "faster: -2*", marks=pytest.mark.slow),
        ("base.json", 1.25, 2, pytest.ExitCode.OK, "too few launches: 2, and 3 are needed on each side"),
    ],
)
@pytest.mark.usefixtures("base")
def test_only_a_regression_fails_the_session(session, pytester, baseline, factor, launches, code, said):
    words = "--dlbench-launches", str(launches), "--dlbench-baseline", baseline
    found = session(*words, suite=slower(pytester, factor))
    assert found.ret == code
    found.assert_outcomes(passed=2)
    verdict = {25: "REGRESSION", -25: "IMPROVEMENT"}[round(100 * factor - 100)] if launches > 2 else "INCONCLUSIVE"
    ending = {"REGRESSION": "failed", "IMPROVEMENT": "passed", "INCONCLUSIVE": "undecided"}[verdict]
    found.stdout.fnmatch_lines(
        [
            *[f"{verdict}  dlbench*-cpu-{threads}?: {said}" for threads in (1, 2)],
            f"2 {verdict}",
            f"verdict {ending}: *2 benchmarks*",
        ]
    )


@pytest.mark.usefixtures("base")
def test_benchmark_compare_is_judged_where_the_ini_file_says_so(session, pytester):
    words = "--dlbench-launches", "4", "--benchmark-compare", "0001"
    slow = slower(pytester, 1.25)
    found = session(*words, suite=slow)
    assert found.ret == pytest.ExitCode.OK
    assert "REGRESSION" not in found.stdout.str()
    pytester.makeini("[pytest]\ndlbench_verdict = true\n")
    found = session(*words, suite=slow)
    assert found.ret == pytest.ExitCode.TESTS_FAILED
    found.stdout.fnmatch_lines(["2 REGRESSION"])


def test_plain_benchmarks_are_judged_by_their_launches(session, pytester):
    pytester.makepyfile("def test_sum(benchmark): benchmark.pedantic(sum, args=(range(10000),), rounds=5)")
    session("--benchmark-json", "here.json", suite=None).assert_outcomes(passed=1)
    # Three files are three launches; this session is but one.
    found = session(*["--dlbench-baseline", "here.json"] * 3, suite=None)
    assert found.ret == pytest.ExitCode.OK
    found.stdout.fnmatch_lines(["INCONCLUSIVE*test_sum: too few launches: 1, and 3 are needed on each side"])


@pytest.mark.slow
def test_a_baseline_of_another_machine_gives_a_comparison(session, pytester):
    benchmark = {"name": "test_sum", "fullname": "test_mine.py::test_sum", "stats": {"median": 1e-9}}
    pytester.makepyfile(test_mine="def test_sum(benchmark): benchmark.pedantic(sum, args=([1],), rounds=5)")
    told = {"benchmarks": [benchmark], "datetime": "2026-01-01T00:00:00", "version": "5.0.0", "machine_info": {}}
    pytester.path.joinpath("other.json").write_text(json.dumps(told))
    found = session("--dlbench-baseline", "other.json", suite=None)
    assert found.ret == pytest.ExitCode.OK
    found.stdout.fnmatch_lines(["COMPARISON*%; different machines: a comparison*"])
    pytester.makepyfile(test_new="def test_new(benchmark): benchmark.pedantic(sum, args=([1],))")
    found = session("--dlbench-baseline", "other.json", "test_new.py", suite=None)
    found.stdout.fnmatch_lines(["No benchmark of this session is in the baseline."])

"""A session's own benchmarks in several fresh processes: saved as a baseline, judged against it,
and what can go wrong.

The benchmarks read a clock of their own, so that verdicts do not depend on other programs: seconds
of a step are in a file, and processes differ by a thousandth.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
from processes import wait_until
from pytest_sessions import ARGUMENTS, sessions_of

from dlbench.adapters.protocol import profile_from_dict
from dlbench.reports.pytest_benchmark.imported import BenchmarkFileError, read, runs_of
from dlbench.reports.results.verdict import DEFAULT, Verdict
from dlbench.suites.in_pytest.judging import Baselines, MeasuredBenchmark, PlainLaunch, judge_all
from dlbench.suites.in_pytest.operators import difference_of
from dlbench.suites.in_pytest.process import Order, ProcessOutcome, wrong_code
from dlbench.suites.in_pytest.processes import ProfiledPair
from dlbench.suites.run import quiet

pytest_plugins = ["pytester"]

CLOCK = """
import random
from pathlib import Path

PLACE = Path(__file__).parent
DEVIATION = 1 + 0.001 * random.SystemRandom().random()  # of this process

class Clock:
    __name__ = "clock"
    now = 0.0

    def __call__(self):
        return Clock.now

def step():
    Clock.now += float((PLACE / "seconds.txt").read_text()) * DEVIATION

clock = Clock()
"""
BENCHMARK = """
import os, sys
import pytest
from clock import PLACE, clock, step

@pytest.mark.benchmark(timer=clock)
def test_{name}(benchmark):
    benchmark.pedantic(step, rounds=3)
    with (PLACE / "log.txt").open("a") as log:
        print("{name}", os.getpid(), sys.flags.optimize, file=log)
    {then}
"""


QUIET = """
# Beside other tests the machine is busy.
from dlbench.suites.in_pytest import processes

processes.CpuUse.of_others_since = lambda now, before: 0.0
"""


@pytest.fixture
def session(pytester, monkeypatch, tmp_path):
    return sessions_of(pytester, monkeypatch, tmp_path)


@pytest.fixture
def project(pytester):
    """A project with two benchmarks of one name in two files, and a test that is none."""
    pytester.path.joinpath("pytest.ini").write_text("[pytest]\npythonpath = .\n")
    pytester.path.joinpath("clock.py").write_text(CLOCK)
    pytester.path.joinpath("seconds.txt").write_text("0.1")
    pytester.path.joinpath("conftest.py").write_text(QUIET)
    write(pytester.path, "test_a.py", "sum")
    write(pytester.path, "test_b.py", "sum")
    plain = (
        "from clock import PLACE\n\ndef test_plain(): (PLACE / 'log.txt').open('a').write('plain 0 "
        "0\\n')\n"
    )
    pytester.path.joinpath("test_plain.py").write_text(plain)
    return pytester.path


def write(project, file, name, then=""):
    project.joinpath(file).write_text(BENCHMARK.format(name=name, then=then))


def calls(project):
    """Return the names and process numbers of the tests that ran."""
    words = [line.split() for line in (project / "log.txt").read_text().splitlines()]
    return [(name, int(process)) for name, process, _ in words]


def plain(session, *words, **further):
    """Run a session that measures no suite."""
    return session(*words, suite=None, **further)


@pytest.fixture
def saved(session, project):
    """A baseline of three processes."""
    result = plain(session, "--dlbench-processes", "3", "--dlbench-save", "base.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines([
        "dlbench: process 1 of 3",
        "dlbench: process 2 of 3, about * s left",
        "dlbench: process 3 of 3, about * s left",
        "saved 2 benchmarks of 3 processes in */base.json",
    ])  # fmt: skip
    return project / "base.json"


@pytest.mark.parametrize(
    ("seconds", "code", "verdict", "ending"),
    [
        ("0.125", 1, "REGRESSION", "failed: 2 of 4 comparisons are worse than the baseline"),
        ("0.1", 6, "INCONCLUSIVE", "*"),
    ],
)
def test_one_command_saves_a_baseline_and_one_gives_a_verdict(
    session, project, saved, seconds, code, verdict, ending
):
    (project / "log.txt").unlink()
    (project / "seconds.txt").write_text(seconds)
    words = "--dlbench-processes", "3", "--dlbench-baseline=base.json", "--dlbench-undecided=fail"
    result = plain(session, *words, "--dlbench-judge=time,memory=50%")
    assert result.ret == code
    result.assert_outcomes(passed=3)
    # Two files with a test of one name are two benchmarks.
    result.stdout.fnmatch_lines(
        [f"{verdict}*  test_a.py::test_sum: *", f"{verdict}*  test_b.py::test_sum: *"]
    )
    memory = "NO_REGRESSION*  test_a.py::test_sum, peak memory: *a rise of 100 % is excluded"
    result.stdout.fnmatch_lines([memory])
    result.stdout.fnmatch_lines([f"*2 {verdict}*", f"verdict {ending}"])
    ran = calls(project)
    assert [name for name, _ in ran].count("plain") == 1
    processes = {process for name, process in ran if name == "sum"}
    assert len(processes) == 4  # the session, and the three that count
    assert len([name for name, _ in ran if name == "sum"]) == 8


@pytest.mark.parametrize(("disturbed", "code"), [(1, 0), (2, 1)])
def test_a_baseline_has_the_undisturbed_processes_and_needs_most_of_them(
    session, project, disturbed, code
):
    shares = [0.9] * disturbed + [0.0] * 3
    (project / "conftest.py").write_text(
        "from dlbench.suites.in_pytest import processes\n"
        f"shares = {shares}\n"
        "processes.CpuUse.of_others_since = lambda now, before: shares.pop(0)\n"
    )
    result = plain(session, "--dlbench-processes", "3", "--dlbench-save", "base.json")
    assert result.ret == code
    assert (project / "base.json").exists() is (code == 0)
    lines = {
        0: "saved 2 benchmarks of 2 processes in */base.json",
        1: "not saved: other programs disturbed 2 of 3 processes",
    }
    result.stdout.fnmatch_lines([lines[code]])


def test_processes_wait_for_another_dlbench_that_measures(session, project, tmp_path):
    descriptor = os.open(tmp_path / "temporary" / quiet._NAME, os.O_CREAT | os.O_RDONLY, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    release = threading.Timer(3.0, os.close, [descriptor])
    release.start()
    begun = time.monotonic()
    result = plain(session, "--dlbench-processes", "2", "--dlbench-save", "base.json")
    assert result.ret == 0
    assert time.monotonic() - begun >= 3.0
    result.stdout.fnmatch_lines(
        ["*is measuring on this machine; waiting for it to end", "dlbench: process 1 of 2"]
    )


def test_a_process_beside_other_programs_does_not_count(session, project, saved):
    """Else an editor's search beside the candidate would be a regression of every benchmark."""
    (project / "conftest.py").write_text("")
    (project / "seconds.txt").write_text("0.125")
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        words = (
            "--dlbench-processes",
            "3",
            "--dlbench-baseline=base.json",
            "--dlbench-undecided=fail",
        )
        result = plain(session, *words)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert result.ret == 6
    result.stdout.fnmatch_lines([
        (
            "Other programs used up to * of the CPUs during 3 of 3 processes, whose times do not "
            "count. *"
        ),
        "CONTENDED  test_a.py::test_sum: other programs interfered with 3 of 6 launches; *",
        "verdict undecided: *",
    ])  # fmt: skip


def test_a_file_of_several_processes_is_an_ordinary_file_and_a_run_of_several_launches(saved):
    content = json.loads(saved.read_text())
    assert [len(benchmark["stats"]["data"]) for benchmark in content["benchmarks"]] == [9, 9]
    assert [benchmark["stats"]["rounds"] for benchmark in content["benchmarks"]] == [9, 9]
    assert content["benchmarks"][0]["stats"]["median"] == pytest.approx(0.1, rel=0.002)
    (imported,) = runs_of([read(saved)], "9.9")
    assert imported.run.launches == 3
    by_cell = {}
    for record in imported.records:
        by_cell.setdefault(record.cell.network, []).append(
            (record.launch, len(record.outcome.samples_ns))
        )
    launches = [(0, 3), (1, 3), (2, 3)]
    assert by_cell == {"test_a.py::test_sum": launches, "test_b.py::test_sum": launches}
    for record in imported.records:
        assert record.outcome.peak_memory_bytes > 2**20
        assert record.outcome.import_seconds > 0
        assert record.outcome.first_step_seconds == pytest.approx(0.1, rel=0.002)
    content["benchmarks"][0]["stats"]["data"].pop()
    saved.write_text(json.dumps(content))
    with pytest.raises(
        BenchmarkFileError,
        match=r"the samples of test_a.py::test_sum are not those of its processes",
    ):
        runs_of([read(saved)], "9.9")


def test_one_session_shows_the_ratio_and_how_to_get_a_verdict(session, project, saved):
    (project / "seconds.txt").write_text("0.3")
    result = plain(session, "--dlbench-baseline", "base.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines([
        (
            "INCONCLUSIVE  test_a.py::test_sum: [23].[0-9][0-9] times as long; too few launches: "
            "1, and 3 *"
        ),
        "2 INCONCLUSIVE",
        "1 process on this side: no verdict; `--dlbench-processes 5` measures enough.",
    ])  # fmt: skip


def test_copies_of_a_file_are_one_process(session, project):
    plain(session, "--benchmark-json", "here.json")
    (project / "copy.json").write_text(json.dumps(json.loads((project / "here.json").read_text())))
    result = plain(session, "--dlbench-baseline=here.json", "--dlbench-baseline=copy.json")
    result.stdout.fnmatch_lines([
        "copy.json repeats measurements of an earlier file; they count once.",
        (
            "1 process in the baseline: no verdict; `--dlbench-processes 5 --dlbench-save=FILE` "
            "saves enough."
        ),
    ])  # fmt: skip


@pytest.mark.slow
def test_a_folder_of_files_is_a_baseline(session, project):
    (project / "saved").mkdir()
    for number in range(2):
        plain(session, "--benchmark-json", f"saved/{number}.json")
    result = plain(session, "--dlbench-baseline=saved")
    result.stdout.fnmatch_lines(["2 processes in the baseline: no verdict; *"])


def test_new_and_missing_benchmarks_are_named(session, pytester, project, saved):
    write(pytester.path, "test_a.py", "total")
    result = plain(session, "--dlbench-baseline=base.json")
    result.stdout.fnmatch_lines([
        "1 INCONCLUSIVE",
        "Not in the baseline (new or renamed): test_a.py::test_total",
        "In the baseline, not measured now (removed, renamed or failed): test_a.py::test_sum",
    ])  # fmt: skip
    # A part of the tests that was asked for is no loss.
    for words in (["test_b.py"], ["-k", "test_b.py"], ["test_b.py::test_sum"]):
        result = plain(session, "--dlbench-baseline=base.json", *words)
        result.stdout.fnmatch_lines(["1 INCONCLUSIVE"])
        if words[0] != "-k":
            assert "not measured now" not in result.stdout.str()


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["--collect-only"], None, 0),
        (["--setup-plan"], None, 0),
        (["--benchmark-disable"], "with --benchmark-disable nothing is measured", 6),
        (["--benchmark-skip"], "--benchmark-skip leaves out every benchmark", 6),
        (["test_plain.py"], "no benchmark was measured in this session", 6),
        (
            ["-n", "1"],
            "with pytest-xdist pytest-benchmark measures nothing. Leave it out (-n 0), or *",
            6,
        ),
        (["-k", "nothing"], "no benchmark was measured in this session", 5),
    ],
)
def test_why_there_is_no_verdict(session, project, words, message, code):
    plain(session, "--benchmark-json", "base.json")
    (project / "log.txt").unlink()
    for processes in ([], ["--dlbench-processes", "2"]):
        if words[0] == "-n" and processes:
            continue
        result = plain(
            session, "--dlbench-baseline=base.json", "--dlbench-undecided=fail", *words, *processes
        )
        assert result.ret == code
        assert "dlbench: process" not in result.stdout.str()
        if message is None:
            assert "dlbench verdicts" not in result.stdout.str()
        else:
            result.stdout.fnmatch_lines([f"no verdict: {message}"])


@pytest.mark.slow
def test_beside_xdist_processes_measure_one_after_another(session, project, saved):
    words = (
        "--dlbench-processes",
        "3",
        "--dlbench-baseline=base.json",
        "-n",
        "2",
        "--dist",
        "loadgroup",
    )
    result = plain(session, *words)
    result.stdout.fnmatch_lines(["dlbench: process 3 of 3*", "2 INCONCLUSIVE"])
    assert len(calls(project)) == 9 + 3 + 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty. Save the baseline again, or name another file."),
        ('{"machine_info": {"no', "cannot be read as a file of pytest-benchmark: it is not JSON"),
        (
            '{"benchmarks": [], "datetime": "2026-01-01T00:00:00", "version": "5.0.0"}',
            "holds no benchmark. Save the baseline again, or name another file.",
        ),
    ],
)
def test_a_baseline_without_benchmarks_is_refused_before_anything_runs(
    session, project, content, message
):
    (project / "base.json").write_text(content)
    result = plain(session, "--dlbench-baseline", "base.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR")]
    assert f"base.json {message}" in line
    assert not (project / "log.txt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dlbench-processes", "3"], "--dlbench-processes needs a baseline or a file to save"),
        (
            ["--dlbench-processes", "no"],
            "--dlbench-processes is 'no'; it takes a number, such as 5.",
        ),
        (["--dlbench-processes", "0", "--dlbench-save=x.json"], "--dlbench-processes is '0'"),
        (
            ["--dlbench-save=x.json"],
            "--dlbench-save keeps several processes: add --dlbench-processes 5.",
        ),
        (["--dlbench-processes=3", "--dlbench-save=no/x.json"], "there is no folder"),
        (["--dlbench-processes=3", "--dlbench-save=."], "is a folder"),
        (["--dlbench-processes=3", "--dlbench-suite=mine.toml"], "write --dlbench-launches"),
        (["--dlbench-process=x"], "--dlbench-process is for dlbench alone"),
    ],
)
def test_options_that_do_not_fit_are_one_line(session, project, words, message):
    result = plain(session, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR")]
    assert message in line


@pytest.mark.slow
def test_another_root_folder_of_pytest_is_seen(session, pytester):
    # Without an ini file the root folder is what all paths on the command line have in common.
    (pytester.path / "inner").mkdir()
    (pytester.path / "inner" / "clock.py").write_text(CLOCK)
    (pytester.path / "inner" / "seconds.txt").write_text("0.1")
    write(pytester.path, "inner/test_a.py", "sum")
    plain(session, "--benchmark-json", "../base.json", folder="inner")
    for words, lookup in (
        (["../base.json"], "under inner/"),
        (["../other.json"], "without inner/"),
    ):
        result = plain(
            session,
            "--dlbench-baseline",
            *words,
            "--benchmark-json",
            "../other.json",
            folder="inner",
        )
        if lookup.startswith("under"):
            result.stdout.fnmatch_lines(["INCONCLUSIVE  inner/test_a.py::test_sum: *"])
            result.stdout.fnmatch_lines(
                [f"pytest's root folder is not that of the baseline*looked up {lookup}. *"]
            )
    result = plain(session, "--dlbench-baseline=../other.json", folder="inner")
    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE  test_a.py::test_sum: *", "*looked up without inner/. *"]
    )


def test_what_fails_in_a_process_is_named_and_fails_the_session(session, pytester, project):
    then = "assert len((PLACE / 'log.txt').read_text().split('sum')) != 4, 'the second process'"
    write(pytester.path, "test_a.py", "sum", then)
    (project / "test_b.py").unlink()
    result = plain(session, "--dlbench-processes", "3", "--dlbench-save=base.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["FAILED in process 2 of 3: test_a.py::test_sum: AssertionError: the second process"]
    )
    result.stdout.fnmatch_lines(["saved 1 benchmark of 3 processes in *"])


def test_a_process_that_crashes_is_named_with_its_last_words(session, pytester, project):
    then = "if len((PLACE / 'log.txt').read_text().split('sum')) == 4: os.kill(os.getpid(), 9)"
    write(pytester.path, "test_a.py", "sum", then)
    (project / "test_b.py").unlink()
    result = plain(session, "--dlbench-processes", "3", "--dlbench-save=base.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([
        (
            "FAILED in process 2 of 3: test_a.py::test_sum: the process ended by SIGKILL before it "
            "reported"
        ),
        "    *test session starts*",
        "saved 1 benchmark of 2 processes in *",
    ])  # fmt: skip


@pytest.mark.slow
def test_tests_that_failed_in_the_session_are_not_run_again(session, pytester, project):
    write(pytester.path, "test_a.py", "sum", "assert 0")
    result = plain(session, "--dlbench-processes", "2", "--dlbench-save=base.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [benchmark.fullname for benchmark in read(project / "base.json").benchmarks] == [
        "test_b.py::test_sum"
    ]
    assert len(calls(project)) == 1 + 2 + 2


def test_a_session_that_stops_starts_no_process(session, pytester, project):
    write(pytester.path, "test_b.py", "sum", "assert 0")
    result = plain(session, "-x", "--dlbench-processes", "3", "--dlbench-save=base.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "dlbench: process" not in result.stdout.str()
    result.stdout.fnmatch_lines(["not saved: the session stopped before its processes began"])


def test_files_of_the_session_are_written_once(session, project):
    words = "--benchmark-json=a.json", "--benchmark-save=kept", "--junitxml=junit.xml", "-k", "sum"
    plain(session, *words, "--dlbench-processes", "2", "--dlbench-save=base.json").assert_outcomes(
        passed=2, deselected=1
    )
    assert len(json.loads((project / "a.json").read_text())["benchmarks"][0]["stats"]["data"]) == 3
    assert len(list(project.glob(".benchmarks/*/*.json"))) == 1
    assert (project / "junit.xml").read_text().count("<testcase") == 2
    assert "plain" not in (project / "log.txt").read_text()


@pytest.mark.slow
def test_the_ini_file_may_name_the_number(session, project, saved):
    (project / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\ndlbench_processes = 3\ndlbench_verdict = true\n"
    )
    assert "dlbench verdicts" not in plain(session).stdout.str()  # nothing to judge
    result = plain(session, "--dlbench-baseline=base.json")
    result.stdout.fnmatch_lines(["dlbench: process 3 of 3*", "2 INCONCLUSIVE"])
    result = plain(session, "--benchmark-compare=base.json")
    result.stdout.fnmatch_lines(["dlbench: process 3 of 3*", "2 INCONCLUSIVE"])
    result = plain(session, "--dlbench-baseline=base.json", "--dlbench-processes=1")
    result.stdout.fnmatch_lines(["1 process on this side: *"])


def test_a_missing_comparison_is_said(session, project):
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\ndlbench_verdict = true\n")
    result = plain(session, "--benchmark-compare", "--dlbench-undecided=fail")
    assert result.ret == 6
    result.stdout.fnmatch_lines(["no verdict: --benchmark-compare found no file to compare with"])


def start(project, *words):
    command = sys.executable, "-m", "pytest", *ARGUMENTS, "--benchmark-quiet", *words
    return subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_session_that_is_ended_leaves_no_process(session, pytester, project, number):
    then = "if len((PLACE / 'log.txt').read_text().split('sum')) > 2: import time; time.sleep(3)"
    write(pytester.path, "test_a.py", "sum", then)
    running = start(
        project, "test_a.py", "test_b.py", "--dlbench-processes", "2", "--dlbench-save=base.json"
    )
    log = project / "log.txt"
    wait_until(lambda: log.exists() and len(calls(project)) > 2, "the first process")
    (child,) = psutil.Process(running.pid).children()
    running.send_signal(number)
    out, _ = running.communicate(timeout=60)
    wait_until(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
        "the end of the process",
    )
    assert len(calls(project)) == 3  # it did not come to the second test
    assert not (project / "base.json").exists()
    if number is signal.SIGINT:
        assert running.returncode == pytest.ExitCode.INTERRUPTED
        assert "KeyboardInterrupt" in out
        assert "not saved: the session was interrupted" in out
        assert "Traceback" not in out


def test_an_idle_session_loads_nothing_that_a_verdict_needs(project):
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\ndlbench_verdict = true\n")
    code = (
        "import sys, pytest; pytest.main(sys.argv[1:]); print('LOADED', *{n.partition('.')[0] for "
        "n in sys.modules})"
    )
    for words in ([], ["--dlbench-baseline=base.json", "--collect-only"]):
        command = sys.executable, "-c", code, *ARGUMENTS, "--benchmark-quiet", *words
        out = subprocess.run(
            command, cwd=project, capture_output=True, text=True, check=True
        ).stdout
        loaded = set(out.rpartition("LOADED")[2].split())
        assert "pytest_benchmark" in loaded
        assert not loaded & {"numpy", "pandas", "pydantic", "scipy", "sqlalchemy"}


def test_a_process_loads_nothing_that_a_verdict_needs(session, project):
    (project / "conftest.py").write_text(
        "import os, sys\nfrom clock import PLACE\n\ndef pytest_sessionfinish():\n"
        "    (PLACE / f'{os.getpid()}.loaded').write_text(' '.join(sys.modules))\n"
    )
    plain(session, "--dlbench-processes", "2", "--dlbench-save=base.json")
    loaded = [set(file.read_text().split()) for file in project.glob("*.loaded")]
    assert len(loaded) == 3
    assert (
        sum(not names & {"numpy", "pandas", "pydantic", "scipy", "sqlalchemy"} for names in loaded)
        == 2
    )


# Two checkouts that take turns.


@pytest.fixture
def baseline_checkout(project, tmp_path):
    """Another checkout of the project."""
    folder = tmp_path / "other"
    shutil.copytree(project, folder)
    return folder


def package(folder, seconds):
    """Let the benchmarks of a checkout read the seconds of a step from a package of it."""
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "__init__.py").write_text(f"SECONDS = {seconds}\n")
    clock = CLOCK.replace('float((PLACE / "seconds.txt").read_text())', "mine.SECONDS")
    (folder / "clock.py").write_text("import mine\n" + clock)


@pytest.mark.slow  # six processes of pytest; once it had no verdict on a busy machine
def test_two_checkouts_take_turns(session, project, baseline_checkout):
    (project / "seconds.txt").write_text("0.11")
    write(project, "test_b.py", "total")
    words = "--dlbench-processes", "3", f"--dlbench-baseline-checkout={baseline_checkout}"
    result = plain(session, *words, "--dlbench-no-profile")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([
        "dlbench: process 3 of 3 of each side, about *",
        "REGRESSION  test_a.py::test_sum: 1* % slower *",
        "Not in the baseline (new or renamed): test_b.py::test_total",
    ])  # fmt: skip
    assert len(calls(baseline_checkout)) == 3
    assert len(calls(project)) == 3 + 6


@pytest.mark.slow
def test_checkouts_that_do_not_differ_pass(session, project, baseline_checkout):
    # As no saved baseline can show: the machine may have changed since.
    package(project, 0.1)
    package(baseline_checkout, 0.1)
    words = (
        "--dlbench-processes",
        "3",
        f"--dlbench-baseline-checkout={baseline_checkout}",
        "--dlbench-undecided=fail",
    )
    result = plain(session, *words)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 NO_REGRESSION", "verdict passed: no slowdown in 2 benchmarks"])


def with_function(folder, seconds, numbers):
    """Let the benchmarks of a checkout call a function that adds so many numbers."""
    (folder / "seconds.txt").write_text(str(seconds))
    adding = f"\ndef add_numbers():\n    return sum(x for x in range({numbers}))\n"
    clock = CLOCK.replace("def step():\n", f"{adding}\ndef step():\n    add_numbers()\n")
    (folder / "clock.py").write_text(clock)


@pytest.mark.slow  # ten processes of pytest
def test_the_function_that_got_slower_is_named(session, project, baseline_checkout):
    with_function(project, 0.12, 60_000)
    with_function(baseline_checkout, 0.1, 20_000)
    words = "--dlbench-processes", "3", f"--dlbench-baseline-checkout={baseline_checkout}"
    result = plain(session, *words)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([
        "dlbench: profiling test_a.py::test_sum, test_b.py::test_sum, pair 2 of processes",
        "REGRESSION  test_a.py::test_sum: * slower *",
        "test_a.py::test_sum: *By Python's own: The difference lies in <genexpr> (clock.py:*",
    ])  # fmt: skip
    result = plain(session, *words, "--dlbench-no-profile")
    assert "profiling" not in result.stdout.str()
    assert "operator" not in result.stdout.str()


PROFILED_CALLS = """
import pytest

def double(number, plus=0):
    return 2 * number + plus

def test_call(benchmark):
    assert benchmark(double, 21, plus=1) == 43

def test_pedantic(benchmark):
    made = []
    def setup():
        made.append(1)
        return (len(made),), {}
    torn = []
    assert benchmark.pedantic(double, setup=setup, teardown=torn.append, rounds=2) == 2 * len(made)
    assert torn == list(range(1, len(made) + 1))

def test_statistics(benchmark):
    benchmark(double, 1)
    assert benchmark.stats["mean"] > 0

def test_without_call(benchmark):
    raise ValueError("no luck")
"""


def test_what_a_profiled_process_reports(pytester, tmp_path):
    pytester.makepyfile(test_calls=PROFILED_CALLS)
    names = ("call", "pedantic", "statistics", "without_call")
    tests = [f"test_calls.py::test_{name}" for name in names]
    order = Order(
        tests,
        os.getpid(),
        str(tmp_path / "outcome.json"),
        str(tmp_path / "running.txt"),
        profile=True,
    )
    order_file = tmp_path / "order.json"
    order_file.write_text(json.dumps(asdict(order)))
    command = sys.executable, "-m", "pytest", *ARGUMENTS, f"--dlbench-process={order_file}"
    subprocess.run(command, cwd=pytester.path, check=False, capture_output=True)
    outcome = ProcessOutcome(**json.loads((tmp_path / "outcome.json").read_text()))
    assert set(outcome.profiles) == set(tests[:3])
    # The third test reads times that a profile does not have; its profile counts all the same.
    assert set(outcome.failed) == set(tests[2:])
    for test in tests[:3]:
        profile = profile_from_dict(outcome.profiles[test])
        calls = {operator.name: operator.calls for operator in profile.operators}
        assert calls["double (the step's file)"] == 1
    pair = ProfiledPair(outcome, outcome)
    assert not difference_of(tests[0], [pair, pair]).named
    assert difference_of(tests[3], [pair]).sentence == (
        "No operator can be named: it failed in a profiled process of the baseline: ValueError: "
        "no luck."
    )
    assert (
        "no process of the candidate"
        in difference_of(tests[0], [ProfiledPair(outcome, ProcessOutcome())]).sentence
    )


def test_a_checkout_that_loads_the_code_of_the_other_is_seen(
    session, project, baseline_checkout, monkeypatch
):
    package(project, 0.1)
    package(baseline_checkout, 0.1)
    shutil.rmtree(
        baseline_checkout / "mine"
    )  # as if it lay in src, and the candidate's were installed
    monkeypatch.setenv("PYTHONPATH", str(project))
    result = plain(
        session, "--dlbench-processes", "3", f"--dlbench-baseline-checkout={baseline_checkout}"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([
        (
            f"FAILED in process 1 of 3 of the baseline: it loaded {project}/*, which is not its own "
            "code. Install each *"
        ),
        "no verdict: *",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--dlbench-baseline-checkout=.", "--dlbench-processes=3"],
            "is this folder. Name another checkout.",
        ),
        (["--dlbench-baseline-checkout=no", "--dlbench-processes=3"], "there is no such folder"),
        (["--dlbench-baseline-checkout", "..", "--dlbench-processes=3"], "with an equals sign"),
        (["--dlbench-baseline-checkout=.."], "goes with --dlbench-processes 5. Add it."),
        (
            ["--dlbench-baseline-checkout=..", "--dlbench-processes=3", "--dlbench-baseline=x"],
            "Choose one.",
        ),
        (["--dlbench-no-profile"], "goes with --dlbench-baseline-checkout=FOLDER. Leave it out"),
        (["--dlbench-baseline-python=x"], "goes with --dlbench-baseline-checkout=FOLDER. Add it."),
        (
            [
                "--dlbench-baseline-checkout=..",
                "--dlbench-processes=3",
                "--dlbench-baseline-python=x",
            ],
            "is no program",
        ),
    ],
)
def test_options_of_a_checkout_that_do_not_fit_are_one_line(session, project, words, message):
    result = plain(session, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR")]
    assert message in line


@pytest.mark.parametrize(
    ("own_checkout", "other_checkout", "shared", "file", "wrong"),
    [
        ("/pr", "/main", True, "/pr/mine/__init__.py", False),
        ("/pr", "/main", True, "/main/mine/__init__.py", True),
        ("/main/pr", "/main", True, "/main/pr/mine/__init__.py", False),
        ("/pr", "/pr/main", True, "/pr/main/mine/__init__.py", True),
        ("/pr", "/main", True, "/main/.venv/lib/site-packages/mine/__init__.py", False),
    ],
)
def test_whose_code_a_module_is(monkeypatch, own_checkout, other_checkout, shared, file, wrong):
    module = types.ModuleType("mine")
    module.__file__ = file
    monkeypatch.setattr(sys, "modules", {"mine": module})
    assert bool(wrong_code(Path(own_checkout), Path(other_checkout), shared)) is wrong


@pytest.mark.parametrize("shared", [True, False])
def test_code_of_a_checkout_that_is_installed_is_shared(monkeypatch, tmp_path, shared):
    (tmp_path / "src" / "mine").mkdir(parents=True)
    (tmp_path / "src" / "mine" / "__init__.py").touch()
    module = types.ModuleType("mine")
    module.__file__ = "/usr/lib/python3/site-packages/mine/__init__.py"
    monkeypatch.setattr(sys, "modules", {"mine": module})
    assert bool(wrong_code(tmp_path, Path("/other"), shared)) is shared


@pytest.mark.slow
def test_times_below_the_clock_give_no_ratio(session, project):
    (project / "seconds.txt").write_text("0")
    plain(session, "--benchmark-json", "base.json")
    result = plain(session, "--dlbench-baseline=base.json")
    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE  test_a.py::test_sum: shorter than the clock resolves: no ratio. *"]
    )


# Quantities besides time.

QUANTITIES = """
import time

import numpy as np

time.sleep({import_seconds})
kept = []


def step():
    if not kept:
        time.sleep({first_seconds})
        kept.append(np.ones({kept_numbers}))
    np.empty({allocated_numbers}).fill(1.0)
    time.sleep(0.01)


def test_step(benchmark):
    benchmark.pedantic(step, rounds=8)


def test_second(benchmark):
    benchmark.pedantic(time.sleep, (0.01,), rounds=5)
"""
"""A benchmark that keeps an array, and one that does not."""
USUAL = {
    "import_seconds": 0.3,
    "first_seconds": 0.2,
    "kept_numbers": 1_000_000,
    "allocated_numbers": 100_000,
}


def write_quantities(project, **changes):
    text = QUANTITIES.format(**(USUAL | changes))
    (project / "test_quantities.py").write_text(text)


def verdicts_of(result):
    """Return the verdict of each line of the section of verdicts."""
    pattern = re.compile(r"([A-Z_]+) +(test_[^:]+(?:::\w+)?(?:, [a-z ]+)?): .*")
    matches = [pattern.fullmatch(line) for line in result.outlines]
    return {match[2]: match[1] for match in matches if match}


@pytest.fixture
def judged(session, project):
    """Return a function that judges the changed benchmarks against the saved ones."""
    write_quantities(project)
    words = "test_quantities.py", "--dlbench-processes", "3"
    assert plain(session, *words, "--dlbench-save", "base.json").ret == 0

    def judge(quantities, **changes):
        write_quantities(project, **changes)
        further = "--dlbench-baseline=base.json", "--dlbench-judge", quantities
        return plain(session, *words, *further)

    return judge


@pytest.mark.slow  # twenty processes of pytest
def test_each_quantity_of_a_test_is_judged(judged):
    all_quantities = "time,memory,first_step,import,faults"
    changed = judged(
        all_quantities,
        kept_numbers=4_000_000,
        first_seconds=0.5,
        import_seconds=0.8,
        allocated_numbers=400_000,
    )
    verdicts = verdicts_of(changed)
    worse = {name for name, verdict in verdicts.items() if verdict == "REGRESSION"}
    assert worse == {
        "test_quantities.py::test_step, peak memory",
        "test_quantities.py::test_step, time for the first step",
        "test_quantities.py::test_step, page faults a step",
        "test_quantities.py, time to import",
        # What the first benchmark keeps is still there while the second runs.
        "test_quantities.py::test_second, peak memory",
    }
    assert changed.ret == pytest.ExitCode.TESTS_FAILED
    changed.stdout.fnmatch_lines(["verdict failed: 5 of 9 comparisons are worse than the baseline"])

    same = verdicts_of(judged(all_quantities))
    assert "REGRESSION" not in same.values()
    assert same["test_quantities.py::test_step, peak memory"] == "NO_REGRESSION"
    assert same["test_quantities.py::test_step, page faults a step"] == "NO_REGRESSION"


@pytest.mark.slow  # eight processes of pytest
def test_a_chosen_quantity_alone_is_judged_with_its_threshold(judged):
    result = judged("memory=50%", kept_numbers=2_000_000, first_seconds=0.5)
    assert result.ret == 0
    assert verdicts_of(result) == {
        "test_quantities.py::test_step, peak memory": "NO_REGRESSION",
        "test_quantities.py::test_second, peak memory": "NO_REGRESSION",
    }
    result.stdout.fnmatch_lines(["verdict passed: no regression in 2 comparisons"])


def test_a_baseline_without_quantities_leaves_them_open():
    rule = replace(DEFAULT, further=(("memory", 0.025),))
    baselines = Baselines(rule)
    with_memory = [PlainLaunch(0.1, {"memory": 100.0})] * 3
    without = [PlainLaunch(0.1, {})] * 3
    baselines.sides["test_a.py::test_sum", "machine"] = baselines.plain_sides(without)
    sides = baselines.plain_sides(with_memory)
    candidate = MeasuredBenchmark("test_a.py::test_sum", "test_a.py::test_sum", sides, "machine")
    judged = judge_all(baselines, [candidate], lambda name: False)
    verdicts = {benchmark.label: benchmark.judgement for benchmark in judged.benchmarks}
    memory = verdicts["test_a.py::test_sum, peak memory"]
    assert memory.verdict is Verdict.HOLE
    assert memory.sentence == "baseline: peak memory was not measured"
    assert verdicts["test_a.py::test_sum"].verdict is not Verdict.HOLE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dlbench-judge=memory",), "needs a baseline"),
        (("--dlbench-judge=memory", "--dlbench-baseline=base.json"), "fresh processes"),
        (("--dlbench-judge=start", "--dlbench-baseline=base.json"), "a suite's cells"),
        (
            ("--dlbench-judge=memroy", "--dlbench-baseline=base.json", "--dlbench-processes=3"),
            "'memroy' is not a known quantity to judge by",
        ),
    ],
)
def test_quantities_that_do_not_fit_are_one_line(session, project, words, message):
    (project / "base.json").write_text("{}")
    result = plain(session, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR: dlbench")]
    assert message in line

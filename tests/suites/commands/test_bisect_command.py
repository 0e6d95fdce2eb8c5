"""`dlbench bisect` over a launcher that only pretends, and over a real repository of commits with
real launches."""

import json
import os
import random
import re
import signal
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_up_pythons import make_python, script
from pretended_runs import ended_as
from processes import records_in, refusal, run_command, running_command, suite_of_null, wait_until

from dlbench.adapters.protocol import Parity, Status
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.storage.store import Store
from dlbench.suites.planning import framework
from dlbench.suites.run import runner

NAMES = [f"v{number}" for number in range(9)]
QUIETLY = ("--threads", "1", "--no-wait-for-quiet", "--seed", "1")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Give launches whose steps take 20 ms times a level, which the interpreter or the step's file
    says."""
    simulated = SimpleNamespace(
        deviation=0.005, level=lambda request: 1.0, crashes=lambda request: False, launched=0
    )
    simulated.ends_at, simulated.losses = None, lambda request: []
    rng = random.Random(1)

    def launch(request, tick):
        if simulated.launched == simulated.ends_at:
            raise KeyboardInterrupt
        simulated.launched += 1
        if simulated.crashes(request):
            return ended_as(Outcome(Status.CRASHED, "signal 11"))
        step = 0.02 * simulated.level(request) * rng.lognormvariate(0.0, simulated.deviation)
        parity = Parity("agrees", "", simulated.losses(request), 0.0, None, "", 1e-3, 1e-3, 0.0)
        return ended_as(Outcome(Status.OK, samples_ns=[round(step * 1e9)] * 3, parity=parity))

    monkeypatch.setattr(runner, "launch_process", launch)
    monkeypatch.setattr(framework, "_added", {})
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    return simulated


# Builds in order: interpreters that only answer what they are.


@pytest.fixture
def builds(machine, command, tmp_path):
    """Give a function that bisects nine builds with these levels; builds without one do not
    start."""

    def bisect(levels, *words):
        machine.level = lambda request: levels[NAMES.index(place_of(request))]
        pythons = []
        for name, level in zip(NAMES, levels, strict=True):
            path = tmp_path / name / "bin" / "python"
            script(path, "#!/bin/sh\nexit 1\n") if level is None else make_python(path, "3.11")
            pythons.append(f"{name}={path}")
        measured = () if "--step" in words else ("null", "--network", "fcn5")
        return command("bisect", *measured, "--python", ",".join(pythons), *QUIETLY, *words)

    return bisect


def place_of(request):
    return request.interpreter.parents[1].name


def slower_from(place, by=1.08):
    return [by if number >= place else 1.0 for number in range(9)]


def records():
    with Store.open("dlbench.sqlite", create=False) as store:
        return store.runs(), store.records()


@pytest.mark.parametrize("place", [1, 4, 8])
def test_the_first_slower_build_is_named_and_few_others_are_measured(builds, place):
    code, output, complaints = builds(slower_from(place), "--write", "found.json")
    assert code == 1, complaints
    assert f"The first slower build is v{place}, with probability " in " ".join(output.split())
    assert max(len(line) for line in output.splitlines() if "`" not in line) <= 80
    content = json.loads(Path("found.json").read_text())
    assert (content["outcome"], content["suspects"], content["before"]) == (
        "found",
        [f"v{place}"],
        f"v{place - 1}",
    )
    assert content["probability"] >= 0.95
    assert content["slowdown"]["low"] < 1.08 < content["slowdown"]["high"]
    assert content["pairs"] <= 30
    runs, stored = records()
    assert [(run.purpose, run.finished is not None) for run in runs] == [("bisect", True)]
    assert len({record.cell.framework for record in stored}) <= 5
    assert {record.side for record in stored} == {"baseline", "candidate"}


def test_a_slowdown_of_many_times_is_no_per_cents(builds):
    code, output, complaints = builds(slower_from(4, 146.0))
    assert code == 1, complaints
    assert re.search(
        r"A step takes 14[5-7] times as long \(14\d to 14\d\)\.", " ".join(output.split())
    )


def test_a_build_that_does_not_start_is_left_out_and_the_answer_says_what_it_may_be(builds):
    levels = slower_from(4)
    levels[4] = None
    code, output, complaints = builds(levels, "--json")
    assert code == 1, complaints
    content = json.loads(output)
    assert content["suspects"] == ["v4", "v5"]
    (untested,) = [attempt for attempt in content["tried"] if attempt["problem"]]
    assert untested["name"] == "v4"
    assert "is not a Python interpreter that starts" in untested["problem"]
    assert "all but the last could not be tested" in content["sentence"]
    # The good end is not launched for it.
    assert [record.outcome.status for record in records()[1] if record.cell.framework == "v4"] == [
        Status.SKIPPED
    ]


@pytest.mark.parametrize(
    ("missing", "answer", "before"),
    [((), ["v5"], "v4"), ((5,), ["v5", "v6"], "v4"), ((4,), ["v4", "v5"], "v3")],
)
def test_the_first_faster_build_is_named(builds, missing, answer, before):
    levels = [1.08] * 5 + [1.0] * 4
    for place in missing:
        levels[place] = None
    code, output, complaints = builds(levels, "--faster", "--json")
    assert code == 1, complaints
    content = json.loads(output)
    assert (content["outcome"], content["suspects"], content["before"]) == ("found", answer, before)
    assert content["slowdown"]["low"] < 1.08 < content["slowdown"]["high"]
    words = "one of" if missing else " and ".join(answer)
    assert f"The first faster build is {words}" in content["sentence"]


@pytest.mark.parametrize(
    ("levels", "code", "message"),
    [
        ([1.0] * 9, 0, "No slowdown to bisect from v0 to v8: "),
        (slower_from(4, 0.9), 0, "v8 is not slower than v0, but faster: "),
        (slower_from(4, 0.25), 0, "To find where it became faster: --good v8 --bad v0 --faster."),
        ([1.0, 1.0, *[1.06] * 5, 1.12, 1.12], 6, "contradict a single change"),
    ],
)
def test_no_change_and_several_changes_are_said_and_not_guessed(builds, levels, code, message):
    exit_code, out, complaints = builds(levels)
    assert exit_code == code, complaints
    assert message in " ".join(out.split())


@pytest.fixture
def own_builds(builds, machine, tmp_path):
    """Give a function that bisects the builds on a step of the user's own, whose second losses are
    these."""
    (tmp_path / "mine.py").write_text("def prepare(cell):\n    return lambda: None\n")

    def bisect(losses, *words):
        machine.losses = lambda request: [2.0, losses[NAMES.index(place_of(request))]]
        return builds(slower_from(4), "--step", str(tmp_path / "mine.py"), *words)

    return bisect


def test_a_bad_end_that_computes_something_else_is_no_slowdown(own_builds):
    code, output, complaints = own_builds([1.9] * 8 + [1.8])
    assert code == 7, complaints
    words = " ".join(output.split())
    assert (
        "v8 computes something else than v0, so their times are not compared: the candidate "
        "computes" in words
    )
    assert "loss of step 2 1.8 instead of 1.9, off by 5.3e-02" in words
    assert len(records()[1]) == 4  # two pairs show it
    code, output, complaints = own_builds([1.9] * 8 + [1.8], "--allow-different")
    assert code == 1, complaints
    assert "The first slower build is v4" in " ".join(output.split())


def test_a_build_in_between_that_computes_something_else_is_left_out(own_builds):
    code, output, complaints = own_builds([*[1.9] * 4, 1.8, *[1.9] * 4], "--json")
    assert code == 1, complaints
    content = json.loads(output)
    assert content["suspects"] == ["v4", "v5"]
    (untested,) = [attempt for attempt in content["tried"] if attempt["problem"]]
    assert (untested["name"], untested["slower"]) == ("v4", None)
    assert untested["problem"].startswith(
        "it computes something else: loss of step 2 1.8 instead of 1.9"
    )


def test_a_bad_end_without_a_number_has_its_own_exit_code(builds, machine):
    machine.crashes = lambda request: place_of(request) == "v8"
    code, output, complaints = builds(slower_from(4))
    assert code == 5, complaints
    assert "v8 cannot be compared with v0: candidate: crashed, signal 11" in " ".join(
        output.split()
    )


def test_a_bisection_that_is_interrupted_goes_on_and_measures_nothing_twice(builds, machine):
    machine.ends_at = 27
    code, _, complaints = builds(slower_from(4))
    assert code == 130
    assert "--resume" in complaints
    before = records()[1]
    machine.ends_at = None
    refused_code, _, complaint = builds(slower_from(4), "--threshold", "4%", "--resume")
    assert refused_code == 2
    assert "another --threshold" in complaint
    code, output, complaints = builds(slower_from(4), "--resume")
    assert code == 1, complaints
    assert "The first slower build is v4" in " ".join(output.split())
    runs, after = records()
    assert len(runs) == 1
    assert after[: len(before)] == before
    assert max(Counter((record.cell, record.launch, record.side) for record in after).values()) == 1


def test_a_short_budget_leaves_it_undecided_and_names_the_range(builds, machine):
    machine.deviation = 0.03
    code, output, complaints = builds(slower_from(4, 1.05), "--budget", "0.01s")
    assert code == 6, complaints
    assert "Undecided whether v8 is slower than v0 at all" in " ".join(output.split())
    assert "The budget is spent. Resume: " in " ".join(complaints.split())


def test_a_bisection_is_no_run_to_compare(builds, command):
    assert builds(slower_from(2))[0] == 1
    code, _, complaint = command("compare", "latest")
    assert code == 2
    assert "is a bisection" in complaint
    code, output, _ = command("report", "comparisons")
    assert (code, "No comparison" in output) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["null", "--python", "a=/x,b=/y"], "--network fcn5"),
        (
            ["null", "--network", "fcn5", "--python", "a=/x,b=/y"],
            "cells, and a bisection takes one",
        ),
        (["null", "--network", "fcn5", "--python", "a=/x,a=/y"], "have the same name"),
        (["null", "--network", "fcn5", "--python", "a=/x"], "the same build"),
        (
            ["null", "--network", "fcn5", "--python", "a=/x,b=/y", "--good", "c"],
            "no build named 'c'",
        ),
        (
            ["null", "--network", "fcn5", "--python", "a=/x,b=/y", "--good", "b", "--bad", "a"],
            "Swap the two",
        ),
        (
            ["null", "--network", "fcn5", "--python", "a=/x,b=/y", "--faster", "--good", "a"],
            "the same build",
        ),
        (
            ["null", "--network", "fcn5", "--python", "a=/x,b=/y", "--faster", "--bad", "b"],
            "the same build",
        ),
        (
            ["null", "--network", "fcn5", "--python", "a=/x,b:torch=/y"],
            "no framework named 'torch:null'",
        ),
        (
            ["null", "--network", "fcn5", "--confidence", "40%", "--python", "a=/x,b=/y"],
            "more than 50%",
        ),
        (["--network", "fcn5"], "Name the framework"),
        (["jax", "--network", "fcn5"], "Name the good and the bad release"),
        (["jax", "--network", "fcn5", "--good", "nonsense", "--bad", "1.0.0"], "by its version"),
        (["null", "--network", "fcn5", "--good", "1.0", "--bad", "1.1"], "releases to choose from"),
        (["jax", "--network", "fcn5", "--build", "make"], "--build and --build-limit are for"),
        (["--repo", "."], "--repo needs one --step"),
        (["jax", "--repo", ".", "--step", "step_of_mine.py"], "Leave the framework out"),
        (["--repo", ".", "--step", "mine.py"], "Name the good and the bad revision"),
        (
            ["--repo", ".", "--step", "/mine.py", "--good", "a", "--bad", "b"],
            "path in the repository",
        ),
        (
            ["--repo", ".", "--step", "mine.py", "--good", "a", "--bad", "b", "--python", "a=/x"],
            "is one path",
        ),
        (
            ["--repo", ".", "--step", "mine.py", "--good", "a", "--bad", "b"],
            "is not a git repository",
        ),
    ],
)
def test_a_wrong_word_costs_one_line(machine, command, words, message):
    assert message in refusal(command, "bisect", *words)


# Commits.

STEP = """
import numpy as np
WORK = {work}

def prepare(cell):
    array = np.random.RandomState(0).standard_normal((64, 64)).astype(np.float32)
    state = {{"loss": 1.0}}

    def step():
        for _ in range(WORK):
            array @ array
        state["loss"] *= 0.5

    return step, lambda: state["loss"]
"""
COMMITS = 8


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    variables = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", *identity, *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def repository_of(folder: Path, slower_from: int, work: int = 200) -> list[str]:
    """Make a repository whose step does 40 % more work from one commit on; return the digests, the
    oldest first."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "bench").mkdir()
    for number in range(COMMITS + 1):
        text = STEP.format(work=round(work * (1.4 if number >= slower_from else 1.0)))
        (folder / "bench" / "train_step.py").write_text(f"# {number}\n{text}")
        (folder / "number").write_text(str(number))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"change {number}")
    return git(folder, "rev-list", "--reverse", "main").split()


@pytest.fixture
def commits(machine, command, tmp_path):
    """Give a repository, its commits, and a function that bisects them with these words."""
    digests = repository_of(tmp_path / "project", 6)
    python = make_python(tmp_path / "python", "3.11")

    def level(request):
        text = Path(request.launch.settings["file"]).read_text()
        return 1.4 if "WORK = 280" in text else 1.0

    machine.level = level
    options = (
        "--repo",
        "project",
        "--step",
        "bench/train_step.py",
        "--python",
        str(python),
        *QUIETLY,
    )
    ends = ("--good", digests[0], "--bad", "main")
    bisect = lambda *words, ends=ends: command("bisect", *options, *ends, *words)  # noqa: E731
    return SimpleNamespace(
        folder=tmp_path / "project", digests=digests, bisect=bisect, home=tmp_path / "home"
    )


def worktrees(commits):
    return git(commits.folder, "worktree", "list", "--porcelain").count("worktree ")


def test_the_first_slower_commit_is_named_and_the_repository_is_as_it_was(commits):
    (commits.folder / "number").write_text("mine")
    (commits.folder / "new").touch()
    state = git(commits.folder, "status", "--porcelain"), git(commits.folder, "rev-parse", "HEAD")
    code, output, complaints = commits.bisect("--build", "cp number built")
    assert code == 1, complaints
    assert f"The first slower commit is {commits.digests[6][:10]} (change 6), with" in " ".join(
        output.split()
    )
    assert "Uncommitted changes are not measured" in " ".join(complaints.split())
    assert (
        git(commits.folder, "status", "--porcelain"),
        git(commits.folder, "rev-parse", "HEAD"),
    ) == state
    assert worktrees(commits) == 1
    assert not list((commits.home / "bisect").glob("*/*"))


def test_the_first_faster_commit_is_named(commits, machine):
    level = machine.level
    machine.level = lambda request: 1.5 / level(request)
    ends = ("--good", "main", "--bad", commits.digests[0], "--faster")
    code, output, complaints = commits.bisect("--build", "true", ends=ends)
    assert code == 1, complaints
    assert f"The first faster commit is {commits.digests[6][:10]} (change 6), with" in " ".join(
        output.split()
    )


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            "test $(cat number) != 5 || { echo no compiler; exit 3; }",
            "its build failed with exit code 3 (no compiler)",
        ),
        ("test $(cat number) != 5 || sleep 600", "took more than 2 s and was ended"),
        ("test $(cat number) != 5 || rm bench/train_step.py", "it has no file bench/train_step.py"),
    ],
)
def test_a_commit_that_cannot_be_built_is_left_out(commits, build, reason):
    code, output, complaints = commits.bisect("--build", build, "--build-limit", "2s", "--json")
    assert code == 1, complaints
    content = json.loads(output)
    assert content["suspects"] == [digest[:10] for digest in commits.digests[5:7]]
    assert reason in next(attempt["problem"] for attempt in content["tried"] if attempt["problem"])
    assert worktrees(commits) == 1


def test_an_end_that_cannot_be_built_ends_it_with_the_reason(commits):
    code, _, complaint = commits.bisect("--build", "echo no compiler; exit 3")
    assert code == 3
    assert (
        f"The good commit, {commits.digests[0][:10]}, cannot be tested: its build failed"
        in complaint
    )
    assert worktrees(commits) == 1


def test_an_interrupted_bisection_keeps_what_is_built_for_resuming_and_the_next_one_removes_it(
    commits, machine, tmp_path
):
    log = tmp_path / "builds"
    build = ("--build", f"cat number >> {log}; echo >> {log}")
    machine.ends_at = 27
    assert commits.bisect(*build)[0] == 130
    assert worktrees(commits) > 1
    machine.ends_at = None
    code, output, complaints = commits.bisect(*build, "--resume")
    assert code == 1, complaints
    built = log.read_text().split()
    assert len(built) == len(set(built)), "built twice"
    assert "(change 6)" in output
    machine.ends_at = machine.launched + 10
    assert commits.bisect(*build)[0] == 130
    worktree_count = worktrees(commits)
    machine.ends_at = machine.launched
    assert worktree_count > 1
    assert commits.bisect("--build", "true")[0] == 130
    assert worktrees(commits) == 3  # both ends of the new one


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("main", "main~3", "Swap the two"),
        ("main", "main", "the same commit"),
        ("nowhere", "main", "git finds no revision 'nowhere'"),
        ("side", "main", "is not an ancestor"),
        ("--help", "main", "git finds no revision"),
    ],
)
def test_revisions_that_cannot_be_bisected_are_refused(commits, good, bad, message):
    git(commits.folder, "checkout", "-q", "-b", "side", "main~2")
    git(commits.folder, "commit", "-q", "--allow-empty", "-m", "aside")
    assert message in refusal(partial(commits.bisect, ends=(f"--good={good}", f"--bad={bad}")))


@pytest.mark.slow  # minutes of launches
def test_real_launches_of_real_commits_find_the_slower_one_although_it_was_killed(tmp_path):
    digests = repository_of(tmp_path / "project", 6, work=2000)
    brief = {"steps": 5, "seconds": 0.2, "sample_seconds": 0.01}
    (tmp_path / "brief.toml").write_text(suite_of_null("brief", protocol=brief))
    words = (
        "bisect",
        "--repo",
        "project",
        "--step",
        "bench/train_step.py",
        "--good",
        digests[0],
        "--bad",
        "main",
    )
    words += (
        "--suite",
        "brief.toml",
        *QUIETLY,
        "--build",
        "true",
        "--store",
        "my.sqlite",
        "--budget",
        "1m",
    )

    stored_records = partial(records_in, tmp_path / "my.sqlite")
    with running_command(tmp_path, *words) as child:
        wait_until(lambda: len(stored_records()) > 4, "records")
        os.kill(child.pid, signal.SIGKILL)
    before = stored_records()
    done = run_command(tmp_path, *words, "--resume")
    assert done.returncode in (1, 6), done.stdout + done.stderr  # 6: this machine was too busy
    after = stored_records()
    assert after[: len(before)] == before
    assert (
        max(
            Counter(
                (record.cell, record.launch, record.side, record.attempt) for record in after
            ).values()
        )
        == 1
    )
    if done.returncode == 1:
        assert f"{digests[6][:10]} (change 6)" in " ".join(done.stdout.split())
        assert git(tmp_path / "project", "worktree", "list", "--porcelain").count("worktree ") == 1

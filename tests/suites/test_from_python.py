"""`dlbench.measure`, `compare` and `gate`: real steps in NumPy, measured from Python as the commands
measure them, and ended as they are."""

import json
import os
import shlex
import signal
import subprocess
import sys
import typing
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
import signal_handlers
import typer
from processes import gone, records_in, suite_of_null, wait_until

import dlbench
from dlbench.errors import FrameworkEnvironmentError, StoreError, UsageError
from dlbench.hardware_probe import ProbeError
from dlbench.reports.frames import UNITS
from dlbench.reports.results import disturbance
from dlbench.suites import from_python
from dlbench.suites.commands.compare import CompareOptions
from dlbench.suites.commands.gate import GateOptions
from dlbench.suites.commands.options import names_of, takes
from dlbench.suites.commands.run import RunOptions
from dlbench.suites.run import runner
from dlbench.suites.run.quiet import QuietWait

STEP = """
import numpy as np

TIMES = 1


def prepare(cell):
    weights = np.random.RandomState(0).standard_normal((384, 384)).astype(np.float32)
    last = {}

    def step():
        for _ in range(TIMES):
            product = weights @ weights
        last["loss"] = float(product[0, 0])

    return step, lambda: last["loss"]
"""
QUICKLY = {"no_ceilings": True, "no_wait_for_quiet": True}


@pytest.fixture
def undisturbed(monkeypatch):
    """Let other programs disturb nothing: tests beside this one keep both CPUs busy."""

    def no_reading():
        raise ProbeError("not in this test")

    monkeypatch.setattr(runner, "QuietWait", partial(QuietWait, take=no_reading))
    for name in ("WAITING_SHARE", "PRESSURE_SHARE", "OTHERS_SHARE", "STEAL_SHARE"):
        monkeypatch.setattr(disturbance, name, 1e9)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a step of a millisecond or so, one that does it twice, and a suite."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DLBENCH_STORE", raising=False)
    (tmp_path / "once.py").write_text(STEP)
    (tmp_path / "twice.py").write_text(STEP.replace("TIMES = 1", "TIMES = 2"))
    protocol = {"seconds": 0.05, "steps": 20, "launches": 2}
    (tmp_path / "brief.toml").write_text(suite_of_null("brief", protocol=protocol))
    return tmp_path


def test_a_measurement_is_stored_and_equals_the_command_s_json(folder, command, capsys):
    result = dlbench.measure(
        "once.py", suite="brief.toml", threads=[1, 2], launches=2, progress=False, **QUICKLY
    )
    assert capsys.readouterr() == ("", "")
    assert list(result.table["threads"]) == [1, 2]
    assert (result.table["status"] == "ok").all()
    assert result.table["seconds"].between(1e-5, 0.5).all()
    assert len(result.launches) == 4 == len(records_in(folder))
    assert result.sentence.startswith("Fastest of 2 cells: once")
    assert set(UNITS) >= set(result.table.attrs["units"])
    assert result.table.attrs["runs"] == [result.run]
    code, out, _ = command("report", "matrix", "--run", result.run, "--json")
    assert code == 0
    assert out == f"{result.to_json()}\n"


def test_a_gate_passes_identical_code_and_fails_double_work(folder, undisturbed, command, capsys):
    same = dlbench.gate("once.py", same=True, threads=1, suite="brief.toml", store="other.sqlite")
    assert same.passed, same
    assert "pair" in capsys.readouterr().err
    slower = dlbench.gate(
        "once.py",
        folder / "twice.py",
        threads=1,
        suite="brief.toml",
        store="other.sqlite",
        no_profile=True,
        allow_different=True,
        progress=False,
    )
    assert (slower.verdict, slower.passed) == ("failed", False)
    assert slower.table["ratio"].between(1.4, 2.6).all()
    assert slower.sentence.startswith("gate failed: 1 of 1 cell is slower than the baseline. once")
    assert not (folder / "dlbench.sqlite").exists()
    code, out, _ = command("compare", slower.run, "--store", "other.sqlite", "--json")
    assert code == 1
    assert json.loads(out) == slower.to_dict()
    assert out == f"{slower.to_json()}\n"
    comparison = dlbench.compare(same.run, slower.run, store="other.sqlite")
    assert comparison.verdict == "REGRESSION"


@pytest.mark.slow  # ten pairs or more, as for a user: the paths of a gate are tested above
def test_a_comparison_measured_now_names_the_command_that_repeats_it(folder, command):
    result = dlbench.compare(
        "once.py",
        candidate_env={"OPENBLAS_VERBOSE": "0"},
        suite="brief.toml",
        threads=1,
        pairs=6,
        interval=0.5,
        progress=False,
    )
    assert result.table["baseline_launches"].iloc[0] >= 3
    assert result.verdict != "HOLE"
    words = shlex.split(result._content.command)
    assert words[:2] == ["dlbench", "compare"]
    words[words.index("--step") + 1] = "once.py"  # a folder of the user is not written down
    code, out, err = command(*words[1:], "--json")
    assert code == 0, err
    again = json.loads(out)
    assert [cell["threads"] for cell in again["cells"]] == [1]
    assert again["candidate"] == result.to_dict()["candidate"]


def test_hints_name_the_command_that_does_the_same(folder):
    """The command line parses to the same options."""
    words = {
        **{"name": "brief.toml", "step": ["once.py"], "candidate_step": "twice.py"},
        **{"threads": [1, 2], "env": {"A": "x y"}, "allow_different": True, "tolerance": 0.1},
        **{"store": "other store.sqlite", "seed": 3},
    }
    options = from_python._given(GateOptions, words)
    line = ["gate", options.name, *from_python._command_line(options)]
    parsed = []

    def taken(of_command):
        parsed.append(of_command)

    app = typer.Typer()
    app.command("gate")(takes(GateOptions)(taken))
    app.command("other")(lambda: None)
    app(line, standalone_mode=False)
    assert parsed == [replace(options, store_file="other store.sqlite")]


def test_a_step_that_fails_is_a_row_with_its_reason(folder):
    (folder / "broken.py").write_text("def prepare(cell):\n    raise RuntimeError('no data')\n")
    result = dlbench.measure("broken.py", suite="brief.toml", launches=1, progress=False, **QUICKLY)
    assert "no data" in result.sentence
    assert result.table["seconds"].isna().all()
    gate = dlbench.gate(
        "once.py", "broken.py", suite="brief.toml", threads=1, budget="1s", progress=False
    )
    assert gate.verdict == "failed"


def test_a_file_that_measures_itself_is_told_so(folder):
    (folder / "itself.py").write_text(
        f"import dlbench\n{STEP}\ndlbench.measure('itself.py', suite='brief.toml')\n"
    )
    result = dlbench.measure("itself.py", suite="brief.toml", launches=1, progress=False, **QUICKLY)
    assert 'if __name__ == "__main__"' in result.sentence


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: dlbench.measure("no.py"), UsageError, "there is no file no.py"),
        (lambda: dlbench.measure(lambda: 1), UsageError, "lambda"),
        (lambda: dlbench.measure("once.py", thread=1), UsageError, "named 'thread'"),
        (lambda: dlbench.measure("once.py", threads=""), UsageError, "threads has an empty value"),
        (lambda: dlbench.measure("once.py", threads="many"), UsageError, "many"),
        (lambda: dlbench.measure("once.py", resume=1), UsageError, "resume=1 cannot be used"),
        (lambda: dlbench.measure("once.py", seed="a"), UsageError, "Give a whole number"),
        (lambda: dlbench.measure("once.py", as_json=True), UsageError, "named 'as_json'"),
        (
            lambda: dlbench.measure("once.py", python="/no/python", suite="brief.toml"),
            (UsageError, FrameworkEnvironmentError),
            "/no/python",
        ),
        (lambda: dlbench.gate("once.py"), UsageError, "Both sides are the same"),
        (lambda: dlbench.gate("once.py", "no.py"), UsageError, "there is no file no.py"),
        (lambda: dlbench.compare("once.py", "latest"), UsageError, "latest is not"),
        (lambda: dlbench.compare("a", "b", store="no.sqlite"), StoreError, "no.sqlite"),
        (lambda: dlbench.compare("a", "b", threads=1), UsageError, "compared as they are"),
    ],
)
def test_a_mistake_is_one_line(folder, call, kind, message):
    with pytest.raises(kind) as raised:
        call()
    assert isinstance(raised.value, dlbench.DlbenchError)
    assert message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert records_in(folder) == []


def test_every_option_of_a_command_can_be_given_from_python():
    """The typed keywords and the commands' options must not drift apart."""
    never = from_python._NOT_FROM_PYTHON
    of_steps = {"networks", "frameworks", "adapter"}
    explicit = {"threads", "budget", "python", "env", "step", "store_file"}
    for keywords, options, further in (
        (from_python.RunKeywords, RunOptions, {"name", "store_file"}),
        (
            from_python.MeasureKeywords,
            RunOptions,
            {*explicit, *of_steps, "name", "launches", "interval", "corpus", "trend"},
        ),
        (
            from_python.SidesKeywords,
            GateOptions,
            {*explicit, *of_steps, "name", "baseline", "baseline_step", "candidate_step",
             "baseline_adapters", "candidate_adapters"},
        ),
        (
            from_python.CompareKeywords,
            CompareOptions,
            {*explicit, *of_steps, "first", "second", "now", "suite_name", "baseline_step",
             "candidate_step", "baseline_adapters", "candidate_adapters"},
        ),
    ):  # fmt: skip
        typed = set(typing.get_type_hints(keywords))
        assert typed.isdisjoint(further)
        assert typed | further | never >= set(names_of(options))
        assert typed <= set(names_of(options))


def test_values_become_the_words_of_the_command(folder):
    options = from_python._given(
        RunOptions,
        {
            **{"name": folder / "brief.toml", "threads": range(1, 3), "batch_sizes": 16},
            **{"env": {"A": "x y", "B": "1"}, "step": ["a.py", Path("b.py")], "budget": None},
            **{"interval": 0.02, "resume": True, "seed": 3, "store": "s.sqlite"},
        },
    )
    assert (options.threads, options.batch_sizes, options.interval) == ("1,2", "16", "0.02")
    assert options.env == ["A=x y", "B=1"]
    assert options.step == ["a.py", "b.py"]
    assert (options.resume, options.seed, options.budget) == (True, 3, None)
    assert (options.name, options.store_file) == (str(folder / "brief.toml"), "s.sqlite")


CALL = """
import dlbench, psutil
try:
    dlbench.measure("once.py", suite="brief.toml", threads=1, launches=8, no_ceilings=True,
                    no_wait_for_quiet=True)
except KeyboardInterrupt as error:
    print(error)
    # A process takes a moment to end after its signal.
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=10)
    print([process.name() for process in alive])
"""


def test_ctrl_c_keeps_what_is_finished_and_leaves_nothing_running(folder):
    """As in a notebook, the program lives on: nothing ends with it."""
    caller = subprocess.Popen(
        [sys.executable, "-c", CALL], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: records_in(folder), "the first launch")
    launches = wait_until(
        lambda: psutil.Process(caller.pid).children(recursive=True), "the next launch"
    )
    caller.send_signal(signal.SIGINT)
    out, _ = caller.communicate(timeout=60)
    assert caller.returncode == 0
    advice = "Every finished launch is stored. The same call with resume=True continues."
    assert out.splitlines() == [advice, "[]"]
    assert all(gone(process.pid) for process in launches)
    stored = len(records_in(folder))
    assert 1 <= stored < 8
    options = {"suite": "brief.toml", "threads": 1, "launches": 8, **QUICKLY}
    result = dlbench.measure("once.py", resume=True, progress=False, **options)
    assert len(result.launches) == len(records_in(folder)) == 8


@pytest.fixture
def usual_ctrl_c():
    """Let Ctrl-C raise KeyboardInterrupt, whatever other tests of this process left behind."""
    with signal_handlers.restored():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


def test_a_second_ctrl_c_does_not_end_the_clean_up(usual_ctrl_c):
    cleaned = []

    def interrupted_twice():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt), from_python._one_ctrl_c():
        interrupted_twice()
    assert cleaned


def test_ctrl_c_keeps_its_meaning_after_a_call(folder, usual_ctrl_c):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(UsageError):
        dlbench.measure("no.py")
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt), from_python._one_ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before

"""The real command in processes of its own: whatever ends it, finished records are kept and a
resumed run completes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from processes import (
    COMMAND,
    PATIENCE,
    gone,
    plan_of,
    records_in,
    run_command,
    running_command,
    suite_of_null,
    variables_of_command,
    wait_until,
)

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.reports.results.storage.store import Store
from dlbench.suites.commands.plan import kind_of_protocol

SUITE = suite_of_null(threads=[1, 2], protocol={"launches": 2, "cell_seconds": 100.0})
ALL = Counter({("fcn5", threads, launch): 1 for threads in (1, 2) for launch in (0, 1)})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    return tmp_path


def launched(folder: Path) -> Counter:
    return Counter((r.cell.network, r.cell.threads, r.launch) for r in records_in(folder))


def runs_in(folder: Path):
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        return store.runs()


def complaint(errors: str) -> str:
    """Return the one line in which the command says what is wrong."""
    assert "Traceback" not in errors
    (line,) = [line for line in errors.splitlines() if line.startswith("dlbench: ")]
    assert errors.rstrip().endswith(line)
    return line


def test_a_plan_says_what_intervals_of_two_launches_cover():
    """Where many cells have two, they show together how launches differ; two cells alone do not."""
    one_network = plan_of(networks="fcn5", frameworks="torch,tensorflow,mxnet", threads="1,2")
    assert one_network.launches == 2
    assert "all cells together show how launches differ" in kind_of_protocol(one_network)
    assert "within a launch only" in kind_of_protocol(
        plan_of(networks="fcn5", frameworks="torch", threads="1,2")
    )


def test_a_run_from_beginning_to_end(folder):
    done = run_command(folder, "run", "mine.toml", "--seed", "7")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert launched(folder) == ALL
    records = records_in(folder)
    assert {record.outcome.status for record in records} == {Status.OK}
    assert {record.machine for record in records} == {probe().fingerprint}
    (run,) = runs_in(folder)
    assert (run.suite, run.seed, run.launches, len(run.plan)) == ("mine", 7, 2, 2)
    assert run.finished is not None
    lines = done.stderr.splitlines()
    assert "2 cells, 2 launches of each" in lines[0]
    assert lines[1] == (
        "2 launches per cell: ± shows variation within a launch only; use --interval 2% for more."
    )
    assert [line.split("]")[0] for line in lines[2:]] == [f"[{n}/4" for n in range(1, 5)]
    assert all(word in done.stdout for word in ("fcn5", "null", "report threads"))


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        pytest.param(signal.SIGINT, 130, "Interrupted", id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 143, "SIGTERM", id="SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, "SIGHUP", id="SIGHUP", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, None, id="kill -9", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_ended_goes_on_with_exactly_what_is_missing(folder, number, code, message):
    with running_command(folder, "run", "mine.toml") as process:
        wait_until(lambda: records_in(folder) or process.poll() is not None, "the first record")
        assert process.poll() is None, process.said()
        guests = psutil.Process(process.pid).children()
        os.kill(process.pid, number)
        process.wait()
        errors = process.said()
        for guest in guests:
            wait_until(lambda guest=guest: gone(guest.pid), "the end of the guest")
    assert process.returncode == code
    assert "Traceback" not in errors
    if message:
        assert message in complaint(errors)
        assert "dlbench run mine.toml --resume" in complaint(errors)
    # Ctrl-C shows the result so far. The other signals come from programs.
    assert ("Seconds per mini-batch" in errors) == (number == signal.SIGINT)
    records = records_in(folder)
    assert 1 <= len(records) < 4
    (run,) = runs_in(folder)
    assert run.finished is None
    resumed = run_command(folder, "run", "mine.toml", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert records_in(folder)[: len(records)] == records
    assert launched(folder) == ALL
    (again,) = runs_in(folder)
    assert (again.id, again.plan, again.seed) == (run.id, run.plan, run.seed)
    assert again.finished is not None
    nothing_left = run_command(folder, "run", "mine.toml", "--resume")
    assert nothing_left.returncode == 2
    assert "no unfinished run of mine" in complaint(nothing_left.stderr)


ENDED_WHILE_ENDING = """
import os, signal
from dlbench.suites import cli

def app(prog_name, standalone_mode):
    try:
        os.kill(os.getpid(), signal.{name})
    finally:
        os.kill(os.getpid(), signal.{name})
        print("closed", flush=True)

cli.build_app = lambda chosen: app
cli.main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_second_signal_does_not_break_into_the_end(name, code):
    program = [sys.executable, "-c", ENDED_WHILE_ENDING.format(name=name)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (code, "closed\n")
    assert complaint(done.stderr)


def test_a_run_without_a_number_ends_with_1(folder):
    crashing = SUITE.replace("threads = [1, 2]", "threads = [1]").replace(
        "launches = 2", "launches = 1"
    )
    (folder / "mine.toml").write_text(crashing + 'fault = "crash"\n')
    done = run_command(folder, "run", "mine.toml")
    assert done.returncode == 1
    assert "no cell gave a valid number" in complaint(done.stderr)
    reasons = {(record.outcome.status, record.outcome.reason) for record in records_in(folder)}
    assert reasons == {(Status.CRASHED, "ended by signal 11 (SIGSEGV)")}


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(folder):
    line, variables = (
        f"{' '.join(COMMAND)} list --json | head -c 1",
        variables_of_command(folder / "home"),
    )
    done = subprocess.run(
        ["sh", "-c", line], env=variables, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.stdout, done.stderr) == ("{", "")


@pytest.mark.slow
def test_two_runners_share_one_store(folder):
    words = ("run", "mine.toml", "--threads", "1")
    with running_command(folder, *words) as first, running_command(folder, *words) as second:
        for process in (first, second):
            assert process.wait() == 0, process.said()
    runs = runs_in(folder)
    assert len(runs) == 2
    assert all(run.finished for run in runs)
    assert Counter(record.run for record in records_in(folder)) == Counter(
        {run.id: 2 for run in runs}
    )


def test_a_removed_working_folder_is_one_line(tmp_path):
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *COMMAND, "run", "quick"],
        cwd=tmp_path / "gone",
        env=variables_of_command(tmp_path / "home"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "dlbench: The working folder was removed. Change into one that exists.\n"


def test_a_launch_during_which_the_runner_was_stopped_is_repeated_and_a_copy_holds_what_ended(
    folder,
):
    (folder / "mine.toml").write_text(
        suite_of_null(step_seconds=0.05, protocol={"launches": 3, "steps": 10})
    )
    store = folder / "dlbench.sqlite"
    with running_command(folder, "run", "mine.toml", "--no-wait-for-quiet") as process:
        wait_until(lambda: records_in(store), "the first record")
        # Without what SQLite keeps beside it. A record is seen a moment before it is in the file.
        wait_until(
            lambda: records_in(Path(shutil.copy(store, folder / "copy.sqlite"))),
            "a record in the copy",
        )
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(process.pid, signal.SIGCONT)
        process.wait()
        errors = process.said()
    assert process.returncode == 0, errors
    assert [record.outcome.status for record in records_in(store)] == [Status.OK] * 3, errors

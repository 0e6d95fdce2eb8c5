"""Jobs on this machine: seen, ended and read by any process, with this process's environment."""

import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from processes import gone, wait_until

from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.fleet.schedulers.local import Local
from dlbench.suites.fleet.schedulers.scheduler import ENDED, GONE, RUNNING, Scheduler, Seen, Wanted

#: Says when it is ready to be ended, ends in its own way, and has a child of its own that it must end itself.
ORDERLY = """
import os, signal, subprocess, sys, time
child = subprocess.Popen(["sleep", "300"])
def end(*_):
    child.kill()
    child.wait()
    print("ended in order", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
print("ready", child.pid, flush=True)
time.sleep(300)
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    """Give this machine as a scheduler; whatever a test left running is ended."""
    made = Local(tmp_path / "jobs")
    yield made
    for path in (tmp_path / "jobs").glob("*_submitted.pkl"):
        pid = int(path.name.split("_")[0])
        if not gone(pid):
            for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
                process.kill()


def run(scheduler: Scheduler, *command: str, number: int = 1, node: str = "local-1") -> str:
    return scheduler.submit(Wanted(number, node, command))


def said(scheduler: Scheduler, handle: str) -> str:
    log = scheduler.log(handle)
    return log.read_text() if log is not None and log.exists() else ""


def wait_for_end(scheduler: Scheduler, handle: str) -> None:
    wait_until(lambda: scheduler.seen([handle])[handle].state == ENDED, "its end")


def test_a_job_runs_as_this_process_would(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLBENCH_TOLD", "to the job")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    shows = "import os, sys; print(os.getcwd(), os.environ['DLBENCH_TOLD'], os.environ['CUDA_VISIBLE_DEVICES'])"
    handle = run(scheduler, sys.executable, "-c", f"{shows}; print('an error', file=sys.stderr)", node="local-2")
    assert scheduler.seen([handle]) == {handle: Seen(RUNNING, "", "local-2")}
    wait_for_end(scheduler, handle)
    assert scheduler.seen([handle, "nonsense"]) == {handle: Seen(ENDED, "", "local-2"), "nonsense": Seen(GONE)}
    assert f"{tmp_path} to the job 3,1\n" in said(scheduler, handle)
    assert "an error\n" in said(scheduler, handle)


def test_a_job_is_ended_in_its_own_way_by_a_process_that_did_not_start_it(scheduler: Scheduler, tmp_path: Path) -> None:
    handle = run(scheduler, sys.executable, "-c", ORDERLY)
    wait_until(lambda: "ready" in said(scheduler, handle), "its first words, while it runs")
    child = int(said(scheduler, handle).split("ready ")[1].split()[0])
    another = Local(tmp_path / "jobs")
    assert another.seen([handle])[handle].state == RUNNING
    another.cancel([handle])
    wait_for_end(scheduler, handle)
    assert "ended in order" in said(scheduler, handle)
    assert gone(child)
    another.cancel([handle, "nonsense"])


def test_a_job_that_is_ended_before_it_began_never_begins(scheduler: Scheduler, tmp_path: Path) -> None:
    # At any moment before its command: what starts it would ignore SIGTERM.
    handles = [run(scheduler, "sh", "-c", f"echo > {tmp_path}/began; sleep 300", number=number) for number in range(2)]
    scheduler.cancel(handles[:1])
    controller = psutil.Process(int(handles[1].split(":")[0]))
    wait_until(controller.children, "the job's own process")
    scheduler.cancel(handles[1:])
    for handle in handles:
        wait_for_end(scheduler, handle)
    assert not (tmp_path / "began").exists()


def test_a_job_outlives_what_ends_the_command_that_started_it(scheduler: Scheduler) -> None:
    handle = run(scheduler, sys.executable, "-c", ORDERLY)
    wait_until(lambda: "ready" in said(scheduler, handle), "its first words")
    controller = psutil.Process(int(handle.split(":")[0]))
    for process in (controller, *controller.children()):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)
    scheduler.cancel([handle])
    wait_for_end(scheduler, handle)
    assert "ended in order" in said(scheduler, handle)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGHUP}


def test_another_process_of_the_same_number_is_not_the_job(scheduler: Scheduler) -> None:
    own = psutil.Process(os.getpid())
    handle = f"{own.pid}:{own.create_time():.2f}:local-1"
    assert scheduler.seen([handle])[handle].state == RUNNING
    earlier = f"{own.pid}:{own.create_time() - 60:.2f}:local-1"
    assert scheduler.seen([earlier])[earlier].state == ENDED
    scheduler.cancel([earlier])


def test_nodes_have_the_names_of_this_machine(scheduler: Scheduler) -> None:
    assert scheduler.nodes(None, ()) == ["local-1"]
    assert scheduler.nodes(3, ()) == ["local-1", "local-2", "local-3"]
    assert scheduler.nodes(None, ("local-7", "local-2", "local-7")) == ["local-7", "local-2"]
    assert [scheduler.usable(name) for name in ("local-1", "local-0", "n1", "")] == [True, False, False, False]
    with pytest.raises(UsageError, match="no node 'n1'"):
        scheduler.nodes(None, ("n1",))
    with pytest.raises(UsageError, match="2 nodes asked for, 1 named"):
        scheduler.nodes(2, ("local-1",))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(FrameworkEnvironmentError, match="could not be started"):
        run(Local(tmp_path / "taken" / "jobs"), "true")


def test_what_is_seen_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Seen(RUNNING).state = ENDED  # type: ignore[misc]

"""Launches of the null framework, the real command, and looking after the processes of both."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command_server
import psutil
from known_networks import data_of

from dlbench.adapters.protocol import Cell, Launch, Protocol
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.record import Record
from dlbench.reports.results.storage.store import Store
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import Plan, expand
from dlbench.suites.planning.suite import Suite, load
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run.launcher import LaunchRequest

#: Nothing here waits for that long unless it is about to fail: the machine may be busy.
PATIENCE = 120.0
BRIEF = Protocol(warmup_steps=2, steps=4, minimum_steps=2, seconds=0.2)
#: Whose digests of builds all homes share: each reads the 12,000 files of an environment.
SHARED_HOME: Path | None = None
COMMAND = (sys.executable, "-m", "dlbench.suites")
TWO_CPUS = Capacity(cores=2, cpus=2)


def null_cell(**changes: Any) -> Cell:
    """Return a cell of the null framework."""
    return Cell("null", "null", "null", "fcn5", "cpu", 1, 64)._replace(**changes)


def null_order(
    folder: Path,
    settings: dict[str, Any] | None = None,
    *,
    interpreter: Path | None = None,
    timeout: float = PATIENCE,
    variables: dict[str, str] | None = None,
    **changes: Any,
) -> LaunchRequest:
    """Return the order of one launch of the null framework, by the interpreter of the tests unless
    another is given."""
    launch = Launch(
        null_cell(**changes), BRIEF, settings or {}, str(folder), network=data_of("fcn5")
    )
    return LaunchRequest(
        launch, interpreter or Path(sys.executable), variables or {}, timeout, computes=False
    )


def plan_of(
    suite: str | Suite = "quick", machine: Capacity = TWO_CPUS, seed: int = 1, **chosen: Any
) -> Plan:
    """Return the plan of a suite, by its name or as it was read, with these choices."""
    return expand(
        load(suite) if isinstance(suite, str) else suite, SuiteOverrides(**chosen), machine, seed
    )


def gone(pid: int) -> bool:
    """Tell whether a process has ended, even where nobody has collected it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], Any], description: str) -> Any:
    """Wait for a condition and return its value; what is costly to ask is asked seldom: other tests
    run beside."""
    until = time.monotonic() + PATIENCE
    begun = time.monotonic()
    while not (value := condition()):
        answered = time.monotonic()
        assert answered < until, f"{description}: not within {PATIENCE:g} s"
        time.sleep(min(1.0, max(0.02, 3 * (answered - begun))))
        begun = time.monotonic()
    return value


def variables_of_command(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a command under test: a DLBENCH_HOME of its own, nothing else of
    dlbench's."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DLBENCH_", "PYTEST_", "CUDA_"))
    }
    # The lock against two that measure at once lies there: tests that run side by side shall not
    # wait for each other.
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    share_digests(home)
    own = {name: str(temporary) for name in ("TMPDIR", "DLBENCH_LOCK_FOLDER")}
    return {**inherited, "DLBENCH_HOME": str(home), **own, "COLUMNS": "200", **more}


def share_digests(home: Path) -> None:
    """Let a command find the digests of builds that others took."""
    link = home / "cache" / "contents"
    if SHARED_HOME is not None and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(SHARED_HOME / "cache" / "contents")


def run_command(folder: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a folder to its end."""
    return run_with(variables_of_command(folder / "home", **more), folder, *words)


def run_with(
    variables: dict[str, str], folder: Path, *words: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end in a folder, with exactly this environment."""
    with tempfile.TemporaryDirectory() as output:
        code = command_server.call(words, folder, variables, Path(output), PATIENCE)
        out, err = (Path(output, name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess([*COMMAND, *words], code, out, err)


def fork_command(
    folder: Path,
    output: Path,
    *words: str,
    first: Callable[[], None] = lambda: None,
    variables: dict[str, str] | None = None,
) -> int:
    """Start the command in a fork of this process, which has loaded it; return its process number.

    ``first`` is called in the fork before the command; ``variables`` are its whole environment.
    """
    order = {
        "words": words,
        "folder": str(folder),
        "variables": variables or variables_of_command(folder / "home"),
    }
    return command_server.fork({**order, "output": str(output), "program": "dlbench"}, first)


@dataclass
class Running:
    """A command that was started, and the folder of what it prints."""

    pid: int
    output: Path
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self) -> int | None:
        wait_until(lambda: self.poll() is not None, "the end of a command")
        return self.returncode

    def said(self, stream: str = "err") -> str:
        path = self.output / stream
        return path.read_text() if path.exists() else ""


@contextlib.contextmanager
def running_command(folder: Path, *words: str) -> Iterator[Running]:
    """Start the command in a folder, as `fork_command` does; whatever is left of it at the end is
    killed."""
    with tempfile.TemporaryDirectory() as output:
        process = Running(fork_command(folder, Path(output), *words), Path(output))
        try:
            yield process
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()


def suite_of_null(
    name: str = "mine",
    step_seconds: float = 0.02,
    *,
    protocol: dict[str, Any] | None = None,
    **lists_and_settings: Any,
) -> str:
    """Return the text of a suite of fcn5 on one thread; ``lists_and_settings`` are
    lists of the suite and, where they are no lists, settings of null."""
    lists_given = {
        key: value for key, value in lists_and_settings.items() if isinstance(value, list)
    }
    lists = {"networks": ["fcn5"], "threads": [1], **lists_given}
    timed = {"warmup_steps": 2, "steps": 3, "seconds": 0.2, **(protocol or {})}
    settings = {
        "step_seconds": step_seconds,
        **{key: value for key, value in lists_and_settings.items() if key not in lists_given},
    }
    return "\n".join(
        (
            f'name = "{name}"',
            'summary = "for tests"',
            'frameworks = ["null"]',
            *(f"{key} = {json.dumps(setting)}" for key, setting in lists.items()),
            "[protocol]",
            *(f"{key} = {json.dumps(setting)}" for key, setting in timed.items()),
            "[settings.null]",
            *(f"{key} = {json.dumps(setting)}" for key, setting in settings.items()),
            "",
        )
    )


def records_in(place: Path) -> list[Record]:
    """Return the records of a store, or of the usual one of a folder; none while there is no
    store."""
    path = place / "dlbench.sqlite" if place.is_dir() else place
    with contextlib.suppress(StoreError), Store.open(path, create=False) as store:
        return list(store.records())
    return []


def refusal(command: Callable[..., tuple[Any, str, str]], *words: str, code: int = 2) -> str:
    """Return the one line with which the command refuses these words, printing nothing."""
    exit_code, out, errors = command(*words)
    assert (exit_code, out) == (code, ""), errors
    (line,) = errors.splitlines()
    assert line.startswith("dlbench: ")
    return line

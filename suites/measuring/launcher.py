"""Launchers: carry out one launch, data in and data out.

``ProcessLauncher`` starts the framework's interpreter on this machine. Another (a batch system's, a fleet's) need only
implement ``Launcher``.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Protocol as TypingProtocol

import psutil

from dlbench.adapters.launch.companions import oom_kills
from dlbench.adapters.protocol import PHASE_FILE, Launch, Outcome, ProtocolError, Status, read_outcome, write_launch
from dlbench.hardware_probe.gpu.processes import descends_from_this_process

from ..errors import FrameworkEnvironmentError
from ..planning.framework import GUEST_DIRECTORY

# What a guest may see of the user's environment. Anything else (PYTHONPATH, OMP_NUM_THREADS, LD_PRELOAD, ...) would
# make a number depend on the shell it was started from.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "TZ")
_TICK_SECONDS = 0.5
_GRACE_SECONDS = 3.0
_STDERR_LINES = 4
_NOT_STARTED = 127  # as the shell says it
MARK = "DLBENCH_LAUNCH"  # the variable by which a launch's processes are known, whatever session they made themselves

Tick = Callable[[Path], None]


@dataclass(frozen=True)
class Order:
    """A launch with all that is needed to carry it out."""

    launch: Launch
    interpreter: Path
    variables: dict[str, str]
    timeout: float  # seconds from start to end
    guest: Path | None = None  # the folder of adapters to run; None: this installation's own


@dataclass(frozen=True)
class Launched:
    """What a launch gave and how long all of it took, in seconds."""

    outcome: Outcome
    wall_seconds: float


class Launcher(TypingProtocol):
    """Whatever can carry out launches."""

    def launch(self, order: Order, tick: Tick = ...) -> Launched:
        """Carry out one launch; ``tick`` is called now and then with the control directory."""
        ...


def no_tick(directory: Path) -> None:
    """Show nothing."""


def guest_environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the whole environment of a guest: a few inherited variables, and the launch's own."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**kept, **variables, "DLBENCH_VARIABLES": ",".join(sorted(variables))}


def without_home(text: str) -> str:
    """Replace the user's home folder by ~, so that no record carries a user's name."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _without_home_anywhere(value: Any) -> Any:
    """Return plain JSON data with the user's home folder replaced in every text."""
    if isinstance(value, str):
        return without_home(value)
    if isinstance(value, dict):
        return {key: _without_home_anywhere(item) for key, item in value.items()}
    return [_without_home_anywhere(item) for item in value] if isinstance(value, list) else value


class ProcessLauncher:
    """Starts each launch as a process group of its own on this machine."""

    def launch(self, order: Order, tick: Tick = no_tick) -> Launched:
        """Carry out one launch; the processes it started are gone when this returns or raises."""
        directory = _control_directory(_as_understood(order))
        try:
            start = time.monotonic()
            ended_by_us, returncode, killed = self._run(order, directory, tick)
            wall_seconds = time.monotonic() - start
            return Launched(_outcome(order, directory, ended_by_us, returncode, killed), wall_seconds)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _run(self, order: Order, directory: Path, tick: Tick) -> tuple[bool, int, int]:
        command = [str(order.interpreter), "-I", str(order.guest or GUEST_DIRECTORY), str(directory)]
        before = oom_kills()
        variables = {**guest_environment(order.variables), MARK: str(directory)}
        with (directory / "stderr").open("wb") as stderr:
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # never parsed; an adapter that prints at each step fills no disk
                    stderr=stderr,
                    env=variables,
                    cwd=directory,
                    start_new_session=True,
                )
            except OSError as error:
                stderr.write(f"{order.interpreter} cannot be started: {error.strerror}".encode())
                return False, _NOT_STARTED, 0
        try:
            ended = _wait(child, order.timeout, lambda: tick(directory))
            if not ended:
                _signal_group(child, signal.SIGTERM)
                _wait(child, _GRACE_SECONDS, lambda: None)
            return not ended, _reap(child), oom_kills() - before
        finally:
            _reap(child)
            _end_strays(str(directory))


def _as_understood(order: Order) -> Launch:
    """Return the launch as its guest reads it: adapters from before networks were data know theirs by name."""
    if order.guest is None or (order.guest / "families").is_dir():
        return order.launch
    return order.launch._replace(cell=order.launch.cell._replace(specification=""), network=None)


def _control_directory(launch: Launch) -> Path:
    """Return a new folder with ``cell.json`` in it; raises FrameworkEnvironmentError where there is no room for it."""
    directory = None
    try:
        directory = Path(tempfile.mkdtemp(prefix="dlbench-launch-"))
        write_launch(str(directory), launch)
        return directory
    except OSError as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise FrameworkEnvironmentError(
            f"A launch cannot write its folder for temporary files: {error.strerror or error}. Make room there, or set "
            "TMPDIR to a folder you may write to; --resume continues."
        ) from error


def _reap(child: "subprocess.Popen[bytes]") -> int:
    """Kill whatever is left of the child's process group, forked helpers too; return the child's exit code."""
    _signal_group(child, signal.SIGKILL)
    return child.wait()


def _end_strays(mark: str) -> None:
    """Kill what a launch left behind in sessions of its own: it would disturb every later measurement."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                process.kill()


def of_a_launch(pid: int) -> bool | None:
    """Tell whether a process belongs to a launch; None where no such process can be seen.

    One that left its launch's tree still carries the mark. There is one launch at a time on a machine.
    """
    descends = descends_from_this_process(pid)
    if descends is not False:
        return descends
    try:
        return MARK in psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False


def _signal_group(child: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _wait(child: "subprocess.Popen[bytes]", seconds: float, tick: Callable[[], None]) -> bool:
    """Wait for the child without spinning; False when it is still there after this many seconds."""
    deadline = time.monotonic() + seconds
    with _ended(child) as wait:
        while child.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            wait(min(left, _TICK_SECONDS))
            tick()
    return True


@contextlib.contextmanager
def _ended(child: "subprocess.Popen[bytes]") -> Iterator[Callable[[float], object]]:
    """Give a call that sleeps until the child ends or so many seconds are over.

    On Linux through a pidfd: ``Popen.wait`` with a time-out polls, and wakes a core that may be measuring.
    """
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        descriptor = -1
    if descriptor < 0:

        def poll(seconds: float) -> None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(seconds)

        yield poll
        return
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        try:
            yield selector.select
        finally:
            os.close(descriptor)


def _last_lines(path: Path) -> str:
    text = path.read_bytes()[-4000:].decode("utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return without_home(" | ".join(lines[-_STDERR_LINES:]))[-600:]


def _outcome(order: Order, directory: Path, ended_by_us: bool, returncode: int, killed: int) -> Outcome:
    if ended_by_us:
        phase = read_phase(directory)[0]
        during = f" during {phase}" if phase else ""
        return Outcome(Status.TIMED_OUT, f"ended after {order.timeout:g} s{during}")
    try:
        outcome = read_outcome(str(directory))
        return outcome._replace(reason=without_home(outcome.reason), software=_without_home_anywhere(outcome.software))
    except OSError:
        pass
    except ProtocolError as error:
        return Outcome(Status.CRASHED, f"its answer cannot be read: {error}")
    said = _last_lines(directory / "stderr")
    tail = f"; last words: {said}" if said else ""
    if returncode == -signal.SIGKILL and killed > 0:
        return Outcome(Status.OUT_OF_MEMORY, "killed by the kernel: the machine or its cgroup ran out of memory")
    if returncode < 0:
        name = next((each.name for each in signal.Signals if each == -returncode), "unknown")
        return Outcome(Status.CRASHED, f"ended by signal {-returncode} ({name}){tail}")
    return Outcome(Status.CRASHED, f"exit code {returncode}, no answer{tail}")


def read_phase(directory: Path) -> tuple[str, float | None]:
    """Return the phase the guest says it is in and that phase's expected seconds, where it has said so."""
    try:
        content = json.loads((directory / PHASE_FILE).read_text(encoding="utf-8"))
        return str(content["phase"]), content["expected_seconds"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", None

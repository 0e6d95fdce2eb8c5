"""Carries out one launch, data in and data out: ``launch_process`` starts the framework's interpreter.

A `Launcher` is any function that does so; tests replace it by one that answers at once.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from dlbench.adapters.launch import parity
from dlbench.adapters.launch.evidence import oom_kills
from dlbench.adapters.networks import from_data
from dlbench.adapters.protocol import HOST_LINE, Launch, Outcome, Status, write_launch
from dlbench.hardware_probe.telemetry import descends_from_this_process

from ..errors import FrameworkEnvironmentError
from ..planning.framework import GUEST_DIRECTORY
from .monitor import LaunchMonitor
from .outcomes import bytes_in, outcome_of
from .supervisor import TAIL_BYTES

# What a guest may see of the user's environment. Anything else (PYTHONPATH, OMP_NUM_THREADS, LD_PRELOAD, ...) would
# make a number depend on the shell it was started from.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "TZ")
_TICK_SECONDS = 0.5
_SUSPENDED_SECONDS = 1.5  # between two looks: this process was stopped
_POLL_SECONDS = 0.05  # where the system does not report the end of a process
_GRACE_SECONDS = 3.0
_MOST_BYTES = 2 * 1024**3  # in a launch's folder, which holds its temporary files too
_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class LaunchRequest:
    """A launch with all that is needed to carry it out."""

    launch: Launch
    interpreter: Path
    variables: dict[str, str]
    timeout: float  # seconds from start to end
    guest: Path | None = None  # the folder of adapters to run; None: this installation's own
    reference: Path | None = None  # of its parity check
    computes: bool = True  # False: the framework says of itself that it computes nothing
    first_losses: tuple[float, ...] | None = None
    """Losses of an earlier launch that this one's must agree with, where only the guest knows the mathematics."""

    @property
    def check_steps(self) -> tuple[int, ...]:
        """How many steps the parity check may have: as many as the reference holds, none without mathematics."""
        if self.launch.network is not None and not from_data(self.launch.network).family.specified:
            return ()
        if self.reference is None:
            return (1,)
        try:
            return parity.steps_in(str(self.reference))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise FrameworkEnvironmentError(
                f"The reference {self.reference} cannot be read ({error}). Remove it: it is computed again."
            ) from error


@dataclass(frozen=True)
class Launched:
    """The outcome of a launch, and how long all of it took, in seconds."""

    outcome: Outcome
    wall_seconds: float
    suspended: bool = False
    """Whether this process was stopped meanwhile, so that its observations are worthless."""


Tick = Callable[[Path], None]
"""Called now and then during a launch, with its control directory."""
Launcher = Callable[[LaunchRequest, Tick], Launched]


def no_tick(directory: Path) -> None:
    """Show nothing."""


def guest_environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the whole environment of a guest: a few inherited variables, and the launch's own."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**kept, **variables, "DLBENCH_VARIABLES": ",".join(sorted(variables))}


def launch_process(request: LaunchRequest, tick: Tick = no_tick) -> Launched:
    """Carry out one launch in a process group of its own; its processes are gone when this returns or raises."""
    check_steps = request.check_steps
    directory = _control_directory(request.launch)
    ours, theirs = socket.socketpair()
    try:
        start, kills = time.monotonic(), oom_kills()
        child = _start(request, directory, theirs.fileno())
        theirs.close()
        monitor = LaunchMonitor(ours, child.pid, check_steps)
        try:
            ended, suspended = _wait(child, request.timeout, monitor, directory, tick)
            if ended:
                signal_group(child.pid, signal.SIGTERM)
                _wait(child, _GRACE_SECONDS, monitor, directory, no_tick)
            stderr = _reap(child)
            kills = oom_kills() - kills
        finally:
            _reap(child)
            end_strays(str(directory))
        wall_seconds = time.monotonic() - start
        outcome = outcome_of(request.launch, directory, monitor, child.returncode, stderr, ended, kills)
        return Launched(outcome, wall_seconds, suspended)
    finally:
        ours.close()
        theirs.close()
        shutil.rmtree(directory, ignore_errors=True)


def _start(request: LaunchRequest, directory: Path, line: int) -> "subprocess.Popen[bytes]":
    """Start the supervisor, which starts the guest."""
    supervisor = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(os.getpid()), str(line)]
    command = [str(request.interpreter), "-I", str(request.guest or GUEST_DIRECTORY), str(directory)]
    own = {"TMPDIR": str(directory / "tmp"), HOST_LINE: str(line), MARK: str(directory)}
    child = subprocess.Popen(
        supervisor + command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, MARK: str(directory)},
        cwd=directory,
        pass_fds=(line,),
        start_new_session=True,
    )
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(json.dumps({**guest_environment(request.variables), **own}).encode())
    return child


def _control_directory(launch: Launch) -> Path:
    """Return a new folder with ``cell.json`` in it; raises FrameworkEnvironmentError where there is no room for it."""
    directory = None
    try:
        directory = Path(tempfile.mkdtemp(prefix="dlbench-launch-")).absolute()  # the guest stands in it
        (directory / "tmp").mkdir()
        write_launch(str(directory), launch)
        return directory
    except OSError as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise FrameworkEnvironmentError(
            f"A launch cannot write its folder for temporary files: {error.strerror or error}. Make room there, or set "
            "TMPDIR to a folder you may write to; --resume continues."
        ) from error


def _reap(child: "subprocess.Popen[bytes]") -> str:
    """End what is left of a launch, wait for its supervisor, and return the end of the guest's stderr."""
    if child.poll() is None:
        end_tree(child.pid)
    signal_group(child.pid, signal.SIGKILL)
    child.wait()
    assert child.stderr is not None
    if child.stderr.closed:
        return ""
    # Only the supervisor, which has ended, held the other end.
    with child.stderr as stream:
        return stream.read(2 * TAIL_BYTES).decode("utf-8", errors="replace")


def _wait(
    child: "subprocess.Popen[bytes]", seconds: float, monitor: LaunchMonitor, directory: Path, tick: Tick
) -> tuple[tuple[Status, str] | None, bool]:
    """Wait for the child without spinning; return why it must be ended, and whether this process was stopped."""
    awake, suspended = time.monotonic(), False
    deadline, next_tick = awake + seconds, awake + _TICK_SECONDS
    with _news(child, monitor) as wait:
        while child.poll() is None:
            now = time.monotonic()
            if now >= deadline:
                return (Status.TIMED_OUT, f"ended after {seconds:g} s"), suspended
            wait(max(0.0, min(deadline, next_tick) - now))
            asleep, awake = awake, time.monotonic()
            suspended |= awake - asleep > _SUSPENDED_SECONDS
            if awake >= next_tick:
                next_tick = awake + _TICK_SECONDS
                tick(directory)
                if bytes_in(directory, _MOST_BYTES) > _MOST_BYTES:
                    reason = f"ended: it wrote more than {_MOST_BYTES // 1024**3} GiB into its folder"
                    return (Status.CRASHED, reason), suspended
    return None, suspended


@contextlib.contextmanager
def _news(child: "subprocess.Popen[bytes]", monitor: LaunchMonitor) -> Iterator[Callable[[float], None]]:
    """Give a function that sleeps until the child ends, the guest writes, or the given seconds are over.

    On Linux through a pidfd: ``Popen.wait`` with a time-out polls, and wakes a core that may be measuring.
    """
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        descriptor = -1
    with selectors.DefaultSelector() as selector:
        if descriptor >= 0:
            selector.register(descriptor, selectors.EVENT_READ)
        if not monitor.over:
            selector.register(monitor.line, selectors.EVENT_READ)

        def wait(seconds: float) -> None:
            for key, _ in selector.select(seconds if descriptor >= 0 else min(seconds, _POLL_SECONDS)):
                if key.fileobj is monitor.line and not monitor.listen():
                    selector.unregister(monitor.line)

        try:
            yield wait
        finally:
            if descriptor >= 0:
                os.close(descriptor)


MARK = "DLBENCH_LAUNCH"
"""The variable by which a launch's processes are known, in whatever session they are."""


def of_a_launch(pid: int) -> bool | None:
    """Return whether a process belongs to a launch; None where it cannot be seen.

    One that left its launch's tree still carries the mark. There is one launch at a time on a machine.
    """
    descends = descends_from_this_process(pid)
    if descends is not False:
        return descends
    try:
        return MARK in psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a launch's process group, which may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_tree(root: int) -> None:
    """Kill all descendants of a process, those first that it started last."""
    with contextlib.suppress(psutil.Error):
        for process in reversed(psutil.Process(root).children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                process.kill()


def end_strays(mark: str) -> None:
    """Kill the processes that a launch left in other sessions: they would disturb later measurements."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                process.kill()

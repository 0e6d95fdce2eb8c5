"""Jobs on this machine, one process tree each: to try a fleet without a cluster. Its nodes are made up: local-1, ..."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from ...display.screen import counted
from ...errors import FrameworkEnvironmentError, UsageError
from . import submitted
from .scheduler import ENDED, GONE, RUNNING, Seen, Wanted

_NODE = re.compile(r"local-[1-9][0-9]*")
_HANDLE = re.compile(r"(?P<pid>[0-9]+):(?P<started>[0-9.]+):(?P<node>.*)")
#: The clock by which a start is told may be set meanwhile; a number is not given to another process that soon.
_SAME_START_SECONDS = 2.0
_STANDARD = 0, 1, 2
_NO_LIMIT_MINUTES = 10 * 365 * 24 * 60
#: In the command line of a job's process until the command takes its place; it ignores SIGTERM.
_BEFORE_THE_COMMAND = "submitit.core._submit"


class Local:
    """Jobs of this machine; a handle holds process id, start time and node, so that any process may ask later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._jobs: list[Any] = []  # one that is forgotten leaves its ended process uncollected

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return local-1, local-2, ...: as many as are asked for, else one."""
        submitted.need_submitit()  # before anything is kept of a fleet
        for name in named:
            if not self.usable(name):
                raise UsageError(f"There is no node {name!r}: this machine's are called local-1, local-2 and so on.")
        pool = list(dict.fromkeys(named)) or [f"local-{number}" for number in range(1, (count or 1) + 1)]
        if count is not None and len(pool) < count:
            raise UsageError(f"{counted(count, 'node')} asked for, {len(pool)} named.")
        return pool[:count]

    def submit(self, wanted: Wanted) -> str:
        """Start a job beside the others of this machine; none waits for another here."""
        submitted.need_submitit()
        import submitit

        try:
            executor = submitit.LocalExecutor(self._folder)
            executor.update_parameters(timeout_min=_NO_LIMIT_MINUTES, stderr_to_stdout=True)
            with _out_of_the_terminals_reach():
                job = submitted.submit(executor, wanted.command, _gpus_of_this_process())
            started = psutil.Process(int(job.job_id)).create_time()
        except (OSError, psutil.Error) as error:
            raise FrameworkEnvironmentError(f"Job {wanted.number} could not be started: {error}.") from error
        self._jobs.append(job)
        return f"{job.job_id}:{started:.2f}:{wanted.node or 'local-1'}"

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Return whether each job's process is there."""
        self._jobs = [job for job in self._jobs if not job.done()]
        return {handle: _seen(handle) for handle in handles}

    def cancel(self, handles: Sequence[str]) -> None:
        """End each job's command by SIGTERM."""
        for handle in handles:
            controller = _process(handle)
            if controller is not None:
                with contextlib.suppress(psutil.Error):
                    _end(controller)

    def log(self, handle: str) -> Path | None:
        """Return the file that the job writes to."""
        return submitted.log_of(self._folder, handle.split(":")[0])

    def usable(self, node: str) -> bool:
        """Tell whether a node has a name as this machine's have."""
        return _NODE.fullmatch(node) is not None


def _seen(handle: str) -> Seen:
    told = _HANDLE.fullmatch(handle)
    if told is None:
        return Seen(GONE)
    return Seen(ENDED if _process(handle) is None else RUNNING, "", told["node"])


def _process(handle: str) -> psutil.Process | None:
    """Return the process that looks after a job, which ends with it; None where it has ended."""
    told = _HANDLE.fullmatch(handle)
    if told is None:
        return None
    try:
        process = psutil.Process(int(told["pid"]))
        same = abs(process.create_time() - float(told["started"])) <= _SAME_START_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def _end(controller: psutil.Process) -> None:
    """Send SIGTERM to a job's command, which ends its own processes; one that has not begun is killed."""
    controller.suspend()  # so that it starts nothing meanwhile
    try:
        commands = controller.children()
        if not commands:
            controller.kill()
        for command in commands:
            with contextlib.suppress(psutil.NoSuchProcess):
                if _BEFORE_THE_COMMAND in command.cmdline():
                    command.kill()
                else:
                    command.terminate()
    finally:
        controller.resume()


@contextlib.contextmanager
def _out_of_the_terminals_reach() -> Iterator[None]:
    """Let what is started here outlive this process, its terminal and its pipes, as a cluster's jobs do.

    Whoever reads a pipe of this process would otherwise wait for the jobs to end: they would hold it open.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    nowhere = os.open(os.devnull, os.O_RDWR)
    kept = [os.dup(number) for number in _STANDARD]
    try:
        for number in _STANDARD:
            os.dup2(nowhere, number)
        yield
    finally:
        for number, copy in zip(_STANDARD, kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gpus_of_this_process() -> tuple[str, ...]:
    # submitit hides every GPU from a job that does not ask for some of them.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ("-u", "CUDA_VISIBLE_DEVICES") if visible is None else (f"CUDA_VISIBLE_DEVICES={visible}",)

"""Jobs on this machine, one process tree each, to try a fleet without a cluster. Its nodes are local-1, local-2, ..."""

import contextlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

from ..display.screen import counted
from ..errors import FrameworkEnvironmentError, UsageError
from .jobs import Seen

_NODE = re.compile(r"local-[1-9][0-9]*")
_SAME_START_SECONDS = 2.0
"""The clock may be set meanwhile; a process id is not reused that soon."""


class Local:
    """Jobs of this machine; a handle is a process id, its start time and the node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []  # referenced, so that ended ones are collected

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return local-1, local-2, ...: as many as are asked for, else one."""
        for name in named:
            if not _NODE.fullmatch(name):
                raise UsageError(f"There is no node {name!r}: this machine's are called local-1, local-2 and so on.")
        pool = list(dict.fromkeys(named)) or [f"local-{number}" for number in range(1, (count or 1) + 1)]
        if count is not None and len(pool) < count:
            raise UsageError(f"{counted(count, 'node')} asked for, {len(pool)} named.")
        return pool[:count]

    def submit(self, node: str, command: Sequence[str]) -> str:
        """Start a job in a session of its own: it outlives this process and its terminal, as a cluster's jobs do."""
        try:
            with self._log(node).open("ab") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            self._processes.append(process)
            return f"{process.pid}:{psutil.Process(process.pid).create_time():.2f}:{node}"
        except (OSError, psutil.Error) as error:
            raise FrameworkEnvironmentError(f"The job on {node} could not be started: {error}.") from error

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Return whether each job's process exists."""
        return {handle: ("running" if _process(handle) else "ended", "") for handle in handles}

    def cancel(self, handles: Sequence[str]) -> None:
        """End each job by SIGTERM."""
        for handle in handles:
            if (process := _process(handle)) is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()

    def log(self, handle: str) -> Path:
        """Return the file that the job writes to."""
        return self._log(handle.rpartition(":")[2])

    def _log(self, node: str) -> Path:
        return self._folder / f"{node}.log"


def _process(handle: str) -> psutil.Process | None:
    """Return a job's process; None where it has ended."""
    number, started, _ = handle.split(":")
    try:
        process = psutil.Process(int(number))
        same = abs(process.create_time() - float(started)) <= _SAME_START_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None

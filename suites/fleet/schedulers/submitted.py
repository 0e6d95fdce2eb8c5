"""A command as a job of submitit: its pickle names a function of the standard library alone."""

import contextlib
import importlib.util
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import FrameworkEnvironmentError

if TYPE_CHECKING:
    import submitit


def need_submitit() -> None:
    """Raise FrameworkEnvironmentError where submitit is not installed: it is an extra."""
    if importlib.util.find_spec("submitit") is None:
        raise FrameworkEnvironmentError(
            "Fleets need submitit here and on every node: pip install '.[fleet]' in a clone of dlbench."
        )


def submit(executor: "submitit.Executor", command: Sequence[str], changes: Sequence[str] = ()) -> "submitit.Job[Any]":
    """Submit a command; in the job it takes the place of submitit's process.

    So it gets signals itself, its exit code is the job's, and its output goes straight into the log. submitit's own way
    (CommandFunction) holds the output back, and its process ignores SIGTERM. ``changes`` to the environment are words
    of `env`, which also says in the log which command is not there.
    """
    # What a scheduler complains about is in the exception too, which is shown once.
    with contextlib.redirect_stderr(io.StringIO()):
        return executor.submit(os.execvp, "env", ["env", *changes, *command])


def log_of(folder: Path, job: str) -> Path:
    """Return where submitit's executors let a job of one task write its output."""
    return folder.absolute() / f"{job}_0_log.out"

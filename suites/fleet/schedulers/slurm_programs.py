"""Slurm's own programs: called with this process's environment, and what they answer."""

import os
import re
import subprocess
from collections.abc import Sequence

from ...errors import FrameworkEnvironmentError

#: A controller that is away is asked for some twenty seconds by Slurm's programs themselves.
_PATIENCE_SECONDS = 60.0
#: Options that a user may have set for their own eyes: they would narrow or order the answers.
_FOR_THE_EYE = ("SQUEUE_", "SINFO_", "SCANCEL_")
_BEFORE_WORDS = re.compile(r"^\w+( error)?: (error: )?")
_NO_SUCH_JOB = "Invalid job id"
_NOT_THERE = "Slurm's {} was not found here: use a machine that submits to the cluster."


class CannotAskError(FrameworkEnvironmentError):
    """The cluster cannot be asked now; its words are the program's."""


def ask(*words: str) -> str:
    """Return what one of Slurm's programs prints; raises CannotAskError, also where it is not here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOR_THE_EYE)}
    try:
        done = subprocess.run(
            words, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_SECONDS
        )
    except FileNotFoundError as error:
        raise CannotAskError(_NOT_THERE.format(words[0])) from error
    except subprocess.TimeoutExpired as error:
        raise CannotAskError(f"{words[0]} did not answer within {_PATIENCE_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise CannotAskError(last_words(done.stderr) or f"{words[0]} failed with exit code {done.returncode}")
    return done.stdout


def last_words(complaint: str) -> str:
    """Return the last line of what a program complained about, without the program's name before it."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip() and not line.startswith("Try ")]
    words = _BEFORE_WORDS.sub("", lines[-1]) if lines else ""
    return words.removeprefix("Batch job submission failed: ").rstrip(".")


def table(answer: str, columns: int) -> list[list[str]]:
    """Return the rows of an answer with ``|`` between its columns; of the last one it may be a part.

    Other lines are left out: several clusters have their names above their rows.
    """
    rows = (line.split("|", columns - 1) for line in answer.splitlines())
    return [row for row in rows if len(row) == columns]


def queue(jobs: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Return state, node and reason of each job that the controller knows, finished ones for some minutes too.

    Raises CannotAskError. Accounting is not asked: many clusters have none.
    """
    if not jobs:
        return {}
    try:
        answer = ask("squeue", "-h", "-a", "-t", "all", "-j", ",".join(jobs), "-o", "%i|%T|%N|%r")
    except CannotAskError as error:
        # Of several jobs squeue leaves out those it does not know; asked about one alone it fails.
        if _NO_SUCH_JOB in str(error) and len(jobs) == 1:
            return {}
        if _NO_SUCH_JOB in str(error):
            return {job: told for each in jobs for job, told in queue([each]).items()}
        raise
    return {job: (state, node, reason) for job, state, node, reason in table(answer, 4)}


def cancel(jobs: Sequence[str]) -> None:
    """End jobs; those that have ended or are unknown are left out. Raises CannotAskError."""
    if not jobs:
        return
    try:
        ask("scancel", *jobs)
    except CannotAskError as error:
        if not any(sign in str(error) for sign in (_NO_SUCH_JOB, "already complet")):
            raise

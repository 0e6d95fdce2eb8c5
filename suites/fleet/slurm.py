"""Jobs on a Slurm cluster, submitted by submitit and followed by squeue and sinfo.

Slurm's accounting is not needed.
"""

import contextlib
import importlib.util
import io
import math
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlbench.reports.results.naming import counted

from ..errors import FrameworkEnvironmentError, UsageError, unknown_name
from .jobs import Seen

_STATES = {
    "waiting": (
        "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT "
        "POWER_UP_NODE"
    ),
    "running": "RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING UPDATE_DB",
    "ended": (
        "COMPLETED FAILED CANCELLED TIMEOUT DEADLINE NODE_FAIL BOOT_FAIL LAUNCH_FAILED "
        "RECONFIG_FAIL OUT_OF_MEMORY PREEMPTED REVOKED"
    ),
}
_NO_ANSWER = (
    "Unable to contact",
    "Socket timed out",
    "Connection refused",
    "Protocol authentication",
    "srun",
)
_NO_SUCH_JOB = "Invalid job id"
_NOTICE_SECONDS = 120
"""Before the time limit a job gets SIGTERM, so that `dlbench run` ends in order."""
_PATIENCE_SECONDS = 60.0
"""Slurm's programs themselves wait some twenty seconds for a controller that is away."""

_TAKES_JOBS = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
_KEEPS_JOBS_AWAY = frozenset("*$!%")
"""Marks after a state in sinfo: the node does not respond, is in maintenance, or is leaving."""
_MARKS = "*~#!%$@^-"

_NEVER_FROM_OUTSIDE = (
    "ARRAY_INX",
    "ERROR",
    "INPUT",
    "OPEN_MODE",
    "OUTPUT",
    "REQUEUE",
    "SIGNAL",
    "WAIT",
)
_KEY = re.compile(r"[a-z][a-z0-9-]*")
_SET_BY_FLEET = frozenset(
    {
        "array",
        "error",
        "input",
        "job-name",
        "nodelist",
        "nodes",
        "open-mode",
        "output",
        "parsable",
        "requeue",
        "signal",
        "wait",
        "wrap",
    }
)
_HAS_AN_OPTION = ("account", "exclusive", "partition", "qos", "time")
FURTHER = "further."  # prefix of the settings that are further options of sbatch


def further_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings for options of sbatch given as KEY=VALUE, or as KEY alone.

    Raises UsageError.
    """
    settings = {}
    for text in texts:
        key, _, value = text.partition("=")
        key = key.strip().removeprefix("--").replace("_", "-")
        if not _KEY.fullmatch(key) or not value.isprintable():
            raise UsageError(
                f"--slurm-option {text!r} is not an option of sbatch: write KEY=VALUE, such as "
                "constraint=zen4."
            )
        if key in _HAS_AN_OPTION:
            raise UsageError(
                f"--slurm-option {key}: dlbench has its own option for it; see --help."
            )
        if key.removeprefix("no-") in _SET_BY_FLEET:
            raise UsageError(f"--slurm-option {key}: dlbench sets it for each job. Leave it out.")
        settings[FURTHER + key] = value
    return settings


class Slurm:
    """Slurm as a scheduler.

    A handle is a job's number, and logs are in a folder that every node sees.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._settings = settings

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return nodes of the partition: those named, else all that take jobs.

        With ``count``, as many of them, idle ones first.
        """
        if importlib.util.find_spec("submitit") is None:
            raise FrameworkEnvironmentError(
                "Fleets on Slurm need submitit on this machine and on every node: pip install "
                "'.[fleet]' in a clone of dlbench."
            )
        known = nodes_of(self._partition())
        if any("[" in name for name in named):  # Slurm's short form: n[1-2,5]
            named = ask("scontrol", "show", "hostnames", ",".join(named)).split()
        return choose(known, count, named)

    def submit(self, node: str, command: Sequence[str]) -> str:
        """Submit a job to one node."""
        self._partition()
        import submitit

        # The shell that sbatch starts becomes the command: it alone gets the signal before the time
        # limit. In the job the command replaces submitit's process, so that it gets signals and its
        # output goes straight into the log.
        python = f"exec {shlex.quote(self._settings.get('python') or sys.executable)}"
        try:
            executor = submitit.SlurmExecutor(self._folder, python=python)
            executor.update_parameters(**parameters(self._settings, node))
            with contextlib.redirect_stderr(io.StringIO()):  # the exception has it, too
                return executor.submit(os.execvp, "env", ["env", *command]).job_id
        except RuntimeError as error:  # submitit's own errors too
            text = f"Slurm refused the job on {node}: {_without_program_name(str(error))}."
            if any(sign in text for sign in _NO_ANSWER):
                raise FrameworkEnvironmentError(text) from error
            raise UsageError(
                f"{text} Check the partition, the node and the other options for Slurm."
            ) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise FrameworkEnvironmentError(
                f"The job on {node} was not submitted: {where}{error.strerror}."
            ) from error

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Return the controller's view of each job; it forgets one some minutes after its end."""
        try:
            views = _queue(handles)
        except FrameworkEnvironmentError as error:
            return dict.fromkeys(handles, ("unknown", str(error)))
        return {handle: views.get(handle, ("gone", "")) for handle in handles}

    def cancel(self, handles: Sequence[str]) -> None:
        """End jobs by scancel: SIGTERM, and SIGKILL after the cluster's KillWait."""
        try:
            ask("scancel", *handles)
        except FrameworkEnvironmentError as error:
            if not any(sign in str(error) for sign in (_NO_SUCH_JOB, "already complet")):
                raise

    def log(self, handle: str) -> Path:
        """Return the file that the node writes to while the job runs."""
        return self._folder / f"{handle}_0_log.out"

    def _partition(self) -> str:
        """Return the partition that jobs will go to; "" = the cluster's default. Raises UsageError.

        sbatch prefers environment variables to its script's options: one that contradicts is
        refused.
        """
        given = {
            name.upper(): self._settings.get(name, "") for name in ("partition", "account", "qos")
        }
        given["TIMELIMIT"] = "set" if "minutes" in self._settings else ""
        wrong: list[str] = []
        for name, value in given.items():
            if value and os.environ.get(f"SBATCH_{name}", value) != value:
                wrong.append(name)
        wrong += [name for name in _NEVER_FROM_OUTSIDE if f"SBATCH_{name}" in os.environ]
        if wrong:
            raise UsageError(
                f"The environment variable SBATCH_{wrong[0]} would change every job. Unset it."
            )
        return given["PARTITION"] or os.environ.get("SBATCH_PARTITION", "")


def parameters(settings: Mapping[str, str], node: str) -> dict[str, Any]:
    """Return the parameters of submitit's Slurm executor for the job of one node."""
    # sbatch alone starts the job: a step by srun may be bound to some CPUs. None leaves a parameter
    # to the cluster, also where submitit has a default of its own.
    alone = settings.get("shared") != "yes"
    minutes = None
    if "minutes" in settings:
        minutes = max(1, math.ceil(float(settings["minutes"])))
    additional: dict[str, Any] = {
        "ntasks": 1,
        "no-requeue": True,
        "signal": f"B:TERM@{_NOTICE_SECONDS}",
    }
    for key, value in settings.items():
        if key.startswith(FURTHER):
            additional[key.removeprefix(FURTHER)] = value or True
    return {
        "job_name": f"dlbench-{node}",
        "partition": settings.get("partition") or None,
        "account": settings.get("account") or None,
        "qos": settings.get("qos") or None,
        "nodes": 1,
        "nodelist": node,
        "exclusive": True if alone else None,
        "mem": "0" if alone else None,
        "time": minutes,
        "wckey": None,
        "stderr_to_stdout": True,
        "use_srun": False,
        "additional_parameters": additional,
    }


def nodes_of(partition: str) -> dict[str, tuple[str, str]]:
    """Return state and reason of a partition's nodes by name.

    For "" they are those of the default partition, else all. The state is in its long form, with
    marks after it ("idle", "down*", "idle~"). The reason is why an administrator or Slurm took the
    node out. Raises UsageError for a partition that does not exist, FrameworkEnvironmentError where
    Slurm cannot be asked.
    """
    rows = _table(ask("sinfo", "-h", "-a", "-N", "-o", "%P|%N|%T|%E"), 4)
    partitions = {row[0].rstrip("*"): row[0] for row in rows}
    if partition and partition not in partitions:
        raise unknown_name("Slurm partition", partition, partitions)
    if partition:
        wanted = {partitions[partition]}
    else:
        default = [marked for marked in partitions.values() if marked.endswith("*")]
        wanted = set(default or partitions.values())
    nodes = {}
    for marked, name, state, reason in rows:
        if marked in wanted:
            nodes[name] = (state, "" if reason == "none" else reason)
    return nodes


def takes_jobs(state: str) -> bool:
    """Return whether a job could start on a node in this state, now or once others end."""
    return state.rstrip(_MARKS) in _TAKES_JOBS and not _KEEPS_JOBS_AWAY & set(state)


def choose(
    known: Mapping[str, tuple[str, str]], count: int | None, named: Sequence[str]
) -> list[str]:
    """Return the nodes to use of those known, idle ones first.

    Raises UsageError for one that takes no jobs, or for too few.
    """
    for name in named:
        if name not in known:
            raise unknown_name("node", name, known)
        state, reason = known[name]
        if not takes_jobs(state):
            because = f" ({reason})" if reason else ""
            raise UsageError(f"No job can run on {name}: it is {state}{because}. Name other nodes.")
    pool = list(dict.fromkeys(named))
    if not pool:
        pool = [name for name, (state, _) in known.items() if takes_jobs(state)]
    if not pool or (count is not None and len(pool) < count):
        wanted = "Nodes" if count is None else counted(count, "node")
        states = Counter(known[name][0] for name in dict.fromkeys(named or known))
        listed = ", ".join(f"{number} {state}" for state, number in states.most_common())
        raise UsageError(
            f"{wanted} asked for, {len(pool) or 'none'} can be used: {listed or 'there are none'}."
        )

    def is_busy(name: str) -> bool:
        return known[name][0].rstrip(_MARKS) != "idle"

    return sorted(pool, key=is_busy)[:count]


def ask(*words: str) -> str:
    """Return the output of one of Slurm's programs.

    Raises FrameworkEnvironmentError, also without the program.
    """
    # A user's own settings for these programs would narrow or sort the output.
    prefixes = ("SQUEUE_", "SINFO_", "SCANCEL_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    try:
        done = subprocess.run(
            words,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
        )
    except FileNotFoundError as error:
        raise FrameworkEnvironmentError(
            f"Slurm's {words[0]} was not found: run this on a machine that submits to the cluster."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise FrameworkEnvironmentError(
            f"{words[0]} did not respond within {_PATIENCE_SECONDS:.0f} s"
        ) from error
    if done.returncode != 0:
        raise FrameworkEnvironmentError(
            _without_program_name(done.stderr)
            or f"{words[0]} failed with exit code {done.returncode}"
        )
    return done.stdout


def _without_program_name(complaint: str) -> str:
    """Return the last line of a program's complaint, without the program's name before it."""
    last = ""
    for line in complaint.splitlines():
        if line.strip() and not line.startswith("Try "):
            last = line.strip()
    text = re.sub(r"^\w+( error)?: (error: )?", "", last)
    return text.removeprefix("Batch job submission failed: ").rstrip(".")


def _table(answer: str, columns: int) -> list[list[str]]:
    """Return the rows of an answer with ``|`` between its columns; other lines are headings."""
    rows = [line.split("|", columns - 1) for line in answer.splitlines()]
    return [row for row in rows if len(row) == columns]


def _queue(jobs: Sequence[str]) -> dict[str, Seen]:
    """Return the view of each job that the controller knows; accounting is not needed."""
    if not jobs:
        return {}
    views: dict[str, Seen] = {}
    try:
        answer = ask("squeue", "-h", "-a", "-t", "all", "-j", ",".join(jobs), "-o", "%i|%T|%r")
    except FrameworkEnvironmentError as error:
        # For several jobs squeue leaves out those it does not know. For a single one it fails.
        if _NO_SUCH_JOB not in str(error):
            raise
        if len(jobs) > 1:
            for job in jobs:
                views.update(_queue([job]))
        return views
    for job, word, reason in _table(answer, 3):
        text = word if reason in ("None", "") else f"{word} ({reason})"
        views[job] = (_state_of_word(word), text)
    return views


def _state_of_word(word: str) -> str:
    for state, words in _STATES.items():
        if word in words.split():
            return state
    return "unknown"

"""The errors of the host side, and every exit code.

An error is one sentence on the problem, and one on its remedy. The constants below are the nonzero
exit codes of commands that completed.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping

# The base of this room's errors, too.
from dlbench.reports.results.errors import DlbenchError as DlbenchError
from dlbench.reports.results.selection import suggestion

NOTHING_MEASURED = 1  # `run` and `explain`: not one cell gave a number; `tune`: no pair
FLEET_INCOMPLETE = 1  # `fleet run`, `fleet status`: a job was refused, failed or was lost
# The exit codes of `gate`, `compare` and `bisect`.
GATE_FAILED = 1  # a regression is confirmed; `bisect`: and the first slower candidate is known
GATE_BROKEN = 5  # the candidate gave no number where the baseline did
GATE_UNDECIDED = 6  # no regression is confirmed, but a cell has too little evidence to exclude one
GATE_DIFFERENT = 7  # the candidate computes something else than the baseline
_OF_TWO_SIDES = {
    "passed": 0,
    "regression": GATE_FAILED,
    "broken": GATE_BROKEN,
    "different": GATE_DIFFERENT,
    "undecided": GATE_UNDECIDED,
}
EXIT_CODES: Mapping[str, Mapping[str, int]] = {
    "gate": _OF_TWO_SIDES,
    "compare": _OF_TWO_SIDES,
    "bisect": {
        "no slowdown": 0,
        "found": GATE_FAILED,
        "broken": GATE_BROKEN,
        "different": GATE_DIFFERENT,
        "several changes": GATE_UNDECIDED,
        "no number": GATE_UNDECIDED,
        "undecided": GATE_UNDECIDED,
    },
    "releases": {"unchanged": 0, "changed": 0, "no number": NOTHING_MEASURED},
    "tune": {"faster": 0, "default": 0, "undecided": 0, "no number": NOTHING_MEASURED},
    "history": {"unchanged": 0, "pending": 0, "changed": 0},
    "doctor": {"fine": 0, "unknown": 0, "may harm": 0, "harms": 0},
}
"""The exit code of each verdict in a command's JSON."""


class SuitesError(DlbenchError):
    """Base of this room's errors."""

    exit_code = 2


class UsageError(SuitesError):
    """A wrong value of an axis, name or option."""


class SuiteError(UsageError):
    """A suite file that cannot be read as one; names the file and the key."""


class FrameworkEnvironmentError(SuitesError):
    """An interpreter or an environment that is missing, broken or cannot be built."""

    exit_code = 3


class IndexUnreachableError(FrameworkEnvironmentError):
    """A package index that cannot be reached. Environments that are built can still be used."""


class Interrupted(SuitesError):  # noqa: N818 - the user ended the run: no error
    """Ctrl-C ended the run; every finished record is stored."""

    exit_code = 130


class Terminated(Interrupted):
    """SIGTERM ended the run; every finished record is stored."""

    exit_code = 143


class HungUp(Terminated):
    """SIGHUP ended the run: its terminal was closed; every finished record is stored."""

    exit_code = 129


@contextlib.contextmanager
def interruptible(resume: str) -> Iterator[None]:
    """Name the command that resumes the run if Ctrl-C or a signal ends it."""
    advice = f"Every finished launch is stored. Resume: {resume}"
    try:
        yield
    except Terminated as error:
        raise type(error)(f"{error} {advice}") from error
    except KeyboardInterrupt as error:
        raise Interrupted(f"Interrupted. {advice}") from error


def unknown_name(kind: str, name: str, known: Iterable[str], most: int = 1) -> UsageError:
    """Return the error for a name that does not exist, with the ``most`` nearest that do."""
    return UsageError(f"There is no {kind} named {name!r}. {suggestion(name, known, most)}")

"""What became of a launch: the answer of its guest, where that can be believed, or how its processes ended."""

import signal
from dataclasses import dataclass
from pathlib import Path

from dlbench.adapters.protocol import PROFILE, TRAINING, Launch, Outcome, Status
from dlbench.reports.formats.inert import one_line

from .answers import read_answer
from .control import UnreadableError, read_phase
from .witness import Witness

_LAST_LINES = 4
_LONGEST = 1000


@dataclass(frozen=True)
class Ending:
    """How a launch's processes ended."""

    code: int
    said: str = ""
    """The end of what they wrote to stderr."""
    late: str = ""
    """Why the host ended them, where their time was over."""
    too_much: str = ""
    """Why the host ended them, where they took what they may not."""
    oom_kills: int = 0
    """Of the kernel, on the whole machine, meanwhile."""


def outcome_of(launch: Launch, directory: Path, ending: Ending, witness: Witness | None) -> Outcome:
    """Return the outcome of a launch; without a witness its guest is one of an older version, which judged itself."""
    if ending.too_much:
        return Outcome(Status.CRASHED, ending.too_much)
    phase = read_phase(directory)[0] if ending.late else ""
    if ending.late and not _measured_before(phase):
        return Outcome(Status.TIMED_OUT, f"{ending.late} during {phase}" if phase else ending.late)
    try:
        outcome = read_answer(directory, launch, judges_itself=witness is None)
        outcome = outcome._replace(reason=one_line(outcome.reason, _LONGEST))
        if phase == PROFILE:
            outcome = outcome._replace(software={**outcome.software, "profile_failed": ending.late})
        if witness is None or outcome.status is not Status.OK or launch.only_capabilities:
            return outcome
        return _witnessed(outcome, witness)
    except FileNotFoundError:
        if witness is not None and witness.wrong:
            return Outcome(Status.CRASHED, one_line(f"its answer cannot be believed: {witness.wrong}", _LONGEST))
        return _without_answer(ending)
    except UnreadableError as error:
        return Outcome(Status.CRASHED, one_line(f"its answer cannot be believed: {error}", _LONGEST))


def _measured_before(phase: str) -> bool:
    """Tell whether the measurement was safe on disk when this phase began: it is not lost with what comes after it."""
    return phase == PROFILE or phase.startswith(TRAINING)


def _witnessed(outcome: Outcome, witness: Witness) -> Outcome:
    """Return an answer with what the host saw; raises UnreadableError where the one does not fit the other."""
    outside = witness.outside()
    if outside is None:
        raise UnreadableError(witness.wrong or "it came without the parity check that was asked for")
    if witness.timed_steps != outcome.observed_steps():
        raise UnreadableError(f"it tells of {outcome.observed_steps()} timed steps, and of {witness.timed_steps}")
    return outcome._replace(outside=outside)


def _without_answer(ending: Ending) -> Outcome:
    lines = [line.strip() for line in ending.said.splitlines() if line.strip()]
    said = one_line(" | ".join(lines[-_LAST_LINES:])[-600:])
    tail = f"; last words: {said}" if said else ""
    if ending.code == -signal.SIGKILL and ending.oom_kills > 0:
        return Outcome(Status.OUT_OF_MEMORY, "killed by the kernel: the machine or its cgroup ran out of memory")
    if ending.code < 0:
        name = next((each.name for each in signal.Signals if each == -ending.code), "unknown")
        return Outcome(Status.CRASHED, f"ended by signal {-ending.code} ({name}){tail}")
    return Outcome(Status.CRASHED, f"exit code {ending.code}, no answer{tail}")

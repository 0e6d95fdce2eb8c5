"""What a fleet asks of a scheduler: nodes, jobs started and ended, and what became of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

State = Literal["waiting", "running", "ended", "gone", "unknown"]

WAITING: State = "waiting"
RUNNING: State = "running"
ENDED: State = "ended"
GONE: State = "gone"
"""The scheduler knows no such job, or none any more."""
UNKNOWN: State = "unknown"
"""The scheduler cannot be asked now; the job may run."""


@dataclass(frozen=True)
class Wanted:
    """What is to be started."""

    number: int
    """The job's number in its fleet."""
    node: str
    """Where; "" = anywhere."""
    command: tuple[str, ...]
    """Its words; environment variables and folder are this process's own."""


@dataclass(frozen=True)
class Seen:
    """What a scheduler knows of a job now."""

    state: State
    words: str = ""
    """The scheduler's own, such as "PENDING (Resources)" or "NODE_FAIL"; or why it cannot be asked."""
    node: str = ""
    """Where the job runs or ran; "" = nobody told."""


class Scheduler(Protocol):
    """Starts jobs; every method may be called from another process than the one that submitted."""

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return the nodes to use: those named, or all; of more than ``count`` those first that are idle.

        Raises UsageError where a node does not exist or cannot be used, or where there are fewer than asked for.
        """
        ...

    def submit(self, wanted: Wanted) -> str:
        """Start a job and return its handle; raises UsageError or FrameworkEnvironmentError where it is refused."""
        ...

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Return what is known of each of these jobs now; raises nothing."""
        ...

    def cancel(self, handles: Sequence[str]) -> None:
        """End these jobs as SIGTERM ends a command, without waiting for it; one that has ended is no error.

        Raises UsageError or FrameworkEnvironmentError where that cannot be done.
        """
        ...

    def log(self, handle: str) -> Path | None:
        """Return the file of a job's output and errors, which may not exist yet; None where nobody can know."""
        ...

    def usable(self, node: str) -> bool:
        """Tell whether a job could start on this node, now or once others end: it is not down, drained or gone."""
        ...

"""What a fleet needs of a scheduler, whichever it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

WAITING, RUNNING, ENDED, GONE, UNKNOWN = "waiting", "running", "ended", "gone", "unknown"


@dataclass(frozen=True)
class Wanted:
    """What is to be started."""

    number: int
    node: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What a scheduler knows of a job now."""

    state: str
    words: str = ""
    node: str = ""


class Scheduler(Protocol):
    """A scheduler."""

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]: ...
    def submit(self, wanted: Wanted) -> str: ...
    def seen(self, handles: Sequence[str]) -> dict[str, Seen]: ...
    def cancel(self, handles: Sequence[str]) -> None: ...
    def log(self, handle: str) -> Path | None: ...
    def usable(self, node: str) -> bool: ...

"""The heartbeat of a fleet's job: one small write now and then, while a run measures."""

import contextlib
import threading
from types import TracebackType
from typing import Self

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.store import Store

BEAT_SECONDS = 20.0
"""A beat takes the host's side about a millisecond of a CPU."""
LOST_SECONDS = 60.0
"""After so long without a beat a job is called lost: two may fail on their way."""


class Heartbeat:
    """A context manager: beats from its beginning to its end, each time through a connection of its own.

    A store that is away ends nothing: the next beat may arrive.
    """

    def __init__(self, target: str, fleet: str, number: int, seconds: float = BEAT_SECONDS) -> None:
        self._target, self._job, self._seconds = target, (fleet, number), seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=self._seconds)

    def _beat(self) -> None:
        while True:
            with contextlib.suppress(StoreError), Store.open(self._target, create=False) as store:
                fleets.beat(store, *self._job)
            if self._ended.wait(self._seconds):
                return

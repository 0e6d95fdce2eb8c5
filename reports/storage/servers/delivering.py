"""A store on a server while a run writes to it: everything is kept on this machine too, until the server has it.

A server that stops in the middle of a run costs nothing then: the run goes on, what the server lacks waits here, and is
delivered once the server is back, by this run or a later one.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.servers import copying
from dlbench.reports.storage.store import Store

RETRY_SECONDS = 60.0
"""After so long a server that was away is asked again, between two launches."""

_Answer = TypeVar("_Answer")


class DeliveringStore(Store):
    """What a run knows of a store on a server: its own records, kept here and delivered one by one.

    Until a run has begun the server must be there: errors are raised as by any store. Later ones are told to
    ``report``. It closes the store of the server, and leaves the one of this machine open.
    """

    def __init__(
        self,
        server: Store,
        here: Store,
        report: Callable[[str], None],
        unfinished: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take both stores; ``unfinished`` is the id of a run on the server that goes on. Raises StoreError."""
        super().__init__(here.engine, server.name)
        self._place = here.name
        self._server, self._here, self._report, self._clock = server, here, report, clock
        self.begun = unfinished is not None
        """Whether a run has begun: until then there is nothing to be delivered."""
        self._asked_at: float | None = None
        """When a server that is away was last asked."""
        self.delivered = True
        """Whether the server has all that is kept here, as far as is known."""
        if unfinished is not None:
            copying.copy_run(server, here, unfinished)

    def close(self) -> None:
        """Deliver what waits, if the server is back, and leave it."""
        if not self.delivered and self.begun:
            self._deliver()
        if not self.delivered and self.begun:
            self._report(
                f"Not everything was delivered to {self.name}: it waits in {self._place}. `dlbench store deliver` "
                "delivers it, and so does the next run into that store."
            )
        self._server.close()

    def add_machine(self, fingerprint: str, machine: Mapping[str, Any]) -> None:
        """Keep a machine's description; see Store."""
        super().add_machine(fingerprint, machine)
        self._pass_on(lambda server: server.add_machine(fingerprint, machine))

    def save_ceilings(self, fingerprint: str, ceilings: Mapping[str, Any]) -> None:
        """Keep the measured ceilings of a machine; see Store."""
        super().save_ceilings(fingerprint, ceilings)
        self._pass_on(lambda server: server.save_ceilings(fingerprint, ceilings))

    def begin_run(self, run: Run) -> None:
        """Keep a run that starts now; see Store."""
        self._server.begin_run(run)
        super().begin_run(run)
        self.begun = True

    def catch_up(self, run: str) -> None:
        """Copy what other processes added to a run on the server, if that is there; see Store."""
        with contextlib.suppress(StoreError):
            copying.copy_run(self._server, self._here, run)

    def finish_run(self, run: str, when: datetime) -> None:
        """Note that a run came to its end; see Store."""
        super().finish_run(run, when)
        self._pass_on(lambda server: server.finish_run(run, when))

    def append(self, record: Record) -> None:
        """Keep a record: it is on the disk of this machine, or of the server too, when this returns."""
        super().append(record)
        self._pass_on(lambda server: server.append(record))

    def add_sentinel(self, run: str, block: int, moment: str, content: Mapping[str, Any]) -> None:
        """Keep what the sentinel showed; see Store."""
        super().add_sentinel(run, block, moment, content)
        self._pass_on(lambda server: server.add_sentinel(run, block, moment, content))

    def ceilings(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the measured ceilings of a machine; see Store."""
        return super().ceilings(fingerprint) or self._asked(lambda server: server.ceilings(fingerprint), None)

    def runs(self) -> list[Run]:
        """Return every run, the oldest first; while the server is away those of this session."""
        return self._asked(lambda server: server.runs(), None) or super().runs()

    def sentinels(self, run: str) -> list[tuple[int, str, dict[str, Any]]]:
        """Return the sentinels of a run; see Store."""
        return super().sentinels(run) or self._asked(lambda server: server.sentinels(run), [])

    def _asked(self, question: Callable[[Store], _Answer], otherwise: _Answer) -> _Answer:
        if self._asked_at is None:
            try:
                answer = question(self._server)
                self._rest()
                return answer
            except StoreError as error:
                self._refused(error)
        return otherwise

    def _rest(self) -> None:
        """Hold no connection between launches: a thousand machines must not need a thousand of them."""
        if self._server.engine.dialect.name != "sqlite":  # one in memory would be gone
            self._server.engine.dispose()

    def _pass_on(self, write: Callable[[Store], None]) -> None:
        """Write to the server what was kept here; where it is away, ask again now and then."""
        self.delivered = False  # also where Ctrl-C breaks in
        if self._asked_at is not None:
            if self._clock() - self._asked_at >= RETRY_SECONDS:
                self._deliver()
            return
        try:
            write(self._server)
            self.delivered = True
            self._rest()
        except StoreError as error:
            self._refused(error)

    def _refused(self, error: StoreError) -> None:
        if not self.begun:
            raise error
        self._asked_at = self._clock()
        self._report(f"{error} The run goes on: what it measures is kept in {self._place}.")

    def _deliver(self) -> None:
        """Bring all that is kept here to the server, if it is there."""
        away, self._asked_at = self._asked_at is not None, self._clock()
        with contextlib.suppress(StoreError):
            added = copying.copy(self._here, self._server).records
            self._asked_at, self.delivered = None, True
            if away:
                self._report(f"{self.name} is back: {added} record{'s' * (added != 1)} that waited delivered.")

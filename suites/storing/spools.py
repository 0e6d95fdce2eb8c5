"""What waits on this machine for a store on a server: a SQLite store for each run, in a folder for each server.

A file belongs to the process that holds the lock beside it. What a process leaves behind, whatever ended it, the next
run into the same store delivers, and `dlbench store deliver`. The folder's file `server` holds the URL, without its
password.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import filelock

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.servers import copying, urls
from dlbench.reports.storage.servers.copying import Copied
from dlbench.reports.storage.servers.delivering import DeliveringStore
from dlbench.reports.storage.store import Store

from ..display.screen import counted
from ..environments import folders

Report = Callable[[str], None]

_SERVER = "server"
_BESIDE = ("", "-wal", "-shm", "-journal", ".lock")
"""What the names of a store's files end in."""


@contextlib.contextmanager
def opened(target: str, report: Report, create: bool = True, unfinished: Run | None = None) -> Iterator[Store]:
    """Open the store that a run writes to, brought up to date; of one on a server deliver first what waits for it.

    While a server is away what the run measures is kept on this machine. Raises StoreError.
    """
    if not urls.is_served(target):
        with Store.open(target, create=create) as store:
            yield store
        return
    with Store.open(target, create=create) as server:
        _deliver_before(target, server, report)
        path = _new_file(target)
        delivering: DeliveringStore | None = None
        with _held(path):
            try:
                with Store.open(path) as here:
                    delivering = DeliveringStore(server, here, report, None if unfinished is None else unfinished.id)
                    try:
                        yield delivering
                    finally:
                        delivering.close()
            finally:
                # Also where Ctrl-C broke into the last delivery.
                if delivering is None or delivering.delivered or not delivering.begun:
                    _remove(path)


def deliver_before(target: str, report: Report) -> None:
    """Deliver what waits for a store on a server, so that it can be read there; raises StoreError."""
    if urls.is_served(target) and waiting(target):
        with Store.open(target, create=False) as server:
            _deliver_before(target, server, report)


def waiting(target: str) -> list[Path]:
    """Return the files that wait for a server and that no process is writing; raises StoreError for what is no URL."""
    found = []
    for path in sorted(_folder(target).glob("*.sqlite")):
        with contextlib.suppress(filelock.Timeout), _held(path):
            found.append(path)
    return found


def servers() -> list[str]:
    """Return the URLs of servers that something waits for, without passwords."""
    found = []
    for folder in sorted(folders.undelivered().glob("*/")):
        with contextlib.suppress(OSError):
            found.append((folder / _SERVER).read_text(encoding="utf-8").strip())
    return [url for url in found if waiting(url)]


def deliver(target: str, server: Store) -> Copied:
    """Bring what waits to an opened server, and return what it did not have; raises StoreError."""
    runs = records = 0
    for path in waiting(target):
        with contextlib.suppress(filelock.Timeout), _held(path):
            if not path.exists():
                _remove(path)  # another process was faster
                continue
            with Store.open(path, create=False) as here:
                added = copying.copy(here, server)
            runs, records = runs + added.runs, records + added.records
            _remove(path)
    return Copied(runs, records)


def _deliver_before(target: str, server: Store, report: Report) -> None:
    try:
        added = deliver(target, server)
    except StoreError as error:  # such as a file that was damaged: it stays where it is, and holds up nobody
        report(f"{error} What waits for {server.name} was not delivered; see `dlbench store deliver`.")
        return
    if added.records or added.runs:
        report(f"{counted(added.records, 'record')} of earlier runs delivered to {server.name}")


def _folder(target: str) -> Path:
    name = urls.public(urls.parsed(target))
    return folders.undelivered() / hashlib.sha256(name.encode()).hexdigest()[:16]


def _new_file(target: str) -> Path:
    """Return the path of a new store in the folder of a server."""
    folder = folders.make_folder(_folder(target))
    url = folder / _SERVER
    try:
        if not url.exists():
            folders.write_whole(url, urls.public(urls.parsed(target)) + "\n")
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be written ({error.strerror}); what is measured must be kept there."
        ) from error
    return folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}.sqlite"


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a file that waits; raises filelock.Timeout where another process does."""
    with filelock.FileLock(path.with_name(path.name + ".lock"), timeout=0):
        yield


def _remove(path: Path) -> None:
    for ending in _BESIDE:
        with contextlib.suppress(OSError):
            os.unlink(f"{path}{ending}")  # noqa: PTH108 - a name with an ending

"""The lock that all users of a machine share, and containers that see the same folder.

A lock of the kernel's on a file that everybody may read: it needs no right to write, and ends with its process. The
file is opened without O_CREAT once it is there, since kernels that protect folders such as /tmp
(fs.protected_regular) refuse that flag for a file of somebody else's; filelock always gives it.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import UsageError

_EVERYBODYS = ("/run/lock", "/tmp", "/var/tmp")  # the same for all users, whatever TMPDIR says
_NAME = "dlbench-measuring.lock"
_POLL_SECONDS = 1.0
_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


def folder() -> Path | None:
    """Return the folder of the lock, the same for every user: DLBENCH_LOCK_FOLDER, else one that all may write to."""
    given = os.environ.get("DLBENCH_LOCK_FOLDER")
    return Path(given).expanduser() if given else next((Path(name) for name in _EVERYBODYS if _open_to_all(name)), None)


def why_narrow(in_container: bool) -> str:
    """Return why the lock does not hold for everybody on this machine, in a sentence; empty where it does."""
    if folder() is None:
        return "No folder here is everybody's, so only this user's dlbench take turns: name one in DLBENCH_LOCK_FOLDER."
    if in_container and not os.environ.get("DLBENCH_LOCK_FOLDER"):
        return (
            "This is a container, and dlbench outside of it is not seen: mount a folder of the host, and name it in "
            "DLBENCH_LOCK_FOLDER."
        )
    return ""


@contextlib.contextmanager
def held(report: Callable[[str], None], wait: bool, holder: Callable[[], str]) -> Iterator[None]:
    """Hold the machine for this process, or with ``wait`` take its turn; ``holder`` names who has it.

    Raises UsageError where another has it and there is no waiting, and for a DLBENCH_LOCK_FOLDER that is no folder.
    Where there can be no such lock, there is none.
    """
    descriptor = _opened()
    try:
        if descriptor is not None and not _taken(descriptor):
            other = holder() or "A dlbench of another user or container"
            if not wait:
                raise UsageError(
                    f"{other} is measuring on this machine, and each would slow the other down. Wait for it to end."
                )
            report(f"{other} is measuring on this machine; waiting for it to end")
            while not _taken(descriptor):
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_to_all(name: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(Path(name).stat().st_mode & stat.S_IWOTH)
    return False


def _opened() -> int | None:
    """Return the opened file of the lock, made where there is none; None where that cannot be."""
    place = folder()
    if place is None:
        return None
    for made in (0, os.O_CREAT | os.O_EXCL, 0):  # another may make it meanwhile
        with contextlib.suppress(OSError):
            descriptor = os.open(place / _NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | made, 0o644)
            if made:
                os.fchmod(descriptor, 0o644)  # whatever the umask
            return descriptor
    if os.environ.get("DLBENCH_LOCK_FOLDER") and not place.is_dir():
        raise UsageError(
            f"DLBENCH_LOCK_FOLDER names {place}, which is no folder: no lock can be there. Name one that is "
            "there, or unset it."
        )
    return None


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without such locks keeps nobody waiting.
        return error.errno not in _HELD
    return True

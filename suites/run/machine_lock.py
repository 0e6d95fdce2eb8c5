"""One measurement at a time: two on one machine would slow each other down.

A kernel lock (flock) on a file in a folder that all users share, and containers that see the same folder; without one,
in this user's folder for temporary files. It ends with its process, however that ends. The file is opened read-only,
and without O_CREAT once it is there: kernels that protect folders such as /tmp (fs.protected_regular) refuse that flag
for a file of another user.
"""

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import FrameworkEnvironmentError, UsageError

_SHARED = ("/run/lock", "/tmp", "/var/tmp")  # the same for all users, whatever TMPDIR says
_NAME = "dlbench-measuring.lock"
_POLL_SECONDS = 1.0  # each look wakes a CPU that the other process may be measuring
_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


def shared_folder() -> Path | None:
    """Return the folder that all users share: DLBENCH_LOCK_FOLDER, else one that all may write to."""
    if not (given := os.environ.get("DLBENCH_LOCK_FOLDER")):
        return next((Path(name) for name in _SHARED if _open_to_all(name)), None)
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"DLBENCH_LOCK_FOLDER names {given}, which is not a folder, so no lock can be there. Name an existing one, "
            "or unset it."
        )
    return folder


def why_narrow(in_container: bool) -> str:
    """Return why the lock does not cover everyone on this machine, in a sentence; empty where it does."""
    if shared_folder() is None:
        return "No folder is shared by all users, so only this user's dlbench take turns. Set DLBENCH_LOCK_FOLDER."
    if in_container and not os.environ.get("DLBENCH_LOCK_FOLDER"):
        return (
            "This is a container, and dlbench outside of it is not seen: mount a folder of the host, and name it in "
            "DLBENCH_LOCK_FOLDER."
        )
    return ""


@contextlib.contextmanager
def measuring(report: Callable[[str], None], wait: bool = False, computes: bool = True) -> Iterator[None]:
    """Hold this machine for measuring; a run that computes nothing takes no lock.

    Where another dlbench holds it: raises UsageError that names its process, or with ``wait`` reports that in one line
    and takes its turn. Raises FrameworkEnvironmentError where the lock cannot be written.
    """
    if not computes:
        yield
        return
    descriptor = _opened()
    try:
        if not _taken(descriptor):
            other = _holder(descriptor)
            if not wait:
                raise UsageError(
                    f"{other} is measuring on this machine, and each would slow the other down. Wait for it to end."
                )
            report(f"{other} is measuring on this machine; waiting for it to end")
            while not _taken(descriptor):
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def other_dlbench(processes: Path = Path("/proc")) -> str:
    """Return "dlbench (process 123)" for another one at work on this machine, by any user; empty for none."""
    for folder in sorted(processes.glob("[0-9]*")):
        try:
            words = (folder / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        called = any(Path(word).name == "dlbench" for word in words[:2]) or words[1:3] == ["-m", "dlbench.suites"]
        if called and int(folder.name) not in (os.getpid(), os.getppid()):
            return f"dlbench (process {folder.name})"
    return ""


def _holder(descriptor: int) -> str:
    """Name the process that holds the lock, by the kernel's table of locks."""
    inode = os.fstat(descriptor).st_ino
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}") and int(fields[4]) > 0:
                return f"Another dlbench (process {fields[4]})"
    return other_dlbench() or "A dlbench of another user or container"


def _open_to_all(name: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(Path(name).stat().st_mode & stat.S_IWOTH)
    return False


def _opened() -> int:
    """Return the opened file of the lock, made where there is none."""
    shared = shared_folder()
    if shared is not None and (descriptor := _open(shared)) is not None:
        return descriptor
    own = Path(tempfile.gettempdir(), f"dlbench-{os.getuid()}")
    with contextlib.suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
    descriptor = _open(own)
    if descriptor is None:
        raise FrameworkEnvironmentError(
            f"The lock {own / _NAME} cannot be written. It keeps two dlbench from measuring at the same time; set "
            "TMPDIR to a folder that you may write to."
        )
    return descriptor


def _open(folder: Path) -> int | None:
    for made in (0, os.O_CREAT | os.O_EXCL, 0):  # another process may make it meanwhile
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / _NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | made, 0o644)
            if made:
                os.fchmod(descriptor, 0o644)  # whatever the umask
            return descriptor
    return None


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD  # a file system without such locks makes no process wait
    return True

"""One measurement at a time: two on one machine would measure each other.

Two kernel locks, which end with their process: one of this user on a file in the folder for temporary files (dlbench's
home may be shared by many machines), and one that all users share, and containers that see the same folder. The second
is opened read-only and without O_CREAT once it is there: kernels that protect folders such as /tmp
(fs.protected_regular) refuse that flag for a file of another user; filelock always sets it.
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

import filelock

from ..errors import FrameworkEnvironmentError, UsageError
from . import machine_lock

# Each look wakes a CPU that the other process may be measuring.
_POLL_SECONDS = 1.0


def lock_file() -> Path:
    """Return the path of this user's lock; the number of the process that holds it stands in a file beside it."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir(), f"dlbench-{user}", "measuring.lock")


@contextlib.contextmanager
def measuring(report: Callable[[str], None], wait: bool = False, computes: bool = True) -> Iterator[None]:
    """Hold this machine for measuring; what computes nothing disturbs nobody, and takes no lock.

    Where another dlbench of this user holds it: raises UsageError that names its process, or with `wait` reports that
    in one line and takes its turn. Raises FrameworkEnvironmentError where the lock cannot be written.
    """
    if not computes:
        yield
        return
    path = lock_file()
    owner = path.with_suffix(".pid")
    lock = filelock.FileLock(path)
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout as error:
                other = _named(owner)
                if not wait:
                    raise UsageError(
                        f"{other} is measuring on this machine, and each would slow the other down. Wait for it, or "
                        "end it."
                    ) from error
                report(f"{other} is measuring on this machine; waiting for it to end")
                lock.acquire(poll_interval=_POLL_SECONDS)
            stack.callback(lock.release)
            owner.write_text(str(os.getpid()), encoding="utf-8")
            stack.callback(owner.unlink, missing_ok=True)
        except OSError as error:
            raise FrameworkEnvironmentError(
                f"The lock {path} cannot be written: {error.strerror or error}. It keeps two dlbench from measuring at "
                "the same time; set TMPDIR to a folder that you may write to."
            ) from error
        stack.enter_context(machine_lock._node_lock(report, wait, other_dlbench))
        yield


def other_dlbench(processes: Path = Path("/proc")) -> str:
    """Return "dlbench (process 123)" for another one at work on this machine, whoever started it; empty for none."""
    for folder in sorted(processes.glob("[0-9]*")):
        try:
            words = (folder / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        called = any(Path(word).name == "dlbench" for word in words[:2]) or words[1:3] == ["-m", "dlbench.suites"]
        if called and int(folder.name) not in (os.getpid(), os.getppid()):
            return f"dlbench (process {folder.name})"
    return ""


def _named(owner: Path) -> str:
    try:
        return f"Another dlbench (process {int(owner.read_text(encoding='utf-8'))})"
    except (OSError, ValueError):  # it has only just taken the lock, or is just letting it go
        return "Another dlbench"


_EVERYBODYS = ("/run/lock", "/tmp", "/var/tmp")  # the same for all users, whatever TMPDIR says
_NAME = "dlbench-measuring.lock"
_POLL_SECONDS = 1.0
_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


def lock_folder() -> Path | None:
    """Return the folder of the lock, the same for every user: DLBENCH_LOCK_FOLDER, else one that all may write to."""
    given = os.environ.get("DLBENCH_LOCK_FOLDER")
    return Path(given).expanduser() if given else next((Path(name) for name in _EVERYBODYS if _open_to_all(name)), None)


def why_narrow(in_container: bool) -> str:
    """Return why the lock does not hold for everybody on this machine, in a sentence; empty where it does."""
    if lock_folder() is None:
        return "No folder here is everybody's, so only this user's dlbench take turns: name one in DLBENCH_LOCK_FOLDER."
    if in_container and not os.environ.get("DLBENCH_LOCK_FOLDER"):
        return (
            "This is a container, and dlbench outside of it is not seen: mount a folder of the host, and name it in "
            "DLBENCH_LOCK_FOLDER."
        )
    return ""


@contextlib.contextmanager
def _node_lock(report: Callable[[str], None], wait: bool, holder: Callable[[], str]) -> Iterator[None]:
    """Hold the machine for this process, or with ``wait`` take its turn; ``holder`` names who has it.

    Raises UsageError where another has it and there is no waiting, and for a DLBENCH_LOCK_FOLDER that is no folder.
    Where there can be no such lock, there is none.
    """
    descriptor = _opened()
    try:
        if descriptor is not None and not _is_taken(descriptor):
            other = holder() or "A dlbench of another user or container"
            if not wait:
                raise UsageError(
                    f"{other} is measuring on this machine, and each would slow the other down. Wait for it to end."
                )
            report(f"{other} is measuring on this machine; waiting for it to end")
            while not _is_taken(descriptor):
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
    place = lock_folder()
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


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without such locks keeps nobody waiting.
        return error.errno not in _HELD
    return True

"""One measurement at a time: two on one machine would measure each other.

The lock is the kernel's, on a file of this user on this machine, so that it ends with its process whatever ends that.
It lies in the folder of temporary files and not in dlbench's home, which many machines may share and each shell may set
anew. Beside it stands the lock of all users (`node_lock`), and where a container cannot see that one: what others do
shows in the sentinel's readings.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from ..errors import FrameworkEnvironmentError, UsageError
from . import node_lock

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
                other = _name(owner)
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
        stack.enter_context(node_lock.held(report, wait, other_dlbench))
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


def _name(owner: Path) -> str:
    try:
        return f"Another dlbench (process {int(owner.read_text(encoding='utf-8'))})"
    except (OSError, ValueError):  # it has only just taken the lock, or is just letting it go
        return "Another dlbench"

"""Running the programs that build an environment: output into a log, none outlives this process."""

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 5.0
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

_A_LINE = 100_000  # bytes; with less a log ends in the middle of a word
_NO_ROOM = (
    "No space left on device",
    "have enough free space",
    "Disk quota exceeded",
    "File too large",
    "File size limit exceeded",
    f"received signal {int(signal.SIGXFSZ)}",
)

Watch = Callable[[], object]


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def run(
    command: list[str],
    log: Path,
    *,
    variables: Mapping[str, str] | None = None,
    directory: Path | None = None,
    watch: Watch = lambda: None,
) -> int:
    """Run a command, append what it says to the log, and return its exit code; ``watch`` is called now and then.

    Whatever ends this process ends the command: a later build must not find it still writing.
    """
    with log.open("a", encoding="utf-8") as output:
        output.write("$ " + " ".join(command)[:2000] + "\n")
        output.flush()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables} if variables else None,
            cwd=directory,
            preexec_fn=_die_with_parent,
        )
        try:
            while True:
                try:
                    code = child.wait(_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    watch()
                    continue
                if code == -signal.SIGXFSZ:
                    output.write(f"{os.strerror(errno.EFBIG)}\n")
                return code
        finally:
            _end(child)


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def out_of_room(text: str, log: Path) -> bool:
    """Tell whether a program failed because a disk or quota is full: by its words, or as it could not write them."""
    return any(sign in text for sign in _NO_ROOM) or shutil.disk_usage(log.parent).free < _A_LINE


def said(log: Path) -> str:
    """Return what was written to a log."""
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def last_line(text: str) -> str:
    """Return the last complaint, else the last line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("$ ")]
    errors = [line for line in lines if line.startswith(("ERROR", "E:", "dpkg-deb: error"))]
    return (errors or lines or ["no output"])[-1].strip()[:300]

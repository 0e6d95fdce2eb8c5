"""The folder between host and guest, as the host reads it: whatever lies there, reading it neither hangs nor swells.

A guest can put anything in the place of a file: a link, a FIFO, a folder, a gigabyte.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

from dlbench.adapters.protocol import PHASE_FILE

MOST_BYTES = 64 * 1024**2
"""Of an answer."""
_PHASE_BYTES = 4096
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnreadableError(Exception):
    """A file that a guest left is none, or too large, or not what its name says; the text says which."""


def read(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a plain file; raises FileNotFoundError where there is none, and UnreadableError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = "a link" if path.is_symlink() else error.strerror or "unreadable"
        raise UnreadableError(f"{path.name} is {what}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise UnreadableError(f"{path.name} is {_KINDS.get(stat.S_IFMT(found.st_mode), 'no file')}, not a file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        size = f"{most // 1024**2} MiB" if most >= 1024**2 else f"{most} bytes"
        raise UnreadableError(f"{path.name} has {max(found.st_size, len(content))} bytes, more than {size}")
    return content


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Return the JSON in a plain file; raises FileNotFoundError and UnreadableError. NaN and Infinity are no JSON."""
    content = read(path, most)
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        deep = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnreadableError(f"{path.name} is no JSON: {deep[:200]}") from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def read_phase(directory: Path) -> tuple[str, float | None]:
    """Return the phase the guest says it is in and that phase's expected seconds, where it has said so."""
    try:
        told = read_json(directory / PHASE_FILE, _PHASE_BYTES)
    except (OSError, UnreadableError):
        return "", None
    phase, expected = (told.get("phase"), told.get("expected_seconds")) if isinstance(told, dict) else ("", None)
    if not isinstance(phase, str) or not phase.isprintable():
        return "", None
    if isinstance(expected, bool) or not isinstance(expected, int | float) or not 0 <= expected < 1e9:
        return phase[:40], None
    return phase[:40], float(expected)


def bytes_in(directory: Path, most: int) -> int:
    """Return how many bytes the files below a folder take, looking no further once there are more than ``most``."""
    total, waiting = 0, [str(directory)]
    while waiting and total <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total

"""Commands on a disk of their own that is full, or may only be read; root's right to mount is needed."""

import ctypes
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command_server
import pytest
from processes import variables_of_command

from dlbench.suites import cli  # noqa: F401 - loaded once, for all the forks

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NAMESPACE = 0x00020000
_READ_ONLY, _REMOUNT, _PRIVATE, _ALL_BELOW = 1, 32, 1 << 18, 1 << 14
MEGABYTE = 1 << 20


def _mount(target: Path | str, kind: str, flags: int, options: str = "") -> None:
    if _LIBC.mount(b"none", str(target).encode(), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")


def on_own_disk(folder: Path, action: Callable[[], Any]) -> Any:
    """Return what an action returns that sees an empty disk of 8 MB at ``folder``; skips where none can be mounted.

    It is carried out in a fork, which alone sees that disk, and must return what JSON knows.
    """
    answer = folder.parent / "answer.json"
    child = os.fork()
    if child == 0:
        try:
            if _LIBC.unshare(_NEW_NAMESPACE):
                raise OSError(ctypes.get_errno(), "unshare")
            _mount("/", "", _PRIVATE | _ALL_BELOW)
            _mount(folder, "tmpfs", 0, f"size={8 * MEGABYTE}")
        except OSError as error:
            answer.write_text(json.dumps({"skipped": str(error)}))
            os._exit(0)
        try:
            answer.write_text(json.dumps({"answer": action()}))
        except BaseException:
            answer.write_text(json.dumps({"failed": traceback.format_exc()}))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    told = json.loads(answer.read_text())
    if "skipped" in told:
        pytest.skip(f"no disk can be mounted here: {told['skipped']}")
    assert "failed" not in told, told["failed"]
    return told["answer"]


def fill(folder: Path, free: int) -> None:
    """Leave so many bytes of the disk free."""
    with (folder / "filler").open("wb", buffering=0) as file:
        room = os.statvfs(folder)
        left = room.f_bavail * room.f_bsize - free
        while left > 0:
            left -= file.write(b"\0" * min(left, MEGABYTE))


def make_read_only(folder: Path) -> None:
    """Let nothing be written to the disk."""
    _mount(folder, "", _REMOUNT | _READ_ONLY)


def carry_out(folder: Path, output: Path, words: tuple[str, ...]) -> tuple[int, str]:
    """Run a command in a folder that holds its home and temporary files too: exit code, and what it complains of."""
    (folder / "home" / "tmp").mkdir(parents=True, exist_ok=True)
    variables = variables_of_command(folder / "home")
    order = {"words": words, "folder": str(folder), "variables": variables, "output": str(output)}
    _, status = os.waitpid(command_server.fork({**order, "program": "dlbench"}), 0)
    return os.waitstatus_to_exitcode(status), (output / "err").read_text()

"""Stands between the host and a guest: ``supervisor.py HOST_PID LINE shown|dropped COMMAND ...``.

It is run by ``python -I -S``. The guest's parent is this process and not the host, so a guest that
ends its parent ends its own launch alone. Every process the guest started becomes a child of this
one when its parent ends (Linux: a subreaper), in whatever session it is, and is ended by it. The
end of the guest's stderr is kept and written out at the end. The rest is dropped, so that no disk
fills up, or shown on stdout as it comes, with the guest's own stdout. The guest's environment comes
as JSON on stdin. When the host dies, all processes of the launch are ended. Standard library only:
each launch starts this.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 4000
_PATIENCE_SECONDS = 5.0
_SUBREAPER, _DEATH_SIGNAL = 36, 1  # of prctl(2)


def main() -> int:
    """Carry out the command, and end as it ended."""
    host, line, shown, command = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3] == "shown",
        sys.argv[4:],
    )
    # No signal may find this process unprepared: SIGTERM is sent to the group, and the guest
    # decides how to handle it.
    signal.signal(signal.SIGTERM, lambda *_: _end_all() if os.getppid() != host else None)
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        kernel = ctypes.CDLL(None)
        kernel.prctl(_SUBREAPER, 1, 0, 0, 0)
        kernel.prctl(_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != host:
        return 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    variables = json.loads(sys.stdin.read())
    try:
        guest = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=None if shown else subprocess.DEVNULL,  # never parsed
            stderr=subprocess.PIPE,
            env=variables,
            pass_fds=(line,),
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}")
        return 127  # as the shell says it
    os.close(line)
    end = bytearray()
    reader = threading.Thread(target=_keep_end, args=(guest.stderr, end, shown), daemon=True)
    reader.start()
    code = guest.wait()
    _end_children()
    reader.join(1.0)
    sys.stderr.buffer.write(bytes(end[-TAIL_BYTES:]))
    sys.stderr.flush()
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _keep_end(stream: BinaryIO, end: bytearray, shown: bool) -> None:
    """Read a stream to its end, and keep the last bytes of it."""
    for part in iter(lambda: os.read(stream.fileno(), 65536), b""):
        if shown:
            with contextlib.suppress(OSError):  # the process that reads it has ended
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
        end += part
        del end[:-TAIL_BYTES]


def _end_children() -> None:
    """End every descendant: the children, and those that become children as their parents end."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for child in _children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    children = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(file.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(file.parent.name))
    return children


def _end_all() -> None:
    """The host is dead: end the guest and all that it started."""
    _end_children()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

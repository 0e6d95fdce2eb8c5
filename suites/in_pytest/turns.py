"""Turns of processes that profile benchmarks: one runs while the others wait.

Profiles that are taken one after the other differ by what the machine did meanwhile. A process asks
for a turn by a byte on its socket, and goes on once it gets one. It asks again where its turn ends.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

_ASK = b"?"
_GO = b"!"
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""A test may have undone that Python ignores SIGPIPE."""
_POLL_SECONDS = 0.5
"""Seconds between looks at whether a silent process has ended."""


class TurnsOfProcess:
    """The turns of this process; without a socket it never waits."""

    def __init__(self, descriptor: int) -> None:
        self._socket: socket.socket | None = None
        if descriptor >= 0:
            # Programs that a test starts must not keep the socket open.
            os.set_inheritable(descriptor, False)
            self._socket = socket.socket(fileno=descriptor)

    def wait(self) -> None:
        """End this process's turn, and wait for the next one."""
        if self._socket is None:
            return
        try:
            self._socket.send(_ASK, _NO_SIGNAL)
            self._socket.recv(1)
        except OSError:
            self._socket = None  # the session has ended


class Member(NamedTuple):
    """A process that takes turns, and the session's end of its socket."""

    process: subprocess.Popen[bytes]
    socket: socket.socket

    def asks(self) -> bool:
        """Wait until the process asks for a turn; return False if it ends instead."""
        self.socket.settimeout(_POLL_SECONDS)
        while True:
            try:
                return self.socket.recv(1) == _ASK
            except TimeoutError:
                if self.process.poll() is not None:
                    return False
            except OSError:
                return False


def grant_turns(members: Sequence[Member]) -> None:
    """Let processes take turns in random order until all of them have ended."""
    # Tests may seed the shared generator.
    generator = random.Random()
    waiting = [member for member in members if member.asks()]
    while waiting:
        generator.shuffle(waiting)
        still_waiting = []
        for member in waiting:
            if _grant(member) and member.asks():
                still_waiting.append(member)
        waiting = still_waiting


def _grant(member: Member) -> bool:
    """Give a process its turn; return False if it has ended."""
    try:
        member.socket.send(_GO, _NO_SIGNAL)
    except OSError:
        return False
    return True

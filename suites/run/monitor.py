"""The host's end of the line to a guest: the host's clock and the CPU time it observes at each mark of the guest.

A guest waits at each mark until it is answered, so nothing is read while a step runs. The parity check that follows
the timed samples is drawn at random here, and sent only then.
"""

import contextlib
import json
import os
import random
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from socket import MSG_NOSIGNAL, SHUT_RDWR, socket

import psutil

from dlbench.adapters.protocol import BEGIN, END, READ, RESET, STEPS, HostObservation

_LONGEST = 200
_LONG_STEP = 0.15
"""Seconds of a step from which one check step more is noticeable, so that mostly the shortest check is requested."""
_SELDOM = 0.1
"""Probability of requesting another length than the shortest."""
_ENOUGH_SECONDS = 0.2
"""Rounds are repeated until their steps last this long: shorter ones cannot be compared with the timed samples."""
_MOST_ROUNDS = 6
_SLOW, _FAST, _SLACK_SECONDS = 1.4, 0.4, 0.03
"""A check is repeated where its steps take more than `_SLOW` or less than `_FAST` times as long as the timed ones, give
or take `_SLACK_SECONDS`: other programs may have used the CPUs."""
_MOST_CHECKS = 4


class LaunchMonitor:
    """Watches one launch."""

    def __init__(self, line: socket, supervisor: int, check_steps: Sequence[int]) -> None:
        """Listen on this line; the launch's processes descend from ``supervisor``. Checks may have so many
        steps; without any there are none.
        """
        line.setblocking(False)
        self.line = line
        self.wrong = ""
        """What the guest said that it should not have."""
        self.timed_steps: int | None = None
        """How many the guest says it timed."""
        self.over = False
        """Nothing more is to be heard."""
        self._supervisor, self._check_steps = supervisor, check_steps
        self._chance = random.Random(secrets.randbits(64))
        self._heard = b""
        self._expected = [BEGIN]
        self._last = (0.0, 0.0, 0.0)  # monotonic clock, CPU time and waiting at the last mark
        self._spent: dict[str, tuple[float, float, float]] = {}
        self._check, self._checks, self._asked = (0, 0), 1, False

    def listen(self) -> bool:
        """Read from the guest and answer it; return False once nothing more can come."""
        self.over = not self._listen()
        if self.wrong:
            with contextlib.suppress(OSError):
                self.line.shutdown(SHUT_RDWR)  # the guest need not wait for an answer
        return not self.over

    def _listen(self) -> bool:
        try:
            heard = self.line.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not heard:
            return False
        self._heard += heard
        while b"\n" in self._heard and not self.wrong:
            line, _, self._heard = self._heard.partition(b"\n")
            self._mark(line[:_LONGEST].decode("ascii", "replace"))
        if len(self._heard) > _LONGEST:
            self.wrong = self.wrong or f"it said more than {_LONGEST} characters where a word belongs"
        return not self.wrong

    def outside(self) -> HostObservation | None:
        """Return the observation; None where the timed samples never ended, or the check did not."""
        if END not in self._spent or self.wrong or (self._asked and self._expected):
            return None
        steps, rounds = self._check if self._asked else (0, 0)
        seconds, cpu_seconds, waiting = self._spent[END]
        reset, checked, read = (self._spent.get(word, (0.0, 0.0))[:2] for word in (RESET, STEPS, READ))
        return HostObservation(seconds, cpu_seconds, steps, rounds, *reset, *checked, *read, waiting, self._checks)

    def _mark(self, words: str) -> None:
        now = (time.monotonic(), *used_and_awaited(self._supervisor))
        word, _, number = words.partition(" ")
        if not self._expected or word != self._expected[0] or (word == END) != number.isdecimal():
            awaited = f"{self._expected[0]!r}" if self._expected else "nothing more"
            self.wrong = f"it sent {words[:40]!r}, expected {awaited}"
            return
        self._expected.pop(0)
        spent = self._spent.get(word, (0.0, 0.0, 0.0))
        since = (max(0.0, here - there) for here, there in zip(now, self._last, strict=True))
        self._spent[word] = (spent[0] + next(since), spent[1] + next(since), spent[2] + next(since))
        if word == BEGIN:
            self._expected = [END]
        answer = b"{}\n"
        if word == END:
            self.timed_steps = int(number[:18])
            answer = self._order() if self._check_steps else answer
        elif word == RESET:
            self._asked = True
        elif word == READ and self._odd() and self._checks < _MOST_CHECKS:
            # Only the steps of the last check count, as its answer does.
            self._checks += 1
            del self._spent[STEPS]
            answer = self._order()
        # The guest waits meanwhile: it used no CPU time since.
        self._last = (time.monotonic(), now[1], now[2])
        try:
            # Without a signal that would end dlbench, where the guest is gone meanwhile.
            self.line.sendall(answer, MSG_NOSIGNAL)
        except OSError:
            self.wrong = "it closed the connection"

    def _step_seconds(self) -> float:
        return self._spent[END][0] / max(1, self.timed_steps or 0)

    def _odd(self) -> bool:
        steps, rounds = self._check
        expected, took = steps * rounds * self._step_seconds(), self._spent[STEPS][0]
        return not _FAST * expected - _SLACK_SECONDS <= took <= _SLOW * expected + _SLACK_SECONDS

    def _order(self) -> bytes:
        """Draw the check that is asked for: the guest cannot know its length before."""
        step_seconds = self._step_seconds()
        shortest, longest = min(self._check_steps), max(self._check_steps)
        if step_seconds > _LONG_STEP:
            steps, rounds = (longest if self._chance.random() < _SELDOM else shortest), 1
        else:
            steps = self._chance.choice(self._check_steps)
            enough = int(_ENOUGH_SECONDS / max(steps * step_seconds, 1e-6)) + 1
            rounds = min(_MOST_ROUNDS, enough + self._chance.randrange(2))
        self._expected = [RESET, STEPS] * rounds + [READ]
        self._check = (steps, rounds)
        return json.dumps({"steps": steps, "rounds": rounds}).encode() + b"\n"


def used_and_awaited(supervisor: int) -> tuple[float, float]:
    """Return the CPU seconds so far of this process and its descendants, and those in which they waited for a CPU.

    Of the first, those of ended descendants too. Of the second those of the main threads, the host's own and what the
    hypervisor took; 0 where the kernel does not report it.
    """
    used, awaited = 0.0, _waited(os.getpid()) + getattr(psutil.cpu_times(), "steal", 0.0)
    try:
        root = psutil.Process(supervisor)
        for process in (root, *root.children(recursive=True)):
            try:
                used += sum(process.cpu_times()[:4])  # user, system, and of ended children that were waited for
                awaited += _waited(process.pid)
            except psutil.Error:
                continue
    except psutil.Error:
        return used, awaited
    return used, awaited


def _waited(process: int) -> float:
    """Return the seconds that a process's main thread was ready to run and did not, by the kernel's scheduler."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0

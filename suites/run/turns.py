"""Launches that take turns: all are alive at once, and one at a time runs while the others stand still.

The machine's speed drifts within seconds, so launches are compared best when they alternate within tenths of a second.
A round is one turn of each launch, in an order drawn by the seed. Between its turns a launch is stopped (SIGSTOP to
each of its processes), so that neither spinning threads nor helpers disturb the others. CPU time that it used all the
same is in its record.

CPUs of a shared machine differ in speed for seconds on end, since each has its own neighbours. Launches with fewer
threads than CPUs therefore begin their turns of a round on the same CPUs, those of the next on others. They are let go
then: a framework's further threads need the CPUs that are left.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from dlbench.adapters.launch.evidence import read_file, stat_fields, thread_times
from dlbench.adapters.protocol import Cell, Protocol, TurnObservation
from dlbench.hardware_probe import Cpu
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.reports.disturbance import disturbed_turn

TURN_SECONDS = 0.1
"""A turn lasts this long at most, or one step where that is longer."""
PLACING_SECONDS = 0.005
"""A launch is confined to the CPUs of its round for this long, so that its threads begin there."""
_STANDING = "TtZX"
"""States of threads that use no CPU: stopped, traced, or ended."""
_STANDSTILL_SECONDS = 1.0
"""A process that still runs this long after SIGSTOP does not stop."""


@dataclass(frozen=True)
class Rounds:
    """How many rounds launches take turns for."""

    fewest: int = 12
    """Undisturbed ones."""
    seconds: float = 2.0
    """Of turns that each launch should have."""
    most: int = 40
    """Disturbed ones included."""


def rounds_of(protocol: Protocol) -> Rounds:
    """Return how many rounds launches of this protocol take turns for: no longer than it times samples in a row."""
    return Rounds(seconds=min(Rounds.seconds, protocol.seconds))


def turn_seconds(protocol: Protocol) -> float:
    """Return how long a turn of a launch of this protocol lasts."""
    return min(TURN_SECONDS, protocol.seconds / Rounds.fewest)


def refusal(cell: Cell) -> str:
    """Return why launches of a cell cannot take turns; empty where they can."""
    if not cell.on_cpu:
        return "on a GPU both would share its memory"
    if cell.instances > 1 or cell.world_size > 1:
        return "its processes run at once already"
    if cell.cpu_quota:
        return "a CPU quota is granted in periods as long as a turn"
    if not Path("/proc/self/schedstat").exists():
        return "this system does not show how long threads wait for a CPU"
    return ""


class Turns:
    """Decides which of several launches may run; each launch's monitor asks from its own thread."""

    def __init__(
        self, members: int, seed: object, rounds: Rounds | None = None, places: Sequence[tuple[int, ...]] = ()
    ) -> None:
        """Begin with all members starting up.

        The seed decides the order of each round, and which of the ``places`` (sets of CPUs) all have in it; without
        any they run where the system lets them.
        """
        self._rounds = rounds or Rounds()
        self._chance = random.Random(f"turns:{seed}")
        self._changed = threading.Condition()
        self._members, self._places = members, places
        self.cpus: tuple[int, ...] | None = None
        """Those of this round; None: any."""
        self._present = set(range(members))
        self._waiting: set[int] = set()
        self._order: list[int] = []
        """Members whose turn is still to come in this round."""
        self._holder: int | None = None
        """The one that runs."""
        self._ending = self._aborted = False
        self._undisturbed = self._made = 0
        """Rounds."""
        self._disturbed = False
        """Whether a turn of this round was."""
        self._seconds = dict.fromkeys(range(members), 0.0)

    def next_turn(self, member: int, last: TurnObservation | None) -> bool:
        """Wait until this member may run; return whether that is a turn, and not the time to end.

        ``last`` is its turn that has just ended; None before its first one.
        """
        with self._changed:
            if last is not None:
                self._seconds[member] += last.seconds
                self._disturbed |= disturbed_turn(last)
                self._holder = None
            self._waiting.add(member)
            self._choose()
            self._changed.wait_for(lambda: self._holder == member or self._aborted)
            self._waiting.discard(member)
            return not self._ending and not self._aborted

    def leave(self, member: int) -> None:
        """Take a launch out that has ended, however it did."""
        with self._changed:
            self._present.discard(member)
            self._waiting.discard(member)
            if member in self._order:
                self._order.remove(member)
            if self._holder == member:
                self._holder = None
            if not self._ending and len(self._present) < self._members:
                self._ending = True  # there is nothing left to compare
                self._order = []
            self._choose()

    def abort(self) -> None:
        """Wake every waiting launch and end its turns."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def _choose(self) -> None:
        """Give the next turn, once every launch waits and none runs."""
        if self._holder is not None or not self._present or self._waiting != self._present:
            return
        if not self._order:
            self._end_round()
        self._holder = self._order.pop()
        self._changed.notify_all()

    def _end_round(self) -> None:
        """Count the round that has ended, if any, and draw the order of the next one."""
        if not self._ending and any(self._seconds.values()):
            self._made += 1
            self._undisturbed += not self._disturbed
            enough = self._undisturbed >= self._rounds.fewest and self._least_seconds() >= self._rounds.seconds
            self._ending = enough or self._made >= self._rounds.most
        self._disturbed = False
        if self._places:
            self.cpus = self._chance.choice(self._places)
        self._order = sorted(self._present)
        self._chance.shuffle(self._order)

    def _least_seconds(self) -> float:
        return min(self._seconds[member] for member in self._present)


class Member:
    """One launch's place among those that take turns, and the CPUs of its threads."""

    def __init__(self, turns: Turns, number: int) -> None:
        self.turns, self.number = turns, number
        self._allowed: frozenset[int] | None = None
        """The CPUs that each of its threads could use before its first turn; none where they differ."""

    def place(self, processes: Sequence[int], in_turn: bool) -> None:
        """Move its threads to the CPUs of the round, or let them use all again where it is not ``in_turn``.

        Threads that bound themselves to CPUs of their own stay there.
        """
        cpus = self.turns.cpus
        if cpus is None:
            return
        if self._allowed is None:
            masks = {_allowed(thread) for thread in _threads(processes)} - {frozenset()}
            self._allowed = masks.pop() if len(masks) == 1 else frozenset()
        if not set(cpus) < self._allowed:
            return
        for thread in _threads(processes):
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, cpus if in_turn else self._allowed)


def places(cpu: Cpu, threads: int) -> list[tuple[int, ...]]:
    """Return the sets of CPUs that a launch with so many threads may have in a round, a core for each thread.

    None where it has no fewer threads than there are cores, or no thread count.
    """
    cores = bound_mask(cpu, cpu.usable_physical_cores) or ()
    if not 0 < threads < len(cores):
        return []
    return [tuple(cores[first : first + threads]) for first in range(len(cores) - threads + 1)]


def _threads(processes: Sequence[int]) -> list[int]:
    return [int(thread) for process in processes for thread in _numbers(f"/proc/{process}/task")]


def _allowed(thread: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return frozenset()


def descendants(root: int) -> list[int]:
    """Return the living descendants of a process, itself left out."""
    try:
        return [process.pid for process in psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return []


def _numbers(folder: str) -> list[str]:
    """Return the processes or threads that this folder of /proc lists; none once it is gone."""
    try:
        return [name for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208 - names alone, in a hot path
    except OSError:
        return []


def stop(processes: Sequence[int]) -> bool:
    """Stop processes and wait until all of their threads stand still; return whether they do."""
    for process in processes:
        _send(process, signal.SIGSTOP)
    deadline = time.monotonic() + _STANDSTILL_SECONDS
    while not all(map(_stands_still, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


def let_run(processes: Sequence[int]) -> None:
    """Let stopped processes run again."""
    for process in processes:
        _send(process, signal.SIGCONT)


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _stands_still(process: int) -> bool:
    """Tell whether all threads of a process are stopped, or it has ended."""
    for thread in _numbers(f"/proc/{process}/task"):
        content = read_file(f"/proc/{process}/task/{thread}/stat")
        if content is not None and stat_fields(content)[0] not in _STANDING:
            return False
    return True


def cpu_and_waiting(processes: Sequence[int]) -> tuple[float, float]:
    """Return the CPU seconds of all living threads of processes, and those they waited for a CPU.

    CPU time is counted in ticks of 0.01 s where the kernel's scheduler reports none.
    """
    used, waited = 0.0, 0.0
    for process in processes:
        times = thread_times(str(process))
        if times is not None:
            cpu, waiting = times
            used += sum(cpu.values())
            waited += sum(waiting.values())
    return used, waited

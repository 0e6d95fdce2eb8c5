"""Launches that take turns: all are alive at once, and one at a time runs while the others stand still.

The speed of a shared machine changes within hundredths of a second: of a product of small matrices on a busy virtual
machine, times that lie 0.02 s apart are correlated by 0.65, those 0.1 s apart by 0.3. So launches are compared best
when they alternate that fast. A round is one turn of each launch, in an order drawn by the seed. Turns last 0.1 s or
one sample, and those of the two sides of a pair 0.025 s. A longer step of a pair is cut into slices: the launch is
stopped wherever its step is, and the other side gets a slice before it goes on. The time for which it stood still is
subtracted from its sample.

Launches are stopped by SIGSTOP to each of their processes, so that neither spinning threads nor helpers disturb the
others. CPU time that they used all the same is in their records. A turn that other programs disturbed is taken again
before the round ends.

CPUs of a shared machine differ in speed for seconds on end, since each has its own neighbours. Launches with fewer
threads than CPUs therefore begin their turns of a round on the same CPUs, those of the next on others. They are let go
then: a framework's further threads need the CPUs that are left.
"""

import contextlib
import math
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from dlbench.adapters.launch.evidence import read_file, stat_fields, thread_times
from dlbench.adapters.protocol import Cell, Outcome, Protocol, TurnObservation
from dlbench.hardware_probe import Cpu
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.reports.disturbance import disturbed_turns

_LEAD_IN_SECONDS = 0.05
BUSY_SHARE = 0.8
"""A launch that computes for this share of a slice keeps a CPU busy."""
_MOST_SAMPLES = 1000
"""Of a turn."""
PLACING_SECONDS = 0.002
"""A launch is confined to the CPUs of its round for this long, so that its threads begin there."""
MOST_TRIES = 3
"""A disturbed turn is taken again at the end of its round, until a launch had so many in it."""
PATIENCE = 3
"""Where rounds are disturbed to the end, there are so many times the fewest of them."""
_NORMAL_PER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over its median deviation."""
_STANDING = "TtZX"
"""States of threads that use no CPU: stopped, traced, or ended."""
_STANDSTILL_SECONDS = 1.0
"""A process that still runs this long after SIGSTOP does not stop."""


@dataclass(frozen=True)
class Rounds:
    """How many rounds launches take turns for: until they are known well enough, or have had their seconds."""

    fewest: int = 8
    """In which no launch was disturbed to the end."""
    seconds: float = 3.0
    """Of turns that a launch has at most, on average. Starting a launch and checking it takes about as long: by sharing
    its time so, a measurement takes at most twice as long as by the best division (Kalibera and Jones 2013)."""
    least_seconds: float = 0.0
    """Of turns that a launch has at least, on average: the first few rounds may agree by chance."""
    deviation: float = 0.005
    """Standard error of a launch within its group with which rounds end sooner."""
    turn_seconds: float = 0.1
    """A turn lasts about this long, or one sample where that is longer."""
    cuts_steps: bool = False
    """Whether turns that last much longer are cut into slices of this length."""
    most: int = 200


class TurnShape(NamedTuple):
    """What the turns of a launch consist of."""

    samples: int
    lead_in: bool
    """Whether a sample comes first that does not count: caches are cold after a pause, and threads sleep."""
    slice_seconds: float
    """After which the other launches run; infinite where turns are not cut."""


def rounds_of(protocol: Protocol, cells: int) -> Rounds:
    """Return how many rounds launches of so many cells take turns for.

    Between several cells a round costs a step of each. Of a single cell, whose two sides are compared, many pairs are
    worth more than precise ones: a proof needs twelve of one sign. Both sides lose the same by short turns and slices:
    a step after a pause finds cold caches, and threads wait for one another. That costs 4 to 11 % of a step of 2 ms
    that is stopped every 0.025 s, and differs between frameworks, so that their cells need longer turns.
    """
    most = 5 * protocol.seconds
    if cells == 1:
        return Rounds(3, min(1.5, most), min(0.75, most), turn_seconds=0.025, cuts_steps=True)
    return Rounds(max(4, protocol.minimum_steps), min(Rounds.seconds, most))


def standard_error(rounds: Sequence[Mapping[int, float]]) -> float:
    """Return the standard error of a launch's median over rounds, given the logarithm of a step by launch and round.

    It is that of all launches together, from the median deviation of what launches and rounds do not explain: a median
    is little affected by the spikes that other programs cause. Launches that are not in all of the rounds are left out.
    """
    members = set.intersection(*map(set, rounds)) if rounds else set()
    if len(rounds) < 2 or len(members) < 2:
        return math.inf
    logs = np.array([[of_round[member] for member in sorted(members)] for of_round in rounds])
    centred = logs - logs.mean(axis=1, keepdims=True)
    left = np.abs(centred - np.median(centred, axis=0))
    shares = (1 - 1 / logs.shape[0]) * (1 - 1 / logs.shape[1])
    deviation = _NORMAL_PER_MEDIAN * float(np.median(left)) / math.sqrt(shares)
    return deviation * math.sqrt(math.pi / 2 / len(rounds))


def refusal(cell: Cell) -> str:
    """Return why launches of a cell cannot take turns; empty where they can."""
    if not cell.on_cpu:
        return "launches on one GPU would share its memory"
    if cell.instances > 1 or cell.world_size > 1:
        return "its processes run at once already"
    if cell.cpu_quota:
        return "a CPU quota is granted in periods as long as a turn"
    if not Path("/proc/self/schedstat").exists():
        return "this system does not show how long threads wait for a CPU"
    return ""


class Turns:
    """Decides which of several launches may start and run; each launch's monitor asks from its own thread."""

    def __init__(
        self,
        members: int,
        seed: object,
        rounds: Rounds | None = None,
        needed: int | None = None,
        starting: int = 0,
        cells: Sequence[Cell] = (),
    ) -> None:
        """Begin before any of the members has started; ``cells`` are theirs, without any they have one cell.

        The seed decides the order of starts and of each round. With fewer than ``needed`` members left (all of them, if
        it is None) the turns end. At most ``starting`` members start beside one another; 0: all of them do.
        """
        self._rounds = rounds or Rounds()
        self._chance = random.Random(f"turns:{seed}")
        self._changed = threading.Condition()
        self._needed = members if needed is None else needed
        self._present = set(range(members))
        self._to_start = list(range(members))
        """In this order."""
        self._chance.shuffle(self._to_start)
        self._starting: set[int] = set()
        self._most_starting = starting or members
        self._waiting: set[int] = set()
        self._order: list[int] = []
        """Members whose turn is still to come in this round."""
        self._holder: int | None = None
        """The one that runs."""
        self._ending = self._aborted = False
        self.round = -1
        """Index of the round that is being made."""
        self.place = 0.0
        """Which CPUs launches begin on in this round, as a share of the places that they may have."""
        self._undisturbed = 0
        """Rounds."""
        self._tries: Counter[int] = Counter()
        """Turns of each member in this round."""
        self._disturbed: set[int] = set()
        """Members whose last turn in this round was."""
        self._taken: dict[int, list[TurnObservation]] = {}
        self._repeated = 0
        self._rounds_made: list[dict[int, float]] = []
        """By round, the logarithm of a sample's seconds of each member."""
        self._seconds = dict.fromkeys(range(members), 0.0)
        self._cells: Sequence[Cell | None] = list(cells) or [None] * members
        self._sample_seconds: dict[Cell | None, float] = {}
        """By cell, of the slowest of its launches: all have turns of as many samples, though noise slowed some of
        their warm-ups."""

    def wait_to_start(self, member: int) -> bool:
        """Wait until this member may start; return False where the turns were given up meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_start(member) or self._aborted)
            if member in self._to_start:
                self._to_start.remove(member)
                self._starting.add(member)
                self._changed.notify_all()
            return not self._aborted

    def _may_start(self, member: int) -> bool:
        return self._to_start[0] == member and len(self._starting) < self._most_starting

    def _has_started(self, member: int) -> None:
        self._starting.discard(member)
        self._changed.notify_all()

    def takes(self, member: int, seconds: float) -> None:
        """Take note of how long a sample of a member takes, by its warm-up."""
        with self._changed:
            cell = self._cells[member]
            self._sample_seconds[cell] = max(seconds, self._sample_seconds.get(cell, 1e-9))

    def shape(self, member: int) -> TurnShape:
        """Return what the turns of this member consist of; all members must have begun."""
        with self._changed:
            sample, rounds = self._sample_seconds[self._cells[member]], self._rounds
            lead_in = sample < min(rounds.turn_seconds, _LEAD_IN_SECONDS)
            samples = min(max(1, round(rounds.turn_seconds / sample) - lead_in), _MOST_SAMPLES)
            cut = rounds.cuts_steps and (samples + lead_in) * sample > 1.5 * rounds.turn_seconds
            return TurnShape(samples, lead_in, rounds.turn_seconds if cut else math.inf)

    def others_are_left(self) -> bool:
        """Return whether other launches have turns in this round that have not ended."""
        return bool(self._order)

    def pause(self, member: int) -> None:
        """Let the others of this round run for a slice each, in the middle of this member's turn."""
        with self._changed:
            self._holder = None
            self._order.insert(0, member)
            self._waiting.add(member)
            self._choose()
            self._changed.wait_for(lambda: self._holder == member or self._aborted)
            self._waiting.discard(member)

    def next_turn(self, member: int, last: TurnObservation | None, samples: int = 1, judged: bool = True) -> bool:
        """Wait until this member may run; return whether that is a turn, and not the time to end.

        ``last`` is its turn that has just ended, with so many ``samples``; None before its first one. ``judged`` is
        whether waiting for a CPU in it shows that others disturbed it.
        """
        with self._changed:
            if last is None:
                self._has_started(member)
            else:
                self._take_note(member, last, samples, judged)
            self._waiting.add(member)
            self._choose()
            self._changed.wait_for(lambda: self._holder == member or self._aborted)
            self._waiting.discard(member)
            return not self._ending and not self._aborted

    def _take_note(self, member: int, last: TurnObservation, samples: int, judged: bool) -> None:
        """Take note of a turn that has ended; a disturbed one is taken again at the end of the round."""
        self._holder = None
        self._tries[member] += 1
        self._rounds_made[-1][member] = math.log(max(last.seconds, 1e-9) / max(samples, 1))
        taken = self._taken.setdefault(member, [])
        taken.append(last)
        if not judged or not disturbed_turns(taken)[-1]:
            self._seconds[member] += last.seconds
            self._disturbed.discard(member)
            return
        self._disturbed.add(member)
        # Where most turns are disturbed, repeating them does not help.
        affordable = self._repeated < len(self._present) * (2 + self.round)
        if self._tries[member] < MOST_TRIES and affordable:
            self._repeated += 1
            self._order.insert(0, member)
        else:
            self._seconds[member] += last.seconds

    def leave(self, member: int) -> None:
        """Take a launch out that has ended, however it did."""
        with self._changed:
            self._present.discard(member)
            self._waiting.discard(member)
            if member in self._to_start:
                self._to_start.remove(member)
            self._has_started(member)
            self._order = [other for other in self._order if other != member]
            self._disturbed.discard(member)
            if self._holder == member:
                self._holder = None
            if not self._ending and len(self._present) < self._needed:
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
        if not self._ending and self.round >= 0:
            self._undisturbed += not self._disturbed
            mean = sum(self._seconds[member] for member in self._present) / len(self._present)
            made, fewest = self.round + 1, self._rounds.fewest
            if self._undisturbed >= fewest or made >= PATIENCE * fewest:
                precise = standard_error(self._rounds_made) <= self._rounds.deviation
                known = mean >= self._rounds.least_seconds and precise
                self._ending = known or mean >= self._rounds.seconds or made >= self._rounds.most
        self.round += 1
        self._rounds_made.append({})
        self.place = self._chance.random()
        self._tries.clear()
        self._disturbed.clear()
        self._order = sorted(self._present)
        self._chance.shuffle(self._order)


class Member:
    """One launch's place among those that take turns, and the CPUs of its threads."""

    def __init__(self, turns: Turns, number: int, places: Sequence[tuple[int, ...]] = (), judged: bool = True) -> None:
        """Take part as this number.

        Each round begins on one of the ``places`` (sets of CPUs), without any where the system lets it. ``judged``
        tells whether its threads have a CPU each, so that waiting for one shows that others disturbed a turn.
        """
        self.turns, self.number, self.judged = turns, number, judged
        self._places = places
        self._allowed: frozenset[int] | None = None
        """The CPUs that each of its threads could use before its first turn; none where they differ."""

    @property
    def cpus(self) -> tuple[int, ...] | None:
        """Those on which it begins its turns of this round; None: any."""
        return self._places[int(self.turns.place * len(self._places))] if self._places else None

    def next_turn(self, last: TurnObservation | None, samples: int) -> bool:
        """Wait for a turn after the ``last`` one, with so many samples; return False where it is time to end."""
        return self.turns.next_turn(self.number, last, samples, self.judged)

    def takes(self, seconds: float) -> None:
        """Take note of how long one of its samples takes."""
        self.turns.takes(self.number, seconds)

    def shape(self) -> TurnShape:
        """Return what its turns consist of."""
        return self.turns.shape(self.number)

    def place(self, processes: Sequence[int], in_turn: bool) -> None:
        """Move its threads to the CPUs of the round, or let them use all again where it is not ``in_turn``.

        Threads that bound themselves to CPUs of their own stay there.
        """
        cpus = self.cpus
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


def without_pauses(outcome: Outcome, pauses: Sequence[tuple[int, int]]) -> Outcome:
    """Return an outcome whose samples do not contain the times for which it stood still in its turns.

    ``pauses`` are the times when it was stopped, and when it went on, in nanoseconds of the monotonic clock. The guest
    gave the beginnings of its timed calls by the same clock.
    """
    steps, has_lead_ins = outcome.steps_per_sample, len(outcome.starts_ns) > len(outcome.samples_ns)
    before_turns = len(outcome.warmup_ns) - (len(outcome.turns) if has_lead_ins else 0)
    lead_ins, samples = list(outcome.warmup_ns[before_turns:]), list(outcome.samples_ns)
    starts, paused, clock = iter(outcome.starts_ns), [], _PausedClock(pauses)
    first = 0
    for turn, count in enumerate(outcome.turns):
        if has_lead_ins:
            lead_ins[turn] = clock.running(next(starts), lead_ins[turn] * steps) // steps
        for place in range(first, first + count):
            running = clock.running(next(starts), samples[place])
            paused.append(samples[place] - running)
            samples[place] = running
        first += count
    threads = outcome.threads
    if threads is not None:
        stood_still = sum(resumed - stopped for stopped, resumed in pauses) * 1e-9
        threads = threads._replace(wall_seconds=max(1e-9, threads.wall_seconds - stood_still))
    return outcome._replace(
        samples_ns=samples,
        warmup_ns=outcome.warmup_ns[:before_turns] + lead_ins,
        paused_ns=paused if any(paused) else [],
        starts_ns=[],
        threads=threads,
    )


class _PausedClock:
    """Knows when a launch stood still."""

    def __init__(self, pauses: Sequence[tuple[int, int]]) -> None:
        self._stopped = np.array([stopped for stopped, _ in pauses], dtype=np.int64)
        self._resumed = np.array([resumed for _, resumed in pauses], dtype=np.int64)

    def running(self, start: int, nanoseconds: int) -> int:
        """Return the nanoseconds that it ran for within this many from ``start`` on; 1 at least."""
        inside = np.minimum(self._resumed, start + nanoseconds) - np.maximum(self._stopped, start)
        return max(1, nanoseconds - int(np.maximum(inside, 0).sum()))


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
    if _LISTS_CHILDREN:
        return _descendants(root)
    try:
        return [process.pid for process in psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return []


_LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether the kernel lists the children of a thread: psutil reads the parents of all processes of the machine."""


def _descendants(root: int) -> list[int]:
    found: list[int] = []
    for thread in _numbers(f"/proc/{root}/task"):
        for child in (read_file(f"/proc/{root}/task/{thread}/children") or "").split():
            found += [int(child), *_descendants(int(child))]
    return found


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
        time.sleep(0.0001)
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


def busy_seconds() -> float:
    """Return the seconds for which the machine's CPUs were busy so far, whatever with; counted in ticks."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))


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

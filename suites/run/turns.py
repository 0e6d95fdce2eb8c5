"""Launches that take turns: all are alive, and one at a time runs while the others stand still.

The speed of a shared machine changes within hundredths of a second: the times of a product of small
matrices on a busy virtual machine are correlated by 0.65 where they lie 0.02 s apart, and by 0.3
where they lie 0.1 s apart. So launches are compared best when they alternate that fast. A round is
one turn of each launch, in an order drawn by the seed. Turns last 0.1 s. Those of launches that are
alike last 0.025 s: of the two sides of a pair, or of several builds of one row. Where a sample of
any launch lasts longer, all have turns as long as that. Where it costs a launch no time of its own
(`may_be_sliced`), such turns are cut into slices: the launch is stopped wherever its step is, and
the others get a slice each before it continues. The time for which it stood still is subtracted
from its sample. After each pause a launch finds cold caches, which costs it about 0.5 ms. So slices
last 0.05 s, and 0.025 s for alike launches, which lose the same.

A round of more than two alike launches has two of them, and one (the anchor) is the same in all
rounds, so that those which are compared alternate at once.

A turn that other programs disturbed is taken again before the round ends.

CPUs of a shared machine differ in speed for seconds on end, since each has its own neighbours.
Launches with fewer threads than CPUs therefore begin their turns of a round on the same CPUs, those
of the next on others. They are let go then: a framework's further threads need the CPUs that are
left. Slices of a step begin there too: without it a pair of steps of 0.6 s drifted to different
CPUs, and deviated by 4 to 6 % instead of 0.8 to 1.6 %.
"""

import math
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dlbench.adapters.protocol import Cell, Protocol
from dlbench.reports.results.disturbance import disturbed_turns, memory_grew
from dlbench.reports.results.outcome import TurnObservation
from dlbench.reports.results.rounds import variance_of_middle
from dlbench.reports.results.statistics import NORMAL_PER_MEDIAN

_LEAD_IN_SECONDS = 0.05
_MOST_SAMPLES = 1000
"""Most samples of a turn."""
MUCH_LESS = 0.5
"""Share of a sample's time in the warm-up, below which the warm-up is not believed."""
MOST_TRIES = 3
"""A disturbed turn is taken again at the end of its round, until a launch had so many in it."""
ROUNDS_UNDER_QUOTA = 6
"""Fewest rounds under a CPU quota.

Their turns last a second, in which the machine changes more than in slices."""
LEAST_SHARE = 2 / 3
"""Least share of a launch's seconds that it has in a matrix.

Three rounds agreed by chance in a third of the groups of a quick run."""
PATIENCE = 3
"""Factor by which there are more rounds than the fewest where they stay disturbed."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of a group of launches.

    They end when the launches are known well enough, or have had their seconds.
    """

    fewest: int = 8
    """Fewest rounds in which no launch was disturbed to the end, where turns are short."""
    least: int = 1
    """Rounds that suffice where launches have had their ``seconds``.

    Long turns are cut into many slices."""
    seconds: float = 3.0
    """Most seconds of turns of a launch, on average.

    Starting a launch and checking it takes about as long. By sharing its time so, a measurement
    takes at most twice as long as by the best division (Kalibera and Jones 2013)."""
    least_seconds: float = 0.0
    """Least seconds of turns of a launch, on average: the first rounds may agree by chance."""
    deviation: float = 0.005
    """Standard error of a launch within its group with which rounds end sooner."""
    turn_seconds: float = 0.1
    """Length of a turn, unless the longest sample of the launches takes longer."""
    slice_seconds: float = math.inf
    """Length of the slices into which turns are cut that last much longer than usual."""
    in_pairs: bool = False
    """Whether a round has turns of two launches, one of them the same in all rounds.

    Otherwise a round has a turn of each launch."""
    most: int = 200


class TurnShape(NamedTuple):
    """The content of a launch's turns."""

    samples: int
    lead_in: bool
    """Whether a sample comes first that does not count.

    Caches are cold after a pause, and threads sleep."""
    slice_seconds: float
    """Seconds after which the other launches run, or infinity where turns are not cut."""


def rounds_of(protocol: Protocol, alike: bool, quota: bool = False, sliced: bool = True) -> Rounds:
    """Return how many rounds launches take turns for.

    Launches that are ``alike`` are the sides of a pair, or builds of one row. Launches under a CPU
    ``quota`` run for whole samples of several of the kernel's periods. In slices shorter than a
    period they would get a period's quota each time. Long turns are cut into slices if they may be
    ``sliced``.

    Many short groups of alike launches are worth more than precise ones: a proof needs twelve of
    one sign. They lose the same by short turns and slices: a step after a pause finds cold caches,
    and threads wait for one another. That costs 4 to 11 % of a step of 2 ms that is stopped every
    0.025 s, and differs between frameworks, so that their cells need longer turns.
    """
    most = 5 * protocol.seconds
    slice_seconds = math.inf
    if sliced:
        # A step takes 1.022 times as long as in long turns if slices last 0.025 s, and 1.009 times
        # with 0.05 s (fcn5 and lstm32 of five frameworks, two threads). Launches deviate alike.
        slice_seconds = 0.025 if alike else 0.05
    if quota:
        fewest = max(ROUNDS_UNDER_QUOTA, protocol.minimum_steps)
        return Rounds(fewest, fewest, min(Rounds.seconds, most))
    if alike:
        return Rounds(
            fewest=2,
            least=2,
            seconds=min(1.5, most),
            least_seconds=min(0.75, most),
            turn_seconds=0.025,
            slice_seconds=slice_seconds,
            in_pairs=True,
        )
    least = protocol.minimum_steps
    seconds = min(Rounds.seconds, most)
    return Rounds(max(3, least), least, seconds, LEAST_SHARE * seconds, slice_seconds=slice_seconds)


def may_be_sliced(cells: Sequence[Cell], alike: bool, cpu_each: bool) -> bool:
    """Return whether slices of turns cost launches of these cells no time of their own.

    A GPU finishes work that a launch queued before it was stopped. Four threads on two CPUs take 2
    to 7 % longer in slices (lstm32 of three frameworks), which is the same for launches that are
    ``alike``. Among launches on one thread, the second CPU has idled when a launch on two threads
    gets its slice. A virtual machine may then wake both threads on one CPU: MXNet's lstm32 took
    0.31 s in slices of 0.025 s, 0.29 s in slices of 0.1 s, and 0.275 s in whole turns or alone.
    """
    thread_counts = {cell.all_threads for cell in cells}
    on_gpu = any(cell.on_gpu for cell in cells)
    return not on_gpu and len(thread_counts) == 1 and (alike or cpu_each)


def standard_error(rounds: Sequence[Mapping[int, float]]) -> float:
    """Return the standard error of a launch over its rounds.

    Each round has the logarithm of a step by launch. The error is that of all launches together,
    from the median of the deviations that launches and rounds do not explain: a median is little
    affected by the spikes that other programs cause. Launches that are not in all of the rounds are
    left out.
    """
    if len(rounds) < 2:
        return math.inf
    members = sorted(set.intersection(*map(set, rounds)))
    if len(members) < 2:
        return math.inf
    rows = []
    for steps in rounds:
        rows.append([steps[member] for member in members])
    logs = np.array(rows)
    centred = logs - logs.mean(axis=1, keepdims=True)
    left = np.abs(centred - np.median(centred, axis=0))
    shares = (1 - 1 / logs.shape[0]) * (1 - 1 / logs.shape[1])
    deviation = NORMAL_PER_MEDIAN * float(np.median(left)) / math.sqrt(shares)
    return deviation * math.sqrt(variance_of_middle(len(rounds)))


def standard_error_of_pairs(rounds: Sequence[Mapping[int, float]], anchor: int) -> float:
    """Return the standard error of a launch's distance from the anchor, over its rounds with it.

    As in `standard_error`, it follows from the median deviation of these distances. It is the error
    of the launch that had the fewest rounds.
    """
    distances: dict[int, list[float]] = defaultdict(list)
    for steps in rounds:
        if anchor not in steps:
            continue
        for member, log in steps.items():
            if member != anchor:
                distances[member].append(log - steps[anchor])
    fewest = min(map(len, distances.values()), default=0)
    if fewest < 2:
        return math.inf
    left = [np.abs(np.subtract(logs, np.median(logs))) for logs in distances.values()]
    middle = float(np.median(np.concatenate(left)))
    deviation = NORMAL_PER_MEDIAN * middle / math.sqrt(1 - 1 / fewest)
    return deviation / math.sqrt(2) * math.sqrt(variance_of_middle(fewest))


def refusal(cell: Cell) -> str:
    """Return why launches of a cell cannot take turns, or an empty string."""
    if cell.instances > 1 or cell.world_size > 1:
        return "its processes run at once already"
    if not Path("/proc/self/schedstat").exists():
        return "this system does not show how long threads wait for a CPU"
    return ""


class Turns:
    """The order in which several launches start and run.

    Each launch's monitor asks from its own thread.
    """

    def __init__(
        self,
        members: int,
        seed: object,
        rounds: Rounds | None = None,
        needed: int | None = None,
        cpus: int = 0,
        cells: Sequence[Cell] = (),
    ) -> None:
        """Begin before any of the members has started.

        Without ``cells`` the members have one cell. The seed decides the order of starts and of
        each round. With fewer than ``needed`` members left (all of them, if it is None) the turns
        end. As many members start, warm up and are checked at once as this machine's ``cpus``
        allow. With 0 all of them do.
        """
        self._rounds = rounds or Rounds()
        self._chance = random.Random(f"turns:{seed}")
        self._changed = threading.Condition()
        self._needed = members
        if needed is not None:
            self._needed = needed
        self._present = set(range(members))
        self._to_start = list(range(members))
        """Members that have still to start, in this order."""
        self._chance.shuffle(self._to_start)
        self._starting: set[int] = set()
        self._cpus = cpus or math.inf
        self._in_use: dict[int, float] = {}
        """CPUs of each member that computes outside of turns."""
        self._for_machine: list[int] = []
        """Members that wait to have the machine alone, in the order in which they came."""
        self._waiting: set[int] = set()
        self._order: list[int] = []
        """Members whose turn is still to come in this round."""
        self._holder: int | None = None
        """The member that runs."""
        self._ending = False
        self._aborted = False
        self.round = -1
        """Index of the round that is being made."""
        self.place = 0.0
        """CPUs on which launches begin in this round, as a share of the places that they have."""
        self._undisturbed = 0
        """Number of undisturbed rounds."""
        self._tries: Counter[int] = Counter()
        """Turns of each member in this round."""
        self._disturbed: set[int] = set()
        """Members whose last turn in this round was disturbed."""
        self._taken: dict[int, list[TurnObservation]] = {}
        self._repeated = 0
        self._rounds_made: list[dict[int, float]] = []
        """The logarithm of a sample's seconds of each member, by round."""
        self._seconds = dict.fromkeys(range(members), 0.0)
        self._cells: Sequence[Cell | None] = list(cells) or [None] * members
        self._anchor: int | None = None
        """The member that has a turn in each round, where rounds are of two."""
        self._anchor_since = 0
        """The first round that counts.

        Those with an anchor that has left compare too few of the members."""
        self._to_meet: list[int] = []
        """Members that the anchor has still to meet before it meets one again."""
        self._sample_seconds: dict[Cell | None, float] = {}
        """Seconds of a sample of each cell, by the slowest of its launches.

        All have turns of as many samples, though noise slowed some of their warm-ups."""
        self._first_round: dict[Cell | None, float] = {}
        """The same by the turns of the first round."""

    def wait_to_start(self, member: int) -> bool:
        """Wait until this member may start. Return False if the turns were given up meanwhile."""
        with self._changed:
            self._changed.wait_for(partial(self._may_start, member))
            if member in self._to_start:
                self._to_start.remove(member)
                self._starting.add(member)
                self._changed.notify_all()
            return not self._aborted

    def _may_start(self, member: int) -> bool:
        # Importing and building keep one CPU busy, whatever the threads of a launch.
        if self._to_start[0] == member and len(self._starting) < self._cpus:
            return True
        return self._aborted

    def _has_started(self, member: int) -> None:
        self._starting.discard(member)
        self._in_use.pop(member, None)
        self._changed.notify_all()

    def wait_for_cpus(self, member: int) -> None:
        """Wait until each thread of this member has a CPU that no other member computes on.

        Other members may compute outside of turns. Its first turn gives the CPUs back, or its end.
        Threads that wait for one another by spinning take ten times as long where another launch
        has their CPUs: two launches of lstm32 (PyTorch, two threads on two CPUs) that warmed up at
        the same time took 13 s for three steps of 0.6 s.
        """
        with self._changed:
            cell = self._cells[member]
            threads = 0 if cell is None else cell.all_threads
            needed = min(threads or self._cpus, self._cpus)

            def has_cpus() -> bool:
                if self._aborted or not self._in_use:
                    return True
                return sum(self._in_use.values()) + needed <= self._cpus

            self._changed.wait_for(has_cpus)
            self._in_use[member] = needed

    def wait_for_machine(self, member: int) -> None:
        """Wait until no other member computes, and those that came earlier have had the machine.

        Then this one has all CPUs until it asks again, or ends.
        """

        def has_machine() -> bool:
            if self._aborted:
                return True
            # Once every member that is left waits for the machine, they alternate.
            all_wait = len(self._for_machine) == len(self._present)
            return all_wait and not self._in_use and self._for_machine[0] == member

        with self._changed:
            self._for_machine.append(member)
            self._has_started(member)
            self._changed.wait_for(has_machine)
            self._for_machine.remove(member)
            self._in_use[member] = self._cpus

    def takes(self, member: int, seconds: float) -> None:
        """Note how long a sample of a member takes, by its warm-up."""
        with self._changed:
            alike = self._alike(member)
            self._sample_seconds[alike] = max(seconds, self._sample_seconds.get(alike, 1e-9))

    def _alike(self, member: int) -> Cell | None:
        """Return the key that members share whose turns have as many samples."""
        if self._rounds.in_pairs:
            return None
        return self._cells[member]

    def shape(self, member: int) -> TurnShape:
        """Return the content of this member's turns. All members must have begun."""
        with self._changed:
            cell = self._cells[member]
            rounds = self._rounds
            sample = self._sample_seconds[self._alike(member)]
            # Launches of a round have the same time, so that those with short steps do not end
            # their turns early. A step that takes longer than a launch has in all is not waited
            # for.
            turn = max(rounds.turn_seconds, min(rounds.seconds, max(self._sample_seconds.values())))
            # After a pause the rest of a period has the quota of a whole one: the first sample is
            # too fast.
            in_a_period = cell is not None and cell.cpu_quota > 0
            lead_in = in_a_period or sample < min(rounds.turn_seconds, _LEAD_IN_SECONDS)
            samples = min(max(1, round(turn / sample) - lead_in), _MOST_SAMPLES)
            slice_seconds = math.inf
            if samples * sample > 1.5 * rounds.turn_seconds:
                slice_seconds = rounds.slice_seconds
            return TurnShape(samples, lead_in, slice_seconds)

    def others_are_left(self) -> bool:
        """Return whether other launches have turns in this round that have not ended."""
        return bool(self._order)

    def pause(self, member: int) -> None:
        """Let the others of this round run for a slice each, in the middle of a member's turn."""
        with self._changed:
            self._holder = None
            self._order.insert(0, member)
            self._waiting.add(member)
            self._choose()
            self._changed.wait_for(partial(self._may_run, member))
            self._waiting.discard(member)

    def _may_run(self, member: int) -> bool:
        return self._holder == member or self._ending or self._aborted

    def next_turn(
        self, member: int, last: TurnObservation | None, samples: int = 1, judged: bool = True
    ) -> bool:
        """Wait until this member may run, and return whether that is for a turn, and not to end.

        ``last`` is its turn that has just ended, with so many ``samples``, or None before its first
        one. ``judged`` is whether waiting for a CPU in it shows that others disturbed it.
        """
        with self._changed:
            if last is None:
                self._has_started(member)
            else:
                self._note_turn(member, last, samples, judged)
            self._waiting.add(member)
            self._choose()
            self._changed.wait_for(partial(self._may_run, member))
            self._waiting.discard(member)
            if not self._ending and not self._aborted:
                return True
        self.wait_for_cpus(member)
        return False

    def _note_turn(self, member: int, last: TurnObservation, samples: int, judged: bool) -> None:
        """Note a turn that has ended.

        One that was disturbed, or in which memory grew, is taken again.
        """
        self._holder = None
        self._tries[member] += 1
        sample = max(last.seconds, 1e-9) / max(samples, 1)
        self._rounds_made[-1][member] = math.log(sample)
        if self.round == 0:
            alike = self._alike(member)
            self._first_round[alike] = max(sample, self._first_round.get(alike, 0.0))
        taken = self._taken.setdefault(member, [])
        taken.append(last)
        disturbed = judged and disturbed_turns(taken)[-1]
        if not disturbed and not memory_grew(last):
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
            for members in (self._order, self._to_meet):
                if member in members:
                    members.remove(member)
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
        if not self._ending:
            self._holder = self._order.pop()
        self._changed.notify_all()

    def _end_round(self) -> None:
        """Count the round that has ended, if any, and draw the order of the next one."""
        if not self._ending and self.round >= 0:
            self._undisturbed += not self._disturbed
            self._ending = self._is_enough()
            if self.round == 0:
                self._learn_samples()
        self.round += 1
        self._rounds_made.append({})
        self.place = self._chance.random()
        self._tries.clear()
        self._disturbed.clear()
        self._order = self._members_of_round()
        self._chance.shuffle(self._order)

    def _learn_samples(self) -> None:
        """Replace samples of the warm-up that took much longer than those of the first round.

        Others start during a warm-up. Threads that wait for one another then lose a time slice at
        each of their barriers: PyTorch's lstm32 for one example took 575 ms on two threads, and 4
        ms in its turns.
        """
        for alike, seconds in self._first_round.items():
            if seconds < MUCH_LESS * self._sample_seconds.get(alike, 0.0):
                self._sample_seconds[alike] = seconds

    def _is_enough(self) -> bool:
        """Return whether the launches are known well enough, or have had their seconds."""
        others = self._present - {self._anchor}
        # A round pairs the anchor with one other launch: each comes once in so many rounds.
        cycle = 1
        if self._anchor is not None:
            cycle = max(1, len(others))
        made = self.round + 1 - self._anchor_since
        fewest = cycle * self.fewest_rounds()
        if self._undisturbed < fewest and made < PATIENCE * fewest:
            return False
        mean = sum(self._seconds[member] for member in others) / max(1, len(others))
        if mean >= self._rounds.seconds or made >= cycle * self._rounds.most:
            return True
        if mean < self._rounds.least_seconds:
            return False
        if self._anchor is None:
            error = standard_error(self._rounds_made)
        else:
            error = standard_error_of_pairs(self._rounds_made, self._anchor)
        return error <= self._rounds.deviation

    def fewest_rounds(self) -> int:
        """Return how many rounds are made at least.

        They are `Rounds.fewest`; of long turns only as many as fill `Rounds.seconds`, but never
        less than `Rounds.least`.
        """
        longest = max(self._sample_seconds.values(), default=0.0)
        if longest <= self._rounds.turn_seconds:
            return self._rounds.fewest
        filling = math.ceil(self._rounds.seconds / longest)
        return min(self._rounds.fewest, max(self._rounds.least, filling))

    def _members_of_round(self) -> list[int]:
        """Return the members that have a turn in the next round: all, or two of them."""
        members = sorted(self._present)
        if not self._rounds.in_pairs or len(members) <= 2:
            return members
        if self._anchor not in self._present:
            self._anchor = self._chance.choice(members)
            self._anchor_since = self.round
            self._undisturbed = 0
            self._to_meet = []
        if not self._to_meet:
            self._to_meet = [member for member in members if member != self._anchor]
            self._chance.shuffle(self._to_meet)
        return [self._anchor, self._to_meet.pop()]


@dataclass(frozen=True)
class Member:
    """One launch's place among those that take turns."""

    turns: Turns
    number: int
    places: Sequence[tuple[int, ...]] = ()
    """Sets of CPUs that it may have in a round. It begins its turns on one of them.

    Without any it begins where the system lets it."""
    judged: bool = True
    """Whether waiting for a CPU shows that others disturbed a turn, since each thread has a CPU."""

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs on which it begins its turns of this round, or none for any."""
        if not self.places:
            return ()
        return self.places[int(self.turns.place * len(self.places))]

"""One launch that takes turns with others: when it runs, and what the host observed of its turns.

`TurnTaking` belongs to the thread that watches the launch; `turns.Turns` decides which of the
launches may run.
"""

import json
import math
import time
from collections.abc import Sequence
from itertools import compress

import numpy as np

from dlbench.adapters.protocol import Answer, SampleCounts
from dlbench.reports.results.disturbance import growing_turns
from dlbench.reports.results.outcome import HostObservation, TurnObservation

from .standstill import (
    CpuTime,
    Placement,
    busy_seconds,
    cpu_time,
    descendants,
    let_run,
    peak_pages,
    stop,
)
from .turns import Member, TurnShape

_BUSY_SHARE = 0.8
"""A launch that computes for this share of a slice keeps a CPU busy."""
_PLACING_SECONDS = 0.002
"""Threads are confined to the CPUs of their round for this long, so that they begin there."""


class TurnTaking:
    """A launch's part in the turns: it is stopped while others run, and its turns are observed."""

    def __init__(self, member: Member, supervisor: int) -> None:
        """Take part as this member. The processes of the launch descend from ``supervisor``."""
        self._member = member
        self._supervisor = supervisor
        self.observed: list[TurnObservation] = []
        self.samples: list[int] = []
        """Number of samples of each turn, as the guest reports it."""
        self.pauses: list[tuple[int, int]] = []
        """Its pauses for others within its turns: when it was stopped, and when it continued.

        They are in nanoseconds of the monotonic clock."""
        self.stopped_cpu_seconds = 0.0
        """CPU time that it used while others ran."""
        self.in_turn = False
        """Whether the guest is to time samples. Otherwise it is to end."""
        self._shape = TurnShape(0, False, math.inf)
        self._placement = Placement()
        self._computing: list[int] = []
        """Threads that computed when the launch last ran, or none if unknown."""
        self._turn_began = 0.0
        """Beginning of the turn by the monotonic clock, later by the length of its pauses."""
        self._cpu_time_at_turn = CpuTime(0.0, 0.0)
        self._cpu_time_at_slice = CpuTime(0.0, 0.0)
        self._peak_at_turn = 0
        """Pages of memory when the turn began."""
        self._busy_at_turn = 0.0
        """CPU seconds of all programs when the turn began, more by those of its pauses."""
        self._slices = 1
        """Slices of this turn."""
        self._slice_began = 0.0
        self._slice_ends = math.inf
        self._stopped_ns = 0
        self._others_ran = False

    def warm_up(self) -> None:
        """Wait until the launch may run its first steps."""
        self._member.turns.wait_for_cpus(self._member.number)

    def profile(self) -> None:
        """Stand still until no other launch computes, and earlier ones have had the machine."""
        processes = descendants(self._supervisor)
        stop(processes)
        self._member.turns.wait_for_machine(self._member.number)
        let_run(processes)

    def begin(self, sample_seconds: float) -> None:
        """Wait for the first turn. A sample of the launch takes this long, by its warm-up.

        A launch whose others have ended has one turn all the same: it needs samples.
        """
        self._member.turns.takes(self._member.number, sample_seconds)
        self._wait_for_turn(None, 0)
        self.in_turn = True
        self._shape = self._member.turns.shape(self._member.number)

    def end_turn(self, samples: int, ended: float) -> bool:
        """Note a turn that ended then, and wait for the next.

        Return False for another number of samples than the one that was asked for.
        """
        self.samples.append(samples)
        if samples != self._shape.samples:
            return False
        processes = descendants(self._supervisor)
        now = cpu_time(processes)
        used = now.since(self._cpu_time_at_turn)
        self._computing = now.since(self._cpu_time_at_slice).computing()
        busy = max(0.0, busy_seconds() - self._busy_at_turn)
        turn = TurnObservation(
            seconds=ended - self._turn_began,
            cpu_seconds=used.used,
            waiting_seconds=used.waiting,
            round=self._member.turns.round,
            slices=self._slices,
            busy_seconds=busy,
            grown_pages=max(0, peak_pages(processes) - self._peak_at_turn),
        )
        self.observed.append(turn)
        self.in_turn = self._wait_for_turn(turn, samples)
        if self.in_turn:
            self._shape = self._member.turns.shape(self._member.number)
        return True

    def order(self) -> bytes:
        """Return the answer to the guest: the content of its next turn, or nothing for the end.

        The turn's time counts from now on.
        """
        self._turn_began = time.monotonic()
        if not self.in_turn:
            return b"{}\n"
        order = {"samples": self._shape.samples, "lead_in": self._shape.lead_in}
        return json.dumps(order).encode() + b"\n"

    def start(self) -> None:
        """Begin the turn: the guest has its order."""
        self._begin_slice()
        self._let_go()

    def _wait_for_turn(self, last: TurnObservation | None, samples: int) -> bool:
        """Stop the launch until it may run again, and return whether it may for another turn.

        Otherwise it is to end.
        """
        member = self._member
        self._slice_ends = math.inf
        self._slices = 1
        processes = descendants(self._supervisor)
        stop(processes)
        before = cpu_time(processes)
        more = member.turns.next_turn(member.number, last, samples, member.judged)
        processes = descendants(self._supervisor)
        self._cpu_time_at_turn = self._cpu_time_at_slice = cpu_time(processes)
        self.stopped_cpu_seconds += self._cpu_time_at_turn.since(before).used
        self._peak_at_turn = peak_pages(processes)
        if more:
            self._confine(processes)
        self._busy_at_turn = busy_seconds()
        let_run(processes)
        return more

    @property
    def slice_seconds(self) -> float:
        """The seconds left of the slice that runs, or infinity outside of turns that are cut."""
        return self._slice_ends - time.monotonic()

    def slice_is_over(self) -> bool:
        """Return whether others are to run now.

        If no other is left in the round, another slice begins instead.
        """
        if self.slice_seconds > 0:
            return False
        if self._member.turns.others_are_left():
            return True
        self._begin_slice()
        return False

    def stop(self) -> None:
        """Stop the launch at the end of a slice."""
        processes = descendants(self._supervisor)
        # The launch computes until it is stopped: looking for its processes takes 0.3 ms.
        self._stopped_ns = time.monotonic_ns()
        stop(processes)

    def end_slices(self) -> None:
        """Cut this turn no more: it has ended."""
        self._slice_ends = math.inf

    def let_others_run(self) -> None:
        """Let the others of the round run for a slice each, unless the launch mostly waited.

        If it waited in its own slice, whatever it waits for continues while it stands still: such a
        pause could not be subtracted.
        """
        before = cpu_time(descendants(self._supervisor))
        busy = busy_seconds()
        in_slice = before.since(self._cpu_time_at_slice)
        self._computing = in_slice.computing()
        wanted = in_slice.used + in_slice.waiting
        self._others_ran = wanted > _BUSY_SHARE * (self._stopped_ns * 1e-9 - self._slice_began)
        if self._others_ran:
            self._member.turns.pause(self._member.number)
            self._slices += 1
        self._cpu_time_at_slice = cpu_time(descendants(self._supervisor))
        self.stopped_cpu_seconds += self._cpu_time_at_slice.since(before).used
        self._busy_at_turn += busy_seconds() - busy

    def go_on(self) -> float:
        """Let the launch run for another slice, and return the seconds for which others ran."""
        processes = descendants(self._supervisor)
        if not self._others_ran:
            let_run(processes)
            self._begin_slice()
            return 0.0
        self._confine(processes)
        resumed_ns = time.monotonic_ns()
        let_run(processes)
        self.pauses.append((self._stopped_ns, resumed_ns))
        paused = (resumed_ns - self._stopped_ns) * 1e-9
        self._turn_began += paused
        self._begin_slice()
        self._let_go()
        return paused

    def _begin_slice(self) -> None:
        self._slice_began = time.monotonic()
        self._slice_ends = math.inf
        if self.in_turn:
            self._slice_ends = self._slice_began + self._shape.slice_seconds

    def _confine(self, processes: Sequence[int]) -> None:
        if self._member.cpus:
            self._placement.confine(processes, self._member.cpus, self._computing)

    def _let_go(self) -> None:
        """Let the threads use all CPUs again, once they run where they were placed.

        They stay there unless they get into one another's way.
        """
        if self._member.cpus:
            time.sleep(_PLACING_SECONDS)
            self._placement.let_go()


def without_pauses(answer: Answer, pauses: Sequence[tuple[int, int]]) -> tuple[Answer, list[int]]:
    """Return an answer without the times for which it stood still, and these times by sample.

    There are none where no turn was cut. ``pauses`` are the times when it was stopped, and when it
    continued, in nanoseconds of the monotonic clock. The guest gave the beginnings of its timed
    calls by the same clock.
    """
    steps = answer.steps_per_sample
    has_lead_ins = len(answer.starts_ns) > len(answer.samples_ns)
    before_turns = len(answer.warmup_ns)
    if has_lead_ins:
        before_turns -= len(answer.turns)
    lead_ins = list(answer.warmup_ns[before_turns:])
    samples = list(answer.samples_ns)
    starts = iter(answer.starts_ns)
    paused = []
    clock = _PausedClock(pauses)
    first = 0
    for turn, count in enumerate(answer.turns):
        if has_lead_ins:
            lead_ins[turn] = clock.running(next(starts), lead_ins[turn] * steps) // steps
        for place in range(first, first + count):
            running = clock.running(next(starts), samples[place])
            paused.append(samples[place] - running)
            samples[place] = running
        first += count
    threads = answer.threads
    if threads is not None:
        stood_still = sum(resumed - stopped for stopped, resumed in pauses) * 1e-9
        threads = threads._replace(wall_seconds=max(1e-9, threads.wall_seconds - stood_still))
    warmup = answer.warmup_ns[:before_turns] + lead_ins
    running_answer = answer._replace(samples_ns=samples, warmup_ns=warmup, threads=threads)
    if not any(paused):
        paused = []
    return running_answer, paused


def without_growth(
    answer: Answer, outside: HostObservation, paused_ns: list[int]
) -> tuple[Answer, HostObservation, list[int]]:
    """Return an answer, its observation and its pauses without the turns in which memory grew.

    Samples of such turns are a part of the warm-up.

    Where memory stays with a process, its heap grows once more when a step happens to need more of
    it at a time. Such a step of JAX's lstm32 took three times as long as the others.
    """
    growing = growing_turns(outside.turns)
    if not any(growing):
        return answer, outside, paused_ns
    steps = answer.steps_per_sample
    steady_turns = [not grew for grew in growing]
    steady_samples = np.repeat(steady_turns, answer.turns)
    steady_calls = np.repeat(steady_samples, steps)
    grown = [sample // steps for sample in compress(answer.samples_ns, ~steady_samples)]

    def steady(values: Sequence[int]) -> list[int]:
        return list(compress(values, steady_samples))

    counts = answer.sample_counts
    if counts is not None:
        counts = SampleCounts(*map(steady, counts))
    if paused_ns:
        paused_ns = steady(paused_ns)
    steady_answer = answer._replace(
        warmup_ns=[*answer.warmup_ns, *grown],
        samples_ns=steady(answer.samples_ns),
        turns=list(compress(answer.turns, steady_turns)),
        calls_ns=list(compress(answer.calls_ns, steady_calls)),
        sample_counts=counts,
        evidence_steps=answer.observed_steps(),
    )
    turns = list(compress(outside.turns, steady_turns))
    return steady_answer, outside._replace(turns=turns), paused_ns


class _PausedClock:
    """The time for which a launch ran between its pauses."""

    def __init__(self, pauses: Sequence[tuple[int, int]]) -> None:
        self._stopped = np.array([stopped for stopped, _ in pauses], dtype=np.int64)
        self._resumed = np.array([resumed for _, resumed in pauses], dtype=np.int64)

    def running(self, start: int, nanoseconds: int) -> int:
        """Return the nanoseconds for which it ran, of this many from ``start`` on, 1 at least."""
        inside = np.minimum(self._resumed, start + nanoseconds) - np.maximum(self._stopped, start)
        return max(1, nanoseconds - int(np.maximum(inside, 0).sum()))

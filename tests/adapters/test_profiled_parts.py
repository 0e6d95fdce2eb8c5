"""A launch that is profiled beside another: in parts, of which the undisturbed one counts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.launch import device, profiling
from dlbench.adapters.libraries import profiles
from dlbench.adapters.protocol import PROFILE, Answer, Cell, Launch, Profile, Protocol, Status

CELL = Cell("torch", "pytorch", "eager", "fcn5", "cpu", 1, 64)
LAUNCH = Launch(
    CELL, Protocol(), {}, "/cache", in_turns=True, profiled_steps=5, profiled_seconds=1.0
)
TIMED = Answer(Status.OK, samples_ns=[1_000_000] * 3)


class Pretended:
    """An adapter whose profile takes this long for each step, by a clock of its own, and the host
    that listens."""

    def __init__(self, seconds_of_step: float, none: bool = False) -> None:
        self.now, self.seconds_of_step, self.none = 0.0, seconds_of_step, none
        self.steps: list[int] = []
        self.marks: list[str] = []

    def mark(self, word: str) -> dict[str, Any]:
        self.marks.append(word)
        return {}

    def profile(self, steps: int) -> Profile | None:
        self.steps.append(steps)
        self.now += steps * self.seconds_of_step
        return None if self.none else Profile("a profiler", steps, 1e-3, [])

    def monotonic(self) -> float:
        return self.now


def taken(
    monkeypatch: pytest.MonkeyPatch, pretended: Pretended, launch: Launch = LAUNCH
) -> Profile | None:
    adapter: Any = pretended
    monkeypatch.setattr(profiling.time, "monotonic", pretended.monotonic)
    return device._take_profile(TIMED, launch, adapter, adapter)


def test_every_part_waits_for_its_turn_and_the_first_two_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretended = Pretended(2e-3)
    profile = taken(monkeypatch, pretended)
    assert pretended.marks == [PROFILE] * len(pretended.steps) == [PROFILE] * 8
    assert pretended.steps[:2] == [1, 1]
    assert set(pretended.steps[2:]) == {profiling.MOST_STEPS // profiling.PARTS}
    assert profile is not None
    assert profile.steps == pretended.steps[-1]


def test_a_trace_that_takes_seconds_to_read_has_few_steps_and_ends_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretended = Pretended(6.0)
    profile = taken(monkeypatch, pretended)
    assert set(pretended.steps) == {1}
    assert pretended.now <= profiling.PATIENCE + 6.0
    assert profile is not None


def test_without_a_profiler_there_is_none_and_asked_for_steps_alone_are_profiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert taken(monkeypatch, Pretended(1e-3, none=True)) is None
    pretended = Pretended(1e-3)
    taken(
        monkeypatch,
        pretended,
        LAUNCH._replace(profiled_seconds=0.0, profiled_steps=7, in_turns=False),
    )
    assert (pretended.steps, pretended.marks) == ([7], [])


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12))
def test_the_part_that_counts_is_faster_than_three_quarters(seconds: list[float]) -> None:
    parts = [Profile("a profiler", 1, step_seconds, []) for step_seconds in seconds]
    chosen = profiles.undisturbed(parts)
    faster = [step_seconds for step_seconds in seconds if step_seconds < chosen.step_seconds]
    assert len(faster) <= len(seconds) / 4
    assert chosen.step_seconds >= min(seconds)

"""Replays measured samples under pytest-benchmark, through its public interface alone.

A benchmark gets a timer of its own (``@pytest.mark.benchmark(timer=...)``), a clock that a replayed step moves on by
exactly the time that was recorded, so that pytest-benchmark sees, reports and saves the recorded samples.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.formats.inert import visible
from dlbench.reports.naming import slug
from dlbench.reports.pytest_benchmark.export import (
    KEY,
    counted,
    evidence_of,
    failure,
    iterations_of,
    launch_medians,
    samples_of,
)
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.record import Record


class ReplayClock:
    """A timer in seconds: the real one, except during a replay, when it stands still but for the recorded times."""

    __name__ = "replay"

    def __init__(self) -> None:
        self._nanoseconds: Fraction | None = None

    def __call__(self) -> float:
        """Return the time now."""
        return time.perf_counter() if self._nanoseconds is None else float(self._nanoseconds * Fraction(1, 10**9))

    def start(self) -> None:
        """Stand still at zero."""
        self._nanoseconds = Fraction(0)

    def advance(self, nanoseconds: Fraction) -> None:
        """Move on; nothing happens outside a replay."""
        if self._nanoseconds is not None:
            self._nanoseconds += nanoseconds

    def stop(self) -> None:
        """Be the real clock again."""
        self._nanoseconds = None


#: Tests of one process run one after another: one clock serves them all.
clock = ReplayClock()


@dataclass(frozen=True)
class MeasuredCell:
    """One cell of the suite with the launches that were made of it."""

    cell: Cell
    records: tuple[Record, ...]
    """One for each launch, and for each repetition of a launch that was disturbed."""
    machine: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The cell in a word: "fcn5-b64-torch-eager-cpu-2"."""
        return slug(self.cell)

    @property
    def samples(self) -> list[float]:
        """Seconds of a step for every timed sample; a cell without a number fails or skips the test here."""
        self.check()
        return samples_of(self._timed())

    @property
    def launch_medians(self) -> list[float]:
        """The median of each launch, seconds; a cell without a number fails or skips the test here."""
        self.check()
        return launch_medians(self._timed())

    def check(self) -> None:
        """Skip the test where the cell cannot be had here, fail it where a launch went wrong, each with the reason."""
        if not self.records:
            pytest.skip("not measured: the time for all launches was over before")
        status, reason = failure(self.records)
        if status in (Status.UNSUPPORTED, Status.SKIPPED):
            pytest.skip(visible(reason))
        if status is not Status.OK:
            pytest.fail(visible(reason), pytrace=False)

    def replay(self, benchmark: Any) -> None:
        """Give the samples to pytest-benchmark's fixture, with what they rest on; then `check`."""
        timed = self._timed()
        if timed:
            benchmark.extra_info[KEY] = evidence_of(self.records, self.machine)
            _replay(benchmark, timed)
        self.check()

    def _timed(self) -> list[Record]:
        fingerprint = self.records[-1].machine if self.records else ""
        return counted(self.records, read_host(fingerprint, self.machine)) if self.records else []


def _replay(benchmark: Any, timed: Sequence[Record]) -> None:
    iterations = iterations_of(timed)
    rounds = [
        Fraction(nanoseconds * iterations, record.outcome.steps_per_sample)
        for record in timed
        for nanoseconds in record.outcome.samples_ns
    ]
    called = 0

    def step() -> None:
        # A round is so many calls; its whole time passes in the first. Calls beyond the last round (for a result, for
        # a profile) take no time.
        nonlocal called
        place, within = divmod(called, iterations)
        called += 1
        if within == 0 and place < len(rounds):
            clock.advance(rounds[place])

    clock.start()
    try:
        benchmark.pedantic(step, rounds=len(rounds), iterations=iterations)
    finally:
        clock.stop()

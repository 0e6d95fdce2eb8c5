"""The quantities of a benchmark besides its time, in a process of `processes`.

Peak memory, the time of the first call, the time to import the test's file, and page faults a call.
They are read just before and after the timed rounds of pytest-benchmark, never within one. Only the
standard library and guest code are imported: loaded modules can change the time of a benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dlbench.adapters.launch import evidence

KEY = "dlbench_quantities"
"""Key of the quantities in a benchmark's ``extra_info``, by the names of `results.judged`.

It is `QUANTITIES_KEY` of `reports.pytest_benchmark.export`, which loads too much."""
FEWEST_CALLS = 3
"""Calls after the first one that give page faults a call."""


class ImportTimes:
    """The seconds that test files took to import, by their ids."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, file: str) -> Iterator[None]:
        """Time the import of a file."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[file] = time.perf_counter() - began

    def of_test(self, test: str) -> float | None:
        """Return the seconds for the file of a test; None of a file that was not imported."""
        return self._seconds.get(test.partition("::")[0])


class QuantityMeter:
    """The meter of one benchmark, given its fixture of pytest-benchmark."""

    def __init__(self, fixture: Any) -> None:
        self._first_call: float | None = None
        """Seconds; None where the first round has several calls, which share its time."""
        self._rounds = 0
        self._calls = 0
        """Timed calls after the first round."""
        self._faults = 0
        """Page faults of those calls."""
        self._resets_peak = evidence.reset_peak_memory()
        make_runner = getattr(fixture, "_make_runner", None)
        if make_runner is not None:
            fixture._make_runner = self._with_meter(make_runner)

    def values(self) -> dict[str, float]:
        """Return what was measured: MiB, seconds, and page faults a call."""
        values = {}
        if self._resets_peak:
            values["memory"] = evidence.peak_memory_bytes() / 2**20
        if self._first_call is not None:
            values["first_step"] = self._first_call
        if self._calls >= FEWEST_CALLS:
            values["faults"] = self._faults / self._calls
        return values

    def _with_meter(self, make_runner: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement for the fixture's method that makes the runner of a round.

        A runner takes the range of a round's calls, and None for a single call. It returns the
        round's seconds, and of a single call also the result.
        """

        def make_metered_runner(*function: Any) -> Callable[..., Any]:
            run_round = make_runner(*function)

            def run_metered_round(calls: range | None, *further: Any) -> Any:
                count = len(calls) if calls else 1
                before = evidence.minor_faults()
                result = run_round(calls, *further)
                faults = evidence.minor_faults() - before
                if self._rounds > 0:
                    self._calls += count
                    self._faults += faults
                elif count == 1:
                    self._first_call = result if calls else result[0]
                self._rounds += 1
                return result

            return run_metered_round

        return make_metered_runner

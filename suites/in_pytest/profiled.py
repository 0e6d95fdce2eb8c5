"""A benchmark whose call is profiled instead of timed, in a process of `processes`.

The profiler is that of the framework that the test imported, otherwise Python's own. Only work on
the CPU is profiled.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlbench.adapters.base import Adapter
from dlbench.adapters.launch import profiling
from dlbench.adapters.own_step import profilers
from dlbench.adapters.protocol import Profile, to_dict
from dlbench.reports.pytest_benchmark.imported import imported_cell

SECONDS = 1.0
"""Approximate seconds of profiled calls."""
FEWEST_CALLS = 5
_WARMUP_CALLS = 3


class _BenchmarkedCall(Adapter):
    """An adapter whose step is the call of a benchmark."""

    families = ()


class ProfiledBenchmark:
    """The stand-in for pytest-benchmark's fixture in one test.

    Everything but the call comes from the fixture itself.
    """

    def __init__(
        self,
        fixture: Any,
        file: Path,
        keep: Callable[[dict[str, Any]], None],
        wait_for_turn: Callable[[], None],
    ) -> None:
        self._fixture = fixture
        self._file = file
        self._keep = keep
        self._wait_for_turn = wait_for_turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fixture, name)

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Profile the call and return its result."""
        return self._profile(lambda: function(*args, **kwargs))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        **_rounds: Any,
    ) -> Any:
        """Profile the call, with its setup and teardown, and return its result."""

        def call() -> Any:
            given = None if setup is None else setup()
            used_args, used_kwargs = (args, kwargs or {}) if given is None else given
            result = target(*used_args, **used_kwargs)
            if teardown is not None:
                teardown(*used_args, **used_kwargs)
            return result

        return self._profile(call)

    def _profile(self, call: Callable[[], Any]) -> Any:
        self._wait_for_turn()
        seconds = []
        for _ in range(_WARMUP_CALLS):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        with tempfile.TemporaryDirectory(prefix="dlbench-profile-") as folder:
            cell = imported_cell("benchmark")._replace(device="cpu")
            adapter = _BenchmarkedCall(cell, {}, folder)
            adapter.step = call  # type: ignore[method-assign]
            # In two checkouts the file's functions have the same names, and other line numbers.
            adapter.file = str(self._file)  # type: ignore[attr-defined]

            def take(calls: int) -> Profile | None:
                return profilers.take_profile(adapter, calls)

            step_seconds = max(statistics.median(seconds), 1e-9)
            profile = profiling.take_in_parts(
                take, self._wait_for_turn, step_seconds, SECONDS, FEWEST_CALLS
            )
        self._keep(to_dict(profile))
        return call()

"""The quantities of a benchmark besides its time, as a process of pytest measures them."""

import mmap
import time
from collections.abc import Callable
from typing import Any

import pytest

from dlbench.suites.in_pytest.quantities import FEWEST_CALLS, ImportTimes, QuantityMeter


class Fixture:
    """A fixture that makes runners as pytest-benchmark's does."""

    def _make_runner(self, function: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        def run(calls: range | None) -> Any:
            began = time.perf_counter()
            if calls:
                for _ in calls:
                    function()
                return time.perf_counter() - began
            result = function()
            return time.perf_counter() - began, result

        return run


def metered(*rounds: range | None, function: Callable[[], Any] = bytearray) -> dict[str, float]:
    """Return the quantities of a benchmark with these rounds."""
    fixture = Fixture()
    meter = QuantityMeter(fixture)
    for calls in rounds:
        run = fixture._make_runner(function, (), {})
        result = run(calls)
        assert isinstance(result, float) == bool(calls)
    return meter.values()


@pytest.mark.parametrize("calls", [None, range(1)])
def test_the_first_call_is_timed_alone(calls: range | None) -> None:
    pauses = [0.05, 0.0, 0.0]

    def slow_at_first() -> None:
        time.sleep(pauses.pop(0))

    values = metered(calls, calls, calls, function=slow_at_first)
    assert values["first_step"] >= 0.05


def test_a_first_round_of_several_calls_has_no_first_call() -> None:
    assert "first_step" not in metered(range(100), range(100))


def test_page_faults_are_those_of_later_calls() -> None:
    kept = []

    def touch() -> None:
        # Memory of the kernel's own: the heap may have pages that earlier tests freed.
        fresh = mmap.mmap(-1, 2**22)
        fresh.write(bytes(2**22))  # at least a fault, of a huge page
        kept.append(fresh)

    rounds = [None] * (FEWEST_CALLS + 1)
    assert metered(*rounds, function=touch)["faults"] >= metered(*rounds)["faults"] + 1
    assert "faults" not in metered(*rounds[1:], function=touch)


def test_the_peak_is_that_of_the_benchmark() -> None:
    bytearray(200 * 2**20)  # before it, and freed
    small = metered(None)["memory"]
    assert metered(None, function=lambda: len(bytearray(100 * 2**20)))["memory"] > small + 50


def test_a_test_has_the_import_of_its_file() -> None:
    imports = ImportTimes()
    with imports.timing("tests/test_a.py"):
        time.sleep(0.02)
    assert imports.of_test("tests/test_a.py::TestSteps::test_step[1]") >= 0.02
    assert imports.of_test("tests/test_b.py::test_step") is None

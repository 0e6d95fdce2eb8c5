"""Energy, regions and other processes of made-up telemetry, against curves whose integral is known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.gpu_evidence import (
    ENOUGH_TICKS,
    counted_joules,
    energy,
    growth,
    integrated_joules,
    observe_launch,
    other_processes,
    points_of,
    region_of,
    within,
)

fractions = st.floats(0.0, 1.0)


def times(period: float = 0.2, seconds: float = 20.0) -> list[float]:
    return [period * turn for turn in range(round(seconds / period) + 1)]


@given(st.floats(10, 500), st.floats(0, 20), fractions, fractions)
def test_the_integral_of_a_rising_load_is_exact(watts: float, slope: float, first: float, length: float) -> None:
    start = 1 + 8 * first
    region = (start, start + 1 + 9 * length)
    points = [(at, watts + slope * at) for at in times()]
    middle = (region[0] + region[1]) / 2
    assert integrated_joules(points, region) == pytest.approx((watts + slope * middle) * (region[1] - region[0]))


@given(st.floats(50, 700), st.floats(0.01, 0.15), fractions, st.floats(0, 0.1))
def test_the_counter_tells_the_energy_but_for_its_ticks(watts: float, tick: float, length: float, shift: float) -> None:
    region = (3.0 + shift, 6.0 + shift + 10 * length)
    points = [(at, watts * (at // tick * tick)) for at in times()]
    joules = counted_joules(points, region)
    assert abs(joules - watts * (region[1] - region[0])) <= watts * tick * 1.0001


@given(st.lists(st.floats(0.0, 100.0), min_size=101, max_size=101), fractions)
def test_energies_of_adjoining_regions_add_up(steps: list[float], where: float) -> None:
    at, total = times(), 0.0
    counter, power = [], []
    for moment, step in zip(at, steps, strict=True):
        total += step + 0.1  # it ticks
        counter.append((moment, total))
        power.append((moment, step))
    left, right = (3.0, 6.0 + 5 * where), (6.0 + 5 * where, 15.0)
    both = (3.0, 15.0)
    for joules, points in ((counted_joules, counter), (integrated_joules, power)):
        parts = [joules(points, region) for region in (left, right)]
        assert None not in parts
        assert joules(points, both) == pytest.approx(sum(part for part in parts if part is not None), abs=1e-6)


def test_the_counter_is_used_where_it_ticked_often_enough_and_else_the_power() -> None:
    region = (102.0, 106.0)
    counter, power = [(100 + at, 500 * at) for at in times()], [(100 + at, 490.0) for at in times()]
    often = {"joules": counter, "watts": power}
    assert energy(often, region) == (pytest.approx(2000.0), "energy counter")
    seldom = {**often, "joules": [(at, 500 * ((at - 100) // 1.0)) for at, _ in counter]}
    assert energy(seldom, region) == (pytest.approx(1960.0), "integral of power")
    fell = {"joules": [(at, joules if at < 104 else 0.0) for at, joules in counter]}
    assert energy(fell, region) is None
    # Too short, and not wholly sampled.
    assert energy(often, (102.0, 102.9)) is None
    assert energy(often, (99.0, 106.0)) is None
    assert energy(often, (118.0, 121.0)) is None
    assert energy({}, region) is None


def test_the_counter_counts_ticks_in_the_region_alone() -> None:
    # It moves all the time, but for the region.
    points = [(at, 10 * (at if at < 5 else 5 + max(0.0, at - 9))) for at in times()]
    assert counted_joules(points, (6.0, 8.0)) is None
    few = 0.2 * (ENOUGH_TICKS - 3)
    assert counted_joules(points, (5 - few, 5.1)) is None
    assert counted_joules(points, (5 - 0.2 * (ENOUGH_TICKS + 1), 5.1)) is not None


def test_power_is_not_guessed_over_a_gap() -> None:
    points = [(at, 100.0) for at in times() if not 4.0 < at < 5.5]
    assert integrated_joules(points, (2.0, 8.0)) is None
    assert integrated_joules(points, (6.0, 8.0)) == pytest.approx(200.0)


@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=60), fractions, fractions)
def test_only_readings_in_the_region_count(values: list[float | None], one: float, other: float) -> None:
    at = [0.2 * place for place in range(len(values))]
    first, last = sorted((one * at[-1], other * at[-1]))
    points = points_of({"at": at, "watts": values, "sm_mhz": 1410}, 100.0)
    region = 100 + first, 100 + last
    inside = [v for a, v in zip(at, values, strict=True) if region[0] <= 100 + a <= region[1]]
    assert within(points["watts"], region) == [value for value in inside if value is not None]
    assert within(points["sm_mhz"], region) == [1410] * len(inside)


REGION = (105.0, 108.0)


def process(whose: str, first: float, last: float) -> dict[str, Any]:
    return {"whose": whose, "first": first, "last": last, "bytes": None}


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        (None, None),
        ([], 0),
        ([process("own", 1, 9)], 0),
        ([process("own", 1, 9), process("other", 0, 9)], 1),
        ([process("own", 1, 9), process("other", 0, 4.9), process("other", 8.1, 9)], 0),
        ([process("own", 1, 9), process("other", 4, 5.1), process("other", 7.9, 9)], 2),
        ([process("own", 1, 9), process("unknown", 6, 6)], 0),
        ([process("unknown", 1, 9)], 0),  # in a container: the launch's own
        ([process("unknown", 1, 9), process("unknown", 0, 9)], 1),
        ([process("unknown", 1, 9), process("other", 0, 9)], 1),
    ],
)
def test_processes_of_others_in_the_region(processes: Any, expected: int | None) -> None:
    assert other_processes(processes, 100.0, REGION) == expected


def test_a_counter_that_grew() -> None:
    counters = ([(1.0, 5), (3.0, 7)], [(1.0, 7), (2.0, 6), (3.0, 0)], [(3.0, 3)], [])
    assert list(map(growth, counters)) == [2, None, None, None]


def test_the_region_is_what_the_launch_says() -> None:
    for told, expected in (([1.0, 2.5], (1.0, 2.5)), (None, None), ([2.0, 1.0], None), ([1.0], None), (["", ""], None)):
        assert region_of(Outcome(Status.OK, timed_between=told)) == expected  # type: ignore[arg-type]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["schema", "origin", "gpu", "samples", "slow_samples", "processes", "notes"])
tables = st.dictionaries(st.sampled_from(["at", "watts", "joules", "reasons"]), json_values)


@given(st.dictionaries(keys, json_values | tables | st.just(1)) | st.none())
def test_whatever_a_store_holds_is_read_or_left(content: dict[str, Any] | None) -> None:
    observe_launch(Outcome(Status.OK, samples_ns=[10**9] * 3, timed_between=[105.0, 108.0]), content)

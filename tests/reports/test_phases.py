"""Where a launch's time goes: its phases are all of it, whichever of them have columns."""

import pytest
from factory_of_records import outcome, record
from hypothesis import given
from hypothesis import strategies as st

from dlbench.reports.phases import phases_of_cells, seconds_of_phases

NAMES = (
    "start",
    "import",
    "build",
    "first step",
    "warm-up",
    "timed",
    "check",
    "product",
    "a phase of a later version",
)


def launch(lengths, **changes):
    begun = {name: 100.0 + sum(lengths[:place]) for place, name in enumerate(NAMES)}
    return record(result=outcome([1.0, 1.0], phases=dict(reversed(begun.items()))), **changes)


@given(st.lists(st.floats(0.0, 1.0), min_size=len(NAMES) - 1, max_size=len(NAMES) - 1))
def test_all_phases_together_last_as_long_as_the_launch(lengths):
    record_of_phases = launch(lengths)
    assert list(seconds_of_phases(record_of_phases).values())[:-1] == pytest.approx(lengths)
    assert sum(seconds_of_phases(record_of_phases).values()) == pytest.approx(
        record_of_phases.wall_seconds
    )
    (row,) = phases_of_cells([record_of_phases])
    assert sum(row.seconds.values()) == pytest.approx(record_of_phases.wall_seconds)
    assert row.beside == pytest.approx(record_of_phases.wall_seconds - 2.0)


def test_launches_without_phases_are_left_out():
    with_phases = launch([0.5] * 8)
    assert [
        row.launches for row in phases_of_cells([record(), with_phases, record(threads=2)])
    ] == [1]


def test_launches_of_two_machines_are_kept_apart():
    rows = phases_of_cells(
        [launch([0.5] * 8), launch([0.5] * 8), launch([0.5] * 8, machine="m-two")]
    )
    assert sorted(row.launches for row in rows) == [1, 2]

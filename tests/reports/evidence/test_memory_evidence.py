"""Page faults of launches: their number, their share of a step, and launches or stretches in
different states."""

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import SampleCounts
from dlbench.reports.results.flag_kinds import MEMORY_STATES
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.memory_evidence import observe_memory, states_between, states_within
from dlbench.reports.results.quantities import QUANTITIES
from dlbench.reports.results.results import Results

MICROSECOND = 1e-6


def launch(faults, step_seconds=0.05, cost=2 * MICROSECOND, steps_per_sample=1):
    """Return an outcome whose samples have these counts of page faults."""
    samples = [step_seconds * steps_per_sample] * len(faults)
    counts = SampleCounts(list(faults), [0] * len(faults), [0] * len(faults))
    return make.outcome(
        samples, sample_counts=counts, fault_seconds=cost, steps_per_sample=steps_per_sample
    )


def test_faults_are_those_of_a_step_and_their_share_is_what_they_cost():
    observed = observe_memory(
        [launch([40_000] * 4, steps_per_sample=4), launch([5_000] * 4, steps_per_sample=4)]
    )
    assert observed is not None
    assert (observed.fewest, observed.faults, observed.most) == (1250, 5625, 10_000)
    # 10,000 faults of 2 us in a step of 50 ms are 40 %, 1,250 are 5 %.
    assert observed.share == pytest.approx((0.4 + 0.05) / 2)


def test_without_counts_nothing_is_known_and_without_a_cost_no_share():
    assert observe_memory([make.outcome()]) is None
    assert states_within(make.outcome()) == states_between([make.outcome()]) == ""
    without_cost = launch([9000, 0] * 10)._replace(fault_seconds=None)
    observed = observe_memory([without_cost])
    assert observed is not None
    assert observed.share is None
    assert states_within(without_cost) == ""


@pytest.mark.parametrize(
    ("faults", "differs"),
    [
        ([9000] * 20, False),  # many, but always as many
        ([0] * 10 + [9000] * 10, True),
        ([0] * 19 + [9000], False),  # a single sample is no state
        ([0] * 10 + [400] * 10, False),  # 0.8 ms of 50 ms
        ([0] * 10 + [600] * 10, True),  # 1.2 ms
    ],
)
def test_stretches_of_a_launch_in_different_states_are_flagged(faults, differs):
    assert bool(states_within(launch(faults))) is differs
    matrix = build_matrix(results_of([launch(faults)] * 3))
    (cell,) = matrix.cells.values()
    assert cell.has(MEMORY_STATES) is differs


def test_launches_in_different_states_are_flagged_with_both_and_the_remedy():
    matrix = build_matrix(results_of([launch([3300] * 5), launch([9250] * 5), launch([5000] * 5)]))
    (cell,) = matrix.cells.values()
    (flag,) = [flag for flag in cell.flags if flag.kind is MEMORY_STATES]
    assert "launches fault in 3,300 to 9,250 pages a step" in flag.sentence
    assert "about 24% of its time" in flag.sentence
    assert "keep_heap (--tuning) lets the memory stay" in flag.sentence
    assert QUANTITIES["faults"].value(cell) == (5000, None, None)


def test_a_setting_in_force_is_not_advised():
    launch_with_heap = launch([0] * 10 + [9000] * 10)._replace(software={"tunable": ["keep_heap"]})
    (cell,) = build_matrix(results_of([launch_with_heap] * 3)).cells.values()
    (flag,) = [flag for flag in cell.flags if flag.kind is MEMORY_STATES]
    assert "0 to 9,000 pages" in flag.sentence
    assert "keep_heap" not in flag.sentence


def results_of(outcomes):
    records = [
        make.record(result=outcome, launch=number) for number, outcome in enumerate(outcomes)
    ]
    return Results(records=tuple(records), hosts={})

"""Expected seconds of launches: which earlier launches an estimate goes by, and what it is without any."""

import pytest
from pretended_runs import PLAN

from dlbench.adapters.families.own import Own
from dlbench.adapters.networks import of_family
from dlbench.suites.planning.plan import LaunchDurations, rough_duration

CELLS = {(cell.mode, cell.network, cell.threads): cell for cell in PLAN.cells}
EAGER = CELLS["eager", "fcn5", 1]


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({("null", "fcn5", 1): 2.0}, None),  # it computes nothing: that says nothing about others
        ({("eager", "lstm32", 1): 2.0}, None),
        ({("compile", "fcn5", 1): 30.0}, 30.0),
        ({("compile", "fcn5", 1): 30.0, ("eager", "fcn5", 2): 20.0, ("eager", "fcn5", 4): 10.0}, 15.0),
        ({("eager", "fcn5", 1): 40.0, ("eager", "fcn5", 2): 20.0}, 40.0),
    ],
)
def test_the_launches_most_alike_count(earlier, expected):
    durations = LaunchDurations(PLAN, {CELLS[key]: seconds for key, seconds in earlier.items()})
    assert durations.by_launches(EAGER) == expected
    assert durations.launch_duration(EAGER) == (expected or rough_duration(EAGER, PLAN.networks["fcn5"], PLAN.protocol))


def test_a_rough_estimate_is_scaled_by_how_long_the_launches_so_far_took_of_theirs():
    durations, other = LaunchDurations(PLAN), CELLS["eager", "lstm32", 1]
    rough = durations.launch_duration(other)
    durations.add(EAGER, 3 * durations.launch_duration(EAGER))
    assert durations.launch_duration(other) == pytest.approx(3 * rough)


def test_the_time_for_samples_is_expected_of_a_step_of_unknown_arithmetic():
    own = of_family("own", Own(), 64, "")
    assert rough_duration(EAGER._replace(network="own"), own, PLAN.protocol) >= PLAN.protocol.seconds

"""Curves out of records: which counts, what confirms it, and what it says at a step and at a loss."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from records_of_curves import TEXT, blocks, falling, launches, network

from dlbench.adapters.protocol import Status
from dlbench.reports.recurrent_cells.curves import ALIKE, curve_of, curves_of, trained


def only(records):
    ((of_text,),) = [list(trained(curves_of(records)).values())]
    (found,) = of_text.values()
    return found


@examples(40)
@given(st.floats(150, 800), st.floats(2.2, 4.0))
def test_steps_to_a_loss_are_those_of_the_law(length, target):
    curve = curve_of(launches(0.01, blocks(falling(length), 2000))[0])
    expected = -length * math.log((target - 2.0) / (math.log(96) - 2.0))
    found = curve.steps_to(target)
    if 25 < expected < 1975:
        assert found == pytest.approx(expected, abs=6)
        assert curve.loss_at(found) == pytest.approx(target, rel=1e-9)
    elif expected > 1980:
        assert found is None


def test_a_loss_beyond_the_curve_is_not_told():
    curve = curve_of(launches(0.01, [[50, 3.0], [100, 2.5]])[0])
    assert (curve.loss_at(10), curve.loss_at(101)) == (None, None)
    assert curve.loss_at(25.5) == 3.0
    assert curve.loss_at(50.5) == pytest.approx(2.75)
    assert (curve.steps_to(3.5), curve.steps_to(2.4)) == (25.5, None)


def test_the_longest_curve_counts_and_of_equal_ones_the_newest():
    short, first, last = (
        launches(0.01, [[50, loss], *([[100, loss]] if two else [])])[0] for loss, two in ((3, 0), (3.1, 1), (3.2, 1))
    )
    later = [first, short, last]
    for minutes, record in enumerate(later):
        object.__setattr__(record, "started", record.started + timedelta(minutes=minutes))
    assert only(later).curve.losses == (3.2, 3.2)
    assert only(later[:2]).curve.losses == (3.1, 3.1)


@examples(40)
@given(st.floats(-0.02, 0.02), st.sampled_from([50, 300, 500, 550]))
def test_another_framework_confirms_a_curve_up_to_step_500(error, where):
    curve = blocks(falling(200))
    other = [[step, loss * (1 + error * (step == where))] for step, loss in curve]
    found = only([launches(0.01, curve)[0], launches(0.01, other[:-1], framework="jax", adapter="jax", mode="jit")[0]])
    (check,) = found.checks
    assert check.steps == 500
    assert check.difference == pytest.approx(abs(error) if where <= 500 else 0.0, abs=1e-12)
    assert found.confirmed is (where > 500 or check.difference < ALIKE)


def test_a_curve_of_one_framework_is_not_checked_whoever_trained_it_again():
    again = [launches(0.01, blocks(falling(200)), machine=name)[0] for name in ("m-one", "m-two")]
    assert only(again).confirmed is None


@pytest.mark.parametrize(
    "changed",
    [
        {"status": Status.PARITY_FAILED},
        {"curve": [[50, 3.0], [50, 2.9]]},
        {"curve": [[50]]},
        {"curve": [[50, math.inf]]},
        {"curve": [], "curve_ended": ""},
        {"software": {"text": "no table"}},
        {"software": {"text": {**TEXT, "digest": 5}}},
        {"software": {}},
    ],
    ids=str,
)
def test_a_record_that_tells_no_curve_is_passed_over(changed):
    record = launches(0.01, blocks(falling(200)))[0]
    object.__setattr__(record, "outcome", record.outcome._replace(**changed))
    assert curve_of(record) is None


def test_networks_that_take_no_text_are_none_of_these():
    assert curve_of(launches(0.01, [[50, 3.0]], of=network(vocabulary=10000))[0]) is None

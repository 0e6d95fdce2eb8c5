"""The parity check: what it compares, what it forgives, and what it says."""

import numpy as np
import pytest
from known_networks import NETWORKS
from small_networks import parity_observation, reference_adapter, small_networks

from dlbench.adapters import networks
from dlbench.adapters.families import ParityRecipe
from dlbench.adapters.launch import batches, parity

SMALL = small_networks(networks)


def observed(losses, **updates):
    return parity.Observation(losses, {name: np.array(value, dtype=float) for name, value in updates.items()})


RECIPE = ParityRecipe(1, 1.0, 1e-5, 1e-2, "")


NAN = float("nan")


@pytest.mark.parametrize(
    ("losses", "b", "worst"), [([NAN, 1.0], 1.0, ""), ([2.0, NAN], 1.0, ""), ([2.0, 1.0], NAN, "b")]
)
def test_what_is_not_a_number_disagrees_and_is_named(losses, b, worst):
    right = observed([2.0, 1.0], a=[1.0, 2.0], b=[1.0], c=[1.0])
    verdict = parity.judge(observed(losses, a=[1.0, 2.0], b=[b], c=[1.5]), right, RECIPE)
    assert verdict.verdict == "disagrees"
    assert worst in ("", verdict.worst_parameter)
    assert verdict.loss_error is None
    assert verdict.losses == [loss for loss in losses if loss == loss]


def test_one_wrong_parameter_among_many_is_named():
    right = observed([2.0], **{f"p{index}": [1.0, -1.0] for index in range(50)})
    wrong = parity.Observation([2.0], {**right.updates, "p7": np.array([1.0, -1.1])})
    verdict = parity.judge(wrong, right, RECIPE)
    assert verdict.verdict == "disagrees"
    assert verdict.worst_parameter == "p7"
    assert "p7" in verdict.reason


def test_noise_on_a_parameter_that_hardly_moves_is_forgiven():
    right = observed([2.0], large=[1.0], still=[0.0])
    assert parity.judge(observed([2.0], large=[1.0], still=[1e-9]), right, RECIPE).verdict == "agrees"
    assert parity.judge(observed([2.0], large=[1.0], still=[1e-5]), right, RECIPE).verdict == "disagrees"


def test_an_observation_survives_its_file(tmp_path):
    kept = observed([1.0, 0.5], **{"lstm1.bias": [0.1, 0.2], "fc.weight": np.arange(64.0)})
    parity.save(str(tmp_path / "reference.npz"), kept)
    read = parity.load(str(tmp_path / "reference.npz"))
    assert read.losses == kept.losses
    assert set(read.updates) == set(kept.updates)
    for name, update in kept.updates.items():
        np.testing.assert_array_equal(read.updates[name], update)


def trained_on(name, batch):
    """Return what the parity steps show of the reference adapter on this mini-batch."""
    return parity_observation(parity, batches, reference_adapter(name), SMALL[name], batch=batch)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_repeated_mini_batch_trains_as_the_small_one_does(name):
    """Mean loss, gradients and batch statistics are those of the part: so the part's reference serves."""
    network, size = SMALL[name], 3
    expected = trained_on(name, batches.mini_batch(network, size))
    found = trained_on(name, batches.mini_batch(network, 4 * size, repeated=size))
    verdict = parity.judge(found, expected, network.parity)
    assert verdict.loss_error < 1e-13
    assert verdict.update_error < 1e-10, verdict.worst_parameter


@pytest.mark.parametrize("workers", [2, 3])
def test_labels_of_their_own_in_equal_parts_train_as_their_mean_does(workers):
    """Batch normalisation and all: so a reference of the part with the mean of the labels serves for all workers."""
    name, size = "small-residual", 3
    network = SMALL[name]
    expected = trained_on(name, batches.with_label_sets(network, size, workers))
    whole = batches.mini_batch(network, 2 * workers * size, repeated=size, label_sets=workers)
    verdict = parity.judge(trained_on(name, whole), expected, network.parity)
    assert verdict.loss_error < 1e-13
    assert verdict.update_error < 1e-10, verdict.worst_parameter
    # Of workers that do not average each would have learnt its own part alone.
    for worker in range(workers):
        rows = slice(worker * 2 * size, (worker + 1) * 2 * size)
        alone = trained_on(name, batches.Batch(whole.inputs[rows], whole.labels[rows]))
        assert parity.judge(alone, expected, network.parity).verdict == "disagrees"


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_float32_keeps_its_tolerances_and_lower_precisions_have_wider_ones(name):
    network = NETWORKS[name]
    recipe = network.parity
    assert parity.allowance(network, "float32") == parity.allowance(network, "float64") == (0.0, 0.0)
    for precision in ("tf32", "float16", "bfloat16"):
        allowed = parity.allowance(network, precision)
        assert recipe.loss_tolerance < allowed.loss < 0.1
        # An update of another sign, or none at all, is off by 1 or more.
        assert recipe.update_tolerance < allowed.update < 1.0
        # Rounding turns ReLUs and maxima over, which these networks have and the others do not.
        kinked = name in ("alexnet", "resnet50")
        assert (allowed.update > 0.3) is kinked


@pytest.mark.parametrize(
    ("precision", "verdict"),
    [("float32", "disagrees"), ("tf32", "agrees"), ("float16", "agrees"), ("bfloat16", "agrees")],
)
def test_the_cells_precision_decides_what_agrees(precision, verdict):
    allowed = parity.allowance(NETWORKS["fcn5"], precision)
    right, rounded = observed([2.0], a=[1.0, 2.0]), observed([2.0 + 1e-4], a=[1.0, 2.04])
    judged = parity.judge(rounded, right, RECIPE, allowed)
    assert judged.verdict == verdict
    assert judged.loss_tolerance == max(RECIPE.loss_tolerance, allowed.loss)
    assert judged.update_tolerance == max(RECIPE.update_tolerance, allowed.update)
    for wrong in (observed([2.0], a=[0.0, 0.0]), observed([2.0], a=[2.0, 4.0]), observed([2.5], a=[1.0, 2.0])):
        assert parity.judge(wrong, right, RECIPE, allowed).verdict == "disagrees"


def test_parameters_stand_still_only_where_none_of_them_moves():
    start = {"a": np.arange(3.0), "b": np.zeros(2)}
    read = []

    def held(**changed):
        for name, value in {**start, **changed}.items():
            read.append(name)
            yield name, value

    assert parity.stood_still(held(), start)
    assert read == ["a", "b"]
    assert not parity.stood_still(held(b=np.array([0.0, 1e-30])), start)
    read.clear()
    assert not parity.stood_still(held(a=np.arange(3.0) + 1), start)
    assert read == ["a"], "a first that moved is enough: reading them all may mean copying gigabytes"

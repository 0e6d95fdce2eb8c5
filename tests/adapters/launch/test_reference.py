"""The float64 reference is right: numerical and automatic differentiation agree with it."""

import subprocess
from pathlib import Path

import asked_of_frameworks as asked
import numpy as np
import pytest
from known_networks import AS_JSON, NETWORKS
from small_networks import FURTHER, SMALLEST_SHIPPED, parity_observation, reference_adapter, small_networks

from dlbench.adapters import networks
from dlbench.adapters.launch import batches, parity
from dlbench.suites.planning.framework import GUEST_DIRECTORY
from dlbench.suites.run import references

SMALL = {**small_networks(networks), **small_networks(networks, FURTHER)}


def prepared(network, batch_size):
    adapter = reference_adapter(network.name)
    adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, batch_size))
    return adapter


def loss_of(adapter):
    return adapter.model.forward(adapter.inputs, adapter.labels)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_gradients_are_those_of_finite_differences(name):
    network = SMALL[name]
    adapter = prepared(network, network.batch_size)
    loss_of(adapter)
    gradients = {name: gradient.copy() for name, gradient in adapter.model.backward()}
    assert set(gradients) == {parameter.name for parameter in network.family.parameters()}
    step = 1e-6
    for parameter, gradient in gradients.items():
        flat = adapter.weights[parameter].reshape(-1)
        for index in batches.sampled_entries(parameter, flat.size, 12):
            kept = flat[index]
            flat[index] = kept + step
            above = loss_of(adapter)
            flat[index] = kept - step
            below = loss_of(adapter)
            flat[index] = kept
            numerical = (above - below) / (2.0 * step)
            assert gradient.reshape(-1)[index] == pytest.approx(numerical, rel=1e-5, abs=2e-9), parameter


def test_the_first_of_equal_maxima_gets_the_gradient():
    from dlbench.adapters.reference import arithmetic

    images = np.zeros((1, 1, 4, 4))
    maxima, places = arithmetic.max_pool(images, 2, 2, 0)
    back = arithmetic.max_pool_backward(np.ones_like(maxima), places, images.shape, 2, 2, 0)
    expected = np.zeros((4, 4))
    expected[::2, ::2] = 1.0
    np.testing.assert_array_equal(back[0, 0], expected)


def differentiate_by_torch(python: Path, folder: Path, *wanted: str) -> None:
    (folder / "networks.json").write_text(AS_JSON)
    script = Path(__file__).parents[2] / "helpers" / "guests" / "autodiff.py"
    subprocess.run([python, "-I", script, GUEST_DIRECTORY, folder, *wanted], check=True, timeout=550)


@pytest.mark.framework
def test_the_reference_agrees_with_automatic_differentiation(framework_python, tmp_path):
    differentiate_by_torch(framework_python("torch"), tmp_path, *SMALL)
    for name, network in SMALL.items():
        other = parity.load(str(tmp_path / f"{name}-b{network.batch_size}.npz"))
        own = parity_observation(parity, batches, reference_adapter(name), network, network.batch_size)
        verdict = parity.judge(own, other, network.parity)
        assert verdict.loss_error < 1e-14, name
        assert verdict.update_error < 1e-11, (name, verdict.worst_parameter)


@pytest.mark.framework
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_shipped_references_agree_with_automatic_differentiation(framework_python, tmp_path, name):
    size = SMALLEST_SHIPPED.get(name, NETWORKS[name].batch_size)
    shipped = references.find(NETWORKS[name], size)
    if not shipped.exists():
        size = NETWORKS[name].batch_size
        shipped = references.find(NETWORKS[name], size)
    differentiate_by_torch(framework_python("torch"), tmp_path, f"{name}:{size}")
    other = parity.load(str(tmp_path / f"{name}-b{size}.npz"))
    verdict = parity.judge(parity.load(str(shipped)), other, NETWORKS[name].parity)
    assert verdict.loss_error < 1e-12
    assert verdict.update_error < 1e-8, verdict.worst_parameter


@pytest.mark.parametrize("mode", ["float64", "float32"])
def test_a_reset_reference_is_as_a_fresh_one(guests, mode):
    asked.reset(dtype=mode)(guests("reference", mode))


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        ("self.weights.update(weights); self.place(batch)", "fc1.weight"),
        ("right(self, weights, batch); self.inputs, self.labels = batch", "losses"),
        ("right(self, weights, self.first)", "losses"),
        ("right(self, {**weights, 'fc1.bias': self.weights['fc1.bias']}, batch)", "fc1.bias"),
        ("right(self, dict(weights, **weights), batch)", "looked up once"),
        ("np.copyto(self.first.inputs, batch.inputs); right(self, weights, batch)", "the first mini-batch"),
        ("right(self, weights, batch); self.model = type(self.model)(self.model.family, self.weights)", "made anew"),
    ],
)
def test_a_reset_that_leaves_something_is_found_out(guests, mistake, found):
    setup = f"""
right, ready = ADAPTER.reset, ADAPTER.prepare
def prepare(self, network, weights, batch):
    self.first = batch
    ready(self, network, weights, batch)
def reset(self, weights, batch):
    {mistake}
ADAPTER.prepare, ADAPTER.reset = prepare, reset
"""
    with pytest.raises(AssertionError, match=found):
        asked.reset("id(adapter.model)", setup, only=["small-dense"])(guests("reference"))

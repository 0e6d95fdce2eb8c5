"""The parity check: mini-batches, the float64 reference, and the mistakes that must be caught."""

import os
import subprocess
import sys
from pathlib import Path

import asked_of_frameworks as asked
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_networks import AS_JSON, NETWORKS
from mistakes import MISTAKES
from properties import examples
from small_networks import FURTHER, SMALLEST_SHIPPED, parity_observation, reference_adapter, small_networks

from dlbench.adapters import networks
from dlbench.adapters.families import Attention, ParityRecipe, Recurrent
from dlbench.adapters.launch import batches, parity
from dlbench.suites.environments import environment
from dlbench.suites.environments.interpreters import find_python, inspect
from dlbench.suites.planning.framework import GUEST_DIRECTORY, catalogue
from dlbench.suites.run import preparation

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
        loss, update = parity.allowance(network, precision)
        assert recipe.loss_tolerance < loss < 0.1
        # An update of another sign, or none at all, is off by 1 or more.
        assert recipe.update_tolerance < update < 1.0
        # Rounding turns ReLUs and maxima over, which these networks have and the others do not.
        kinked = name in ("alexnet", "resnet50")
        assert (update > 0.3) is kinked


@pytest.mark.parametrize(
    ("precision", "verdict"),
    [("float32", "disagrees"), ("tf32", "agrees"), ("float16", "agrees"), ("bfloat16", "agrees")],
)
def test_the_cells_precision_decides_what_agrees(precision, verdict):
    allowed = parity.allowance(NETWORKS["fcn5"], precision)
    right, rounded = observed([2.0], a=[1.0, 2.0]), observed([2.0 + 1e-4], a=[1.0, 2.04])
    judged = parity.judge(rounded, right, RECIPE, allowed)
    assert judged.verdict == verdict
    assert judged.loss_tolerance == max(RECIPE.loss_tolerance, allowed[0])
    assert judged.update_tolerance == max(RECIPE.update_tolerance, allowed[1])
    for wrong in (observed([2.0], a=[0.0, 0.0]), observed([2.0], a=[2.0, 4.0]), observed([2.5], a=[1.0, 2.0])):
        assert parity.judge(wrong, right, RECIPE, allowed).verdict == "disagrees"


def test_parameters_stand_still_only_where_none_of_them_moves():
    start = {"a": np.arange(3.0), "b": np.zeros(2)}
    read = []

    def held(**changed):
        for name, value in {**start, **changed}.items():
            read.append(name)
            yield name, value

    assert parity.all_unchanged(held(), start)
    assert read == ["a", "b"]
    assert not parity.all_unchanged(held(b=np.array([0.0, 1e-30])), start)
    read.clear()
    assert not parity.all_unchanged(held(a=np.arange(3.0) + 1), start)
    assert read == ["a"], "a first that moved is enough: reading them all may mean copying gigabytes"


#: The small network of each full one's family.
SMALL_OF = {
    "fcn5": "small-dense",
    "alexnet": "small-convolutional",
    "lstm32": "small-recurrent",
    "resnet50": "small-residual",
}
#: How far beyond its tolerance the error of a caught mistake must be.
MARGIN = 2.0
#: Mistakes that the check is known not to catch, and why; each is shown to be missed, lest this list grow stale.
_ONE_STEP = "one step of this network moves its weights far more by the gradient than by the decay"
_NEAR = "within a factor of two of the tolerance, which float32 rounding dictates"
MISSED: dict[tuple[str, str], str] = {
    ("weight decay 5e-4", "alexnet"): _ONE_STEP,
    ("weight decay 1e-4", "alexnet"): _ONE_STEP,
    ("epsilon 1e-3", "resnet50"): "7e-2 in the update, where float32 alone gives 2e-2",
    ("TF32 weights", "fcn5"): _NEAR,
    ("TF32 weights", "alexnet"): _NEAR,
    ("TF32 weights", "lstm32"): _NEAR,
    ("bfloat16 weights", "lstm32"): _NEAR,
}
#: What shows at full size only.
MISSED_IN_SMALL = {("TF32 weights", "lstm32"): _NEAR}


def errors_beyond(verdict) -> float:
    return max(verdict.loss_error / verdict.loss_tolerance, verdict.update_error / verdict.update_tolerance)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_in_the_small_network_of_every_family(mistake):
    adapter, names = MISTAKES[mistake]
    for name in names:
        network = SMALL[SMALL_OF.get(name, name)]
        right, wrong = (
            parity_observation(parity, batches, reference_adapter(network.name, kind), network, network.batch_size)
            for kind in (None, adapter)
        )
        missed = (mistake, name) in MISSED_IN_SMALL
        assert (parity.judge(wrong, right, network.parity).verdict == "agrees") is missed, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "name"), [(each, name) for each, (_, names) in MISTAKES.items() for name in names if name in SMALL_OF]
)
def test_a_mistake_is_caught_at_full_size(mistake, name):
    network, size = NETWORKS[name], SMALLEST_SHIPPED[name]
    reference = parity.load(str(preparation.find(network, size)))
    observation = parity_observation(parity, batches, reference_adapter(name, MISTAKES[mistake][0]), network, size)
    verdict = parity.judge(observation, reference, network.parity)
    if (mistake, name) in MISSED:
        assert errors_beyond(verdict) < MARGIN, f"now caught: take it off the list ({MISSED[mistake, name]})"
        return
    assert verdict.verdict == "disagrees"
    assert errors_beyond(verdict) > MARGIN


@pytest.mark.parametrize("name", sorted(SMALL))
def test_rounding_alone_is_not_taken_for_a_mistake(name: str):
    network = SMALL[name]
    exact, rounded = (
        parity_observation(parity, batches, reference_adapter(name, dtype=dtype), network, network.batch_size)
        for dtype in ("float64", "float32")
    )
    verdict = parity.judge(rounded, exact, network.parity)
    assert verdict.verdict == "agrees"
    assert verdict.update_error < verdict.update_tolerance / 2.0


@pytest.mark.slow
def test_rounding_alone_is_not_taken_for_a_mistake_at_full_size():
    network, size = NETWORKS["lstm32"], SMALLEST_SHIPPED["lstm32"]
    reference = parity.load(str(preparation.find(network, size)))
    own = parity_observation(parity, batches, reference_adapter("lstm32", dtype="float32"), network, size)
    verdict = parity.judge(own, reference, network.parity)
    assert verdict.verdict == "agrees"
    assert verdict.update_error < verdict.update_tolerance / 3.0


EVERY = {**small_networks(networks), **small_networks(networks, FURTHER)}


def prepared(network, batch_size):
    adapter = reference_adapter(network.name)
    adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, batch_size))
    return adapter


def loss_of(adapter):
    return adapter.model.forward(adapter.inputs, adapter.labels)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_gradients_are_those_of_finite_differences(name):
    network = EVERY[name]
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


def differentiate_by_torch(python: Path, folder: Path, *wanted: str) -> None:
    (folder / "networks.json").write_text(AS_JSON)
    script = Path(__file__).with_name("autodiff.py")
    subprocess.run([python, "-I", script, GUEST_DIRECTORY, folder, *wanted], check=True, timeout=550)


@pytest.mark.framework
def test_the_reference_agrees_with_automatic_differentiation(framework_python, tmp_path):
    differentiate_by_torch(framework_python("torch"), tmp_path, *EVERY)
    for name, network in EVERY.items():
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
    shipped = preparation.find(NETWORKS[name], size)
    if not shipped.exists():
        size = NETWORKS[name].batch_size
        shipped = preparation.find(NETWORKS[name], size)
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


# Digests of everything a launch draws, printed by whatever interpreter runs it. fcn5 and fcn8 are left out for their
# size; every drawing function is covered by the others.
DIGEST = """
import hashlib, json, sys, types
package = types.ModuleType("guest"); package.__path__ = [sys.argv[1]]; sys.modules["guest"] = package
batches = __import__("guest.launch.batches", fromlist=["x"]); networks = __import__("guest.networks", fromlist=["x"])
digest = hashlib.sha256()
given = json.loads(sys.argv[2])
for name in ("lstm32", "resnet50"):
    network = networks.from_data(given[name])
    weights = batches.initial_weights(network)
    for key in sorted(weights):
        digest.update(key.encode()); digest.update(weights[key].tobytes())
        digest.update(batches.sampled_entries(key, weights[key].size).astype("<i8").tobytes())
    batch = batches.mini_batch(network, 3)
    digest.update(batch.inputs.tobytes()); digest.update(batch.labels.tobytes())
import numpy
print(digest.hexdigest(), numpy.__version__, sys.version.split()[0])
"""

#: A change of it makes every shipped reference worthless: make them anew.
KNOWN = "31bcf8c1aec2886dbbafc341454964f9be4342229be501fedd1794892c577950"


def interpreters() -> dict[str, str]:
    """Return one interpreter for each NumPy and Python: the host, one of each version, oldest first, and others."""
    candidates = {version: find_python(version) for version in ("3.6", "3.7", "3.8", "3.9", "3.10", "3.12", "3.13")}
    for name, framework in catalogue().items():
        given_path = os.environ.get(f"DLBENCH_PYTHON_{name.upper()}")
        if framework.environment == "own":
            candidates[name] = Path(given_path) if given_path else environment.locate(framework).interpreter
    if "DLBENCH_PYTHON_OLDEST" in os.environ:
        candidates["oldest"] = Path(os.environ["DLBENCH_PYTHON_OLDEST"])
    there = {name: path for name, path in candidates.items() if path is not None and path.exists()}
    found = {"host": sys.executable}
    seen = {(np.__version__, sys.version_info[:2])}
    for name, path in there.items():
        told = inspect(path, ("numpy",))
        kind = told.distributions.get("numpy"), tuple(map(int, told.version.split(".")[:2]))
        if not told.missing and kind not in seen:
            seen.add(kind)
            found[name] = str(path)
    return found


@pytest.mark.parametrize("most", [3, pytest.param(99, marks=pytest.mark.slow)])
def test_the_same_bits_in_every_interpreter(most):
    answers = {}
    for name, python in list(interpreters().items())[:most]:
        command = [python, "-I", "-c", DIGEST, str(GUEST_DIRECTORY), AS_JSON]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{name}: {done.stderr[-500:]}"
        answers[name] = done.stdout.split()[0]
    assert set(answers.values()) == {KNOWN}, answers


@examples(20)
@given(st.sampled_from(sorted(NETWORKS)), st.integers(1, 5))
def test_a_mini_batch_fits_its_network(name, batch_size):
    network = NETWORKS[name]
    batch = batches.mini_batch(network, batch_size)
    assert batch.labels.dtype == np.int64
    assert batch.labels.min() >= 0
    assert batch.labels.max() < network.family.drawn_labels().below
    if isinstance(network.family, (Attention, Recurrent)):
        assert batch.inputs.shape == batch.labels.shape == (batch_size, network.family.steps)
        assert batch.inputs.dtype == np.int64
        assert batch.inputs.max() < network.family.vocabulary
    else:
        assert batch.inputs.shape == (batch_size, *network.family.input_shape)
        assert batch.inputs.dtype == np.float32
        assert np.abs(batch.inputs).max() <= network.family.input_scale
    again = batches.mini_batch(network, batch_size)
    np.testing.assert_array_equal(batch.inputs, again.inputs)
    np.testing.assert_array_equal(batch.labels, again.labels)


@examples(20)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_equal_parts_may_have_labels_of_their_own(size, times, sets):
    network = NETWORKS["resnet50"]
    several = batches.with_label_sets(network, size, sets)
    large = batches.mini_batch(network, size * times * sets, repeated=size, label_sets=sets)
    small = batches.mini_batch(network, size)
    np.testing.assert_array_equal(several.labels[0], small.labels)
    np.testing.assert_array_equal(several.inputs, small.inputs)
    assert (large.inputs.dtype, large.labels.dtype) == (small.inputs.dtype, small.labels.dtype)
    assert len({tuple(labels) for labels in several.labels}) == sets
    for part in range(times * sets):
        rows = slice(part * size, (part + 1) * size)
        np.testing.assert_array_equal(large.inputs[rows], several.inputs)
        np.testing.assert_array_equal(large.labels[rows], several.labels[part // times])
    assert set(several.labels.flat) <= set(range(network.family.classes))


@examples(20)
@given(st.sampled_from(["fcn5", "lstm32", "alexnet"]), st.integers(2, 3), st.integers(1, 4))
def test_elsewhere_each_example_comes_as_often_and_the_workers_parts_differ(name, size, times):
    network = NETWORKS[name]
    small, large = batches.mini_batch(network, size), batches.mini_batch(network, size * times, repeated=size)
    for example in range(size):
        rows = slice(example * times, (example + 1) * times)
        assert len(large.inputs[rows]) == times
        assert (large.inputs[rows] == small.inputs[example]).all()
        assert (large.labels[rows] == small.labels[example]).all()
    assert (large.inputs.dtype, large.labels.dtype) == (small.inputs.dtype, small.labels.dtype)
    assert not (large.inputs[:times] == large.inputs[-times:]).all()

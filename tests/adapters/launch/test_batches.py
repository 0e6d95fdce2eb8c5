"""Seeded weights and mini-batches: the same bits in every interpreter, and plausible numbers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_networks import AS_JSON, NETWORKS
from properties import examples

from dlbench.adapters.families import Attention, Recurrent
from dlbench.adapters.launch import batches
from dlbench.adapters.networks import of_family
from dlbench.suites.environments import environment
from dlbench.suites.environments.interpreters import find_python, inspect
from dlbench.suites.planning.framework import GUEST_DIRECTORY, catalogue

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
@given(st.integers(2, 40), st.integers(1, 6), st.integers(1, 5))
def test_one_hot_symbols_are_a_one_each_and_drawn_alike(vocabulary, steps, batch_size):
    network = of_family("characters", Recurrent(vocabulary, 0, 3, 1, steps, "gru"))
    looked_up = of_family("characters", Recurrent(vocabulary, 5, 3, 1, steps, "gru"))
    batch, other = [batches.mini_batch(each, batch_size) for each in (network, looked_up)]
    assert batch.inputs.shape == (batch_size, *network.family.drawn_inputs().shape)
    assert batch.inputs.dtype == np.float32
    assert set(np.unique(batch.inputs)) <= {0.0, 1.0}
    np.testing.assert_array_equal(batch.inputs.sum(axis=-1), np.ones((batch_size, steps)))
    np.testing.assert_array_equal(batch.inputs.argmax(axis=-1), other.inputs)
    np.testing.assert_array_equal(batch.labels, other.labels)


@examples(20)
@given(st.sampled_from(["resnet50"]), st.integers(1, 3), st.integers(1, 4))
def test_a_repeated_mini_batch_is_the_small_one_over_and_over_where_it_is_normalised_over(name, size, times):
    network = NETWORKS[name]
    small, large = batches.mini_batch(network, size), batches.mini_batch(network, size * times, repeated=size)
    assert len(large.inputs) == len(large.labels) == size * times
    for part in range(times):
        rows = slice(part * size, (part + 1) * size)
        np.testing.assert_array_equal(large.inputs[rows], small.inputs)
        np.testing.assert_array_equal(large.labels[rows], small.labels)
    assert (large.inputs.dtype, large.labels.dtype) == (small.inputs.dtype, small.labels.dtype)


@examples(20)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_equal_parts_may_have_labels_of_their_own(size, times, sets):
    network = NETWORKS["resnet50"]
    several = batches.with_label_sets(network, size, sets)
    large = batches.mini_batch(network, size * times * sets, repeated=size, label_sets=sets)
    np.testing.assert_array_equal(several.labels[0], batches.mini_batch(network, size).labels)
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


@given(st.text(st.characters(codec="ascii"), min_size=1, max_size=20), st.integers(1, 10**9))
def test_sampled_entries_lie_inside(name, size):
    entries = batches.sampled_entries(name, size)
    assert len(entries) == min(size, 64)
    assert entries.min() >= 0
    assert entries.max() < size
    np.testing.assert_array_equal(entries, batches.sampled_entries(name, size))
    if size <= 64:
        assert len(set(entries.tolist())) == size

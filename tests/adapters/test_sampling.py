"""Sampling machines sample the laws they define, and rounding decides none of their draws."""

import itertools

import numpy as np
import pytest
from small_networks import OF_FEW, parity_observation, small_networks

from dlbench.adapters import networks
from dlbench.adapters.families import Boltzmann, Family, McCullochPitts
from dlbench.adapters.launch import batches, parity
from dlbench.adapters.numpy.adapter import NumpyAdapter
from dlbench.adapters.protocol import Cell
from dlbench.adapters.reference.adapter import ReferenceAdapter
from dlbench.adapters.reference.sampling import MACHINES, settled

UNITS = 8
STATES = np.array(list(itertools.product((0.0, 1.0), repeat=UNITS)))
CODES = 2 ** np.arange(UNITS)[::-1]
CHAINS = 5000


def energies(weight, bias):
    return -0.5 * np.einsum("si,ij,sj->s", STATES, weight, STATES) - STATES @ bias


def boltzmann_law(weight, bias, tau):
    law = np.exp(-energies(weight, bias) / tau)
    return law / law.sum()


def little_law(weight, bias, tau):
    """Peretto 1984: the stationary law of parallel dynamics with symmetric weights."""
    gaps = STATES @ weight + bias
    law = np.exp(STATES @ bias / tau) * np.prod(1.0 + np.exp(gaps / tau), axis=1)
    return law / law.sum()


def made(family: Family, random):
    """Return a machine with weights of these shapes, and the whole symmetric matrix without
    diagonal."""
    weight, bias, activity = family.parameters()
    drawn = random.uniform(-1.0, 1.0, weight.shape)
    matrix = np.zeros((UNITS, UNITS))
    if weight.shape == matrix.shape:
        matrix = np.tril(drawn, -1) + np.tril(drawn, -1).T
        drawn = matrix
    else:
        matrix[: len(drawn), len(drawn) :] = drawn
        matrix += matrix.T
    parameters = {
        "weight": drawn,
        "bias": random.uniform(-1.0, 1.0, bias.shape),
        "activity": np.zeros(activity.shape),
    }
    return MACHINES[type(family)](family, parameters), matrix, parameters["bias"]


def distance(counts, law):
    """Return the total variation between what was seen and a law."""
    return 0.5 * float(np.abs(counts / counts.sum() - law).sum())


@pytest.mark.parametrize(
    ("order", "law"),
    [("sequential", boltzmann_law), ("bipartite", boltzmann_law), ("synchronous", little_law)],
)
def test_sweeps_sample_their_law(order, law):
    random, family = np.random.default_rng(7), Boltzmann(UNITS, order, 0.8)
    machine, weight, bias = made(family, random)
    machine.start(random.integers(0, 2, (CHAINS, UNITS)).astype(float))
    counts = np.zeros(len(STATES))
    for sweep in range(220):
        machine.move(random.random((CHAINS, UNITS)))
        if sweep >= 20:
            counts += np.bincount((machine.state @ CODES).astype(int), minlength=len(STATES))
    assert distance(counts, law(weight, bias, family.tau)) < 0.02
    other_laws = {boltzmann_law, little_law} - {law}
    assert distance(counts, other_laws.pop()(weight, bias, family.tau)) > 0.05, (
        "the test can distinguish the two laws"
    )


def test_transitions_spend_their_time_by_the_same_law():
    random, family = np.random.default_rng(8), McCullochPitts(UNITS, 1, 0.8)
    machine, weight, bias = made(family, random)
    machine.start(random.integers(0, 2, (CHAINS, UNITS)).astype(float))
    spent = np.zeros(len(STATES))
    for transition in range(2000):
        codes = (machine.state @ CODES).astype(int)
        held = machine.transition(random.random(CHAINS), random.random(CHAINS))
        if transition >= 100:
            spent += np.bincount(codes, held, minlength=len(STATES))
    assert distance(spent, boltzmann_law(weight, bias, family.tau)) < 0.02
    np.testing.assert_allclose(machine.fields, machine.state @ weight.T + bias, atol=1e-9)


def test_which_unit_fires_first_follows_its_rate_whatever_the_weights():
    random, family = np.random.default_rng(9), McCullochPitts(UNITS, 1, 0.8)
    machine, _, bias = made(family, random)
    weight = machine.weights["weight"] = random.uniform(
        -1.0, 1.0, (UNITS, UNITS)
    )  # a diagonal, and not symmetric
    state = np.tile(random.integers(0, 2, UNITS).astype(float), (100_000, 1))
    machine.start(state.copy())
    held = machine.transition(random.random(len(state)), random.random(len(state)))
    rates = np.exp((1.0 - 2.0 * state[0]) * (weight @ state[0] + bias) / (2.0 * family.tau))
    flipped = np.bincount(np.abs(machine.state - state).argmax(axis=1), minlength=UNITS)
    assert distance(flipped, rates / rates.sum()) < 0.01
    assert held.mean() == pytest.approx(1.0 / rates.sum(), rel=0.02)
    np.testing.assert_allclose(machine.fields, machine.state @ weight.T + bias, atol=1e-9)


def test_without_temperature_it_is_a_hopfield_network():
    random = np.random.default_rng(10)
    machine, weight, bias = made(Boltzmann(UNITS, "sequential", 1e-3), random)
    machine.start(random.integers(0, 2, (CHAINS, UNITS)).astype(float))
    energy = energies(weight, bias)
    before = energy[(machine.state @ CODES).astype(int)]
    for _ in range(10):
        # Numbers next to 0 or 1 may still choose the worse state.
        machine.move(random.uniform(0.01, 0.99, (CHAINS, UNITS)))
        after = energy[(machine.state @ CODES).astype(int)]
        assert np.all(after <= before + 0.01)
        before = after
    assert len(np.unique(np.round(before, 6))) < 10, "few states are stable"


LARGER = (
    ("larger-sequential", 16, "boltzmann", {"units": 64, "order": "sequential"}),
    ("larger-synchronous", 16, "boltzmann", {"units": 256, "order": "synchronous"}),
    ("larger-bipartite", 16, "boltzmann", {"units": 256, "order": "bipartite"}),
    ("larger-mpm", 16, "mcculloch_pitts", {"units": 256}),
)
MADE = {**small_networks(networks, OF_FEW[1:]), **small_networks(networks, LARGER)}


@pytest.mark.parametrize("name", sorted(MADE))
def test_float32_makes_the_same_decisions_as_float64(name):
    network = MADE[name]
    cell = Cell("numpy", "numpy", "plain", name, "cpu", 1, network.batch_size)
    states, observations = [], []
    for kind in (ReferenceAdapter, NumpyAdapter):
        adapter = kind(cell, {}, "")
        observations.append(
            parity_observation(parity, batches, adapter, network, network.batch_size)
        )
        model = adapter.model
        states.append(model.state)
    assert np.array_equal(*states)
    verdict = parity.judge(observations[1], observations[0], network.parity)
    assert verdict.verdict == "agrees", verdict.reason
    assert verdict.loss_error < network.parity.loss_tolerance / 3


@pytest.mark.parametrize("name", sorted(MADE))
def test_settled_numbers_are_hardly_other_ones_and_stay_settled(name):
    network = MADE[name]
    batch = batches.mini_batch(network, network.batch_size)
    drawn = batches.draw(
        batches.seeded("batch", name, network.batch_size),
        network.batch_size,
        network.family.drawn_inputs(),
    )
    moved = np.abs(batch.inputs - drawn)
    assert moved.max() < 1e-4
    assert (moved > 0).mean() < 0.03
    again = settled(
        network.family, batches.initial_weights(network), *batch, steps=network.parity.steps
    )
    assert np.abs(again - batch.inputs).max() < 1e-6
    assert np.array_equal(np.unique(batch.labels), [0, 1])

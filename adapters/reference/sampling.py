"""Sampling machines in NumPy, and the numbers with which every framework decides alike.

The machines follow their definitions. A chain's decision compares a random number with a computed
one, so rounding takes one of so many decisions to the other side, and changes the chain from there
on. `settled` moves the random numbers of a mini-batch that lie within `MARGIN` of a decision's edge
a little away from it. Then all honest arithmetic in float32 decides alike, and states can be
compared.
"""

from typing import Any, Dict, Iterator, Tuple, Type

import numpy as np

from ..families import Boltzmann, Family, McCullochPitts
from .arithmetic import sigmoid

#: About ten times the error of float32 in a sum of a thousand rates. One in 25,000 numbers is so
#: near a probability.
MARGIN = 2e-5
#: To settle a number anew may unsettle a later step. After the first pass there is hardly one.
_PASSES = 10


class Chains:
    """Chains, whose states are kept from step to step.

    Each step changes ``activity`` among the weights.
    """

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.state: Any = None  # (chains, units)
        self.settles = False
        self.moved = 0  # random numbers, while it settles them

    def start(self, state: np.ndarray) -> None:
        self.state = state

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Move the chains by a step, and return its loss."""
        if self.state is None:
            self.start(labels.astype(inputs.dtype))
        return self.move(inputs)

    def move(self, numbers: np.ndarray) -> float:
        raise NotImplementedError

    def backward(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield no gradient."""
        return iter(())


class BoltzmannMachine(Chains):
    """The family ``Boltzmann``: blocks of units, each decided at once from the state as it is."""

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        super().__init__(family, weights)
        units = family.units
        first, _ = family.halves
        self.blocks = {
            "sequential": [slice(unit, unit + 1) for unit in range(units)],
            "synchronous": [slice(0, units)],
            "bipartite": [slice(0, first), slice(first, units)],
        }[family.order]

    def product(self, block: slice) -> np.ndarray:
        """Return the sum over the other units of weight times state.

        Its shape is (chains, units of the block).
        """
        weight = self.weights["weight"]
        if self.family.order != "bipartite":
            return self.state @ weight[block].T
        first = self.family.halves[0]
        if block.start:
            return self.state[:, :first] @ weight
        return self.state[:, first:] @ weight.T

    def move(self, numbers: np.ndarray) -> float:
        shown = np.empty_like(self.state)
        for block in self.blocks:
            shown[:, block] = self.probabilities(self.product(block) + self.weights["bias"][block])
            self.state[:, block] = self.decide(numbers[:, block], shown[:, block])
        mean = shown.mean(axis=0)
        self.weights["activity"] += mean
        return float(mean.mean())

    def probabilities(self, gaps: np.ndarray) -> np.ndarray:
        return sigmoid(gaps / self.family.tau)

    def decide(self, numbers: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        if self.settles:
            distance = numbers - probabilities
            near = np.abs(distance) < MARGIN
            self.moved += int(near.sum())
            numbers[near] = (probabilities + np.copysign(1.5 * MARGIN, distance))[near]
        return numbers < probabilities


class McCullochPittsMachine(Chains):
    """The family ``McCullochPitts``."""

    def start(self, state: np.ndarray) -> None:
        self.state = state
        self.rows = np.arange(len(state))
        self.clock = np.zeros(len(state), state.dtype)
        # Not by BLAS: its threads would still spin when the first steps are over.
        self.fields = np.einsum("ci,ui->cu", state, self.weights["weight"]) + self.weights["bias"]

    def move(self, numbers: np.ndarray) -> float:
        for number in range(self.family.transitions):
            self.transition(numbers[:, number], numbers[:, self.family.transitions + number])
        self.weights["activity"] += self.state.mean(axis=0)
        return float(self.clock.mean())

    def transition(self, choices: np.ndarray, waits: np.ndarray) -> np.ndarray:
        """Flip the unit of each chain that fires first.

        Return the times that the states before were held.
        """
        signs = 1.0 - 2.0 * self.state
        edges = np.cumsum(np.exp(signs * self.fields / (2.0 * self.family.tau)), axis=1)
        chosen = self.choose(choices, edges)
        held = -np.log(waits) / edges[:, -1]
        self.clock += held
        change = signs[self.rows, chosen]
        self.state[self.rows, chosen] += change
        self.update(chosen, change)
        return held

    def choose(self, choices: np.ndarray, edges: np.ndarray) -> np.ndarray:
        total = edges[:, -1]
        chosen = np.argmax(edges > (choices * total)[:, None], axis=1)
        if self.settles:
            high = edges[self.rows, chosen] / total
            low = np.where(chosen > 0, edges[self.rows, chosen - 1] / total, 0.0)
            margin = np.minimum(MARGIN, (high - low) / 4.0)
            within = np.clip(choices, low + margin, high - margin)
            self.moved += int(np.sum(np.abs(within - choices) > 0.01 * MARGIN))
            choices[...] = within
        return chosen

    def update(self, chosen: np.ndarray, change: np.ndarray) -> None:
        """Add the changes by the flipped units to the fields."""
        self.fields += change[:, None] * self.weights["weight"].T[chosen]


MACHINES: Dict[Type[Family], Any] = {
    Boltzmann: BoltzmannMachine,
    McCullochPitts: McCullochPittsMachine,
}


def settled(
    family: Family,
    weights: Dict[str, np.ndarray],
    numbers: np.ndarray,
    states: np.ndarray,
    steps: int,
) -> np.ndarray:
    """Return the random numbers, moved away from the edges of decisions.

    These are decisions in the first ``steps``, which reuse the numbers.
    """
    moved = numbers.astype(np.float64)
    for _ in range(_PASSES):
        exact_weights = {name: value.astype(np.float64) for name, value in weights.items()}
        machine = MACHINES[type(family)](family, exact_weights)
        machine.settles = True
        for _ in range(steps):
            machine.forward(moved, states)
        if not machine.moved:
            break
    return moved.astype(np.float32)

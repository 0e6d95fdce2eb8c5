"""Sampling machines on a framework's arrays: what their adapters share.

The program of a step is the framework's own. Units come first and chains second where a sweep goes
through the units, so that a unit's row is contiguous. Chains come first where a transition sums
over the units of each.
"""

from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import numpy as np

from ..base import Adapter
from ..families import Boltzmann
from ..launch.batches import Batch

Arrays = Dict[str, Any]  # float32 arrays by name
#: (arrays that stay, arrays that move) -> the latter after a step, and the loss.
Program = Callable[[Arrays, Arrays], Tuple[Arrays, Any]]


def arrays(family: Any, weights: Mapping[str, np.ndarray], batch: Batch) -> Tuple[Arrays, Arrays]:
    """Return the arrays that stay and those that a step moves.

    They are float32, in the layouts that programs read. Each weight is read once. Of a Boltzmann
    machine ``weight`` (units, units) or (first half, second half), ``bias`` (units, 1), ``numbers``
    (units, chains); ``state`` (units, chains), and ``gaps`` of the same shape where they are kept
    up to date. Of a McCulloch-Pitts machine ``weight`` (the flipped unit, units), ``choices`` and
    ``waits``, exponential with mean 1, (transitions, chains); ``signs``, 1 - 2 state, and
    ``fields`` (chains, units), ``clock`` (chains,).
    """
    weight = weights["weight"]
    bias = weights["bias"]
    moving: Arrays = {"activity": weights["activity"]}
    state = batch.labels.astype(np.float32)
    if isinstance(family, Boltzmann):
        fixed: Arrays = {"weight": weight, "bias": bias[:, None], "numbers": batch.inputs.T}
        moving["state"] = state.T
        if family.order == "sequential":
            moving["gaps"] = _product(state, weight).T + fixed["bias"]
    else:
        choices, waits = np.split(batch.inputs, 2, axis=1)
        fixed = {"weight": weight.T, "bias": bias, "choices": choices.T, "waits": -np.log(waits).T}
        moving.update(
            signs=1.0 - 2.0 * state,
            fields=_product(state, weight) + bias,
            clock=np.zeros(len(state)),
        )
    return _copy(fixed), _copy(moving)


def _product(state: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return state @ weight.T, not by BLAS, whose threads would still spin in the first steps."""
    product: np.ndarray = np.einsum("ci,ui->cu", state, weight)
    return product


def _copy(arrays: Arrays) -> Arrays:
    return {name: np.array(value, np.float32, order="C") for name, value in arrays.items()}


class SamplingDriver:
    """A sampling machine, which answers for its adapter once `drive` was called.

    ``put`` takes an array that may be changed or dropped after, and returns the framework's own.
    ``program`` takes the arrays that stay and those that move, and returns the latter and the loss.
    """

    #: Methods of the adapter that it takes over.
    answers: Tuple[str, ...] = ("reset", "step", "last_loss", "set_learning_rate", "parameters")

    def __init__(
        self,
        family: Any,
        put: Callable[[np.ndarray], Any],
        program: Callable[[Arrays, Arrays], Tuple[Arrays, Any]],
    ) -> None:
        self.family = family
        self.put = put
        self.program = program

    def drive(self, adapter: Adapter, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        for method in self.answers:
            setattr(adapter, method, getattr(self, method))
        self.reset(weights, batch)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        fixed, moving = arrays(self.family, weights, batch)
        self.fixed = {name: self.put(value) for name, value in fixed.items()}
        self.moving = {name: self.put(value) for name, value in moving.items()}
        self.loss: Any = float("nan")

    def step(self) -> None:
        self.moving, self.loss = self.program(self.fixed, self.moving)

    def last_loss(self) -> float:
        return float(self.loss)

    def set_learning_rate(self, rate: float) -> None:
        """Learn nothing."""

    def array(self, value: Any) -> np.ndarray:
        """Return one of the framework's arrays as NumPy's."""
        return np.asarray(value)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        weight = self.array(self.fixed["weight"])
        yield "weight", weight if isinstance(self.family, Boltzmann) else weight.T
        yield "bias", self.array(self.fixed["bias"]).reshape(-1)
        yield "activity", self.array(self.moving["activity"])

"""Fully connected networks: inputs, hidden layers of one activation, logits."""

from typing import Any, Dict, NamedTuple, Tuple

from .chain import Chain
from .layers import ACTIVATIONS, Dense, Layer
from .numbers import Numbers, without_usual


class _Numbers(NamedTuple):
    inputs: int
    hidden: Tuple[int, ...]
    outputs: int
    activation: str  # of the hidden layers
    input_scale: float = 1.0  # half-width of the uniform distribution of the synthetic inputs


class Feedforward(_Numbers, Chain):
    """Dense layers."""

    __slots__ = ()

    name = "feedforward"
    kind = "dense"
    lists = ("hidden",)

    @classmethod
    def read(cls, numbers: Numbers) -> "Feedforward":
        """Read ``inputs``, ``hidden``, ``outputs``, ``activation`` and, where it is not 1, ``input_scale``."""
        return cls(
            numbers.whole("inputs", example="784"),
            tuple(numbers.wholes("hidden", shortest=0)),
            numbers.whole("outputs", least=2, example="10"),
            numbers.word("activation", ACTIVATIONS),
            numbers.real("input_scale", 1.0, 1e-6, 1e6),
        )

    def data(self) -> Dict[str, Any]:
        """Return the numbers."""
        return without_usual(dict(self._asdict(), hidden=list(self.hidden)), [("input_scale", 1.0)])

    @property
    def input_shape(self) -> Tuple[int, ...]:
        """Return the shape of one example's inputs."""
        return (self.inputs,)

    @property
    def layers(self) -> Tuple[Layer, ...]:
        """Return the layers, called fc1, fc2 and so on."""
        sizes = (self.inputs,) + tuple(self.hidden) + (self.outputs,)
        last = len(sizes) - 2
        return tuple(
            Dense("fc%d" % (index + 1), sizes[index], sizes[index + 1], "none" if index == last else self.activation)
            for index in range(last + 1)
        )

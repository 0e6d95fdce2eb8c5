"""Fully connected networks: inputs, hidden layers of one activation, logits."""

from typing import Any, Dict, List, NamedTuple, Tuple

from .family import Drawn, Family, ParityRecipe, kinked_recipe, of_sane_size, smooth_recipe
from .layers import ACTIVATIONS, Dense, Layer, Parameter, chain_multiply_adds, chain_parameters, chain_words
from .numbers import Numbers, without_usual


class _Numbers(NamedTuple):
    inputs: int
    hidden: Tuple[int, ...]
    outputs: int
    activation: str  # of the hidden layers
    input_scale: float = 1.0  # half-width of the uniform distribution of the synthetic inputs


class Feedforward(_Numbers, Family):
    """Dense layers ending in logits; loss: softmax cross-entropy, mean over the batch."""

    __slots__ = ()

    name = "feedforward"
    kind = "dense"
    lists = ("hidden",)

    @classmethod
    def from_data(cls, data: Dict[str, Any]) -> "Feedforward":
        """Read ``inputs``, ``hidden``, ``outputs``, ``activation`` and, where it is not 1, ``input_scale``."""
        numbers = Numbers(data)
        family = cls(
            numbers.whole("inputs", example="784"),
            tuple(numbers.wholes("hidden", shortest=0)),
            numbers.whole("outputs", least=2, example="10"),
            numbers.word("activation", ACTIVATIONS),
            numbers.real("input_scale", 1.0, 1e-6, 1e6),
        )
        numbers.finish()
        of_sane_size(family)
        return family

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

    def parameters(self) -> List[Parameter]:
        """Return a weight and a bias for each layer."""
        return chain_parameters(self.layers)

    def multiply_adds(self) -> List[int]:
        """Return those of each layer."""
        return chain_multiply_adds(self.layers)

    def drawn_inputs(self) -> Drawn:
        """Return uniform numbers."""
        return Drawn(self.input_shape, None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        """Return one class."""
        return Drawn((), self.outputs)

    def kinked(self) -> bool:
        """ReLUs have kinks."""
        return self.activation == "relu" and bool(self.hidden)

    def parity(self) -> ParityRecipe:
        """Return two steps at a high rate, or one at a low rate where there are ReLUs."""
        return kinked_recipe() if self.kinked() else smooth_recipe(len(self.hidden) + 1)

    def words(self) -> str:
        """Return the number of layers."""
        return chain_words(self.layers)

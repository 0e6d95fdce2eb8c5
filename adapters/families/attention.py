"""Transformers as language models: embedding, causal self-attention and feedforward layers, a dense softmax."""

import math
from typing import Any, Dict, List, NamedTuple

from .family import Drawn, Family, Numbers, Parameter, ParityRecipe, without_usual


class _Numbers(NamedTuple):
    vocabulary: int
    width: int
    heads: int
    layers: int
    steps: int
    feedforward: int
    epsilon: float = 1e-5  # of the layer normalisations


class Attention(_Numbers, Family):
    """A decoder with normalisation first (Radford et al. 2019), loss: mean over batch and steps.

    x = embedding[token] + position[step]; in each layer x += attention(norm1(x)), then
    x += lower(gelu(upper(norm2(x)))); logits = fc(norm(x)), whose weight is not the embedding's. A step sees itself and
    the earlier ones; scores are divided by the root of a head's width; there is no dropout. gelu is the approximation
    by tanh.
    """

    __slots__ = ()

    name = "attention"
    kind = "attention"
    learns_inputs = True

    @classmethod
    def read(cls, numbers: Numbers) -> "Attention":
        width = numbers.whole("width", example="256")
        heads = numbers.whole("heads", example="4")
        if width % heads:
            raise numbers.error("heads", "%d do not divide the width %d. Give a divisor of it." % (heads, width))
        return cls(
            numbers.whole("vocabulary", least=2, example="10000"),
            width,
            heads,
            numbers.whole("layers", most=1000, example="2"),
            numbers.whole("steps", most=100000, example="32"),
            numbers.whole("feedforward", 4 * width),
            numbers.real("epsilon", 1e-5, 1e-8, 1.0),
        )

    def data(self) -> Dict[str, Any]:
        return without_usual(dict(self._asdict()), [("feedforward", 4 * self.width), ("epsilon", 1e-5)])

    def parameters(self) -> List[Parameter]:
        """Return the embeddings, and weights, biases, gammas and betas of each layer and of the end.

        Rows of ``qkv`` are those of queries, then keys, then values, and of each the heads one after another.
        """
        width, hidden = self.width, self.feedforward
        found = [
            Parameter("embedding.weight", (self.vocabulary, width), 0.1),
            Parameter("position.weight", (self.steps, width), 0.1),
        ]
        for layer in range(1, self.layers + 1):
            name = "layer%d." % layer
            found += _norm(name + "norm1", width)
            found += _dense(name + "qkv", 3 * width, width)
            found += _dense(name + "project", width, width)
            found += _norm(name + "norm2", width)
            found += _dense(name + "upper", hidden, width)
            found += _dense(name + "lower", width, hidden)
        return found + _norm("norm", width) + _dense("fc", self.vocabulary, width)

    def multiply_adds(self) -> List[int]:
        of_weights = 4 * self.width * self.width + 2 * self.width * self.feedforward
        of_scores = (self.steps + 1) * self.width  # on average, products with keys and with values
        found = [self.steps * (of_weights + of_scores)] * self.layers
        return [*found, self.steps * self.vocabulary * self.width]

    def drawn_inputs(self) -> Drawn:
        return Drawn((self.steps,), self.vocabulary)

    def drawn_labels(self) -> Drawn:
        return Drawn((self.steps,), self.vocabulary)

    @property
    def alphabet(self) -> int:
        return self.vocabulary

    def parity(self) -> ParityRecipe:
        """Return two steps at a high rate.

        Largest errors seen of gpt32 and gpt64, loss and update, mini-batches of 2 to 16: 1.0e-7 and 3.4e-5 (PyTorch,
        JAX, TensorFlow, the reference's own code in float32). Smallest mistakes that must be caught: 8e-2 in the update
        for an epsilon of 1e-3, 2e-1 for another scale, 1.0 without the mask.
        """
        return ParityRecipe(
            2,
            1.0,
            3e-6,
            4e-4,
            "learning rate 1: at 0.01 the update of a mean loss is below float32 resolution and would hide a mistake",
        )

    def words(self) -> str:
        sizes = self.layers, self.heads, self.width, self.feedforward, self.steps
        return "embedding, %d layers of %d heads, width %d, feedforward %d, %d steps" % sizes


def _dense(name: str, outputs: int, inputs: int) -> List[Parameter]:
    bound = 1.0 / math.sqrt(inputs)
    return [Parameter(name + ".weight", (outputs, inputs), bound), Parameter(name + ".bias", (outputs,), bound)]


def _norm(name: str, width: int) -> List[Parameter]:
    return [Parameter(name + ".gamma", (width,), 0.0, 1.0), Parameter(name + ".beta", (width,), 0.0, 0.0)]

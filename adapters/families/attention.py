"""Transformers as language models.

They have an embedding, causal self-attention and feedforward layers, and a dense softmax.
"""

import math
from typing import List

from .family import (
    Drawn,
    Family,
    Numbers,
    Parameter,
    ParityRecipe,
    dense_parameters,
    norm_parameters,
    number,
)


class Attention(Family):
    """A decoder with normalisation first (Radford et al. 2019), loss: mean over batch and steps.

    x = embedding[token] + position[step]; in each layer x += attention(norm1(x)), then x +=
    lower(gelu(upper(norm2(x)))); logits = fc(norm(x)), whose weight is not the embedding's. A step
    sees itself and the earlier ones. Scores are divided by the root of a head's width. There is no
    dropout. gelu is the approximation by tanh. ``epsilon`` is that of the layer normalisations.
    """

    name = "attention"
    kind = "attention"
    learns_inputs = True

    vocabulary: int = number(Numbers.whole, least=2, example="10000")
    width: int = number(Numbers.whole, example="256")
    heads: int = number(Numbers.whole, example="4")
    layers: int = number(Numbers.whole, most=1000, example="2")
    steps: int = number(Numbers.whole, most=100000, example="32")
    feedforward: int = number(Numbers.whole, usual=lambda family: 4 * family.width)  # four widths
    epsilon: float = number(Numbers.real, usual=1e-5, least=1e-8, most=1.0)

    def check(self, numbers: Numbers) -> None:
        if self.width % self.heads:
            text = "%d do not divide the width %d. Give a divisor of it." % (self.heads, self.width)
            raise numbers.error("heads", text)

    def parameters(self) -> List[Parameter]:
        """Return the embeddings, each layer's parameters, and those of the last two layers.

        These are a normalisation and a dense layer. Rows of ``qkv`` are those of queries, then
        keys, then values. Within each, one head follows another.
        """
        width = self.width
        hidden = self.feedforward
        parameters = [
            Parameter("embedding.weight", (self.vocabulary, width), 0.1),
            Parameter("position.weight", (self.steps, width), 0.1),
        ]
        for layer in range(1, self.layers + 1):
            name = "layer%d." % layer
            parameters += norm_parameters(name + "norm1", width)
            parameters += _dense(name + "qkv", 3 * width, width)
            parameters += _dense(name + "project", width, width)
            parameters += norm_parameters(name + "norm2", width)
            parameters += _dense(name + "upper", hidden, width)
            parameters += _dense(name + "lower", width, hidden)
        parameters += norm_parameters("norm", width)
        return parameters + _dense("fc", self.vocabulary, width)

    def multiply_adds(self) -> List[int]:
        weights = 4 * self.width * self.width + 2 * self.width * self.feedforward
        scores = (self.steps + 1) * self.width  # on average, products with keys and with values
        products = [self.steps * (weights + scores)] * self.layers
        return [*products, self.steps * self.vocabulary * self.width]

    def drawn_inputs(self) -> Drawn:
        return Drawn((self.steps,), self.vocabulary)

    def parity(self) -> ParityRecipe:
        why = (
            "learning rate 1: at 0.01 the update of a mean loss is below float32 resolution and "
            "would hide a mistake"
        )
        return ParityRecipe(2, 1.0, 3e-6, 4e-4, why)

    def words(self) -> str:
        sizes = self.layers, self.heads, self.width, self.feedforward, self.steps
        return "embedding, %d layers of %d heads, width %d, feedforward %d, %d steps" % sizes


def _dense(name: str, outputs: int, inputs: int) -> List[Parameter]:
    return dense_parameters(name, outputs, inputs, 1.0 / math.sqrt(inputs))

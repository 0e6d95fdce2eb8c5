"""What several families are made of."""

from typing import Dict

from tinygrad import Tensor, nn


def dense(w: Dict[str, Tensor], name: str, values: Tensor) -> Tensor:
    """Return the dense layer of this name, over any leading axes."""
    return values.linear(w[name + ".weight"].T, w[name + ".bias"])


def activated(values: Tensor, activation: str) -> Tensor:
    """Return the values through this activation."""
    return values if activation == "none" else getattr(values, activation)()


def looked_up(weight: Tensor, tokens: Tensor) -> Tensor:
    """Return the rows of an embedding's weight."""
    layer = nn.Embedding(*weight.shape)
    layer.weight = weight
    return layer(tokens)

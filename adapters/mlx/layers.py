"""What several families are made of."""

from typing import Any, Dict

import mlx.core as mx
from mlx import nn

_ACTIVATIONS = {"sigmoid": mx.sigmoid, "relu": nn.relu, "tanh": mx.tanh, "none": lambda values: values}


def dense(w: Dict[str, Any], name: str, values: Any) -> Any:
    """Return the dense layer of this name, over any leading axes, as MLX's own ``Linear`` computes it."""
    return mx.addmm(w[name + ".bias"], values, w[name + ".weight"].T)


def activated(values: Any, activation: str) -> Any:
    """Return the values through this activation."""
    return _ACTIVATIONS[activation](values)

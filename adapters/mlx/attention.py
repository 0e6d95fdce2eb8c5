"""Transformers on MLX's own attention and layer normalisation."""

from typing import Any, Dict

import mlx.core as mx
from mlx import nn

from ..families import Attention
from .layers import dense


def logits(family: Attention, w: Dict[str, Any], tokens: Any) -> Any:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps)."""
    batch, steps = tokens.shape
    scale = (family.width // family.heads) ** -0.5

    def norm(name: str, values: Any) -> Any:
        return mx.fast.layer_norm(values, w[name + ".gamma"], w[name + ".beta"], family.epsilon)

    values = w["embedding.weight"][tokens] + w["position.weight"]
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        parts = mx.split(dense(w, name + "qkv", norm(name + "norm1", values)), 3, axis=-1)
        query, key, value = [each.reshape(batch, steps, family.heads, -1).transpose(0, 2, 1, 3) for each in parts]
        mixed = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask="causal")
        values = values + dense(w, name + "project", mixed.transpose(0, 2, 1, 3).reshape(batch, steps, family.width))
        raised = nn.gelu_approx(dense(w, name + "upper", norm(name + "norm2", values)))
        values = values + dense(w, name + "lower", raised)
    return dense(w, "fc", norm("norm", values).reshape(batch * steps, family.width))

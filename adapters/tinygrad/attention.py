"""Transformers on tinygrad's own attention and normalisation."""

from typing import Dict

from tinygrad import Tensor

from ..families import Attention
from .layers import dense, looked_up


def logits(family: Attention, w: Dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps)."""
    batch, steps = tokens.shape

    def norm(name: str, values: Tensor) -> Tensor:
        return values.layernorm(eps=family.epsilon) * w[name + ".gamma"] + w[name + ".beta"]

    values = looked_up(w["embedding.weight"], tokens) + w["position.weight"]
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        parts = dense(w, name + "qkv", norm(name + "norm1", values)).reshape(batch, steps, 3, family.heads, -1)
        query, key, value = [parts[:, :, part].transpose(1, 2) for part in range(3)]
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True)
        values = values + dense(w, name + "project", mixed.transpose(1, 2).reshape(batch, steps, family.width))
        raised = dense(w, name + "upper", norm(name + "norm2", values)).gelu()
        values = values + dense(w, name + "lower", raised)
    return dense(w, "fc", norm("norm", values).reshape(batch * steps, family.width))

"""Transformers by jax.numpy and jax.nn."""

from typing import Any, Dict

import jax
import jax.numpy as jnp
from jax import lax

from ..families import Attention


def logits(family: Attention, parameters: Dict[str, Any], tokens: Any) -> Any:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps)."""
    batch, steps = tokens.shape

    def dense(name: str, values: Any) -> Any:
        return values @ parameters[name + ".weight"].T + parameters[name + ".bias"].astype(values.dtype)

    def norm(name: str, values: Any) -> Any:
        wide = values.astype(jnp.float32)
        mean = jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(wide - mean), axis=-1, keepdims=True)
        standard = (wide - mean) * lax.rsqrt(variance + family.epsilon)
        return (standard * parameters[name + ".gamma"] + parameters[name + ".beta"]).astype(values.dtype)

    values = parameters["embedding.weight"][tokens] + parameters["position.weight"]
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        parts = dense(name + "qkv", norm(name + "norm1", values)).reshape(batch, steps, 3, family.heads, -1)
        mixed = jax.nn.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True)
        values = values + dense(name + "project", mixed.reshape(batch, steps, family.width))
        raised = jax.nn.gelu(dense(name + "upper", norm(name + "norm2", values)), approximate=True)
        values = values + dense(name + "lower", raised)
    return dense("fc", norm("norm", values).reshape(-1, family.width))

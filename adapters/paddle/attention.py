"""Transformers: PaddlePaddle's own attention, layer normalisation and gelu."""

from typing import Any

from paddle import nn
from paddle.nn import functional

from ..families import Attention


class AttentionLayer(nn.Layer):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, spec: Attention, name: str, naming: Any) -> None:
        super().__init__()
        self.heads = spec.heads
        self.norm1 = layer_norm(spec, name + "norm1", naming)
        self.qkv = naming.dense(name + "qkv", spec.width, 3 * spec.width)
        self.project = naming.dense(name + "project", spec.width, spec.width)
        self.norm2 = layer_norm(spec, name + "norm2", naming)
        self.upper = naming.dense(name + "upper", spec.width, spec.feedforward)
        self.lower = naming.dense(name + "lower", spec.feedforward, spec.width)

    def forward(self, values: Any) -> Any:
        """Return the values with both added, (batch, steps, width)."""
        batch, steps, width = values.shape
        parts = self.qkv(self.norm1(values)).reshape([batch, steps, 3, self.heads, width // self.heads])
        query, key, value = parts.unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.project(mixed.reshape([batch, steps, width]))
        return values + self.lower(functional.gelu(self.upper(self.norm2(values)), approximate=True))


class Transformer(nn.Layer):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, spec: Attention, naming: Any) -> None:
        super().__init__()
        self.width = spec.width
        self.embedding = nn.Embedding(spec.vocabulary, spec.width)
        self.position = nn.Embedding(spec.steps, spec.width)
        naming.parameters["embedding.weight"] = self.embedding.weight
        naming.parameters["position.weight"] = self.position.weight
        names = ["layer%d." % number for number in range(1, spec.layers + 1)]
        self.body = nn.Sequential(*[AttentionLayer(spec, name, naming) for name in names])
        self.norm = layer_norm(spec, "norm", naming)
        self.dense = naming.dense("fc", spec.width, spec.vocabulary)

    def forward(self, tokens: Any) -> Any:
        """Return the logits of every step."""
        values = self.body(self.embedding(tokens) + self.position.weight)
        return self.dense(self.norm(values).reshape([-1, self.width]))


def layer_norm(spec: Attention, name: str, naming: Any) -> Any:
    """Return a layer normalisation, and name its parameters."""
    layer = nn.LayerNorm(spec.width, spec.epsilon)
    naming.parameters[name + ".gamma"], naming.parameters[name + ".beta"] = layer.weight, layer.bias
    return layer

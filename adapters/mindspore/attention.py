"""Transformers: MindSpore's layer normalisation and gelu, attention by products."""

import math
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops

from ..families import Attention


class AttentionCell(nn.Cell):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, spec: Attention, name: str, naming: Any) -> None:
        super().__init__()
        self.shape = (-1, spec.steps, 3, spec.heads, spec.width // spec.heads)
        self.scale = 1.0 / math.sqrt(spec.width // spec.heads)
        hidden = np.triu(np.full((spec.steps, spec.steps), -1e9, np.float32), 1)
        self.hides_later = mindspore.Tensor(hidden)
        self.norm1 = layer_norm(spec, name + "norm1", naming)
        self.qkv = naming.dense(name + "qkv", spec.width, 3 * spec.width)
        self.project = naming.dense(name + "project", spec.width, spec.width)
        self.norm2 = layer_norm(spec, name + "norm2", naming)
        self.upper = naming.dense(name + "upper", spec.width, spec.feedforward)
        self.lower = naming.dense(name + "lower", spec.feedforward, spec.width)

    def construct(self, values: Any) -> Any:
        """Return the values with both added, (batch, steps, width)."""
        parts = self.qkv(self.norm1(values)).reshape(self.shape).transpose((2, 0, 3, 1, 4))
        query, key, value = ops.unbind(parts)
        scores = ops.matmul(query, key.swapaxes(2, 3)) * self.scale + self.hides_later
        mixed = ops.matmul(ops.softmax(scores, -1), value).transpose((0, 2, 1, 3))
        values = values + self.project(mixed.reshape(values.shape))
        return values + self.lower(ops.gelu(self.upper(self.norm2(values)), "tanh"))


class Transformer(nn.Cell):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, spec: Attention, naming: Any) -> None:
        super().__init__()
        self.width = spec.width
        self.embedding = naming.embedding("embedding", spec.vocabulary, spec.width)
        self.position = naming.free("position.weight", spec.steps, spec.width)
        names = ["layer%d." % number for number in range(1, spec.layers + 1)]
        self.body = nn.SequentialCell(*[AttentionCell(spec, name, naming) for name in names])
        self.norm = layer_norm(spec, "norm", naming)
        self.dense = naming.dense("fc", spec.width, spec.vocabulary)

    def construct(self, tokens: Any) -> Any:
        """Return the logits of every step."""
        values = self.body(self.embedding(tokens) + self.position)
        return self.dense(self.norm(values).reshape((-1, self.width)))


def layer_norm(spec: Attention, name: str, naming: Any) -> Any:
    """Return a layer normalisation, and name its parameters."""
    cell = nn.LayerNorm((spec.width,), epsilon=spec.epsilon)
    naming.parameters[name + ".gamma"], naming.parameters[name + ".beta"] = cell.gamma, cell.beta
    return cell

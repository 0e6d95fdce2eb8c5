"""Transformers as Gluon blocks: it has no layer for attention as a whole, nor gelu by tanh."""

from typing import Any, Dict

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

from ..families import Attention

HIDDEN = -1e9  # added to the scores that are masked, as is usual; exponentials of it are zero
_GELU, _CUBE = float(np.sqrt(2.0 / np.pi)), 0.044715


class TransformerBlock(mx.gluon.HybridBlock):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, spec: Attention) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = nn.Embedding(spec.vocabulary, spec.width)
        self.position = self.params.get("position", shape=(spec.steps, spec.width))
        mask = np.triu(np.full((1, spec.steps, spec.steps), HIDDEN, np.float32), 1)
        self.mask = self.params.get_constant("mask", mask)
        self.parts: Dict[str, Any] = {}
        for number in range(1, spec.layers + 1):
            name = "layer%d." % number
            self._norm(name + "norm1")
            self._dense(name + "qkv", 3 * spec.width, spec.width)
            self._dense(name + "project", spec.width, spec.width)
            self._norm(name + "norm2")
            self._dense(name + "upper", spec.feedforward, spec.width)
            self._dense(name + "lower", spec.width, spec.feedforward)
        self._norm("norm")
        self._dense("fc", spec.vocabulary, spec.width)

    def _norm(self, name: str) -> None:
        self._keep(name, nn.LayerNorm(epsilon=self.spec.epsilon, in_channels=self.spec.width))

    def _dense(self, name: str, outputs: int, inputs: int) -> None:
        self._keep(name, nn.Dense(outputs, flatten=False, in_units=inputs))

    def _keep(self, name: str, block: Any) -> None:
        self.parts[name] = block
        self.register_child(block)

    def trainable(self) -> Dict[str, Any]:
        """Return the parameters by canonical name."""
        found = {"embedding.weight": self.embedding.weight, "position.weight": self.position}
        for name, part in self.parts.items():
            kinds = ("gamma", "beta") if isinstance(part, nn.LayerNorm) else ("weight", "bias")
            found.update(("%s.%s" % (name, kind), getattr(part, kind)) for kind in kinds)
        return found

    def hybrid_forward(self, F: Any, tokens: Any, position: Any, mask: Any) -> Any:  # noqa: N803 - Gluon's own name
        """Return the logits of every step."""
        values = F.broadcast_add(self.embedding(tokens), F.expand_dims(position, 0))
        for number in range(1, self.spec.layers + 1):
            name = "layer%d." % number
            raised = self.parts[name + "qkv"](self.parts[name + "norm1"](values))
            values = values + self.parts[name + "project"](self._attended(F, raised, mask))
            raised = self.parts[name + "upper"](self.parts[name + "norm2"](values))
            raised = 0.5 * raised * (1.0 + F.tanh(_GELU * (raised + _CUBE * raised * raised * raised)))
            values = values + self.parts[name + "lower"](raised)
        return F.reshape(self.parts["fc"](self.parts["norm"](values)), shape=(-1, self.spec.vocabulary))

    def _attended(self, F: Any, values: Any, mask: Any) -> Any:  # noqa: N803
        """Return what each step takes of the values, (batch, steps, width), from ``qkv``."""
        spec = self.spec
        parts = F.transpose(F.reshape(values, shape=(0, 0, 3, spec.heads, -1)), axes=(2, 0, 3, 1, 4))
        parts = F.reshape(parts, shape=(3, -1, spec.steps, spec.width // spec.heads))
        query, key, value = F.split(parts, num_outputs=3, axis=0, squeeze_axis=True)
        scores = F.batch_dot(query, key, transpose_b=True) * (spec.width // spec.heads) ** -0.5
        mixed = F.batch_dot(F.softmax(F.broadcast_add(scores, mask), axis=-1), value)
        mixed = F.reshape(mixed, shape=(-1, spec.heads, spec.steps, spec.width // spec.heads))
        return F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -1))

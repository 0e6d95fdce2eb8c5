"""Transformers on Chainer's functions: it has none for attention as a whole, nor for gelu."""

from typing import Any, Mapping

import chainer.functions as F  # noqa: N812 - Chainer's own convention
import numpy as np

from ..families import Attention

HIDDEN = -1e9  # added to the scores that are masked, as is usual; exponentials of it are zero
_GELU, _CUBE = float(np.sqrt(2.0 / np.pi)), 0.044715


def logits(spec: Attention, w: Mapping[str, Any], tokens: Any) -> Any:
    """Return the logits (batch * steps, vocabulary) of tokens (batch, steps)."""
    batch, steps = tokens.shape
    mask = np.triu(np.full((steps, steps), HIDDEN, np.float32), 1)

    def dense(name: str, rows: Any) -> Any:
        return F.linear(rows, w[name + ".weight"], w[name + ".bias"])

    def norm(name: str, rows: Any) -> Any:
        return F.layer_normalization(rows, w[name + ".gamma"], w[name + ".beta"], spec.epsilon)

    def attended(rows: Any) -> Any:
        parts = F.transpose(F.reshape(rows, (batch, steps, 3, spec.heads, -1)), (2, 0, 3, 1, 4))
        query, key, value = parts[0], parts[1], parts[2]
        scores = F.matmul(query, key, transb=True) * (spec.width // spec.heads) ** -0.5
        shares = F.softmax(scores + np.broadcast_to(mask, scores.shape), axis=3)
        return F.reshape(F.transpose(F.matmul(shares, value), (0, 2, 1, 3)), (batch * steps, spec.width))

    positions = F.broadcast_to(w["position.weight"], (batch, steps, spec.width))
    rows = F.reshape(F.embed_id(tokens, w["embedding.weight"]) + positions, (batch * steps, spec.width))
    for number in range(1, spec.layers + 1):
        name = "layer%d." % number
        rows = rows + dense(name + "project", attended(dense(name + "qkv", norm(name + "norm1", rows))))
        raised = dense(name + "upper", norm(name + "norm2", rows))
        raised = 0.5 * raised * (1.0 + F.tanh(_GELU * (raised + _CUBE * raised * raised * raised)))
        rows = rows + dense(name + "lower", raised)
    return dense("fc", norm("norm", rows))

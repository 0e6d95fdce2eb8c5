"""Transformers as symbolic expressions; imported only after ``configuration.apply``."""

from typing import Any, Mapping

import numpy as np
from theano import tensor

from ..families import Attention

HIDDEN = -1e9  # added to the scores that are masked, as is usual; exponentials of it are zero
_GELU, _CUBE = np.float32(np.sqrt(2.0 / np.pi)), np.float32(0.044715)


def logits(spec: Attention, w: Mapping[str, Any], tokens: Any, batch: int) -> Any:
    """Return the logits (batch * steps, vocabulary) of tokens (batch, steps)."""
    steps, heads, width = spec.steps, spec.heads, spec.width
    mask = np.triu(np.full((1, steps, steps), HIDDEN, np.float32), 1)
    half, one = np.float32(0.5), np.float32(1.0)

    def dense(name: str, rows: Any) -> Any:
        return tensor.dot(rows, w[name + ".weight"].T) + w[name + ".bias"]

    def norm(name: str, rows: Any) -> Any:
        centred = rows - rows.mean(1, keepdims=True)
        spread = tensor.sqrt(tensor.sqr(centred).mean(1, keepdims=True) + np.float32(spec.epsilon))
        return centred / spread * w[name + ".gamma"] + w[name + ".beta"]

    def attended(rows: Any) -> Any:
        parts = rows.reshape((batch, steps, 3, heads, width // heads)).dimshuffle(2, 0, 3, 1, 4)
        query, key, value = [parts[part].reshape((batch * heads, steps, width // heads)) for part in range(3)]
        scores = tensor.batched_dot(query, key.dimshuffle(0, 2, 1)) * np.float32((width // heads) ** -0.5)
        shares = tensor.nnet.softmax((scores + mask).reshape((batch * heads * steps, steps)))
        mixed = tensor.batched_dot(shares.reshape((batch * heads, steps, steps)), value)
        mixed = mixed.reshape((batch, heads, steps, width // heads)).dimshuffle(0, 2, 1, 3)
        return mixed.reshape((batch * steps, width))

    embedded = w["embedding.weight"][tokens.flatten()].reshape((batch, steps, width))
    rows = (embedded + w["position.weight"].dimshuffle("x", 0, 1)).reshape((batch * steps, width))
    for number in range(1, spec.layers + 1):
        name = "layer%d." % number
        rows = rows + dense(name + "project", attended(dense(name + "qkv", norm(name + "norm1", rows))))
        raised = dense(name + "upper", norm(name + "norm2", rows))
        raised = half * raised * (one + tensor.tanh(_GELU * (raised + _CUBE * raised * raised * raised)))
        rows = rows + dense(name + "lower", raised)
    return dense("fc", norm("norm", rows))

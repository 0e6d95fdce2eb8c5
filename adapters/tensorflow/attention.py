"""Transformers by TensorFlow's own operators: it has none for attention as a whole."""

from typing import Any, Dict

import tensorflow as tf

from ..families import Attention

HIDDEN = -1e9  # added to the scores that are masked, as is usual; exponentials of it are zero


def logits(family: Attention, parameters: Dict[str, Any], tokens: Any) -> Any:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps).

    Dense weights are held as (inputs, outputs).
    """
    batch, steps = tokens.shape
    width, heads = family.width, family.heads
    mask = HIDDEN * (1.0 - tf.linalg.band_part(tf.ones([steps, steps]), -1, 0))

    def dense(name: str, rows: Any) -> Any:
        return tf.nn.bias_add(tf.matmul(rows, parameters[name + ".weight"]), parameters[name + ".bias"])

    def norm(name: str, rows: Any) -> Any:
        mean, variance = tf.nn.moments(rows, axes=[-1], keepdims=True)
        gamma, beta = parameters[name + ".gamma"], parameters[name + ".beta"]
        return tf.nn.batch_normalization(rows, mean, variance, beta, gamma, family.epsilon)

    def attended(rows: Any) -> Any:
        parts = tf.reshape(rows, [batch, steps, 3, heads, width // heads])
        query, key, value = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        scores = tf.matmul(query, key, transpose_b=True) * float((width // heads) ** -0.5)
        mixed = tf.matmul(tf.nn.softmax(scores + mask), value)
        return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, width])

    values = tf.gather(parameters["embedding.weight"], tokens) + parameters["position.weight"]
    rows = tf.reshape(values, [-1, width])
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        rows += dense(name + "project", attended(dense(name + "qkv", norm(name + "norm1", rows))))
        raised = tf.nn.gelu(dense(name + "upper", norm(name + "norm2", rows)), approximate=True)
        rows += dense(name + "lower", raised)
    return dense("fc", norm("norm", rows))

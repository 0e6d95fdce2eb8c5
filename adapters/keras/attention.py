"""Transformers of Keras's own layers and operations; its MultiHeadAttention has three weights for ``qkv``, not one."""

from typing import Any, Dict, Tuple

import keras
from keras import layers

from ..families import Attention
from ..libraries.layouts import DenseLayout, Layout

Parameters = Dict[str, Tuple[Any, Layout]]


class Positions(layers.Layer):
    """Adds a learnt vector to each step."""

    def __init__(self, family: Attention) -> None:
        super(Positions, self).__init__()
        self.position = self.add_weight(shape=(family.steps, family.width), initializer="zeros", name="position")

    def call(self, inputs: Any) -> Any:
        """Return the sums."""
        return inputs + self.position

    def compute_output_shape(self, input_shape: Tuple[int, ...]) -> Tuple[int, ...]:
        """Return the same shape."""
        return input_shape


def logits(family: Attention, tokens: Any, parameters: Parameters) -> Any:
    """Return the logits (batch, steps, vocabulary) of tokens (batch, steps); enter the variables."""

    def dense(name: str, values: Any, outputs: int) -> Any:
        layer = layers.Dense(outputs, kernel_initializer="zeros")
        values = layer(values)
        parameters[name + ".weight"] = (layer.kernel, DenseLayout())
        parameters[name + ".bias"] = (layer.bias, Layout())
        return values

    def norm(name: str, values: Any) -> Any:
        layer = layers.LayerNormalization(epsilon=family.epsilon)
        values = layer(values)
        parameters[name + ".gamma"] = (layer.gamma, Layout())
        parameters[name + ".beta"] = (layer.beta, Layout())
        return values

    def attended(values: Any) -> Any:
        shape = (family.steps, family.heads, family.width // family.heads)
        query, key, value = [layers.Reshape(shape)(part) for part in keras.ops.split(values, 3, axis=-1)]
        mixed = keras.ops.dot_product_attention(query, key, value, is_causal=True)
        return layers.Reshape((family.steps, family.width))(mixed)

    embedding = layers.Embedding(family.vocabulary, family.width, embeddings_initializer="zeros")
    positions = Positions(family)
    values = positions(embedding(tokens))
    parameters["embedding.weight"] = (embedding.embeddings, Layout())
    parameters["position.weight"] = (positions.position, Layout())
    for number in range(1, family.layers + 1):
        name = "layer%d." % number
        raised = dense(name + "qkv", norm(name + "norm1", values), 3 * family.width)
        values = values + dense(name + "project", attended(raised), family.width)
        raised = dense(name + "upper", norm(name + "norm2", values), family.feedforward)
        raised = keras.ops.gelu(raised, approximate=True)
        values = values + dense(name + "lower", raised, family.width)
    return dense("fc", norm("norm", values), family.vocabulary)

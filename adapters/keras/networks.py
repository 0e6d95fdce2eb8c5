"""Networks as functional models of Keras's own layers, the same on every backend.

Images have their channels last. Weights start as zeros and are assigned afterwards: drawing a
hundred million random numbers only to replace them would be most of the time to prepare.
"""

import operator
from functools import partial
from typing import Any, Dict, Tuple

import keras
import numpy as np
from keras import layers

from ..families import Attention, Layer
from ..launch.batches import Batch
from ..libraries.layouts import BIASES, CONVOLUTION, DENSE, FLATTENED, GATES, PLAIN, Layout
from ..libraries.walks import Functions, unchanged
from ..networks import Network


class Positions(layers.Layer):
    """Adds a learnt vector to each step."""

    def __init__(self, family: Attention) -> None:
        super(Positions, self).__init__()
        self.position = self.add_weight(
            shape=(family.steps, family.width), initializer="zeros", name="position"
        )

    def call(self, inputs: Any) -> Any:
        return inputs + self.position

    def compute_output_shape(self, input_shape: Tuple[int, ...]) -> Tuple[int, ...]:
        return input_shape


class KerasFunctions(Functions):
    """Networks of Keras's layers, applied one after another; keeps their variables.

    ``unroll``: recurrent layers without a loop.
    """

    gelu = staticmethod(partial(keras.ops.gelu, approximate=True))
    rows = staticmethod(unchanged)

    def __init__(self, family: Any, unroll: bool) -> None:
        super().__init__(family, {})
        self.unroll = unroll
        self.parameters: Dict[str, Tuple[Any, Layout]] = {}
        #: Variables of running means and variances, by their normalisation's name and ".mean" or
        #: ".variance".
        self.moving: Dict[str, Any] = {}

    def _applied(
        self, layer: Any, values: Any, name: str, held: Dict[str, Tuple[str, Layout]]
    ) -> Any:
        """Apply a layer and keep its variables.

        By part of the name these have their attributes and layouts.
        """
        values = layer(values)
        for part, (attribute, layout) in held.items():
            self.parameters["%s.%s" % (name, part)] = (
                operator.attrgetter(attribute)(layer),
                layout,
            )
        return values

    def activated(self, values: Any, activation: str) -> Any:
        return layers.Activation(activation)(values)

    def dense(self, name: str, values: Any, activation: str = "none", layout: Any = None) -> Any:
        shapes = {parameter.name: parameter.shape for parameter in self.family.parameters()}
        outputs = shapes[name + ".weight"][0]
        layer = layers.Dense(
            outputs,
            activation=None if activation == "none" else activation,
            kernel_initializer="zeros",
        )
        held = {"weight": ("kernel", layout or Layout(DENSE)), "bias": ("bias", Layout())}
        return self._applied(layer, values, name, held)

    def convolution(self, spec: Layer, values: Any) -> Any:
        """Apply a convolution with symmetric zero padding.

        "same" is symmetric where the stride is 1 and the kernel odd; elsewhere (with a stride it
        may pad one side more) the images are padded first.
        """
        padding = spec.padding
        same = padding > 0 and spec.stride == 1 and spec.kernel == 2 * padding + 1
        if padding and not same:
            values = layers.ZeroPadding2D(padding)(values)
        layer = layers.Conv2D(
            spec.outputs,
            spec.kernel,
            spec.stride,
            padding="same" if same else "valid",
            activation=None if spec.activation == "none" else spec.activation,
            use_bias=not spec.norm,
            kernel_initializer="zeros",
        )
        held: Dict[str, Tuple[str, Layout]] = {"weight": ("kernel", Layout(CONVOLUTION))}
        if not spec.norm:
            held["bias"] = ("bias", Layout())
        return self._applied(layer, values, spec.name, held)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        if padding:
            # The lowest number is never chosen; max pooling's own padding is not symmetric with a
            # stride.
            around = (padding, padding)
            lowest = float(np.finfo(np.float32).min)
            values = keras.ops.pad(values, ((0, 0), around, around, (0, 0)), constant_values=lowest)
        return layers.MaxPooling2D(kernel, stride, padding="valid")(values)

    def norm(self, name: str, values: Any) -> Any:
        layer = layers.BatchNormalization(epsilon=self.family.epsilon)
        values = self._applied(
            layer, values, name, {"gamma": ("gamma", Layout()), "beta": ("beta", Layout())}
        )
        self.moving.update(
            {name + ".mean": layer.moving_mean, name + ".variance": layer.moving_variance}
        )
        return values

    def added(self, inner: Any, values: Any) -> Any:
        return layers.Add()([inner, values])

    def pixel_mean(self, values: Any) -> Any:
        return layers.GlobalAveragePooling2D()(values)

    def embedded(self, name: str, symbols: Any) -> Any:
        width = self.family.embedding if self.family.name == "recurrent" else self.family.width
        layer = layers.Embedding(self.family.vocabulary, width, embeddings_initializer="zeros")
        return self._applied(layer, symbols, name, {"weight": ("embeddings", Layout())})

    def feedforward(self, values: Any) -> Any:
        layout = None  # of the next dense weight, where it is not the usual one
        for layer in self.family.layers:
            if layer.kind == "dense":
                values = self.dense(layer.name, values, layer.activation, layout)
                layout = None
            elif layer.kind == "convolution":
                values = self.convolution(layer, values)
            elif layer.kind == "pool":
                values = self.pool(values, layer.kernel, layer.stride, layer.padding)
            else:
                layout = Layout(FLATTENED, tuple(values.shape[1:]))
                values = layers.Flatten()(values)
        return values

    convolutional = feedforward

    def recurrent_layer(
        self, name: str, values: Any, cell: str = "", activation: str = "tanh"
    ) -> Any:
        cell = cell or self.family.cell
        options: Dict[str, Any] = {"return_sequences": True, "unroll": self.unroll}
        options.update(kernel_initializer="zeros", recurrent_initializer="zeros")
        if cell == "rnn":
            layer = layers.SimpleRNN(self.family.hidden, activation=activation, **options)
        elif cell == "gru":
            layer = layers.GRU(self.family.hidden, reset_after=True, **options)
        else:
            layer = layers.LSTM(self.family.hidden, unit_forget_bias=False, **options)
        gru = cell == "gru"
        weights = Layout(GATES if gru else DENSE)
        held = {
            "input_weight": ("cell.kernel", weights),
            "hidden_weight": ("cell.recurrent_kernel", weights),
            "bias": ("cell.bias", Layout(BIASES if gru else PLAIN)),
        }
        return self._applied(layer, values, name, held)

    def elman_layer(self, values: Any) -> Any:
        return self.recurrent_layer("rnn", values, "rnn", self.family.activation)

    def positioned(self, tokens: Any) -> Any:
        held = {"weight": ("position", Layout())}
        return self._applied(
            Positions(self.family), self.embedded("embedding", tokens), "position", held
        )

    def layer_norm(self, name: str, values: Any) -> Any:
        layer = layers.LayerNormalization(epsilon=self.family.epsilon)
        return self._applied(
            layer, values, name, {"gamma": ("gamma", Layout()), "beta": ("beta", Layout())}
        )

    def attended(self, name: str, values: Any) -> Any:
        # Keras's MultiHeadAttention has three weights for ``qkv``, not one.
        shape = (self.family.steps, self.family.heads, self.family.width // self.family.heads)
        parts = keras.ops.split(self.dense(name + "qkv", values), 3, axis=-1)
        query, key, value = [layers.Reshape(shape)(part) for part in parts]
        mixed = keras.ops.dot_product_attention(query, key, value, is_causal=True)
        return layers.Reshape((self.family.steps, self.family.width))(mixed)


def build(network: Network, batch_size: int, unroll: bool) -> Tuple[Any, KerasFunctions]:
    """Return the model for mini-batches of this size, and its functions.

    The functions keep its variables.
    """
    functions = KerasFunctions(network.family, unroll)
    drawn = network.family.drawn_inputs()
    shape = drawn.shape
    if len(shape) == 3:
        shape = shape[1:] + shape[:1]
    looked_up = drawn.below is not None and not drawn.one_hot
    inputs = keras.Input(
        batch_shape=(batch_size,) + shape, dtype="int32" if looked_up else "float32"
    )
    return keras.Model(inputs, functions.scores(inputs)), functions


def arrays(batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return the mini-batch's inputs and labels as the model reads them.

    They have its types and its order of axes.
    """
    inputs, labels = [
        array.astype(np.int32) if array.dtype.kind == "i" else array for array in batch
    ]
    if inputs.ndim == 4:
        inputs = inputs.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(inputs), labels

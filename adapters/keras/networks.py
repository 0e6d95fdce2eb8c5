"""Builds the specifications of ``adapters/networks.py`` as functional models of Keras's own layers, the same on every
backend; only the order of the axes of images differs.

Weights start as zeros and are assigned afterwards: drawing a hundred million random numbers only to replace them
would be most of the time to prepare.
"""

from typing import Any, Dict, NamedTuple, Tuple

import keras
import numpy as np
from keras import layers

from ..base import Unsupported
from ..families import CELLS, Attention, Chain, Convolution, Dense, Elman, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch
from ..libraries.layouts import ConvolutionLayout, DenseLayout, FlattenedLayout, Layout
from ..networks import Network

# Keras's recurrent layers, and how they hold their weights.
#
# A GRU has its gates in the order update, reset, new, and both biases in one variable.


def swapped(values: np.ndarray) -> np.ndarray:
    """Exchange the first two of a GRU's three gates along the last axis; it is its own inverse."""
    first, second, third = np.split(values, 3, axis=-1)
    return np.concatenate((second, first, third), axis=-1)


class GatesLayout(DenseLayout):
    """A GRU's weight: canonical (3 x hidden, inputs), held as (inputs, 3 x hidden) with other gates first."""

    def split(self, canonical: np.ndarray) -> np.ndarray:
        """Return a copy with the gates in Keras's order."""
        return swapped(canonical.T).T

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Put them back in order, and transpose back."""
        return swapped(held).T


class BiasesLayout(Layout):
    """A GRU's biases: canonical one by one, held as (2, 3 x hidden)."""

    def __init__(self, second: str) -> None:
        self.second = second  # the canonical name of the bias in the second row

    def split(self, canonical: np.ndarray) -> np.ndarray:
        """Return a copy with the gates in Keras's order."""
        return swapped(canonical)

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Put them back in order."""
        return swapped(held)


def recurrent_layer(cell: str, hidden: int, unroll: bool, use_cudnn: Any, activation: str = "tanh") -> Any:
    """Return a layer that gives the outputs of all steps from a zero state; its weights start as zeros."""
    options: Dict[str, Any] = {"return_sequences": True, "unroll": unroll}
    options.update(kernel_initializer="zeros", recurrent_initializer="zeros")
    if cell == "rnn":
        return layers.SimpleRNN(hidden, activation=activation, **options)
    if cell == "gru":
        return layers.GRU(hidden, reset_after=True, use_cudnn=use_cudnn, **options)
    assert cell == "lstm"
    return layers.LSTM(hidden, unit_forget_bias=False, use_cudnn=use_cudnn, **options)


def recurrent_places(cell: str, layer: Any, name: str) -> Dict[str, Tuple[Any, Layout]]:
    """Return the variables of a layer that has been applied, by canonical name."""
    several = len(CELLS[cell].biases) > 1
    weights = GatesLayout() if several else DenseLayout()
    return {
        name + ".input_weight": (layer.cell.kernel, weights),
        name + ".hidden_weight": (layer.cell.recurrent_kernel, weights),
        name + ".bias": (layer.cell.bias, BiasesLayout(name + ".hidden_bias") if several else Layout()),
    }


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


def attention_logits(family: Attention, tokens: Any, parameters: Parameters) -> Any:
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


class Options(NamedTuple):
    """What a mode chooses among the things a Keras layer can be told."""

    data_format: str  # "channels_last" or "channels_first"
    unroll: bool  # recurrent layers without a loop
    use_cudnn: Any  # "auto" or False; off GPUs it only decides which of a backend's LSTM programs is taken


class Built(NamedTuple):
    """A model that ends in logits, and its trainable variables by canonical name with the layout they are held in."""

    model: Any
    parameters: Dict[str, Tuple[Any, Layout]]


class MinimumPadding2D(layers.Layer):
    """Pads images with the lowest number, so that max pooling never chooses the padding.

    Keras's ZeroPadding2D would do behind a ReLU only; its max pooling's own padding is not symmetric with a stride.
    """

    def __init__(self, padding: int, data_format: str) -> None:
        super(MinimumPadding2D, self).__init__()
        around = (padding, padding)
        if data_format == "channels_last":
            self.around = ((0, 0), around, around, (0, 0))
        else:
            self.around = ((0, 0), (0, 0), around, around)

    def call(self, inputs: Any) -> Any:
        """Return the padded images."""
        return keras.ops.pad(inputs, self.around, constant_values=float(np.finfo(np.float32).min))

    def compute_output_shape(self, input_shape: Tuple[int, ...]) -> Tuple[int, ...]:
        """Return the shape with the padding."""
        return tuple(side + sum(around) for side, around in zip(input_shape, self.around))


class Builder:
    """Applies layers one after another and remembers their variables."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.parameters: Dict[str, Tuple[Any, Layout]] = {}

    def dense(self, values: Any, name: str, outputs: int, activation: str, layout: Any = None) -> Any:
        """Apply a fully connected layer to the last axis."""
        layer = layers.Dense(
            outputs, activation=None if activation == "none" else activation, kernel_initializer="zeros"
        )
        values = layer(values)
        self.parameters[name + ".weight"] = (layer.kernel, layout or DenseLayout())
        self.parameters[name + ".bias"] = (layer.bias, Layout())
        return values

    def convolution(
        self, values: Any, name: str, outputs: int, kernel: int, stride: int, padding: int, activation: str = ""
    ) -> Any:
        """Apply a convolution with symmetric zero padding; one without an activation, not even "none", has no bias.

        "same" is symmetric where the stride is 1 and the kernel odd; elsewhere (with a stride it may pad one side
        more) the images are padded first.
        """
        same = padding > 0 and stride == 1 and kernel == 2 * padding + 1
        if padding and not same:
            values = layers.ZeroPadding2D(padding, data_format=self.options.data_format)(values)
        layer = layers.Conv2D(
            outputs,
            kernel,
            stride,
            padding="same" if same else "valid",
            data_format=self.options.data_format,
            activation=None if activation in ("", "none") else activation,
            use_bias=bool(activation),
            kernel_initializer="zeros",
        )
        values = layer(values)
        self.parameters[name + ".weight"] = (layer.kernel, ConvolutionLayout())
        if activation:
            self.parameters[name + ".bias"] = (layer.bias, Layout())
        return values

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        """Apply max pooling; sizes round down."""
        if padding:
            values = MinimumPadding2D(padding, self.options.data_format)(values)
        return layers.MaxPooling2D(kernel, stride, padding="valid", data_format=self.options.data_format)(values)

    def norm(self, values: Any, name: str, epsilon: float) -> Any:
        """Apply batch normalisation; in training it uses the mini-batch's own statistics, with biased variance."""
        axis = -1 if self.options.data_format == "channels_last" else 1
        layer = layers.BatchNormalization(axis=axis, epsilon=epsilon)
        values = layer(values)
        self.parameters[name + ".gamma"] = (layer.gamma, Layout())
        self.parameters[name + ".beta"] = (layer.beta, Layout())
        return values

    def recurrent(self, values: Any, name: str, cell: str, hidden: int, activation: str = "tanh") -> Any:
        """Apply a recurrent layer from a zero state; returns the outputs of all steps."""
        layer = recurrent_layer(cell, hidden, self.options.unroll, self.options.use_cudnn, activation)
        values = layer(values)
        self.parameters.update(recurrent_places(cell, layer, name))
        return values


def _feedforward(family: Chain, values: Any, builder: Builder) -> Any:
    layout = None  # of the next dense weight, where it is not the usual one
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = builder.dense(values, layer.name, layer.outputs, layer.activation, layout)
            layout = None
        elif isinstance(layer, Convolution):
            shape = layer.out_channels, layer.kernel, layer.stride, layer.padding
            values = builder.convolution(values, layer.name, *shape, activation=layer.activation)
        elif isinstance(layer, MaxPool):
            values = builder.pool(values, layer.kernel, layer.stride, layer.padding)
        elif isinstance(layer, Flatten):
            if builder.options.data_format == "channels_last":
                layout = FlattenedLayout(tuple(values.shape[1:]))
            # Said to be channels-last, it flattens the axes as they lie; told channels-first it would turn them.
            values = layers.Flatten(data_format="channels_last")(values)
        else:
            raise Unsupported("Keras: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _residual(family: Residual, values: Any, builder: Builder) -> Any:
    def normalised(values: Any, spec: NormalisedConvolution) -> Any:
        values = builder.convolution(values, spec.name, spec.outputs, spec.kernel, spec.stride, spec.padding)
        return builder.norm(values, spec.norm, family.epsilon)

    values = normalised(values, family.stem)
    values = builder.pool(layers.Activation("relu")(values), 3, 2, 1)
    for block in family.bottlenecks:
        shortcut = values if block.shortcut is None else normalised(values, block.shortcut)
        first, second, third = block.body
        values = layers.Activation("relu")(normalised(values, first))
        values = layers.Activation("relu")(normalised(values, second))
        values = normalised(values, third)
        values = layers.Activation("relu")(layers.Add()([values, shortcut]))
    values = layers.GlobalAveragePooling2D(data_format=builder.options.data_format)(values)
    return builder.dense(values, "fc", family.classes, "none")


def _recurrent(family: Recurrent, values: Any, builder: Builder) -> Any:
    if family.embedding:
        embedding = layers.Embedding(family.vocabulary, family.embedding, embeddings_initializer="zeros")
        values = embedding(values)
        builder.parameters["embedding.weight"] = (embedding.embeddings, Layout())
    for name in family.layer_names():
        values = builder.recurrent(values, name, family.cell, family.hidden)
    return builder.dense(values, "fc", family.vocabulary, "none")


def _elman(family: Elman, values: Any, builder: Builder) -> Any:
    values = builder.recurrent(values, "rnn", "rnn", family.hidden, family.activation)
    return builder.dense(values, "out", family.outputs, "none")


def build(network: Network, batch_size: int, options: Options) -> Built:
    """Return the model for mini-batches of this size; its variables do not have the starting weights yet."""
    family = network.family
    builder = Builder(options)
    drawn = family.drawn_inputs()
    shape = drawn.shape
    if len(shape) == 3 and options.data_format == "channels_last":
        shape = shape[1:] + shape[:1]
    looked_up = drawn.below is not None and not drawn.one_hot
    inputs = keras.Input(batch_shape=(batch_size,) + shape, dtype="int32" if looked_up else "float32")
    if isinstance(family, Chain):
        outputs = _feedforward(family, inputs, builder)
    elif isinstance(family, Residual):
        outputs = _residual(family, inputs, builder)
    elif isinstance(family, Recurrent):
        outputs = _recurrent(family, inputs, builder)
    elif isinstance(family, Elman):
        outputs = _elman(family, inputs, builder)
    elif isinstance(family, Attention):
        outputs = attention_logits(family, inputs, builder.parameters)
    else:
        raise Unsupported("Keras: no way to build a network of type %s" % type(family).__name__)
    return Built(keras.Model(inputs, outputs), builder.parameters)


def arrays(network: Network, batch: Batch, options: Options) -> Tuple[np.ndarray, np.ndarray]:
    """Return the mini-batch's inputs and labels in the types and the order of axes that the model reads."""
    inputs, labels = [each.astype(np.int32) if each.dtype.kind == "i" else each for each in batch]
    if inputs.ndim == 4 and options.data_format == "channels_last":
        inputs = inputs.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(inputs), labels

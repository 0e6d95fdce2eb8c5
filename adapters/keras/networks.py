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
from ..families import Attention, Chain, Convolution, Dense, Elman, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch
from ..libraries.layouts import ConvolutionLayout, DenseLayout, FlattenedLayout, Layout
from ..networks import Network
from . import attention, recurrent


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
        layer = recurrent.make(cell, hidden, self.options.unroll, self.options.use_cudnn, activation)
        values = layer(values)
        self.parameters.update(recurrent.places(cell, layer, name))
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
        outputs = attention.logits(family, inputs, builder.parameters)
    else:
        raise Unsupported("Keras: no way to build a network of type %s" % type(family).__name__)
    return Built(keras.Model(inputs, outputs), builder.parameters)


def arrays(network: Network, batch: Batch, options: Options) -> Tuple[np.ndarray, np.ndarray]:
    """Return the mini-batch's inputs and labels in the types and the order of axes that the model reads."""
    inputs, labels = [each.astype(np.int32) if each.dtype.kind == "i" else each for each in batch]
    if inputs.ndim == 4 and options.data_format == "channels_last":
        inputs = inputs.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(inputs), labels

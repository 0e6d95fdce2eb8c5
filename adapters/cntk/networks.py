"""Builds the networks' specifications as CNTK graphs.

CNTK's layouts are the canonical ones, where a dense layer multiplies by the transposed weight. Only its LSTM block
has others: weights (inputs, 4 x hidden), and the gates in the order input, cell, forget, output.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import cntk
import numpy as np

from ..families import Bottleneck, Chain, Convolution, Dense, Elman, Family, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch


class Trained(NamedTuple):
    """A trainable parameter, and the functions that turn its value to the canonical layout and back to CNTK's."""

    parameter: Any  # cntk.Parameter
    canonical: Callable[[np.ndarray], np.ndarray]
    held: Callable[[np.ndarray], np.ndarray]


class Built(NamedTuple):
    """A network in CNTK: the loss of each example (or step), what it learns, and its variables for the mini-batch."""

    loss: Any  # cntk.Function
    trained: Dict[str, Trained]
    variables: Tuple[Any, Any]  # inputs and labels


def _as_it_is(value: np.ndarray) -> np.ndarray:
    return value


def swap_gates(value: np.ndarray) -> np.ndarray:
    """Turn rows of gates (4 x hidden, ...) from canonical order to CNTK's; it is its own inverse."""
    first, second, third, fourth = np.split(value, 4)
    return np.concatenate((first, third, second, fourth))


def _to_columns(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(swap_gates(value).T)


def _from_columns(value: np.ndarray) -> np.ndarray:
    return swap_gates(value.T)


def _turned(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value.T)


def _over_channels(value: np.ndarray) -> np.ndarray:
    return value.reshape(-1, 1, 1)


def padded(inputs: Any, kernel: int, stride: int, padding: int, value: float = 0.0) -> Tuple[Any, bool]:
    """Return what to slide a window over, and whether CNTK is to pad it itself, so that the padding is symmetric.

    CNTK's automatic padding makes the output ceil(side / stride) long and puts the windows' centres in the middle of
    the input: that is (kernel - 1) / 2 on both sides as long as the stride leaves at most one row over. Anything else
    is padded by an operation of its own, with ``value``. ``inputs`` (channels, side, side).
    """
    if padding == 0:
        return inputs, False
    if 2 * padding == kernel - 1 and (inputs.shape[-1] - 1) % stride < 2:
        return inputs, True
    return cntk.pad(inputs, [(0, 0), (padding, padding), (padding, padding)], constant_value=value), False


def max_pool(inputs: Any, spec: MaxPool) -> Any:
    """Return the maxima of the windows; sizes round down."""
    lowest = float(np.finfo(np.float32).min)
    inputs, automatic = padded(inputs, spec.kernel, spec.stride, spec.padding, lowest)
    window, strides = (spec.kernel, spec.kernel), (spec.stride, spec.stride)
    return cntk.pooling(inputs, cntk.MAX_POOLING, window, strides, [False, automatic, automatic])


class Builder:
    """Makes layers out of the weights, and keeps the parameters by their canonical names."""

    def __init__(self, weights: Dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.trained: Dict[str, Trained] = {}

    def parameter(self, name: str) -> Any:
        """Return a parameter that starts as a copy of the weight of this name."""
        made = cntk.Parameter(self.weights[name].shape, init=self.weights[name])
        self.trained[name] = Trained(made, _as_it_is, _as_it_is)
        return made

    def dense(self, inputs: Any, name: str) -> Any:
        """Return inputs @ weight.T + bias."""
        return cntk.times_transpose(inputs, self.parameter(name + ".weight")) + self.parameter(name + ".bias")

    def convolution(self, inputs: Any, name: str, kernel: int, stride: int, padding: int) -> Any:
        """Return the convolution, without a bias."""
        inputs, automatic = padded(inputs, kernel, stride, padding)
        weight = self.parameter(name + ".weight")
        return cntk.convolution(weight, inputs, (stride, stride), auto_padding=[False, automatic, automatic])

    def channel_bias(self, inputs: Any, name: str) -> Any:
        """Add a bias to each channel."""
        bias = cntk.Parameter((len(self.weights[name]), 1, 1), init=_over_channels(self.weights[name]))
        self.trained[name] = Trained(bias, np.ravel, _over_channels)
        return inputs + bias

    def norm(self, inputs: Any, name: str, epsilon: float) -> Any:
        """Return the batch normalisation; its running statistics are constants that it updates itself."""
        channels = inputs.shape[0]
        return cntk.batch_normalization(
            inputs,
            self.parameter(name + ".gamma"),
            self.parameter(name + ".beta"),
            cntk.Constant(0.0, (channels,)),
            cntk.Constant(0.0, (channels,)),
            spatial=True,
            epsilon=epsilon,
            use_cudnn_engine=False,
            running_count=cntk.Constant(0.0, ()),
        )

    def normalised(self, inputs: Any, spec: NormalisedConvolution, epsilon: float) -> Any:
        """Return the convolution and its batch normalisation."""
        return self.norm(
            self.convolution(inputs, spec.name, spec.kernel, spec.stride, spec.padding), spec.norm, epsilon
        )

    def bottleneck(self, inputs: Any, spec: Bottleneck, epsilon: float) -> Any:
        """Return one residual block."""
        first, second, third = spec.body
        body = cntk.relu(self.normalised(inputs, first, epsilon))
        body = cntk.relu(self.normalised(body, second, epsilon))
        body = self.normalised(body, third, epsilon)
        if spec.shortcut is not None:
            inputs = self.normalised(inputs, spec.shortcut, epsilon)
        return cntk.relu(body + inputs)

    def lstm(self, inputs: Any, name: str, hidden: int) -> Any:
        """Return the outputs of CNTK's LSTM block, run over the sequence from a zero state."""
        block = cntk.layers.LSTM(hidden)
        outputs = cntk.layers.Recurrence(block)(inputs)
        # Their shapes are known only now that the block has inputs.
        found = {parameter.name: parameter for parameter in block.parameters}
        for weight, theirs in (("input_weight", "W"), ("hidden_weight", "H")):
            self.trained[name + "." + weight] = Trained(found[theirs], _from_columns, _to_columns)
        self.trained[name + ".bias"] = Trained(found["b"], swap_gates, swap_gates)
        for part in ("input_weight", "hidden_weight", "bias"):
            item = self.trained[name + "." + part]
            item.parameter.value = item.held(self.weights[name + "." + part])
        return outputs

    def gru(self, inputs: Any, name: str, hidden: int) -> Any:
        """Return the outputs of a GRU, run over the sequence from a zero state.

        By single operators: CNTK's own block resets the state before its product.
        """
        shares = cntk.times_transpose(inputs, self.parameter(name + ".input_weight")) + self.parameter(name + ".bias")
        weight, bias = self.parameter(name + ".hidden_weight"), self.parameter(name + ".hidden_bias")

        def gate(values: Any, number: int) -> Any:
            return cntk.slice(values, -1, number * hidden, (number + 1) * hidden)

        def turn(before: Any, share: Any) -> Any:
            product = cntk.times_transpose(before, weight) + bias
            reset, update = [cntk.sigmoid(gate(share, number) + gate(product, number)) for number in (0, 1)]
            new = cntk.tanh(gate(share, 2) + reset * gate(product, 2))
            return new + update * (before - new)

        return cntk.layers.Recurrence(cntk.Function(turn))(shares)

    def simple(self, inputs: Any, name: str, hidden: int, activation: str = "tanh") -> Any:
        """Return the outputs of CNTK's block of simple recurrent units, run over the sequence from a zero state."""
        block = cntk.layers.RNNStep(hidden, activation=ACTIVATIONS[activation])
        outputs = cntk.layers.Recurrence(block)(inputs)
        found = {parameter.name: parameter for parameter in block.parameters}
        for part, theirs in (("input_weight", "W"), ("hidden_weight", "H"), ("bias", "b")):
            canonical = "%s.%s" % (name, part)
            item = self.trained[canonical] = Trained(found[theirs], np.transpose, _turned)
            item.parameter.value = item.held(self.weights[canonical])
        return outputs


ACTIVATIONS = {"sigmoid": cntk.sigmoid, "relu": cntk.relu, "tanh": cntk.tanh, "none": lambda inputs: inputs}


def _feedforward(spec: Chain, build: Builder, outputs: Any) -> Any:
    for layer in spec.layers:
        if isinstance(layer, Dense):
            outputs = ACTIVATIONS[layer.activation](build.dense(outputs, layer.name))
        elif isinstance(layer, Convolution):
            outputs = build.convolution(outputs, layer.name, layer.kernel, layer.stride, layer.padding)
            outputs = ACTIVATIONS[layer.activation](build.channel_bias(outputs, layer.name + ".bias"))
        elif isinstance(layer, MaxPool):
            outputs = max_pool(outputs, layer)
        else:
            outputs = cntk.reshape(outputs, (-1,))
    return outputs


def _residual(spec: Residual, build: Builder, outputs: Any) -> Any:
    outputs = cntk.relu(build.norm(build.convolution(outputs, "stem", 7, 2, 3), "stem_norm", spec.epsilon))
    outputs = max_pool(outputs, MaxPool(3, 2, 1))
    for block in spec.bottlenecks:
        outputs = build.bottleneck(outputs, block, spec.epsilon)
    outputs = cntk.pooling(outputs, cntk.AVG_POOLING, outputs.shape[1:])
    return build.dense(cntk.reshape(outputs, (-1,)), "fc")


def _recurrent(spec: Recurrent, build: Builder, outputs: Any) -> Any:
    if spec.embedding:
        outputs = cntk.times(outputs, build.parameter("embedding.weight"))
    layer = {"lstm": build.lstm, "gru": build.gru, "rnn": build.simple}[spec.cell]
    for name in spec.layer_names():
        outputs = layer(outputs, name, spec.hidden)
    return build.dense(outputs, "fc")


def build(spec: Family, weights: Dict[str, np.ndarray]) -> Built:
    """Return the network with copies of these weights."""
    build_from = Builder(weights)
    if isinstance(spec, Elman):
        inputs = cntk.sequence.input_variable(spec.inputs)
        targets = cntk.sequence.input_variable(spec.outputs)
        outputs = build_from.dense(build_from.simple(inputs, "rnn", spec.hidden, spec.activation), "out")
        return Built(cntk.reduce_mean(cntk.square(outputs - targets)), build_from.trained, (inputs, targets))
    classes = spec.drawn_labels().below
    if isinstance(spec, Recurrent):
        inputs = cntk.sequence.input_variable(spec.vocabulary, is_sparse=spec.embedding > 0)
        labels = cntk.sequence.input_variable(classes, is_sparse=True)
        logits = _recurrent(spec, build_from, inputs)
    else:
        inputs = cntk.input_variable(spec.drawn_inputs().shape)
        labels = cntk.input_variable(classes, is_sparse=True)
        if isinstance(spec, Residual):
            logits = _residual(spec, build_from, inputs)
        else:
            assert isinstance(spec, Chain)
            logits = _feedforward(spec, build_from, inputs)
    loss = cntk.cross_entropy_with_softmax(logits, labels)
    return Built(loss, build_from.trained, (inputs, labels))


def values_of(spec: Family, batch: Batch) -> List[Any]:
    """Return copies of inputs and labels; labels and tokens are sparse one-hot vectors, CNTK's form of an index."""
    if isinstance(spec, Elman):
        return [cntk.Value(np.array(each)) for each in batch]
    labels = cntk.Value.one_hot(batch.labels.tolist(), spec.drawn_labels().below)
    if isinstance(spec, Recurrent) and spec.embedding:
        return [cntk.Value.one_hot(batch.inputs.tolist(), spec.vocabulary), labels]
    return [cntk.Value(np.array(batch.inputs)), labels]

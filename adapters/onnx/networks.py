"""Builds one training step of the networks of ``adapters/networks.py`` as one ordinary ONNX graph.

Inputs: every parameter under its canonical name, ``inputs``, ``labels`` and ``learning_rate``. Outputs: ``loss`` and
every parameter after the update (``updated_name``). Nothing is kept from step to step inside the graph.

Layouts: dense and convolution weights are the canonical ones (ONNX's Gemm takes the transposed weight as it is). LSTM
gates are in the order input, forget, output, cell, so that one sigmoid covers three of them, and recurrent tokens and
labels are rows in the order of the steps, so that a step's rows are adjacent.
"""

from typing import Any, List, Sequence, Tuple

import numpy as np
from onnx import ModelProto, TensorProto, helper

from ..families import CHAINS, Bottleneck, Chain, Convolution, Dense, Flatten, MaxPool, Recurrent, Residual
from ..launch.batches import Batch
from ..networks import Network
from .composites import normalise, softmax_cross_entropy
from .gradients import Gradient, Product, backward, multiplied
from .graph import IR_VERSION, OPERATOR_SET, Graph

LOSS = "loss"
LEARNING_RATE = "learning_rate"
_GATES_TO_GRAPH = (0, 1, 3, 2)  # input, forget, cell, output -> input, forget, output, cell; its own inverse


def _dense(graph: Graph, name: str, value: str) -> str:
    return graph.node("Gemm", [value, name + ".weight", name + ".bias"], name, transB=1)


def _convolution(
    graph: Graph, name: str, value: str, weights: Sequence[str], kernel: int, stride: int, padding: int
) -> str:
    inputs = [value] + list(weights)
    return graph.node("Conv", inputs, name, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[padding] * 4)


def _max_pool(graph: Graph, name: str, value: str, kernel: int, stride: int, padding: int) -> str:
    """Add max pooling that also tells where each maximum was."""
    numbers = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [padding] * 4}
    return graph.several("MaxPool", [value], [name, name + ":places"], **numbers)[0]


def _feedforward(graph: Graph, family: Chain) -> str:
    value = "inputs"
    for index, layer in enumerate(family.layers):
        if isinstance(layer, Dense):
            value = _dense(graph, layer.name, value)
        elif isinstance(layer, Convolution):
            weights = [layer.name + ".weight", layer.name + ".bias"]
            value = _convolution(graph, layer.name, value, weights, layer.kernel, layer.stride, layer.padding)
        elif isinstance(layer, MaxPool):
            value = _max_pool(graph, "pool%d" % index, value, layer.kernel, layer.stride, layer.padding)
        else:
            assert isinstance(layer, Flatten)
            value = graph.node("Flatten", [value], "flat%d" % index)
        activation = getattr(layer, "activation", "none")
        if activation != "none":
            value = graph.node({"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[activation], [value])
    return value


def _bottleneck(graph: Graph, block: Bottleneck, value: str, epsilon: float) -> str:
    def normalised(suffix: Tuple[str, str], value: str, channels: int, kernel: int, stride: int) -> str:
        name = "%s.%s" % (block.name, suffix[0])
        value = _convolution(graph, name, value, [name + ".weight"], kernel, stride, kernel // 2)
        return normalise(graph, "%s.%s" % (block.name, suffix[1]), value, channels, epsilon)

    shortcut = value
    value = normalised(("conv1", "norm1"), value, block.width, 1, block.stride)
    value = graph.node("Relu", [value])
    value = normalised(("conv2", "norm2"), value, block.width, 3, 1)
    value = graph.node("Relu", [value])
    value = normalised(("conv3", "norm3"), value, block.out_channels, 1, 1)
    if block.projection:
        shortcut = normalised(("project", "project_norm"), shortcut, block.out_channels, 1, block.stride)
    return graph.node("Relu", [graph.node("Add", [value, shortcut])])


def _residual(graph: Graph, family: Residual) -> str:
    value = _convolution(graph, "stem", "inputs", ["stem.weight"], 7, 2, 3)
    value = normalise(graph, "stem_norm", value, family.stem_channels, family.epsilon)
    value = graph.node("Relu", [value])
    value = _max_pool(graph, "stem_pool", value, 3, 2, 1)
    for block in family.bottlenecks:
        value = _bottleneck(graph, block, value, family.epsilon)
    value = graph.node("Flatten", [graph.node("GlobalAveragePool", [value])])
    return _dense(graph, "fc", value)


def _lstm(graph: Graph, name: str, value: str, hidden: int, steps: int, batch_size: int) -> str:
    """Add one layer over (steps * batch, features) rows, unrolled; return its (steps * batch, hidden) outputs."""
    projected = graph.node("Gemm", [value, name + ".input_weight", name + ".bias"], transB=1)
    rows = ["%s:projected:%d" % (name, step) for step in range(steps)]
    graph.several("Split", [projected, graph.integers(*[batch_size] * steps)], rows, axis=0)
    state = memory = graph.constant("zero_state", np.zeros((batch_size, hidden), dtype=graph.element))
    outputs = []
    for step in range(steps):
        sums = graph.node("Gemm", [state, name + ".hidden_weight", rows[step]], transB=1)
        parts = ["%s:%s:%d" % (name, part, step) for part in ("sigmoids", "cell", "input", "forget", "output")]
        graph.several("Split", [sums, graph.integers(3 * hidden, hidden)], parts[:2], axis=1)
        opened = graph.node("Sigmoid", [parts[0]])
        graph.several("Split", [opened, graph.integers(hidden, hidden, hidden)], parts[2:], axis=1)
        written = graph.node("Mul", [parts[2], graph.node("Tanh", [parts[1]])])
        memory = graph.node("Add", [graph.node("Mul", [parts[3], memory]), written])
        state = graph.node("Mul", [parts[4], graph.node("Tanh", [memory])])
        outputs.append(state)
    return graph.node("Concat", outputs, axis=0)


def _recurrent(graph: Graph, family: Recurrent, batch_size: int) -> str:
    value = graph.node("Gather", ["embedding.weight", "inputs"])
    for layer in range(1, family.layers + 1):
        value = _lstm(graph, "lstm%d" % layer, value, family.hidden, family.steps, batch_size)
    return _dense(graph, "fc", value)


def _logits(graph: Graph, network: Network, batch_size: int) -> Tuple[str, int]:
    """Declare the mini-batch, add the forward pass and return the logits' name and number of rows."""
    family = network.family
    if isinstance(family, Recurrent):
        rows = family.steps * batch_size
        graph.input("inputs", (rows,), np.int64)
        graph.input("labels", (rows,), np.int64)
        return _recurrent(graph, family, batch_size), rows
    graph.input("inputs", (batch_size,) + family.drawn_inputs().shape)
    graph.input("labels", (batch_size,), np.int64)
    if isinstance(family, CHAINS):
        return _feedforward(graph, family), batch_size
    assert isinstance(family, Residual)
    return _residual(graph, family), batch_size


def updated_name(name: str) -> str:
    """Return the name of a parameter's value after the update."""
    return name + ":updated"


def _update(graph: Graph, name: str, shape: Sequence[int], gradient: Gradient, rate_in_product: bool) -> None:
    """Add ``parameter - learning_rate * gradient``.

    Where the gradient is a matrix product, the learning rate may go into the smaller of its factors, so that one pass
    less goes over the weight.
    """
    if rate_in_product and isinstance(gradient, Product):
        left, right = gradient
        if shape[0] <= shape[1]:
            left = graph.node("Mul", [left, LEARNING_RATE])
        else:
            right = graph.node("Mul", [right, LEARNING_RATE])
        change = multiplied(graph, Product(left, right))
    else:
        change = graph.node("Mul", [multiplied(graph, gradient), LEARNING_RATE])
    graph.node("Sub", [name, change], updated_name(name))


def training_graph(
    network: Network, batch_size: int, rate_in_product: bool = True, element: Any = np.float32
) -> ModelProto:
    """Return the model of one training step on mini-batches of this size, computing in this element type."""
    graph = Graph(element)
    trained = network.family.parameters()
    for parameter in trained:
        graph.input(parameter.name, parameter.shape)
    graph.input(LEARNING_RATE, ())
    logits, rows = _logits(graph, network, batch_size)
    names = [parameter.name for parameter in trained]
    loss, seed = softmax_cross_entropy(graph, logits, "labels", rows)
    gradients = backward(graph, {logits: seed}, names)
    for parameter in trained:
        _update(graph, parameter.name, parameter.shape, gradients[parameter.name], rate_in_product)
        graph.output(updated_name(parameter.name), parameter.shape)
    graph.output(loss, ())
    return graph.model()


def product(size: int) -> ModelProto:
    """Return the graph of one (size, size) matrix product ``c = a @ b``."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "product", values[:2], values[2:])
    operators = [helper.make_opsetid("", OPERATOR_SET)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=operators)


def parameter_names(network: Network) -> List[str]:
    """Return the parameters' names, which are the graph's."""
    return [parameter.name for parameter in network.family.parameters()]


def feed(network: Network, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return the mini-batch as the graph's ``inputs`` and ``labels``."""
    if isinstance(network.family, Recurrent):
        return np.ascontiguousarray(batch.inputs.T).reshape(-1), np.ascontiguousarray(batch.labels.T).reshape(-1)
    return batch.inputs, batch.labels


def _permute_gates(network: Network, name: str, value: np.ndarray) -> np.ndarray:
    if isinstance(network.family, Recurrent) and name.startswith("lstm"):
        gates = value.reshape((4, network.family.hidden) + value.shape[1:])
        return gates[list(_GATES_TO_GRAPH)].reshape(value.shape)
    return value


def from_canonical(network: Network, name: str, value: np.ndarray) -> np.ndarray:
    """Turn a parameter from the canonical layout into the graph's."""
    return _permute_gates(network, name, value)


def to_canonical(network: Network, name: str, value: np.ndarray) -> np.ndarray:
    """Turn a parameter from the graph's layout into the canonical one."""
    return _permute_gates(network, name, value)

"""Builds the networks of ``adapters/networks.py`` as forward ONNX graphs that end in the loss.

The weights are not in the graph: a parameter is an initializer of known shape without data, which the artifact
builder turns into an input of the training graph. Every parameter keeps its canonical name.

Layouts: dense and convolution weights are the canonical ones (ONNX's Gemm takes the transposed weight as it is; the
other way round was no faster). LSTM gates are in the order input, forget, output, cell, so that one sigmoid covers
three of them, and recurrent tokens and labels are rows in the order of the steps, so that a step's rows are adjacent.
"""

from typing import Any, List, Sequence, Tuple

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ..families import CHAINS, Bottleneck, Chain, Convolution, Dense, Flatten, MaxPool, Recurrent, Residual
from ..launch.batches import Batch
from ..networks import Network

# Old enough for ONNX Runtime 1.19, whose gradient builder has to know every operator of these networks.
OPERATOR_SET = 17
IR_VERSION = 8

LOSS = "loss"
_GATES_TO_GRAPH = (0, 1, 3, 2)  # input, forget, cell, output -> input, forget, output, cell; its own inverse


class Graph:
    """An ONNX graph in the making; each method adds a node and returns the name of its output."""

    def __init__(self, network: Network, fused_loss: bool) -> None:
        self.fused_loss = fused_loss
        self.nodes: List[Any] = []
        self.constants: List[Any] = []
        self.inputs: List[Any] = []
        self.parameters: List[Any] = []
        for parameter in network.family.parameters():
            self.parameters.append(TensorProto(name=parameter.name, data_type=TensorProto.FLOAT, dims=parameter.shape))

    def input(self, name: str, element_type: int, shape: Sequence[int]) -> str:
        """Declare an input of the model."""
        self.inputs.append(helper.make_tensor_value_info(name, element_type, list(shape)))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        """Put an array into the graph, once under each name."""
        if all(constant.name != name for constant in self.constants):
            self.constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node with one output (or whose first output alone is wanted)."""
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def split(self, value: str, outputs: Sequence[str], axis: int, sizes: Sequence[int]) -> None:
        """Cut a value into consecutive pieces along an axis."""
        name = "sizes:" + ",".join(str(size) for size in sizes)
        inputs = [value, self.constant(name, np.array(sizes, dtype=np.int64))]
        self.nodes.append(helper.make_node("Split", inputs, list(outputs), name=value + ":split", axis=axis))

    def dense(self, name: str, value: str) -> str:
        """Add ``value @ weight.T + bias`` with the parameters NAME.weight and NAME.bias."""
        return self.node("Gemm", [value, name + ".weight", name + ".bias"], name, transB=1)

    def convolution(self, name: str, value: str, weights: Sequence[str], kernel: int, stride: int, padding: int) -> str:
        """Add a square convolution; ``weights`` are the names of its weight and, where it has one, its bias."""
        return self.node(
            "Conv",
            [value] + list(weights),
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[padding] * 4,
        )

    def max_pool(self, name: str, value: str, kernel: int, stride: int, padding: int) -> str:
        """Add max pooling over square windows."""
        return self.node(
            "MaxPool",
            [value],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[padding] * 4,
        )

    def normalise(self, name: str, value: str, channels: int, epsilon: float) -> str:
        """Add batch normalisation in training mode; its running statistics start at 0 and 1 and go nowhere."""
        mean = self.constant("running_mean:%d" % channels, np.zeros(channels, dtype=np.float32))
        variance = self.constant("running_variance:%d" % channels, np.ones(channels, dtype=np.float32))
        outputs = [name, name + ":mean", name + ":variance"]
        inputs = [value, name + ".gamma", name + ".beta", mean, variance]
        self.nodes.append(
            helper.make_node("BatchNormalization", inputs, outputs, name=name, epsilon=epsilon, training_mode=1)
        )
        return name

    def _loss(self, logits: str, labels: str) -> None:
        if self.fused_loss:
            outputs = [LOSS, "log_probabilities"]
            self.nodes.append(
                helper.make_node("SoftmaxCrossEntropyLoss", [logits, labels], outputs, name=LOSS, reduction="mean")
            )
            return
        axis = self.constant("axis:1", np.array([1], dtype=np.int64))
        every = self.node("LogSoftmax", [logits], "log_probabilities", axis=1)
        rows = self.node("Unsqueeze", [labels, axis], "label_column")
        picked = self.node("GatherElements", [every, rows], "label_log_probabilities", axis=1)
        self.node("Neg", [self.node("ReduceMean", [picked], "mean_log_probability", keepdims=0)], LOSS)

    def finish(self, logits: str, labels: str) -> ModelProto:
        """Add the mean softmax cross-entropy and return the model."""
        self._loss(logits, labels)
        graph = helper.make_graph(
            self.nodes,
            "training",
            self.inputs,
            [helper.make_tensor_value_info(LOSS, TensorProto.FLOAT, [])],
            self.constants + self.parameters,
        )
        operators = [helper.make_opsetid("", OPERATOR_SET), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=operators)


def _feedforward(graph: Graph, family: Chain, batch_size: int) -> ModelProto:
    value = graph.input("inputs", TensorProto.FLOAT, (batch_size,) + tuple(family.input_shape))
    labels = graph.input("labels", TensorProto.INT64, (batch_size,))
    for index, layer in enumerate(family.layers):
        if isinstance(layer, Dense):
            value = graph.dense(layer.name, value)
        elif isinstance(layer, Convolution):
            weights = [layer.name + ".weight", layer.name + ".bias"]
            value = graph.convolution(layer.name, value, weights, layer.kernel, layer.stride, layer.padding)
        elif isinstance(layer, MaxPool):
            value = graph.max_pool("pool%d" % index, value, layer.kernel, layer.stride, layer.padding)
        else:
            assert isinstance(layer, Flatten)
            value = graph.node("Flatten", [value], "flat%d" % index)
        activation = getattr(layer, "activation", "none")
        if activation != "none":
            operator = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[activation]
            value = graph.node(operator, [value], "%s:%s" % (value, activation))
    return graph.finish(value, labels)


def _bottleneck(graph: Graph, block: Bottleneck, value: str, epsilon: float) -> str:
    def normalised(suffix: Tuple[str, str], value: str, channels: int, kernel: int, stride: int) -> str:
        name = "%s.%s" % (block.name, suffix[0])
        value = graph.convolution(name, value, [name + ".weight"], kernel, stride, kernel // 2)
        return graph.normalise("%s.%s" % (block.name, suffix[1]), value, channels, epsilon)

    shortcut = value
    value = normalised(("conv1", "norm1"), value, block.width, 1, block.stride)
    value = graph.node("Relu", [value], value + ":relu")
    value = normalised(("conv2", "norm2"), value, block.width, 3, 1)
    value = graph.node("Relu", [value], value + ":relu")
    value = normalised(("conv3", "norm3"), value, block.out_channels, 1, 1)
    if block.projection:
        shortcut = normalised(("project", "project_norm"), shortcut, block.out_channels, 1, block.stride)
    value = graph.node("Add", [value, shortcut], block.name + ":sum")
    return graph.node("Relu", [value], block.name + ":relu")


def _residual(graph: Graph, family: Residual, batch_size: int) -> ModelProto:
    value = graph.input("inputs", TensorProto.FLOAT, (batch_size,) + tuple(family.input_shape))
    labels = graph.input("labels", TensorProto.INT64, (batch_size,))
    value = graph.convolution("stem", value, ["stem.weight"], 7, 2, 3)
    value = graph.normalise("stem_norm", value, family.stem_channels, family.epsilon)
    value = graph.node("Relu", [value], "stem:relu")
    value = graph.max_pool("stem:pool", value, 3, 2, 1)
    for block in family.bottlenecks:
        value = _bottleneck(graph, block, value, family.epsilon)
    value = graph.node("GlobalAveragePool", [value], "average")
    value = graph.node("Flatten", [value], "features")
    return graph.finish(graph.dense("fc", value), labels)


def _lstm(graph: Graph, name: str, value: str, hidden: int, steps: int, batch_size: int) -> str:
    """Add one layer over (steps * batch, features) rows, unrolled; return its (steps * batch, hidden) outputs."""
    projected = graph.node("Gemm", [value, name + ".input_weight", name + ".bias"], name + ":projected", transB=1)
    rows = ["%s:projected:%d" % (name, step) for step in range(steps)]
    graph.split(projected, rows, 0, [batch_size] * steps)
    state = memory = graph.constant("zero_state", np.zeros((batch_size, hidden), dtype=np.float32))
    outputs = []
    for step in range(steps):

        def called(what: str, step: int = step) -> str:
            return "%s:%s:%d" % (name, what, step)

        gates = graph.node("Gemm", [state, name + ".hidden_weight", rows[step]], called("gates"), transB=1)
        graph.split(gates, [called("sigmoids"), called("cell")], 1, [3 * hidden, hidden])
        opened = graph.node("Sigmoid", [called("sigmoids")], called("opened"))
        cell = graph.node("Tanh", [called("cell")], called("cell:tanh"))
        parts = [called("input"), called("forget"), called("output")]
        graph.split(opened, parts, 1, [hidden] * 3)
        written = graph.node("Mul", [parts[0], cell], called("written"))
        kept = graph.node("Mul", [parts[1], memory], called("kept"))
        memory = graph.node("Add", [kept, written], called("memory"))
        shown = graph.node("Tanh", [memory], called("shown"))
        state = graph.node("Mul", [parts[2], shown], called("state"))
        outputs.append(state)
    return graph.node("Concat", outputs, name + ":outputs", axis=0)


def _recurrent(graph: Graph, family: Recurrent, batch_size: int) -> ModelProto:
    tokens = graph.input("inputs", TensorProto.INT64, (family.steps * batch_size,))
    labels = graph.input("labels", TensorProto.INT64, (family.steps * batch_size,))
    value = graph.node("Gather", ["embedding.weight", tokens], "embedding")
    for layer in range(1, family.layers + 1):
        value = _lstm(graph, "lstm%d" % layer, value, family.hidden, family.steps, batch_size)
    return graph.finish(graph.dense("fc", value), labels)


def forward_model(network: Network, batch_size: int, fused_loss: bool = True) -> ModelProto:
    """Return the graph from ``inputs`` and ``labels`` to ``loss`` for mini-batches of this size.

    ``fused_loss`` chooses the one operator for softmax and cross-entropy, otherwise it is LogSoftmax and a gather.
    """
    graph = Graph(network, fused_loss)
    family = network.family
    if isinstance(family, CHAINS):
        return _feedforward(graph, family, batch_size)
    if isinstance(family, Residual):
        return _residual(graph, family, batch_size)
    assert isinstance(family, Recurrent)
    return _recurrent(graph, family, batch_size)


def product(size: int) -> ModelProto:
    """Return the graph of one (size, size) matrix product ``c = a @ b``."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "product", values[:2], values[2:])
    operators = [helper.make_opsetid("", OPERATOR_SET)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=operators)


def parameter_names(network: Network) -> List[str]:
    """Return the parameters' names in the order of the graph's parameters."""
    return [parameter.name for parameter in network.family.parameters()]


def feed(network: Network, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return the mini-batch as the graph's ``inputs`` and ``labels``."""
    if isinstance(network.family, Recurrent):
        return np.ascontiguousarray(batch.inputs.T).reshape(-1), np.ascontiguousarray(batch.labels.T).reshape(-1)
    return batch.inputs, batch.labels


def _permute_gates(network: Network, name: str, value: np.ndarray, order: Sequence[int]) -> np.ndarray:
    if isinstance(network.family, Recurrent) and name.startswith("lstm"):
        gates = value.reshape((4, network.family.hidden) + value.shape[1:])
        return gates[list(order)].reshape(value.shape)
    return value


def from_canonical(network: Network, name: str, value: np.ndarray) -> np.ndarray:
    """Turn a parameter from the canonical layout into the graph's."""
    return _permute_gates(network, name, value, _GATES_TO_GRAPH)


def to_canonical(network: Network, name: str, value: np.ndarray) -> np.ndarray:
    """Turn a parameter from the graph's layout into the canonical one."""
    return _permute_gates(network, name, value, _GATES_TO_GRAPH)

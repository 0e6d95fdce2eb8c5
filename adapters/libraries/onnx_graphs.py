"""ONNX graphs in the making, and the forward passes of the networks of ``adapters/networks.py`` in them.

Both adapters of ONNX Runtime build on it: what they add, each in its ``graph.py`` or ``networks.py``, is how a network
normalises and pools, the loss, and what it is trained by.

Layouts: dense and convolution weights are the canonical ones (ONNX's Gemm takes the transposed weight as it is; the
other way round was no faster). LSTM gates are in the order input, forget, output, cell, so that one sigmoid covers
three of them, and recurrent tokens and labels are rows in the order of the steps, so that a step's rows are adjacent.
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from ..families import Bottleneck, Chain, Convolution, Dense, Elman, Family, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch
from ..networks import Network

# Recurrent layers in ONNX graphs, every step by itself.
#
# The operators LSTM, GRU and RNN have no gradient in ONNX Runtime's own training, nor one in ordinary operators.

State = Tuple[str, ...]  # names of values (batch, hidden), the layer's output first


def _split(graph: Any, value: str, names: List[str], *sizes: int) -> List[str]:
    return list(graph.several("Split", [value, graph.integers(*sizes)], names, axis=1))


def _lstm(graph: Any, name: str, hidden: int, share: str, state: State) -> State:
    """Gates input, forget, output, cell: one sigmoid covers three of them."""
    sums = graph.node("Gemm", [state[0], name + ".hidden_weight", share], transB=1)
    parts = ["%s:%s" % (share, part) for part in ("sigmoids", "cell", "input", "forget", "output")]
    _split(graph, sums, parts[:2], 3 * hidden, hidden)
    _split(graph, graph.node("Sigmoid", [parts[0]]), parts[2:], hidden, hidden, hidden)
    written = graph.node("Mul", [parts[2], graph.node("Tanh", [parts[1]])])
    memory = graph.node("Add", [graph.node("Mul", [parts[3], state[1]]), written])
    return graph.node("Mul", [parts[4], graph.node("Tanh", [memory])]), memory


def _gru(graph: Any, name: str, hidden: int, share: str, state: State) -> State:
    """Gates reset, update, new; the reset gate weighs the product."""
    product = graph.node("Gemm", [state[0], name + ".hidden_weight", name + ".hidden_bias"], transB=1)
    parts = ["%s:%s" % (share, part) for part in ("ours", "our_new", "theirs", "their_new", "reset", "update")]
    _split(graph, share, parts[:2], 2 * hidden, hidden)
    _split(graph, product, parts[2:4], 2 * hidden, hidden)
    opened = graph.node("Sigmoid", [graph.node("Add", [parts[0], parts[2]])])
    reset, update = _split(graph, opened, parts[4:], hidden, hidden)
    new = graph.node("Tanh", [graph.node("Add", [parts[1], graph.node("Mul", [reset, parts[3]])])])
    # (1 - z) n + z h
    return (graph.node("Add", [new, graph.node("Mul", [update, graph.node("Sub", [state[0], new])])]),)


def _rnn(graph: Any, name: str, hidden: int, share: str, state: State) -> State:
    return (graph.node("Tanh", [graph.node("Gemm", [state[0], name + ".hidden_weight", share], transB=1)]),)


#: By the number ``cell``: what adds a step, and the states that it goes by.
_STEPS: Dict[str, Tuple[Callable[..., State], int]] = {"lstm": (_lstm, 2), "gru": (_gru, 1), "rnn": (_rnn, 1)}


def _recurrent_layer(graph: Any, family: Recurrent, name: str, value: str, batch_size: int) -> str:
    """Add a layer over (steps * batch, features) rows; return its (steps * batch, hidden) outputs."""
    advance, states = _STEPS[family.cell]
    projected = graph.node("Gemm", [value, name + ".input_weight", name + ".bias"], transB=1)
    shares = ["%s:projected:%d" % (name, step) for step in range(family.steps)]
    graph.several("Split", [projected, graph.integers(*[batch_size] * family.steps)], shares, axis=0)
    state = (graph.constant("zero_state", np.zeros((batch_size, family.hidden), dtype=graph.element)),) * states
    outputs = []
    for share in shares:
        state = advance(graph, name, family.hidden, share, state)
        outputs.append(state[0])
    return str(graph.node("Concat", outputs, axis=0))


LOSS = "loss"
#: Of a simple recurrent network: a graph of more takes a minute or more to build and to load.
MOST_STEPS = 100
_GATES_TO_GRAPH = (0, 1, 3, 2)  # input, forget, cell, output -> input, forget, output, cell; its own inverse
_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


class Graph:
    """Collects a graph; each method that adds a node returns the name of what the node computes.

    ONNX Runtime removes what is written down twice (constants, common subexpressions, dead nodes), so nothing
    here does. ``element`` is the element type of every value but indices: float32, or float64 to differentiate
    numerically.
    """

    operator_set = 0  # a subclass chooses the versions
    ir_version = 0

    def __init__(self, element: Any = np.float32) -> None:
        self.element = np.dtype(element)
        self.nodes: List[Any] = []
        self.constants: Dict[str, Any] = {}
        self.inputs: Dict[str, Any] = {}
        self.outputs: Dict[str, Any] = {}

    @property
    def element_type(self) -> int:
        """The element type by ONNX's number."""
        return int(helper.np_dtype_to_tensor_dtype(self.element))

    def input(self, name: str, shape: Sequence[int], dtype: Any = None) -> str:
        """Declare an input of the model, of the graph's element type unless one is given."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.element))
        self.inputs[name] = helper.make_tensor_value_info(name, kind, list(shape))
        return name

    def output(self, name: str, shape: Sequence[int]) -> str:
        """Declare a value as an output of the model."""
        self.outputs[name] = helper.make_tensor_value_info(name, self.element_type, list(shape))
        return name

    def integers(self, *values: int) -> str:
        """Return a constant of int64: axes, sizes, shapes."""
        name = "integers:" + ",".join(str(value) for value in values)
        return self.constant(name, np.array(values, dtype=np.int64))

    def constant(self, name: str, value: np.ndarray) -> str:
        """Put an array into the graph, once under each name."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node with one output (or whose first output alone is wanted), named by number unless told."""
        return self.several(operator, inputs, [output or "%s#%d" % (operator, len(self.nodes))], **attributes)[0]

    def several(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Sequence[str]:
        """Add a node with several outputs."""
        self.nodes.append(helper.make_node(operator, list(inputs), list(outputs), name=outputs[0], **attributes))
        return outputs

    def dense(self, name: str, value: str) -> str:
        """Add ``value @ weight.T + bias`` with the parameters NAME.weight and NAME.bias."""
        return self.node("Gemm", [value, name + ".weight", name + ".bias"], name, transB=1)

    def convolution(
        self, name: str, value: str, kernel: int, stride: int, padding: int, parts: Sequence[str] = (".weight",)
    ) -> str:
        """Add a square convolution; its parameters are NAME with each of the parts behind it."""
        inputs = [value] + [name + part for part in parts]
        return self.node("Conv", inputs, name, **window(kernel, stride, padding))

    def max_pool(self, name: str, value: str, kernel: int, stride: int, padding: int) -> str:
        """Add max pooling over square windows."""
        return self.node("MaxPool", [value], name, **window(kernel, stride, padding))

    def normalise(self, name: str, value: str, channels: int, epsilon: float) -> str:
        """Add batch normalisation by the batch's mean and biased variance, with parameters NAME.gamma and NAME.beta."""
        raise NotImplementedError

    def model(self) -> ModelProto:
        """Return the model as it stands."""
        graph = helper.make_graph(
            self.nodes,
            "training_step",
            list(self.inputs.values()),
            list(self.outputs.values()),
            list(self.constants.values()),
        )
        sets = [helper.make_opsetid("", self.operator_set)]
        return helper.make_model(graph, ir_version=self.ir_version, opset_imports=sets)


def window(kernel: int, stride: int, padding: int) -> Dict[str, List[int]]:
    """Return the attributes of an operator that moves a square window over an image."""
    return {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [padding] * 4}


def _chain(graph: Graph, family: Chain) -> str:
    value = "inputs"
    for index, layer in enumerate(family.layers):
        if isinstance(layer, Dense):
            value = graph.dense(layer.name, value)
        elif isinstance(layer, Convolution):
            numbers = layer.kernel, layer.stride, layer.padding
            value = graph.convolution(layer.name, value, *numbers, parts=(".weight", ".bias"))
        elif isinstance(layer, MaxPool):
            value = graph.max_pool("pool%d" % index, value, layer.kernel, layer.stride, layer.padding)
        else:
            assert isinstance(layer, Flatten)
            value = graph.node("Flatten", [value], "flat%d" % index)
        activation = getattr(layer, "activation", "none")
        if activation != "none":
            value = graph.node(_ACTIVATIONS[activation], [value])
    return value


def _normalised(graph: Graph, spec: NormalisedConvolution, value: str, epsilon: float) -> str:
    value = graph.convolution(spec.name, value, spec.kernel, spec.stride, spec.padding)
    return graph.normalise(spec.norm, value, spec.outputs, epsilon)


def _bottleneck(graph: Graph, block: Bottleneck, value: str, epsilon: float) -> str:
    first, second, third = block.body
    shortcut = value
    value = graph.node("Relu", [_normalised(graph, first, value, epsilon)])
    value = graph.node("Relu", [_normalised(graph, second, value, epsilon)])
    value = _normalised(graph, third, value, epsilon)
    if block.shortcut is not None:
        shortcut = _normalised(graph, block.shortcut, shortcut, epsilon)
    return graph.node("Relu", [graph.node("Add", [value, shortcut])])


def _residual(graph: Graph, family: Residual) -> str:
    value = graph.node("Relu", [_normalised(graph, family.stem, "inputs", family.epsilon)])
    value = graph.max_pool("stem_pool", value, 3, 2, 1)
    for block in family.bottlenecks:
        value = _bottleneck(graph, block, value, family.epsilon)
    return graph.dense("fc", graph.node("Flatten", [graph.node("GlobalAveragePool", [value])]))


def _elman(graph: Graph, family: Elman, batch_size: int) -> str:
    """Add the layer over (steps * batch, inputs) rows, unrolled; return the outputs, (steps * batch, outputs)."""
    shape = batch_size, family.hidden
    shares = graph.node("Gemm", ["inputs", "rnn.input_weight", "rnn.bias"], transB=1)
    rows = ["rnn:shares:%d" % step for step in range(family.steps)]
    graph.several("Split", [shares, graph.integers(*[batch_size] * family.steps)], rows, axis=0)
    state = graph.constant("zero_state", np.zeros(shape, dtype=graph.element))
    states = []
    for row in rows:
        sums = graph.node("Gemm", [state, "rnn.hidden_weight", row], transB=1)
        found = graph.node(_ACTIVATIONS[family.activation], [sums])
        if family.alpha != 1.0:
            new = graph.constant("new_share", np.full(shape, family.alpha, dtype=graph.element))
            old = graph.constant("old_share", np.full(shape, 1.0 - family.alpha, dtype=graph.element))
            found = graph.node("Add", [graph.node("Mul", [state, old]), graph.node("Mul", [found, new])])
        state = found
        states.append(state)
    return graph.dense("out", graph.node("Concat", states, axis=0))


def refuses_steps(family: Family) -> str:
    """Return why a network is not unrolled; empty where it is."""
    if not isinstance(family, Elman) or family.steps <= MOST_STEPS:
        return ""
    return "the graph holds every step, and is not built for more than %d of them, but for %d" % (
        MOST_STEPS,
        family.steps,
    )


def add_logits(graph: Graph, network: Network, batch_size: int) -> Tuple[str, int]:
    """Declare ``inputs`` and ``labels``, add the forward pass and return the logits' name and number of rows.

    Of a family whose loss is of squares: the outputs'.
    """
    family = network.family
    if isinstance(family, Recurrent):
        rows = family.steps * batch_size
        if family.embedding:
            value = graph.node("Gather", ["embedding.weight", graph.input("inputs", (rows,), np.int64)])
        else:
            value = graph.input("inputs", (rows, family.vocabulary))
        graph.input("labels", (rows,), np.int64)
        for name in family.layer_names():
            value = _recurrent_layer(graph, family, name, value, batch_size)
        return graph.dense("fc", value), rows
    if isinstance(family, Elman):
        rows = family.steps * batch_size
        graph.input("inputs", (rows, family.inputs))
        graph.input("labels", (rows, family.outputs))
        return _elman(graph, family, batch_size), rows
    graph.input("inputs", (batch_size,) + family.drawn_inputs().shape)
    graph.input("labels", (batch_size,), np.int64)
    if isinstance(family, Residual):
        return _residual(graph, family), batch_size
    assert isinstance(family, Chain)
    return _chain(graph, family), batch_size


def add_product(graph: Graph, size: int) -> Graph:
    """Add one (size, size) matrix product ``c = a @ b`` and return the graph."""
    for name in "ab":
        graph.input(name, (size, size))
    graph.output(graph.node("MatMul", ["a", "b"], "c"), (size, size))
    return graph


def parameter_names(network: Network) -> List[str]:
    """Return the parameters' names, which are the graph's, in forward order."""
    return [parameter.name for parameter in network.family.parameters()]


def feed(network: Network, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return the mini-batch as the graph's ``inputs`` and ``labels``."""
    if network.family.time_major:
        inputs, labels = [np.ascontiguousarray(each.swapaxes(0, 1)) for each in batch]
        return inputs.reshape((-1,) + inputs.shape[2:]), labels.reshape((-1,) + labels.shape[2:])
    return batch.inputs, batch.labels


def permute_gates(network: Network, name: str, value: np.ndarray) -> np.ndarray:
    """Turn a parameter from the canonical layout into the graph's, or back."""
    if isinstance(network.family, Recurrent) and name.startswith("lstm"):
        gates = value.reshape((4, network.family.hidden) + value.shape[1:])
        return gates[list(_GATES_TO_GRAPH)].reshape(value.shape)
    return value

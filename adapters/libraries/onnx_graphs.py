"""ONNX graphs under construction, and the forward passes of networks in them.

Both adapters of ONNX Runtime build on it. Each adds normalisation and pooling, the loss, and the
training.

Layouts: dense and convolution weights are the canonical ones (ONNX's Gemm takes the transposed
weight as it is, and the other way round was no faster). LSTM gates are in the order input, forget,
output, cell, so that one sigmoid covers three of them, and recurrent tokens and labels are rows in
the order of the steps, so that a step's rows are adjacent.
"""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from ..families import Drawn, Elman, Family, Layer, Recurrent
from ..networks import Network
from .walks import Functions, State, Turn, unchanged

LOSS = "loss"
OUTPUTS = "outputs"
#: Steps of a simple recurrent network: a larger graph takes a minute or more to build and to load.
MOST_STEPS = 100
#: Input, forget, cell, output -> input, forget, output, cell. It is its own inverse.
_GATES_TO_GRAPH = (0, 1, 3, 2)
#: By the number ``cell`` of the family ``recurrent``: ONNX's operator, and the gates' places in its
#: weights (the LSTM's are input, output, forget, cell, the GRU's update, reset, new).
_OPERATORS = {"lstm": ("LSTM", (0, 3, 1, 2)), "gru": ("GRU", (1, 0, 2)), "rnn": ("RNN", (0,))}
_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


class OnnxGraph:
    """A graph under construction; each method that adds a node returns the name of its output.

    ONNX Runtime removes duplicates (constants, common subexpressions, dead nodes), so this class
    need not. ``element`` is the element type of every value but indices: float32, or float64 to
    differentiate numerically.
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
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.element))
        self.inputs[name] = helper.make_tensor_value_info(name, kind, list(shape))
        return name

    def output(self, name: str, shape: Sequence[int]) -> str:
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

    def node(
        self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any
    ) -> str:
        """Add a node and return its first output, by default named by number."""
        name = output or "%s#%d" % (operator, len(self.nodes))
        return self.several(operator, inputs, [name], **attributes)[0]

    def several(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        node = helper.make_node(
            operator, list(inputs), list(outputs), name=outputs[0], **attributes
        )
        self.nodes.append(node)
        return outputs

    def max_pool(self, name: str, value: str, kernel: int, stride: int, padding: int) -> str:
        """Add max pooling over square windows."""
        return self.node("MaxPool", [value], name, **window(kernel, stride, padding))

    def normalise(self, name: str, value: str, channels: int, epsilon: float) -> str:
        """Add batch normalisation by the batch's mean and biased variance.

        Its parameters are NAME.gamma and NAME.beta.
        """
        raise NotImplementedError

    def model(self) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "training_step",
            list(self.inputs.values()),
            list(self.outputs.values()),
            list(self.constants.values()),
        )
        sets = [helper.make_opsetid("", self.operator_set)]
        return helper.make_model(graph, ir_version=self.ir_version, opset_imports=sets)


def window(kernel: int, stride: int, padding: int) -> Dict[str, Any]:
    """Return the attributes of an operator that moves a square window over an image."""
    return {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [padding] * 4}


class OnnxFunctions(Functions):
    """Networks as nodes of a graph; values are names, those of steps rows.

    The operators LSTM, GRU and RNN have no gradient in ONNX Runtime's own training, nor one in
    ordinary operators: each step stands by itself. LSTM gates are in the order input, forget,
    output, cell: one sigmoid covers three of them.
    """

    rows = staticmethod(unchanged)

    def __init__(self, family: Family, graph: OnnxGraph, batch_size: int) -> None:
        super().__init__(family, {})
        self.graph = graph
        self.batch_size = batch_size

    def activated(self, values: Any, activation: str) -> Any:
        if activation == "none":
            return values
        return self.graph.node(_ACTIVATIONS[activation], [values])

    def dense(self, name: str, values: Any) -> Any:
        return self.graph.node("Gemm", [values, name + ".weight", name + ".bias"], name, transB=1)

    def convolution(self, spec: Layer, values: Any) -> Any:
        inputs = [values, spec.name + ".weight"]
        if not spec.norm:
            inputs.append(spec.name + ".bias")
        attributes = window(spec.kernel, spec.stride, spec.padding)
        return self.graph.node("Conv", inputs, spec.name, **attributes)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        name = "pool#%d" % len(self.graph.nodes)
        return self.graph.max_pool(name, values, kernel, stride, padding)

    def flatten(self, values: Any) -> Any:
        return self.graph.node("Flatten", [values])

    def norm(self, name: str, values: Any) -> Any:
        shapes = {parameter.name: parameter.shape for parameter in self.family.parameters()}
        channels = shapes[name + ".gamma"][0]
        return self.graph.normalise(name, values, channels, self.family.epsilon)

    def added(self, inner: Any, values: Any) -> Any:
        return self.graph.node("Add", [inner, values])

    def pixel_mean(self, values: Any) -> Any:
        return self.flatten(self.graph.node("GlobalAveragePool", [values]))

    def embedded(self, name: str, symbols: Any) -> Any:
        return self.graph.node("Gather", [name + ".weight", symbols])

    def _split(self, value: str, names: List[str], *sizes: int) -> List[str]:
        inputs = [value, self.graph.integers(*sizes)]
        return list(self.graph.several("Split", inputs, names, axis=1))

    def over_steps(self, name: str, values: Any, turn: Turn, states: int) -> Any:
        """Add a layer over (steps * batch, features) rows.

        Return its (steps * batch, hidden) outputs.
        """
        graph = self.graph
        steps = self.family.steps
        projected = graph.node("Gemm", [values, name + ".input_weight", name + ".bias"], transB=1)
        shares = ["%s:projected:%d" % (name, step) for step in range(steps)]
        sizes = graph.integers(*[self.batch_size] * steps)
        graph.several("Split", [projected, sizes], shares, axis=0)
        zero = np.zeros((self.batch_size, self.family.hidden), dtype=graph.element)
        state: State = (graph.constant("zero_state", zero),) * states
        return graph.node("Concat", self.step_by_step(turn, state, shares), axis=0)

    def sums(self, name: str, share: Any, output: Any) -> Any:
        return self.graph.node("Gemm", [output, name + ".hidden_weight", share], transB=1)

    def product(self, name: str, output: Any) -> Any:
        return self.sums(name, name + ".hidden_bias", output)

    def lstm(self, memory: Any, sums: Any) -> State:
        graph = self.graph
        hidden = self.family.hidden
        names = ("sigmoids", "cell", "input", "forget", "output")
        sigmoids, cell, enter, forget, leave = ["%s:%s" % (sums, name) for name in names]
        self._split(sums, [sigmoids, cell], 3 * hidden, hidden)
        gates = [enter, forget, leave]
        self._split(graph.node("Sigmoid", [sigmoids]), gates, hidden, hidden, hidden)
        written = graph.node("Mul", [enter, graph.node("Tanh", [cell])])
        memory = graph.node("Add", [graph.node("Mul", [forget, memory]), written])
        return graph.node("Mul", [leave, graph.node("Tanh", [memory])]), memory

    def gru(self, output: Any, share: Any, product: Any) -> Any:
        graph = self.graph
        hidden = self.family.hidden
        names = ("ours", "our_new", "theirs", "their_new", "reset", "update")
        ours, our_new, theirs, their_new, reset, update = [
            "%s:%s" % (share, name) for name in names
        ]
        self._split(share, [ours, our_new], 2 * hidden, hidden)
        self._split(product, [theirs, their_new], 2 * hidden, hidden)
        opened = graph.node("Sigmoid", [graph.node("Add", [ours, theirs])])
        self._split(opened, [reset, update], hidden, hidden)
        weighed = graph.node("Mul", [reset, their_new])
        new = graph.node("Tanh", [graph.node("Add", [our_new, weighed])])
        # (1 - z) n + z h
        change = graph.node("Mul", [update, graph.node("Sub", [output, new])])
        return graph.node("Add", [new, change])

    def leaky(self, state: Any, sums: Any) -> Any:
        activated = self.activated(sums, self.family.activation)
        if self.family.alpha == 1.0:
            return activated
        graph = self.graph
        shape = (self.batch_size, self.family.hidden)
        alpha = self.family.alpha
        new = graph.constant("new_share", np.full(shape, alpha, dtype=graph.element))
        old = graph.constant("old_share", np.full(shape, 1.0 - alpha, dtype=graph.element))
        kept = graph.node("Mul", [state, old])
        return self.added(kept, graph.node("Mul", [activated, new]))


class InferenceFunctions(OnnxFunctions):
    """The same with ONNX's operators for whole recurrent layers.

    Weights are constants of the graph.
    """

    def norm(self, name: str, values: Any) -> Any:
        parts = ("gamma", "beta", "mean", "variance")
        inputs = [values, *("%s.%s" % (name, part) for part in parts)]
        return self.graph.node("BatchNormalization", inputs, name, epsilon=self.family.epsilon)

    def recurrent_layer(self, name: str, values: Any) -> Any:
        """Add a layer over (steps * batch, features) rows.

        Return its (steps * batch, hidden) outputs.
        """
        graph = self.graph
        steps = self.family.steps
        hidden = self.family.hidden
        operator, gates = _OPERATORS[self.family.cell]

        def with_gates_in_order(part: str) -> np.ndarray:
            canonical = self.w["%s.%s" % (name, part)]
            apart = canonical.reshape((len(gates), hidden) + canonical.shape[1:])
            return np.ascontiguousarray(apart[list(gates)].reshape(canonical.shape)[None])

        bias = with_gates_in_order("bias")
        attributes: Dict[str, int] = {}
        if self.family.cell == "gru":
            hidden_bias = with_gates_in_order("hidden_bias")
            attributes["linear_before_reset"] = 1
        else:
            hidden_bias = np.zeros_like(bias)
        weights = [
            graph.constant(name + ":W", with_gates_in_order("input_weight")),
            graph.constant(name + ":R", with_gates_in_order("hidden_weight")),
            graph.constant(name + ":B", np.concatenate([bias, hidden_bias], axis=1)),
        ]
        over_steps = graph.node("Reshape", [values, graph.integers(steps, self.batch_size, -1)])
        inputs = [over_steps, *weights]
        outputs = graph.node(operator, inputs, name, hidden_size=hidden, **attributes)
        return graph.node("Reshape", [outputs, graph.integers(-1, hidden)])


def inference_model(
    graph: OnnxGraph,
    network: Network,
    batch_size: int,
    weights: Dict[str, np.ndarray],
    statistics: Dict[str, np.ndarray],
) -> Tuple[ModelProto, Tuple[int, int]]:
    """Return the graph from ``inputs`` to rows of ``outputs``, and the shape of the outputs.

    These weights are in the graph. Inputs of recurrent networks are rows in the order of the steps.
    """
    family = network.family
    functions = InferenceFunctions(family, graph, batch_size)
    functions.w = weights
    # ONNX's operators have the weights of recurrent layers.
    layers = tuple(family.layer_names()) if isinstance(family, Recurrent) else ()
    for name, value in {**weights, **statistics}.items():
        if not name.startswith(layers):
            graph.constant(name, value)
    rows = _add_input(graph, "inputs", family.drawn_inputs(), family, batch_size)
    graph.node("Identity", [functions.scores("inputs")], OUTPUTS)
    last = "out.bias" if "out.bias" in weights else list(weights)[-1]
    shape = (rows, weights[last].shape[0])
    graph.output(OUTPUTS, shape)
    return graph.model(), shape


def _add_input(graph: OnnxGraph, name: str, drawn: Drawn, family: Family, batch_size: int) -> int:
    """Declare a part of the mini-batch; return its number of rows."""
    rows = batch_size
    shape = drawn.shape
    if family.time_major:
        rows = batch_size * shape[0]
        shape = shape[1:]
    indices = drawn.below is not None and not drawn.one_hot
    graph.input(name, (rows,) + shape, np.int64 if indices else None)
    return rows


def refuses_steps(family: Family) -> str:
    """Return why a network is not unrolled; empty where it is."""
    if not isinstance(family, Elman) or family.steps <= MOST_STEPS:
        return ""
    words = "%d steps: the graph holds every step, and is not built for more than %d"
    return words % (family.steps, MOST_STEPS)


def add_logits(graph: OnnxGraph, network: Network, batch_size: int) -> Tuple[str, int]:
    """Declare ``inputs`` and ``labels``, and add the forward pass.

    Return the logits' name and number of rows.
    """
    family = network.family
    _add_input(graph, "inputs", family.drawn_inputs(), family, batch_size)
    rows = _add_input(graph, "labels", family.drawn_labels(), family, batch_size)
    return OnnxFunctions(network.family, graph, batch_size).scores("inputs"), rows


def add_product(graph: OnnxGraph, size: int) -> OnnxGraph:
    """Add one (size, size) matrix product ``c = a @ b`` and return the graph."""
    for name in "ab":
        graph.input(name, (size, size))
    graph.output(graph.node("MatMul", ["a", "b"], "c"), (size, size))
    return graph


def parameter_names(network: Network) -> List[str]:
    """Return the parameters' names, which are the graph's, in forward order."""
    return [parameter.name for parameter in network.family.parameters()]


def permute_gates(network: Network, name: str, value: np.ndarray) -> np.ndarray:
    """Turn a parameter from the canonical layout into the graph's, or back."""
    if isinstance(network.family, Recurrent) and name.startswith("lstm"):
        gates = value.reshape((4, network.family.hidden) + value.shape[1:])
        return gates[list(_GATES_TO_GRAPH)].reshape(value.shape)
    return value

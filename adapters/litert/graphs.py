"""Networks as LiteRT graphs, written with the package's own schema.

No converter and no other framework is needed. TensorFlow's converter gives the same operators, and
takes 38 s and TensorFlow for the 472 MB of fcn5. As there, batch normalisation is folded into the
convolution before it, and rectifiers into the operator before them. Images are (batch, height,
width, channels). Recurrent layers are unrolled: a loop in the graph took 1.5 times as long at a
mini-batch of 128, and 0.7 times as long at 1.
"""

from math import prod
from typing import Any, Dict, List, Optional, Sequence, Tuple

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from ..families import Elman, Family, Layer, Recurrent
from ..libraries.walks import Functions, State, Turn, unchanged
from ..networks import Network

#: Steps of a recurrent network: the graph holds each, and loading more takes minutes.
MOST_STEPS = 100
_ELEMENT_TYPES = {"float32": schema.TensorType.FLOAT32, "int32": schema.TensorType.INT32}
_FUSED = schema.ActivationFunctionType
_SCHEMA_VERSION = 3
_IDENTIFIER = b"TFL3"
_OPERATORS = schema.BuiltinOperator
#: Versions of operators that are not 1: those that know what is used of them.
_VERSIONS = {_OPERATORS.FULLY_CONNECTED: 2, _OPERATORS.CONV_2D: 2}


class Value:
    """A tensor of a graph, with arithmetic that adds operators to the graph."""

    def __init__(self, graph: "LitertGraph", number: int, shape: Tuple[int, ...]) -> None:
        self.graph = graph
        self.number = number
        self.shape = shape

    def _with(self, operator: int, options: Any, other: Any, swapped: bool = False) -> "Value":
        if not isinstance(other, Value):
            other = self.graph.constant("number:%r" % other, np.float32(other))
        inputs = (other, self) if swapped else (self, other)
        return self.graph.node(operator, inputs, max(self.shape, other.shape, key=len), options)

    def __add__(self, other: Any) -> "Value":
        return self._with(_OPERATORS.ADD, schema.AddOptionsT(), other)

    def __mul__(self, other: Any) -> "Value":
        return self._with(_OPERATORS.MUL, schema.MulOptionsT(), other)

    def __rsub__(self, other: Any) -> "Value":
        return self._with(_OPERATORS.SUB, schema.SubOptionsT(), other, swapped=True)

    __radd__, __rmul__ = __add__, __mul__


class LitertGraph:
    """Collects a graph; each method that adds an operator returns its output."""

    def __init__(self) -> None:
        self.tensors: List[Any] = []
        self.operators: List[Any] = []
        self.codes: Dict[int, int] = {}
        self.buffers: List[Any] = [
            schema.BufferT()
        ]  # the first one is that of tensors without data
        self.constants: Dict[str, Value] = {}
        self.inputs: List[Value] = []

    def tensor(
        self, shape: Sequence[int], element: str = "float32", data: Optional[np.ndarray] = None
    ) -> Value:
        """Add a tensor, by default one that an operator or the user fills."""
        made = schema.TensorT()
        made.name = "t%d" % len(self.tensors)
        made.shape = list(shape)
        made.type = _ELEMENT_TYPES[element]
        made.buffer = 0
        if data is not None:
            made.buffer = len(self.buffers)
            buffer = schema.BufferT()
            buffer.data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            self.buffers.append(buffer)
        self.tensors.append(made)
        return Value(self, len(self.tensors) - 1, tuple(shape))

    def input(self, shape: Sequence[int], element: str) -> Value:
        self.inputs.append(self.tensor(shape, element))
        return self.inputs[-1]

    def constant(self, name: str, value: Any) -> Value:
        """Put an array into the graph, once under each name."""
        if name not in self.constants:
            array = np.asarray(value)
            self.constants[name] = self.tensor(array.shape, str(array.dtype), array)
        return self.constants[name]

    def integers(self, *values: int) -> Value:
        """Return a constant of whole numbers: axes, shapes."""
        return self.constant("integers:%r" % (values,), np.array(values, dtype=np.int32))

    def node(
        self,
        operator: int,
        inputs: Sequence[Optional[Value]],
        shape: Sequence[int],
        options: Any = None,
    ) -> Value:
        """Add an operator and return its output of this shape."""
        return self.several(operator, inputs, [shape], options)[0]

    def several(
        self,
        operator: int,
        inputs: Sequence[Optional[Value]],
        shapes: Sequence[Sequence[int]],
        options: Any = None,
    ) -> List[Value]:
        """Add an operator with outputs of these shapes; an input of None is left out."""
        outputs = [self.tensor(shape) for shape in shapes]
        made = schema.OperatorT()
        made.opcodeIndex = self.codes.setdefault(operator, len(self.codes))
        made.inputs = [-1 if value is None else value.number for value in inputs]
        made.outputs = [value.number for value in outputs]
        if options is not None:
            made.builtinOptions = options
            made.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__[:-1])
        self.operators.append(made)
        return outputs

    def fuse(self, value: Value, activation: int) -> bool:
        """Let the operator that gives this value apply an activation as well.

        Return whether it can.
        """
        maker = self.operators[-1] if self.operators else None
        if (
            maker is None
            or maker.outputs != [value.number]
            or not hasattr(maker.builtinOptions, _ACTIVATION)
        ):
            return False
        setattr(maker.builtinOptions, _ACTIVATION, activation)
        return True

    def model(self, outputs: Sequence[Value]) -> bytes:
        """Return the graph as LiteRT loads it."""
        subgraph = schema.SubGraphT()
        subgraph.tensors = self.tensors
        subgraph.operators = self.operators
        subgraph.inputs = [value.number for value in self.inputs]
        subgraph.outputs = [value.number for value in outputs]
        model = schema.ModelT()
        model.version = _SCHEMA_VERSION
        model.subgraphs = [subgraph]
        model.buffers = self.buffers
        model.operatorCodes = []
        for operator in self.codes:
            code = schema.OperatorCodeT()
            code.builtinCode = operator
            code.version = _VERSIONS.get(operator, 1)
            code.deprecatedBuiltinCode = min(operator, 127)  # as the schema asks for
            model.operatorCodes.append(code)
        arrays = [buffer.data for buffer in self.buffers if buffer.data is not None]
        bytes_of_buffers = sum(array.nbytes for array in arrays)
        builder = flatbuffers.Builder(bytes_of_buffers + 2**20)
        builder.Finish(model.Pack(builder), _IDENTIFIER)
        return bytes(builder.Output())


_ACTIVATION = "fusedActivationFunction"


class LiteRtFunctions(Functions):
    """Networks as operators of a graph; values are `Value`, those of steps rows."""

    rows = staticmethod(unchanged)

    def __init__(
        self, family: Family, weights: Dict[str, np.ndarray], statistics: Dict[str, np.ndarray]
    ) -> None:
        super().__init__(family, weights)
        self.graph = LitertGraph()
        self.statistics = statistics
        self.activations = {
            "sigmoid": lambda values: self.graph.node(_OPERATORS.LOGISTIC, [values], values.shape),
            "tanh": lambda values: self.graph.node(_OPERATORS.TANH, [values], values.shape),
            "relu": self._rectified,
        }
        self._flattened: Optional[Tuple[int, ...]] = None

    def _rectified(self, values: Value) -> Value:
        if self.graph.fuse(values, _FUSED.RELU):
            return values
        return self.graph.node(_OPERATORS.RELU, [values], values.shape)

    def _fully_connected(self, values: Value, weight: Value, bias: Optional[Value]) -> Value:
        shape = (values.shape[0], weight.shape[0])
        options = schema.FullyConnectedOptionsT()
        options.keepNumDims = False
        return self.graph.node(_OPERATORS.FULLY_CONNECTED, [values, weight, bias], shape, options)

    def dense(self, name: str, values: Value) -> Value:
        weight = self.w[name + ".weight"]
        image = self._flattened
        if image is not None:  # the weight's inputs are in the order of (channels, height, width)
            height, width, channels = image
            turned = weight.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
            weight = turned.reshape(len(weight), -1)
            self._flattened = None
        bias = self.graph.constant(name + ".bias", self.w[name + ".bias"])
        return self._fully_connected(values, self.graph.constant(name + ".weight", weight), bias)

    def convolution(self, spec: Layer, values: Value) -> Value:
        weight = self.w[spec.name + ".weight"]
        if spec.norm:
            scale, bias = self._folded(spec.norm)
            weight = (weight * scale[:, None, None, None]).astype(np.float32)
        else:
            bias = self.w[spec.name + ".bias"]
        options = schema.Conv2DOptionsT()
        options.strideH = options.strideW = spec.stride
        options.dilationHFactor = options.dilationWFactor = 1
        options.padding = schema.Padding.VALID
        # The graph's own padding is the same on both sides where the stride is 1 and the kernel
        # odd.
        if spec.stride == 1 and spec.kernel == 2 * spec.padding + 1:
            options.padding = schema.Padding.SAME
        else:
            values = self._padded(values, spec.padding, 0.0)
        batch, height, width, _ = values.shape
        room = 0 if options.padding == schema.Padding.SAME else spec.kernel - 1
        shape = (
            batch,
            (height - room - 1) // spec.stride + 1,
            (width - room - 1) // spec.stride + 1,
            len(weight),
        )
        inputs = [
            values,
            self.graph.constant(spec.name + ".weight", weight.transpose(0, 2, 3, 1)),
            self.graph.constant(spec.name + ".bias", bias),
        ]
        return self.graph.node(_OPERATORS.CONV_2D, inputs, shape, options)

    def _folded(self, name: str) -> Tuple[np.ndarray, np.ndarray]:
        """Return the factor and the summand of a batch normalisation for each channel."""
        mean = self.statistics[name + ".mean"].astype(np.float64)
        variance = self.statistics[name + ".variance"].astype(np.float64)
        scale = self.w[name + ".gamma"] / np.sqrt(variance + self.family.epsilon)
        return scale, (self.w[name + ".beta"] - mean * scale).astype(np.float32)

    def norm(self, name: str, values: Value) -> Value:
        return values  # see ``convolution``

    def _padded(self, values: Value, padding: int, filler: float) -> Value:
        if not padding:
            return values
        batch, height, width, channels = values.shape
        amounts = np.array([[0, 0], [padding, padding], [padding, padding], [0, 0]], dtype=np.int32)
        inputs = [values, self.graph.constant("padding:%d" % padding, amounts)]
        inputs.append(
            self.graph.constant("number:%r" % filler, np.array([filler], dtype=np.float32))
        )
        shape = (batch, height + 2 * padding, width + 2 * padding, channels)
        return self.graph.node(_OPERATORS.PADV2, inputs, shape, schema.PadV2OptionsT())

    def pool(self, values: Value, kernel: int, stride: int, padding: int) -> Value:
        values = self._padded(values, padding, float(np.finfo(np.float32).min))
        options = schema.Pool2DOptionsT()
        options.filterHeight = options.filterWidth = kernel
        options.strideH = options.strideW = stride
        options.padding = schema.Padding.VALID
        batch, height, width, channels = values.shape
        shape = (batch, (height - kernel) // stride + 1, (width - kernel) // stride + 1, channels)
        return self.graph.node(_OPERATORS.MAX_POOL_2D, [values], shape, options)

    def flatten(self, values: Value) -> Value:
        self._flattened = values.shape[1:]
        shape = (values.shape[0], prod(values.shape[1:]))
        return self.graph.node(_OPERATORS.RESHAPE, [values, self.graph.integers(*shape)], shape)

    def pixel_mean(self, values: Value) -> Value:
        options = schema.ReducerOptionsT()
        options.keepDims = False
        inputs = [values, self.graph.integers(1, 2)]
        return self.graph.node(_OPERATORS.MEAN, inputs, (values.shape[0], values.shape[3]), options)

    def embedded(self, name: str, symbols: Value) -> Value:
        table = self.graph.constant(name + ".weight", self.w[name + ".weight"])
        options = schema.GatherOptionsT()
        options.axis = 0
        return self.graph.node(
            _OPERATORS.GATHER, [table, symbols], (*symbols.shape, table.shape[1]), options
        )

    def product(self, name: str, output: Value) -> Value:
        weight = self.graph.constant(name + ".hidden_weight", self.w[name + ".hidden_weight"])
        bias = self.w.get(name + ".hidden_bias")
        given = None if bias is None else self.graph.constant(name + ".hidden_bias", bias)
        return self._fully_connected(output, weight, given)

    def split(self, values: Value, count: int, axis: int = 1) -> List[Value]:
        options = schema.SplitOptionsT()
        options.numSplits = count
        shape = list(values.shape)
        shape[axis] //= count
        axis_first = [self.graph.constant("axis:%d" % axis, np.int32(axis)), values]
        return self.graph.several(_OPERATORS.SPLIT, axis_first, [shape] * count, options)

    def over_steps(self, name: str, values: Value, turn: Turn, states: int) -> Value:
        """Add a layer over (steps * batch, features) rows.

        Return its (steps * batch, hidden) outputs.
        """
        steps, hidden = self.family.steps, self.family.hidden
        weight = self.graph.constant(name + ".input_weight", self.w[name + ".input_weight"])
        bias = self.graph.constant(name + ".bias", self.w[name + ".bias"])
        shares = self.split(self._fully_connected(values, weight, bias), steps, axis=0)
        zero = self.graph.constant(
            "zeros", np.zeros((values.shape[0] // steps, hidden), dtype=np.float32)
        )
        state: State = (zero,) * states
        outputs = self.step_by_step(turn, state, shares)
        options = schema.ConcatenationOptionsT()
        options.axis = 0
        return self.graph.node(
            _OPERATORS.CONCATENATION, outputs, (values.shape[0], hidden), options
        )


def inference_model(
    network: Network,
    weights: Dict[str, np.ndarray],
    statistics: Dict[str, np.ndarray],
    shape: Tuple[int, ...],
    element: str,
) -> bytes:
    """Return the graph from inputs of this shape to rows of outputs, with these weights in it."""
    functions = LiteRtFunctions(network.family, weights, statistics)
    inputs = functions.graph.input(shape, element)
    return functions.graph.model([functions.scores(inputs)])


def product_model(size: int) -> bytes:
    """Return the graph of one (size, size) matrix product of two inputs."""
    graph = LitertGraph()
    factors = [graph.input((size, size), "float32") for _ in range(2)]
    return graph.model(
        [graph.node(_OPERATORS.BATCH_MATMUL, factors, (size, size), schema.BatchMatMulOptionsT())]
    )


def refuses_steps(family: Family) -> str:
    """Return why a recurrent network is not unrolled; empty where it is, and of other networks."""
    if not isinstance(family, (Elman, Recurrent)) or family.steps <= MOST_STEPS:
        return ""
    return "%d steps: the graph holds every step, and is not built for more than %d" % (
        family.steps,
        MOST_STEPS,
    )

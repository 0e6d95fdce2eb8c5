"""Reverse-mode differentiation over ONNX nodes.

Each operator's gradient is made of ordinary ONNX operators. ``backward`` walks the tape of forward
nodes from the last to the first. A rule takes a node and the gradients of the loss by the node's
outputs, adds nodes and returns the gradients by its inputs. Formulas are those of any textbook on
back-propagation. Where a choice of operators was measured, a comment gives the reason (CPU seconds
at 1 thread).
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from onnx import ModelProto, helper, numpy_helper, shape_inference

from ..libraries import onnx_graphs
from ..networks import Network

Shape = Tuple[int, ...]


class GradientGraph(onnx_graphs.OnnxGraph):
    """A graph with a ``tape`` of the nodes that ``gradients.backward`` walks through.

    These are the graph's nodes, some of them `as_one`.
    """

    # Of 2024, and understood by every ONNX Runtime since 1.20. Later sets change no operator that
    # the adapter uses.
    operator_set = 21
    ir_version = 10

    def __init__(self, element: Any = np.float32) -> None:
        super().__init__(element)
        self.tape: List[Any] = []

    def scalar(self, value: float) -> str:
        return self.constant("scalar:%r" % value, np.array(value, dtype=self.element))

    def several(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        super().several(operator, inputs, outputs, **attributes)
        self.tape.append(self.nodes[-1])
        return outputs

    def as_one(self, start: int, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Replace the nodes on the tape from ``start`` on by one operation, which has a rule."""
        del self.tape[start:]
        self.tape.append(helper.make_node(name, list(inputs), list(outputs)))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Add a change of shape, which copies nothing."""
        return self.node("Reshape", [value, self.integers(*shape)])

    def times(self, left: str, right: str) -> str:
        return self.node("Mul", [left, right])

    def minus(self, left: str, right: str) -> str:
        return self.node("Sub", [left, right])

    def max_pool(self, name: str, value: str, kernel: int, stride: int, padding: int) -> str:
        window = onnx_graphs.window(kernel, stride, padding)
        return self.several("MaxPool", [value], [name, name + ":places"], **window)[0]

    def normalise(self, name: str, value: str, channels: int, epsilon: float) -> str:
        return normalise(self, name, value, channels, epsilon)

    def sum(self, value: str, *axes: int) -> str:
        return self.node("ReduceSum", [value, self.integers(*axes)], keepdims=0)

    def zeros(self, shape: Sequence[int]) -> str:
        """Add zeros that are made anew at every step, so that an operator may write into them."""
        zero = numpy_helper.from_array(np.zeros(1, dtype=self.element))
        return self.node("ConstantOfShape", [self.integers(*shape)], value=zero)

    def shapes(self) -> Dict[str, Shape]:
        """Return the shape of every value that the graph has by now, by ONNX's own inference."""
        model = shape_inference.infer_shapes(
            self.model(), check_type=True, strict_mode=True, data_prop=True
        )
        inferred = model.graph
        shapes: Dict[str, Shape] = {}
        for value in list(inferred.input) + list(inferred.value_info) + list(inferred.output):
            shapes[value.name] = tuple(side.dim_value for side in value.type.tensor_type.shape.dim)
        for constant in inferred.initializer:
            shapes[constant.name] = tuple(constant.dims)
        return shapes


NORMALISE = "Normalise"  # on the tape only


def normalise(graph: GradientGraph, name: str, value: str, channels: int, epsilon: float) -> str:
    """Add batch normalisation by the batch's mean and biased variance.

    Values are (batch, channels, height, width), parameters NAME.gamma and NAME.beta. The operator's
    own training mode is not used: ONNX Runtime writes the statistics that it returns over its
    inputs, and with graph optimisation on the backward pass then read wrong ones. Kept for the way
    back are the centred values, which take the place of the values.
    """
    start = len(graph.tape)
    axes = graph.integers(0, 2, 3)
    centred = graph.minus(value, graph.node("ReduceMean", [value, axes], keepdims=1))
    # Squared and averaged: 5.7 ms for 12.8 million elements. ReduceSumSquare takes 8.1 ms.
    variance = graph.node("ReduceMean", [graph.times(centred, centred), axes], keepdims=0)
    zeros = graph.constant("zeros:%d" % channels, np.zeros(channels, dtype=graph.element))
    # The operator in its inference mode is one pass where scaling and shifting by two operators are
    # two.
    inputs = [centred, name + ".gamma", name + ".beta", zeros, variance]
    output = graph.node("BatchNormalization", inputs, name, epsilon=epsilon)
    spread = graph.node("Sqrt", [graph.node("Add", [variance, graph.scalar(epsilon)])])
    inverse = graph.reshape(graph.node("Reciprocal", [spread]), (channels, 1, 1))
    whole_inputs = [value, name + ".gamma", name + ".beta"]
    graph.as_one(start, NORMALISE, whole_inputs, [output, centred, inverse])
    return output


def normalise_backward(graph: GradientGraph, node: Any, shape: Shape, gradient: str) -> List[str]:
    """Return the gradients by values, gamma and beta of a ``normalise`` on the tape.

    Its values have this shape. The formula is that of Ioffe and Szegedy 2015, arXiv 1502.03167,
    section 3, with the terms gathered: gamma / spread * (gradient - by_beta / count - centred /
    spread * by_gamma / count). Factors and summands are worked out for each channel first, so that
    few passes go over whole images.
    """
    _, gamma, _ = node.input
    _, centred, inverse = node.output
    channels = (shape[1], 1, 1)
    count = graph.scalar(float(shape[0] * shape[2] * shape[3]))
    by_beta = graph.sum(gradient, 0, 2, 3)
    overlap = graph.sum(graph.times(gradient, centred), 0, 2, 3)
    by_gamma = graph.times(graph.reshape(overlap, channels), inverse)
    scale = graph.times(graph.reshape(gamma, channels), inverse)
    slope = graph.node("Div", [graph.times(by_gamma, inverse), count])
    offset = graph.node("Div", [graph.reshape(by_beta, channels), count])
    by_values = graph.minus(gradient, graph.times(centred, slope))
    by_values = graph.times(graph.minus(by_values, offset), scale)
    return [by_values, graph.reshape(by_gamma, shape[1:2]), by_beta]


def softmax_cross_entropy(
    graph: GradientGraph, logits: str, labels: str, rows: int
) -> Tuple[str, str]:
    """Add the mean softmax cross-entropy of (rows, classes) logits.

    Return it and its gradient by the logits: (softmax - one-hot labels) / rows, without ever
    forming the one-hot matrix.
    """
    logarithms = graph.node("LogSoftmax", [logits], axis=1)
    column = graph.reshape(labels, (rows, 1))
    picked = graph.node("GatherElements", [logarithms, column], axis=1)
    mean = graph.node("ReduceMean", [picked, graph.integers(0, 1)], keepdims=0)
    loss = graph.node("Neg", [mean], "loss")
    share = graph.times(graph.node("Exp", [logarithms]), graph.scalar(1.0 / rows))
    minus = graph.constant("minus_share", np.full((rows, 1), -1.0 / rows, dtype=graph.element))
    return loss, graph.node("ScatterElements", [share, column, minus], axis=1, reduction="add")


# The two gradients of a convolution in ordinary ONNX operators.
#
# Images are (batch, channels, height, width), weights (outputs, channels, kernel, kernel), as in
# ONNX's Conv.


class Convolution:
    """The gradients of one square convolution with symmetric padding.

    Raises NotImplementedError for any other.
    """

    def __init__(
        self, graph: GradientGraph, images: Shape, weight: Shape, attributes: Dict[str, Any]
    ) -> None:
        strides = attributes["strides"]
        pads = attributes["pads"]
        others = set(attributes) - {"strides", "pads", "kernel_shape"}
        is_square = weight[2] == weight[3] and len(set(strides)) == 1
        if others or not is_square or len(set(pads)) > 1:
            raise NotImplementedError("the gradient of Conv with %s" % attributes)
        self.graph = graph
        self.batch = images[0]
        self.channels = images[1]
        self.sides = images[2:]
        self.outputs = weight[0]
        self.kernel = weight[2]
        self.stride = strides[0]
        self.padding = pads[0]
        spans = [side + 2 * self.padding - self.kernel for side in self.sides]
        self.output_sides = [span // self.stride + 1 for span in spans]
        # Rows and columns that no window reaches.
        self.remainders = [span % self.stride for span in spans]

    def _slice(self, value: str, starts: Sequence[int], ends: Sequence[int], step: int) -> str:
        integers = self.graph.integers
        inputs = [value, integers(*starts), integers(*ends), integers(2, 3), integers(step, step)]
        return self.graph.node("Slice", inputs)

    def _channels_first(self, value: str) -> str:
        return self.graph.node("Transpose", [value], perm=[1, 0, 2, 3])

    def by_images(self, weight: str, gradient: str) -> str:
        """Return the gradient by the images: the transposed convolution."""
        kernel = self.kernel
        padding = self.padding
        if self.stride > 1 or padding >= kernel:
            attributes = onnx_graphs.window(kernel, self.stride, padding)
            attributes["output_padding"] = self.remainders
            return self.graph.node("ConvTranspose", [gradient, weight], **attributes)
        # The same as a convolution with the weight turned round.
        turned = self._channels_first(weight)
        if kernel > 1:
            turned = self._slice(turned, (kernel - 1,) * 2, (-kernel - 1,) * 2, -1)
        window = onnx_graphs.window(kernel, 1, kernel - 1 - padding)
        return self.graph.node("Conv", [gradient, turned], **window)

    def by_weight(self, images: str, gradient: str) -> str:
        """Return the gradient by the weight.

        It takes that of three ways whose matrix product is widest.

        Measured against each other (GFLOP/s at 1 thread, batch 16): a convolution with batch and
        channels exchanged multiplies matrices kernel * kernel wide, one product for each place in
        the kernel matrices ``channels`` wide: 65 to 133 for 64 channels and 3 x 3, 84 to 18 for 3
        channels and 7 x 7, 164 to 26 for 3 channels and 11 x 11. For 1 x 1, one product for each
        example, then summed, needs no image transposed: 220 to 147 for 64 to 256 channels of 56 x
        56; but for many channels of few places, the products are larger than the images.
        """
        if self.kernel > 1 and self.kernel**2 > self.channels:
            return self._by_weight_exchanged(images, gradient)
        places = self.output_sides[0] * self.output_sides[1]
        narrow = self.channels * self.outputs < (self.channels + self.outputs) * places
        if self.kernel == 1 and self.padding == 0 and narrow:
            return self._by_weight_each_example(images, gradient)
        return self._by_weight_each_place(images, gradient)

    def _by_weight_exchanged(self, images: str, gradient: str) -> str:
        """Convolve the images with the gradient, its places a stride apart.

        The images' channels are the examples.
        """
        padding = self.padding
        rows, columns = self.remainders
        if max(rows, columns) > padding:  # a convolution cannot leave out rows: cut them off
            images = self._slice(images, (0, 0), (self.sides[0] - rows, self.sides[1] - columns), 1)
            rows = columns = 0
        exchanged = self.graph.node(
            "Conv",
            [self._channels_first(images), self._channels_first(gradient)],
            kernel_shape=self.output_sides,
            strides=[1, 1],
            dilations=[self.stride, self.stride],
            pads=[padding, padding, padding - rows, padding - columns],
        )
        return self._channels_first(exchanged)

    def _by_weight_each_example(self, images: str, gradient: str) -> str:
        """Multiply gradient and images of each example, and sum over the examples.

        It is for 1 x 1 kernels without padding.
        """
        graph = self.graph
        if self.stride > 1:
            images = self._slice(images, (0, 0), self.sides, self.stride)
        rows = graph.reshape(images, (self.batch, self.channels, -1))
        columns = graph.node("Transpose", [rows], perm=[0, 2, 1])
        flat_gradient = graph.reshape(gradient, (self.batch, self.outputs, -1))
        products = graph.node("MatMul", [flat_gradient, columns])
        return graph.reshape(graph.sum(products, 0), (self.outputs, self.channels, 1, 1))

    def _by_weight_each_place(self, images: str, gradient: str) -> str:
        """Multiply the gradient by the images that each place in the kernel sees."""
        graph = self.graph
        kernel = self.kernel
        padding = self.padding
        stride = self.stride
        seen = self._channels_first(images)
        if padding:
            pads = graph.integers(0, 0, padding, padding, 0, 0, padding, padding)
            seen = graph.node("Pad", [seen, pads])
        flat = graph.reshape(self._channels_first(gradient), (self.outputs, -1))
        products = []
        for place in range(kernel * kernel):
            starts = divmod(place, kernel)
            sides = zip(starts, self.output_sides)
            ends = [start + stride * (side - 1) + 1 for start, side in sides]
            part = graph.reshape(self._slice(seen, starts, ends, stride), (self.channels, -1))
            products.append(graph.node("Gemm", [flat, part], transB=1))
        if kernel == 1:
            return graph.reshape(products[0], (self.outputs, self.channels, 1, 1))
        shape = (1, self.outputs, self.channels)
        products = [graph.reshape(product, shape) for product in products]
        places = graph.node("Concat", products, axis=0)
        places = graph.reshape(places, (kernel, kernel, self.outputs, self.channels))
        return graph.node("Transpose", [places], perm=[2, 3, 0, 1])


class Product(NamedTuple):
    """A matrix gradient not yet multiplied: ``left.T @ right``, both of them (rows, ...) matrices.

    Left open because several such products into one weight are one product of longer matrices, and
    because a scale is cheaper on a factor than on the product.
    """

    left: str
    right: str


Gradient = Union[str, Product]
Gradients = Sequence[Optional[Gradient]]


class Call(NamedTuple):
    """One forward node on the way back."""

    graph: GradientGraph
    node: Any
    attributes: Dict[str, Any]
    shapes: Dict[str, Shape]  # of every forward value
    gradients: List[Optional[str]]  # by each output; None where the loss does not depend on it
    wanted: List[bool]  # for each input, whether its gradient is needed

    @property
    def gradient(self) -> str:
        return str(self.gradients[0])

    @property
    def output(self) -> str:
        return str(self.node.output[0])

    def shape(self, index: int) -> Shape:
        return self.shapes[self.node.input[index]]

    def check_same_shapes(self) -> None:
        """Raise NotImplementedError where two inputs have different shapes."""
        if self.shape(0) != self.shape(1):
            given = self.node.op_type, self.shape(0), self.shape(1)
            raise NotImplementedError("the gradient of %s between %s and %s" % given)


def _unbroadcast(call: Call, index: int) -> str:
    """Return the output's gradient summed over the axes along which an input was repeated."""
    shape, whole = call.shape(index), call.shapes[call.output]
    if shape == whole:
        return call.gradient
    padded = (1,) * (len(whole) - len(shape)) + shape
    axes = [axis for axis in range(len(whole)) if padded[axis] != whole[axis]]
    return call.graph.reshape(call.graph.sum(call.gradient, *axes), shape)


def _gemm(call: Call) -> Gradients:
    left, right = call.node.input[:2]
    if set(call.attributes) - {"transB"}:
        names = ", ".join(sorted(call.attributes))
        raise NotImplementedError("the gradient of Gemm with %s" % names)
    transposed = bool(call.attributes.get("transB", 0))
    by_left: Optional[Gradient] = None
    if call.wanted[0]:
        by_left = call.graph.node("Gemm", [call.gradient, right], transB=int(not transposed))
    by_right = Product(call.gradient, left) if transposed else Product(left, call.gradient)
    if len(call.node.input) < 3:
        return [by_left, by_right]
    by_bias = _unbroadcast(call, 2) if call.wanted[2] else None
    return [by_left, by_right, by_bias]


def _elementwise(slope: Callable[[Call], str]) -> Callable[[Call], Gradients]:
    """Return the rule of an element-wise function with this slope."""

    def rule(call: Call) -> Gradients:
        return [call.graph.times(call.gradient, slope(call))]

    return rule


def _sigmoid_slope(call: Call) -> str:
    return call.graph.times(call.output, call.graph.minus(call.graph.scalar(1.0), call.output))


def _tanh_slope(call: Call) -> str:
    return call.graph.minus(call.graph.scalar(1.0), call.graph.times(call.output, call.output))


def _relu_slope(call: Call) -> str:
    # A comparison, cast and multiplied: 7.8 ms for 12.8 million elements. Where takes 11.1 ms, and
    # Sign 13.0.
    above = call.graph.node("Greater", [call.output, call.graph.scalar(0.0)])
    return call.graph.node("Cast", [above], to=call.graph.element_type)


def _add(call: Call) -> Gradients:
    return [
        _unbroadcast(call, index) if wanted else None for index, wanted in enumerate(call.wanted)
    ]


def _subtract(call: Call) -> Gradients:
    call.check_same_shapes()
    by_right = call.graph.node("Neg", [call.gradient]) if call.wanted[1] else None
    return [call.gradient, by_right]


def _multiply(call: Call) -> Gradients:
    call.check_same_shapes()
    others = reversed(call.node.input)
    return [
        call.graph.times(call.gradient, other) if wanted else None
        for wanted, other in zip(call.wanted, others)
    ]


def _split(call: Call) -> Gradients:
    parts = [
        call.graph.zeros(call.shapes[name]) if gradient is None else gradient
        for name, gradient in zip(call.node.output, call.gradients)
    ]
    return [call.graph.node("Concat", parts, axis=call.attributes["axis"]), None]


def _concat(call: Call) -> Gradients:
    axis = call.attributes["axis"]
    sizes = [call.shape(index)[axis] for index in range(len(call.node.input))]
    names = ["%s:%d" % (call.gradient, index) for index in range(len(sizes))]
    call.graph.several("Split", [call.gradient, call.graph.integers(*sizes)], names, axis=axis)
    return list(names)


def _gather(call: Call) -> Gradients:
    # ScatterND with reduction "add" would be faster (0.1 ms against 5 ms for 4096 rows of 256), but
    # ONNX Runtime spreads it over threads without locking: where two rows have one index, additions
    # get lost.
    if call.attributes.get("axis", 0) != 0 or len(call.shape(0)) != 2 or len(call.shape(1)) != 1:
        raise NotImplementedError("the gradient of Gather other than of rows of a matrix by a list")
    graph = call.graph
    (count,) = call.shape(1)
    width = call.shape(0)[1]
    column = graph.reshape(call.node.input[1], (count, 1))
    rows = graph.node("Expand", [column, graph.integers(count, width)])
    inputs = [graph.zeros(call.shape(0)), rows, call.gradient]
    return [graph.node("ScatterElements", inputs, axis=0, reduction="add"), None]


def _reshape(call: Call) -> Gradients:
    return [call.graph.reshape(call.gradient, call.shape(0))] + [None] * (len(call.node.input) - 1)


def _global_average(call: Call) -> Gradients:
    graph = call.graph
    shape = call.shape(0)
    share = graph.node("Div", [call.gradient, graph.scalar(float(np.prod(shape[2:])))])
    return [graph.node("Expand", [share, graph.integers(*shape)])]


def _max_pool(call: Call) -> Gradients:
    """Give all of a window's gradient to its maximum.

    Its place in the flattened input is MaxPool's second output.
    """
    graph = call.graph
    shape = call.shape(0)
    places = graph.reshape(call.node.output[1], (-1,))
    values = graph.reshape(call.gradient, (-1,))
    target = graph.zeros((int(np.prod(shape)),))
    # Windows may overlap, and then one maximum may be several windows'.
    inputs = [target, places, values]
    flat = graph.node("ScatterElements", inputs, axis=0, reduction="add")
    return [graph.reshape(flat, shape)]


def _convolution(call: Call) -> Gradients:
    images, weight = call.node.input[:2]
    convolution = Convolution(call.graph, call.shape(0), call.shape(1), call.attributes)
    gradients: List[Optional[Gradient]] = [
        convolution.by_images(weight, call.gradient) if call.wanted[0] else None,
        convolution.by_weight(images, call.gradient) if call.wanted[1] else None,
    ]
    if len(call.node.input) > 2:
        gradients.append(call.graph.sum(call.gradient, 0, 2, 3))
    return gradients


def _normalisation(call: Call) -> Gradients:
    return normalise_backward(call.graph, call.node, call.shape(0), call.gradient)


RULES: Dict[str, Callable[[Call], Gradients]] = {
    "Add": _add,
    "Concat": _concat,
    "Conv": _convolution,
    "Flatten": _reshape,
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average,
    "MaxPool": _max_pool,
    "Mul": _multiply,
    NORMALISE: _normalisation,
    "Relu": _elementwise(_relu_slope),
    "Reshape": _reshape,
    "Sigmoid": _elementwise(_sigmoid_slope),
    "Split": _split,
    "Sub": _subtract,
    "Tanh": _elementwise(_tanh_slope),
}


def multiplied(graph: GradientGraph, gradient: Gradient) -> str:
    """Return the value of a gradient, with the product that was left open."""
    if isinstance(gradient, Product):
        return graph.node("Gemm", list(gradient), transA=1)
    return gradient


def _total(graph: GradientGraph, gradients: List[Gradient]) -> Gradient:
    """Return the sum of the gradients that reached one value."""
    if len(gradients) == 1:
        return gradients[0]
    products = [gradient for gradient in gradients if isinstance(gradient, Product)]
    if len(products) == len(gradients):
        # The walk is from the last use to the first. In the order of the uses, an unrolled layer's
        # gates are concatenated as for its input weight, and ONNX Runtime does it once.
        products.reverse()
        left = graph.node("Concat", [product.left for product in products], axis=0)
        right = graph.node("Concat", [product.right for product in products], axis=0)
        return Product(left, right)
    return graph.node("Sum", [multiplied(graph, gradient) for gradient in gradients])


def backward(
    graph: GradientGraph, seeds: Dict[str, str], wanted: Sequence[str]
) -> Dict[str, Gradient]:
    """Add the backward pass of the graph's tape so far.

    Return the loss's gradient by each wanted value. ``seeds`` maps values to the loss's gradient by
    them. Raises NotImplementedError for a node without a rule, and ValueError for a wanted value
    that the seeds do not depend on.
    """
    forward = list(graph.tape)
    shapes = graph.shapes()
    depending = set(wanted)
    for node in forward:
        if depending.intersection(node.input):
            depending.update(node.output)
    reached: Dict[str, List[Gradient]] = {name: [gradient] for name, gradient in seeds.items()}
    for node in reversed(forward):
        is_reached = any(name in reached for name in node.output)
        if not is_reached or not depending.intersection(node.input):
            continue
        if node.op_type not in RULES:
            raise NotImplementedError("the gradient of the operator %s" % node.op_type)
        gradients: List[Optional[str]] = []
        for name in node.output:
            if name in reached:
                gradients.append(multiplied(graph, _total(graph, reached[name])))
            else:
                gradients.append(None)
        attributes = {}
        for attribute in node.attribute:
            attributes[attribute.name] = helper.get_attribute_value(attribute)
        needed = [name in depending for name in node.input]
        call = Call(graph, node, attributes, shapes, gradients, needed)
        by_inputs = RULES[node.op_type](call)
        for name, is_needed, gradient in zip(node.input, needed, by_inputs):
            if is_needed and gradient is not None:
                reached.setdefault(name, []).append(gradient)
    missing = sorted(set(wanted) - set(reached))
    if missing:
        raise ValueError("the loss does not depend on %s" % ", ".join(missing))
    return {name: _total(graph, reached[name]) for name in wanted}


# One training step of a network as one ordinary ONNX graph.
#
# Inputs: every parameter under its canonical name, ``inputs``, ``labels`` and ``learning_rate``.
# Outputs: ``loss`` and every parameter after the update (``updated_name``). Nothing is kept from
# step to step inside the graph.

LEARNING_RATE = "learning_rate"


def updated_name(name: str) -> str:
    """Return the name of a parameter's value after the update."""
    return name + ":updated"


def _clipped(graph: GradientGraph, gradients: Dict[str, Gradient], clip: float) -> str:
    """Add all products left open; return the learning rate, scaled down to the allowed norm.

    The norm is that of all gradients together.
    """
    squares = []
    for name, gradient in gradients.items():
        gradients[name] = value = multiplied(graph, gradient)
        squares.append(graph.node("ReduceSumSquare", [value], keepdims=0))
    norm = graph.node("Sqrt", [graph.node("Sum", squares)])
    scale = graph.node("Div", [graph.scalar(clip), norm])
    return graph.times(LEARNING_RATE, graph.node("Min", [scale, graph.scalar(1.0)]))


def _update(
    graph: GradientGraph,
    name: str,
    shape: Sequence[int],
    gradient: Gradient,
    rate: str,
    rate_in_product: bool,
) -> None:
    """Add ``parameter - rate * gradient``.

    Where the gradient is a matrix product, the learning rate may go into the smaller of its
    factors, so that one pass less goes over the weight.
    """
    if rate_in_product and isinstance(gradient, Product):
        left, right = gradient
        if shape[0] <= shape[1]:
            left = graph.times(left, rate)
        else:
            right = graph.times(right, rate)
        change = multiplied(graph, Product(left, right))
    else:
        change = graph.times(multiplied(graph, gradient), rate)
    graph.node("Sub", [name, change], updated_name(name))


def training_graph(
    network: Network, batch_size: int, rate_in_product: bool, element: Any = np.float32
) -> ModelProto:
    """Return the model of one training step on mini-batches of this size.

    It computes in this element type.
    """
    graph = GradientGraph(element)
    trained = network.family.parameters()
    for parameter in trained:
        graph.input(parameter.name, parameter.shape)
    graph.input(LEARNING_RATE, ())
    logits, rows = onnx_graphs.add_logits(graph, network, batch_size)
    names = [parameter.name for parameter in trained]
    if network.family.loss == "squares":
        errors = graph.minus(logits, "labels")
        count = rows * network.family.drawn_labels().shape[-1]
        loss = graph.node("ReduceMean", [graph.times(errors, errors)], "loss", keepdims=0)
        seed = graph.times(errors, graph.scalar(2.0 / count))
    else:
        loss, seed = softmax_cross_entropy(graph, logits, "labels", rows)
    gradients = backward(graph, {logits: seed}, names)
    rate = LEARNING_RATE
    if network.family.clip:
        rate = _clipped(graph, gradients, network.family.clip)
    for parameter in trained:
        gradient = gradients[parameter.name]
        _update(graph, parameter.name, parameter.shape, gradient, rate, rate_in_product)
        graph.output(updated_name(parameter.name), parameter.shape)
    graph.output(loss, ())
    return graph.model()

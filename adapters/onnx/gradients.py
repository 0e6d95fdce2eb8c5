"""Reverse-mode differentiation over ONNX nodes: what each operator's gradient is, in ordinary ONNX operators.

``backward`` walks the tape of forward nodes from the last to the first. A rule takes a node and the gradients of the
loss by the node's outputs, adds nodes and returns the gradients by its inputs. Formulas are those of any textbook on
back-propagation; where a choice of operators was measured, the reason stands beside it (CPU seconds at 1 thread).
"""

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Union

import numpy as np
from onnx import helper

from . import composites, convolutions
from .graph import Graph, Shape


class Product(NamedTuple):
    """A matrix gradient not yet multiplied: ``left.T @ right``, both of them (rows, ...) matrices.

    Left open because several such products into one weight are one product of longer matrices, and because a scale is
    cheaper on a factor than on the product.
    """

    left: str
    right: str


Gradient = Union[str, Product]


class Call(NamedTuple):
    """One forward node on the way back."""

    graph: Graph
    node: Any
    attributes: Dict[str, Any]
    shapes: Dict[str, Shape]  # of every forward value
    gradients: List[Optional[str]]  # by each output; None where the loss does not depend on it
    wanted: List[bool]  # for each input, whether its gradient is asked for

    @property
    def gradient(self) -> str:
        """The gradient by the first output."""
        assert self.gradients[0] is not None
        return self.gradients[0]

    def shape(self, index: int) -> Shape:
        """Return the shape of an input."""
        return self.shapes[self.node.input[index]]


Gradients = Sequence[Optional[Gradient]]


def _unbroadcast(call: Call, index: int) -> str:
    """Return the output's gradient summed over the axes along which an input was repeated."""
    shape, whole = call.shape(index), call.shapes[call.node.output[0]]
    if shape == whole:
        return call.gradient
    padded = (1,) * (len(whole) - len(shape)) + shape
    axes = [axis for axis in range(len(whole)) if padded[axis] != whole[axis]]
    total = call.graph.node("ReduceSum", [call.gradient, call.graph.integers(*axes)], keepdims=1)
    return call.graph.reshape(total, shape)


def _gemm(call: Call) -> Gradients:
    left, right = call.node.input[:2]
    if set(call.attributes) - {"transB"}:
        raise NotImplementedError("the gradient of Gemm with %s" % ", ".join(sorted(call.attributes)))
    transposed = bool(call.attributes.get("transB", 0))
    by_left = call.graph.node("Gemm", [call.gradient, right], transB=int(not transposed)) if call.wanted[0] else None
    by_right = Product(call.gradient, left) if transposed else Product(left, call.gradient)
    if len(call.node.input) < 3:
        return [by_left, by_right]
    return [by_left, by_right, _unbroadcast(call, 2) if call.wanted[2] else None]


def _sigmoid(call: Call) -> Gradients:
    graph, output = call.graph, call.node.output[0]
    slope = graph.node("Mul", [output, graph.node("Sub", [graph.scalar(1.0), output])])
    return [graph.node("Mul", [call.gradient, slope])]


def _tanh(call: Call) -> Gradients:
    graph, output = call.graph, call.node.output[0]
    slope = graph.node("Sub", [graph.scalar(1.0), graph.node("Mul", [output, output])])
    return [graph.node("Mul", [call.gradient, slope])]


def _relu(call: Call) -> Gradients:
    # A comparison, cast and multiplied: 7.8 ms for 12.8 million elements; Where 11.1, Sign 13.0.
    graph = call.graph
    above = graph.node("Greater", [call.node.output[0], graph.scalar(0.0)])
    return [graph.node("Mul", [call.gradient, graph.node("Cast", [above], to=graph.element_type)])]


def _add(call: Call) -> Gradients:
    return [_unbroadcast(call, index) if wanted else None for index, wanted in enumerate(call.wanted)]


def _subtract(call: Call) -> Gradients:
    if call.shape(0) != call.shape(1):
        raise NotImplementedError("the gradient of Sub between %s and %s" % (call.shape(0), call.shape(1)))
    return [call.gradient, call.graph.node("Neg", [call.gradient]) if call.wanted[1] else None]


def _multiply(call: Call) -> Gradients:
    if call.shape(0) != call.shape(1):
        raise NotImplementedError("the gradient of Mul between %s and %s" % (call.shape(0), call.shape(1)))
    found: List[Optional[Gradient]] = []
    for index, wanted in enumerate(call.wanted):
        other = call.node.input[1 - index]
        found.append(call.graph.node("Mul", [call.gradient, other]) if wanted else None)
    return found


def _split(call: Call) -> Gradients:
    parts = []
    for name, gradient in zip(call.node.output, call.gradients):
        parts.append(gradient if gradient is not None else call.graph.zeros(call.shapes[name]))
    return [call.graph.node("Concat", parts, axis=call.attributes["axis"]), None]


def _concat(call: Call) -> Gradients:
    axis = call.attributes["axis"]
    sizes = [call.shape(index)[axis] for index in range(len(call.node.input))]
    names = ["%s:%d" % (call.gradient, index) for index in range(len(sizes))]
    call.graph.several("Split", [call.gradient, call.graph.integers(*sizes)], names, axis=axis)
    return list(names)


def _gather(call: Call) -> Gradients:
    # ScatterND with reduction "add" would be faster (0.1 ms against 5 ms for 4096 rows of 256), but ONNX Runtime
    # spreads it over threads without locking: where two rows have one index, additions get lost.
    if call.attributes.get("axis", 0) != 0 or len(call.shape(0)) != 2 or len(call.shape(1)) != 1:
        raise NotImplementedError("the gradient of Gather other than of rows of a matrix by a list")
    graph, (count,), width = call.graph, call.shape(1), call.shape(0)[1]
    rows = graph.node("Expand", [graph.reshape(call.node.input[1], (count, 1)), graph.integers(count, width)])
    target = graph.zeros(call.shape(0))
    return [graph.node("ScatterElements", [target, rows, call.gradient], axis=0, reduction="add"), None]


def _reshape(call: Call) -> Gradients:
    return [call.graph.reshape(call.gradient, call.shape(0))] + [None] * (len(call.node.input) - 1)


def _global_average(call: Call) -> Gradients:
    graph, shape = call.graph, call.shape(0)
    each = graph.node("Div", [call.gradient, graph.scalar(float(np.prod(shape[2:])))])
    return [graph.node("Expand", [each, graph.integers(*shape)])]


def _max_pool(call: Call) -> Gradients:
    """All of a window's gradient goes to its maximum, whose place in the flattened input MaxPool itself tells."""
    graph, shape = call.graph, call.shape(0)
    places = graph.reshape(call.node.output[1], (-1,))
    target = graph.zeros((int(np.prod(shape)),))
    values = graph.reshape(call.gradient, (-1,))
    # Windows may overlap, and then one maximum may be several windows'.
    scattered = graph.node("ScatterElements", [target, places, values], axis=0, reduction="add")
    return [graph.reshape(scattered, shape)]


def _convolution(call: Call) -> Gradients:
    found: List[Optional[Gradient]] = []
    images, weight = call.node.input[:2]
    geometry = convolutions.Geometry.of(call.shape(0), call.shape(1), call.attributes)
    found.append(convolutions.by_images(call.graph, geometry, weight, call.gradient) if call.wanted[0] else None)
    found.append(convolutions.by_weight(call.graph, geometry, images, call.gradient) if call.wanted[1] else None)
    if len(call.node.input) > 2:
        found.append(call.graph.node("ReduceSum", [call.gradient, call.graph.integers(0, 2, 3)], keepdims=0))
    return found


def _normalisation(call: Call) -> Gradients:
    return composites.normalise_backward(call.graph, call.node, call.shape(0), call.gradient)


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
    composites.NORMALISE: _normalisation,
    "Relu": _relu,
    "Reshape": _reshape,
    "Sigmoid": _sigmoid,
    "Split": _split,
    "Sub": _subtract,
    "Tanh": _tanh,
}


def multiplied(graph: Graph, gradient: Gradient) -> str:
    """Return the value of a gradient, doing the product that was left open."""
    if isinstance(gradient, Product):
        return graph.node("Gemm", list(gradient), transA=1)
    return gradient


def _total(graph: Graph, gradients: List[Gradient]) -> Gradient:
    """Return the sum of the gradients that reached one value."""
    if len(gradients) == 1:
        return gradients[0]
    products = [gradient for gradient in gradients if isinstance(gradient, Product)]
    if len(products) == len(gradients):
        # The walk is from the last use to the first; in the order of the uses, an unrolled layer's gates are
        # concatenated as for its input weight, and ONNX Runtime does it once.
        products.reverse()
        left = graph.node("Concat", [product.left for product in products], axis=0)
        right = graph.node("Concat", [product.right for product in products], axis=0)
        return Product(left, right)
    return graph.node("Sum", [multiplied(graph, gradient) for gradient in gradients])


def _depending(nodes: Iterable[Any], sources: Iterable[str]) -> Set[str]:
    """Return the names of all values that depend on one of the sources, these included."""
    found = set(sources)
    for node in nodes:
        if found.intersection(node.input):
            found.update(node.output)
    return found


def backward(graph: Graph, seeds: Dict[str, str], wanted: Sequence[str]) -> Dict[str, Gradient]:
    """Add the backward pass of the graph's tape so far; return the loss's gradient by each wanted value.

    ``seeds`` maps values to the loss's gradient by them. Raises NotImplementedError for a node without a rule, and
    ValueError for a wanted value that the seeds do not depend on.
    """
    forward, shapes = list(graph.tape), graph.shapes()
    depending = _depending(forward, wanted)
    reached: Dict[str, List[Gradient]] = {name: [gradient] for name, gradient in seeds.items()}
    for node in reversed(forward):
        if not depending.intersection(node.input) or not any(name in reached for name in node.output):
            continue
        if node.op_type not in RULES:
            raise NotImplementedError("the gradient of the operator %s" % node.op_type)
        gradients: List[Optional[str]] = []
        for name in node.output:
            gradients.append(multiplied(graph, _total(graph, reached[name])) if name in reached else None)
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        asked = [name in depending for name in node.input]
        call = Call(graph, node, attributes, shapes, gradients, asked)
        for name, asked_for, gradient in zip(node.input, asked, RULES[node.op_type](call)):
            if asked_for and gradient is not None:
                reached.setdefault(name, []).append(gradient)
    missing = sorted(set(wanted) - set(reached))
    if missing:
        raise ValueError("the loss does not depend on %s" % ", ".join(missing))
    return {name: _total(graph, reached[name]) for name in wanted}

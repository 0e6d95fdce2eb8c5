"""One training step of a network as one ordinary ONNX graph.

Inputs: every parameter under its canonical name, ``inputs``, ``labels`` and ``learning_rate``. Outputs: ``loss`` and
every parameter after the update (``updated_name``). Nothing is kept from step to step inside the graph.
"""

from typing import Any, Dict, Sequence

import numpy as np
from onnx import ModelProto

from ..libraries.onnx_graphs import add_logits
from ..networks import Network
from .gradients import Gradient, Graph, Product, backward, mean_of_squares, multiplied, softmax_cross_entropy

LEARNING_RATE = "learning_rate"


def updated_name(name: str) -> str:
    """Return the name of a parameter's value after the update."""
    return name + ":updated"


def _clipped(graph: Graph, gradients: Dict[str, Gradient], clip: float) -> str:
    """Do all products left open; return the learning rate, scaled down to the gradients' allowed norm."""
    squares = []
    for name, gradient in gradients.items():
        gradients[name] = value = multiplied(graph, gradient)
        squares.append(graph.node("ReduceSumSquare", [value], keepdims=0))
    scale = graph.node("Div", [graph.scalar(clip), graph.node("Sqrt", [graph.node("Sum", squares)])])
    return graph.times(LEARNING_RATE, graph.node("Min", [scale, graph.scalar(1.0)]))


def _update(
    graph: Graph, name: str, shape: Sequence[int], gradient: Gradient, rate: str, rate_in_product: bool
) -> None:
    """Add ``parameter - rate * gradient``.

    Where the gradient is a matrix product, the learning rate may go into the smaller of its factors, so that one pass
    less goes over the weight.
    """
    if rate_in_product and isinstance(gradient, Product):
        left, right = gradient
        narrow = shape[0] <= shape[1]
        factors = (graph.times(left, rate), right) if narrow else (left, graph.times(right, rate))
        change = multiplied(graph, Product(*factors))
    else:
        change = graph.times(multiplied(graph, gradient), rate)
    graph.node("Sub", [name, change], updated_name(name))


def training_graph(network: Network, batch_size: int, rate_in_product: bool, element: Any = np.float32) -> ModelProto:
    """Return the model of one training step on mini-batches of this size, computing in this element type."""
    graph = Graph(element)
    trained = network.family.parameters()
    for parameter in trained:
        graph.input(parameter.name, parameter.shape)
    graph.input(LEARNING_RATE, ())
    logits, rows = add_logits(graph, network, batch_size)
    names = [parameter.name for parameter in trained]
    if network.family.loss == "squares":
        loss, seed = mean_of_squares(graph, logits, "labels", rows * network.family.drawn_labels().shape[-1])
    else:
        loss, seed = softmax_cross_entropy(graph, logits, "labels", rows)
    gradients = backward(graph, {logits: seed}, names)
    rate = _clipped(graph, gradients, network.family.clip) if network.family.clip else LEARNING_RATE
    for parameter in trained:
        _update(graph, parameter.name, parameter.shape, gradients[parameter.name], rate, rate_in_product)
        graph.output(updated_name(parameter.name), parameter.shape)
    graph.output(loss, ())
    return graph.model()

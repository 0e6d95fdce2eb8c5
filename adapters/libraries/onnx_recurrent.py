"""Recurrent layers in ONNX graphs, every step by itself.

The operators LSTM, GRU and RNN have no gradient in ONNX Runtime's own training, nor one in ordinary operators.
"""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from ..families import Recurrent

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
STEPS: Dict[str, Tuple[Callable[..., State], int]] = {"lstm": (_lstm, 2), "gru": (_gru, 1), "rnn": (_rnn, 1)}


def layer(graph: Any, family: Recurrent, name: str, value: str, batch_size: int) -> str:
    """Add a layer over (steps * batch, features) rows; return its (steps * batch, hidden) outputs."""
    advance, states = STEPS[family.cell]
    projected = graph.node("Gemm", [value, name + ".input_weight", name + ".bias"], transB=1)
    shares = ["%s:projected:%d" % (name, step) for step in range(family.steps)]
    graph.several("Split", [projected, graph.integers(*[batch_size] * family.steps)], shares, axis=0)
    state = (graph.constant("zero_state", np.zeros((batch_size, family.hidden), dtype=graph.element)),) * states
    outputs = []
    for share in shares:
        state = advance(graph, name, family.hidden, share, state)
        outputs.append(state[0])
    return str(graph.node("Concat", outputs, axis=0))

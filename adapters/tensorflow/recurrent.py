"""Recurrent layers over a whole sequence from a zero state, in the two forms between which TensorFlow's speed differs.

Gates in canonical order. Each form is made from a cell and the variables of its layer, held as ``input_weight``
(inputs, gates x hidden), ``hidden_weight`` (hidden, gates x hidden), ``bias`` (gates x hidden,) and, of a GRU,
``hidden_bias``. It is called with float32 (steps, batch, inputs) and returns (steps, batch, hidden).
"""

from typing import Any, Callable, Dict, NamedTuple, Tuple

import tensorflow as tf

State = Tuple[Any, ...]  # the layer's output first, each (batch, hidden)


class Cell(NamedTuple):
    """How a step changes the state: from the state, the inputs' share of the sums, and that of the output before."""

    advance: Callable[[State, Any, Any], State]
    states: int  # what goes from step to step


def lstm(state: State, share: Any, product: Any) -> State:
    """Gates input, forget, cell, output."""
    input_gate, forget_gate, candidate, output_gate = tf.split(share + product, 4, axis=1)
    memory = tf.sigmoid(forget_gate) * state[1] + tf.sigmoid(input_gate) * tf.tanh(candidate)
    return tf.sigmoid(output_gate) * tf.tanh(memory), memory


def gru(state: State, share: Any, product: Any) -> State:
    """Gates reset, update, new; the reset gate weighs the product."""
    ours, theirs = tf.split(share, 3, axis=1), tf.split(product, 3, axis=1)
    reset, update = [tf.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
    new = tf.tanh(ours[2] + reset * theirs[2])
    return ((1.0 - update) * new + update * state[0],)


def rnn(state: State, share: Any, product: Any) -> State:
    """Hyperbolic tangents."""
    return (tf.tanh(share + product),)


CELLS: Dict[str, Cell] = {"lstm": Cell(lstm, 2), "gru": Cell(gru, 1), "rnn": Cell(rnn, 1)}


class Layer:
    """What the forms share: the variables, and the product of all steps' inputs at once."""

    def __init__(self, cell: Cell, input_weight: Any, hidden_weight: Any, bias: Any, hidden_bias: Any = None) -> None:
        self.cell = cell
        self.input_weight = input_weight
        self.hidden_weight = hidden_weight
        self.bias = bias
        self.hidden_bias = hidden_bias

    def from_inputs(self, values: Any) -> Any:
        """Return the inputs' share of the sums, (steps, batch, gates x hidden)."""
        steps, batch, features = values.shape
        flat = tf.matmul(tf.reshape(values, [-1, features]), self.input_weight)
        flat = tf.nn.bias_add(flat, self.bias)
        return tf.reshape(flat, [steps, batch, flat.shape[-1]])

    def zero_state(self, values: Any) -> State:
        """Return the state before the first step."""
        return (tf.zeros([values.shape[1], self.hidden_weight.shape[0]]),) * self.cell.states

    def turn(self, state: State, share: Any, weight: Any) -> State:
        """Return the state after a step."""
        product = tf.matmul(state[0], weight)
        if self.hidden_bias is not None:
            product = tf.nn.bias_add(product, self.hidden_bias)
        return self.cell.advance(state, share, product)


class Unrolled(Layer):
    """Every step stands in the graph by itself; gradients by TensorFlow."""

    def __call__(self, values: Any) -> Any:
        """Apply the layer."""
        weight = tf.convert_to_tensor(self.hidden_weight)
        state = self.zero_state(values)
        outputs = []
        for share in tf.unstack(self.from_inputs(values)):
            state = self.turn(state, share, weight)
            outputs.append(state[0])
        return tf.stack(outputs)


class Loop(Layer):
    """A while loop in the graph, one step per turn; gradients by TensorFlow."""

    def __call__(self, values: Any) -> Any:
        """Apply the layer."""
        weight = tf.convert_to_tensor(self.hidden_weight)
        steps = values.shape[0]
        shares = tf.TensorArray(tf.float32, steps, element_shape=[values.shape[1], weight.shape[1]])
        shares = shares.unstack(self.from_inputs(values))
        outputs = tf.TensorArray(tf.float32, steps, element_shape=[values.shape[1], weight.shape[0]])

        def turn(step: Any, state: State, outputs: Any) -> Any:
            state = self.turn(state, shares.read(step), weight)
            return step + 1, state, outputs.write(step, state[0])

        first = (0, self.zero_state(values), outputs)
        return tf.while_loop(lambda step, *_: step < steps, turn, first, maximum_iterations=steps)[2].stack()


RECURRENCES = {"unrolled": Unrolled, "loop": Loop}

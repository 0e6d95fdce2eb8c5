"""LSTM layers over a whole sequence from a zero state, in the two forms between which TensorFlow's speed differs.

Gates in the canonical order input, forget, cell, output. Each form is made from three variables, held as
``input_weight`` (inputs, 4 x hidden), ``hidden_weight`` (hidden, 4 x hidden) and ``bias`` (4 x hidden,), and is called
with float32 (steps, batch, inputs); it returns (steps, batch, hidden).
"""

from typing import Any, Tuple

import tensorflow as tf


class Layer:
    """What the forms share: the variables, and the product of all steps' inputs at once."""

    def __init__(self, input_weight: Any, hidden_weight: Any, bias: Any) -> None:
        self.input_weight = input_weight
        self.hidden_weight = hidden_weight
        self.bias = bias

    def from_inputs(self, values: Any) -> Any:
        """Return the inputs' share of the gates, (steps, batch, 4 x hidden)."""
        steps, batch, features = values.shape
        flat = tf.matmul(tf.reshape(values, [-1, features]), self.input_weight)
        flat = tf.nn.bias_add(flat, self.bias)
        return tf.reshape(flat, [steps, batch, flat.shape[-1]])

    def zero_state(self, values: Any) -> Any:
        """Return the state before the first step, (batch, hidden)."""
        return tf.zeros([values.shape[1], self.hidden_weight.shape[0]])


def cell(gates: Any, memory: Any) -> Tuple[Any, Any]:
    """Return a step's output and its memory, both (batch, hidden), from the sums before the gates."""
    input_gate, forget_gate, candidate, output_gate = tf.split(gates, 4, axis=1)
    memory = tf.sigmoid(forget_gate) * memory + tf.sigmoid(input_gate) * tf.tanh(candidate)
    return tf.sigmoid(output_gate) * tf.tanh(memory), memory


class Unrolled(Layer):
    """Every step stands in the graph by itself; gradients by TensorFlow."""

    def __call__(self, values: Any) -> Any:
        """Apply the layer."""
        weight = tf.convert_to_tensor(self.hidden_weight)
        output = memory = self.zero_state(values)
        outputs = []
        for share in tf.unstack(self.from_inputs(values)):
            output, memory = cell(share + tf.matmul(output, weight), memory)
            outputs.append(output)
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

        def turn(step: Any, output: Any, memory: Any, outputs: Any) -> Any:
            output, memory = cell(shares.read(step) + tf.matmul(output, weight), memory)
            return step + 1, output, memory, outputs.write(step, output)

        state = self.zero_state(values)
        finished = tf.while_loop(
            lambda step, *_: step < steps, turn, (0, state, state, outputs), maximum_iterations=steps
        )
        return finished[3].stack()


RECURRENCES = {"unrolled": Unrolled, "loop": Loop}

"""One LSTM layer over a whole sequence from a zero state, gates in the order input, forget, cell, output."""

from typing import Any

import tensorflow as tf


class Unrolled:
    """Every step in the graph; the inputs of all steps are multiplied at once.

    Called with float32 (steps, batch, inputs), returns (steps, batch, hidden).
    """

    def __init__(self, input_weight, hidden_weight, bias):
        # type: (Any, Any, Any) -> None
        self._input_weight = input_weight
        self._hidden_weight = hidden_weight
        self._bias = bias

    def _inputs(self, values):
        # type: (Any) -> Any
        steps, batch, features = values.shape
        flat = tf.matmul(tf.reshape(values, [-1, features]), self._input_weight)
        flat = tf.nn.bias_add(flat, self._bias)
        return tf.reshape(flat, [steps, batch, flat.shape[-1]])

    def _cell(self, gates, memory):
        # type: (Any, Any) -> Any
        input_gate, forget_gate, candidate, output_gate = tf.split(gates, 4, axis=1)
        memory = tf.sigmoid(forget_gate) * memory + tf.sigmoid(input_gate) * tf.tanh(candidate)
        return tf.sigmoid(output_gate) * tf.tanh(memory), memory

    def __call__(self, values):
        # type: (Any) -> Any
        weight = tf.convert_to_tensor(self._hidden_weight)
        output = memory = tf.zeros([values.shape[1], weight.shape[0]])
        outputs = []
        for gates in tf.unstack(self._inputs(values)):
            output, memory = self._cell(gates + tf.matmul(output, weight), memory)
            outputs.append(output)
        return tf.stack(outputs)


RECURRENCES = {"unrolled": Unrolled}

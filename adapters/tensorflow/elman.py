"""Simple recurrent networks in the two forms that recurrent layers have here, see ``recurrent``."""

from typing import Any, Dict, Type

import tensorflow as tf

from ..families import Elman

PHI = {"tanh": tf.tanh, "relu": tf.nn.relu, "sigmoid": tf.sigmoid}


class Layer:
    """A recurrent layer from a zero state: (steps, batch, inputs) to (steps, batch, hidden)."""

    def __init__(self, family: Elman, input_weight: Any, hidden_weight: Any, bias: Any) -> None:
        self._alpha = family.alpha
        self._phi = PHI[family.activation]
        self._input_weight = input_weight
        self._hidden_weight = hidden_weight
        self._bias = bias

    def _shares(self, values: Any) -> Any:
        """Return the inputs' share of all steps' sums, (steps, batch, hidden), in one product."""
        steps, batch, features = values.shape
        flat = tf.matmul(tf.reshape(values, [-1, features]), self._input_weight)
        return tf.reshape(tf.nn.bias_add(flat, self._bias), [steps, batch, flat.shape[-1]])

    def __call__(self, values: Any) -> Any:
        """Apply the layer."""
        raise NotImplementedError

    def _turn(self, share: Any, state: Any, weight: Any) -> Any:
        found = self._phi(share + tf.matmul(state, weight))
        return found if self._alpha == 1.0 else (1.0 - self._alpha) * state + self._alpha * found


class Unrolled(Layer):
    """Every step stands in the graph by itself."""

    def __call__(self, values: Any) -> Any:
        """Apply the layer."""
        weight = tf.convert_to_tensor(self._hidden_weight)
        shares = self._shares(values)
        state = tf.zeros(shares.shape[1:])
        states = []
        for share in tf.unstack(shares):
            state = self._turn(share, state, weight)
            states.append(state)
        return tf.stack(states)


class Loop(Layer):
    """A while loop in the graph, one step per turn."""

    def __call__(self, values: Any) -> Any:
        """Apply the layer."""
        weight = tf.convert_to_tensor(self._hidden_weight)
        shares = self._shares(values)
        steps, of_step = shares.shape[0], shares.shape[1:]
        given = tf.TensorArray(tf.float32, steps, element_shape=of_step).unstack(shares)
        states = tf.TensorArray(tf.float32, steps, element_shape=of_step)

        def turn(step: Any, state: Any, states: Any) -> Any:
            state = self._turn(given.read(step), state, weight)
            return step + 1, state, states.write(step, state)

        first = (0, tf.zeros(of_step), states)
        return tf.while_loop(lambda step, *_: step < steps, turn, first, maximum_iterations=steps)[2].stack()


RECURRENCES: Dict[str, Type[Layer]] = {"unrolled": Unrolled, "loop": Loop}

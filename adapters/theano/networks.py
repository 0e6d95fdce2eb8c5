"""Networks as symbolic expressions that end in the mean loss.

Imported only after ``configure``: this module imports Theano. Weights are shared variables in
canonical layout; a transposed operand costs nothing, since BLAS takes it as a flag.
"""

from typing import Any, Dict, List, Tuple

import numpy as np
import theano
from theano import tensor
from theano.tensor.signal.pool import pool_2d

from ..families import Family, Layer
from ..launch.batches import Batch, in_rows
from ..libraries.walks import HIDDEN, Functions, State, unchanged

_GELU = np.float32(np.sqrt(2.0 / np.pi))
_CUBE = np.float32(0.044715)
_HALF = np.float32(0.5)
_ONE = np.float32(1.0)


def _over_channels(vector: Any) -> Any:
    return vector.dimshuffle("x", 0, "x", "x")


class TheanoFunctions(Functions):
    """Networks by theano.tensor; values of steps are rows. ``batch`` examples."""

    activations = {"sigmoid": tensor.nnet.sigmoid, "tanh": tensor.tanh, "relu": tensor.nnet.relu}
    rows = staticmethod(unchanged)

    def __init__(self, family: Family, weights: Dict[str, Any], batch: int) -> None:
        super().__init__(family, weights)
        self.batch = batch

    def dense(self, name: str, values: Any) -> Any:
        return tensor.dot(values, self.w[name + ".weight"].T) + self.w[name + ".bias"]

    def convolution(self, spec: Layer, values: Any) -> Any:
        weight = self.w[spec.name + ".weight"]
        output = tensor.nnet.conv2d(
            values,
            weight,
            filter_shape=weight.get_value(borrow=True).shape,
            border_mode=spec.padding,
            subsample=(spec.stride, spec.stride),
            filter_flip=False,
        )
        return output if spec.norm else output + _over_channels(self.w[spec.name + ".bias"])

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        # ignore_border: sizes round down.
        return pool_2d(
            values,
            (kernel, kernel),
            ignore_border=True,
            stride=(stride, stride),
            pad=(padding, padding),
        )

    def flatten(self, values: Any) -> Any:
        return values.flatten(2)

    def norm(self, name: str, values: Any) -> Any:
        # Theano demands at least 1e-5 but rounds to float32 before it looks: take the next float32
        # above.
        epsilon = float(np.nextafter(np.float32(self.family.epsilon), np.float32(1.0)))
        given = _over_channels(self.w[name + ".gamma"]), _over_channels(self.w[name + ".beta"])
        if self.statistics:
            running = [
                _over_channels(self.statistics["%s.%s" % (name, part)])
                for part in ("mean", "variance")
            ]
            return tensor.nnet.bn.batch_normalization_test(
                values, *given, *running, axes="spatial", epsilon=epsilon
            )
        return tensor.nnet.bn.batch_normalization_train(
            values, *given, axes="spatial", epsilon=epsilon
        )[0]

    def pixel_mean(self, values: Any) -> Any:
        return values.mean((2, 3))

    def split(self, values: Any, count: int) -> List[Any]:
        hidden = self.family.hidden
        return [values[:, index * hidden : (index + 1) * hidden] for index in range(count)]

    def gru(self, output: Any, share: Any, product: Any) -> Any:
        ours, theirs = self.split(share, 3), self.split(product, 3)
        reset, update = [tensor.nnet.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
        new = tensor.tanh(ours[2] + reset * theirs[2])
        return new + update * (output - new)

    def _scan(self, name: str, values: Any, advance: Any, states: int, constants: List[Any]) -> Any:
        """Return the outputs (steps * batch, hidden) of inputs (steps * batch, features).

        They are time-major.
        """
        sums = tensor.dot(values, self.w[name + ".input_weight"].T) + self.w[name + ".bias"]
        zero = tensor.unbroadcast(
            tensor.zeros((self.batch, self.family.hidden), dtype="float32"), 0, 1
        )
        outputs, _ = theano.scan(
            advance,
            sequences=sums.reshape((self.family.steps, self.batch, -1)),
            outputs_info=[zero] * states,
            non_sequences=constants,
            n_steps=self.family.steps,
            strict=True,
        )
        if states > 1:
            outputs = outputs[0]
        return outputs.reshape((-1, self.family.hidden))

    def recurrent_layer(self, name: str, values: Any) -> Any:
        count = self.states
        names = ["%s.%s" % (name, part) for part in self.family.parts if part.startswith("hidden")]

        def advance(share: Any, *given: Any) -> State:
            inner = TheanoFunctions(self.family, dict(zip(names, given[count:])), self.batch)
            return inner.turn(name, given[:count], share)

        weights = [self.w[parameter] for parameter in names]
        return self._scan(name, values, advance, count, weights)

    def product(self, name: str, output: Any) -> Any:
        product = tensor.dot(output, self.w[name + ".hidden_weight"].T)
        bias = self.w.get(name + ".hidden_bias")
        return product if bias is None else product + bias

    def elman_layer(self, values: Any) -> Any:
        new = np.float32(self.family.alpha)
        old = np.float32(1.0 - self.family.alpha)

        def advance(share: Any, state: Any, weight: Any) -> Any:
            sums = share + tensor.dot(state, weight.T)
            activated = self.activated(sums, self.family.activation)
            return activated if self.family.alpha == 1.0 else old * state + new * activated

        return self._scan("rnn", values, advance, 1, [self.w["rnn.hidden_weight"]])

    def positioned(self, tokens: Any) -> Any:
        steps, width = self.family.steps, self.family.width
        embedded = self.w["embedding.weight"][tokens.flatten()].reshape((self.batch, steps, width))
        return (embedded + self.w["position.weight"].dimshuffle("x", 0, 1)).reshape(
            (self.batch * steps, width)
        )

    def layer_norm(self, name: str, values: Any) -> Any:
        centred = values - values.mean(1, keepdims=True)
        spread = tensor.sqrt(
            tensor.sqr(centred).mean(1, keepdims=True) + np.float32(self.family.epsilon)
        )
        return centred / spread * self.w[name + ".gamma"] + self.w[name + ".beta"]

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, heads = self.batch, self.family.steps, self.family.heads
        width = self.family.width // heads
        parts = (
            self.dense(name + "qkv", values)
            .reshape((batch, steps, 3, heads, width))
            .dimshuffle(2, 0, 3, 1, 4)
        )
        query, key, value = [
            parts[part].reshape((batch * heads, steps, width)) for part in range(3)
        ]
        scores = tensor.batched_dot(query, key.dimshuffle(0, 2, 1)) * np.float32(width**-0.5)
        mask = np.triu(np.full((1, steps, steps), HIDDEN, np.float32), 1)
        shares = tensor.nnet.softmax((scores + mask).reshape((batch * heads * steps, steps)))
        mixed = tensor.batched_dot(shares.reshape((batch * heads, steps, steps)), value)
        mixed = mixed.reshape((batch, heads, steps, width)).dimshuffle(0, 2, 1, 3)
        return mixed.reshape((batch * steps, self.family.width))

    def gelu(self, values: Any) -> Any:
        return (
            _HALF
            * values
            * (_ONE + tensor.tanh(_GELU * (values + _CUBE * values * values * values)))
        )


def build_inference(
    spec: Family, weights: Dict[str, np.ndarray], statistics: Dict[str, np.ndarray], batch: Batch
) -> Tuple[Any, Any]:
    """Return the outputs as an expression over these resident inputs, and those."""
    parameters = {name: theano.shared(value) for name, value in weights.items()}
    functions = TheanoFunctions(spec, parameters, len(batch.inputs))
    functions.statistics = {name: theano.shared(value) for name, value in statistics.items()}
    given = theano.shared(in_rows(spec, batch)[0], borrow=False)
    return functions.scores(given), given


def build(
    spec: Family, weights: Dict[str, np.ndarray], batch: Batch
) -> Tuple[Any, Dict[str, Any], Tuple[Any, Any]]:
    """Build the network over this resident mini-batch, with copies of these weights."""
    parameters = {
        name: theano.shared(value, name=name, borrow=False) for name, value in weights.items()
    }
    given, targets = [theano.shared(value, borrow=False) for value in in_rows(spec, batch)]
    scores = TheanoFunctions(spec, parameters, len(batch.inputs)).scores(given)
    if spec.loss == "squares":
        loss = tensor.sqr(scores - targets).mean()
    else:
        loss = tensor.nnet.categorical_crossentropy(tensor.nnet.softmax(scores), targets).mean()
    return loss, parameters, (given, targets)

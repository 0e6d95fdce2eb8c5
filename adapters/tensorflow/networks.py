"""Builds the specifications of ``adapters/networks.py`` in TensorFlow: variables, and the loss as a plain function.

Images are held as (batch, height, width, channels): TensorFlow's convolutions on the CPU know no other layout.
Tokens are held step by step, (steps, batch), so that every step of a recurrent layer reads one contiguous slice.
"""

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple, Type

import numpy as np
import tensorflow as tf

from ..base import Unsupported
from ..families import Attention, Chain, Convolution, Dense, Elman, Flatten, MaxPool, Recurrent, Residual
from ..launch.batches import Batch
from ..libraries.layouts import ConvolutionLayout, DenseLayout, FlattenedLayout, Layout
from ..networks import Network

# Recurrent layers over a whole sequence from a zero state, in the two forms between which TensorFlow's speed differs.
#
# Gates in canonical order. Each form is made from a cell and the variables of its layer, held as ``input_weight``
# (inputs, gates x hidden), ``hidden_weight`` (hidden, gates x hidden), ``bias`` (gates x hidden,) and, of a GRU,
# ``hidden_bias``. It is called with float32 (steps, batch, inputs) and returns (steps, batch, hidden).

State = Tuple[Any, ...]  # the layer's output first, each (batch, hidden)


class Cell(NamedTuple):
    """How a step changes the state: from the state, the inputs' share of the sums, and that of the output before."""

    advance: Callable[[State, Any, Any], State]
    states: int  # what goes from step to step


def _lstm(state: State, share: Any, product: Any) -> State:
    """Gates input, forget, cell, output."""
    input_gate, forget_gate, candidate, output_gate = tf.split(share + product, 4, axis=1)
    memory = tf.sigmoid(forget_gate) * state[1] + tf.sigmoid(input_gate) * tf.tanh(candidate)
    return tf.sigmoid(output_gate) * tf.tanh(memory), memory


def _gru(state: State, share: Any, product: Any) -> State:
    """Gates reset, update, new; the reset gate weighs the product."""
    ours, theirs = tf.split(share, 3, axis=1), tf.split(product, 3, axis=1)
    reset, update = [tf.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
    new = tf.tanh(ours[2] + reset * theirs[2])
    return ((1.0 - update) * new + update * state[0],)


def _rnn(state: State, share: Any, product: Any) -> State:
    """Hyperbolic tangents."""
    return (tf.tanh(share + product),)


CELLS: Dict[str, Cell] = {"lstm": Cell(_lstm, 2), "gru": Cell(_gru, 1), "rnn": Cell(_rnn, 1)}


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


PHI = {"tanh": tf.tanh, "relu": tf.nn.relu, "sigmoid": tf.sigmoid}


class ElmanLayer:
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


class UnrolledElman(ElmanLayer):
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


class LoopedElman(ElmanLayer):
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


ELMAN_RECURRENCES: Dict[str, Type[ElmanLayer]] = {"unrolled": UnrolledElman, "loop": LoopedElman}


HIDDEN = -1e9  # added to the scores that are masked, as is usual; exponentials of it are zero


def attention_logits(family: Attention, parameters: Dict[str, Any], tokens: Any) -> Any:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps).

    Dense weights are held as (inputs, outputs).
    """
    batch, steps = tokens.shape
    width, heads = family.width, family.heads
    mask = HIDDEN * (1.0 - tf.linalg.band_part(tf.ones([steps, steps]), -1, 0))

    def dense(name: str, rows: Any) -> Any:
        return tf.nn.bias_add(tf.matmul(rows, parameters[name + ".weight"]), parameters[name + ".bias"])

    def norm(name: str, rows: Any) -> Any:
        mean, variance = tf.nn.moments(rows, axes=[-1], keepdims=True)
        gamma, beta = parameters[name + ".gamma"], parameters[name + ".beta"]
        return tf.nn.batch_normalization(rows, mean, variance, beta, gamma, family.epsilon)

    def attended(rows: Any) -> Any:
        parts = tf.reshape(rows, [batch, steps, 3, heads, width // heads])
        query, key, value = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        scores = tf.matmul(query, key, transpose_b=True) * float((width // heads) ** -0.5)
        mixed = tf.matmul(tf.nn.softmax(scores + mask), value)
        return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, width])

    values = tf.gather(parameters["embedding.weight"], tokens) + parameters["position.weight"]
    rows = tf.reshape(values, [-1, width])
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        rows += dense(name + "project", attended(dense(name + "qkv", norm(name + "norm1", rows))))
        raised = tf.nn.gelu(dense(name + "upper", norm(name + "norm2", rows)), approximate=True)
        rows += dense(name + "lower", raised)
    return dense("fc", norm("norm", rows))


ACTIVATIONS = {"sigmoid": tf.nn.sigmoid, "relu": tf.nn.relu, "tanh": tf.nn.tanh, "none": lambda values: values}


class Variables:
    """The trainable variables by canonical name, each with the layout it is held in."""

    def __init__(self, weights: Dict[str, np.ndarray]) -> None:
        self._weights = weights
        self._held: Dict[str, Tuple[Any, Layout]] = {}

    def make(self, name: str, layout: Any = None) -> Any:
        """Return a new variable that starts with the weight of this canonical name."""
        layout = layout or Layout()
        variable = tf.Variable(held(layout, self._weights[name]), name=name.replace(".", "_"))
        self._held[name] = (variable, layout)
        return variable

    def forget_weights(self) -> None:
        """Let go of the starting weights: they are the caller's."""
        self._weights = {}

    def assign(self, weights: Mapping[str, np.ndarray]) -> None:
        """Give every variable the weight of its canonical name."""
        for name, (variable, layout) in self._held.items():
            variable.assign(held(layout, weights[name]))

    def all(self) -> List[Any]:
        """Return every variable, in forward order."""
        return [variable for variable, _ in self._held.values()]

    def canonical(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield every variable's current value by its canonical name, in canonical layout."""
        for name, (variable, layout) in self._held.items():
            # Of the CPU's memory a view: what changes the variable while somebody has it copies first.
            yield name, layout.canonical(np.asarray(variable.read_value()))


def held(layout: Layout, canonical: np.ndarray) -> Any:
    """Return a copy in the layout that is held."""
    copy = tf.constant(layout.split(canonical))
    if layout.axes is None:
        return copy
    turned = tf.transpose(copy, layout.axes)
    return tf.reshape(turned, layout.joined(tuple(turned.shape)))


class Model:
    """A network as variables and one function: ``loss(inputs, labels)``, the mean loss of a mini-batch."""

    #: Largest norm of the gradients of all variables together; 0: there is none.
    clip = 0.0

    def __init__(self, variables: Variables) -> None:
        self.variables = variables

    def loss(self, inputs: Any, labels: Any) -> Any:
        """Return the mean softmax cross-entropy; labels int32 (batch,) or (steps, batch)."""
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(labels, [-1]), logits=self.logits(inputs)
        )
        return tf.reduce_mean(losses)

    def logits(self, inputs: Any) -> Any:
        """Return the logits, (examples, classes)."""
        raise NotImplementedError


class FeedforwardModel(Model):
    """A chain of layers; inputs float32 (batch, features) or (batch, height, width, channels)."""

    def __init__(self, family: Chain, variables: Variables) -> None:
        super().__init__(variables)
        self._calls: List[Any] = []
        sample = tf.TensorSpec((1,) + _held_shape(family.input_shape), tf.float32)
        flattened = None
        for layer in family.layers:
            call = self._call(layer, flattened)
            flattened = tuple(sample.shape[1:]) if isinstance(layer, Flatten) else None
            sample = tf.function(call).get_concrete_function(sample).output_shapes
            sample = tf.TensorSpec(sample, tf.float32)
            self._calls.append(call)

    def _call(self, layer: Any, flattened: Any) -> Any:
        if isinstance(layer, Dense):
            layout = FlattenedLayout(flattened) if flattened else DenseLayout()
            weight = self.variables.make(layer.name + ".weight", layout)
            bias = self.variables.make(layer.name + ".bias")
            activation = ACTIVATIONS[layer.activation]
            return lambda values: activation(tf.nn.bias_add(tf.matmul(values, weight), bias))
        if isinstance(layer, Convolution):
            weight = self.variables.make(layer.name + ".weight", ConvolutionLayout())
            bias = self.variables.make(layer.name + ".bias")
            activation = ACTIVATIONS[layer.activation]
            stride, padding = layer.stride, layer.padding
            return lambda values: activation(tf.nn.bias_add(convolve(values, weight, stride, padding), bias))
        if isinstance(layer, MaxPool):
            return lambda values: max_pool(values, layer.kernel, layer.stride, layer.padding)
        if isinstance(layer, Flatten):
            return lambda values: tf.reshape(values, [-1, int(np.prod(values.shape[1:]))])
        raise Unsupported("TensorFlow: no way to build a layer of type %s" % type(layer).__name__)

    def logits(self, inputs: Any) -> Any:
        """Return the logits, (batch, classes)."""
        for call in self._calls:
            inputs = call(inputs)
        return inputs


class ResidualModel(Model):
    """ResNet v1; inputs float32 (batch, height, width, channels)."""

    def __init__(self, family: Residual, variables: Variables) -> None:
        super().__init__(variables)
        self._epsilon = family.epsilon
        self._stem = self._normalised("stem", "stem_norm")
        self._blocks: List[Any] = []
        for block in family.bottlenecks:
            branches = [
                self._normalised("%s.conv%d" % (block.name, index), "%s.norm%d" % (block.name, index))
                for index in (1, 2, 3)
            ]
            shortcut = None
            if block.projection:
                shortcut = self._normalised(block.name + ".project", block.name + ".project_norm")
            self._blocks.append((block.stride, branches, shortcut))
        self._weight = variables.make("fc.weight", DenseLayout())
        self._bias = variables.make("fc.bias")

    def _normalised(self, convolution: str, norm: str) -> Any:
        """Make a convolution without bias followed by batch normalisation over the mini-batch's own statistics."""
        weight = self.variables.make(convolution + ".weight", ConvolutionLayout())
        gamma = self.variables.make(norm + ".gamma")
        beta = self.variables.make(norm + ".beta")
        epsilon = self._epsilon

        def call(values: Any, stride: int = 1, padding: int = 0) -> Any:
            values = convolve(values, weight, stride, padding)
            return tf.compat.v1.nn.fused_batch_norm(values, gamma, beta, epsilon=epsilon)[0]

        return call

    def logits(self, inputs: Any) -> Any:
        """Return the logits, (batch, classes)."""
        values = tf.nn.relu(self._stem(inputs, 2, 3))
        values = max_pool(values, 3, 2, 1)
        for stride, (first, second, third), shortcut in self._blocks:
            branch = tf.nn.relu(first(values, stride))
            branch = tf.nn.relu(second(branch, 1, 1))
            branch = third(branch)
            values = tf.nn.relu(branch + (shortcut(values, stride) if shortcut else values))
        values = tf.reduce_mean(values, axis=[1, 2])
        return tf.nn.bias_add(tf.matmul(values, self._weight), self._bias)


class RecurrentModel(Model):
    """Stacked recurrent layers, dense softmax at each step; int32 tokens or one-hot float32, with the steps first."""

    def __init__(self, family: Recurrent, variables: Variables, recurrence: str) -> None:
        super().__init__(variables)
        self._embedding = variables.make("embedding.weight") if family.embedding else None
        self._layers: List[Any] = [
            RECURRENCES[recurrence](
                CELLS[family.cell],
                *[
                    variables.make("%s.%s" % (name, part), DenseLayout() if part.endswith("weight") else None)
                    for part in family.parts
                ],
            )
            for name in family.layer_names()
        ]
        self._weight = variables.make("fc.weight", DenseLayout())
        self._bias = variables.make("fc.bias")

    def logits(self, inputs: Any) -> Any:
        """Return the logits, (steps * batch, vocabulary)."""
        values = inputs if self._embedding is None else tf.gather(self._embedding, inputs)
        for layer in self._layers:
            values = layer(values)
        values = tf.reshape(values, [-1, values.shape[-1]])
        return tf.nn.bias_add(tf.matmul(values, self._weight), self._bias)


class ElmanModel(Model):
    """A simple recurrent layer and dense outputs at each step; inputs float32 (steps, batch, features)."""

    def __init__(self, family: Elman, variables: Variables, recurrence: str) -> None:
        super().__init__(variables)
        self.clip = family.clip
        self._layer = ELMAN_RECURRENCES[recurrence](
            family,
            variables.make("rnn.input_weight", DenseLayout()),
            variables.make("rnn.hidden_weight", DenseLayout()),
            variables.make("rnn.bias"),
        )
        self._weight = variables.make("out.weight", DenseLayout())
        self._bias = variables.make("out.bias")

    def loss(self, inputs: Any, labels: Any) -> Any:
        """Return the mean squared error; labels float32 (steps, batch, outputs)."""
        states = self._layer(inputs)
        flat = tf.reshape(states, [-1, states.shape[-1]])
        outputs = tf.nn.bias_add(tf.matmul(flat, self._weight), self._bias)
        return tf.reduce_mean(tf.square(outputs - tf.reshape(labels, outputs.shape)))


class AttentionModel(Model):
    """A transformer, dense softmax at each step; inputs int32 tokens (batch, steps)."""

    def __init__(self, family: Attention, variables: Variables) -> None:
        super().__init__(variables)
        matrices = [each.name for each in family.parameters() if len(each.shape) == 2]
        looked_up = ("embedding.weight", "position.weight")
        self._family = family
        self._variables = {
            each.name: variables.make(
                each.name, DenseLayout() if each.name in matrices and each.name not in looked_up else None
            )
            for each in family.parameters()
        }

    def logits(self, inputs: Any) -> Any:
        """Return the logits, (batch * steps, vocabulary)."""
        return attention_logits(self._family, self._variables, inputs)


def convolve(values: Any, weight: Any, stride: int, padding: int) -> Any:
    """Convolve (batch, height, width, channels) with symmetric zero padding.

    TensorFlow's explicit padding keeps the gradients off oneDNN's fast path. SAME is the same symmetric padding where
    the stride is 1 and the kernel odd; elsewhere (with a stride it would pad one side more) the image is padded first.
    """
    if padding and stride == 1 and weight.shape[0] == 2 * padding + 1:
        return tf.nn.conv2d(values, weight, stride, "SAME")
    return tf.nn.conv2d(_pad(values, padding, 0.0), weight, stride, "VALID")


def max_pool(values: Any, kernel: int, stride: int, padding: int) -> Any:
    """Pool (batch, height, width, channels); sizes round down. XLA knows no pooling with explicit padding."""
    return tf.nn.max_pool2d(_pad(values, padding, values.dtype.min), kernel, stride, "VALID")


def _pad(values: Any, padding: int, filler: float) -> Any:
    if not padding:
        return values
    return tf.pad(values, [[0, 0], [padding, padding], [padding, padding], [0, 0]], constant_values=filler)


def _held_shape(input_shape: Tuple[int, ...]) -> Tuple[int, ...]:
    return tuple(input_shape[1:]) + tuple(input_shape[:1]) if len(input_shape) == 3 else tuple(input_shape)


def build(network: Network, weights: Dict[str, np.ndarray], recurrence: str) -> Model:
    """Build the network of this specification, starting from these weights in canonical layout."""
    family = network.family
    variables = Variables(weights)
    model: Any = None
    if isinstance(family, Chain):
        model = FeedforwardModel(family, variables)
    elif isinstance(family, Residual):
        model = ResidualModel(family, variables)
    elif isinstance(family, Recurrent):
        model = RecurrentModel(family, variables, recurrence)
    elif isinstance(family, Elman):
        model = ElmanModel(family, variables, recurrence)
    elif isinstance(family, Attention):
        model = AttentionModel(family, variables)
    else:
        raise Unsupported("TensorFlow: no way to build a network of type %s" % type(family).__name__)
    variables.forget_weights()
    return model


def place(network: Network, batch: Batch) -> Tuple[Any, Any]:
    """Return the mini-batch as resident tensors in the layouts the models read."""
    inputs, labels = [each.astype(np.int32) if each.dtype.kind == "i" else each for each in batch]
    if network.family.time_major:
        inputs, labels = inputs.swapaxes(0, 1), labels.swapaxes(0, 1)
    elif inputs.ndim == 4:
        inputs = inputs.transpose(0, 2, 3, 1)
    return tf.constant(np.ascontiguousarray(inputs)), tf.constant(np.ascontiguousarray(labels))


def training_step(model: Model, rate: Any) -> Callable[[Any, Any], Any]:
    """Return the function of one training step: loss of the mini-batch, gradients, SGD update."""

    def step(inputs: Any, labels: Any) -> Any:
        variables = model.variables.all()
        with tf.GradientTape() as tape:
            loss = model.loss(inputs, labels)
        for variable, gradient in zip(variables, clipped(model, tape.gradient(loss, variables))):
            update(variable, gradient, rate)
        return loss

    return step


def clipped(model: Model, gradients: Any) -> Any:
    """Return the gradients, scaled down together where their norm is beyond what the model allows."""
    return tf.clip_by_global_norm(gradients, model.clip)[0] if model.clip else gradients


def update(variable: Any, gradient: Any, rate: Any) -> None:
    """Subtract ``rate * gradient`` in place, for the rows of an embedding only where tokens occurred."""
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
    else:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)

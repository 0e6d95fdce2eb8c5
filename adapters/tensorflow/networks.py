"""Networks in TensorFlow: variables by name, and training steps for ``tf.function``.

Images are held as (batch, height, width, channels): TensorFlow's convolutions on the CPU know no
other layout. Tokens are held step by step, (steps, batch), so that every step of a recurrent layer
reads one contiguous slice.
"""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import numpy as np
import tensorflow as tf

from ..families import Chain, Layer
from ..launch.batches import Batch
from ..launch.feeds import IMAGES, MIDDLE, Feed, RecordField
from ..libraries.layouts import CONVOLUTION, DENSE, FLATTENED, Layout
from ..libraries.walks import HIDDEN, Functions, State, Turn, spike_slope
from ..networks import Network

#: The forms of recurrent layers: a while loop in the graph, or every step in the graph by itself.
RECURRENCES = ("loop", "unrolled")
#: When a variable is updated: as soon as its own gradient is known, or after all gradients.
UPDATES = ("early", "last")


def _find_layout(network: Network, name: str, shape: Tuple[int, ...]) -> Layout:
    """Return how the parameter of this name is held."""
    family = network.family
    if len(shape) == 4:
        return Layout(CONVOLUTION)
    if len(shape) != 2 or name in ("embedding.weight", "position.weight"):
        return Layout()
    if isinstance(family, Chain):
        before = ""
        for layer in family.layers:
            if before == "flatten" and layer.name + ".weight" == name:
                return Layout(FLATTENED, family.flattened)
            before = layer.kind
    return Layout(DENSE)


def held(layout: Layout, canonical: np.ndarray) -> Any:
    """Return a copy in the layout that is held."""
    copy = tf.constant(layout.split(canonical))
    if layout.axes is None:
        return copy
    turned = tf.transpose(copy, layout.axes)
    return tf.reshape(turned, layout.joined(tuple(turned.shape)))


def convolve(values: Any, weight: Any, stride: int, padding: int) -> Any:
    """Convolve (batch, height, width, channels) with symmetric zero padding.

    TensorFlow's explicit padding keeps the gradients off oneDNN's fast path. SAME is the same
    symmetric padding where the stride is 1 and the kernel odd; elsewhere (with a stride it would
    pad one side more) the image is padded first.
    """
    if padding and stride == 1 and weight.shape[0] == 2 * padding + 1:
        return tf.nn.conv2d(values, weight, stride, "SAME")
    return tf.nn.conv2d(_pad(values, padding, 0.0), weight, stride, "VALID")


def max_pool(values: Any, kernel: int, stride: int, padding: int) -> Any:
    """Pool (batch, height, width, channels); sizes round down.

    XLA knows no pooling with explicit padding.
    """
    return tf.nn.max_pool2d(_pad(values, padding, values.dtype.min), kernel, stride, "VALID")


def _pad(values: Any, padding: int, filler: float) -> Any:
    if not padding:
        return values
    around = [padding, padding]
    return tf.pad(values, [[0, 0], around, around, [0, 0]], constant_values=filler)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def spikes(potential: Any) -> Tuple[Any, Callable[[Any], Any]]:
    """Return 1 where a unit fires, and 0 elsewhere."""

    def back(gradient: Any) -> Any:
        return gradient * spike_slope(potential)

    return tf.cast(potential > 1.0, potential.dtype), back


class TensorFlowNetwork(Functions):
    """A network by tf.nn; ``w`` are its trainable variables in forward order.

    Dense weights are (inputs, outputs).
    """

    activations = {"sigmoid": tf.nn.sigmoid, "relu": tf.nn.relu, "tanh": tf.nn.tanh}
    pool = staticmethod(max_pool)
    gelu = staticmethod(partial(tf.nn.gelu, approximate=True))
    spikes = staticmethod(spikes)
    as_constant = staticmethod(tf.stop_gradient)
    mean_of_steps = staticmethod(partial(tf.reduce_mean, axis=0))

    def __init__(self, network: Network, weights: Dict[str, np.ndarray], recurrence: str) -> None:
        self.unrolled = recurrence == "unrolled"
        self._layouts = {
            parameter.name: _find_layout(network, parameter.name, parameter.shape)
            for parameter in network.family.parameters()
        }
        variables = {
            name: tf.Variable(held(layout, weights[name]), name=name.replace(".", "_"))
            for name, layout in self._layouts.items()
        }
        super().__init__(network.family, variables)

    def assign(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, variable in self.w.items():
            variable.assign(held(self._layouts[name], weights[name]))

    def canonical(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield every variable's current value by its canonical name, in canonical layout."""
        for name, variable in self.w.items():
            # A view of the CPU's memory: a change of the variable copies first while the view
            # exists.
            yield name, self._layouts[name].canonical(np.asarray(variable.read_value()))

    def loss(self, inputs: Any, labels: Any) -> Any:
        """Return the mean loss.

        Labels are int32 (batch,) or (steps, batch), or float32 where it is the squared error.
        """
        scores = self.scores(inputs)
        if self.family.loss == "squares":
            return tf.reduce_mean(tf.square(scores - tf.reshape(labels, scores.shape)))
        flat = tf.reshape(labels, [-1])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=flat, logits=scores)
        return tf.reduce_mean(losses)

    def dense(self, name: str, values: Any) -> Any:
        return tf.nn.bias_add(tf.matmul(values, self.w[name + ".weight"]), self.w[name + ".bias"])

    def convolution(self, spec: Layer, values: Any) -> Any:
        values = convolve(values, self.w[spec.name + ".weight"], spec.stride, spec.padding)
        return values if spec.norm else tf.nn.bias_add(values, self.w[spec.name + ".bias"])

    def flatten(self, values: Any) -> Any:
        return tf.reshape(values, [-1, int(np.prod(values.shape[1:]))])

    def norm(self, name: str, values: Any) -> Any:
        options: Dict[str, Any] = {"epsilon": self.family.epsilon}
        if self.statistics:
            options["mean"] = self.statistics[name + ".mean"]
            options["variance"] = self.statistics[name + ".variance"]
            options["is_training"] = False
        gamma = self.w[name + ".gamma"]
        beta = self.w[name + ".beta"]
        return tf.compat.v1.nn.fused_batch_norm(values, gamma, beta, **options)[0]

    def pixel_mean(self, values: Any) -> Any:
        return tf.reduce_mean(values, axis=[1, 2])

    def rows(self, values: Any) -> Any:
        return tf.reshape(values, [-1, values.shape[-1]])

    def embedded(self, name: str, symbols: Any) -> Any:
        return tf.gather(self.w[name + ".weight"], symbols)

    def split(self, values: Any, count: int) -> Any:
        return tf.split(values, count, axis=1)

    def product(self, name: str, output: Any) -> Any:
        product = tf.matmul(output, self.hidden_weight)
        bias = self.w.get(name + ".hidden_bias")
        return product if bias is None else tf.nn.bias_add(product, bias)

    def over_steps(self, name: str, values: Any, turn: Turn, states: int) -> Any:
        # Read once, not at each turn of a loop.
        self.hidden_weight = tf.convert_to_tensor(self.w[name + ".hidden_weight"])
        steps, batch, features = values.shape
        # The inputs' share of all steps' sums, in one product.
        flat = tf.matmul(tf.reshape(values, [-1, features]), self.w[name + ".input_weight"])
        flat = tf.nn.bias_add(flat, self.w[name + ".bias"])
        shares = tf.reshape(flat, [steps, batch, flat.shape[-1]])
        zero = (tf.zeros([batch, self.family.hidden]),) * states
        if self.unrolled:
            return tf.stack(self.step_by_step(turn, zero, tf.unstack(shares)))
        given = tf.TensorArray(tf.float32, steps, element_shape=shares.shape[1:]).unstack(shares)
        outputs = tf.TensorArray(tf.float32, steps, element_shape=zero[0].shape)

        def step(number: Any, state: State, outputs: Any) -> Any:
            state = turn(state, given.read(number))
            return number + 1, state, outputs.write(number, state[0])

        loop = tf.while_loop(
            lambda number, *_: number < steps, step, (0, zero, outputs), maximum_iterations=steps
        )
        return loop[2].stack()

    def positioned(self, tokens: Any) -> Any:
        return self.rows(super().positioned(tokens))

    def layer_norm(self, name: str, values: Any) -> Any:
        mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
        gamma = self.w[name + ".gamma"]
        beta = self.w[name + ".beta"]
        return tf.nn.batch_normalization(values, mean, variance, beta, gamma, self.family.epsilon)

    def attended(self, name: str, values: Any) -> Any:
        steps = self.family.steps
        width = self.family.width
        heads = self.family.heads
        parts = tf.reshape(self.dense(name + "qkv", values), [-1, steps, 3, heads, width // heads])
        query, key, value = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        scores = tf.matmul(query, key, transpose_b=True) * float((width // heads) ** -0.5)
        mask = HIDDEN * (1.0 - tf.linalg.band_part(tf.ones([steps, steps]), -1, 0))
        mixed = tf.matmul(tf.nn.softmax(scores + mask), value)
        return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, width])


def place(network: Network, batch: Batch) -> Tuple[Any, Any]:
    """Return the mini-batch as resident tensors in the layouts the models read."""
    inputs, labels = [
        array.astype(np.int32) if array.dtype.kind == "i" else array for array in batch
    ]
    if network.family.time_major:
        inputs = inputs.swapaxes(0, 1)
        labels = labels.swapaxes(0, 1)
    elif inputs.ndim == 4:
        inputs = inputs.transpose(0, 2, 3, 1)
    return tf.constant(np.ascontiguousarray(inputs)), tf.constant(np.ascontiguousarray(labels))


def loaded(feed: Feed, workers: int) -> Iterator[Any]:
    """Yield the mini-batches of a feed by tf.data, two of them ahead.

    This many of its threads read and decode them.
    """

    def mini_batch(number: Any) -> Any:
        return decoded(feed, tf.reshape(tf.numpy_function(feed.record, [number], tf.string), []))

    made = tf.autograph.experimental.do_not_convert(mini_batch)
    dataset = tf.data.Dataset.range(2**62).map(made, num_parallel_calls=workers or None)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = max(1, workers)
    options.threading.max_intra_op_parallelism = 1
    if workers:
        dataset = dataset.prefetch(2)
    yield from dataset.with_options(options)


def decoded(feed: Feed, record: Any) -> Tuple[Any, Any]:
    """Return the mini-batch of a feed's record as `place` does, by TensorFlow's own operators."""
    # Images have their channels last, in the file too.
    inputs, labels = [_decode(record, part) for part in feed.parts]
    if feed.network.family.time_major:
        inputs = tf.transpose(inputs, [1, 0, *range(2, len(inputs.shape))])
        labels = tf.transpose(labels, [1, 0, *range(2, len(labels.shape))])
    return inputs, labels


def _decode(record: Any, part: RecordField) -> Any:
    kind = np.dtype(part.type).type
    content = tf.strings.substr(record, part.offset, part.length)
    values = tf.reshape(tf.io.decode_raw(content, kind), part.shape)
    if part.drawn.below is not None:
        return tf.one_hot(values, part.drawn.below) if part.drawn.one_hot else values
    if part.type == IMAGES:
        return (tf.cast(values, tf.float32) - MIDDLE) * part.scale
    return values


def training_step(
    model: TensorFlowNetwork, rate: Any, updates: str = UPDATES[0]
) -> Callable[[Any, Any], Any]:
    """Return the function of one training step: loss of the mini-batch, gradients, SGD update.

    ``updates`` is one of `UPDATES`. TensorFlow copies a variable before its update while an
    operator that reads it still waits, and the order in which it runs operators that are ready
    differs from process to process.
    """

    def step(inputs: Any, labels: Any) -> Any:
        variables = list(model.w.values())
        with tf.GradientTape() as tape:
            loss = model.loss(inputs, labels)
        gradients = clipped(model, tape.gradient(loss, variables))
        with tf.control_dependencies(gradients if updates == "last" else []):
            for variable, gradient in zip(variables, gradients):
                update(variable, gradient, rate)
        return loss

    return step


def clipped(model: TensorFlowNetwork, gradients: Any) -> Any:
    """Return the gradients, scaled down together where their norm is beyond the model's limit."""
    if not model.family.clip:
        return gradients
    return tf.clip_by_global_norm(gradients, model.family.clip)[0]


def update(variable: Any, gradient: Any, rate: Any) -> None:
    """Subtract ``rate * gradient`` in place.

    Of an embedding only the rows change whose tokens occurred.
    """
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
    else:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)

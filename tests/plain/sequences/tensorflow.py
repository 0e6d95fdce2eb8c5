"""Networks over sequences trained by hand in TensorFlow, MODE function or xla: see `networks.py` for which."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.append(str(Path(__file__).parents[1] / "shared"))
sys.path.append(str(Path(__file__).parent))
from networks import ELMAN, GPT, GRU, data
from yardstick import arguments, measure

given = arguments("function", "xla")
tf.config.threading.set_intra_op_parallelism_threads(given.threads)
tf.config.threading.set_inter_op_parallelism_threads(1)
random = np.random.default_rng(1)
variables = []


def weights(*shape):
    variables.append(tf.Variable(random.uniform(-0.05, 0.05, shape).astype(np.float32)))
    return variables[-1]


def linear(inputs, outputs):
    w, b = weights(inputs, outputs), weights(outputs)
    return lambda rows: tf.nn.bias_add(tf.matmul(rows, w), b)


def over_time(x, network, turn):
    """Apply a cell to every step, each in the graph by itself, or in a loop of the graph where XLA compiles it."""
    first = tf.zeros([given.batch, network.hidden])
    if given.mode == "function":
        states = []
        for step in tf.unstack(x):
            first = turn(first, step)
            states.append(first)
        return tf.stack(states)
    given_steps = tf.TensorArray(tf.float32, network.steps, element_shape=x.shape[1:]).unstack(x)
    found = tf.TensorArray(tf.float32, network.steps, element_shape=first.shape)

    def body(step, h, found):
        h = turn(h, given_steps.read(step))
        return step + 1, h, found.write(step, h)

    more = {"maximum_iterations": network.steps}
    return tf.while_loop(lambda step, *_: step < network.steps, body, (0, first, found), **more)[2].stack()


def elman():
    enter, u, leave = linear(2, ELMAN.hidden), weights(ELMAN.hidden, ELMAN.hidden), linear(ELMAN.hidden, 2)

    def loss(x, y):
        z = tf.reshape(enter(tf.reshape(x, [-1, 2])), [ELMAN.steps, given.batch, ELMAN.hidden])
        product = tf.convert_to_tensor(u)
        hs = over_time(z, ELMAN, lambda h, z: tf.nn.relu(z + tf.matmul(h, product)))
        found = leave(tf.reshape(hs, [-1, ELMAN.hidden]))
        return tf.reduce_mean(tf.math.squared_difference(found, tf.reshape(y, [-1, 2])))

    return loss


def cross_entropy(labels, logits):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(labels, [-1]), logits))


def gru():
    n = GRU.hidden
    enter, u, c, leave = linear(GRU.inputs, 3 * n), weights(n, 3 * n), weights(3 * n), linear(n, GRU.outputs)

    def loss(x, y):
        z = tf.reshape(enter(tf.reshape(x, [-1, GRU.inputs])), [GRU.steps, given.batch, 3 * n])
        product, bias = tf.convert_to_tensor(u), tf.convert_to_tensor(c)

        def turn(h, z):
            zr, zz, zn = tf.split(z, 3, 1)
            ur, uz, un = tf.split(tf.nn.bias_add(tf.matmul(h, product), bias), 3, 1)
            update = tf.sigmoid(zz + uz)
            return (1 - update) * tf.tanh(zn + tf.sigmoid(zr + ur) * un) + update * h

        return cross_entropy(y, leave(tf.reshape(over_time(z, GRU, turn), [-1, n])))

    return loss


def normal():
    gamma, beta = tf.Variable(tf.ones(GPT.hidden)), tf.Variable(tf.zeros(GPT.hidden))
    variables.extend([gamma, beta])

    def call(rows):
        mean, variance = tf.nn.moments(rows, [-1], keepdims=True)
        return tf.nn.batch_normalization(rows, mean, variance, beta, gamma, 1e-5)

    return call


def gpt():
    n, steps = GPT.hidden, GPT.steps
    words, places = weights(GPT.inputs, n), weights(steps, n)
    blocks = [
        (normal(), linear(n, 3 * n), linear(n, n), normal(), linear(n, 4 * n), linear(4 * n, n)) for _ in range(2)
    ]
    last, head = normal(), linear(n, GPT.outputs)
    mask = -1e9 * (1 - tf.linalg.band_part(tf.ones([steps, steps]), -1, 0))

    def loss(x, y):
        rows = tf.reshape(tf.gather(words, x) + places, [-1, n])
        for first, qkv, out, second, up, down in blocks:
            parts = tf.reshape(qkv(first(rows)), [given.batch, steps, 3, GPT.heads, n // GPT.heads])
            q, k, v = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
            scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.125 + mask)
            rows += out(tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), [-1, n]))
            rows += down(tf.nn.gelu(up(second(rows)), approximate=True))
        return cross_entropy(y, head(last(rows)))

    return loss


loss = {ELMAN.name: elman, GRU.name: gru, GPT.name: gpt}[given.network]()
x, y = (tf.constant(each.astype(np.int32) if each.dtype.kind == "i" else each) for each in data(given))


@tf.function(jit_compile=given.mode == "xla", autograph=False)
def train(x, y):
    with tf.GradientTape() as tape:
        value = loss(x, y)
    gradients = tape.gradient(value, variables)
    if given.network == ELMAN.name:
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    for v, g in zip(variables, gradients, strict=True):
        if isinstance(g, tf.IndexedSlices):
            v.scatter_sub(tf.IndexedSlices(0.01 * g.values, g.indices))
        else:
            tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.01, delta=g)
    return value


measure(given, lambda: train(x, y))

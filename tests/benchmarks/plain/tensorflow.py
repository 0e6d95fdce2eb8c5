"""The benchmark networks trained by hand in TensorFlow; MODE function or xla.

See `yardstick.py` for how it is called.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("function", "xla")
batch, length = given.batch, given.length
tf.config.threading.set_intra_op_parallelism_threads(given.threads)
tf.config.threading.set_inter_op_parallelism_threads(1)

random = np.random.default_rng(1)
variables = []


def make(*shape, scale=0.02):
    variables.append(tf.Variable((random.random(shape, dtype=np.float32) * 2 - 1) * np.float32(scale)))
    return variables[-1]


def dense(inputs, outputs, activation=None):
    w, b = make(inputs, outputs, scale=(6 / (inputs + outputs)) ** 0.5), make(outputs)

    def call(x):
        x = tf.nn.bias_add(tf.matmul(x, w), b)
        return activation(x) if activation else x

    return call


def lstm():
    embedding = make(10000, 256)
    layers = [(make(256, 1024), make(256, 1024), make(1024)) for _ in range(2)]
    head = dense(256, 10000)

    def cell(z, c):
        i, f, g, o = tf.split(z, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    def unrolled(z, u):
        h = c = tf.zeros([batch, 256])
        hs = []
        for z_t in tf.unstack(z):
            h, c = cell(z_t + tf.matmul(h, u), c)
            hs.append(h)
        return tf.stack(hs)

    def looped(z, u):
        zs = tf.TensorArray(tf.float32, length, element_shape=[batch, 1024]).unstack(z)
        hs = tf.TensorArray(tf.float32, length, element_shape=[batch, 256])

        def body(t, h, c, hs):
            h, c = cell(zs.read(t) + tf.matmul(h, u), c)
            return t + 1, h, c, hs.write(t, h)

        zero = tf.zeros([batch, 256])
        loop = tf.while_loop(lambda t, *_: t < length, body, (0, zero, zero, hs), maximum_iterations=length)
        return loop[3].stack()

    def call(tokens):
        x = tf.gather(embedding, tokens)
        for w, u, b in layers:
            z = tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, 256]), w), b)
            z = tf.reshape(z, [length, batch, 1024])
            x = looped(z, tf.convert_to_tensor(u)) if given.mode == "xla" else unrolled(z, tf.convert_to_tensor(u))
        return head(tf.reshape(x, [-1, 256]))

    return call


def fully_connected(hidden):
    sizes = [26752] + [2048] * hidden
    body = [dense(a, b, tf.sigmoid) for a, b in pairwise(sizes)] + [dense(2048, 26752)]

    def call(x):
        for layer in body:
            x = layer(x)
        return x

    return call


model = given.build(lambda length: lstm(), fully_connected)
x, y = mini_batch(given, channels_last=True)
x, y = tf.constant(x.astype(np.int32) if given.length else x), tf.constant(y, tf.int32)


@tf.function(jit_compile=given.mode == "xla", autograph=False)
def train(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
    for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
        if isinstance(g, tf.IndexedSlices):
            v.scatter_sub(tf.IndexedSlices(0.01 * g.values, g.indices))
        else:
            tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.01, delta=g)
    return loss


measure(given, lambda: train(x, y))

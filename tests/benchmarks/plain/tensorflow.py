"""The benchmark networks in TensorFlow."""

import numpy as np
import tensorflow as tf

MODES = ("function",)
random = np.random.default_rng(1)
variables = []


def make(*shape, scale=0.02):
    variables.append(
        tf.Variable((random.random(shape, dtype=np.float32) * 2 - 1) * np.float32(scale))
    )
    return variables[-1]


def dense(inputs, outputs, activation=None):
    w, b = make(inputs, outputs, scale=(6 / (inputs + outputs)) ** 0.5), make(outputs)

    def call(x):
        x = tf.nn.bias_add(tf.matmul(x, w), b)
        return activation(x) if activation else x

    return call


def lstm(arguments):
    batch, length = arguments.batch, arguments.length
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

    def call(tokens):
        x = tf.gather(embedding, tokens)
        for w, u, b in layers:
            z = tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, 256]), w), b)
            z = tf.reshape(z, [length, batch, 1024])
            x = unrolled(z, tf.convert_to_tensor(u))
        return head(tf.reshape(x, [-1, 256]))

    return call


def fully_connected(arguments):
    body = [dense(a, b, tf.sigmoid) for a, b in arguments.layers[:-1]] + [dense(2048, 26752)]

    def call(x):
        for layer in body:
            x = layer(x)
        return x

    return call


def infer(arguments, x):
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model = arguments.build(lstm, fully_connected)
    x = x.astype(np.int32) if arguments.length else x
    x = tf.constant(x)
    compiled = tf.function(model, jit_compile=False, autograph=False)
    return lambda: compiled(x), None


def train(arguments, x, y):
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model = arguments.build(lstm, fully_connected)
    x = x.astype(np.int32) if arguments.length else x
    x, y = tf.constant(x), tf.constant(y, tf.int32)

    @tf.function(jit_compile=False, autograph=False)
    def compiled(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
        gradients = tape.gradient(loss, variables)
        # Otherwise some launches copy weights before their update, and others do not.
        with tf.control_dependencies(gradients):
            for v, g in zip(variables, gradients, strict=True):
                if isinstance(g, tf.IndexedSlices):
                    v.scatter_sub(tf.IndexedSlices(0.01 * g.values, g.indices))
                else:
                    tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.01, delta=g)
        return loss

    return lambda: compiled(x, y), None

"""The benchmark networks in Keras; the mode is the backend, which KERAS_BACKEND has named already.

Each step is a ``train_on_batch`` of the same tensors, whose result has come when it returns.
"""

import keras
from keras import layers

MODES = "tensorflow", "jax", "torch"


def fully_connected(arguments):
    hidden = [layers.Dense(outputs, activation="sigmoid") for _, outputs in arguments.layers[:-1]]
    return keras.Sequential([keras.Input((26752,)), *hidden, layers.Dense(26752)])


def language_model(arguments):
    return keras.Sequential(
        [
            keras.Input((arguments.length,), dtype="int32"),
            layers.Embedding(10000, 256),
            layers.LSTM(256, return_sequences=True, unit_forget_bias=False),
            layers.LSTM(256, return_sequences=True, unit_forget_bias=False),
            layers.Dense(10000),
        ]
    )


def train(arguments, x, y):
    assert keras.backend.backend() == arguments.mode
    if arguments.mode == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    elif arguments.mode == "torch":
        import torch

        torch.set_num_threads(arguments.threads)
    if arguments.length:
        x, y = x.T.astype("int32"), y.reshape(x.shape).T
    model = arguments.build(language_model, fully_connected)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=loss)
    x, y = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y.astype("int32"))
    return lambda: float(model.train_on_batch(x, y)), None

"""The benchmark networks trained by hand in Keras. See `yardstick.py` for how it is called.

MODE is the backend, which KERAS_BACKEND has named already. Each step is a ``train_on_batch`` of the same tensors, whose
result has come when it returns.
"""

import sys
from pathlib import Path

import keras
from keras import layers

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("tensorflow", "jax", "torch")
assert keras.backend.backend() == given.mode
if given.mode == "tensorflow":
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
elif given.mode == "torch":
    import torch

    torch.set_num_threads(given.threads)


def fully_connected(hidden):
    return keras.Sequential(
        [keras.Input((26752,))]
        + [layers.Dense(2048, activation="sigmoid") for _ in range(hidden)]
        + [layers.Dense(26752)]
    )


def language_model(length):
    return keras.Sequential(
        [
            keras.Input((length,), dtype="int32"),
            layers.Embedding(10000, 256),
            layers.LSTM(256, return_sequences=True, unit_forget_bias=False),
            layers.LSTM(256, return_sequences=True, unit_forget_bias=False),
            layers.Dense(10000),
        ]
    )


x, y = mini_batch(given, channels_last=True)
if given.length:
    x, y = x.T.astype("int32"), y.reshape(x.shape).T
model = given.build(language_model, fully_connected)
model.compile(optimizer=keras.optimizers.SGD(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y.astype("int32"))
measure(given, lambda: float(model.train_on_batch(x, y)))

"""The benchmark networks trained by hand in Keras. See `shared/yardstick.py` for how it is called.

MODE is the backend, which KERAS_BACKEND has named already. Each step is a ``train_on_batch`` of the same tensors, whose
result has come when it returns.
"""

import sys
from pathlib import Path

import keras
from keras import layers

sys.path.append(str(Path(__file__).with_name("shared")))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch

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


def alexnet():
    return keras.Sequential(
        [
            keras.Input((224, 224, 3)),
            layers.ZeroPadding2D(2),
            layers.Conv2D(96, 11, 4, activation="relu"),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(256, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(384, 3, padding="same", activation="relu"),
            layers.Conv2D(384, 3, padding="same", activation="relu"),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(3, 2),
            layers.Flatten(),
            layers.Dense(4096, activation="relu"),
            layers.Dense(4096, activation="relu"),
            layers.Dense(1000),
        ]
    )


def conv_norm(x, filters, kernel=1, stride=1, gamma="ones"):
    x = layers.Conv2D(filters, kernel, stride, padding="same" if stride == 1 else "valid", use_bias=False)(x)
    return layers.BatchNormalization(epsilon=1e-5, gamma_initializer=gamma)(x)


def resnet50():
    inputs = keras.Input((224, 224, 3))
    x = layers.ReLU()(conv_norm(layers.ZeroPadding2D(3)(inputs), 64, 7, 2))
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for _inputs, width, stride, first in BOTTLENECKS:
        shortcut = conv_norm(x, 4 * width, 1, stride) if first else x
        x = layers.ReLU()(conv_norm(x, width, 1, stride))
        x = layers.ReLU()(conv_norm(x, width, 3))
        x = conv_norm(x, 4 * width, gamma=keras.initializers.Constant(0.2))
        x = layers.ReLU()(layers.Add()([x, shortcut]))
    return keras.Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))


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
model = given.build(language_model, fully_connected, alexnet, resnet50)
model.compile(optimizer=keras.optimizers.SGD(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y.astype("int32"))
measure(given, lambda: float(model.train_on_batch(x, y)))

"""Plain Keras training scripts of the benchmark's networks: the yardstick for the adapter's overhead.

    python -I keras.py NETWORK BATCH THREADS MODE STEPS OUT.json

MODE is the backend, which KERAS_BACKEND has named already; -I keeps this file from being taken for the framework. Each
step is a ``train_on_batch`` of the same tensors, whose result has come when it returns. After 3 warm-up steps each of
STEPS steps is timed; OUT.json receives {"samples_ns": [...]}.
"""

import json
import sys
import time
from pathlib import Path

import keras
import numpy as np
from keras import layers

network, batch, threads, mode, steps, out = sys.argv[1:]
batch, threads, steps = int(batch), int(threads), int(steps)
assert keras.backend.backend() == mode
if mode == "tensorflow":
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
elif mode == "torch":
    import torch

    torch.set_num_threads(threads)

random = np.random.default_rng(1)


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
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            step = stride if index == 0 else 1
            shortcut = conv_norm(x, 4 * width, 1, step) if index == 0 else x
            x = layers.ReLU()(conv_norm(x, width, 1, step))
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


if network.startswith("lstm"):
    length = int(network[4:])
    model = language_model(length)
    x = random.integers(10000, size=(batch, length), dtype=np.int32)
    y = random.integers(10000, size=(batch, length), dtype=np.int32)
elif network.startswith("fcn"):
    model = fully_connected(int(network[3:]) - 2)
    x = random.uniform(-1, 1, (batch, 26752)).astype("float32")
    y = random.integers(26752, size=batch, dtype=np.int32)
else:
    model = {"alexnet": alexnet, "resnet50": resnet50}[network]()
    scale = 0.1 if network == "alexnet" else 1.0
    x = (scale * random.uniform(-1, 1, (batch, 224, 224, 3))).astype("float32")
    y = random.integers(1000, size=batch, dtype=np.int32)

model.compile(
    optimizer=keras.optimizers.SGD(0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
x, y = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)
for _ in range(3):
    model.train_on_batch(x, y)
samples = []
for _ in range(steps):
    start = time.perf_counter_ns()
    float(model.train_on_batch(x, y))
    samples.append(time.perf_counter_ns() - start)
Path(out).write_text(json.dumps({"samples_ns": samples}))

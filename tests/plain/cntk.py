"""The benchmark networks trained by hand in CNTK's layers library: the yardstick for the suite's adapter.

    python -I cntk.py NETWORK BATCH THREADS MODE STEPS OUT.json

NETWORK fcn5, fcn8, alexnet, resnet50, lstm32 or lstm64; MODE graph or vendor. It shares no code with the adapter; -I
keeps this file from being taken for the framework. After 3 warm-up steps each of STEPS steps is timed; OUT.json
receives {"samples_ns": [...]}.
"""

import json
import os
import sys
import time
from pathlib import Path

network, batch, threads, mode, steps, out = sys.argv[1:]
batch, threads, steps = int(batch), int(threads), int(steps)
if mode == "graph":
    processor = Path("/proc/cpuinfo").read_text()
    if "GenuineIntel" not in processor:
        os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if "avx512vl" in processor else "5"

import cntk as C  # noqa: E402, N812 - as its manuals have it
import numpy as np  # noqa: E402

C.cntk_py.set_max_num_cputhreads(threads)
random = np.random.RandomState(1)


def fully_connected(hidden_layers):
    hidden = C.layers.For(range(hidden_layers), lambda: C.layers.Dense(2048, C.sigmoid))
    return C.layers.Sequential([hidden, C.layers.Dense(26752)])


def alexnet():
    def conv(size, kernel, pad=True, strides=1):
        return C.layers.Convolution2D((kernel, kernel), size, C.relu, pad=pad, strides=strides)

    return C.layers.Sequential(
        [
            lambda x: C.pad(x, [(0, 0), (2, 2), (2, 2)]),
            conv(96, 11, pad=False, strides=4),
            C.layers.MaxPooling((3, 3), 2),
            conv(256, 5),
            C.layers.MaxPooling((3, 3), 2),
            conv(384, 3),
            conv(384, 3),
            conv(256, 3),
            C.layers.MaxPooling((3, 3), 2),
            C.layers.Dense(4096, C.relu),
            C.layers.Dense(4096, C.relu),
            C.layers.Dense(1000),
        ]
    )


def conv_norm(size, kernel, strides, activation=None, scale=1):
    layers = [
        C.layers.Convolution2D((kernel, kernel), size, pad=kernel > 1, strides=strides, bias=False),
        C.layers.BatchNormalization(map_rank=1, init_scale=scale, use_cntk_engine=True),
    ]
    return C.layers.Sequential(layers + ([activation] if activation else []))


def bottleneck(width, strides, project):
    body = C.layers.Sequential(
        [
            conv_norm(width, 1, strides, C.relu),
            conv_norm(width, 3, 1, C.relu),
            conv_norm(4 * width, 1, 1, scale=0.2),
        ]
    )
    shortcut = conv_norm(4 * width, 1, strides) if project else C.layers.identity
    return lambda x: C.relu(body(x) + shortcut(x))


def resnet50():
    layers = [conv_norm(64, 7, 2, C.relu), C.layers.MaxPooling((3, 3), 2, pad=True)]
    for stage, (count, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for index in range(count):
            layers.append(bottleneck(width, 2 if index == 0 and stage > 0 else 1, index == 0))
    layers += [C.layers.GlobalAveragePooling(), C.layers.Dense(1000)]
    return C.layers.Sequential(layers)


def language_model():
    return C.layers.Sequential(
        [
            C.layers.Embedding(256),
            C.layers.For(range(2), lambda: C.layers.Recurrence(C.layers.LSTM(256))),
            C.layers.Dense(10000),
        ]
    )


def main():
    if network.startswith("lstm"):
        size, length = 10000, int(network[4:])
        x, y = (C.sequence.input_variable(size, is_sparse=True) for _ in range(2))
        tokens, targets = (random.randint(0, size, (batch, length)).tolist() for _ in range(2))
        data = {x: C.Value.one_hot(tokens, size), y: C.Value.one_hot(targets, size)}
        z = language_model()(x)
    else:
        shape, size = ((26752,), 26752) if network.startswith("fcn") else ((3, 224, 224), 1000)
        scale = 0.1 if network == "alexnet" else 1.0
        x, y = C.input_variable(shape), C.input_variable(size, is_sparse=True)
        images = (scale * random.uniform(-1, 1, (batch, *shape))).astype(np.float32)
        data = {x: C.Value(images), y: C.Value.one_hot(random.randint(0, size, batch).tolist(), size)}
        models = {"alexnet": alexnet, "resnet50": resnet50}
        z = (fully_connected(int(network[3:]) - 2) if network.startswith("fcn") else models[network]())(x)
    loss = C.cross_entropy_with_softmax(z, y)
    trainer = C.Trainer(z, (loss, None), [C.sgd(z.parameters, C.learning_parameter_schedule(0.01))])
    for _ in range(3):
        trainer.train_minibatch(data)
    samples = []
    for _ in range(steps):
        start = time.perf_counter()
        trainer.train_minibatch(data)
        samples.append(int((time.perf_counter() - start) * 1e9))
    Path(out).write_text(json.dumps({"samples_ns": samples}))


main()

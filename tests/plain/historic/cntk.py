"""The benchmark networks trained by hand in CNTK's layers library; MODE graph.

See `../shared/yardstick.py` for how it is called.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch

given = arguments("graph")
processor = Path("/proc/cpuinfo").read_text()
if "GenuineIntel" not in processor:
    os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if "avx512vl" in processor else "5"

import cntk as C  # noqa: E402, N812 - as its manuals have it

C.cntk_py.set_max_num_cputhreads(given.threads)


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
        [conv_norm(width, 1, strides, C.relu), conv_norm(width, 3, 1, C.relu), conv_norm(4 * width, 1, 1, scale=0.2)]
    )
    shortcut = conv_norm(4 * width, 1, strides) if project else C.layers.identity
    return lambda x: C.relu(body(x) + shortcut(x))


def resnet50():
    layers = [conv_norm(64, 7, 2, C.relu), C.layers.MaxPooling((3, 3), 2, pad=True)]
    layers += [bottleneck(width, stride, first) for _, width, stride, first in BOTTLENECKS]
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
    inputs, labels = mini_batch(given)
    if given.length:
        size = 10000
        x, y = (C.sequence.input_variable(size, is_sparse=True) for _ in range(2))
        data = {
            x: C.Value.one_hot(inputs.T.tolist(), size),
            y: C.Value.one_hot(labels.reshape(inputs.shape).T.tolist(), size),
        }
        z = language_model()(x)
    else:
        size = 26752 if given.hidden else 1000
        x, y = C.input_variable(inputs.shape[1:]), C.input_variable(size, is_sparse=True)
        data = {x: C.Value(inputs), y: C.Value.one_hot(labels.tolist(), size)}
        models = {"alexnet": alexnet, "resnet50": resnet50}
        z = (fully_connected(given.hidden) if given.hidden else models[given.network]())(x)
    loss = C.cross_entropy_with_softmax(z, y)
    trainer = C.Trainer(z, (loss, None), [C.sgd(z.parameters, C.learning_parameter_schedule(0.01))])
    measure(given, lambda: trainer.train_minibatch(data))


main()

"""The benchmark networks trained by hand in Caffe; MODE pthread or openmp.

See `../shared/yardstick.py` for how it is called.
"""

import sys
from pathlib import Path

import caffe
import numpy as np
from caffe import layers as L  # noqa: N812
from caffe import params as P  # noqa: N812

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch

CLASSES = 1000
XAVIER = {"type": "xavier"}

SOLVER = """
train_net: "net.prototxt"
solver_mode: CPU
type: "SGD"
base_lr: 0.01
lr_policy: "fixed"
momentum: 0
weight_decay: 0
display: 0
snapshot_after_train: false
"""


def dense(bottom, outputs, **options):
    return L.InnerProduct(bottom, num_output=outputs, weight_filler=XAVIER, **options)


def convolution(bottom, outputs, kernel, stride=1, pad=0, **options):
    return L.Convolution(
        bottom, num_output=outputs, kernel_size=kernel, stride=stride, pad=pad, weight_filler=XAVIER, **options
    )


def max_pool(bottom, pad=0):
    return L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=3, stride=2, pad=pad, round_mode=P.Pooling.FLOOR)


def relu(bottom):
    return L.ReLU(bottom, in_place=True)


def fully_connected(x, hidden_layers):
    for _ in range(hidden_layers):
        x = L.Sigmoid(dense(x, 2048), in_place=True)
    return dense(x, 26752)


def alexnet(x):
    x = max_pool(relu(convolution(x, 96, 11, 4, 2)))
    x = max_pool(relu(convolution(x, 256, 5, 1, 2)))
    x = relu(convolution(x, 384, 3, 1, 1))
    x = relu(convolution(x, 384, 3, 1, 1))
    x = max_pool(relu(convolution(x, 256, 3, 1, 1)))
    return dense(relu(dense(relu(dense(x, 4096)), 4096)), CLASSES)


def normalised(x, outputs, kernel, stride=1, pad=0, gamma=1.0):
    x = convolution(x, outputs, kernel, stride, pad, bias_term=False)
    x = L.BatchNorm(x, in_place=True, use_global_stats=False, eps=1e-5)
    return L.Scale(x, in_place=True, bias_term=True, filler={"type": "constant", "value": gamma})


def resnet50(x):
    x = max_pool(relu(normalised(x, 64, 7, 2, 3)), pad=1)
    for _inputs, width, stride, first in BOTTLENECKS:
        y = relu(normalised(x, width, 1, stride))
        y = relu(normalised(y, width, 3, 1, 1))
        y = normalised(y, 4 * width, 1, gamma=0.2)
        x = relu(L.Eltwise(y, normalised(x, 4 * width, 1, stride) if first else x))
    return dense(L.Pooling(x, pool=P.Pooling.AVE, global_pooling=True), CLASSES)


def language_model(x, begins):
    uniform = {"type": "uniform", "min": -0.0625, "max": 0.0625}
    x = L.Embed(x, input_dim=10000, num_output=256, bias_term=False, weight_filler=uniform)
    for _ in range(2):
        x = L.LSTM(x, begins, recurrent_param={"num_output": 256, "weight_filler": uniform})
    return dense(x, 10000, axis=2)


def main():
    given = arguments("pthread", "openmp")
    caffe.set_mode_cpu()
    feeds = dict(zip("xy", mini_batch(given)))  # noqa: B905 - Python 3.9
    if given.length:
        feeds["y"] = feeds["y"].reshape(feeds["x"].shape)
        feeds["continues"] = np.ones(feeds["x"].shape)
        feeds["continues"][0] = 0
    net = caffe.NetSpec()
    for key, value in feeds.items():
        net[key] = L.Input(shape={"dim": list(value.shape)})
    if given.length:
        net.loss = L.SoftmaxWithLoss(language_model(net.x, net.continues), net.y, softmax_param={"axis": 2})
    elif given.hidden:
        net.loss = L.SoftmaxWithLoss(fully_connected(net.x, given.hidden), net.y)
    else:
        net.loss = L.SoftmaxWithLoss({"alexnet": alexnet, "resnet50": resnet50}[given.network](net.x), net.y)
    # The working folder is this script's own.
    Path("net.prototxt").write_text(str(net.to_proto()))
    Path("solver.prototxt").write_text(SOLVER)
    solver = caffe.SGDSolver("solver.prototxt")
    for key, value in feeds.items():
        solver.net.blobs[key].data[...] = value
    measure(given, lambda: solver.step(1))


if __name__ == "__main__":
    main()

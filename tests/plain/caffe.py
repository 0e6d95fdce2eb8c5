"""Plain Caffe training scripts of the benchmark's networks: the yardstick for the adapter's overhead.

python caffe.py NETWORK BATCH THREADS MODE STEPS OUT.json; threads and BLAS are set by the environment variables.
"""

import json
import sys
import time
from pathlib import Path

# This file's own folder would hide the framework of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import caffe  # noqa: E402
import numpy as np  # noqa: E402
from caffe import layers as L  # noqa: E402, N812
from caffe import params as P  # noqa: E402, N812

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
    for stage, (count, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for index in range(count):
            stride = 2 if index == 0 and stage > 0 else 1
            y = relu(normalised(x, width, 1, stride))
            y = relu(normalised(y, width, 3, 1, 1))
            y = normalised(y, 4 * width, 1, gamma=0.2)
            x = relu(L.Eltwise(y, x if index else normalised(x, 4 * width, 1, stride)))
    return dense(L.Pooling(x, pool=P.Pooling.AVE, global_pooling=True), CLASSES)


def language_model(x, begins):
    uniform = {"type": "uniform", "min": -0.0625, "max": 0.0625}
    x = L.Embed(x, input_dim=10000, num_output=256, bias_term=False, weight_filler=uniform)
    for _ in range(2):
        x = L.LSTM(x, begins, recurrent_param={"num_output": 256, "weight_filler": uniform})
    return dense(x, 10000, axis=2)


def main():
    name, batch, _threads, mode, steps, out = sys.argv[1:]
    batch = int(batch)
    assert mode in ("pthread", "openmp")
    caffe.set_mode_cpu()
    random = np.random.RandomState(1)
    feeds = {}
    if name.startswith("lstm"):
        shape = (int(name[4:]), batch)
        feeds["x"] = random.randint(0, 10000, shape)
        feeds["y"] = random.randint(0, 10000, shape)
        feeds["continues"] = np.ones(shape)
        feeds["continues"][0] = 0
    elif name.startswith("fcn"):
        feeds["x"] = random.uniform(-1, 1, (batch, 26752))
        feeds["y"] = random.randint(0, 26752, batch)
    else:
        feeds["x"] = (0.1 if name == "alexnet" else 1.0) * random.uniform(-1, 1, (batch, 3, 224, 224))
        feeds["y"] = random.randint(0, CLASSES, batch)
    net = caffe.NetSpec()
    for key, value in feeds.items():
        net[key] = L.Input(shape={"dim": list(value.shape)})
    if name.startswith("lstm"):
        net.loss = L.SoftmaxWithLoss(language_model(net.x, net.continues), net.y, softmax_param={"axis": 2})
    elif name.startswith("fcn"):
        net.loss = L.SoftmaxWithLoss(fully_connected(net.x, int(name[3:]) - 2), net.y)
    else:
        net.loss = L.SoftmaxWithLoss({"alexnet": alexnet, "resnet50": resnet50}[name](net.x), net.y)
    # The working folder is this script's own.
    Path("net.prototxt").write_text(str(net.to_proto()))
    Path("solver.prototxt").write_text(SOLVER)
    solver = caffe.SGDSolver("solver.prototxt")
    for key, value in feeds.items():
        solver.net.blobs[key].data[...] = value
    for _ in range(3):
        solver.step(1)
    samples = []
    for _ in range(int(steps)):
        start = time.perf_counter_ns()
        solver.step(1)
        samples.append(time.perf_counter_ns() - start)
    Path(out).write_text(json.dumps({"samples_ns": samples}))


if __name__ == "__main__":
    main()

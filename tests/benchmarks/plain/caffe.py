"""The benchmark networks trained by hand in Caffe; MODE pthread or openmp.

See `yardstick.py` for how it is called.
"""

import sys
from pathlib import Path

import caffe
import numpy as np
from caffe import layers as L  # noqa: N812

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

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


def fully_connected(x, hidden_layers):
    for _ in range(hidden_layers):
        x = L.Sigmoid(dense(x, 2048), in_place=True)
    return dense(x, 26752)


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
    else:
        net.loss = L.SoftmaxWithLoss(fully_connected(net.x, given.hidden), net.y)
    # The working folder is this script's own.
    Path("net.prototxt").write_text(str(net.to_proto()))
    Path("solver.prototxt").write_text(SOLVER)
    solver = caffe.SGDSolver("solver.prototxt")
    for key, value in feeds.items():
        solver.net.blobs[key].data[...] = value
    measure(given, lambda: solver.step(1))


if __name__ == "__main__":
    main()

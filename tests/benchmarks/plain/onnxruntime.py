"""The benchmark networks in ONNX Runtime's on-device training.

The way is the one of ONNX Runtime's own documentation: an ONNX model with its weights,
``generate_artifacts``, then Module and Optimizer.
"""

import os
import sys
import tempfile
import types

sys.modules["onnxruntime.training.optim"] = types.ModuleType(
    "optim"
)  # it alone wants torch, and is not needed
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxruntime.training import artifacts  # noqa: E402
from onnxruntime.training.api import CheckpointState, Module, Optimizer  # noqa: E402

MODES = ("training",)
rng = np.random.default_rng(1)
nodes, weights, constants = [], [], []


def weight(name, *shape, scale):
    value = rng.uniform(-scale, scale, shape).astype(np.float32)
    weights.append(numpy_helper.from_array(value, name))
    return name


def constant(name, value):
    constants.append(numpy_helper.from_array(value, name))
    return name


def op(kind, inputs, outputs, **attributes):
    outputs = outputs if isinstance(outputs, list) else [outputs]
    nodes.append(helper.make_node(kind, inputs, outputs, name=f"node{len(nodes)}", **attributes))
    return outputs[0]


def dense(x, name, n_in, n_out):
    w = weight(name + ".w", n_out, n_in, scale=(6 / (n_in + n_out)) ** 0.5)
    return op("Gemm", [x, w, weight(name + ".b", n_out, scale=0.01)], name, transB=1)


def fully_connected(arguments):
    x = "inputs"
    for i, (inputs, outputs) in enumerate(arguments.layers[:-1]):
        x = op("Sigmoid", [dense(x, f"fc{i}", inputs, outputs)], f"sigmoid{i}")
    dense(x, "logits", 2048, 26752)
    return 26752


def lstm(arguments, hidden=256, vocabulary=10000):
    # Unrolled: the gradient of ONNX Runtime's LSTM operator takes half of the step.
    length, batch = arguments.length, arguments.batch
    x = op("Gather", [weight("embedding", vocabulary, hidden, scale=0.1), "inputs"], "embedded")
    zero = constant("zero", np.zeros((batch, hidden), np.float32))
    rows = constant("rows", np.full(length, batch, np.int64))
    split_in_two = constant("two", np.array([3 * hidden, hidden]))
    split_in_three = constant("three", np.full(3, hidden, np.int64))
    for layer in "ab":
        wx = weight(layer + ".wx", 4 * hidden, hidden, scale=1 / 16)
        wh = weight(layer + ".wh", 4 * hidden, hidden, scale=1 / 16)
        x = op(
            "Gemm",
            [x, wx, weight(layer + ".b", 4 * hidden, scale=1 / 16)],
            layer + ".projected",
            transB=1,
        )
        op("Split", [x, rows], [f"{layer}.x{t}" for t in range(length)], axis=0)
        h = c = zero
        hs = []
        for t in range(length):
            n = f"{layer}{t}."
            op(
                "Split",
                [op("Gemm", [h, wh, f"{layer}.x{t}"], n + "z", transB=1), split_in_two],
                [n + "ifo", n + "g"],
                axis=1,
            )
            op(
                "Split",
                [op("Sigmoid", [n + "ifo"], n + "s"), split_in_three],
                [n + "i", n + "f", n + "o"],
                axis=1,
            )
            ig = op("Mul", [n + "i", op("Tanh", [n + "g"], n + "tg")], n + "ig")
            c = op("Add", [op("Mul", [n + "f", c], n + "fc"), ig], n + "c")
            h = op("Mul", [n + "o", op("Tanh", [c], n + "tc")], n + "h")
            hs.append(h)
        x = op("Concat", hs, layer + ".h", axis=0)
    dense(x, "logits", hidden, vocabulary)
    return vocabulary


def train(arguments, inputs, labels):
    classes = arguments.build(lstm, fully_connected)
    inputs = inputs.reshape(-1) if arguments.length else inputs
    kind = TensorProto.INT64 if arguments.length else TensorProto.FLOAT
    shapes = ("inputs", kind, inputs.shape), ("logits", TensorProto.FLOAT, (len(labels), classes))
    tensors = [[helper.make_tensor_value_info(*shape)] for shape in shapes]
    graph = helper.make_graph(nodes, arguments.network, *tensors, weights + constants)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    options = ort.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.inter_op_num_threads = 1
    spinning = "1" if arguments.threads <= len(os.sched_getaffinity(0)) else "0"
    options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            model,
            requires_grad=[w.name for w in weights],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.SGD,
            artifact_directory=folder,
        )
        del model, graph
        weights.clear()
        state = CheckpointState.load_checkpoint(folder + "/checkpoint")
        module = Module(
            folder + "/training_model.onnx", state, device="cpu", session_options=options
        )
        optimizer = Optimizer(folder + "/optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.01)
    data = [ort.OrtValue.ortvalue_from_numpy(array) for array in (inputs, labels)]

    def step():
        module(*data)
        optimizer.step()
        module.lazy_reset_grad()

    return step, None

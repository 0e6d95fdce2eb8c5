"""The six networks' training steps written by hand as ONNX graphs; MODE graph.

See `yardstick.py` for how it is called.

Every layer adds its forward nodes at once and leaves a function that adds
its backward nodes; weights are inputs and outputs of the graph, bound to two sets of buffers in turn.
"""

import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("graph")
batch = given.batch
rng = np.random.default_rng(1)
nodes, constants, weights, updates, tape = [], {}, {}, {}, []


def op(kind, *inputs, outputs=1, **attributes):
    names = [f"{kind}{len(nodes)}.{i}" for i in range(outputs)]
    nodes.append(helper.make_node(kind, inputs, names, **attributes))
    return names[0] if outputs == 1 else names


def const(value, dtype=np.int64):
    value = np.array(value, dtype)
    name = f"{value.dtype}{value.tolist()}"
    constants[name] = numpy_helper.from_array(value, name)
    return name


def weight(name, *shape, scale):
    weights[name] = rng.uniform(-scale, scale, shape).astype(np.float32)
    return name


def descend(name, gradient):
    nodes.append(helper.make_node("Sub", [name, gradient], [name + "'"]))
    updates[name] = name + "'"


def scaled(x):
    return op("Mul", x, "rate")


def reshape(x, *shape):
    return op("Reshape", x, const(shape))


def zeros(*shape):
    return op("ConstantOfShape", const(shape), value=numpy_helper.from_array(np.zeros(1, np.float32)))


def dense(x, name, n_in, n_out, first=False):
    w, b = weight(name + ".w", n_out, n_in, scale=(6 / (n_in + n_out)) ** 0.5), weight(name + ".b", n_out, scale=0.01)

    def back(dy):
        factors = (op("Gemm", scaled(dy), x, transA=1)) if n_out <= n_in else op("Gemm", dy, scaled(x), transA=1)
        descend(w, factors)
        descend(b, scaled(op("ReduceSum", dy, const([0]), keepdims=0)))
        return None if first else op("Gemm", dy, w)

    tape.append(back)
    return op("Gemm", x, w, b, transB=1)


def sigmoid(x):
    y = op("Sigmoid", x)
    tape.append(lambda dy: op("Mul", dy, op("Mul", y, op("Sub", const(1, np.float32), y))))
    return y


def backward(dy, since=0):
    while len(tape) > since:
        dy = tape.pop()(dy)
    return dy


def fcn(hidden_layers):
    sizes = [26752] + [2048] * hidden_layers + [26752]
    x = "inputs"
    for i in range(hidden_layers):
        x = sigmoid(dense(x, f"fc{i}", sizes[i], sizes[i + 1], i == 0))
    return dense(x, "last", 2048, 26752)


def layer(x, name, length, hidden, zero):
    wx, wh = (weight(f"{name}.w{k}", 4 * hidden, hidden, scale=1 / 16) for k in "xh")
    b = weight(name + ".b", 4 * hidden, scale=1 / 16)
    sums = op("Split", op("Gemm", x, wx, b, transB=1), const([batch] * length), outputs=length, axis=0)
    h, c, kept, hs = zero, zero, [], []
    for t in range(length):
        three, g = op("Split", op("Gemm", h, wh, sums[t], transB=1), const([3 * hidden, hidden]), outputs=2, axis=1)
        opened, g = op("Sigmoid", three), op("Tanh", g)
        i, f, o = op("Split", opened, const([hidden] * 3), outputs=3, axis=1)
        before, c = c, op("Add", op("Mul", f, c), op("Mul", i, g))
        tc = op("Tanh", c)
        h = op("Mul", o, tc)
        kept.append((opened, g, i, f, o, before, tc))
        hs.append(h)
    one = const(1, np.float32)

    def back(dy):
        above = op("Split", dy, const([batch] * length), outputs=length, axis=0)
        dh, dc, gates = None, None, []
        for t in reversed(range(length)):
            opened, g, i, f, o, before, tc = kept[t]
            dh = above[t] if dh is None else op("Add", dh, above[t])
            through = op("Mul", op("Mul", dh, o), op("Sub", one, op("Mul", tc, tc)))
            dc = through if dc is None else op("Add", dc, through)
            three = op("Concat", op("Mul", dc, g), op("Mul", dc, before), op("Mul", dh, tc), axis=1)
            three = op("Mul", three, op("Mul", opened, op("Sub", one, opened)))
            four = op("Concat", three, op("Mul", op("Mul", dc, i), op("Sub", one, op("Mul", g, g))), axis=1)
            gates.insert(0, four)
            if t:
                dh, dc = op("Gemm", four, wh), op("Mul", dc, f)
        dz = op("Concat", *gates, axis=0)
        descend(wh, op("Gemm", dz, scaled(op("Concat", zero, *hs[:-1], axis=0)), transA=1))
        descend(wx, op("Gemm", dz, scaled(x), transA=1))
        descend(b, scaled(op("ReduceSum", dz, const([0]), keepdims=0)))
        return op("Gemm", dz, wx)

    tape.append(back)
    return op("Concat", *hs, axis=0)


def lstm(length, hidden=256, vocabulary=10000):
    table = weight("embedding", vocabulary, hidden, scale=0.1)

    def back(dy):
        rows = op("Expand", reshape("inputs", length * batch, 1), const([length * batch, hidden]))
        dense_gradient = op("ScatterElements", zeros(vocabulary, hidden), rows, dy, axis=0, reduction="add")
        descend(table, scaled(dense_gradient))

    tape.append(back)
    zero = "zero"
    constants[zero] = numpy_helper.from_array(np.zeros((batch, hidden), np.float32), zero)
    x = op("Gather", table, "inputs")
    for name in "ab":
        x = layer(x, name, length, hidden, zero)
    return dense(x, "out", hidden, vocabulary)


logits = given.build(lstm, fcn)
inputs, labels = mini_batch(given)
inputs = inputs.reshape(-1) if given.length else inputs
rows = len(inputs)
log_p = op("LogSoftmax", logits, axis=1)
column = reshape("labels", rows, 1)
picked = op("GatherElements", log_p, column, axis=1)
nodes.append(helper.make_node("Neg", [op("ReduceMean", picked, const([0, 1]), keepdims=0)], ["loss"]))
share = op("Mul", op("Exp", log_p), const(1 / rows, np.float32))
minus = op("Expand", const(-1 / rows, np.float32), const([rows, 1]))
backward(op("ScatterElements", share, column, minus, axis=1, reduction="add"))
assert sorted(updates) == sorted(weights)

info = helper.make_tensor_value_info
kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
values = {"inputs": inputs, "labels": labels, "rate": np.array(0.01, np.float32)}
graph = helper.make_graph(
    nodes,
    given.network,
    [info(name, kinds[value.dtype], value.shape) for name, value in (values | weights).items()],
    [info("loss", TensorProto.FLOAT, [])]
    + [info(updates[name], TensorProto.FLOAT, value.shape) for name, value in weights.items()],
    list(constants.values()),
)
model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()

options = ort.SessionOptions()
options.intra_op_num_threads = given.threads
options.inter_op_num_threads = 1
if given.threads > len(os.sched_getaffinity(0)):
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
fixed = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in values.items()}
loss = ort.OrtValue.ortvalue_from_shape_and_type([], np.float32)
sets = [
    {name: ort.OrtValue.ortvalue_from_shape_and_type(list(v.shape), np.float32) for name, v in weights.items()}
    for _ in range(2)
]
for name, value in weights.items():
    sets[0][name].update_inplace(value)
weights.clear()
bindings = []
for source, target in (sets, sets[::-1]):
    binding = session.io_binding()
    for name, value in (fixed | source).items():
        binding.bind_ortvalue_input(name, value)
    for name, value in target.items():
        binding.bind_ortvalue_output(updates[name], value)
    binding.bind_ortvalue_output("loss", loss)
    bindings.append(binding)


def step():
    session.run_with_iobinding(bindings[0])
    bindings.reverse()


measure(given, step)
assert np.isfinite(loss.numpy())
os._exit(0)

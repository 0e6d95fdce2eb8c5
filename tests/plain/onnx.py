"""The six networks' training steps written by hand as ONNX graphs; MODE graph.

See `shared/yardstick.py` for how it is called.

Every layer adds its forward nodes at once and leaves a function that adds
its backward nodes; weights are inputs and outputs of the graph, bound to two sets of buffers in turn.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).with_name("shared")))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch

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


def positive(y):
    return op("Cast", op("Greater", y, const(0, np.float32)), to=TensorProto.FLOAT)


def relu(x):
    y = op("Relu", x)
    tape.append(lambda dy: op("Mul", dy, positive(y)))
    return y


def crop(x, starts, ends, step):
    return op("Slice", x, const(starts), const(ends), const([2, 3]), const([step, step]))


def swap(x):
    return op("Transpose", x, perm=[1, 0, 2, 3])


class Window(NamedTuple):
    """The numbers of a convolution: channels, side of the image, kernel, stride, padding."""

    n_in: int
    n_out: int
    size: int
    k: int
    s: int
    p: int

    @property
    def side(self):
        """Of the output."""
        return (self.size + 2 * self.p - self.k) // self.s + 1

    @property
    def rest(self):
        """Rows that no window reaches."""
        return (self.size + 2 * self.p - self.k) % self.s


def conv_weight_gradient(x, dy, window):
    n_in, n_out, size, k, s, p = window
    o = window.side
    if k * k > n_in and k > 1:  # batch and channels exchanged
        last = p - window.rest
        pads = [p, p, last, last]
        return swap(op("Conv", swap(x), swap(dy), kernel_shape=[o, o], dilations=[s, s], pads=pads))
    if k == 1 and n_in * n_out < (n_in + n_out) * o * o:
        x = crop(x, [0, 0], [size, size], s) if s > 1 else x
        columns = op("Transpose", reshape(x, batch, n_in, -1), perm=[0, 2, 1])
        each = op("MatMul", reshape(dy, batch, n_out, -1), columns)
        return reshape(op("ReduceSum", each, const([0]), keepdims=0), n_out, n_in, 1, 1)
    x, dy = swap(x), reshape(swap(dy), n_out, -1)
    if p:
        x = op("Pad", x, const([0, 0, p, p, 0, 0, p, p]))
    places = []
    for i in range(k):
        for j in range(k):
            seen = reshape(crop(x, [i, j], [i + s * (o - 1) + 1, j + s * (o - 1) + 1], s), n_in, -1)
            places.append(reshape(op("Gemm", dy, seen, transB=1), 1, n_out, n_in))
    if k == 1:
        return reshape(places[0], n_out, n_in, 1, 1)
    return op("Transpose", reshape(op("Concat", *places, axis=0), k, k, n_out, n_in), perm=[2, 3, 0, 1])


def conv(x, name, *numbers, bias=False, first=False):
    """Return the output and its side; the numbers are those of a window."""
    window = Window(*numbers)
    n_in, n_out, _, k, s, p = window
    w = weight(name + ".w", n_out, n_in, k, k, scale=(6 / (n_in * k * k)) ** 0.5)
    b = [weight(name + ".b", n_out, scale=0.01)] if bias else []

    def back(dy):
        descend(w, scaled(conv_weight_gradient(x, dy, window)))
        if bias:
            descend(b[0], scaled(op("ReduceSum", dy, const([0, 2, 3]), keepdims=0)))
        if first:
            return None
        if s == 1:
            turned = swap(w)
            turned = crop(turned, [k - 1, k - 1], [-k - 1, -k - 1], -1) if k > 1 else turned
            return op("Conv", dy, turned, kernel_shape=[k, k], pads=[k - 1 - p] * 4)
        numbers = {"kernel_shape": [k, k], "strides": [s, s], "pads": [p] * 4, "output_padding": [window.rest] * 2}
        return op("ConvTranspose", dy, w, **numbers)

    tape.append(back)
    return op("Conv", x, w, *b, kernel_shape=[k, k], strides=[s, s], pads=[p] * 4), window.side


def pool(x, channels, size, p):
    y, where = op("MaxPool", x, outputs=2, kernel_shape=[3, 3], strides=[2, 2], pads=[p] * 4)

    def back(dy):
        target = zeros(batch * channels * size * size)
        flat = op("ScatterElements", target, reshape(where, -1), reshape(dy, -1), axis=0, reduction="add")
        return reshape(flat, batch, channels, size, size)

    tape.append(back)
    return y, (size + 2 * p - 3) // 2 + 1


def norm(x, name, c, size):
    weights[name + ".gamma"], weights[name + ".beta"] = np.ones(c, np.float32), np.zeros(c, np.float32)
    axes, count = const([0, 2, 3]), const(batch * size * size, np.float32)
    centred = op("Sub", x, op("ReduceMean", x, axes, keepdims=1))
    var = op("ReduceMean", op("Mul", centred, centred), axes, keepdims=0)
    inverse = op("Reciprocal", op("Sqrt", op("Add", var, const(1e-5, np.float32))))
    inverse = reshape(inverse, c, 1, 1)

    def back(dy):
        by_beta = op("ReduceSum", dy, axes, keepdims=0)
        overlap = op("ReduceSum", op("Mul", dy, centred), axes, keepdims=0)
        by_gamma = op("Mul", reshape(overlap, c, 1, 1), inverse)
        descend(name + ".beta", scaled(by_beta))
        descend(name + ".gamma", scaled(reshape(by_gamma, c)))
        slope = op("Div", op("Mul", by_gamma, inverse), count)
        dx = op("Sub", dy, op("Mul", centred, slope))
        dx = op("Sub", dx, op("Div", reshape(by_beta, c, 1, 1), count))
        return op("Mul", dx, op("Mul", reshape(name + ".gamma", c, 1, 1), inverse))

    tape.append(back)
    none = const(np.zeros(c), np.float32)
    return op("BatchNormalization", centred, name + ".gamma", name + ".beta", none, var, epsilon=1e-5)


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


def flatten(x, channels, size):
    tape.append(lambda dy: reshape(dy, batch, channels, size, size))
    return op("Flatten", x)


def alexnet():
    x, size = conv("inputs", "conv1", 3, 96, 224, 11, 4, 2, bias=True, first=True)
    x, size = pool(relu(x), 96, size, 0)
    x, size = conv(x, "conv2", 96, 256, size, 5, 1, 2, bias=True)
    x, size = pool(relu(x), 256, size, 0)
    for i, (n_in, n_out) in enumerate([(256, 384), (384, 384), (384, 256)]):
        x, size = conv(x, f"conv{i + 3}", n_in, n_out, size, 3, 1, 1, bias=True)
        x = relu(x)
    x, size = pool(x, 256, size, 0)
    x = relu(dense(flatten(x, 256, size), "fc6", 9216, 4096))
    x = relu(dense(x, "fc7", 4096, 4096))
    return dense(x, "fc8", 4096, 1000)


def block(x, name, n_in, width, size, stride, project):
    before = len(tape)
    y, small = conv(x, name + "c1", n_in, width, size, 1, stride, 0)
    y, _ = conv(relu(norm(y, name + "n1", width, small)), name + "c2", width, width, small, 3, 1, 1)
    y, _ = conv(relu(norm(y, name + "n2", width, small)), name + "c3", width, 4 * width, small, 1, 1, 0)
    y = norm(y, name + "n3", 4 * width, small)
    body = tape[before:]
    del tape[before:]
    shortcut = x
    if project:
        shortcut, _ = conv(x, name + "p", n_in, 4 * width, size, 1, stride, 0)
        shortcut = norm(shortcut, name + "pn", 4 * width, small)
    side = tape[before:]
    del tape[before:]

    def back(dy):
        tape.extend(body)
        through = backward(dy, before)
        tape.extend(side)
        return op("Add", through, backward(dy, before))

    tape.append(back)
    return relu(op("Add", y, shortcut)), small


def resnet50():
    x, size = conv("inputs", "stem", 3, 64, 224, 7, 2, 3, first=True)
    x, size = pool(relu(norm(x, "stem.n", 64, size)), 64, size, 1)
    for number, (n_in, width, stride, project) in enumerate(BOTTLENECKS):
        x, size = block(x, f"block{number}", n_in, width, size, stride, project)
    count, shape = const(size * size, np.float32), const([batch, 2048, size, size])
    tape.append(lambda dy: op("Expand", op("Div", reshape(dy, batch, 2048, 1, 1), count), shape))
    return dense(op("Flatten", op("GlobalAveragePool", x)), "fc", 2048, 1000)


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


logits = given.build(lstm, fcn, alexnet, resnet50)
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

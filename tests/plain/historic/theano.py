"""The benchmark networks trained by hand in Theano; MODE compiled. See `../shared/yardstick.py` for how it is called.

Compiled code is kept in the folder for temporary files.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

(library,) = Path(np.__file__).parent.with_name("numpy.libs").glob("libopenblas*")
folder, file = library.parent, library.name
os.environ["THEANO_FLAGS"] = (
    f"floatX=float32,device=cpu,base_compiledir={tempfile.gettempdir()}/plain-theano,"
    f"'blas.ldflags=-L{folder} -l:{file} -Wl,-rpath,{folder}'"
)
os.environ["THEANORC"] = os.devnull

import theano  # noqa: E402
import theano.tensor as T  # noqa: E402, N812
from theano.tensor.signal.pool import pool_2d  # noqa: E402

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch  # noqa: E402

random = np.random.RandomState(1)
trained = []


def parameter(*shape, bound=0.05):
    trained.append(theano.shared(random.uniform(-bound, bound, shape).astype("float32")))
    return trained[-1]


def filled(size, value):
    trained.append(theano.shared(np.full(size, value, "float32")))
    return trained[-1]


def dense(x, inputs, outputs, activation=lambda value: value):
    return activation(T.dot(x, parameter(inputs, outputs, bound=np.sqrt(6 / (inputs + outputs)))) + filled(outputs, 0))


def conv(x, inputs, outputs, kernel, stride=1, padding=0):
    w = parameter(outputs, inputs, kernel, kernel, bound=np.sqrt(6 / (inputs * kernel**2)))
    shape = (outputs, inputs, kernel, kernel)
    return T.nnet.conv2d(x, w, None, shape, padding, (stride, stride), filter_flip=False)


def pool(x, padding=0):
    return pool_2d(x, (3, 3), True, (2, 2), (padding, padding))


def norm(x, channels, gamma=1.0):
    gamma, beta = [filled(channels, value).dimshuffle("x", 0, "x", "x") for value in (gamma, 0.0)]
    return T.nnet.bn.batch_normalization_train(x, gamma, beta, "spatial", 1.001e-5)[0]


def fully_connected(x, hidden_layers):
    x = dense(x, 26752, 2048, T.nnet.sigmoid)
    for _ in range(hidden_layers - 1):
        x = dense(x, 2048, 2048, T.nnet.sigmoid)
    return dense(x, 2048, 26752)


def alexnet(x):
    def layer(x, *numbers):
        return T.nnet.relu(conv(x, *numbers) + filled(numbers[1], 0.0).dimshuffle("x", 0, "x", "x"))

    x = pool(layer(x, 3, 96, 11, 4, 2))
    x = pool(layer(x, 96, 256, 5, 1, 2))
    x = layer(x, 256, 384, 3, 1, 1)
    x = layer(x, 384, 384, 3, 1, 1)
    x = pool(layer(x, 384, 256, 3, 1, 1)).flatten(2)
    return dense(dense(dense(x, 9216, 4096, T.nnet.relu), 4096, 4096, T.nnet.relu), 4096, 1000)


def resnet50(x):
    x = pool(T.nnet.relu(norm(conv(x, 3, 64, 7, 2, 3), 64)), 1)
    for channels, width, stride, first in BOTTLENECKS:
        y = T.nnet.relu(norm(conv(x, channels, width, 1, stride), width))
        y = T.nnet.relu(norm(conv(y, width, width, 3, 1, 1), width))
        y = norm(conv(y, width, 4 * width, 1), 4 * width, 0.2)
        if first:
            x = norm(conv(x, channels, 4 * width, 1, stride), 4 * width)
        x = T.nnet.relu(y + x)
    return dense(x.mean((2, 3)), 2048, 1000)


def lstm(x, length, batch):
    def layer(x):
        w, u, b = parameter(256, 1024), parameter(256, 1024), filled(1024, 0.0)

        def advance(x, h, c, u):
            z = x + T.dot(h, u)
            i, f, g, o = (z[:, k * 256 : (k + 1) * 256] for k in range(4))
            c = T.nnet.sigmoid(f) * c + T.nnet.sigmoid(i) * T.tanh(g)
            return T.nnet.sigmoid(o) * T.tanh(c), c

        zero = T.zeros((batch, 256), dtype="float32")
        x = (T.dot(x, w) + b).reshape((length, batch, 1024))
        (h, _), _ = theano.scan(advance, [x], [zero, zero], [u], length, strict=True)
        return h.reshape((length * batch, 256))

    return dense(layer(layer(parameter(10000, 256)[x])), 256, 10000)


def main():
    given = arguments("compiled")
    x, y = mini_batch(given)
    x, y = theano.shared(x.reshape(-1).astype("int32") if given.length else x), theano.shared(y.astype("int32"))
    if given.length:
        logits = lstm(x, given.length, given.batch)
    elif given.hidden:
        logits = fully_connected(x, given.hidden)
    else:
        logits = {"alexnet": alexnet, "resnet50": resnet50}[given.network](x)
    loss = T.nnet.categorical_crossentropy(T.nnet.softmax(logits), y).mean()
    updates = [(p, p - np.float32(0.01) * g) for p, g in zip(trained, T.grad(loss, trained))]  # noqa: B905
    measure(given, theano.function([], loss, updates=updates))


if __name__ == "__main__":
    main()

"""The benchmark networks trained by hand in Theano; MODE compiled. See `yardstick.py` for how it is called.

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

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch  # noqa: E402

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


def fully_connected(x, hidden_layers):
    x = dense(x, 26752, 2048, T.nnet.sigmoid)
    for _ in range(hidden_layers - 1):
        x = dense(x, 2048, 2048, T.nnet.sigmoid)
    return dense(x, 2048, 26752)


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
    logits = lstm(x, given.length, given.batch) if given.length else fully_connected(x, given.hidden)
    loss = T.nnet.categorical_crossentropy(T.nnet.softmax(logits), y).mean()
    updates = [(p, p - np.float32(0.01) * g) for p, g in zip(trained, T.grad(loss, trained))]  # noqa: B905
    measure(given, theano.function([], loss, updates=updates))


if __name__ == "__main__":
    main()

"""The benchmark networks trained by hand in CNTK's layers library; MODE graph.

See `yardstick.py` for how it is called.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("graph")
processor = Path("/proc/cpuinfo").read_text()
if "GenuineIntel" not in processor:
    os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if "avx512vl" in processor else "5"

import cntk as C  # noqa: E402, N812 - as its manuals have it

C.cntk_py.set_max_num_cputhreads(given.threads)


def fully_connected(hidden_layers):
    hidden = C.layers.For(range(hidden_layers), lambda: C.layers.Dense(2048, C.sigmoid))
    return C.layers.Sequential([hidden, C.layers.Dense(26752)])


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
        size = 26752
        x, y = C.input_variable(inputs.shape[1:]), C.input_variable(size, is_sparse=True)
        data = {x: C.Value(inputs), y: C.Value.one_hot(labels.tolist(), size)}
        z = fully_connected(given.hidden)(x)
    loss = C.cross_entropy_with_softmax(z, y)
    trainer = C.Trainer(z, (loss, None), [C.sgd(z.parameters, C.learning_parameter_schedule(0.01))])
    measure(given, lambda: trainer.train_minibatch(data))


main()

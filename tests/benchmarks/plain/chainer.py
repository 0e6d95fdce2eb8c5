"""The benchmark networks trained by hand in Chainer; MODE ideep or numpy.

See `yardstick.py` for how it is called.
"""

import sys
from pathlib import Path

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch


class FullyConnected(chainer.Chain):
    def __init__(self, hidden_layers):
        super().__init__()
        sizes = [26752] + [2048] * hidden_layers + [26752]
        with self.init_scope():
            self.layers = chainer.ChainList(*(L.Linear(a, b) for a, b in zip(sizes, sizes[1:])))  # noqa: B905, RUF007 - Python 3.7

    def forward(self, x):
        for layer in list(self.layers)[:-1]:
            x = F.sigmoid(layer(x))
        return self.layers[-1](x)


class LanguageModel(chainer.Chain):
    def __init__(self, length):
        super().__init__()
        self.length = length
        with self.init_scope():
            self.embed = L.EmbedID(10000, 256)
            self.lstm1 = L.StatelessLSTM(256, 256)
            self.lstm2 = L.StatelessLSTM(256, 256)
            self.decoder = L.Linear(256, 10000)

    def layer(self, cell, x):
        # The link computes upward(x) at each step; all steps' at once is the same product, only larger.
        upward, outputs, c = F.split_axis(cell.upward(x), self.length, 0), [], None
        for step in upward:
            if outputs:
                step = step + cell.lateral(outputs[-1])
            else:
                c = np.zeros((len(step), 256), "float32")
            c, h = F.lstm(c, step)
            outputs.append(h)
        return F.concat(outputs, 0)

    def forward(self, x):
        return self.decoder(self.layer(self.lstm2, self.layer(self.lstm1, self.embed(x))))


def main():
    given = arguments("ideep", "numpy")
    x, y = mini_batch(given)
    y = y.astype("int32")
    net = given.build(LanguageModel, FullyConnected)
    x = x.reshape(-1).astype("int32") if given.length else x
    if given.mode == "ideep":
        chainer.config.use_ideep = "auto"
        net.to_intel64()
    optimizer = chainer.optimizers.SGD(0.01).setup(net)

    def step():
        loss = F.softmax_cross_entropy(net(x), y)
        net.cleargrads()
        loss.backward()
        optimizer.update()

    measure(given, step)


if __name__ == "__main__":
    main()

"""The benchmark networks trained by hand in Chainer; MODE ideep or numpy.

See `../shared/yardstick.py` for how it is called.
"""

import sys
from pathlib import Path

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch


def pool(x, padding=0):
    return F.max_pooling_2d(x, 3, 2, padding, cover_all=False)


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


class AlexNet(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 96, 11, 4, 2)
            self.conv2 = L.Convolution2D(96, 256, 5, pad=2)
            self.conv3 = L.Convolution2D(256, 384, 3, pad=1)
            self.conv4 = L.Convolution2D(384, 384, 3, pad=1)
            self.conv5 = L.Convolution2D(384, 256, 3, pad=1)
            self.fc6 = L.Linear(9216, 4096)
            self.fc7 = L.Linear(4096, 4096)
            self.fc8 = L.Linear(4096, 1000)

    def forward(self, x):
        x = pool(F.relu(self.conv1(x)))
        x = pool(F.relu(self.conv2(x)))
        x = F.relu(self.conv4(F.relu(self.conv3(x))))
        x = pool(F.relu(self.conv5(x)))
        return self.fc8(F.relu(self.fc7(F.relu(self.fc6(x)))))


class Bottleneck(chainer.Chain):
    def __init__(self, channels, width, stride, project):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(channels, width, 1, stride, nobias=True)
            self.bn1 = L.BatchNormalization(width, eps=1e-5)
            self.conv2 = L.Convolution2D(width, width, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(width, eps=1e-5)
            self.conv3 = L.Convolution2D(width, 4 * width, 1, nobias=True)
            self.bn3 = L.BatchNormalization(4 * width, eps=1e-5, initial_gamma=0.2)
            if project:
                self.conv4 = L.Convolution2D(channels, 4 * width, 1, stride, nobias=True)
                self.bn4 = L.BatchNormalization(4 * width, eps=1e-5)
        self.project = project

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (self.bn4(self.conv4(x)) if self.project else x))


class ResNet50(chainer.Chain):
    def __init__(self):
        super().__init__()
        blocks = [Bottleneck(*numbers) for numbers in BOTTLENECKS]
        with self.init_scope():
            self.conv = L.Convolution2D(3, 64, 7, 2, 3, nobias=True)
            self.bn = L.BatchNormalization(64, eps=1e-5)
            self.blocks = chainer.Sequential(*blocks)
            self.fc = L.Linear(2048, 1000)

    def forward(self, x):
        x = self.blocks(pool(F.relu(self.bn(self.conv(x))), 1))
        return self.fc(F.average_pooling_2d(x, 7))


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
    net = given.build(LanguageModel, FullyConnected, AlexNet, ResNet50)
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

"""The benchmark networks in MXNet."""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

MODES = ("hybrid",)


def fully_connected(arguments):
    net = nn.HybridSequential()
    for inputs, outputs in arguments.layers[:-1]:
        net.add(nn.Dense(outputs, activation="sigmoid", in_units=inputs))
    net.add(nn.Dense(26752, in_units=2048))
    return net


class LanguageModel(gluon.HybridBlock):
    def __init__(self, arguments):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = rnn.LSTM(256, 2, input_size=256)
        for layer in range(2):
            getattr(self.lstm, f"l{layer}_h2h_bias").grad_req = "null"
        self.decoder = nn.Dense(10000, flatten=False, in_units=256)

    def hybrid_forward(self, F, tokens):  # noqa: N803
        return self.decoder(F.reshape(self.lstm(self.embedding(tokens)), shape=(-1, 256)))


class WithLoss(gluon.HybridBlock):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def hybrid_forward(self, F, x, y):  # noqa: N803
        return F.mean(-F.pick(F.log_softmax(self.net(x)), y))


def train(arguments, x, y):
    model = WithLoss(arguments.build(LanguageModel, fully_connected))
    model.initialize(mx.init.Xavier())
    model.hybridize(static_alloc=True, static_shape=True)
    x, y = mx.nd.array(x), mx.nd.array(y)
    model(x, y)  # deferred shapes
    trained = [p for p in model.collect_params().values() if p.grad_req != "null"]
    pairs = [(p.data(), p.grad()) for p in trained]

    def step():
        with autograd.record():
            loss = model(x, y)
        loss.backward()
        for weight, gradient in pairs:
            mx.nd.sgd_update(weight, gradient, out=weight, lr=0.01)

    return step, mx.nd.waitall

"""fcn5, fcn8, lstm32 and lstm64 in tinygrad. CPU_COUNT must be THREADS, and DEV must be CPU."""

import numpy as np
from tinygrad import Device, Tensor, TinyJit, nn

MODES = ("jit",)


class FullyConnected:
    def __init__(self, arguments):
        self.layers = [nn.Linear(a, b) for a, b in arguments.layers]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = layer(x).sigmoid()
        return self.layers[-1](x)


class LanguageModel:
    def __init__(self, arguments):
        self.length = arguments.length
        self.embed = nn.Embedding(10000, 256)
        self.cells = [nn.LSTMCell(256, 256) for _ in range(2)]
        for cell in self.cells:
            cell.bias_hh = None  # one bias a gate
        self.decoder = nn.Linear(256, 10000)

    def __call__(self, tokens):
        embedded = self.embed(tokens).contiguous()
        values = [embedded[step] for step in range(self.length)]
        for cell in self.cells:
            state, outputs = None, []
            for value in values:
                state = tuple(
                    part.contiguous().contiguous_backward() for part in cell(value, state)
                )
                outputs.append(state[0])
            values = outputs
        return self.decoder(values[0].stack(*values[1:]).reshape(-1, 256))


def train(arguments, x, y):
    model = arguments.build(LanguageModel, FullyConnected)
    x, y = [
        Tensor(tensor.astype(np.int32) if tensor.dtype.kind == "i" else tensor).realize()
        for tensor in (x, y)
    ]
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.01)

    @TinyJit
    @Tensor.train()
    def step():
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    return step, Device[Device.DEFAULT].synchronize

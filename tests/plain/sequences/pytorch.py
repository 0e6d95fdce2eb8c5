"""Networks over sequences trained by hand in PyTorch, MODE eager: see `networks.py` for which."""

import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812

sys.path.append(str(Path(__file__).parents[1] / "shared"))
sys.path.append(str(Path(__file__).parent))
from networks import ELMAN, GPT, GRU, data
from yardstick import arguments, measure


class Elman(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(ELMAN.inputs, ELMAN.hidden, nonlinearity="relu")
        self.rnn.bias_hh_l0.requires_grad_(False).zero_()
        self.out = nn.Linear(ELMAN.hidden, ELMAN.outputs)

    def forward(self, x, y):
        return F.mse_loss(self.out(self.rnn(x)[0]), y)


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(GRU.inputs, GRU.hidden)
        self.out = nn.Linear(GRU.hidden, GRU.outputs)

    def forward(self, x, y):
        return F.cross_entropy(self.out(self.gru(x)[0]).flatten(0, 1), y.flatten())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        width = GPT.hidden
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, steps, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, steps, 3, GPT.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, steps, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(GPT.inputs, GPT.hidden), nn.Embedding(GPT.steps, GPT.hidden)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(GPT.hidden), nn.Linear(GPT.hidden, GPT.outputs)

    def forward(self, x, y):
        x = self.blocks(self.words(x) + self.places.weight)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), y.flatten())


given = arguments("eager")
torch.set_num_threads(given.threads)
torch.set_num_interop_threads(1)
model = {ELMAN.name: Elman, GRU.name: Gru, GPT.name: Gpt}[given.network]()
parameters = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(parameters, lr=0.01, fused=True)
x, y = map(torch.from_numpy, data(given))


def step():
    optimizer.zero_grad(set_to_none=True)
    model(x, y).backward()
    if given.network == ELMAN.name:
        nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


measure(given, step)

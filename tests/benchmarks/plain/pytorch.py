"""The benchmark networks in PyTorch; on a GPU in float32 without TF32."""

import itertools
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812

MODES = "eager", "compile"
#: Inputs, width and stride of ResNet-50's blocks, in order.
BOTTLENECKS = []
for inputs, width, count, stride in (
    (64, 64, 3, 1),
    (256, 128, 4, 2),
    (512, 256, 6, 2),
    (1024, 512, 3, 2),
):
    BOTTLENECKS.append((inputs, width, stride))
    BOTTLENECKS += [(4 * width, width, 1)] * (count - 1)


def fully_connected(arguments):
    layers = [
        layer
        for inputs, outputs in arguments.layers
        for layer in (nn.Linear(inputs, outputs), nn.Sigmoid())
    ]
    return nn.Sequential(*layers[:-1])


def alexnet():
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, 1, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(True),
        nn.Conv2d(384, 384, 3, 1, 1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(9216, 4096), nn.ReLU(True),
        nn.Linear(4096, 4096), nn.ReLU(True),
        nn.Linear(4096, 1000),
    )  # fmt: skip


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.down = None
        if stride != 1 or inputs != 4 * width:
            self.down = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.down is None else self.down(x)
        return F.relu(y, inplace=True)


def resnet50():
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
    ]
    layers += [Bottleneck(*numbers) for numbers in BOTTLENECKS]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def pictures():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(True), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1568, 64), nn.ReLU(True),
        nn.Linear(64, 10),
    )  # fmt: skip


def mlp():
    return nn.Sequential(
        nn.Linear(784, 1024),
        nn.ReLU(True),
        nn.Linear(1024, 1024),
        nn.ReLU(True),
        nn.Linear(1024, 10),
    )


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 1).float()

    @staticmethod
    def backward(ctx, ds):
        (v,) = ctx.saved_tensors
        return ds / (1 + 10 * (v - 1).abs()) ** 2


class Spiking(nn.Module):
    def __init__(self, units, inputs, outputs):
        super().__init__()
        self.inward = nn.Linear(inputs, units)
        self.recurrent = nn.Linear(units, units, bias=False)
        self.out = nn.Linear(units, outputs)

    def forward(self, x):
        currents = self.inward(x)
        v = s = torch.zeros_like(currents[0])
        rate = 0
        for current in currents:
            v = 0.9 * v * (1 - s.detach()) + current + self.recurrent(s)
            s = Spike.apply(v)
            rate = rate + s
        return self.out(rate / len(x))


class LanguageModel(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2)
        self.out = nn.Linear(256, 10000)
        for layer in range(2):
            bias = getattr(self.lstm, f"bias_hh_l{layer}")
            bias.requires_grad_(False).zero_()

    def forward(self, tokens):
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.out(hidden.flatten(0, 1))


def compiled_step(model, x, y, parameters):
    """Return a step as one compiled function."""
    torch._dynamo.config.trace_autograd_ops = True
    torch._dynamo.config.allow_rnn = True
    rate = torch.tensor(0.01, device=x.device)

    @torch.compile(fullgraph=True, dynamic=False)
    def compiled(x, y, rate):
        loss = F.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                p.sub_(rate * g)
        return loss.detach()

    return lambda: compiled(x, y, rate)


def eager_step(model, x, y, parameters, rate=0.01):
    """Return a step operation by operation."""
    optimizer = torch.optim.SGD(parameters, lr=rate, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def boltzmann(arguments, u, x):
    """Return a sweep over the chains of a machine with random weights."""
    if arguments.mode != "eager":
        raise SystemExit("this script samples in eager mode only")
    d, half = arguments.units, arguments.units // 2
    bound = (3 / d) ** 0.5
    b, activity = torch.empty(d, 1).uniform_(-0.1, 0.1), torch.zeros(d)
    if arguments.network.endswith("bipartite"):
        w = torch.empty(half, d - half).uniform_(-bound, bound)

        @torch.no_grad()
        def sweep():
            p = torch.sigmoid(torch.addmm(b[:half], w, x[half:]))
            x[:half] = u[:half] < p
            q = torch.sigmoid(torch.addmm(b[half:], w.T, x[:half]))
            x[half:] = u[half:] < q
            mean = torch.cat([p, q]).mean(1)
            activity.add_(mean)
            return mean.mean()

        return sweep
    w = torch.empty(d, d).uniform_(-bound, bound).tril_(-1)
    w = w + w.T
    z, p = w @ x + b, torch.empty_like(x)
    rows = list(zip(*(tensor.unbind() for tensor in (z, p, u, x, w)), strict=True))

    @torch.no_grad()
    def sweep():
        for z_k, p_k, u_k, x_k, w_k in rows:
            torch.sigmoid(z_k, out=p_k)
            new = (u_k < p_k).float()
            z.addr_(w_k, new - x_k)
            x_k.copy_(new)
        mean = p.mean(1)
        activity.add_(mean)
        return mean.mean()

    return sweep


class Pictures(torch.utils.data.Dataset):
    """Mini-batches of 8-bit pictures in a file, channels last, which repeat without end."""

    def __init__(self, batch, labels, count=64):
        self.size, self.labels, self.count = (batch, 64, 64, 3), labels, count
        random = np.random.RandomState(2)
        with open("pictures", "wb") as file:  # noqa: PTH123
            for _ in range(count):
                file.write(random.bytes(int(np.prod(self.size))))
        self.file = os.open("pictures", os.O_RDONLY)

    def __getitem__(self, number):
        length = int(np.prod(self.size))
        record = os.pread(self.file, length, number % self.count * length)
        pixels = torch.frombuffer(bytearray(record), dtype=torch.uint8).view(self.size)
        return pixels.permute(0, 3, 1, 2).float().sub_(128).div_(128), self.labels


def loading_step(model, workers, labels, parameters):
    """Return an eager step on the next mini-batch of a loader with so many processes."""
    pictures = Pictures(len(labels), labels)
    batches = iter(
        torch.utils.data.DataLoader(pictures, None, sampler=itertools.count(), num_workers=workers)
    )
    optimizer = torch.optim.SGD(parameters, lr=0.01, fused=True)

    def step():
        x, y = next(batches)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def workers_steps(arguments, model, x, y, parameters):
    """Fork a second worker; return a sample's steps, each on a half of the mini-batch.

    Local steps end with the mean of both workers' parameters. Asynchronous workers share them, and
    change them without a lock at half the rate, as PyTorch's example of Hogwild does.
    """
    shared = arguments.sync == "async"
    if shared:
        model.share_memory()
    rank = int(os.fork() == 0)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=Path("meeting").resolve().as_uri(), rank=rank, world_size=2
    )
    half = slice(rank * arguments.batch // 2, (rank + 1) * arguments.batch // 2)
    step = eager_step(model, x[half], y[half], parameters, 0.005 if shared else 0.01)

    @torch.no_grad()
    def mean():
        flat = nn.utils.parameters_to_vector(parameters)
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat.div_(2), parameters)

    def sample():
        for _ in range(arguments.steps):
            step()
        dist.barrier() if shared else mean()

    return sample


def built(arguments, x):
    """Return the network, and its inputs in the order that suits it."""
    convolutional = {"alexnet": alexnet, "resnet50": resnet50, "pictures": pictures}.get(
        arguments.network
    )
    if convolutional:
        model = convolutional().to(memory_format=torch.channels_last)
        return model, x.contiguous(memory_format=torch.channels_last)
    if arguments.network == "mlp":
        return mlp(), x
    if arguments.spiking:
        units, _, inputs, outputs = arguments.spiking
        return Spiking(units, inputs, outputs), x
    return arguments.build(LanguageModel, fully_connected), x


def infer(arguments, x):
    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    model, x = built(arguments, torch.from_numpy(x))
    model.eval()

    @torch.inference_mode()
    def answer():
        return model(x)

    return answer, None


def train(arguments, x, y):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if arguments.units:
        return boltzmann(arguments, x, y), None
    model, x = built(arguments, x)
    model, x, y = [moved.to(arguments.device) for moved in (model, x, y)]
    parameters = [p for p in model.parameters() if p.requires_grad]
    if arguments.loader_workers:
        return loading_step(model, arguments.loader_workers, y, parameters), None
    if arguments.steps > 1:
        return workers_steps(arguments, model, x, y, parameters), None
    make_step = compiled_step if arguments.mode == "compile" else eager_step
    step = make_step(model, x, y, parameters)
    return step, None if arguments.device == "cpu" else torch.cuda.synchronize

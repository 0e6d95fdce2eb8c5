"""The benchmark networks in PyTorch; on a GPU in float32 without TF32."""

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812

MODES = "eager", "onednn", "compile"
#: Inputs, width and stride of ResNet-50's blocks, in order.
BOTTLENECKS = [
    (4 * width if index else inputs, width, 1 if index else stride)
    for inputs, width, count, stride in ((64, 64, 3, 1), (256, 128, 4, 2), (512, 256, 6, 2), (1024, 512, 3, 2))
    for index in range(count)
]


class OneDNNFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return torch.ops.mkldnn._linear_pointwise(x, w, b, "none", [], "")

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.ops.mkldnn._linear_pointwise(dy, w.t(), None, "none", [], "")
        dw = torch.ops.mkldnn._linear_pointwise(dy.t(), x.t(), None, "none", [], "")
        return dx, dw, dy.sum(0)


class OneDNNLinear(nn.Linear):
    def forward(self, x):
        return OneDNNFunction.apply(x, self.weight, self.bias)


def fully_connected(given, linear):
    layers = [layer for inputs, outputs in given.layers for layer in (linear(inputs, outputs), nn.Sigmoid())]
    return nn.Sequential(*layers[:-1])


def alexnet(linear):
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, 1, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(True),
        nn.Conv2d(384, 384, 3, 1, 1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Flatten(),
        linear(9216, 4096), nn.ReLU(True),
        linear(4096, 4096), nn.ReLU(True),
        linear(4096, 1000),
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
            self.down = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.down is None else self.down(x)
        return F.relu(y, inplace=True)


def resnet50(linear):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    layers += [Bottleneck(*numbers) for numbers in BOTTLENECKS]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(2048, 1000))


class LanguageModel(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2)
        self.out = linear(256, 10000)
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


def eager_step(model, x, y, parameters):
    """Return a step operation by operation."""
    optimizer = torch.optim.SGD(parameters, lr=0.01, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def boltzmann(given, u, x):
    """Return a sweep over the chains of a machine with random weights."""
    if given.mode != "eager":
        raise SystemExit("this script samples in eager mode only")
    d, half = given.units, given.units // 2
    bound = (3 / d) ** 0.5
    b, activity = torch.empty(d, 1).uniform_(-0.1, 0.1), torch.zeros(d)
    if given.network.endswith("bipartite"):
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
    rows = list(zip(*(each.unbind() for each in (z, p, u, x, w)), strict=True))

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


def train(given, x, y):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(given.threads)
    torch.set_num_interop_threads(1)
    linear = OneDNNLinear if given.mode == "onednn" else nn.Linear
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if given.units:
        return boltzmann(given, x, y), None
    convolutional = {"alexnet": alexnet, "resnet50": resnet50}.get(given.network)
    if convolutional:
        model = convolutional(linear).to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    else:
        model = given.build(lambda given: LanguageModel(linear), lambda given: fully_connected(given, linear))
    model, x, y = [each.to(given.device) for each in (model, x, y)]
    parameters = [p for p in model.parameters() if p.requires_grad]
    step = (compiled_step if given.mode == "compile" else eager_step)(model, x, y, parameters)
    return step, None if given.device == "cpu" else torch.cuda.synchronize

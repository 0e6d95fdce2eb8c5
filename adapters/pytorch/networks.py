"""The specifications of ``adapters/networks.py`` as PyTorch modules.

PyTorch's own layouts are the canonical ones (dense weight (outputs, inputs), convolution weight (outputs,
inputs, height, width), LSTM gates input, forget, cell, output), so converting is naming: ``build`` returns,
beside the module, its trainable tensors by canonical name.
"""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..families import Attention, Bottleneck, Chain, Convolution, Dense, Elman, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..networks import Network

# Fully connected layers whose matrix products are oneDNN's instead of MKL's.
#
# PyTorch hands float32 matrix products to MKL. On the AMD processor tried, oneDNN, which PyTorch carries along for
# convolutions, multiplies twice as fast. No public switch exchanges the two, so this layer calls the operator that
# PyTorch's own compiler emits for frozen inference, and adds the gradient that it lacks. It is a mode of its own,
# because it is not what a program gets that only says ``nn.Linear``.


def onednn_refusal() -> str:
    """Return why this build of PyTorch does not have oneDNN's product; empty where it has."""
    if not torch.backends.mkldnn.is_available():
        return "this build of PyTorch has no oneDNN"
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "this version of PyTorch has no operator mkldnn::_linear_pointwise"
    return ""


def onednn_product(left: torch.Tensor, right: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Return ``left @ right.T + bias`` for left (m, k), right (n, k) of any strides, bias (n,)."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


class _OneDnnProduct(torch.autograd.Function):
    """``inputs @ weight.T + bias`` and its gradients, each one product of oneDNN."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(inputs, weight)
        return onednn_product(inputs, weight, bias)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Tuple[Optional[torch.Tensor], torch.Tensor, torch.Tensor]:
        inputs, weight = context.saved_tensors
        by_inputs = onednn_product(gradient, weight.t()) if context.needs_input_grad[0] else None
        return by_inputs, onednn_product(gradient.t(), inputs.t()), gradient.sum(0)


class OneDnnDense(nn.Linear):
    """A fully connected layer computed by oneDNN."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (batch, inputs), or more dimensions before the last, to as many with the outputs in the last."""
        if inputs.dim() == 2:
            return _OneDnnProduct.apply(inputs, self.weight, self.bias)
        found = _OneDnnProduct.apply(inputs.reshape(-1, inputs.shape[-1]), self.weight, self.bias)
        return found.reshape(inputs.shape[:-1] + found.shape[-1:])


def onednn_dense(inputs: int, outputs: int) -> nn.Linear:
    """Return a fully connected layer computed by oneDNN, its weights not yet set."""
    return nn.utils.skip_init(OneDnnDense, inputs, outputs)


#: What nn.RNN knows.
FUSED = ("tanh", "relu")
PHI = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
#: Beyond so many steps the graph of an unrolled loop takes minutes to compile.
MOST_COMPILED_STEPS = 50


def loops(family: Elman, asked: bool) -> bool:
    """Tell whether the recurrence is a loop in Python: because it is asked for, or nn.RNN has no such layer."""
    return asked or family.activation not in FUSED or family.alpha != 1.0


def refuses_to_compile(family: Elman) -> str:
    """Return why a loop over the steps is not compiled; empty where it is."""
    if family.steps <= MOST_COMPILED_STEPS:
        return ""
    return "torch.compile unrolls the loop over %d steps, and beyond %d that takes minutes" % (
        family.steps,
        MOST_COMPILED_STEPS,
    )


class Looped(nn.Module):
    """A recurrent layer step by step: (steps, batch, inputs) to (steps, batch, hidden) from a zero state."""

    def __init__(self, family: Elman) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(family.hidden, family.inputs))
        self.hidden_weight = nn.Parameter(torch.empty(family.hidden, family.hidden))
        self.bias = nn.Parameter(torch.empty(family.hidden))
        self.phi = PHI[family.activation]
        self.alpha = family.alpha

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the states of all steps."""
        shares = nn.functional.linear(inputs, self.input_weight, self.bias)
        turned = self.hidden_weight.t()
        state = shares.new_zeros(shares.shape[1:])
        states = []
        for share in shares.unbind():
            found = self.phi(torch.addmm(share, state, turned))
            state = found if self.alpha == 1.0 else torch.lerp(state, found, self.alpha)
            states.append(state)
        return torch.stack(states)


class _ElmanNetwork(nn.Module):
    """A recurrent layer and dense outputs: (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, layer: nn.Module, dense: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.dense = dense

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states = self.layer(inputs)
        return self.dense((states if isinstance(states, torch.Tensor) else states[0]).flatten(0, 1))


def _elman(
    family: Elman, dense: Callable[[int, int], nn.Linear], loop: bool
) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    """Return the network and its parameters by canonical name."""
    layer: nn.Module
    if loops(family, loop):
        layer = Looped(family)
        found = [layer.input_weight, layer.hidden_weight, layer.bias]
    else:
        layer = nn.RNN(family.inputs, family.hidden, nonlinearity=family.activation)
        found = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0]
        # PyTorch has two biases; training both would double the bias's learning rate.
        layer.bias_hh_l0.requires_grad_(False).zero_()
    last = dense(family.hidden, family.outputs)
    names = ("rnn.input_weight", "rnn.hidden_weight", "rnn.bias", "out.weight", "out.bias")
    return _ElmanNetwork(layer, last), dict(zip(names, [*found, last.weight, last.bias]))


MakeDense = Callable[[int, int], nn.Linear]


class _AttentionLayer(nn.Module):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, family: Attention, dense: MakeDense) -> None:
        super().__init__()
        self.heads = family.heads
        self.norm1 = nn.LayerNorm(family.width, family.epsilon)
        self.qkv = dense(family.width, 3 * family.width)
        self.project = dense(family.width, family.width)
        self.norm2 = nn.LayerNorm(family.width, family.epsilon)
        self.upper = dense(family.width, family.feedforward)
        self.lower = dense(family.feedforward, family.width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(values)).chunk(3, dim=-1)
        query, key, value = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.project(mixed.transpose(1, 2).flatten(2))
        raised = functional.gelu(self.upper(self.norm2(values)), approximate="tanh")
        return values + self.lower(raised)


class _Transformer(nn.Module):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, family: Attention, dense: MakeDense) -> None:
        super().__init__()
        self.embedding = nn.utils.skip_init(nn.Embedding, family.vocabulary, family.width)
        self.position = nn.utils.skip_init(nn.Embedding, family.steps, family.width)
        self.layers = nn.ModuleList([_AttentionLayer(family, dense) for _ in range(family.layers)])
        self.norm = nn.LayerNorm(family.width, family.epsilon)
        self.dense = dense(family.width, family.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens) + self.position.weight
        for layer in self.layers:
            values = layer(values)
        return self.dense(self.norm(values).flatten(0, 1))


def _attention(family: Attention, dense: MakeDense) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    """Return the network and its parameters by canonical name."""
    network = _Transformer(family, dense)
    found = {"embedding.weight": network.embedding.weight, "position.weight": network.position.weight}
    named: List[Tuple[str, nn.Module]] = [("norm", network.norm), ("fc", network.dense)]
    for number, layer in enumerate(network.layers, 1):
        named += [("layer%d.%s" % (number, name), part) for name, part in layer.named_children()]
    for name, part in named:
        first, second = ("gamma", "beta") if isinstance(part, nn.LayerNorm) else ("weight", "bias")
        found["%s.%s" % (name, first)], found["%s.%s" % (name, second)] = part.weight, part.bias
    return network, found


class Built(NamedTuple):
    """A module from inputs to logits, and where each canonical parameter lies in it."""

    module: nn.Module
    parameters: Dict[str, nn.Parameter]


def plain_dense(inputs: int, outputs: int) -> nn.Linear:
    """Return PyTorch's own fully connected layer, its weights not yet set."""
    return nn.utils.skip_init(nn.Linear, inputs, outputs)


def _activation(name: str) -> List[nn.Module]:
    if name == "none":
        return []
    if name == "relu":
        # In place: the convolution's backward pass does not need its own output.
        return [nn.ReLU(inplace=True)]
    if name == "sigmoid":
        return [nn.Sigmoid()]
    if name == "tanh":
        return [nn.Tanh()]
    raise ValueError("no activation is named %r" % name)


def _feedforward(family: Chain, dense: MakeDense) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    modules: List[nn.Module] = []
    found = {}
    for layer in family.layers:
        if isinstance(layer, Dense):
            made = dense(layer.inputs, layer.outputs)
        elif isinstance(layer, Convolution):
            made = nn.utils.skip_init(
                nn.Conv2d,
                layer.in_channels,
                layer.out_channels,
                layer.kernel,
                stride=layer.stride,
                padding=layer.padding,
            )
        elif isinstance(layer, MaxPool):
            modules.append(nn.MaxPool2d(layer.kernel, layer.stride, layer.padding))
            continue
        elif isinstance(layer, Flatten):
            modules.append(nn.Flatten())
            continue
        else:
            raise TypeError("no PyTorch layer for %r" % (layer,))
        found[layer.name + ".weight"] = made.weight
        found[layer.name + ".bias"] = made.bias
        modules.append(made)
        modules += _activation(layer.activation)
    return nn.Sequential(*modules), found


class _ConvolutionNorm(nn.Sequential):
    """A convolution without bias and its batch normalisation, which keeps running statistics as any training does."""

    def __init__(self, spec: NormalisedConvolution, epsilon: float) -> None:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride, spec.padding
        super().__init__(nn.utils.skip_init(nn.Conv2d, *sizes, bias=False), nn.BatchNorm2d(spec.outputs, eps=epsilon))

    def named(self, spec: NormalisedConvolution) -> Dict[str, nn.Parameter]:
        norm = self[1]
        return {
            spec.name + ".weight": self[0].weight,
            spec.norm + ".gamma": norm.weight,
            spec.norm + ".beta": norm.bias,
        }


class _Block(nn.Module):
    """One bottleneck: ``relu(norm(1x1(relu(norm(3x3(relu(norm(1x1(x)))))))) + shortcut(x))``."""

    def __init__(self, block: Bottleneck, epsilon: float) -> None:
        super().__init__()
        self.reduce, self.middle, self.expand = [_ConvolutionNorm(each, epsilon) for each in block.body]
        self.project = None if block.shortcut is None else _ConvolutionNorm(block.shortcut, epsilon)
        self.relu = nn.ReLU(inplace=True)

    def named(self, block: Bottleneck) -> Dict[str, nn.Parameter]:
        found = {}
        for part, spec in zip((self.reduce, self.middle, self.expand), block.body):
            found.update(part.named(spec))
        if self.project is not None and block.shortcut is not None:
            found.update(self.project.named(block.shortcut))
        return found

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        shortcut = inputs if self.project is None else self.project(inputs)
        hidden = self.relu(self.reduce(inputs))
        hidden = self.relu(self.middle(hidden))
        hidden = self.expand(hidden)
        hidden += shortcut
        return self.relu(hidden)


def _residual(family: Residual, dense: MakeDense) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    stem = _ConvolutionNorm(family.stem, family.epsilon)
    found = stem.named(family.stem)
    modules: List[nn.Module] = [stem, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for block in family.bottlenecks:
        made = _Block(block, family.epsilon)
        found.update(made.named(block))
        modules.append(made)
    last = dense(family.features, family.classes)
    found["fc.weight"] = last.weight
    found["fc.bias"] = last.bias
    modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), last]
    return nn.Sequential(*modules), found


CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class _LanguageModel(nn.Module):
    """Symbols, stacked recurrent layers, dense. Time-major, to logits (steps * batch, vocabulary).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, vocabulary).
    """

    def __init__(self, family: Recurrent, dense: MakeDense) -> None:
        super().__init__()
        self.embedding: nn.Module = nn.Identity()
        if family.embedding:
            self.embedding = nn.utils.skip_init(nn.Embedding, family.vocabulary, family.embedding)
        self.recurrent = CELLS[family.cell](family.width, family.hidden, family.layers)
        self.dense = dense(family.hidden, family.vocabulary)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(self.embedding(symbols))
        return self.dense(hidden.flatten(0, 1))


def _recurrent(family: Recurrent, dense: MakeDense) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    model = _LanguageModel(family, dense)
    found = {"embedding.weight": model.embedding.weight} if family.embedding else {}
    theirs = ("weight_ih_l%d", "weight_hh_l%d", "bias_ih_l%d", "bias_hh_l%d")
    for layer, name in enumerate(family.layer_names()):
        for part, attribute in zip(family.parts, theirs):
            found["%s.%s" % (name, part)] = getattr(model.recurrent, attribute % layer)
        if len(family.parts) < len(theirs):
            # PyTorch has two biases per gate; training both would double the bias's learning rate.
            getattr(model.recurrent, theirs[-1] % layer).requires_grad_(False).zero_()
    found["fc.weight"] = model.dense.weight
    found["fc.bias"] = model.dense.bias
    return model, found


def build(
    network: Network, weights: Dict[str, np.ndarray], dense: MakeDense = plain_dense, loop: bool = False
) -> Built:
    """Build the network in training mode with a copy of these weights (canonical layouts).

    With ``loop`` simple recurrent layers are loops in Python.
    """
    family = network.family
    if isinstance(family, Chain):
        module, found = _feedforward(family, dense)
    elif isinstance(family, Residual):
        module, found = _residual(family, dense)
    elif isinstance(family, Recurrent):
        module, found = _recurrent(family, dense)
    elif isinstance(family, Elman):
        module, found = _elman(family, dense, loop)
    elif isinstance(family, Attention):
        module, found = _attention(family, dense)
    else:
        raise TypeError("no PyTorch network for the family %s" % type(family).__name__)
    if set(found) != set(weights):
        raise ValueError("the network's parameters and the weights given differ in name")
    load(found, weights)
    module.train()
    return Built(module, found)


def load(parameters: Dict[str, nn.Parameter], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters, wherever those lie and in whatever order in memory."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))

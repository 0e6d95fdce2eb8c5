"""Networks as PyTorch modules.

PyTorch's own layouts are the canonical ones (dense weight (outputs, inputs), convolution weight (outputs, inputs,
height, width), LSTM gates input, forget, cell, output): only names differ.
"""

from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..families import Attention, Bottleneck, Elman, Recurrent
from ..libraries.walks import Layers
from ..networks import Network

MakeDense = Callable[[int, int], nn.Linear]
CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
PHI = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
FUSED = ("tanh", "relu")  # the activations of nn.RNN
#: A layer's parameters in PyTorch, in the order of `Recurrent.parts`.
RECURRENT_PARTS = ("weight_ih_l%d", "weight_hh_l%d", "bias_ih_l%d", "bias_hh_l%d")
#: Beyond so many steps the graph of an unrolled loop takes minutes to compile.
MOST_COMPILED_STEPS = 50


def plain_dense(inputs: int, outputs: int) -> nn.Linear:
    """Return PyTorch's own fully connected layer, its weights not yet set."""
    return nn.utils.skip_init(nn.Linear, inputs, outputs)


# Fully connected layers whose matrix products are oneDNN's instead of MKL's. PyTorch hands float32 matrix products to
# MKL. On the AMD processor tried, oneDNN, which PyTorch has for convolutions, is twice as fast. No public switch
# exchanges the two, so this layer calls the operator that PyTorch's own compiler emits for frozen inference, and adds
# the gradient that it lacks. It is a separate mode: a program that says ``nn.Linear`` gets MKL.


def onednn_refusal() -> str:
    """Return why this build of PyTorch lacks oneDNN's product; empty where it has it."""
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
        if inputs.dim() == 2:
            return _OneDnnProduct.apply(inputs, self.weight, self.bias)
        outputs = _OneDnnProduct.apply(inputs.reshape(-1, inputs.shape[-1]), self.weight, self.bias)
        return outputs.reshape(inputs.shape[:-1] + outputs.shape[-1:])


def onednn_dense(inputs: int, outputs: int) -> nn.Linear:
    """Return a fully connected layer computed by oneDNN, its weights not yet set."""
    return nn.utils.skip_init(OneDnnDense, inputs, outputs)


class _TorchLayers(Layers):
    """PyTorch's layers; fully connected ones are made by ``make_dense``."""

    title = "PyTorch"
    # In place: a convolution's backward pass does not need its own output.
    activations = {"relu": partial(nn.ReLU, inplace=True), "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}
    flatten = nn.Flatten
    average = (partial(nn.AdaptiveAvgPool2d, 1), nn.Flatten)

    def __init__(self, make_dense: MakeDense, loop: bool) -> None:
        super().__init__()
        self.make_dense = make_dense
        self.loop = loop

    def dense(self, name: str, inputs: int, outputs: int) -> nn.Linear:
        return self.noted(name, self.make_dense(inputs, outputs))

    def convolution(self, spec: Any, bias: bool) -> nn.Module:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride, spec.padding
        return self.noted(spec.name, nn.utils.skip_init(nn.Conv2d, *sizes, bias=bias))

    def norm(self, name: str, channels: int, epsilon: float) -> nn.Module:
        # It keeps running statistics, as any training does.
        return self.noted(name, nn.BatchNorm2d(channels, eps=epsilon), gamma="weight", beta="bias")

    def pool(self, kernel: int, stride: int, padding: int) -> nn.Module:
        return nn.MaxPool2d(kernel, stride, padding)

    def layer_norm(self, name: str, family: Attention) -> nn.Module:
        return self.noted(name, nn.LayerNorm(family.width, family.epsilon), gamma="weight", beta="bias")

    def embedding(self, name: str, symbols: int, width: int) -> nn.Module:
        return self.noted(name, nn.utils.skip_init(nn.Embedding, symbols, width), weight="weight")

    def row(self, layers: List[Any]) -> nn.Module:
        return nn.Sequential(*layers)

    def block(self, spec: Bottleneck, epsilon: float) -> nn.Module:
        return _Block(spec, epsilon, self)


class _Block(nn.Module):
    """One bottleneck: ``relu(norm(1x1(relu(norm(3x3(relu(norm(1x1(x)))))))) + shortcut(x))``."""

    def __init__(self, block: Bottleneck, epsilon: float, layers: _TorchLayers) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers.body(block, epsilon))
        self.project = None if block.shortcut is None else nn.Sequential(*layers.normalised(block.shortcut, epsilon))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        shortcut = inputs if self.project is None else self.project(inputs)
        hidden = self.body(inputs)
        hidden += shortcut
        return self.relu(hidden)


class _LanguageModel(nn.Module):
    """Symbols, stacked recurrent layers, dense. Time-major, to logits (steps * batch, vocabulary).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, vocabulary).
    """

    def __init__(self, family: Recurrent, layers: _TorchLayers) -> None:
        super().__init__()
        self.embedding: nn.Module = nn.Identity()
        if family.embedding:
            self.embedding = layers.embedding("embedding", family.vocabulary, family.embedding)
        self.recurrent = CELLS[family.cell](family.width, family.hidden, family.layers)
        second_biases = layers.note_recurrent(
            family, lambda layer, place: getattr(self.recurrent, RECURRENT_PARTS[place] % layer)
        )
        for second_bias in second_biases:
            second_bias.requires_grad_(False).zero_()
        self.dense = layers.dense("fc", family.hidden, family.vocabulary)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(self.embedding(symbols))
        return self.dense(hidden.flatten(0, 1))


def loops(family: Elman, loop: bool) -> bool:
    """Tell whether the recurrence is a loop in Python: because the mode says so, or nn.RNN has no such layer."""
    return loop or family.activation not in FUSED or family.alpha != 1.0


def refuses_to_compile(family: Elman) -> str:
    """Return why a loop over the steps is not compiled; empty where it is."""
    if family.steps <= MOST_COMPILED_STEPS:
        return ""
    words = "torch.compile unrolls the loop over %d steps, and beyond %d that takes minutes"
    return words % (family.steps, MOST_COMPILED_STEPS)


class _Looped(nn.Module):
    """A recurrent layer step by step: (steps, batch, inputs) to (steps, batch, hidden) from a zero state."""

    def __init__(self, family: Elman) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(family.hidden, family.inputs))
        self.hidden_weight = nn.Parameter(torch.empty(family.hidden, family.hidden))
        self.bias = nn.Parameter(torch.empty(family.hidden))
        self.phi = PHI[family.activation]
        self.alpha = family.alpha

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        shares = functional.linear(inputs, self.input_weight, self.bias)
        turned = self.hidden_weight.t()
        state = shares.new_zeros(shares.shape[1:])
        states = []
        for share in shares.unbind():
            new = self.phi(torch.addmm(share, state, turned))
            state = new if self.alpha == 1.0 else torch.lerp(state, new, self.alpha)
            states.append(state)
        return torch.stack(states)


class _ElmanNetwork(nn.Module):
    """A recurrent layer and dense outputs: (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, family: Elman, layers: _TorchLayers) -> None:
        super().__init__()
        layer: Any
        if loops(family, layers.loop):
            self.layer = layer = _Looped(family)
            layers.note("rnn", **dict(layer.named_parameters()))
        else:
            self.layer = layer = nn.RNN(family.inputs, family.hidden, nonlinearity=family.activation)
            held = layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0
            layers.note("rnn", **dict(zip(("input_weight", "hidden_weight", "bias"), held)))
            layer.bias_hh_l0.requires_grad_(False).zero_()
        self.dense = layers.dense("out", family.hidden, family.outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states = self.layer(inputs)
        return self.dense((states if isinstance(states, torch.Tensor) else states[0]).flatten(0, 1))


class _AttentionLayer(nn.Module):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, family: Attention, name: str, layers: _TorchLayers) -> None:
        super().__init__()
        self.heads = family.heads
        for part, layer in layers.attention(family, name).items():
            setattr(self, part, layer)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(values)).chunk(3, dim=-1)
        query, key, value = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.project(mixed.transpose(1, 2).flatten(2))
        raised = functional.gelu(self.upper(self.norm2(values)), approximate="tanh")
        return values + self.lower(raised)


class _Transformer(nn.Module):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, family: Attention, layers: _TorchLayers) -> None:
        super().__init__()
        self.embedding = layers.embedding("embedding", family.vocabulary, family.width)
        self.position = layers.embedding("position", family.steps, family.width)
        names = ["layer%d." % number for number in range(1, family.layers + 1)]
        self.layers = nn.ModuleList([_AttentionLayer(family, name, layers) for name in names])
        self.norm = layers.layer_norm("norm", family)
        self.dense = layers.dense("fc", family.width, family.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens) + self.position.weight
        for layer in self.layers:
            values = layer(values)
        return self.dense(self.norm(values).flatten(0, 1))


_TorchLayers.networks = {"recurrent": _LanguageModel, "elman": _ElmanNetwork, "attention": _Transformer}


def build(
    network: Network, weights: Dict[str, np.ndarray], dense: MakeDense = plain_dense, loop: bool = False
) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    """Build the network in training mode with a copy of these weights; return it, and its parameters by name.

    With ``loop`` simple recurrent layers are loops in Python.
    """
    layers = _TorchLayers(dense, loop)
    module: nn.Module = layers.network(network.family)
    if set(layers.parameters) != set(weights):
        raise ValueError("the network's parameters and the weights given differ in name")
    load(layers.parameters, weights)
    module.train()
    return module, layers.parameters


def load(parameters: Dict[str, nn.Parameter], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters, wherever those lie and in whatever order in memory."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))

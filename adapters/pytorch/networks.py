"""The specifications of ``adapters/networks.py`` as PyTorch modules.

PyTorch's own layouts are the canonical ones (dense weight (outputs, inputs), convolution weight (outputs,
inputs, height, width), LSTM gates input, forget, cell, output), so converting is naming: ``build`` returns,
beside the module, its trainable tensors by canonical name.
"""

from typing import Callable, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np
import torch
from torch import nn

from ..families import Attention, Bottleneck, Chain, Convolution, Dense, Elman, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..networks import Network
from . import attention, elman

MakeDense = Callable[[int, int], nn.Linear]


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
        module, found = elman.make(family, dense, loop)
    elif isinstance(family, Attention):
        module, found = attention.make(family, dense)
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

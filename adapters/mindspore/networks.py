"""Builds the specifications of ``adapters/networks.py`` as MindSpore cells that end in logits.

MindSpore's layouts are the canonical ones (dense weights (outputs, inputs), convolutions OIHW, images NCHW, LSTM gates
input, forget, cell, output). Recurrent networks' tokens and labels are time-major. ``construct`` is compiled from its
source: use only the Python that MindSpore's compiler supports.
"""

from typing import Any, Dict, Mapping, NamedTuple

import mindspore
import numpy as np
from mindspore import nn, ops

from ..base import Unsupported
from ..families import Attention, Bottleneck, Chain, Elman, Recurrent, Residual
from ..libraries.layers_in_a_row import LayersInARow
from ..networks import Network
from . import attention, recurrent

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh}


class Built(NamedTuple):
    """A cell from inputs to logits, and its trainable parameters by canonical name."""

    cell: Any
    parameters: Dict[str, Any]


class Naming(LayersInARow):
    """MindSpore's layers, and where each canonical parameter lies."""

    title = "MindSpore"
    activations = ACTIVATIONS
    flatten = nn.Flatten

    def free(self, name: str, *shape: int) -> Any:
        """Return a parameter that belongs to no layer of MindSpore's."""
        made = mindspore.Parameter(mindspore.Tensor(np.zeros(shape, np.float32)), name=name)
        self.parameters[name] = made
        return made

    def dense(self, name: str, inputs: int, outputs: int) -> Any:
        """Return a fully connected layer."""
        made = nn.Dense(inputs, outputs)
        self.parameters[name + ".weight"], self.parameters[name + ".bias"] = made.weight, made.bias
        return made

    def embedding(self, name: str, symbols: int, width: int) -> Any:
        """Return a table of vectors."""
        made = nn.Embedding(symbols, width)
        self.parameters[name + ".weight"] = made.embedding_table
        return made

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, stride: int, padding: int, bias: bool = True
    ) -> Any:
        """Return a convolution with symmetric zero padding."""
        made = nn.Conv2d(inputs, outputs, kernel, stride, pad_mode="pad", padding=padding, has_bias=bias)
        self.parameters[name + ".weight"] = made.weight
        if bias:
            self.parameters[name + ".bias"] = made.bias
        return made

    def norm(self, name: str, channels: int, epsilon: float) -> Any:
        """Return a batch normalisation."""
        made = nn.BatchNorm2d(channels, eps=epsilon)
        self.parameters[name + ".gamma"], self.parameters[name + ".beta"] = made.gamma, made.beta
        return made

    def pool(self, kernel: int, stride: int, padding: int) -> Any:
        """Return a max-pool."""
        if padding:
            return nn.MaxPool2d(kernel, stride, pad_mode="pad", padding=padding)
        return nn.MaxPool2d(kernel, stride)  # "valid"


class BottleneckCell(nn.Cell):
    """One residual block: 1x1 with the stride, 3x3, 1x1, each normalised; ReLU after the addition."""

    def __init__(self, spec: Bottleneck, epsilon: float, naming: Naming) -> None:
        super().__init__()
        self.body = nn.SequentialCell(*naming.body(spec, epsilon))
        self.projects = spec.shortcut is not None
        if spec.shortcut is not None:
            self.project = nn.SequentialCell(*naming.normalised(spec.shortcut, epsilon))

    def construct(self, inputs: Any) -> Any:
        """Return relu(body + shortcut), (batch, channels, height, width)."""
        shortcut = self.project(inputs) if self.projects else inputs
        return ops.relu(self.body(inputs) + shortcut)


class Average(nn.Cell):
    """The mean of each channel, (batch, channels)."""

    def construct(self, images: Any) -> Any:
        """Return it."""
        return ops.mean(images, (2, 3))


def _residual(family: Residual, naming: Naming) -> Any:
    cells = [*naming.normalised(family.stem, family.epsilon), nn.ReLU(), naming.pool(3, 2, 1)]
    cells += [BottleneckCell(block, family.epsilon, naming) for block in family.bottlenecks]
    return nn.SequentialCell(*cells, Average(), naming.dense("fc", family.features, family.classes))


def build(network: Network, weights: Mapping[str, np.ndarray]) -> Built:
    """Build the network in training mode with copies of these weights."""
    family, naming = network.family, Naming()
    if isinstance(family, Chain):
        cell = nn.SequentialCell(*naming.chain(family))
    elif isinstance(family, Residual):
        cell = _residual(family, naming)
    elif isinstance(family, Recurrent):
        cell = recurrent.LanguageModel(family, naming)
    elif isinstance(family, Elman):
        cell = recurrent.ElmanNetwork(family, naming)
    elif isinstance(family, Attention):
        cell = attention.Transformer(family, naming)
    else:
        raise Unsupported("MindSpore: no way to build a network of type %s" % type(family).__name__)
    cell.set_train()
    for name, parameter in naming.parameters.items():
        parameter.name = name  # those of layers made alike are alike, which the graph does not take
    load(naming.parameters, weights)
    return Built(cell, naming.parameters)


def load(parameters: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters."""
    for name, parameter in parameters.items():
        parameter.set_data(mindspore.Tensor(weights[name].copy()))

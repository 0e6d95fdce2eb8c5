"""The networks as framework-free, frozen specifications.

A network is a family and its numbers; an adapter builds whatever specification it is handed and never asks for a
name. Parameter and FLOP counts derive from the specification. The definitions follow the original scripts of Shi et
al. 2016 where its paper and scripts disagree.

Canonical layouts, which every adapter converts from and back to: dense weight (outputs, inputs), convolution weight
(outputs, inputs, height, width), images (batch, channels, height, width), tokens (batch, steps), LSTM weights
(4 x hidden, inputs) with the gates in the order input, forget, cell, output.
"""

import math
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

LEARNING_RATE = 0.01


class Dense(NamedTuple):
    """A fully connected layer with bias: ``activation(inputs @ weight.T + bias)``."""

    name: str
    inputs: int
    outputs: int
    activation: str  # "sigmoid", "relu" or "none"


class Convolution(NamedTuple):
    """A square convolution with bias and symmetric zero padding."""

    name: str
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    padding: int
    activation: str  # "relu" or "none"


class MaxPool(NamedTuple):
    """Max pooling over square windows; sizes round down."""

    kernel: int
    stride: int
    padding: int


class Flatten(NamedTuple):
    """(batch, channels, height, width) to (batch, channels * height * width)."""


Layer = Union[Dense, Convolution, MaxPool, Flatten]


class Feedforward(NamedTuple):
    """A chain of layers ending in logits; loss: softmax cross-entropy, mean over the batch."""

    input_shape: Tuple[int, ...]  # of one example
    layers: Tuple[Layer, ...]


class Bottleneck(NamedTuple):
    """One residual block: 1x1 (with the stride), 3x3, 1x1, each followed by batch normalisation.

    ReLU after the first two and after the addition; ``projection`` says whether the shortcut is a strided 1x1
    convolution with batch normalisation (parameters ``NAME.project`` and ``NAME.project_norm``) or the identity.
    """

    name: str
    in_channels: int
    width: int
    out_channels: int
    stride: int
    projection: bool


class Residual(NamedTuple):
    """ResNet v1: stem 7x7/2 + norm + ReLU + max-pool 3/2 pad 1, bottlenecks, global average, dense to logits.

    Batch normalisation uses batch statistics with biased variance (training mode); convolutions have no bias.
    """

    input_shape: Tuple[int, int, int]
    stem_channels: int
    blocks: Tuple[Bottleneck, ...]
    classes: int
    epsilon: float
    last_gamma: float  # initial gamma of each block's last normalisation


class Recurrent(NamedTuple):
    """Embedding, stacked LSTM layers from a zero state, dense softmax at each step; loss: mean over batch and steps.

    One bias per gate; no forget-gate offset.
    """

    vocabulary: int
    embedding: int
    hidden: int
    layers: int
    steps: int


class ParityRecipe(NamedTuple):
    """How the first steps of a launch prove that it computes the reference's mathematics.

    Tolerances stand about ten times above what honest float32 implementations show (five where rounding flips ReLUs)
    and far below what mistakes show. Largest errors seen at the paper's mini-batch over PyTorch (eager, compiled),
    TensorFlow (graph, XLA), MXNet and the reference's own code in float32, where measured; and the smallest update
    error of the mistakes in tests/helpers/broken that must be caught:

        ========  ==========  ============  ===============================
        network   loss error  update error  smallest mistake (update error)
        ========  ==========  ============  ===============================
        fcn5      5.1e-7      2.4e-5        7.1e-2, weight decay of 1e-4
        fcn8      4.6e-8      1.5e-3
        alexnet   3.1e-7      7.3e-3        1.0, a doubled or frozen bias
        resnet50  2.0e-7      1.9e-2
        lstm32    1.2e-7      2.0e-4        1.9e-1, state carried over
        lstm64    1.2e-8      4.9e-4
        ========  ==========  ============  ===============================

    Mini-batches of other sizes err more: from 16 to 256 fcn5 by 4.6e-6 in the loss and 1.8e-4 in the update, fcn8 by
    7.2e-6 and 2.1e-3 (PyTorch, MXNet). Frameworks that take the exponential of a rounded log-softmax, here always close
    to -10, give every class of an example the same error; at 32 those of the examples add up.

    Not caught in a one-step recipe: momentum (no first step shows it) and, in alexnet, weight decay of 5e-4 or less
    (8.5e-3); the fully connected and recurrent networks, driven by the same optimiser, show both. Not caught in
    resnet50: a normalisation epsilon of 1e-3 (7e-2 in the update, 9.8e-6 in the loss).
    """

    steps: int
    learning_rate: float
    loss_tolerance: float  # relative
    update_tolerance: float  # relative, per parameter
    why: str


class Network(NamedTuple):
    """A named workload: a family, its numbers, the paper's mini-batch and the parity recipe."""

    name: str
    family: Union[Feedforward, Residual, Recurrent]
    batch_size: int  # the paper's
    input_scale: float  # half-width of the uniform distribution of the synthetic inputs
    parity: ParityRecipe
    summary: str


class Parameter(NamedTuple):
    """A trainable tensor: uniform in [-bound, bound] at the start, or constant where ``constant`` is given."""

    name: str
    shape: Tuple[int, ...]
    bound: float
    constant: Optional[float] = None


def _fully_connected(name, hidden_layers, summary):
    # type: (str, int, str) -> Network
    sizes = [26752] + [2048] * hidden_layers + [26752]
    layers = []  # type: List[Layer]
    for index in range(len(sizes) - 1):
        last = index == len(sizes) - 2
        layers.append(Dense("fc%d" % (index + 1), sizes[index], sizes[index + 1], "none" if last else "sigmoid"))
    # Each further sigmoid layer shrinks the first layers' updates towards the rounding of the weights.
    recipe = ParityRecipe(
        2,
        1.0,
        5e-5,
        2e-3 if hidden_layers <= 3 else 1e-2,
        "learning rate 1: at 0.01 the updates sink towards float32 resolution of the weights",
    )
    return Network(name, Feedforward((26752,), tuple(layers)), 64, 1.0, recipe, summary)


def _alexnet():
    # type: () -> Network
    layers = (
        Convolution("conv1", 3, 96, 11, 4, 2, "relu"),
        MaxPool(3, 2, 0),
        Convolution("conv2", 96, 256, 5, 1, 2, "relu"),
        MaxPool(3, 2, 0),
        Convolution("conv3", 256, 384, 3, 1, 1, "relu"),
        Convolution("conv4", 384, 384, 3, 1, 1, "relu"),
        Convolution("conv5", 384, 256, 3, 1, 1, "relu"),
        MaxPool(3, 2, 0),
        Flatten(),
        Dense("fc6", 9216, 4096, "relu"),
        Dense("fc7", 4096, 4096, "relu"),
        Dense("fc8", 4096, 1000, "none"),
    )  # type: Tuple[Layer, ...]
    recipe = ParityRecipe(
        1,
        LEARNING_RATE,
        3e-6,
        5e-2,
        "one step: ReLU and max-pool ties make float32 trajectories part after it, and move single entries in it",
    )
    # Inputs scaled by 0.1: with unit-variance inputs the loss is not finite within 7 steps at learning rate 0.01.
    return Network(
        "alexnet",
        Feedforward((3, 224, 224), layers),
        16,
        0.1,
        recipe,
        "AlexNet, ungrouped, no LRN or dropout",
    )


def _resnet50():
    # type: () -> Network
    blocks = []
    channels = 64
    for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for index in range(count):
            stride = 2 if index == 0 and stage > 1 else 1
            name = "stage%d.%d" % (stage, index)
            blocks.append(Bottleneck(name, channels, width, 4 * width, stride, index == 0))
            channels = 4 * width
    recipe = ParityRecipe(
        1,
        LEARNING_RATE,
        1e-5,
        1e-1,
        "last gamma 0.2 and one step: with gamma 1 float32 conditioning swamps the comparison in every framework",
    )
    family = Residual((3, 224, 224), 64, tuple(blocks), 1000, 1e-5, 0.2)
    return Network("resnet50", family, 16, 1.0, recipe, "ResNet-50 v1, batch normalisation in training mode")


def _lstm(steps):
    # type: (int) -> Network
    recipe = ParityRecipe(
        2,
        10.0,
        3e-6,
        2e-3 if steps <= 32 else 5e-3,
        "learning rate 10: at 0.01 the update of a mean loss is below float32 resolution and would hide a mistake",
    )
    family = Recurrent(10000, 256, 256, 2, steps)
    return Network("lstm%d" % steps, family, 128, 1.0, recipe, "2-layer LSTM language model, %d steps" % steps)


NETWORKS = {
    network.name: network
    for network in (
        _fully_connected("fcn5", 3, "fully connected, 3 hidden layers of 2048, sigmoid"),
        _fully_connected("fcn8", 6, "fully connected, 6 hidden layers of 2048, sigmoid"),
        _alexnet(),
        _resnet50(),
        _lstm(32),
        _lstm(64),
    )
}  # type: Dict[str, Network]


def _norm(name, channels, gamma):
    # type: (str, int, float) -> List[Parameter]
    return [
        Parameter(name + ".gamma", (channels,), 0.0, gamma),
        Parameter(name + ".beta", (channels,), 0.0, 0.0),
    ]


def _convolution(name, outputs, inputs, kernel):
    # type: (str, int, int, int) -> Parameter
    # He et al. 2015, arXiv 1502.01852, eq. 10: variance 2 / fan-in, here as a uniform distribution.
    return Parameter(name + ".weight", (outputs, inputs, kernel, kernel), math.sqrt(6.0 / (inputs * kernel**2)))


def _feedforward_parameters(family):
    # type: (Feedforward) -> List[Parameter]
    found = []
    for layer in family.layers:
        if isinstance(layer, Convolution):
            found.append(_convolution(layer.name, layer.out_channels, layer.in_channels, layer.kernel))
            found.append(Parameter(layer.name + ".bias", (layer.out_channels,), 0.01))
        elif isinstance(layer, Dense):
            # ReLU layers after He et al. 2015, the others after Glorot and Bengio 2010, eq. 16.
            if layer.activation == "relu":
                bound = math.sqrt(6.0 / layer.inputs)
            else:
                bound = math.sqrt(6.0 / (layer.inputs + layer.outputs))
            found.append(Parameter(layer.name + ".weight", (layer.outputs, layer.inputs), bound))
            found.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
    return found


def _residual_parameters(family):
    # type: (Residual) -> List[Parameter]
    found = [_convolution("stem", family.stem_channels, family.input_shape[0], 7)]
    found += _norm("stem_norm", family.stem_channels, 1.0)
    for block in family.blocks:
        shapes = (
            (block.width, block.in_channels, 1),
            (block.width, block.width, 3),
            (block.out_channels, block.width, 1),
        )
        for index, (outputs, inputs, kernel) in enumerate(shapes, start=1):
            found.append(_convolution("%s.conv%d" % (block.name, index), outputs, inputs, kernel))
            gamma = family.last_gamma if index == 3 else 1.0
            found += _norm("%s.norm%d" % (block.name, index), outputs, gamma)
        if block.projection:
            found.append(_convolution(block.name + ".project", block.out_channels, block.in_channels, 1))
            found += _norm(block.name + ".project_norm", block.out_channels, 1.0)
    features = family.blocks[-1].out_channels
    bound = math.sqrt(6.0 / (features + family.classes))
    found.append(Parameter("fc.weight", (family.classes, features), bound))
    found.append(Parameter("fc.bias", (family.classes,), 0.01))
    return found


def _recurrent_parameters(family):
    # type: (Recurrent) -> List[Parameter]
    bound = 1.0 / math.sqrt(family.hidden)
    found = [Parameter("embedding.weight", (family.vocabulary, family.embedding), 0.1)]
    for layer in range(1, family.layers + 1):
        inputs = family.embedding if layer == 1 else family.hidden
        found.append(Parameter("lstm%d.input_weight" % layer, (4 * family.hidden, inputs), bound))
        found.append(Parameter("lstm%d.hidden_weight" % layer, (4 * family.hidden, family.hidden), bound))
        found.append(Parameter("lstm%d.bias" % layer, (4 * family.hidden,), bound))
    found.append(Parameter("fc.weight", (family.vocabulary, family.hidden), bound))
    found.append(Parameter("fc.bias", (family.vocabulary,), bound))
    return found


def parameters(network):
    # type: (Network) -> List[Parameter]
    """Return every trainable tensor of the network, in forward order, in canonical layout."""
    family = network.family
    if isinstance(family, Feedforward):
        return _feedforward_parameters(family)
    if isinstance(family, Residual):
        return _residual_parameters(family)
    return _recurrent_parameters(family)


def parameter_count(network):
    # type: (Network) -> int
    """Return the number of trainable scalars."""
    total = 0
    for parameter in parameters(network):
        size = 1
        for side in parameter.shape:
            size *= side
        total += size
    return total


def output_side(side, kernel, stride, padding):
    # type: (int, int, int, int) -> int
    """Return the side of a convolution's or pool's output, rounding down."""
    return (side + 2 * padding - kernel) // stride + 1


def _feedforward_products(family):
    # type: (Feedforward) -> List[int]
    products = []
    side = family.input_shape[-1]
    for layer in family.layers:
        if isinstance(layer, Convolution):
            side = output_side(side, layer.kernel, layer.stride, layer.padding)
            products.append(layer.out_channels * layer.in_channels * layer.kernel**2 * side**2)
        elif isinstance(layer, MaxPool):
            side = output_side(side, layer.kernel, layer.stride, layer.padding)
        elif isinstance(layer, Dense):
            products.append(layer.inputs * layer.outputs)
    return products


def _residual_products(family):
    # type: (Residual) -> List[int]
    side = output_side(family.input_shape[-1], 7, 2, 3)
    products = [family.stem_channels * family.input_shape[0] * 49 * side**2]
    side = output_side(side, 3, 2, 1)
    for block in family.blocks:
        side //= block.stride
        products.append(block.width * block.in_channels * side**2)
        products.append(block.width * block.width * 9 * side**2)
        products.append(block.out_channels * block.width * side**2)
        if block.projection:
            products.append(block.out_channels * block.in_channels * side**2)
    products.append(family.blocks[-1].out_channels * family.classes)
    return products


def forward_multiply_adds(network):
    # type: (Network) -> int
    """Return the multiply-adds of one example's forward pass, matrix products and convolutions only."""
    family = network.family
    if isinstance(family, Feedforward):
        return sum(_feedforward_products(family))
    if isinstance(family, Residual):
        return sum(_residual_products(family))
    per_step = family.vocabulary * family.hidden
    for layer in range(family.layers):
        inputs = family.embedding if layer == 0 else family.hidden
        per_step += 4 * family.hidden * (inputs + family.hidden)
    return family.steps * per_step


def training_flops(network, batch_size):
    # type: (Network, int) -> int
    """Return the floating-point operations of one training step (a multiply-add is two).

    Forward, gradient by the weights and gradient by the inputs cost the same each; the first layer of an image or
    dense network needs no gradient by its inputs, and none is counted. Element-wise work, pooling, normalisation
    and the update are not counted: the figure is for comparison with a matrix-product ceiling.
    """
    family = network.family
    total = 3 * forward_multiply_adds(network)
    if isinstance(family, Feedforward):
        total -= _feedforward_products(family)[0]
    elif isinstance(family, Residual):
        total -= _residual_products(family)[0]
    return 2 * total * batch_size

"""ResNets of version 1: bottleneck blocks with batch normalisation in training mode."""

import math
from typing import List, NamedTuple, Optional, Tuple

from .family import (
    LEARNING_RATE,
    Drawn,
    Family,
    Numbers,
    Parameter,
    ParityRecipe,
    convolution_weight,
    number,
    output_side,
)

_EXPANSION = 4  # a block has so many times its width of outputs (He et al. 2015, arXiv 1512.03385, table 1)


class NormalisedConvolution(NamedTuple):
    """A square convolution without bias, and the batch normalisation behind it; half a kernel of zeros around it."""

    name: str
    norm: str
    inputs: int
    outputs: int
    kernel: int
    stride: int

    @property
    def padding(self) -> int:
        """Return the zeros on each side."""
        return self.kernel // 2

    def parameters(self, gamma: float = 1.0) -> List[Parameter]:
        """Return its weight, and gamma and beta of its normalisation."""
        return [
            convolution_weight(self.name, self.outputs, self.inputs, self.kernel),
            Parameter(self.norm + ".gamma", (self.outputs,), 0.0, gamma),
            Parameter(self.norm + ".beta", (self.outputs,), 0.0, 0.0),
        ]

    def multiply_adds(self, side: int) -> int:
        """Return those of an output of this side."""
        return self.outputs * self.inputs * self.kernel**2 * side**2


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

    @property
    def body(self) -> Tuple[NormalisedConvolution, ...]:
        """Return the three convolutions, called NAME.conv1 to NAME.conv3."""
        sizes = (
            (self.in_channels, self.width, 1, self.stride),
            (self.width, self.width, 3, 1),
            (self.width, self.out_channels, 1, 1),
        )
        names = [(self.name + ".conv%d" % index, self.name + ".norm%d" % index) for index in (1, 2, 3)]
        return tuple(NormalisedConvolution(*name, *size) for name, size in zip(names, sizes))

    @property
    def shortcut(self) -> Optional[NormalisedConvolution]:
        """Return the shortcut's convolution; None where it is the identity."""
        if not self.projection:
            return None
        names = self.name + ".project", self.name + ".project_norm"
        return NormalisedConvolution(*names, self.in_channels, self.out_channels, 1, self.stride)


class Residual(Family):
    """ResNet v1: stem 7x7/2 + norm + ReLU + max-pool 3/2 pad 1, bottlenecks, global average, dense to logits.

    Every stage but the first begins with a stride of 2; ``blocks`` and ``widths`` are those of each stage. Batch
    normalisation uses batch statistics with biased variance (training mode); convolutions have no bias. Images are
    square, with a side of ``side``, and uniform within +-``input_scale``; the gamma of each block's last normalisation
    starts at ``last_gamma``.
    """

    name = "residual"
    kind = "convolutional"
    normalises = True

    channels: int = number("whole", example="3")
    side: int = number("whole", most=10000, example="224")
    stem_channels: int = number("whole", usual=lambda family: family.widths[0])
    blocks: Tuple[int, ...] = number("wholes", longest=100, example="[3, 4, 6, 3]")
    widths: Tuple[int, ...] = number("wholes", longest=100, example="[64, 128, 256, 512]")
    classes: int = number("whole", least=2, example="1000")
    epsilon: float = number("real", usual=1e-5, least=1e-5, most=1.0)
    last_gamma: float = number("real", usual=0.2, least=1e-3, most=10.0)
    input_scale: float = number("real", usual=1.0, least=1e-6, most=1e6)

    def check(self, numbers: Numbers) -> None:
        stages, blocks = len(self.blocks), sum(self.blocks)
        if len(self.widths) != stages:
            text = "there are %d, and %d stages in blocks. Give one for each stage." % (len(self.widths), stages)
            raise numbers.error("widths", text)
        if blocks > 1000:
            raise numbers.error("blocks", "%d blocks are more than 1000. Give fewer." % blocks)

    @property
    def input_shape(self) -> Tuple[int, int, int]:
        return (self.channels, self.side, self.side)

    @property
    def stem(self) -> NormalisedConvolution:
        """Return the first convolution."""
        return NormalisedConvolution("stem", "stem_norm", self.channels, self.stem_channels, 7, 2)

    @property
    def bottlenecks(self) -> Tuple[Bottleneck, ...]:
        """Return the blocks, called stage1.0, stage1.1 and so on."""
        made = []
        inputs = self.stem_channels
        for stage, (count, width) in enumerate(zip(self.blocks, self.widths), 1):
            for index in range(count):
                stride = 2 if index == 0 and stage > 1 else 1
                outputs = _EXPANSION * width
                made.append(Bottleneck("stage%d.%d" % (stage, index), inputs, width, outputs, stride, index == 0))
                inputs = outputs
        return tuple(made)

    @property
    def features(self) -> int:
        """Return the inputs of the last, fully connected layer."""
        return _EXPANSION * self.widths[-1]

    def parameters(self) -> List[Parameter]:
        found = self.stem.parameters()
        for block in self.bottlenecks:
            first, second, last = block.body
            found += first.parameters() + second.parameters() + last.parameters(self.last_gamma)
            if block.shortcut is not None:
                found += block.shortcut.parameters()
        bound = math.sqrt(6.0 / (self.features + self.classes))
        found.append(Parameter("fc.weight", (self.classes, self.features), bound))
        found.append(Parameter("fc.bias", (self.classes,), 0.01))
        return found

    def multiply_adds(self) -> List[int]:
        side = output_side(self.side, 7, 2, 3)
        products = [self.stem.multiply_adds(side)]
        side = output_side(side, 3, 2, 1)
        for block in self.bottlenecks:
            side = output_side(side, 1, block.stride, 0)
            products += [each.multiply_adds(side) for each in block.body]
            if block.shortcut is not None:
                products.append(block.shortcut.multiply_adds(side))
        products.append(self.features * self.classes)
        return products

    def drawn_inputs(self) -> Drawn:
        return Drawn(self.input_shape, None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        return Drawn((), self.classes)

    def kinked(self) -> bool:
        return True

    def parity(self) -> ParityRecipe:
        """Return one step at a low rate."""
        return ParityRecipe(
            1,
            LEARNING_RATE,
            1e-5,
            1e-1,
            "last gamma 0.2 and one step: with gamma 1 float32 conditioning swamps the comparison in every framework",
        )

    def words(self) -> str:
        blocks = self.bottlenecks
        convolutions = 1 + sum(3 + block.projection for block in blocks)
        return "%d conv in %d blocks, 1 dense" % (convolutions, len(blocks))

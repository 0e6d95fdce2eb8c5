"""ResNets of version 1: bottleneck blocks with batch normalisation in training mode."""

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .family import (
    LEARNING_RATE,
    Drawn,
    Family,
    Numbers,
    Parameter,
    ParityRecipe,
    convolution_weight,
    output_side,
    without_usual,
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


class _Numbers(NamedTuple):
    channels: int
    side: int  # of the images, which are square
    stem_channels: int
    blocks: Tuple[int, ...]  # of each stage
    widths: Tuple[int, ...]  # of each stage
    classes: int
    epsilon: float = 1e-5
    last_gamma: float = 0.2  # initial gamma of each block's last normalisation
    input_scale: float = 1.0  # half-width of the uniform distribution of the synthetic inputs


class Residual(_Numbers, Family):
    """ResNet v1: stem 7x7/2 + norm + ReLU + max-pool 3/2 pad 1, bottlenecks, global average, dense to logits.

    Every stage but the first begins with a stride of 2. Batch normalisation uses batch statistics with biased variance
    (training mode); convolutions have no bias.
    """

    __slots__ = ()

    name = "residual"
    kind = "convolutional"
    lists = ("blocks", "widths")
    normalises = True

    @classmethod
    def read(cls, numbers: Numbers) -> "Residual":
        channels = numbers.whole("channels", example="3")
        side = numbers.whole("side", example="224", most=10000)
        blocks = numbers.wholes("blocks", longest=100, example="[3, 4, 6, 3]")
        widths = numbers.wholes("widths", longest=100, example="[64, 128, 256, 512]")
        if len(widths) != len(blocks):
            raise numbers.error(
                "widths", "there are %d, and %d stages in blocks. Give one for each stage." % (len(widths), len(blocks))
            )
        if sum(blocks) > 1000:
            raise numbers.error("blocks", "%d blocks are more than 1000. Give fewer." % sum(blocks))
        return cls(
            channels,
            side,
            numbers.whole("stem_channels", widths[0]),
            tuple(blocks),
            tuple(widths),
            numbers.whole("classes", least=2, example="1000"),
            numbers.real("epsilon", 1e-5, 1e-5, 1.0),
            numbers.real("last_gamma", 0.2, 1e-3, 10.0),
            numbers.real("input_scale", 1.0, 1e-6, 1e6),
        )

    def data(self) -> Dict[str, Any]:
        usual = (("stem_channels", self.widths[0]), ("epsilon", 1e-5), ("last_gamma", 0.2), ("input_scale", 1.0))
        return without_usual(dict(self._asdict(), blocks=list(self.blocks), widths=list(self.widths)), usual)

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
        found = []
        inputs = self.stem_channels
        for stage, (count, width) in enumerate(zip(self.blocks, self.widths), 1):
            for index in range(count):
                stride = 2 if index == 0 and stage > 1 else 1
                outputs = _EXPANSION * width
                found.append(Bottleneck("stage%d.%d" % (stage, index), inputs, width, outputs, stride, index == 0))
                inputs = outputs
        return tuple(found)

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

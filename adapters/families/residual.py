"""ResNets of version 1: bottleneck blocks with batch normalisation in training mode."""

import math
from functools import lru_cache
from typing import List, NamedTuple, Optional, Tuple

from .family import (
    LEARNING_RATE,
    Drawn,
    Family,
    Layer,
    Numbers,
    Parameter,
    ParityRecipe,
    convolution_weight,
    dense_parameters,
    norm_parameters,
    number,
    output_side,
)

#: A block has this many times its width of outputs (He et al. 2015, arXiv 1512.03385, table 1).
_EXPANSION = 4


class Bottleneck(NamedTuple):
    """One residual block: convolutions of 1x1 (with the stride), 3x3 and 1x1.

    Each has batch normalisation, and ReLU follows the first two and the addition. ``shortcut`` is a
    strided 1x1 convolution with batch normalisation, or None for the identity.
    """

    name: str
    body: Tuple[Layer, ...]
    shortcut: Optional[Layer]


def _normalised(name: str, norm: str, inputs: int, outputs: int, kernel: int, stride: int) -> Layer:
    """Return a convolution with half a kernel of zeros around it, and batch normalisation."""
    return Layer("convolution", name, inputs, outputs, kernel, stride, kernel // 2, norm=norm)


@lru_cache(maxsize=None)
def _bottlenecks(
    inputs: int, blocks: Tuple[int, ...], widths: Tuple[int, ...]
) -> Tuple[Bottleneck, ...]:
    bottlenecks = []
    for stage, (count, width) in enumerate(zip(blocks, widths), 1):
        outputs = _EXPANSION * width
        for index in range(count):
            stride = 2 if index == 0 and stage > 1 else 1
            name = "stage%d.%d" % (stage, index)
            body = (
                _normalised(name + ".conv1", name + ".norm1", inputs, width, 1, stride),
                _normalised(name + ".conv2", name + ".norm2", width, width, 3, 1),
                _normalised(name + ".conv3", name + ".norm3", width, outputs, 1, 1),
            )
            shortcut: Optional[Layer] = None
            if index == 0:
                shortcut = _normalised(
                    name + ".project", name + ".project_norm", inputs, outputs, 1, stride
                )
            bottlenecks.append(Bottleneck(name, body, shortcut))
            inputs = outputs
    return tuple(bottlenecks)


class Residual(Family):
    """ResNet v1: a stem, bottlenecks, the global average, and a dense layer to logits.

    The stem is 7x7/2 + norm + ReLU + max-pool 3/2 pad 1. Every stage but the first begins with a
    stride of 2, and ``blocks`` and ``widths`` are those of each stage. Batch normalisation uses
    batch statistics with biased variance (training mode). Convolutions have no bias. Images are
    square, with a side of ``side``, and uniform within +-``input_scale``. The gamma of each block's
    last normalisation starts at ``last_gamma``.
    """

    name = "residual"
    kind = "convolutional"
    normalises = True

    channels: int = number(Numbers.whole, example="3")
    side: int = number(Numbers.whole, most=10000, example="224")
    stem_channels: int = number(Numbers.whole, usual=lambda family: family.widths[0])  # first width
    blocks: Tuple[int, ...] = number(Numbers.wholes, longest=100, example="[3, 4, 6, 3]")
    widths: Tuple[int, ...] = number(Numbers.wholes, longest=100, example="[64, 128, 256, 512]")
    classes: int = number(Numbers.whole, least=2, example="1000")
    epsilon: float = number(Numbers.real, usual=1e-5, least=1e-5, most=1.0)
    last_gamma: float = number(Numbers.real, usual=0.2, least=1e-3, most=10.0)
    input_scale: float = number(Numbers.real, usual=1.0, least=1e-6, most=1e6)

    def check(self, numbers: Numbers) -> None:
        stages = len(self.blocks)
        blocks = sum(self.blocks)
        if len(self.widths) != stages:
            text = "there are %d, and %d stages in blocks. Give one for each stage."
            raise numbers.error("widths", text % (len(self.widths), stages))
        if blocks > 1000:
            raise numbers.error("blocks", "%d blocks are more than 1000. Give fewer." % blocks)

    @property
    def input_shape(self) -> Tuple[int, int, int]:
        return (self.channels, self.side, self.side)

    @property
    def stem(self) -> Layer:
        return _normalised("stem", "stem_norm", self.channels, self.stem_channels, 7, 2)

    @property
    def bottlenecks(self) -> Tuple[Bottleneck, ...]:
        """Return the blocks, called stage1.0, stage1.1 and so on."""
        return _bottlenecks(self.stem_channels, self.blocks, self.widths)

    @property
    def features(self) -> int:
        return _EXPANSION * self.widths[-1]

    def convolutions(self) -> List[Layer]:
        layers = [self.stem]
        for block in self.bottlenecks:
            layers += block.body
            if block.shortcut is not None:
                layers.append(block.shortcut)
        return layers

    def parameters(self) -> List[Parameter]:
        last = {block.body[-1].norm for block in self.bottlenecks}
        parameters: List[Parameter] = []
        for layer in self.convolutions():
            gamma = self.last_gamma if layer.norm in last else 1.0
            parameters.append(convolution_weight(layer))
            parameters += norm_parameters(layer.norm, layer.outputs, gamma)
        bound = math.sqrt(6.0 / (self.features + self.classes))
        return parameters + dense_parameters("fc", self.classes, self.features, bound, 0.01)

    def statistics(self) -> List[Parameter]:
        """Return running means around 0 and variances around 1.

        Activations that training has normalised have such statistics.
        """
        statistics: List[Parameter] = []
        for layer in self.convolutions():
            shape = (layer.outputs,)
            statistics.append(Parameter(layer.norm + ".mean", shape, 0.1))
            statistics.append(Parameter(layer.norm + ".variance", shape, 0.25, centre=1.0))
        return statistics

    def multiply_adds(self) -> List[int]:
        sides = {"stem": output_side(self.side, 7, 2, 3)}
        side = output_side(sides["stem"], 3, 2, 1)
        for block in self.bottlenecks:
            side = output_side(side, 1, block.body[0].stride, 0)
            sides[block.name] = side
        products = []
        for layer in self.convolutions():
            side = sides[layer.name.rpartition(".")[0] or layer.name]
            products.append(layer.outputs * layer.inputs * layer.kernel**2 * side**2)
        return [*products, self.features * self.classes]

    def drawn_inputs(self) -> Drawn:
        return Drawn(self.input_shape, None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        return Drawn((), self.classes)

    def kinked(self) -> bool:
        return True

    def parity(self) -> ParityRecipe:
        why = (
            "last gamma 0.2 and one step: with gamma 1 float32 conditioning swamps the comparison "
            "in every framework"
        )
        return ParityRecipe(1, LEARNING_RATE, 1e-5, 1e-1, why)

    def words(self) -> str:
        return "%d conv in %d blocks, 1 dense" % (len(self.convolutions()), len(self.bottlenecks))

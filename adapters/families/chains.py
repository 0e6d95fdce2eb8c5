"""Networks that are a chain of layers: each reads the output of the one before it."""

import math
from typing import Any, Dict, List, Tuple

from .family import (
    ACTIVATIONS,
    LEARNING_RATE,
    Drawn,
    Family,
    Layer,
    Numbers,
    Parameter,
    ParityRecipe,
    convolution_weight,
    dense_parameters,
    number,
    output_side,
)


class Chain(Family):
    """A chain of layers that ends in a dense one, the logits.

    The loss is the softmax cross-entropy, a mean over the batch.
    """

    #: Half-width of the uniform distribution of the synthetic inputs.
    input_scale: float

    @property
    def input_shape(self) -> Tuple[int, ...]:
        raise NotImplementedError

    #: In forward order; or a property.
    layers: Any

    def convolutions(self) -> List[Layer]:
        return [layer for layer in self.layers if layer.kind == "convolution"]

    def parameters(self) -> List[Parameter]:
        parameters = []
        for layer in self.layers:
            if layer.kind == "convolution":
                parameters.append(convolution_weight(layer))
                parameters.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
            elif layer.kind == "dense":
                # ReLU layers after He et al. 2015, the others after Glorot and Bengio 2010, eq. 16.
                fans = layer.inputs if layer.activation == "relu" else layer.inputs + layer.outputs
                bound = math.sqrt(6.0 / fans)
                parameters += dense_parameters(layer.name, layer.outputs, layer.inputs, bound, 0.01)
        return parameters

    def multiply_adds(self) -> List[int]:
        products = []
        side = self.input_shape[-1]
        for layer in self.layers:
            places = 1
            if layer.slides:
                side = output_side(side, layer.kernel, layer.stride, layer.padding)
                places = layer.kernel**2 * side**2
            if layer.outputs:
                products.append(layer.outputs * layer.inputs * places)
        return products

    @property
    def flattened(self) -> Tuple[int, int, int]:
        """Return height, width and channels of the images that are flattened."""
        channels = self.input_shape[0]
        side = self.input_shape[-1]
        for layer in self.layers:
            if layer.slides:
                side = output_side(side, layer.kernel, layer.stride, layer.padding)
                channels = layer.outputs or channels
        return side, side, channels

    def drawn_inputs(self) -> Drawn:
        return Drawn(self.input_shape, None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        return Drawn((), self.layers[-1].outputs)

    def kinked(self) -> bool:
        return any(layer.kind == "pool" or layer.activation == "relu" for layer in self.layers)

    def parity(self) -> ParityRecipe:
        """Return one step at a low rate where there are kinks, or two at a high rate."""
        if self.kinked():
            why = (
                "ReLU and max-pool ties make float32 trajectories part after it, and move single "
                "entries in it"
            )
            return ParityRecipe(1, LEARNING_RATE, 3e-6, 5e-2, "one step: " + why)
        # Each further sigmoid layer shrinks the first layers' updates towards the rounding of the
        # weights. Seen of the reference's code in float32 at a mini-batch of 64: 1.2e-2 with 13
        # layers of 256, 4.2e-2 with 25 of 64.
        weights = len(self.multiply_adds())
        update = 2e-3 if weights <= 4 else min(0.5, 1e-2 * max(1.0, weights / 7.0) ** 3.5)
        why = "learning rate 1: at 0.01 the updates sink towards float32 resolution of the weights"
        return ParityRecipe(2, 1.0, 5e-5, update, why)

    def words(self) -> str:
        kinds = [layer.kind for layer in self.layers]
        parts = []
        for kind, word in (("convolution", "conv"), ("pool", "pool"), ("dense", "dense")):
            if kind in kinds:
                parts.append("%d %s" % (kinds.count(kind), word))
        return ", ".join(parts)


class Feedforward(Chain):
    """Dense layers, called fc1, fc2 and so on; ``activation`` is that of the hidden ones."""

    name = "feedforward"
    kind = "dense"

    inputs: int = number(Numbers.whole, example="784")
    hidden: Tuple[int, ...] = number(Numbers.wholes, shortest=0)
    outputs: int = number(Numbers.whole, least=2, example="10")
    activation: str = number(Numbers.word, known=ACTIVATIONS)
    input_scale: float = number(Numbers.real, usual=1.0, least=1e-6, most=1e6)

    @property
    def input_shape(self) -> Tuple[int, ...]:
        return (self.inputs,)

    @property
    def layers(self) -> Tuple[Layer, ...]:
        sizes = (self.inputs,) + self.hidden + (self.outputs,)
        activations = [self.activation] * len(self.hidden) + ["none"]
        layers = []
        for index, activation in enumerate(activations):
            name = "fc%d" % (index + 1)
            inputs = sizes[index]
            outputs = sizes[index + 1]
            layers.append(Layer("dense", name, inputs, outputs, activation=activation))
        return tuple(layers)


_EXAMPLE = (
    "[{ convolution = 32, kernel = 3, padding = 1 }, { pool = 2, stride = 2 }, { dense = 128 }]"
)
_ACTIVATIONS = ACTIVATIONS + ("none",)


class Convolutional(Chain):
    """Convolutions and pools on square images with a side of ``side``, then dense layers.

    A layer is a table. That of a convolution has ``convolution`` (its outputs), ``kernel`` and, if
    they are not usual, ``stride`` (1), ``padding`` (0) and ``activation`` ("relu"). That of a pool
    has ``pool`` (the side of its window), ``stride`` (that side) and ``padding`` (0). That of a
    dense layer has ``dense`` (its size) and ``activation``. ``outputs`` is the size of a last dense
    layer.
    """

    name = "convolutional"
    kind = "convolutional"

    channels: int = number(Numbers.whole, example="3")
    side: int = number(Numbers.whole, example="32", most=10000)
    layers: Tuple[Layer, ...] = number(Numbers.tables, example=_EXAMPLE)
    input_scale: float = number(Numbers.real, usual=1.0, least=1e-6, most=1e6)

    def check(self, numbers: Numbers) -> None:
        """Make layers of the tables of numbers, and read ``outputs``."""
        tables: Any = self.layers
        self.layers = ()
        for table in tables:
            kinds = [kind for kind in ("convolution", "pool", "dense") if table.has(kind)]
            if len(kinds) != 1:
                text = "a layer has exactly one of these keys, as in %s." % _EXAMPLE
                raise table.error("convolution, pool or dense", text)
            if kinds[0] == "dense":
                size = table.whole("dense")
                activation = table.word("activation", _ACTIVATIONS, "relu")
                table.finish()
                self._add_dense(size, activation)
            else:
                self._add_window(table, kinds[0])
        self._add_dense(numbers.whole("outputs", least=2, example="10"), "none")

    def _name(self, kind: str) -> str:
        return "%s%d" % (kind, sum(layer.outputs > 0 for layer in self.layers) + 1)

    def _add_window(self, table: Numbers, kind: str) -> None:
        size = table.whole(kind, example="32")
        # A window must not lie in the padding alone.
        if kind == "convolution":
            kernel = table.whole("kernel", example="3", most=1000)
            stride = table.whole("stride", 1, most=1000)
            padding = table.whole("padding", 0, least=0, most=kernel - 1)
            activation = table.word("activation", _ACTIVATIONS, "relu")
        else:
            kernel = size
            stride = table.whole("stride", kernel, most=1000)
            padding = table.whole("padding", 0, least=0, most=kernel // 2)
            activation = "none"
        table.finish()
        if any(layer.kind == "dense" for layer in self.layers):
            text = "it comes after a fully connected layer. Put all dense layers last."
            raise table.error(kind, text)
        side, _, channels = self.flattened
        if kernel > side + 2 * padding:
            text = (
                "%d is larger than the image, which has a side of %d here. Make it smaller, or "
                "side larger."
            )
            raise table.error("kernel" if kind == "convolution" else kind, text % (kernel, side))
        window: Dict[str, Any] = {
            "kernel": kernel,
            "stride": stride,
            "padding": padding,
            "activation": activation,
        }
        if kind == "convolution":
            window.update(name=self._name("conv"), inputs=channels, outputs=size)
        self.layers += (Layer(kind, **window),)

    def _add_dense(self, outputs: int, activation: str) -> None:
        if self.layers and self.layers[-1].kind == "dense":
            inputs = self.layers[-1].outputs
        else:
            height, width, channels = self.flattened
            inputs = height * width * channels
            self.layers += (Layer("flatten"),)
        self.layers += (Layer("dense", self._name("fc"), inputs, outputs, activation=activation),)

    def data(self) -> Dict[str, Any]:
        written = []
        for layer in self.layers[:-1]:
            if layer.kind == "flatten":
                continue
            if layer.kind == "pool":
                table: Dict[str, Any] = {"pool": layer.kernel}
                usual = {"stride": layer.kernel, "padding": 0, "activation": "none"}
            else:
                table = {layer.kind: layer.outputs}
                usual = {"stride": 1, "padding": 0, "activation": "relu"}
            if layer.kind == "convolution":
                table["kernel"] = layer.kernel
            for key, usual_value in usual.items():
                value = getattr(layer, key)
                if value != usual_value:
                    table[key] = value
            written.append(table)
        return dict(super().data(), layers=written, outputs=self.layers[-1].outputs)

    @property
    def input_shape(self) -> Tuple[int, ...]:
        return (self.channels, self.side, self.side)

"""Networks that are a chain of layers: each reads the output of the one before it."""

import math
from typing import Any, Dict, List, Tuple

from .family import (
    ACTIVATIONS,
    LEARNING_RATE,
    Convolution,
    Dense,
    Drawn,
    Family,
    Flatten,
    Layer,
    MaxPool,
    Numbers,
    Parameter,
    ParityRecipe,
    convolution_weight,
    number,
    output_side,
)


class Chain(Family):
    """A chain of layers that ends in a dense one, the logits; loss: softmax cross-entropy, mean over the batch."""

    #: Half-width of the uniform distribution of the synthetic inputs.
    input_scale: float

    @property
    def input_shape(self) -> Tuple[int, ...]:
        raise NotImplementedError

    #: In forward order; or a property.
    layers: Any

    def parameters(self) -> List[Parameter]:
        made = []
        for layer in self.layers:
            if isinstance(layer, Convolution):
                made.append(convolution_weight(layer.name, layer.outputs, layer.inputs, layer.kernel))
                made.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
            elif isinstance(layer, Dense):
                # ReLU layers after He et al. 2015, the others after Glorot and Bengio 2010, eq. 16.
                fans = layer.inputs if layer.activation == "relu" else layer.inputs + layer.outputs
                made.append(Parameter(layer.name + ".weight", (layer.outputs, layer.inputs), math.sqrt(6.0 / fans)))
                made.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
        return made

    def multiply_adds(self) -> List[int]:
        products, side = [], self.input_shape[-1]
        for layer in self.layers:
            if isinstance(layer, (Convolution, MaxPool)):
                side = output_side(side, layer.kernel, layer.stride, layer.padding)
            if isinstance(layer, Convolution):
                products.append(layer.outputs * layer.inputs * layer.kernel**2 * side**2)
            elif isinstance(layer, Dense):
                products.append(layer.inputs * layer.outputs)
        return products

    @property
    def flattened(self) -> Tuple[int, int, int]:
        """Return height, width and channels of the images that are flattened."""
        channels, side = self.input_shape[0], self.input_shape[-1]
        for layer in self.layers:
            if isinstance(layer, (Convolution, MaxPool)):
                side = output_side(side, layer.kernel, layer.stride, layer.padding)
            channels = layer.outputs if isinstance(layer, Convolution) else channels
        return side, side, channels

    def drawn_inputs(self) -> Drawn:
        return Drawn(self.input_shape, None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        last = self.layers[-1]
        assert isinstance(last, Dense)
        return Drawn((), last.outputs)

    def kinked(self) -> bool:
        return any(isinstance(layer, MaxPool) or getattr(layer, "activation", "") == "relu" for layer in self.layers)

    def parity(self) -> ParityRecipe:
        """Return one step at a low rate where there are kinks, or two at a high rate."""
        if self.kinked():
            why = "ReLU and max-pool ties make float32 trajectories part after it, and move single entries in it"
            return ParityRecipe(1, LEARNING_RATE, 3e-6, 5e-2, "one step: " + why)
        # Each further sigmoid layer shrinks the first layers' updates towards the rounding of the weights. Seen of the
        # reference's code in float32 at a mini-batch of 64: 1.2e-2 with 13 layers of 256, 4.2e-2 with 25 of 64.
        weights = len(self.multiply_adds())
        update = 2e-3 if weights <= 4 else min(0.5, 1e-2 * max(1.0, weights / 7.0) ** 3.5)
        why = "learning rate 1: at 0.01 the updates sink towards float32 resolution of the weights"
        return ParityRecipe(2, 1.0, 5e-5, update, why)

    def words(self) -> str:
        kinds = (("conv", Convolution), ("pool", MaxPool), ("dense", Dense))
        counts = [(sum(isinstance(layer, kind) for layer in self.layers), word) for word, kind in kinds]
        return ", ".join("%d %s" % (count, word) for count, word in counts if count)


class Feedforward(Chain):
    """Dense layers, called fc1, fc2 and so on; ``activation`` is that of the hidden ones."""

    name = "feedforward"
    kind = "dense"

    inputs: int = number("whole", example="784")
    hidden: Tuple[int, ...] = number("wholes", shortest=0)
    outputs: int = number("whole", least=2, example="10")
    activation: str = number("word", known=ACTIVATIONS)
    input_scale: float = number("real", usual=1.0, least=1e-6, most=1e6)

    @property
    def input_shape(self) -> Tuple[int, ...]:
        return (self.inputs,)

    @property
    def layers(self) -> Tuple[Dense, ...]:
        sizes = (self.inputs,) + self.hidden + (self.outputs,)
        activations = [self.activation] * len(self.hidden) + ["none"]
        named = enumerate(zip(sizes, sizes[1:], activations), 1)
        return tuple(Dense("fc%d" % index, *layer) for index, layer in named)


_EXAMPLE = "[{ convolution = 32, kernel = 3, padding = 1 }, { pool = 2, stride = 2 }, { dense = 128 }]"
_ACTIVATIONS = ACTIVATIONS + ("none",)
#: Of a layer's table, what may be left out.
_USUAL = {"stride": 1, "padding": 0, "activation": "relu"}


class Convolutional(Chain):
    """Convolutions and pools on square images with a side of ``side``, then dense layers."""

    name = "convolutional"
    kind = "convolutional"

    channels: int = number("whole", example="3")
    side: int = number("whole", example="32", most=10000)
    layers: Tuple[Layer, ...] = number("tables", example=_EXAMPLE)
    input_scale: float = number("real", usual=1.0, least=1e-6, most=1e6)

    def check(self, numbers: Numbers) -> None:
        """Make layers of the tables of numbers, and read ``outputs``, the size of the last, fully connected layer.

        A layer is a table: of a convolution its number of outputs under ``convolution``, with ``kernel`` and, where
        they are not usual, ``stride`` (1), ``padding`` (0) and ``activation`` ("relu"); of a pool its window's side
        under ``pool``, with ``stride`` (the side) and ``padding`` (0); of a fully connected layer its size under
        ``dense``, and ``activation``.
        """
        tables: Any = self.layers
        self.layers = ()
        for table in tables:
            kinds = [kind for kind in ("convolution", "pool", "dense") if table.has(kind)]
            if len(kinds) != 1:
                text = "a layer has exactly one of these keys, as in %s." % _EXAMPLE
                raise table.error("convolution, pool or dense", text)
            if kinds[0] == "dense":
                size, activation = table.whole("dense"), table.word("activation", _ACTIVATIONS, "relu")
                table.finish()
                self._add_dense(size, activation)
            else:
                self._add_window(table, kinds[0])
        self._add_dense(numbers.whole("outputs", least=2, example="10"), "none")

    def _name(self, kind: str) -> str:
        weights = [layer for layer in self.layers if isinstance(layer, (Convolution, Dense))]
        return "%s%d" % (kind, len(weights) + 1)

    def _add_window(self, table: Numbers, kind: str) -> None:
        size = table.whole(kind, example="32")
        kernel = size if kind == "pool" else table.whole("kernel", example="3", most=1000)
        stride = table.whole("stride", kernel if kind == "pool" else 1, most=1000)
        # A window must not lie in the padding alone.
        padding = table.whole("padding", 0, least=0, most=(kernel - 1) if kind == "convolution" else kernel // 2)
        activation = table.word("activation", _ACTIVATIONS, "relu") if kind == "convolution" else "none"
        table.finish()
        if any(isinstance(layer, Dense) for layer in self.layers):
            raise table.error(kind, "it comes after a fully connected layer. Put all dense layers last.")
        side, _, channels = self.flattened
        if kernel > side + 2 * padding:
            text = "%d is larger than the image, which has a side of %d here. Make it smaller, or side larger."
            raise table.error("kernel" if kind == "convolution" else kind, text % (kernel, side))
        if kind == "pool":
            self.layers += (MaxPool(kernel, stride, padding),)
        else:
            name = self._name("conv")
            self.layers += (Convolution(name, channels, size, kernel, stride, padding, activation),)

    def _add_dense(self, outputs: int, activation: str) -> None:
        last = self.layers[-1] if self.layers else None
        if isinstance(last, Dense):
            inputs = last.outputs
        else:
            height, width, channels = self.flattened
            inputs = height * width * channels
            self.layers += (Flatten(),)
        self.layers += (Dense(self._name("fc"), inputs, outputs, activation),)

    def data(self) -> Dict[str, Any]:
        written = []
        for layer in self.layers[:-1]:
            if isinstance(layer, Flatten):
                continue
            given = dict(layer._asdict())
            kind, size, usual = "pool", given.get("kernel"), _USUAL
            if isinstance(layer, MaxPool):
                usual = dict(_USUAL, stride=given.pop("kernel"))
            else:
                kind = "dense" if isinstance(layer, Dense) else "convolution"
                size = given.pop("outputs")
                del given["name"], given["inputs"]
            kept = {key: value for key, value in given.items() if value != usual.get(key)}
            written.append(dict({kind: size}, **kept))
        return dict(super().data(), layers=written, outputs=self.layers[-1].outputs)  # type: ignore[union-attr]

    @property
    def input_shape(self) -> Tuple[int, ...]:
        return (self.channels, self.side, self.side)

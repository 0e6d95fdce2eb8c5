"""What the families have in common whose networks are a chain of layers: each reads what the one before it gives."""

import math
from typing import Any, Dict, List, NamedTuple, Tuple

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
    output_side,
    without_usual,
)


class Chain(Family):
    """A chain of layers that ends in a dense one, the logits; loss: softmax cross-entropy, mean over the batch."""

    __slots__ = ()

    @property
    def input_scale(self) -> float:
        """Half-width of the uniform distribution of the synthetic inputs."""
        raise NotImplementedError

    @property
    def input_shape(self) -> Tuple[int, ...]:
        raise NotImplementedError

    @property
    def layers(self) -> Tuple[Layer, ...]:
        """The layers, in forward order."""
        raise NotImplementedError

    def parameters(self) -> List[Parameter]:
        found = []
        for layer in self.layers:
            if isinstance(layer, Convolution):
                found.append(convolution_weight(layer.name, layer.outputs, layer.inputs, layer.kernel))
                found.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
            elif isinstance(layer, Dense):
                # ReLU layers after He et al. 2015, the others after Glorot and Bengio 2010, eq. 16.
                fans = layer.inputs if layer.activation == "relu" else layer.inputs + layer.outputs
                found.append(Parameter(layer.name + ".weight", (layer.outputs, layer.inputs), math.sqrt(6.0 / fans)))
                found.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
        return found

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
        channels, _, side = self.input_shape
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


class _FeedforwardNumbers(NamedTuple):
    inputs: int
    hidden: Tuple[int, ...]
    outputs: int
    activation: str  # of the hidden layers
    input_scale: float = 1.0  # half-width of the uniform distribution of the synthetic inputs


class Feedforward(_FeedforwardNumbers, Chain):
    """Dense layers."""

    __slots__ = ()

    name = "feedforward"
    kind = "dense"
    lists = ("hidden",)

    @classmethod
    def read(cls, numbers: Numbers) -> "Feedforward":
        return cls(
            numbers.whole("inputs", example="784"),
            tuple(numbers.wholes("hidden", shortest=0)),
            numbers.whole("outputs", least=2, example="10"),
            numbers.word("activation", ACTIVATIONS),
            numbers.real("input_scale", 1.0, 1e-6, 1e6),
        )

    def data(self) -> Dict[str, Any]:
        return without_usual(dict(self._asdict(), hidden=list(self.hidden)), [("input_scale", 1.0)])

    @property
    def input_shape(self) -> Tuple[int, ...]:
        return (self.inputs,)

    @property
    def layers(self) -> Tuple[Layer, ...]:
        """Return the layers, called fc1, fc2 and so on."""
        sizes = (self.inputs,) + tuple(self.hidden) + (self.outputs,)
        last = len(sizes) - 2
        return tuple(
            Dense("fc%d" % (index + 1), sizes[index], sizes[index + 1], "none" if index == last else self.activation)
            for index in range(last + 1)
        )


_EXAMPLE = "[{ convolution = 32, kernel = 3, padding = 1 }, { pool = 2, stride = 2 }, { dense = 128 }]"
_ACTIVATIONS = ACTIVATIONS + ("none",)


class _ConvolutionalNumbers(NamedTuple):
    channels: int
    side: int  # of the images, which are square
    layers: Tuple[Layer, ...]
    input_scale: float = 1.0  # half-width of the uniform distribution of the synthetic inputs


class Convolutional(_ConvolutionalNumbers, Chain):
    """Convolutions and pools, then dense layers."""

    __slots__ = ()

    name = "convolutional"
    kind = "convolutional"
    lists = ("layers",)

    @classmethod
    def read(cls, numbers: Numbers) -> "Convolutional":
        """Read ``channels``, ``side``, ``layers``, ``outputs`` and, where it is not 1, ``input_scale``.

        A layer is a table: of a convolution its number of outputs under ``convolution``, with ``kernel`` and, where
        they are not usual, ``stride`` (1), ``padding`` (0) and ``activation`` ("relu"); of a pool its window's side
        under ``pool``, with ``stride`` (the side) and ``padding`` (0); of a fully connected layer its size under
        ``dense``, and ``activation``. A last layer, fully connected, gives ``outputs`` logits.
        """
        channels = numbers.whole("channels", example="3")
        side = numbers.whole("side", example="32", most=10000)
        chain = _Reader(channels, side)
        for table in numbers.tables("layers", _EXAMPLE):
            chain.add(table)
        chain.dense(numbers.whole("outputs", least=2, example="10"), "none")
        return cls(channels, side, tuple(chain.layers), numbers.real("input_scale", 1.0, 1e-6, 1e6))

    def data(self) -> Dict[str, Any]:
        written: List[Dict[str, Any]] = []
        for layer in self.layers[:-1]:
            if isinstance(layer, Convolution):
                table = {"convolution": layer.outputs, "kernel": layer.kernel, "stride": layer.stride}
                table.update({"padding": layer.padding, "activation": layer.activation})  # type: ignore[dict-item]
                written.append(without_usual(table, [("stride", 1), ("padding", 0), ("activation", "relu")]))
            elif isinstance(layer, MaxPool):
                table = {"pool": layer.kernel, "stride": layer.stride, "padding": layer.padding}
                written.append(without_usual(table, [("stride", layer.kernel), ("padding", 0)]))
            elif isinstance(layer, Dense):
                dense: Dict[str, Any] = {"dense": layer.outputs, "activation": layer.activation}
                written.append(without_usual(dense, [("activation", "relu")]))
        last = self.layers[-1]
        assert isinstance(last, Dense)
        found = {"channels": self.channels, "side": self.side, "layers": written, "outputs": last.outputs}
        return without_usual(dict(found, input_scale=self.input_scale), [("input_scale", 1.0)])

    @property
    def input_shape(self) -> Tuple[int, int, int]:
        return (self.channels, self.side, self.side)


class _Reader:
    """Layers while they are read: each gets its inputs from the one before, and a name with its place among weights."""

    def __init__(self, channels: int, side: int) -> None:
        self.layers: List[Layer] = []
        self._channels = channels
        self._side = side
        self._flat = 0  # outputs of the last fully connected layer; 0 before there is one
        self._weights = 0

    def add(self, table: Numbers) -> None:
        """Read one layer."""
        kinds = [kind for kind in ("convolution", "pool", "dense") if table.has(kind)]
        if len(kinds) != 1:
            raise table.error(
                "convolution, pool or dense", "a layer has exactly one of these keys, as in %s." % _EXAMPLE
            )
        if kinds[0] == "dense":
            size = table.whole("dense")
            activation = table.word("activation", _ACTIVATIONS, "relu")
            table.finish()
            self.dense(size, activation)
        else:
            self._window(table, kinds[0])

    def _window(self, table: Numbers, kind: str) -> None:
        size = table.whole(kind, example="32")
        kernel = size if kind == "pool" else table.whole("kernel", example="3", most=1000)
        stride = table.whole("stride", kernel if kind == "pool" else 1, most=1000)
        # A window must not lie in the padding alone.
        padding = table.whole("padding", 0, least=0, most=(kernel - 1) if kind == "convolution" else kernel // 2)
        activation = table.word("activation", _ACTIVATIONS, "relu") if kind == "convolution" else "none"
        table.finish()
        if self._flat:
            raise table.error(kind, "it comes after a fully connected layer. Put all dense layers last.")
        if kernel > self._side + 2 * padding:
            raise table.error(
                "kernel" if kind == "convolution" else kind,
                "%d is larger than the image, which has a side of %d here. Make it smaller, or side larger."
                % (kernel, self._side),
            )
        self._side = output_side(self._side, kernel, stride, padding)
        if kind == "pool":
            self.layers.append(MaxPool(kernel, stride, padding))
            return
        self._weights += 1
        name = "conv%d" % self._weights
        self.layers.append(Convolution(name, self._channels, size, kernel, stride, padding, activation))
        self._channels = size

    def dense(self, outputs: int, activation: str) -> None:
        """Add a fully connected layer."""
        if not self._flat:
            self.layers.append(Flatten())
            self._flat = self._channels * self._side**2
        self._weights += 1
        self.layers.append(Dense("fc%d" % self._weights, self._flat, outputs, activation))
        self._flat = outputs

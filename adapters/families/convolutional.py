"""Chains of convolutions and pools on square images, then fully connected layers."""

from typing import Any, Dict, List, NamedTuple, Tuple

from .chain import Chain
from .layers import ACTIVATIONS, Convolution, Dense, Flatten, Layer, MaxPool, output_side
from .numbers import Numbers, without_usual

_EXAMPLE = "[{ convolution = 32, kernel = 3, padding = 1 }, { pool = 2, stride = 2 }, { dense = 128 }]"
_ACTIVATIONS = ACTIVATIONS + ("none",)


class _Numbers(NamedTuple):
    channels: int
    side: int  # of the images, which are square
    layers: Tuple[Layer, ...]
    input_scale: float = 1.0  # half-width of the uniform distribution of the synthetic inputs


class Convolutional(_Numbers, Chain):
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
        """Return the numbers."""
        written: List[Dict[str, Any]] = []
        for layer in self.layers[:-1]:
            if isinstance(layer, Convolution):
                table = {"convolution": layer.out_channels, "kernel": layer.kernel, "stride": layer.stride}
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
        """Return the shape of one example's inputs."""
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

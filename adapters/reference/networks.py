"""Networks forward and backward by hand: chains of layers, residual networks and transformers.

The gradient of each operation is derived by hand. An operation leaves its way back on a tape: a
call from the gradient by its output to that by its input, which stores the gradients by its
parameters.
"""

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from ..families import Bottleneck, Layer
from . import arithmetic

Gradients = Iterator[Tuple[str, np.ndarray]]
Back = Callable[[Any], Any]


class Model:
    """The operations of all networks; ``weights`` are read at every pass and never changed here.

    ``rows`` of a subclass returns the last dense layer's inputs, and ``last`` is that layer's name.
    """

    last = "fc"

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.tape: List[Back] = []
        self.gradients: Dict[str, np.ndarray] = {}  # of the operation that `backward` has reached
        self.gradient: Any = None

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss of this mini-batch, and keep the tape for ``backward``."""
        self.tape = []
        return self.dense_loss(self.last, self.rows(inputs), self.label_rows(labels))

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs of this mini-batch, in the order of ``rows``, without a way back."""
        self.tape = []
        weight = self.weights[self.last + ".weight"]
        bias = self.weights[self.last + ".bias"]
        outputs = self.rows(inputs) @ weight.T + bias
        self.tape = []
        return outputs

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def label_rows(self, labels: np.ndarray) -> np.ndarray:
        """Return labels in the order of ``rows``: (rows,), or (sets, rows)."""
        return labels

    def backward(self) -> Gradients:
        """Yield every parameter's gradient, last layer first.

        When a gradient is yielded its parameter is no longer needed, so the caller may update it at
        once. The gradients of a large network then never lie in memory together.
        """
        gradient = self.gradient
        while self.tape:
            gradient = self.tape.pop()(gradient)
            yield from self.gradients.items()
            self.gradients = {}

    def loss(self, logits: np.ndarray, labels: np.ndarray, count: int) -> Tuple[float, np.ndarray]:
        """Return the summed loss of these rows over the count of all rows, and its gradient.

        It is the gradient by the logits.
        """
        return arithmetic.cross_entropy(logits, labels, count)

    def dense_loss(self, name: str, rows: np.ndarray, labels: np.ndarray) -> float:
        weight = self.weights[name + ".weight"]
        bias = self.weights[name + ".bias"]

        def loss_of_some(logits: np.ndarray, some: slice) -> Tuple[float, np.ndarray]:
            return self.loss(logits, labels[..., some], len(rows))

        loss, by_weight, by_bias, by_rows = arithmetic.dense_softmax(
            rows, weight, bias, loss_of_some
        )

        def back(_: Any) -> np.ndarray:
            self.gradients[name + ".weight"] = by_weight
            self.gradients[name + ".bias"] = by_bias
            return by_rows

        self.tape.append(back)
        return loss

    def dense(self, name: str, values: np.ndarray) -> np.ndarray:
        weight = self.weights[name + ".weight"]

        def back(gradient: np.ndarray) -> np.ndarray:
            self.gradients[name + ".bias"] = gradient.sum(axis=0)
            self.gradients[name + ".weight"] = gradient.T @ values
            # The mini-batch's own gradient is not needed.
            return gradient @ weight if self.tape else gradient

        self.tape.append(back)
        return values @ weight.T + self.weights[name + ".bias"]

    def activated(self, values: np.ndarray, kind: str) -> np.ndarray:
        activate, activate_backward = arithmetic.ACTIVATIONS[kind]
        output = activate(values)

        def back(gradient: Any) -> Any:
            return activate_backward(gradient, output)

        self.tape.append(back)
        return output

    def convolution(
        self, name: str, images: np.ndarray, stride: int, padding: int, bias: bool = False
    ) -> np.ndarray:
        weight = self.weights[name + ".weight"]

        def back(gradient: np.ndarray) -> Any:
            if bias:
                self.gradients[name + ".bias"] = gradient.sum(axis=(0, 2, 3))
            by_weight, by_images = arithmetic.convolution_backward(
                gradient, images, weight, stride, padding, bool(self.tape)
            )
            self.gradients[name + ".weight"] = by_weight
            return by_images

        self.tape.append(back)
        output = arithmetic.convolution(images, weight, stride, padding)
        return output + self.weights[name + ".bias"][:, None, None] if bias else output

    def pool(self, images: np.ndarray, kernel: int, stride: int, padding: int) -> np.ndarray:
        output, places = arithmetic.max_pool(images, kernel, stride, padding)

        def back(gradient: np.ndarray) -> np.ndarray:
            return arithmetic.max_pool_backward(
                gradient, places, images.shape, kernel, stride, padding
            )

        self.tape.append(back)
        return output

    def reshaped(self, values: np.ndarray, *shape: int) -> np.ndarray:
        def back(gradient: np.ndarray) -> np.ndarray:
            return gradient.reshape(values.shape)

        self.tape.append(back)
        return values.reshape(shape)

    def embedded(self, name: str, tokens: np.ndarray) -> np.ndarray:
        table = self.weights[name + ".weight"]

        def back(gradient: np.ndarray) -> None:
            by_table = np.zeros_like(table)
            np.add.at(by_table, tokens, gradient)
            self.gradients[name + ".weight"] = by_table

        self.tape.append(back)
        return table[tokens]

    def sum_of(
        self, inner: Back, values: np.ndarray, shortcut: Optional[Back] = None
    ) -> np.ndarray:
        """Return the sum of two branches that read the same values.

        Without a shortcut one is the values themselves.
        """
        start = len(self.tape)
        inner_output = inner(values)
        inner_tape = self.tape[start:]
        del self.tape[start:]
        outer_output = values if shortcut is None else shortcut(values)
        outer_tape = self.tape[start:]
        del self.tape[start:]

        def back(gradient: np.ndarray) -> np.ndarray:
            return _go_back(inner_tape, gradient) + _go_back(outer_tape, gradient)

        self.tape.append(back)
        return inner_output + outer_output


def _go_back(tape: List[Back], gradient: Any) -> Any:
    """Return the gradient at the start of a tape from that at its end."""
    for step in reversed(tape):
        gradient = step(gradient)
    return gradient


class ChainModel(Model):
    """The families ``Feedforward`` and ``Convolutional``."""

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        super().__init__(family, weights)
        self.last = family.layers[-1].name

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        values = inputs
        for layer in self.family.layers[:-1]:
            if layer.kind == "flatten":
                values = self.reshaped(values, len(values), -1)
            elif layer.kind == "pool":
                values = self.pool(values, layer.kernel, layer.stride, layer.padding)
            else:
                if layer.kind == "convolution":
                    values = self.convolution(
                        layer.name, values, layer.stride, layer.padding, bias=True
                    )
                else:
                    values = self.dense(layer.name, values)
                values = self.activated(values, layer.activation)
        return values


class ResidualModel(Model):
    """The family ``Residual``."""

    normalise = staticmethod(arithmetic.batch_normalise)
    normalise_backward = staticmethod(arithmetic.batch_normalise_backward)

    #: Running means and variances, of inference. Empty in training.
    statistics: Dict[str, np.ndarray] = {}

    def norm(self, name: str, values: np.ndarray) -> np.ndarray:
        gamma = self.weights[name + ".gamma"]
        beta = self.weights[name + ".beta"]
        if self.statistics:
            mean = self.statistics[name + ".mean"]
            variance = self.statistics[name + ".variance"]
            scale = gamma / np.sqrt(variance + values.dtype.type(self.family.epsilon))
            return (values - mean[:, None, None]) * scale[:, None, None] + beta[:, None, None]
        output, normalised, inverse = self.normalise(values, gamma, beta, self.family.epsilon)

        def back(gradient: np.ndarray) -> np.ndarray:
            by_values, by_gamma, by_beta = self.normalise_backward(
                gradient, normalised, inverse, gamma
            )
            self.gradients[name + ".gamma"] = by_gamma
            self.gradients[name + ".beta"] = by_beta
            return by_values

        self.tape.append(back)
        return output

    @staticmethod
    def windows(block: Bottleneck) -> Tuple[Tuple[int, int], ...]:
        """Return stride and padding of a block's convolutions."""
        return (block.body[0].stride, 0), (1, 1), (1, 0)

    def body(self, block: Bottleneck, values: np.ndarray) -> np.ndarray:
        for index, window in enumerate(self.windows(block), start=1):
            values = self.convolution("%s.conv%d" % (block.name, index), values, *window)
            values = self.norm("%s.norm%d" % (block.name, index), values)
            if index < 3:
                values = self.activated(values, "relu")
        return values

    def projected(self, spec: Layer, values: np.ndarray) -> np.ndarray:
        return self.norm(spec.norm, self.convolution(spec.name, values, spec.stride, 0))

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        values = self.convolution("stem", inputs, 2, 3)
        values = self.norm("stem_norm", values)
        values = self.activated(values, "relu")
        values = self.pool(values, 3, 2, 1)
        for block in self.family.bottlenecks:
            shortcut = partial(self.projected, block.shortcut) if block.shortcut else None
            values = self.sum_of(partial(self.body, block), values, shortcut)
            values = self.activated(values, "relu")
        shape = values.shape
        pixels = shape[2] * shape[3]

        def back(gradient: np.ndarray) -> np.ndarray:
            return np.broadcast_to((gradient / pixels)[:, :, None, None], shape)

        self.tape.append(back)
        return values.mean(axis=(2, 3))


class AttentionModel(Model):
    """The family ``Attention``; values are rows (batch * steps, width)."""

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        super().__init__(family, weights)
        self.width = family.width // family.heads  # of a head
        self.scale = float(self.width**-0.5)

    def hidden(self) -> np.ndarray:
        """Return which scores are masked, (steps, steps): those of later steps."""
        return np.triu(np.ones((self.family.steps,) * 2, bool), 1)

    def label_rows(self, labels: np.ndarray) -> np.ndarray:
        return labels.reshape(-1)

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        positions = self.weights["position.weight"][: inputs.shape[1]]
        values = self.embedded("embedding", inputs) + positions

        def back(gradient: np.ndarray) -> np.ndarray:
            self.gradients["position.weight"] = gradient.sum(axis=0)
            return gradient

        self.tape.append(back)
        values = self.reshaped(values, -1, self.family.width)
        for layer in range(1, self.family.layers + 1):
            name = "layer%d." % layer
            values = self.sum_of(partial(self.attended, name), values)
            values = self.sum_of(partial(self.feedforward, name), values)
        return self.norm("norm", values)

    def standardised(self, rows: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Return each row with mean 0 and biased variance 1, and 1 / its standard deviation."""
        centred = rows - rows.mean(axis=1, keepdims=True)
        inverse = 1.0 / np.sqrt(
            np.square(centred).mean(axis=1, keepdims=True) + rows.dtype.type(self.family.epsilon)
        )
        return centred * inverse, inverse

    def norm(self, name: str, rows: np.ndarray) -> np.ndarray:
        standard, inverse = self.standardised(rows)
        gamma = self.weights[name + ".gamma"]

        def back(gradient: np.ndarray) -> np.ndarray:
            self.gradients[name + ".gamma"] = (gradient * standard).sum(axis=0)
            self.gradients[name + ".beta"] = gradient.sum(axis=0)
            scaled = gradient * gamma
            overlap = (scaled * standard).mean(axis=1, keepdims=True)
            return inverse * (scaled - scaled.mean(axis=1, keepdims=True) - standard * overlap)

        self.tape.append(back)
        return standard * gamma + self.weights[name + ".beta"]

    def attended(self, name: str, rows: np.ndarray) -> np.ndarray:
        steps = self.family.steps
        heads = self.family.heads
        parts = self.dense(name + "qkv", self.norm(name + "norm1", rows))
        parts = parts.reshape(-1, steps, 3, heads, self.width)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        scores = np.where(self.hidden(), -np.inf, (query @ key.swapaxes(2, 3)) * self.scale)
        shares = np.exp(scores - scores.max(axis=3, keepdims=True))
        shares /= shares.sum(axis=3, keepdims=True)

        def back(gradient: np.ndarray) -> np.ndarray:
            by_mixed = gradient.reshape(-1, steps, heads, self.width).swapaxes(1, 2)
            by_shares = by_mixed @ value.swapaxes(2, 3)
            overlap = (by_shares * shares).sum(axis=3, keepdims=True)
            by_scores = shares * (by_shares - overlap) * self.scale
            by_query = by_scores @ key
            by_key = by_scores.swapaxes(2, 3) @ query
            by_value = shares.swapaxes(2, 3) @ by_mixed
            by_parts = np.stack([by_query, by_key, by_value])
            return by_parts.transpose(1, 3, 0, 2, 4).reshape(len(rows), -1)

        self.tape.append(back)
        return self.dense(name + "project", (shares @ value).swapaxes(1, 2).reshape(rows.shape))

    def feedforward(self, name: str, rows: np.ndarray) -> np.ndarray:
        raised = self.dense(name + "upper", self.norm(name + "norm2", rows))
        squashed = np.tanh(_GELU * (raised + _CUBE * raised**3))

        def back(gradient: np.ndarray) -> np.ndarray:
            slope = (1.0 - squashed**2) * (_GELU * (1.0 + 3.0 * _CUBE * raised**2))
            return gradient * 0.5 * (1.0 + squashed + raised * slope)

        self.tape.append(back)
        return self.dense(name + "lower", 0.5 * raised * (1.0 + squashed))


#: Of gelu by tanh (Hendrycks and Gimpel 2016, arXiv 1606.08415). Plain numbers, which leave float32
#: arrays float32.
_GELU = float(np.sqrt(2.0 / np.pi))
_CUBE = 0.044715

"""A chain of dense layers, convolutions and pools: forward and backward by hand."""

from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from ..families import Attention, Bottleneck, Chain, Convolution, Dense, Flatten, MaxPool, Residual
from . import arithmetic

Gradients = Iterator[Tuple[str, np.ndarray]]


class FeedforwardModel:
    """The families ``Feedforward`` and ``Convolutional``; ``weights`` are read at every pass and never changed here."""

    def __init__(self, family: Chain, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.kept: List[Tuple[Any, ...]] = []
        self.gradient = np.zeros(0)

    def convolve(self, layer: Convolution, images: np.ndarray) -> np.ndarray:
        """Return a convolution's output before bias and activation."""
        weight = self.weights[layer.name + ".weight"]
        return arithmetic.convolution(images, weight, layer.stride, layer.padding)

    def _forward(self, layer: Any, values: np.ndarray) -> np.ndarray:
        if isinstance(layer, Flatten):
            self.kept.append((values.shape,))
            return values.reshape(len(values), -1)
        if isinstance(layer, MaxPool):
            output, places = arithmetic.max_pool(values, layer.kernel, layer.stride, layer.padding)
            self.kept.append((places, values.shape))
            return output
        bias = self.weights[layer.name + ".bias"]
        if isinstance(layer, Convolution):
            output = self.convolve(layer, values) + bias[:, None, None]
        elif isinstance(layer, Dense):
            output = values @ self.weights[layer.name + ".weight"].T + bias
        else:
            raise TypeError("no layer of type %s is known" % type(layer).__name__)
        output = arithmetic.activate(output, layer.activation)
        self.kept.append((values, output))
        return output

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss of this mini-batch and keep what ``backward`` needs."""
        self.kept = []
        values = inputs
        for layer in self.family.layers:
            values = self._forward(layer, values)
        loss, self.gradient = self.loss(values, labels)
        return loss

    def loss(self, logits: np.ndarray, labels: np.ndarray) -> Tuple[float, np.ndarray]:
        """Return the mean loss and its gradient by the logits."""
        return arithmetic.cross_entropy(logits, labels, len(labels))

    def backward(self) -> Gradients:
        """Yield every parameter's gradient, last layer first.

        When a gradient is yielded its parameter is needed no more, so the caller may update it at once: the
        gradients of a large network then never lie in memory together.
        """
        gradient = self.gradient
        for index in reversed(range(len(self.family.layers))):
            layer = self.family.layers[index]
            kept = self.kept.pop()
            if isinstance(layer, Flatten):
                gradient = gradient.reshape(kept[0])
                continue
            if isinstance(layer, MaxPool):
                gradient = arithmetic.max_pool_backward(
                    gradient, kept[0], kept[1], layer.kernel, layer.stride, layer.padding
                )
                continue
            values, output = kept
            gradient = arithmetic.activation_backward(gradient, output, layer.activation)
            weight = self.weights[layer.name + ".weight"]
            if isinstance(layer, Dense):
                by_bias = gradient.sum(axis=0)
                by_weight = gradient.T @ values
                by_values = gradient @ weight if index else gradient
            else:
                by_bias = gradient.sum(axis=(0, 2, 3))
                place = (layer.stride, layer.padding)
                by_weight = arithmetic.convolution_weight_gradient(gradient, values, weight, *place)
                by_values = gradient
                if index:  # nobody asks for the gradient by the mini-batch itself
                    by_values = arithmetic.convolution_input_gradient(gradient, values, weight, *place)
            gradient = by_values
            yield layer.name + ".bias", by_bias
            yield layer.name + ".weight", by_weight


class Tape(NamedTuple):
    """What the backward pass of one convolution with its normalisation needs."""

    images: np.ndarray  # what the convolution read
    normalised: np.ndarray
    inverse: np.ndarray  # 1 / standard deviation
    stride: int
    padding: int


class ResidualModel:
    """The family ``Residual``; ``weights`` are read at every pass and never changed here."""

    def __init__(self, family: Residual, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.tapes: Dict[str, Tape] = {}
        self.outputs: Dict[str, np.ndarray] = {}
        self.gradient = np.zeros(0)

    def normalise(
        self, values: np.ndarray, gamma: np.ndarray, beta: np.ndarray
    ) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return scaled values, normalised values and 1 / standard deviation."""
        return arithmetic.batch_normalise(values, gamma, beta, self.family.epsilon)

    def normalise_backward(
        self, gradient: np.ndarray, normalised: np.ndarray, inverse: np.ndarray, gamma: np.ndarray
    ) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the gradients by the values, by gamma and by beta."""
        return arithmetic.batch_normalise_backward(gradient, normalised, inverse, gamma)

    def _forward(self, name: str, norm: str, images: np.ndarray, stride: int, padding: int) -> np.ndarray:
        values = arithmetic.convolution(images, self.weights[name + ".weight"], stride, padding)
        gamma, beta = self.weights[norm + ".gamma"], self.weights[norm + ".beta"]
        output, normalised, inverse = self.normalise(values, gamma, beta)
        self.tapes[name] = Tape(images, normalised, inverse, stride, padding)
        return output

    def _backward(
        self, name: str, norm: str, gradient: np.ndarray, found: List[Tuple[str, np.ndarray]], wanted: bool = True
    ) -> np.ndarray:
        """Return the gradient by the images; append the parameters' gradients to those found."""
        tape = self.tapes.pop(name)
        weight = self.weights[name + ".weight"]
        gradient, by_gamma, by_beta = self.normalise_backward(
            gradient, tape.normalised, tape.inverse, self.weights[norm + ".gamma"]
        )
        place = (tape.images, weight, tape.stride, tape.padding)
        found.append((norm + ".gamma", by_gamma))
        found.append((norm + ".beta", by_beta))
        found.append((name + ".weight", arithmetic.convolution_weight_gradient(gradient, *place)))
        return arithmetic.convolution_input_gradient(gradient, *place) if wanted else gradient

    def _block_forward(self, block: Bottleneck, images: np.ndarray) -> np.ndarray:
        values = images
        for index, (stride, padding) in enumerate(((block.stride, 0), (1, 1), (1, 0)), start=1):
            name = "%s.conv%d" % (block.name, index)
            values = self._forward(name, "%s.norm%d" % (block.name, index), values, stride, padding)
            if index < 3:
                values = np.maximum(values, 0.0)
        shortcut = images
        if block.projection:
            name = block.name + ".project"
            shortcut = self._forward(name, block.name + ".project_norm", images, block.stride, 0)
        self.outputs[block.name] = np.maximum(values + shortcut, 0.0)
        return self.outputs[block.name]

    def _block_backward(
        self, block: Bottleneck, gradient: np.ndarray, found: List[Tuple[str, np.ndarray]]
    ) -> np.ndarray:
        gradient = gradient * (self.outputs.pop(block.name) > 0.0)
        shortcut = gradient
        if block.projection:
            shortcut = self._backward(block.name + ".project", block.name + ".project_norm", gradient, found)
        for index in (3, 2, 1):
            name = "%s.conv%d" % (block.name, index)
            images = self.tapes[name].images
            gradient = self._backward(name, "%s.norm%d" % (block.name, index), gradient, found)
            if index > 1:  # what the convolution read was the output of a ReLU inside this block
                gradient = gradient * (images > 0.0)
        return gradient + shortcut

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss of this mini-batch and keep what ``backward`` needs."""
        self.tapes, self.outputs = {}, {}
        self.outputs["stem"] = np.maximum(self._forward("stem", "stem_norm", inputs, 2, 3), 0.0)
        values, self.places = arithmetic.max_pool(self.outputs["stem"], 3, 2, 1)
        for block in self.family.bottlenecks:
            values = self._block_forward(block, values)
        self.last_shape = values.shape
        self.features = values.mean(axis=(2, 3))
        logits = self.features @ self.weights["fc.weight"].T + self.weights["fc.bias"]
        loss, self.gradient = self.loss(logits, labels)
        return loss

    def loss(self, logits: np.ndarray, labels: np.ndarray) -> Tuple[float, np.ndarray]:
        """Return the mean loss and its gradient by the logits."""
        return arithmetic.cross_entropy(logits, labels, len(logits))

    def backward(self) -> Gradients:
        """Yield every parameter's gradient, last layer first; the caller may update each at once."""
        gradient = self.gradient @ self.weights["fc.weight"]
        yield "fc.bias", self.gradient.sum(axis=0)
        yield "fc.weight", self.gradient.T @ self.features
        height, width = self.last_shape[2:]
        gradient = np.broadcast_to((gradient / (height * width))[:, :, None, None], self.last_shape)
        for block in reversed(self.family.bottlenecks):
            found: List[Tuple[str, np.ndarray]] = []
            gradient = self._block_backward(block, gradient, found)
            for item in found:
                yield item
        output = self.outputs.pop("stem")
        gradient = arithmetic.max_pool_backward(gradient, self.places, output.shape, 3, 2, 1)
        found = []
        self._backward("stem", "stem_norm", gradient * (output > 0.0), found, wanted=False)
        for item in found:
            yield item


Normalised = Tuple[np.ndarray, np.ndarray]  # values of mean 0 and variance 1, and 1 / standard deviation


class AttentionModel:
    """The family ``Attention``; ``weights`` are read at every pass and never changed here.

    Values are rows (batch * steps, width).
    """

    def __init__(self, family: Attention, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.scale = float((family.width // family.heads) ** -0.5)

    def hidden(self) -> np.ndarray:
        """Return which scores are masked, (steps, steps): those of later steps."""
        return np.triu(np.ones((self.family.steps,) * 2, bool), 1)

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss over batch and steps and keep what ``backward`` needs."""
        self.tokens = inputs
        self.tape: List[Tuple[np.ndarray, ...]] = []
        rows = self.weights["embedding.weight"][inputs] + self.weights["position.weight"][: inputs.shape[1]]
        rows = rows.reshape(-1, self.family.width)
        for layer in range(1, self.family.layers + 1):
            name = "layer%d." % layer
            rows = rows + self._attend(name, self._norm(name + "norm1", rows))
            rows = rows + self._feedforward(name, self._norm(name + "norm2", rows))
        weight, bias, right = self.weights["fc.weight"], self.weights["fc.bias"], labels.reshape(-1)
        self.output = arithmetic.dense_softmax(
            self._norm("norm", rows),
            weight,
            bias,
            lambda logits, some: arithmetic.cross_entropy(logits, right[some], len(right)),
        )
        return self.output.loss

    def backward(self) -> Gradients:
        """Yield every parameter's gradient, last layer first; the caller may update each at once."""
        found: Dict[str, np.ndarray] = {"fc.weight": self.output.by_weight, "fc.bias": self.output.by_bias}
        by_rows = self._norm_back("norm", self.output.by_rows, found)
        for layer in range(self.family.layers, 0, -1):
            name = "layer%d." % layer
            by_rows = by_rows + self._norm_back(name + "norm2", self._feedforward_back(name, by_rows, found), found)
            by_rows = by_rows + self._norm_back(name + "norm1", self._attend_back(name, by_rows, found), found)
        by_rows = by_rows.reshape(self.tokens.shape + (-1,))
        found["position.weight"] = by_rows.sum(axis=0)
        found["embedding.weight"] = np.zeros_like(self.weights["embedding.weight"])
        np.add.at(found["embedding.weight"], self.tokens, by_rows)
        yield from found.items()

    def _dense(self, name: str, rows: np.ndarray) -> np.ndarray:
        self.tape.append((rows,))
        return rows @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _dense_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        (rows,) = self.tape.pop()
        found[name + ".weight"] = gradient.T @ rows
        found[name + ".bias"] = gradient.sum(axis=0)
        return gradient @ self.weights[name + ".weight"]

    def standardised(self, rows: np.ndarray) -> Normalised:
        """Return each row with mean 0 and variance 1, and what it was multiplied by; the variance is the biased one."""
        centred = rows - rows.mean(axis=1, keepdims=True)
        inverse = 1.0 / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + rows.dtype.type(self.family.epsilon))
        return centred * inverse, inverse

    def _norm(self, name: str, rows: np.ndarray) -> np.ndarray:
        self.tape.append(self.standardised(rows))
        return self.tape[-1][0] * self.weights[name + ".gamma"] + self.weights[name + ".beta"]

    def _norm_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        standard, inverse = self.tape.pop()
        found[name + ".gamma"] = (gradient * standard).sum(axis=0)
        found[name + ".beta"] = gradient.sum(axis=0)
        scaled = gradient * self.weights[name + ".gamma"]
        overlap = (scaled * standard).mean(axis=1, keepdims=True)
        return inverse * (scaled - scaled.mean(axis=1, keepdims=True) - standard * overlap)

    def _attend(self, name: str, rows: np.ndarray) -> np.ndarray:
        batch, steps = self.tokens.shape
        parts = self._dense(name + "qkv", rows).reshape(batch, steps, 3, self.family.heads, -1)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        scores = np.where(self.hidden(), -np.inf, (query @ key.swapaxes(2, 3)) * self.scale)
        shares = np.exp(scores - scores.max(axis=3, keepdims=True))
        shares /= shares.sum(axis=3, keepdims=True)
        self.tape.append((query, key, value, shares))
        return self._dense(name + "project", (shares @ value).swapaxes(1, 2).reshape(rows.shape))

    def _attend_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        by_mixed = self._dense_back(name + "project", gradient, found)
        query, key, value, shares = self.tape.pop()
        batch, heads, steps, width = query.shape
        by_mixed = by_mixed.reshape(batch, steps, heads, width).swapaxes(1, 2)
        by_shares = by_mixed @ value.swapaxes(2, 3)
        by_scores = shares * (by_shares - (by_shares * shares).sum(axis=3, keepdims=True)) * self.scale
        parts = np.stack([by_scores @ key, by_scores.swapaxes(2, 3) @ query, shares.swapaxes(2, 3) @ by_mixed])
        return self._dense_back(name + "qkv", parts.transpose(1, 3, 0, 2, 4).reshape(batch * steps, -1), found)

    def _feedforward(self, name: str, rows: np.ndarray) -> np.ndarray:
        rows = self._dense(name + "upper", rows)
        squashed = np.tanh(_GELU * (rows + _CUBE * rows**3))
        self.tape.append((rows, squashed))
        return self._dense(name + "lower", 0.5 * rows * (1.0 + squashed))

    def _feedforward_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        gradient = self._dense_back(name + "lower", gradient, found)
        rows, squashed = self.tape.pop()
        slope = (1.0 - squashed**2) * (_GELU * (1.0 + 3.0 * _CUBE * rows**2))
        return self._dense_back(name + "upper", gradient * 0.5 * (1.0 + squashed + rows * slope), found)


#: Of gelu by tanh (Hendrycks and Gimpel 2016, arXiv 1606.08415). Plain numbers, which leave float32 arrays float32.
_GELU, _CUBE = float(np.sqrt(2.0 / np.pi)), 0.044715

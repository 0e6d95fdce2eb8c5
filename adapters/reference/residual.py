"""ResNet v1 with batch normalisation in training mode: forward and backward by hand."""

from typing import Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from ..families import Bottleneck, Residual
from . import arithmetic

Gradients = Iterator[Tuple[str, np.ndarray]]


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

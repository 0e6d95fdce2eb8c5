"""A chain of dense layers, convolutions and pools: forward and backward by hand."""

from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from ..families import Chain, Convolution, Dense, Flatten, MaxPool
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

"""How TensorFlow and Keras hold a parameter, and the way back to its canonical layout.

Dense weights stand there as (inputs, outputs), convolution weights as (height, width, inputs, outputs), LSTM weights as
(inputs, 4 x hidden) with the gates in the canonical order.
"""

from typing import Tuple

import numpy as np


class Layout:
    """Held as it is in canonical layout: vectors, embeddings."""

    def held(self, canonical: np.ndarray) -> np.ndarray:
        """Turn a value in canonical layout into the layout that is held."""
        return canonical

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Turn a value in the layout that is held into canonical layout."""
        return held


class DenseLayout(Layout):
    """Dense and LSTM weights: canonical (outputs, inputs), held as (inputs, outputs)."""

    def held(self, canonical: np.ndarray) -> np.ndarray:
        """Transpose."""
        return np.ascontiguousarray(canonical.T)

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Transpose back."""
        return held.T


class ConvolutionLayout(Layout):
    """Canonical (outputs, inputs, height, width), held as (height, width, inputs, outputs)."""

    def held(self, canonical: np.ndarray) -> np.ndarray:
        """Permute the axes."""
        return np.ascontiguousarray(canonical.transpose(2, 3, 1, 0))

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Permute the axes back."""
        return held.transpose(3, 2, 0, 1)


class FlattenedLayout(Layout):
    """A dense weight behind flattened images.

    Canonical (outputs, channels * height * width), held as (height * width * channels, outputs): the images are
    flattened in the order they are held in, so the weight is permuted once instead of the activations at each step.
    """

    def __init__(self, image: Tuple[int, int, int]) -> None:
        self.height, self.width, self.channels = image

    def held(self, canonical: np.ndarray) -> np.ndarray:
        """Permute the inputs and transpose."""
        split = canonical.reshape(-1, self.channels, self.height, self.width)
        return np.ascontiguousarray(split.transpose(2, 3, 1, 0).reshape(-1, canonical.shape[0]))

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Permute the inputs back and transpose."""
        split = held.reshape(self.height, self.width, self.channels, -1)
        return split.transpose(3, 2, 0, 1).reshape(held.shape[1], -1)

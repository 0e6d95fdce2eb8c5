"""How Keras holds a parameter, and the way back to its canonical layout.

Keras holds weights alike on every backend: dense weights as (inputs, outputs), convolution weights as (height, width,
inputs, outputs) whatever the order of the images, LSTM weights as (inputs, 4 x hidden) with the gates in the
canonical order input, forget, cell, output.
"""

from typing import Tuple

import numpy as np


class Layout:
    """Held as it is in canonical layout: vectors, embeddings."""

    def held(self, canonical):
        # type: (np.ndarray) -> np.ndarray
        """Turn a value in canonical layout into the layout Keras holds."""
        return canonical

    def canonical(self, held):
        # type: (np.ndarray) -> np.ndarray
        """Turn a value in the layout Keras holds into canonical layout."""
        return held


class Transposed(Layout):
    """Dense and LSTM weights: canonical (outputs, inputs), held as (inputs, outputs)."""

    def held(self, canonical):
        # type: (np.ndarray) -> np.ndarray
        """Transpose."""
        return np.ascontiguousarray(canonical.T)

    def canonical(self, held):
        # type: (np.ndarray) -> np.ndarray
        """Transpose back."""
        return held.T


class Kernel(Layout):
    """Convolution weights: canonical (outputs, inputs, height, width), held as (height, width, inputs, outputs)."""

    def held(self, canonical):
        # type: (np.ndarray) -> np.ndarray
        """Permute the axes."""
        return np.ascontiguousarray(canonical.transpose(2, 3, 1, 0))

    def canonical(self, held):
        # type: (np.ndarray) -> np.ndarray
        """Permute the axes back."""
        return held.transpose(3, 2, 0, 1)


class BehindImages(Layout):
    """A dense weight behind flattened (height, width, channels) images.

    Canonical (outputs, channels * height * width), held as (height * width * channels, outputs): the images are
    flattened in the order they are held in, so the weight is permuted once instead of the activations at each step.
    """

    def __init__(self, image):
        # type: (Tuple[int, int, int]) -> None
        self.height, self.width, self.channels = image

    def held(self, canonical):
        # type: (np.ndarray) -> np.ndarray
        """Permute the inputs and transpose."""
        split = canonical.reshape(-1, self.channels, self.height, self.width)
        return np.ascontiguousarray(split.transpose(2, 3, 1, 0).reshape(-1, canonical.shape[0]))

    def canonical(self, held):
        # type: (np.ndarray) -> np.ndarray
        """Permute the inputs back and transpose."""
        split = held.reshape(self.height, self.width, self.channels, -1)
        return split.transpose(3, 2, 0, 1).reshape(held.shape[1], -1)

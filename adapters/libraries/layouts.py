"""How TensorFlow and Keras hold a parameter, and the way back to its canonical layout.

The way there is theirs: TensorFlow turns the axes of fcn5's weights in a fifth of the time that NumPy takes.
Dense weights stand there as (inputs, outputs), convolution weights as (height, width, inputs, outputs), LSTM weights as
(inputs, 4 x hidden) with the gates in the canonical order.
"""

from typing import Optional, Tuple

import numpy as np


class Layout:
    """Held as it is in canonical layout: vectors, embeddings."""

    #: The axes of what ``split`` gives in the order in which they are held; None where they stay.
    axes: Optional[Tuple[int, ...]] = None

    def split(self, canonical: np.ndarray) -> np.ndarray:
        """Return a view of a value in canonical layout whose axes can be turned."""
        return canonical

    def joined(self, turned: Tuple[int, ...]) -> Tuple[int, ...]:
        """Return the shape that is held of a value whose axes were turned."""
        return turned

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Turn a value in the layout that is held into canonical layout."""
        return held


class DenseLayout(Layout):
    """Dense and LSTM weights: canonical (outputs, inputs), held as (inputs, outputs)."""

    axes = (1, 0)

    def canonical(self, held: np.ndarray) -> np.ndarray:
        return held.T


class ConvolutionLayout(Layout):
    """Canonical (outputs, inputs, height, width), held as (height, width, inputs, outputs)."""

    axes = (2, 3, 1, 0)

    def canonical(self, held: np.ndarray) -> np.ndarray:
        return held.transpose(3, 2, 0, 1)


class FlattenedLayout(Layout):
    """A dense weight behind flattened images.

    Canonical (outputs, channels * height * width), held as (height * width * channels, outputs): the images are
    flattened in the order they are held in, so the weight is permuted once instead of the activations at each step.
    """

    def __init__(self, image: Tuple[int, int, int]) -> None:
        self.height, self.width, self.channels = image

    axes = (2, 3, 1, 0)

    def split(self, canonical: np.ndarray) -> np.ndarray:
        return canonical.reshape(-1, self.channels, self.height, self.width)

    def joined(self, turned: Tuple[int, ...]) -> Tuple[int, ...]:
        return (-1, turned[-1])

    def canonical(self, held: np.ndarray) -> np.ndarray:
        split = held.reshape(self.height, self.width, self.channels, -1)
        return split.transpose(3, 2, 0, 1).reshape(held.shape[1], -1)

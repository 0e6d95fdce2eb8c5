"""How TensorFlow and Keras hold a parameter, and the way back to its canonical layout.

The way there is theirs: TensorFlow turns the axes of fcn5's weights in a fifth of the time that
NumPy takes. Dense weights stand there as (inputs, outputs), convolution weights as (height, width,
inputs, outputs), LSTM weights as (inputs, 4 x hidden) with the gates in the canonical order.
"""

from typing import Optional, Tuple

import numpy as np

PLAIN, DENSE, CONVOLUTION, FLATTENED, GATES, BIASES = (
    "plain",
    "dense",
    "convolution",
    "flattened",
    "gates",
    "biases",
)


class Layout:
    """The layout in which a parameter is held.

    ``PLAIN``  as it is: vectors, embeddings ``DENSE``  dense and LSTM weights: canonical (outputs,
    inputs), held as (inputs, outputs) ``CONVOLUTION``  canonical (outputs, inputs, height, width),
    held as (height, width, inputs, outputs) ``FLATTENED``  a dense weight behind flattened images
    of this height, width and number of channels: canonical
        (outputs, channels * height * width), held as (height * width * channels, outputs). Images
        are flattened in the order they are held in, so the weight is permuted once instead of the
        activations at each step.
    ``GATES``  a GRU's weight in Keras: held as (inputs, 3 x hidden), its first two gates exchanged
    ``BIASES``  a GRU's two biases in Keras: held as (2, 3 x hidden), so exchanged
    """

    def __init__(self, kind: str = PLAIN, image: Tuple[int, int, int] = (0, 0, 0)) -> None:
        self.kind = kind
        self.height, self.width, self.channels = image

    @property
    def axes(self) -> Optional[Tuple[int, ...]]:
        """The axes of what ``split`` gives in the order in which they are held; None where they
        stay.
        """
        if self.kind in (CONVOLUTION, FLATTENED):
            return (2, 3, 1, 0)
        return (1, 0) if self.kind in (DENSE, GATES) else None

    def names(self, name: str) -> Tuple[str, ...]:
        """Return the canonical names of what is held as one variable under this name."""
        return (name, name.replace(".bias", ".hidden_bias")) if self.kind == BIASES else (name,)

    def split(self, canonical: np.ndarray) -> np.ndarray:
        """Return a value in canonical layout so that its axes can be turned."""
        if self.kind == FLATTENED:
            return canonical.reshape(-1, self.channels, self.height, self.width)
        if self.kind == GATES:
            return _exchanged(canonical.T).T
        return _exchanged(canonical) if self.kind == BIASES else canonical

    def joined(self, turned: Tuple[int, ...]) -> Tuple[int, ...]:
        """Return the shape that is held of a value whose axes were turned."""
        return (-1, turned[-1]) if self.kind == FLATTENED else turned

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Turn a value in the layout that is held into canonical layout."""
        if self.kind == FLATTENED:
            split = held.reshape(self.height, self.width, self.channels, -1)
            return split.transpose(3, 2, 0, 1).reshape(held.shape[1], -1)
        if self.kind in (GATES, BIASES):
            held = _exchanged(held)
        if self.kind == CONVOLUTION:
            return held.transpose(3, 2, 0, 1)
        return held.T if self.kind in (DENSE, GATES) else held


def _exchanged(values: np.ndarray) -> np.ndarray:
    """Exchange the first two of three gates along the last axis: update, reset, new; its own
    inverse.
    """
    first, second, third = np.split(values, 3, axis=-1)
    return np.concatenate((second, first, third), axis=-1)

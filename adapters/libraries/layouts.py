"""How TensorFlow and Keras hold a parameter, and the way back to its canonical layout.

The way there is theirs: TensorFlow turns the axes of fcn5's weights in a fifth of the time that
NumPy takes. Dense weights stand there as (inputs, outputs), convolution weights as (height, width,
inputs, outputs), LSTM weights as (inputs, 4 x hidden) with the gates in the canonical order.
"""

from typing import Optional, Tuple

import numpy as np

PLAIN = "plain"
DENSE = "dense"
CONVOLUTION = "convolution"
FLATTENED = "flattened"
GATES = "gates"
BIASES = "biases"


class Layout:
    """The layout in which a parameter is held.

    ``PLAIN``
        As it is: vectors, embeddings.
    ``DENSE``
        Dense and LSTM weights: canonical (outputs, inputs), held as (inputs, outputs).
    ``CONVOLUTION``
        Canonical (outputs, inputs, height, width), held as (height, width, inputs, outputs).
    ``FLATTENED``
        A dense weight behind flattened images of this height, width and number of channels:
        canonical (outputs, channels * height * width), held as (height * width * channels,
        outputs). Images are flattened in the order they are held in, so the weight is permuted once
        instead of the activations at each step.
    ``GATES``
        A GRU's weight in Keras: held as (inputs, 3 x hidden), its first two gates exchanged.
    ``BIASES``
        A GRU's two biases in Keras: held as (2, 3 x hidden), so exchanged.
    """

    def __init__(self, kind: str = PLAIN, image: Tuple[int, int, int] = (0, 0, 0)) -> None:
        self.kind = kind
        self.height, self.width, self.channels = image

    @property
    def axes(self) -> Optional[Tuple[int, ...]]:
        """The axes of the result of ``split`` in the order in which they are held; None if same."""
        if self.kind in (CONVOLUTION, FLATTENED):
            return (2, 3, 1, 0)
        return (1, 0) if self.kind in (DENSE, GATES) else None

    def names(self, name: str) -> Tuple[str, ...]:
        """Return the canonical names of the parameters in the variable of this name."""
        if self.kind == BIASES:
            return (name, name.replace(".bias", ".hidden_bias"))
        return (name,)

    def split(self, canonical: np.ndarray) -> np.ndarray:
        """Return a value in canonical layout so that its axes can be turned."""
        if self.kind == FLATTENED:
            return canonical.reshape(-1, self.channels, self.height, self.width)
        if self.kind == GATES:
            return _exchange_gates(canonical.T).T
        return _exchange_gates(canonical) if self.kind == BIASES else canonical

    def joined(self, turned: Tuple[int, ...]) -> Tuple[int, ...]:
        """Return the shape that is held of a value whose axes were turned."""
        return (-1, turned[-1]) if self.kind == FLATTENED else turned

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Turn a value in the layout that is held into canonical layout."""
        if self.kind == FLATTENED:
            split = held.reshape(self.height, self.width, self.channels, -1)
            return split.transpose(3, 2, 0, 1).reshape(held.shape[1], -1)
        if self.kind in (GATES, BIASES):
            held = _exchange_gates(held)
        if self.kind == CONVOLUTION:
            return held.transpose(3, 2, 0, 1)
        return held.T if self.kind in (DENSE, GATES) else held


def _exchange_gates(values: np.ndarray) -> np.ndarray:
    """Exchange the first two of three gates along the last axis: update, reset, new.

    This is its own inverse.
    """
    first, second, third = np.split(values, 3, axis=-1)
    return np.concatenate((second, first, third), axis=-1)

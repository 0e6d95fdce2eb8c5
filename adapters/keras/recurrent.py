"""Keras's recurrent layers, and how they hold their weights.

A GRU has its gates in the order update, reset, new, and both biases in one variable.
"""

from typing import Any, Dict, Tuple

import numpy as np
from keras import layers

from ..families import CELLS
from ..libraries.layouts import DenseLayout, Layout


def swapped(values: np.ndarray) -> np.ndarray:
    """Exchange the first two of a GRU's three gates along the last axis; it is its own inverse."""
    first, second, third = np.split(values, 3, axis=-1)
    return np.concatenate((second, first, third), axis=-1)


class GatesLayout(DenseLayout):
    """A GRU's weight: canonical (3 x hidden, inputs), held as (inputs, 3 x hidden) with other gates first."""

    def split(self, canonical: np.ndarray) -> np.ndarray:
        """Return a copy with the gates in Keras's order."""
        return swapped(canonical.T).T

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Put them back in order, and transpose back."""
        return swapped(held).T


class BiasesLayout(Layout):
    """A GRU's biases: canonical one by one, held as (2, 3 x hidden)."""

    def __init__(self, second: str) -> None:
        self.second = second  # the canonical name of the bias in the second row

    def split(self, canonical: np.ndarray) -> np.ndarray:
        """Return a copy with the gates in Keras's order."""
        return swapped(canonical)

    def canonical(self, held: np.ndarray) -> np.ndarray:
        """Put them back in order."""
        return swapped(held)


def make(cell: str, hidden: int, unroll: bool, use_cudnn: Any, activation: str = "tanh") -> Any:
    """Return a layer that gives the outputs of all steps from a zero state; its weights start as zeros."""
    options: Dict[str, Any] = {"return_sequences": True, "unroll": unroll}
    options.update(kernel_initializer="zeros", recurrent_initializer="zeros")
    if cell == "rnn":
        return layers.SimpleRNN(hidden, activation=activation, **options)
    if cell == "gru":
        return layers.GRU(hidden, reset_after=True, use_cudnn=use_cudnn, **options)
    assert cell == "lstm"
    return layers.LSTM(hidden, unit_forget_bias=False, use_cudnn=use_cudnn, **options)


def places(cell: str, layer: Any, name: str) -> Dict[str, Tuple[Any, Layout]]:
    """Return the variables of a layer that has been applied, by canonical name."""
    several = len(CELLS[cell].biases) > 1
    weights = GatesLayout() if several else DenseLayout()
    return {
        name + ".input_weight": (layer.cell.kernel, weights),
        name + ".hidden_weight": (layer.cell.recurrent_kernel, weights),
        name + ".bias": (layer.cell.bias, BiasesLayout(name + ".hidden_bias") if several else Layout()),
    }

"""NumPy alone: the float64 reference's own code in float32.

It stands for the code of somebody without a framework. Its parity shows the effect of rounding, not
whether the code is right: the reference is the same code.
"""

from typing import Any, Dict

import numpy as np

from ..reference.adapter import ReferenceAdapter


class NumpyAdapter(ReferenceAdapter):
    """The reference's code in float32, without settings."""

    def set_up(self) -> None:
        super().set_up()
        self.dtype = np.dtype("float32")

    def describe(self) -> Dict[str, Any]:
        return dict(super().describe(), execution="NumPy, gradients by hand")


ADAPTER = NumpyAdapter

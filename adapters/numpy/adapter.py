"""NumPy alone: the float64 reference's own code in float32, as somebody without a framework would
write it.

Its parity says what rounding does, not whether the code is right: the reference is the same code.
"""

from typing import Any, Dict

import numpy as np

from ..reference.adapter import ReferenceAdapter


class NumpyAdapter(ReferenceAdapter):
    """Takes no setting."""

    def set_up(self) -> None:
        super().set_up()
        self.dtype = np.dtype("float32")

    def describe(self) -> Dict[str, Any]:
        return dict(super().describe(), execution="NumPy, gradients by hand")


ADAPTER = NumpyAdapter

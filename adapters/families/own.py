"""The user's own step: only its author knows what it computes."""

from typing import List

from ..protocol import UNKNOWN
from .family import LEARNING_RATE, Drawn, Family, Parameter, ParityRecipe

LOSS_TOLERANCE = 1e-3
#: The folder of the adapter that drives a user's file.
ADAPTER = "own_step"


class Own(Family):
    """No numbers: parameters and operations are unknown, and nothing is drawn for it."""

    name = "own"
    kind = "own"
    specified = False
    loss = UNKNOWN

    def parameters(self) -> List[Parameter]:
        return []

    def multiply_adds(self) -> List[int]:
        return []

    def training_flops(self, batch_size: int) -> int:
        return 0

    def drawn_inputs(self) -> Drawn:
        return Drawn((0,))

    def drawn_labels(self) -> Drawn:
        return Drawn((0,))

    def kinked(self) -> bool:
        return True

    def parity(self) -> ParityRecipe:
        """Return how much the losses of its first steps may differ between launches."""
        why = "the losses of the first steps, compared with those of the run's first launch"
        return ParityRecipe(1, LEARNING_RATE, LOSS_TOLERANCE, LOSS_TOLERANCE, why)

    def words(self) -> str:
        return "your own step"

    def size_words(self) -> str:
        return UNKNOWN

"""A step of one's own: what it computes is known to its author alone."""

from typing import Any, Dict, List, NamedTuple

from .family import LEARNING_RATE, Drawn, Family, Numbers, Parameter, ParityRecipe

LOSS_TOLERANCE = 1e-3


class _Numbers(NamedTuple):
    pass


class Own(_Numbers, Family):
    """No numbers: neither parameters nor operations can be told, and nothing is drawn for it."""

    __slots__ = ()

    name = "own"
    kind = "own"
    specified = False

    @classmethod
    def read(cls, numbers: Numbers) -> "Own":
        return cls()

    def data(self) -> Dict[str, Any]:
        return {}

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
        """Return by how much the losses of its first steps may differ between launches.

        Of float32 arithmetic in another order they differ by 1e-7 to 1e-5 over a few steps.
        """
        why = "the losses of the first steps, held against those of the run's first launch"
        return ParityRecipe(1, LEARNING_RATE, LOSS_TOLERANCE, LOSS_TOLERANCE, why)

    def words(self) -> str:
        return "a step of one's own"

    def size_words(self) -> str:
        return "unknown"

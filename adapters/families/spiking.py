"""Spiking networks: leaky integrate-and-fire units, trained by surrogate gradients."""

from typing import List

from .elman import OneRecurrentLayer
from .family import Drawn, Numbers, ParityRecipe, number


class Spiking(OneRecurrentLayer):
    """One recurrent layer of units that fire at a potential above 1, and a dense layer of rates.

    The layer starts from a zero state. v = beta v' (1 - s') + W_in x + W_rec s' + b; s = 1 where v
    > 1, else 0; logits = W_out (mean of s over steps) + b. Backwards the step has the slope 1 / (1
    + 10 abs(v - 1))^2, and the reset (1 - s') is a constant. Loss: mean over the mini-batch.
    """

    name = "lif"
    gains = (1.0, 0.5)  # about one unit in six fires at a step

    inputs: int = number(Numbers.whole, example="100")
    hidden: int = number(Numbers.whole, example="100")
    outputs: int = number(Numbers.whole, least=2, example="10")
    steps: int = number(Numbers.whole, most=10000, example="50")
    beta: float = number(Numbers.real, usual=0.9, least=0.0, most=1.0)
    input_scale: float = number(Numbers.real, usual=1.0, least=1e-6, most=1e6)

    def multiply_adds(self) -> List[int]:
        layer = [self.steps * self.inputs * self.hidden, self.steps * self.hidden * self.hidden]
        return [*layer, self.hidden * self.outputs]

    def drawn_labels(self) -> Drawn:
        """Return one label, with an axis for the steps, as adapters turn both."""
        return Drawn((1,), self.outputs)

    def kinked(self) -> bool:
        return True

    def parity(self) -> ParityRecipe:
        """Return one step, with room for examples that part."""
        why = (
            "rounding makes a unit fire or not, and all that follows in its example; learning rate "
            "1 shows the rest"
        )
        return ParityRecipe(1, 1.0, 1e-2, 3e-1, why)

    def words(self) -> str:
        sizes = self.inputs, self.hidden, self.outputs, self.steps, self.beta
        return "%d inputs, %d spiking units, %d outputs, %d steps, beta %g" % sizes

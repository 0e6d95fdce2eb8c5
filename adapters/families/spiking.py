"""Spiking networks: leaky integrate-and-fire units, trained by surrogate gradients."""

import math
from typing import List

from .family import Drawn, Family, Numbers, Parameter, ParityRecipe, dense_parameters, number


class Spiking(Family):
    """One recurrent layer of units that fire at a potential above 1, from a zero state; a dense layer of their rates.

    v = beta v' (1 - s') + W_in x + W_rec s' + b; s = 1 where v > 1, else 0; logits = W_out (mean of s over steps) + b.
    Backwards the step has the slope 1 / (1 + 10 |v - 1|)^2, and the reset (1 - s') is a constant. Loss: mean over the
    mini-batch. Inputs are uniform within +-``input_scale``.
    """

    name = "lif"
    kind = "recurrent"
    time_major = True

    inputs: int = number(Numbers.whole, example="100")
    hidden: int = number(Numbers.whole, example="100")
    outputs: int = number(Numbers.whole, least=2, example="10")
    steps: int = number(Numbers.whole, most=10000, example="50")
    beta: float = number(Numbers.real, usual=0.9, least=0.0, most=1.0)
    input_scale: float = number(Numbers.real, usual=1.0, least=1e-6, most=1e6)

    #: As of the family ``recurrent``: the parameters of its layer, and the layer's name.
    parts = ("input_weight", "hidden_weight", "bias")

    def layer_names(self) -> List[str]:
        return ["rnn"]

    def parameters(self) -> List[Parameter]:
        """Return the weights and biases of the recurrence and of the outputs; about one unit in six fires at a step."""
        return [
            Parameter("rnn.input_weight", (self.hidden, self.inputs), math.sqrt(3.0 / self.inputs)),
            Parameter("rnn.hidden_weight", (self.hidden, self.hidden), 0.5 * math.sqrt(3.0 / self.hidden)),
            Parameter("rnn.bias", (self.hidden,), 0.01),
            *dense_parameters("out", self.outputs, self.hidden, 1.0 / math.sqrt(self.hidden), 0.01),
        ]

    def multiply_adds(self) -> List[int]:
        layer = [self.steps * self.inputs * self.hidden, self.steps * self.hidden * self.hidden]
        return [*layer, self.hidden * self.outputs]

    def drawn_inputs(self) -> Drawn:
        return Drawn((self.steps, self.inputs), None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        """Return one label, with an axis for the steps, as adapters turn both."""
        return Drawn((1,), self.outputs)

    def kinked(self) -> bool:
        return True

    def parity(self) -> ParityRecipe:
        """Return one step, with room for examples that part."""
        why = "rounding makes a unit fire or not, and all that follows in its example; learning rate 1 shows the rest"
        return ParityRecipe(1, 1.0, 1e-2, 3e-1, why)

    def words(self) -> str:
        sizes = self.inputs, self.hidden, self.outputs, self.steps, self.beta
        return "%d inputs, %d spiking units, %d outputs, %d steps, beta %g" % sizes

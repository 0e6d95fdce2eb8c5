"""Simple recurrent networks (Elman): one recurrent layer, a dense output at each step.

As in Brandfonbrener 2017: mean squared error, inputs and targets uniform within +-5, the gradients
clipped together.
"""

import math
from typing import List, Tuple

from .family import (
    ACTIVATIONS,
    Drawn,
    Family,
    Numbers,
    Parameter,
    ParityRecipe,
    dense_parameters,
    number,
)


class OneRecurrentLayer(Family):
    """A recurrent layer called ``rnn`` and a dense one called ``out``.

    Inputs are uniform within +-``input_scale``.
    """

    kind = "recurrent"
    time_major = True
    #: Of the bounds of the layer's two weights: times the root of 3 over the inputs of a unit.
    gains: Tuple[float, float]

    inputs: int
    hidden: int
    outputs: int
    steps: int
    input_scale: float

    #: As of the family ``recurrent``: the parameters of its layer, and the layer's name.
    parts = ("input_weight", "hidden_weight", "bias")

    def layer_names(self) -> List[str]:
        return ["rnn"]

    def parameters(self) -> List[Parameter]:
        input_gain, state_gain = self.gains
        input_bound = input_gain * math.sqrt(3.0 / self.inputs)
        state_bound = state_gain * math.sqrt(3.0 / self.hidden)
        return [
            Parameter("rnn.input_weight", (self.hidden, self.inputs), input_bound),
            Parameter("rnn.hidden_weight", (self.hidden, self.hidden), state_bound),
            Parameter("rnn.bias", (self.hidden,), 0.01),
            *dense_parameters("out", self.outputs, self.hidden, 1.0 / math.sqrt(self.hidden), 0.01),
        ]

    def drawn_inputs(self) -> Drawn:
        return Drawn((self.steps, self.inputs), None, self.input_scale)


class Elman(OneRecurrentLayer):
    """The recurrence h = (1 - alpha) h' + alpha phi(W_in x + W_rec h' + b), and dense outputs.

    It starts from a zero state. Loss: squared error, mean over batch, steps and outputs. One bias
    in the recurrence. Where ``alpha`` is below 1 the units are leaky. ``clip`` is the largest norm
    of all gradients together (0: no limit). Targets are floats, drawn as inputs.
    """

    name = "elman"
    loss = "squares"
    gains = (0.2, 0.9)  # the second gives the recurrent weight a spectral radius of about 0.9

    inputs: int = number(Numbers.whole, example="2")
    hidden: int = number(Numbers.whole, example="100")
    outputs: int = number(Numbers.whole, example="2")
    steps: int = number(Numbers.whole, most=10000, example="20")
    activation: str = number(Numbers.word, known=ACTIVATIONS)
    alpha: float = number(Numbers.real, usual=1.0, least=1e-3, most=1.0)
    clip: float = number(Numbers.real, usual=1.0, least=0.0, most=1e6)
    input_scale: float = number(Numbers.real, usual=5.0, least=1e-6, most=1e6)

    def multiply_adds(self) -> List[int]:
        sides = (self.inputs * self.hidden, self.hidden * self.hidden, self.hidden * self.outputs)
        return [self.steps * products for products in sides]

    def drawn_labels(self) -> Drawn:
        return Drawn((self.steps, self.outputs), None, self.input_scale)

    def kinked(self) -> bool:
        return self.activation == "relu"

    def parity(self) -> ParityRecipe:
        if self.clip:
            rate = 0.1
            loss_tolerance = max(3e-6, 6e-8 * self.hidden)
            update_tolerance = max(2e-3, 8e-7 * self.hidden)
        else:
            rate = 1.0 / max(10, self.hidden)
            loss_tolerance = 3e-6
            update_tolerance = 7e-3
        why = (
            "learning rate 0.1, at most the norm of a clipped update; where nothing is clipped, "
            "less for more units"
        )
        return ParityRecipe(2, rate, loss_tolerance, update_tolerance, why)

    def words(self) -> str:
        leak = "" if self.alpha == 1.0 else ", alpha %g" % self.alpha
        clip = "clip %g" % self.clip if self.clip else "no clip"
        sizes = self.inputs, self.hidden, self.activation, self.outputs, self.steps
        return "%d inputs, %d recurrent %s units, %d outputs, %d steps, " % sizes + clip + leak

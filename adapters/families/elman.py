"""Simple recurrent networks (Elman): one recurrent layer, a dense output at each step, float targets.

As in Brandfonbrener 2017: mean squared error, inputs and targets uniform within +-5, the gradients clipped together.
"""

import math
from typing import Any, Dict, List, NamedTuple

from .family import ACTIVATIONS, Drawn, Family, Numbers, Parameter, ParityRecipe, without_usual

_USUAL = (("alpha", 1.0), ("clip", 1.0), ("input_scale", 5.0))


class _Numbers(NamedTuple):
    inputs: int
    hidden: int
    outputs: int
    steps: int
    activation: str
    alpha: float = 1.0  # share of the new state; below 1 the units are leaky
    clip: float = 1.0  # largest norm of all gradients together; 0 leaves them as they are
    input_scale: float = 5.0  # half-width of the uniform distribution of inputs and targets


class Elman(_Numbers, Family):
    """The recurrence h = (1 - alpha) h' + alpha phi(W_in x + W_rec h' + b) from a zero state, dense outputs.

    Loss: squared error, mean over batch, steps and outputs. One bias in the recurrence.
    """

    __slots__ = ()

    name = "elman"
    kind = "recurrent"
    loss = "squares"
    time_major = True

    @classmethod
    def read(cls, numbers: Numbers) -> "Elman":
        return cls(
            numbers.whole("inputs", example="2"),
            numbers.whole("hidden", example="100"),
            numbers.whole("outputs", example="2"),
            numbers.whole("steps", most=10000, example="20"),
            numbers.word("activation", ACTIVATIONS),
            numbers.real("alpha", 1.0, 1e-3, 1.0),
            numbers.real("clip", 1.0, 0.0, 1e6),
            numbers.real("input_scale", 5.0, 1e-6, 1e6),
        )

    def data(self) -> Dict[str, Any]:
        return without_usual(dict(self._asdict()), _USUAL)

    def parameters(self) -> List[Parameter]:
        """Return the weights and biases of the recurrence and of the outputs.

        The bound of the recurrent weight gives it a spectral radius of about 0.9.
        """
        return [
            Parameter("rnn.input_weight", (self.hidden, self.inputs), 0.2 * math.sqrt(3.0 / self.inputs)),
            Parameter("rnn.hidden_weight", (self.hidden, self.hidden), 0.9 * math.sqrt(3.0 / self.hidden)),
            Parameter("rnn.bias", (self.hidden,), 0.01),
            Parameter("out.weight", (self.outputs, self.hidden), 1.0 / math.sqrt(self.hidden)),
            Parameter("out.bias", (self.outputs,), 0.01),
        ]

    def multiply_adds(self) -> List[int]:
        sides = (self.inputs * self.hidden, self.hidden * self.hidden, self.hidden * self.outputs)
        return [self.steps * each for each in sides]

    def drawn_inputs(self) -> Drawn:
        return Drawn((self.steps, self.inputs), None, self.input_scale)

    def drawn_labels(self) -> Drawn:
        return Drawn((self.steps, self.outputs), None, self.input_scale)

    def kinked(self) -> bool:
        return self.activation == "relu"

    def parity(self) -> ParityRecipe:
        """Return two steps.

        Largest errors seen, loss and update, of 10 to 500 units over 10 to 100 steps, mini-batches of 1 to 256, by
        PyTorch, JAX, TensorFlow and the reference's own code in float32; and the update error of the smallest mistake:

            =============  ================  ================  =================================
            where clipped  tanh, relu        sigmoid           state carried over
            =============  ================  ================  =================================
            yes            1.5e-7, 1.7e-5    1.9e-7, 2.2e-4    1e-2 (sigmoid over 100 steps)
            no             1.8e-7, 2.2e-4    2.3e-7, 6.7e-4    2e-2
            =============  ================  ================  =================================

        Clipped networks of more units err more, since the norm of so many gradients is a sum in float32: at 500 units
        MXNet by 2.2e-6 in the loss, at 2000 PyTorch by 7.2e-6, at 5000 by 2.2e-5 and 4.2e-4.

        A sum in place of the mean is none where both are clipped: the same update. No clipping is one only where the
        norm is beyond it.
        """
        return ParityRecipe(
            2,
            0.1 if self.clip else 1.0 / max(10, self.hidden),
            max(3e-6, 6e-8 * self.hidden) if self.clip else 3e-6,
            max(2e-3, 8e-7 * self.hidden) if self.clip else 7e-3,
            "learning rate 0.1, at most the norm of a clipped update; where nothing is clipped, less for more units",
        )

    def words(self) -> str:
        leak = "" if self.alpha == 1.0 else ", alpha %g" % self.alpha
        clip = "clip %g" % self.clip if self.clip else "no clip"
        sizes = self.inputs, self.hidden, self.activation, self.outputs, self.steps
        return "%d inputs, %d recurrent %s units, %d outputs, %d steps, " % sizes + clip + leak

"""Machines of units that are 0 or 1: Boltzmann and McCulloch-Pitts machines.

They are sampled rather than trained. An example of the mini-batch is a chain: its random numbers
are the inputs, the states that it starts from the labels. Random numbers are data so that every
framework takes the same decisions, and a step is compared like any other. A step uses the same
numbers each time, as a training step of dlbench uses the same mini-batch: that is for timing and
comparing.
"""

import math
from typing import List, Tuple

from .family import LEARNING_RATE, Drawn, Family, Numbers, Parameter, ParityRecipe, number

ORDERS = ("sequential", "synchronous", "bipartite")


class SamplingMachine(Family):
    """A machine of ``units`` at the temperature ``tau``; its weights stay as they are.

    Its parameter ``activity`` is the sum over the steps of the values that a step shows of the
    units, each a mean over the chains.
    """

    kind = "sampling"
    trains = False

    units: int
    tau: float

    def parameters(self) -> List[Parameter]:
        return [
            self.weight(math.sqrt(3.0 / self.units)),
            Parameter("bias", (self.units,), 0.1),
            Parameter("activity", (self.units,), 0.0, 0.0),
        ]

    def weight(self, bound: float) -> Parameter:
        raise NotImplementedError

    @property
    def decisions(self) -> int:
        """Return the decisions of a step in each chain."""
        raise NotImplementedError

    def drawn_labels(self) -> Drawn:
        return Drawn((self.units,), 2)

    def parity(self) -> ParityRecipe:
        why = (
            "all decisions must be the same: mini-batches hold no number that rounding takes to "
            "the other side of one"
        )
        return ParityRecipe(2, LEARNING_RATE, 3e-6, 1e-5, why)


class Boltzmann(SamplingMachine):
    """A sweep of Gibbs sampling of exp(-E / tau), E(x) = -sum over i < j of W_ij x_i x_j - b x.

    gap = W x + b; p = 1 / (1 + exp(-gap / tau)); a unit becomes 1 where its random number is below
    its p. By ``order``:

    ``sequential``
        One unit after another, the gaps of all kept up to date: exact.
    ``synchronous``
        All at once from one product: Little's dynamics, whose stationary law is another one.
    ``bipartite``
        Two halves, one after the other, without weights within a half: exact, a restricted machine.

    A step is a sweep; it shows the p of each unit, and its loss is their mean. W is symmetric with
    a zero diagonal; of a bipartite machine it is (units of the first half, units of the second).
    """

    name = "boltzmann"
    loss = "activity"

    units: int = number(Numbers.whole, least=2, example="256")
    order: str = number(Numbers.word, known=ORDERS)
    tau: float = number(Numbers.real, usual=1.0, least=1e-6, most=1e6)

    @property
    def halves(self) -> Tuple[int, int]:
        return self.units // 2, self.units - self.units // 2

    def weight(self, bound: float) -> Parameter:
        if self.order == "bipartite":
            return Parameter("weight", self.halves, bound)
        return Parameter("weight", (self.units, self.units), bound, symmetric=True)

    @property
    def decisions(self) -> int:
        return self.units

    def multiply_adds(self) -> List[int]:
        if self.order == "bipartite":
            first, second = self.halves
            return [first * second, first * second]
        return [self.units * self.units]

    def drawn_inputs(self) -> Drawn:
        return Drawn((self.units,), probabilities=True)

    def words(self) -> str:
        return "%d units, %s sweep" % (self.units, self.order) + _temperature(self.tau)


class McCullochPitts(SamplingMachine):
    """Transitions in continuous time: units fire as Poisson processes, and the first to fire flips.

    z = W x + b, any W; a unit flips at the rate exp((1 - 2 x) z / (2 tau)). Of a transition's two
    random numbers u and v the first chooses the unit, the smallest j whose sum of rates up to j is
    above u times the sum of all, and the second the holding time, -ln v / the sum of all. With a
    symmetric W without diagonal the time spent in each state follows the Boltzmann machine's law.

    A step is ``transitions`` of them in each chain; it shows the states that it ends with, and its
    loss is the mean clock of the chains.
    """

    name = "mcculloch_pitts"
    loss = "clock"

    units: int = number(Numbers.whole, least=2, example="256")
    transitions: int = number(Numbers.whole, usual=64, most=10000)
    tau: float = number(Numbers.real, usual=1.0, least=1e-6, most=1e6)

    def weight(self, bound: float) -> Parameter:
        return Parameter("weight", (self.units, self.units), bound)

    @property
    def decisions(self) -> int:
        return self.transitions

    def multiply_adds(self) -> List[int]:
        """Return those of the updates of z; a transition's exponentials are not counted."""
        return [self.transitions * self.units]

    def drawn_inputs(self) -> Drawn:
        """Return the numbers that choose units, and behind them those of the times.

        They are in the order of the transitions.
        """
        return Drawn((2 * self.transitions,), probabilities=True)

    def words(self) -> str:
        return "%d units, %d transitions" % (self.units, self.transitions) + _temperature(self.tau)


def _temperature(tau: float) -> str:
    return "" if tau == 1.0 else ", tau %g" % tau

"""Language models: embedded or one-hot symbols, stacked recurrent layers, dense softmax."""

import math
from typing import List, Tuple

from .family import Drawn, Family, Numbers, Parameter, ParityRecipe, dense_parameters, number

#: Gates of a cell: matrices side by side in each weight.
CELLS = {"lstm": 4, "gru": 3, "rnn": 1}


class Recurrent(Family):
    """Stacked recurrent layers from a zero state, with a dense softmax at each step.

    The loss is a mean over batch and steps. Of a step's inputs x and the state h before it, with
    weights W (of x), U (of h) and biases b, c:

    ``lstm``
        Gates i, f, g, o: m' = s(f) m + s(i) tanh(g); h' = s(o) tanh(m'). There is no forget-gate
        offset.
    ``gru``
        Gates r, z, n: n = tanh(W x + b + r (U h + c)), reset after the product; h' = (1 - z) n +
        z h.
    ``rnn``
        h' = tanh(W x + U h + b).

    Where ``embedding`` is 0 symbols are given as one-hot vectors.
    """

    name = "recurrent"
    kind = "recurrent"
    time_major = True

    vocabulary: int = number(Numbers.whole, least=2, example="10000")
    embedding: int = number(Numbers.whole, least=0, example="256")
    hidden: int = number(Numbers.whole, example="256")
    layers: int = number(Numbers.whole, most=100, example="2")
    steps: int = number(Numbers.whole, most=10000, example="32")
    cell: str = number(Numbers.word, known=tuple(CELLS), usual="lstm")

    @property
    def learns_inputs(self) -> bool:
        return self.embedding > 0

    @property
    def width(self) -> int:
        """Return the inputs of the first layer at each step."""
        return self.embedding or self.vocabulary

    @property
    def parts(self) -> Tuple[str, ...]:
        """Return the names of a layer's parameters, behind the layer's and a dot.

        One bias for each gate, but in the GRU, whose reset gate weighs one of two. Frameworks that
        have two everywhere keep the second one of the others at zero.
        """
        if self.cell == "gru":
            return ("input_weight", "hidden_weight", "bias", "hidden_bias")
        return ("input_weight", "hidden_weight", "bias")

    def layer_names(self) -> List[str]:
        """Return the recurrent layers' names, the first one's first."""
        return ["%s%d" % (self.cell, layer) for layer in range(1, self.layers + 1)]

    def parameters(self) -> List[Parameter]:
        """Return the embedding, if any, each recurrent layer's parameters, and the dense layer's.

        One-hot networks start as those of Karpathy et al. 2015, arXiv 1506.02078, do: uniform
        within +-0.08.
        """
        parameters = []
        bound = 0.08
        if self.embedding:
            bound = 1.0 / math.sqrt(self.hidden)
            shape = (self.vocabulary, self.embedding)
            parameters.append(Parameter("embedding.weight", shape, 0.1))
        rows = CELLS[self.cell] * self.hidden
        inputs = self.width
        for name in self.layer_names():
            shapes = {"input_weight": (rows, inputs), "hidden_weight": (rows, self.hidden)}
            for part in self.parts:
                shape_of_part = shapes.get(part, (rows,))
                parameters.append(Parameter("%s.%s" % (name, part), shape_of_part, bound))
            inputs = self.hidden
        return parameters + dense_parameters("fc", self.vocabulary, self.hidden, bound)

    def multiply_adds(self) -> List[int]:
        unit = self.steps * CELLS[self.cell] * self.hidden
        if self.embedding:
            products = [unit * (self.width + self.hidden)]
        else:
            products = [unit * self.width, unit * self.hidden]
        products += [unit * 2 * self.hidden] * (self.layers - 1)
        return products + [self.steps * self.vocabulary * self.hidden]

    def drawn_inputs(self) -> Drawn:
        if self.embedding:
            return Drawn((self.steps,), self.vocabulary)
        return Drawn((self.steps, self.vocabulary), self.vocabulary, one_hot=True)

    def parity(self) -> ParityRecipe:
        """Return two steps at a very high rate.

        One-hot networks start nearer to zero, and a gradient is the smaller the more such layers it
        has come through, so their rate is higher: at 10 the errors of three LSTM layers of 64 units
        were seven times as large.
        """
        if self.embedding:
            rate = 10.0
            loss = 3e-6
            update = 2e-3 if self.steps <= 32 else 5e-3
        else:
            rate = float(min(100, max(10, self.steps)))
            loss = 8e-6
            update = 3e-3
        why = (
            "learning rate %g: at 0.01 the update of a mean loss is below float32 resolution and "
            "would hide a mistake"
        )
        return ParityRecipe(2, rate, loss, update, why % rate)

    def words(self) -> str:
        symbols = "embedding" if self.embedding else "one-hot"
        sizes = (symbols, self.layers, self.cell.upper(), self.hidden, self.steps)
        return "%s, %d %s of %d, %d steps" % sizes

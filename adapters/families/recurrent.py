"""Language models: embedding, stacked LSTM layers, a dense softmax at each step."""

import math
from typing import Any, Dict, List, NamedTuple

from .family import Drawn, Family, ParityRecipe
from .layers import Parameter
from .numbers import Numbers, without_usual

CELLS = ("lstm",)


class _Numbers(NamedTuple):
    vocabulary: int
    embedding: int
    hidden: int
    layers: int
    steps: int
    cell: str = "lstm"


class Recurrent(_Numbers, Family):
    """Embedding, stacked LSTM layers from a zero state, dense softmax at each step; loss: mean over batch and steps.

    One bias per gate; no forget-gate offset.
    """

    __slots__ = ()

    name = "recurrent"
    kind = "recurrent"
    learns_inputs = True
    time_major = True

    @classmethod
    def read(cls, numbers: Numbers) -> "Recurrent":
        """Read the numbers; ``cell`` may be left out."""
        return cls(
            numbers.whole("vocabulary", least=2, example="10000"),
            numbers.whole("embedding", example="256"),
            numbers.whole("hidden", example="256"),
            numbers.whole("layers", most=100, example="2"),
            numbers.whole("steps", most=10000, example="32"),
            numbers.word("cell", CELLS, "lstm"),
        )

    def data(self) -> Dict[str, Any]:
        """Return the numbers."""
        return without_usual(dict(self._asdict()), [("cell", "lstm")])

    def parameters(self) -> List[Parameter]:
        """Return the embedding, two weights and a bias for each layer, and the last layer's weight and bias."""
        bound = 1.0 / math.sqrt(self.hidden)
        found = [Parameter("embedding.weight", (self.vocabulary, self.embedding), 0.1)]
        for layer in range(1, self.layers + 1):
            inputs = self.embedding if layer == 1 else self.hidden
            found.append(Parameter("lstm%d.input_weight" % layer, (4 * self.hidden, inputs), bound))
            found.append(Parameter("lstm%d.hidden_weight" % layer, (4 * self.hidden, self.hidden), bound))
            found.append(Parameter("lstm%d.bias" % layer, (4 * self.hidden,), bound))
        found.append(Parameter("fc.weight", (self.vocabulary, self.hidden), bound))
        found.append(Parameter("fc.bias", (self.vocabulary,), bound))
        return found

    def multiply_adds(self) -> List[int]:
        """Return those of each layer over all steps."""
        found = []
        for layer in range(self.layers):
            inputs = self.embedding if layer == 0 else self.hidden
            found.append(self.steps * 4 * self.hidden * (inputs + self.hidden))
        found.append(self.steps * self.vocabulary * self.hidden)
        return found

    def drawn_inputs(self) -> Drawn:
        """Return a word for each step."""
        return Drawn((self.steps,), self.vocabulary)

    def drawn_labels(self) -> Drawn:
        """Return a word for each step."""
        return Drawn((self.steps,), self.vocabulary)

    def kinked(self) -> bool:
        """Gates are smooth."""
        return False

    def parity(self) -> ParityRecipe:
        """Return two steps at a very high rate."""
        return ParityRecipe(
            2,
            10.0,
            3e-6,
            2e-3 if self.steps <= 32 else 5e-3,
            "learning rate 10: at 0.01 the update of a mean loss is below float32 resolution and would hide a mistake",
        )

    def words(self) -> str:
        """Return the number and size of the layers, and the steps."""
        return "embedding, %d LSTM of %d, %d steps" % (self.layers, self.hidden, self.steps)

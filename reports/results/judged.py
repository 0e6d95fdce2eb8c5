"""The quantities of a launch that a comparison can judge, the time of a step and others.

A new one is a line of `JUDGED`. Each has its own threshold, and one bound on false alarms holds for
all that a gate judges together (`verdict.Rule.of_quantity`).
"""

from collections.abc import Callable
from typing import NamedTuple

from dlbench.reports.results.memory_evidence import faults_per_step
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.quantities import OF_LAUNCHES, start_seconds

TIME = "time"
"""The seconds of a step, by the rounds or the median of a launch."""
FEW_FAULTS = 10.0
"""Page faults of a step that are as good as none."""


class JudgedQuantity(NamedTuple):
    """A quantity that is judged once a launch."""

    words: str
    """Its name in a sentence: "20 % more peak memory"."""
    threshold: float
    """The smallest rise that is called a regression; twice as much must be excluded to pass."""
    read: Callable[[Outcome], float | None]
    """Returns a launch's value; None if unknown."""
    of_clock: bool
    """Whether other programs disturb it; a count stays what it is."""
    least: float = 0.0
    """Smaller values count as this one: a ratio of them means nothing."""

    def value(self, outcome: Outcome) -> float | None:
        """Return a launch's value as it is judged; None if unknown."""
        value = self.read(outcome)
        return None if value is None else max(value, self.least)


def _value_of(name: str) -> Callable[[Outcome], float | None]:
    _, _, value = OF_LAUNCHES[name]
    return value


JUDGED = {
    "memory": JudgedQuantity("peak memory", 0.025, _value_of("memory"), of_clock=False),
    "first_step": JudgedQuantity(
        "time for the first step", 0.1, _value_of("first_step"), of_clock=True
    ),
    "import": JudgedQuantity("time to import", 0.1, _value_of("import"), of_clock=True),
    "start": JudgedQuantity("time to the end of the first step", 0.1, start_seconds, of_clock=True),
    "faults": JudgedQuantity(
        "page faults a step", 0.1, faults_per_step, of_clock=False, least=FEW_FAULTS
    ),
}
"""By the name that `report matrix --quantity` has for it."""
NAMES = (TIME, *JUDGED)


def is_of_clock(quantity: str) -> bool:
    """Tell whether a quantity is a time, which other programs disturb."""
    return quantity == TIME or JUDGED[quantity].of_clock

"""What Brandfonbrener 2017 claims of small recurrent networks, tried on the figures of that study.

T is the seconds of a run of 2000 updates. Figures 2 to 4, 6, 7: the K80 (2 Theano with shared data, 3 with unshared,
4 sigmoid, 6 Keras on Theano, 7 Keras on TensorFlow); 8: the M2090; 9: the cluster's CPU; 10: the laptop; 5: the K80 and
the laptop over the numbers of units. The first trial of a figure counts in B11 alone.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from dlbench.reports.claims.questions import MORE, Claimed, Question, of_value
from dlbench.reports.published import lines_of


class Trial(NamedTuple):
    """One run of the study."""

    figure: int
    software: str
    device: str
    machine: str
    activation: str
    inputs: int
    """As many as outputs."""
    hidden: int
    steps: int
    seconds: float
    first: bool
    """Whether it was the first of its figure, of which the author says that it took too long."""


def trials() -> list[Trial]:
    """Return every run, in the order of the figures."""
    return [
        Trial(
            int(line["figure"].removeprefix("Figure ")),
            line["software"],
            line["device"],
            line["machine"],
            line["activation"],
            int(line["n_in"]),
            int(line["n_rec"]),
            int(line["n_steps"]),
            float(line["seconds"]),
            line["note"].startswith("first trial"),
        )
        for line in lines_of("brandfonbrener2017.csv")
    ]


SHARED, UNSHARED, SIGMOID, SIZES, ON_THEANO, ON_TENSORFLOW, M2090, CLUSTER, LAPTOP = range(2, 11)
"""The figures."""
HIDDEN, STEPS = (10, 20, 50, 100, 200), (10, 20, 50, 100)
LARGE = (500, 1000, 2000, 5000)


class Study:
    """The runs of the study, by figure."""

    def __init__(self) -> None:
        """Read them."""
        self._all = trials()

    def seconds(self, figure: int, hidden: int, steps: int, first: bool = False) -> float | None:
        """Return the seconds of a run; of a first trial only where it is asked for."""
        found = [each for each in self._all if (each.figure, each.hidden, each.steps) == (figure, hidden, steps)]
        return next((each.seconds for each in found if first or not each.first), None)

    def ratios(self, over: int, under: int, steps: tuple[int, ...] = STEPS) -> Iterator[tuple[str, float, float]]:
        """Yield the runs that two figures share: which, and the seconds of both."""
        for hidden in HIDDEN:
            for count in steps:
                one, other = self.seconds(over, hidden, count), self.seconds(under, hidden, count)
                if one is not None and other is not None:
                    yield f"n_rec {hidden}, n_steps {count}", one, other

    def sizes(self, device: str, hidden: int) -> list[Trial]:
        """Return the runs of Figure 5 of a device (gpu, cpu) with so many units, by inputs."""
        found = [each for each in self._all if (each.figure, each.device, each.hidden) == (SIZES, device, hidden)]
        return sorted((each for each in found if not each.first), key=lambda each: each.inputs)

    def large(self, device: str, hidden: int) -> float:
        """Return the seconds of Figure 5 with 10 inputs and outputs."""
        return next(each.seconds for each in self.sizes(device, hidden) if each.inputs == 10)


@functools.cache
def study() -> Study:
    """Return the study, read once."""
    return Study()


def unshared_faster() -> Iterator[Question]:
    """B1: unshared data are faster by about 6 s."""
    for what, shared, unshared in study().ratios(SHARED, UNSHARED):
        yield of_value(f"{what}: shared - unshared, s", shared - unshared, Claimed(least=0.0, size=6.0))


def linear_in_steps() -> Iterator[Question]:
    """B2: the log-log slope over n_steps is a little under 1."""
    for figure in (SHARED, UNSHARED, SIGMOID, ON_THEANO, ON_TENSORFLOW, M2090, CLUSTER, LAPTOP):
        for hidden in HIDDEN:
            few, many = (study().seconds(figure, hidden, steps) for steps in (20, 100))
            if few is not None and many is not None:
                slope = math.log(many / few) / math.log(100 / 20)
                yield of_value(f"Figure {figure}, n_rec {hidden}: slope from 20 to 100 steps", slope, Claimed(0.8, 1.0))


def units_hardly_matter() -> Iterator[Question]:
    """B3: on a GPU 200 units take hardly longer than 20."""
    for figure in (SHARED, UNSHARED, ON_THEANO, ON_TENSORFLOW, M2090):
        for steps in STEPS:
            yield _ratio(
                f"Figure {figure}, n_steps {steps}: n_rec 200 / 20", figure, (200, 20), steps, Claimed(most=1.25)
            )


def cluster_poor() -> Iterator[Question]:
    """B4: on the cluster's CPU many units take much longer."""
    for hidden in (100, 200):
        for steps in STEPS:
            what = f"n_steps {steps}: n_rec {hidden} / 20"
            yield _ratio(what, CLUSTER, (hidden, 20), steps, Claimed(least=2.0))


def _ratio(what: str, figure: int, hidden: tuple[int, int], steps: int, claimed: Claimed) -> Question:
    over, under = (study().seconds(figure, each, steps) for each in hidden)
    if over is None or under is None:
        return Question(what, claimed, None, missing="not in the figure")
    return of_value(what, over / under, claimed)


def crossing() -> Iterator[Question]:
    """B5: the GPU beats the laptop from 1000 units on."""
    few, many = 500, 1000
    low, high = (study().large("cpu", hidden) / study().large("gpu", hidden) for hidden in (few, many))
    share = -math.log(low) / math.log(high / low)
    n = few * (many / few) ** share
    yield of_value(
        "n_rec at which the laptop takes as long as the K80", n, Claimed(least=500.0, most=2000.0, size=1000.0)
    )


def gain_at_5000() -> Iterator[Question]:
    """B6: the GPU is nearly 8 times as fast with 5000 units."""
    gain = study().large("cpu", 5000) / study().large("gpu", 5000)
    yield of_value("n_rec 5000, laptop / K80", gain, Claimed(least=1.0, size=8.0))


def exponents() -> Iterator[Question]:
    """B7: on the GPU time grows about linearly in the units, and below quadratically."""
    for few, many in itertools.pairwise(LARGE):
        exponent = _exponent(study().large("gpu", few), study().large("gpu", many), many / few)
        yield of_value(f"exponent of n_rec from {few} to {many}", exponent, Claimed(most=2.0, size=1.0))


def _exponent(before: float, after: float, growth: float) -> float:
    return math.log(after / before) / math.log(growth)


def inputs_do_not_matter() -> Iterator[Question]:
    """B8: numbers of inputs and outputs do not matter."""
    for hidden in (10, 100, *LARGE):
        seconds = [each.seconds for each in study().sizes("gpu", hidden)]
        yield of_value(f"n_rec {hidden}: slowest / fastest n_in", max(seconds) / min(seconds), Claimed(most=1.1))


def sigmoid_faster() -> Iterator[Question]:
    """B9: sigmoid is 1 to 3 s faster than ReLU."""
    for what, relu, sigmoid in study().ratios(SHARED, SIGMOID):
        yield of_value(f"{what}: ReLU - sigmoid, s", relu - sigmoid, Claimed(least=0.0, size=2.0))


def order_of_software() -> Iterator[Question]:
    """B10: Theano wins with few steps, Keras on Theano from 50, Keras on TensorFlow is the slowest."""
    for steps in STEPS:
        for hidden in HIDDEN:
            theano, keras, tensorflow = (
                study().seconds(figure, hidden, steps) for figure in (UNSHARED, ON_THEANO, ON_TENSORFLOW)
            )
            if theano is None or keras is None or tensorflow is None:
                continue
            where = f"n_rec {hidden}, n_steps {steps}"
            first, second = (theano, keras) if steps < 50 else (keras, theano)
            names = "Keras on Theano / Theano" if steps < 50 else "Theano / Keras on Theano"
            yield of_value(f"{where}: {names}", second / first, MORE)
            yield of_value(f"{where}: Keras on TensorFlow / slower other", tensorflow / max(theano, keras), MORE)


def first_trials() -> Iterator[Question]:
    """B11: the first trial takes far longer than its neighbour with 20 units."""
    for figure in (SHARED, SIGMOID, ON_THEANO, ON_TENSORFLOW, M2090, CLUSTER):
        first, neighbour = study().seconds(figure, 10, 10, first=True), study().seconds(figure, 20, 10)
        if first is not None and neighbour is not None:
            yield of_value(f"Figure {figure}: first trial / neighbour", first / neighbour, Claimed(least=1.5))


def laptop_on_small() -> Iterator[Question]:
    """B12: the laptop is up to 3 times as fast as the GPU on small networks."""
    for name, figure in (("unshared", UNSHARED), ("shared", SHARED)):
        most = max(gpu / laptop for _, gpu, laptop in study().ratios(figure, LAPTOP))
        yield of_value(f"largest of K80 {name} / laptop up to n_rec 200", most, Claimed(least=1.0, size=3.0))


def generations() -> Iterator[Question]:
    """B13: the K80 is dramatically better than the M2090."""
    for name, figure in (("shared", SHARED), ("unshared", UNSHARED)):
        for what, m2090, k80 in study().ratios(M2090, figure):
            yield of_value(f"{what}: M2090 / K80 {name}", m2090 / k80, Claimed(least=1.5))


def slows() -> Iterator[Question]:
    """B14: the laptop slows at about 1000 units, the cluster's CPU at 100."""
    laptop = _exponent(study().large("cpu", 1000), study().large("cpu", 2000), 2.0)
    yield of_value("laptop: exponent of n_rec from 1000 to 2000", laptop, Claimed(least=1.0))
    for steps in STEPS:
        before, after = (study().seconds(CLUSTER, hidden, steps) for hidden in (50, 100))
        if before is not None and after is not None:
            what = f"cluster, n_steps {steps}: exponent of n_rec from 50 to 100"
            yield of_value(what, _exponent(before, after, 2.0), Claimed(least=1.0))


ON_PAPER: Mapping[str, Callable[[], Iterable[Question]]] = {
    "B1": unshared_faster,
    "B2": linear_in_steps,
    "B3": units_hardly_matter,
    "B4": cluster_poor,
    "B5": crossing,
    "B6": gain_at_5000,
    "B7": exponents,
    "B8": inputs_do_not_matter,
    "B9": sigmoid_faster,
    "B10": order_of_software,
    "B11": first_trials,
    "B12": laptop_on_small,
    "B13": generations,
    "B14": slows,
}

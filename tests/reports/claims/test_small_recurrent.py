"""The claims about small recurrent networks, on made-up records of the family elman."""

from collections.abc import Callable

import factory_of_records as make
import pytest
from records_of_claims import here, small

from dlbench.reports.claims.questions import Answer

GPU = {"device": "cuda:0"}
Time = Callable[[int, int, int, str], float]


def study(time: Time, hidden: tuple[int, ...], steps: tuple[int, ...] = (20,), **more: object) -> list[make.Record]:
    """Launches of a grid, whose seconds are told by units, steps, inputs and activation."""
    inputs, activations = more.pop("inputs", (2,)), more.pop("activations", ("relu",))
    return [
        each
        for n in hidden
        for t in steps
        for i in inputs
        for phi in activations
        for each in small(time(n, t, i, phi), n, t, i, phi, **more)
    ]


@pytest.mark.parametrize(
    ("claim", "exponent", "expected"),
    [
        ("B2", 0.9, Answer.REPRODUCES),
        ("B2", 0.4, Answer.DIFFERS),
        ("B2", 1.2, Answer.DIFFERS),
        ("B3", 0.02, Answer.REPRODUCES),
        ("B3", 0.5, Answer.DIFFERS),
        ("B4", 1.0, Answer.REPRODUCES),
        ("B4", 0.1, Answer.DIFFERS),
        ("B7", 1.1, Answer.REPRODUCES),
        ("B7", -0.9, Answer.IN_DIRECTION),
        ("B7", 2.3, Answer.DIFFERS),
        ("B14", 1.5, Answer.REPRODUCES),
        ("B14", 0.5, Answer.DIFFERS),
    ],
)
def test_growth_with_steps_and_units(claim: str, exponent: float, expected: Answer) -> None:
    over_steps = claim == "B2"
    where = {} if claim in ("B2", "B4", "B14") else GPU

    def time(n: int, t: int, i: int, phi: str) -> float:
        return 1e-3 * (t if over_steps else n) ** exponent

    hidden = (20, 100, 200) if claim in ("B2", "B3", "B4") else (500, 1000, 2000, 5000)
    found = here(claim, study(time, hidden, (20, 100), threads=4, **where))
    assert found.of >= 2
    assert found.verdict is expected


def test_a_growth_of_each_row_by_itself() -> None:
    steep = study(lambda n, *_: n / 1e3, (20, 200), mode="loop", **GPU)
    flat = study(lambda n, *_: 1e-3, (20, 200), mode="eager", **GPU)
    found = here("B3", [*steep, *flat])
    assert (found.verdict, found.holds, found.of) == (Answer.PARTLY, 1, 2)
    assert [question.what for question, _ in found.figures] == [
        f"torch {mode}, cuda:0, steps 20, inputs 2, activation relu: hidden 200 / 20" for mode in ("eager", "loop")
    ]


@pytest.mark.parametrize(("at_1000", "expected"), [(0.5, Answer.REPRODUCES), (2.0, Answer.PARTLY)])
def test_where_the_gpu_begins_to_win(at_1000: float, expected: Answer) -> None:
    cpu = study(lambda n, *_: 1.0, (100, 500, 1000, 5000), threads=2)
    gpu = study(lambda n, *_: {1000: at_1000, 5000: 0.12}.get(n, 3.0), (100, 500, 1000, 5000), **GPU)
    # What other frameworks do on a CPU, and slower thread counts, are of no matter.
    more = [*study(lambda *_: 9.0, (1000,), threads=1), *study(lambda *_: 1e-6, (100, 1000), framework="jax")]
    assert here("B5", [*cpu, *gpu, *more]).verdict is expected
    gain = here("B6", [*cpu, *gpu, *more])
    assert (gain.verdict, gain.of) == (Answer.REPRODUCES, 1)
    assert here("B12", [*cpu, *gpu]).verdict is Answer.NOT_MEASURED
    tiny = [*study(lambda *_: 1.0, (10, 50)), *study(lambda *_: 2.0, (10, 50), **GPU)]
    assert here("B12", tiny).verdict is Answer.REPRODUCES


def test_inputs_and_activations() -> None:
    even = study(lambda *_: 1e-3, (100,), inputs=(2, 100))
    assert here("B8", even).verdict is Answer.REPRODUCES
    assert here("B8", study(lambda n, t, i, phi: 1e-3 * i, (100,), inputs=(2, 100))).verdict is Answer.DIFFERS
    both = {"activations": ("relu", "sigmoid")}
    fast = study(lambda n, t, i, phi: {"relu": 1.1, "sigmoid": 1.0}[phi], (100,), **both)
    slow = study(lambda n, t, i, phi: {"relu": 1.0, "sigmoid": 1.2}[phi], (100,), **both)
    assert here("B9", fast).verdict is Answer.REPRODUCES
    assert here("B9", slow).verdict is Answer.DIFFERS


def test_larger_mini_batches_are_another_study() -> None:
    steep = study(lambda n, *_: n / 1e3, (20, 200), batch_size=64, **GPU)
    assert here("B3", steep).verdict is Answer.NOT_MEASURED


def test_a_thread_for_each_core_is_what_is_poor() -> None:
    poor = study(lambda n, *_: n / 1e3, (20, 100, 200), threads=4)
    fine = study(lambda n, *_: 1e-3, (20, 100, 200), threads=1)
    assert here("B4", [*poor, *fine], cores=4).verdict is Answer.REPRODUCES
    assert here("B4", [*poor, *fine], cores=8).verdict is Answer.NOT_MEASURED

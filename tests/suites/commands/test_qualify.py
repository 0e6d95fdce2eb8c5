"""`dlbench gate --qualify` over a launcher that only pretends: what it says of a machine whose
noise is known."""

import random
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_runs import ended_as
from processes import suite_of_null

from dlbench.adapters.protocol import Status
from dlbench.reports.results.outcome import Outcome
from dlbench.suites.commands.qualify import LARGEST_ORDER, products_for
from dlbench.suites.run import runner

RATE = 1e10


def seconds_of(products: str) -> float:
    count, order = map(int, products.split("x"))
    return count * 2 * order**3 / RATE


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Launches of 10 s, whose steps of 0.02 s deviate by this much, and products at this rate."""
    (tmp_path / "mine.toml").write_text(suite_of_null("mine", threads=[1]))
    simulated = SimpleNamespace(deviation=0.005, rate=RATE)
    rng = random.Random(1)

    def launch(request, tick):
        extra = seconds_of(request.variables.get("DLBENCH_EXTRA_PRODUCTS", "0x0"))
        step = 0.02 * rng.lognormvariate(0.0, simulated.deviation) + extra
        outcome = Outcome(
            Status.OK, samples_ns=[round(step * 1e9)] * 3, gemm_flops_per_second=simulated.rate
        )
        return ended_as(outcome, 10.0)

    monkeypatch.setattr(runner, "launch_process", launch)
    return simulated


def test_a_quiet_machine_finds_the_known_slowdown_and_says_how_soon(machine, command, tmp_path):
    code, output, complaints = command("gate", "mine.toml", "--qualify", "--order", "sequential")
    assert code == 0, complaints
    output = " ".join(output.split())
    assert "5% in 4.0 min with probability 100%" in output  # twelve pairs of two launches
    # Three pairs take a minute and six two; three are often enough for so small deviations.
    (minutes,) = re.findall(r"identical code passes in ([0-9.]+) min", output)
    assert 1.0 <= float(minutes) < 2.0
    assert "5% added work: found, 1.0" in output
    assert not list(tmp_path.glob("*.sqlite")), (
        "a slowdown put in would look like a regression of somebody's code"
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("deviation", 0.3, "5% added work: "),
        (
            "rate",
            None,
            "5% added work: could not be tried: this framework offers no matrix product",
        ),
    ],
)
def test_where_the_known_slowdown_is_not_found_the_exit_code_says_so(
    machine, command, name, value, words
):
    setattr(machine, name, value)
    code, output, complaints = command("gate", "mine.toml", "--qualify")
    assert code == 6, complaints
    assert words in " ".join(output.split())
    assert "found, 1." not in output


def test_a_budget_that_is_spent_before_the_first_look_is_said_and_proves_nothing(machine, command):
    code, output, complaints = command("gate", "mine.toml", "--qualify", "--budget", "0.001s")
    assert code == 6, complaints
    assert "not known: the budget was spent" in " ".join(output.split())
    code, output, complaints = command("gate", "mine.toml", "--qualify", "--write", "report.md")
    assert (code, output) == (2, "")
    assert "stores nothing" in complaints


@given(st.floats(1e-4, 10.0))
def test_products_take_as_long_as_they_should_and_are_no_larger_than_those_that_were_timed(seconds):
    products = products_for(seconds, RATE)
    assert seconds_of(products) == pytest.approx(seconds, rel=0.03)
    assert int(products.partition("x")[2]) <= LARGEST_ORDER

"""`dlbench gate --qualify` over a launcher that only pretends: what it says of a machine whose noise is known."""

import random
from types import SimpleNamespace

import pytest
from processes import suite_of_null

from dlbench.adapters.protocol import Outcome, Status
from dlbench.suites.run import runner
from dlbench.suites.run.launcher import Launched


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Launches of 10 s, whose steps of 0.02 s deviate by this much; a product takes ``order`` microseconds."""
    (tmp_path / "mine.toml").write_text(suite_of_null("mine", threads=[1]))
    made = SimpleNamespace(deviation=0.005, offers_products=True)
    rng = random.Random(1)

    def launch(request, tick):
        count, _, order = request.variables.get("DLBENCH_EXTRA_PRODUCTS", "0x0").partition("x")
        if int(count) and not made.offers_products:
            return Launched(Outcome(Status.UNSUPPORTED, "this framework offers no matrix product"), 10.0)
        step = 0.02 * rng.lognormvariate(0.0, made.deviation) + int(count) * int(order) * 1e-6
        return Launched(Outcome(Status.OK, samples_ns=[round(step * 1e9)] * 3), 10.0)

    monkeypatch.setattr(runner, "launch_process", launch)
    return made


def test_a_quiet_machine_finds_the_known_slowdown_and_says_how_soon(machine, command, tmp_path):
    code, said, complaints = command("gate", "mine.toml", "--qualify", "--pairing", "sequential")
    assert code == 0, complaints
    said = " ".join(said.split())
    assert "5% in 4.0 min with 100%" in said  # twelve pairs of two launches
    assert "identical code passes in 2.0 min" in said
    assert "5% more work put in: found, 1.0" in said
    assert not list(tmp_path.glob("*.sqlite")), "a slowdown put in would look like a regression of somebody's code"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("deviation", 0.3, "5% more work put in: "),
        ("offers_products", False, "5% more work put in: could not be tried"),
    ],
)
def test_where_the_known_slowdown_is_not_found_the_exit_code_says_so(machine, command, name, value, words):
    setattr(machine, name, value)
    code, said, complaints = command("gate", "mine.toml", "--qualify")
    assert code == 6, complaints
    assert words in " ".join(said.split())
    assert "found, 1." not in said


def test_a_budget_that_is_spent_before_the_first_look_is_said_and_proves_nothing(machine, command):
    code, said, complaints = command("gate", "mine.toml", "--qualify", "--budget", "0.001s")
    assert code == 6, complaints
    assert "not known: the budget was spent" in " ".join(said.split())
    code, said, complaints = command("gate", "mine.toml", "--qualify", "--write", "report.md")
    assert (code, said) == (2, "")
    assert "keeps nothing" in complaints

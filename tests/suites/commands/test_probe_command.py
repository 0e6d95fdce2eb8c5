"""`dlbench probe --ceilings`: what was measured while other programs used the CPUs is marked as no ceiling."""

import json

import pytest

from dlbench.hardware_probe import Ceilings
from dlbench.hardware_probe.ceilings import Ceiling
from dlbench.suites.commands import list_and_probe


def ceiling(threads: int, busy: float) -> Ceiling:
    samples = (1e11 * threads,)
    return Ceiling(threads, *samples, *samples, samples, samples, 64, busy, busy, 2.0, 1, "2", None, None)


@pytest.fixture
def measured(monkeypatch):
    """Give a measurement with 1 thread undisturbed and with 2 threads on a busy machine."""
    found = Ceilings((ceiling(1, 1.0), ceiling(2, 0.5)))
    monkeypatch.setattr(list_and_probe, "measure", lambda counts: found)


@pytest.mark.usefixtures("measured")
def test_a_disturbed_ceiling_is_marked_and_explained(command):
    code, out, _ = command("probe", "--ceilings", "--threads", "1,2")
    assert code == 0
    assert "\n1 " in out
    assert "\n2? " in out
    said = " ".join(out.split())
    assert "? 2 threads: too low to be a ceiling, only 0.5 of 2 CPUs were at work" in said
    assert "1 thread:" not in said


@pytest.mark.usefixtures("measured")
def test_the_doubt_stands_in_the_json_too(command):
    code, out, _ = command("probe", "--ceilings", "--threads", "1,2", "--json")
    assert code == 0
    assert list(json.loads(out)["doubts"]) == ["2"]

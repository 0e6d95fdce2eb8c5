"""`dlbench probe --ceilings`: what was measured while other programs used the CPUs is marked as no ceiling."""

import json

from dlbench.hardware_probe import Ceilings
from dlbench.hardware_probe.ceilings import Ceiling
from dlbench.suites.commands import probe as probe_module


def ceiling(threads: int, busy: float) -> Ceiling:
    samples = (1e11 * threads,)
    return Ceiling(threads, *samples, *samples, samples, samples, 64, busy, busy, 2.0, 1, "2", None, None)


def test_a_disturbed_ceiling_is_marked_and_explained_and_its_doubt_stands_in_the_json_too(command, monkeypatch):
    found = Ceilings((ceiling(1, 1.0), ceiling(2, 0.5)))  # with 2 threads the machine was busy
    monkeypatch.setattr(probe_module, "measure", lambda counts: found)
    code, out, _ = command("probe", "--ceilings", "--threads", "1,2")
    assert code == 0
    assert "\n1 " in out
    assert "\n2? " in out
    said = " ".join(out.split())
    assert "? 2 threads: too low to be a ceiling, only 0.5 of 2 CPUs were at work" in said
    assert "1 thread:" not in said
    code, out, _ = command("probe", "--ceilings", "--threads", "1,2", "--json")
    assert (code, list(json.loads(out)["doubts"])) == (0, ["2"])

"""How long a run takes is estimated from earlier launches of the machine, in words with units, within 80 columns."""

from datetime import UTC, datetime

import pytest

from dlbench.adapters.protocol import Outcome, Status
from dlbench.hardware_probe import probe
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.run import preparation

WORDS = ("plan", "quick", "--frameworks", "null")


def keep_launches(**chosen):
    """Store launches of 90 s of what is chosen of the suite quick."""
    machine = probe()
    plan = expand(suite.load("quick"), SuiteOverrides(frameworks="null", **chosen), preparation.capacity(machine), 1)
    with Store.open("dlbench.sqlite") as store:
        run = preparation.begin(plan, store, machine)
        for cell in plan.cells:
            store.append(
                Record(
                    *(run.id, run.suite, 0, cell, Outcome(Status.OK), machine.fingerprint, "", ""),
                    *(run.protocol, datetime.now(UTC), 90.0, "0"),
                )
            )


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({}, "About 27 min, by earlier launches of these cells; at most "),
        ({"threads": "1"}, "About 27 min, by earlier launches of 2 of these cells and of others; at"),
        ({"networks": "fcn5"}, "No estimate: the store has no launches of some of these networks on this"),
    ],
)
def test_how_long_a_run_takes_is_told_by_earlier_launches(command, chosen, said):
    keep_launches(**chosen)
    code, out, _ = command(*WORDS, "--threads", "1,2,4")
    assert code == 0
    assert said in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= 80
    # What computes nothing says nothing about others.
    _, out, _ = command("plan", "quick", "--frameworks", "torch", "--threads", "1,2,4")
    assert "No estimate: the store has no launches of these networks" in " ".join(out.split())

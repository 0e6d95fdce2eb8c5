"""What a framework can do here and its default thread count: asked once, of a launcher that only pretends."""

import json
from pathlib import Path

import pytest
from pretended_runs import Pretender
from processes import plan_of, run_command

from dlbench.adapters.protocol import TUNED, Outcome, Status, ThreadEvidence
from dlbench.suites.environments.environment import Source
from dlbench.suites.planning.framework import find
from dlbench.suites.planning.values import Build
from dlbench.suites.run import capabilities
from dlbench.suites.run.launcher import Launched

TOLD = {
    "gpu": [False, "asked"],
    "network:fcn5": [True, ""],
    "network:resnet50": [False, "it has no batch normalisation"],
}


class Honours:
    """A framework of two threads by default that honours a count by this way: variables, calls, either, both, none."""

    def __init__(self, way, reported=None):
        self.way, self.reported, self.orders = way, TOLD if reported is None else reported, []

    def __call__(self, order, tick):
        self.orders.append(order)
        if order.launch.only_capabilities:
            if isinstance(self.reported, Outcome):
                return Launched(self.reported, 1.0)
            software = {"capabilities": self.reported, "distributions": {"mxnet": "9.9"}}
            return Launched(Outcome(Status.OK, software=software), 1.0)
        calls = order.launch.cell.threads
        named = int(order.variables.get("OMP_NUM_THREADS", 0))
        heard = {"variables": named, "calls": calls, "either": named or calls, "both": named and calls, "none": 0}
        busy = heard[self.way] or 2
        return Launched(Outcome(Status.OK, threads=ThreadEvidence(calls, 7, busy, busy, 1.0, [1.0] * busy)), 1.0)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    return tmp_path


def ask(launcher, machine="here", digest="env", cpus=2, name="mxnet"):
    framework = find(name)
    source = Source(Build(name, framework), Path("/python"), "CPython", digest)
    return capabilities.probe(framework, source, machine, cpus, launcher, lambda line: None)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("variables", "OMP_NUM_THREADS"),
        ("calls", "its own setting"),
        ("either", "OMP_NUM_THREADS, or its own setting"),
        ("both", "OMP_NUM_THREADS and its own setting, together"),
        ("none", "not honoured"),
    ],
)
def test_how_threads_are_honoured_is_what_was_seen(way, words):
    found = ask(Honours(way))
    # Seven is what it says of itself each time; two and one are what worked.
    assert (found.threads["by_nothing"], found.threads["asked"]) == (2, 1)
    assert found.threads["words"] == words


def test_it_is_asked_once_and_again_when_something_changes(tmp_path):
    launcher = Honours("either")
    first = ask(launcher)
    asked = len(launcher.orders)
    assert ask(launcher) == first
    assert len(launcher.orders) == asked
    for change in ({"machine": "there"}, {"digest": "another"}):
        before = len(launcher.orders)
        ask(launcher, **change)
        assert len(launcher.orders) > before
    kept = tmp_path / "cache" / "capabilities" / "mxnet.json"
    kept.write_text("{" + kept.read_text())
    assert ask(launcher) == first  # what cannot be read is asked again


def test_a_framework_that_fails_says_why_and_is_asked_again():
    launcher = Honours("either", reported=Outcome(Status.CRASHED, "exit code 1"))
    assert ask(launcher).problem == "crashed: exit code 1"
    ask(launcher)
    assert len(launcher.orders) == 2


def test_the_command_shows_and_gives_everything(tmp_path):
    done = run_command(tmp_path, "list", "--capabilities", "--frameworks", "null,torch7")
    assert done.returncode == 0, done.stderr
    assert "torch7: not asked." in done.stdout
    done = run_command(tmp_path, "list", "--capabilities", "--frameworks", "null,torch7", "--json")
    null, torch7 = json.loads(done.stdout)
    assert null["networks"]["lstm32"] == {"supported": True, "reason": ""}
    assert null["kinds"] == dict.fromkeys(("dense", "convolutional", "recurrent", "attention"), True)
    assert torch7["kinds"] == dict.fromkeys(("dense", "convolutional", "recurrent", "attention"))
    assert torch7["problem"]
    assert (torch7["licence"], torch7["last_release"]) == ("BSD-3-Clause", None)


def showing(evidence):
    """Return a launcher whose launches show this thread evidence."""
    return Pretender(lambda cell: Outcome(Status.OK, threads=evidence))


def evidence(says, *busy):
    return ThreadEvidence(0, says, len(busy), sum(busy), 1.0, list(busy))


def defaults(launcher):
    plan = plan_of(frameworks="mxnet,null", tuning=TUNED)
    found = {row.build.name: Source(row.build, Path("/python"), "CPython", "env") for row in plan.rows}
    return capabilities.threads_by_default(plan, found, "here", launcher, print)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (evidence(3, 0.9, 0.8), 3),
        (evidence(0, 0.9, 0.8, 0.0), 2),
        (evidence(None, 0.9), 1),
        (evidence(None, 0.8, 0.7, 0.6), 2),
    ],
    ids=["its word", "zero is no word", "no word", "three take turns on two"],
)
def test_the_frameworks_word_counts_and_else_what_was_seen(shown, expected):
    assert defaults(showing(shown)) == {("mxnet", "hybrid", TUNED): expected}


def test_a_launch_that_failed_leaves_the_row_out_and_is_tried_again():
    launcher = showing(None)
    assert defaults(launcher) == {}
    assert defaults(launcher) == {}
    assert len(launcher.orders) == 2

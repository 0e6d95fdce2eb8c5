"""What a framework can do: asked once, kept while nothing it depends on changes, told in words that follow from it."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import run_command

from dlbench.adapters.protocol import Outcome, Status, ThreadEvidence
from dlbench.suites.environments.environment import Source
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import find
from dlbench.suites.planning.values import Build
from dlbench.suites.run import capabilities
from dlbench.suites.run.capabilities import Threads
from dlbench.suites.run.launcher import Launched

pytestmark = pytest.mark.alone

TOLD = {
    "gpu": [False, "asked"],
    "network:fcn5": [True, ""],
    "network:resnet50": [False, "it has no batch normalisation"],
}


class Pretender:
    """A framework of two threads by default that honours a count by this way: variables, calls, either, both, none."""

    def __init__(self, way, told=None):
        self.way, self.told, self.orders = way, TOLD if told is None else told, []

    def launch(self, order, tick=lambda directory: None):
        self.orders.append(order)
        if order.launch.only_capabilities:
            if isinstance(self.told, Outcome):
                return Launched(self.told, 1.0)
            software = {"capabilities": self.told, "distributions": {"mxnet": "9.9"}}
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
    found = ask(Pretender(way))
    # Seven is what it says of itself each time; two and one are what worked.
    assert (found.threads.by_nothing, found.threads.asked) == (2, 1)
    assert found.threads.words == words


def test_its_answers_are_kept_apart_from_the_networks():
    found = ask(Pretender("either"))
    assert found.answers == {"gpu": (False, "asked")}
    assert found.networks == {"fcn5": "", "resnet50": "it has no batch normalisation"}
    assert found.version == "9.9"


@pytest.mark.parametrize(
    ("software", "version"),
    [
        ({"distributions": {"mxnet": "9.9"}, "version": "9"}, "9.9"),
        ({"distributions": {"other": "9.9"}, "version": "1.0.0"}, "1.0.0"),
        ({"distributions": {}}, ""),
    ],
)
def test_a_version_is_the_distributions_or_else_what_the_framework_says(software, version):
    assert capabilities._version(find("mxnet"), Outcome(Status.OK, "", software=software)) == version


def test_it_is_asked_once_and_again_when_something_changes(tmp_path):
    launcher = Pretender("either")
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


def test_on_one_cpu_nothing_is_said_of_threads():
    launcher = Pretender("either")
    assert ask(launcher, cpus=1).threads is None
    assert len(launcher.orders) == 1


def test_a_framework_that_fails_says_why_and_is_asked_again():
    launcher = Pretender("either", told=Outcome(Status.CRASHED, "exit code 1"))
    assert ask(launcher).problem == "crashed: exit code 1"
    ask(launcher)
    assert len(launcher.orders) == 2


class Failing(Pretender):
    """A pretender whose launches for threads, but not the one that asks, end so."""

    end: object

    def launch(self, order, tick=lambda directory: None):
        launched = super().launch(order, tick)
        if order.launch.only_capabilities:
            return launched
        if isinstance(self.end, Exception):
            raise self.end
        return Launched(Outcome(self.end, "by chance"), 1.0)


@pytest.mark.parametrize("end", [Status.CRASHED, Status.TIMED_OUT, Status.OUT_OF_MEMORY])
def test_what_a_failed_launch_left_unseen_is_asked_again(end):
    failing = Failing("either")
    failing.end = end
    assert ask(failing).threads.words == "not seen"
    assert ask(Pretender("either")).threads.words == "OMP_NUM_THREADS, or its own setting"


def test_a_launch_that_cannot_be_carried_out_is_a_problem_of_this_framework_alone():
    failing = Failing("either")
    failing.end = FrameworkEnvironmentError("No room for a launch.")
    framework = find("mxnet")
    sources = {"mxnet": Source(Build("mxnet", framework), Path("/python"), "CPython", "env")}
    found = capabilities.of_all([framework, find("torch7")], sources, "here", 2, failing, lambda line: None)
    assert found["mxnet"].problem == "No room for a launch."
    assert found["torch7"].problem == "no environment"


counts = st.none() | st.integers(1, 4)


@given(asked=st.integers(1, 2), seen=st.tuples(counts, counts, counts, counts), named=st.booleans())
def test_nothing_is_called_honoured_that_was_not_seen(asked, seen, named):
    nothing, variables, calls, both = seen
    words = Threads(asked, *seen, ("OMP_NUM_THREADS",) if named else ()).words
    if "its own setting" in words and "together" not in words:
        assert calls == asked != nothing
    if words.startswith("OMP"):
        assert named
        assert asked in (variables, both)
        assert nothing != asked
    if words == "not honoured":
        assert asked not in (nothing, calls, both)


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--capabilities", "--python", "mine:torch=/no/such/python"], "Write torch=PATH"),
        (["--capabilities", "--frameworks", "null", "--python", "torch=/no/such/python"], "torch, which --frameworks"),
        (["--capabilities", "--python", "torch=/no/such/python"], "/no/such/python"),
    ],
)
def test_a_build_to_be_asked_is_one_of_those_named(words, said, tmp_path):
    done = run_command(tmp_path, "list", *words)
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1]


def test_an_interpreter_that_is_given_is_the_one_asked(tmp_path):
    done = run_command(tmp_path, "list", "--capabilities", "--python", f"null={sys.executable}", "--json")
    assert done.returncode == 0, done.stderr
    (null,) = json.loads(done.stdout)
    assert (null["name"], null["problem"]) == ("null", "")

"""What a framework can do here, beside the table of 2021, and its default thread count; launchers
only pretend."""

import csv
import importlib
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from pretended_runs import Pretender, ended_as
from processes import plan_of, run_command

from dlbench.adapters.libraries import inventory
from dlbench.adapters.protocol import TUNED, Status, ThreadEvidence
from dlbench.reports.results.outcome import Outcome
from dlbench.suites.environments.environment import BuildSource
from dlbench.suites.planning.framework import catalogue, find
from dlbench.suites.planning.values import Build
from dlbench.suites.run import capabilities, capability_table

TOLD = {
    "gpu": [False, "asked"],
    "network:fcn5": [True, ""],
    "network:resnet50": [False, "it has no batch normalisation"],
}


class Honours:
    """A framework of two threads by default that honours a count by this way: variables, calls,
    either, both, none."""

    def __init__(self, way, reported=None):
        self.way, self.reported, self.orders = way, TOLD if reported is None else reported, []

    def __call__(self, order, tick):
        self.orders.append(order)
        if order.launch.only_capabilities:
            if isinstance(self.reported, Outcome):
                return ended_as(self.reported)
            software = {"capabilities": self.reported, "distributions": {"mxnet": "9.9"}}
            return ended_as(Outcome(Status.OK, software=software))
        calls = order.launch.cell.threads
        named = int(order.variables.get("OMP_NUM_THREADS", 0))
        heard = {
            "variables": named,
            "calls": calls,
            "either": named or calls,
            "both": named and calls,
            "none": 0,
        }
        busy = heard[self.way] or 2
        threads = ThreadEvidence(calls, 7, busy, busy, 1.0, [1.0] * busy)
        return ended_as(Outcome(Status.OK, threads=threads))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    return tmp_path


def ask(launcher, machine="here", digest="env", cpus=2, name="mxnet"):
    framework = find(name)
    source = BuildSource(Build(name, framework), Path("/python"), "CPython", digest)
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
    answers = ask(Honours(way))
    # Seven is what it says of itself each time; two and one are what worked.
    assert (answers.threads["by_nothing"], answers.threads["asked"]) == (2, 1)
    assert answers.threads["words"] == words


def test_a_framework_is_asked_once_and_again_when_machine_or_build_change(tmp_path):
    launcher = Honours("either")
    first = ask(launcher)
    order_count = len(launcher.orders)
    assert ask(launcher) == first
    assert len(launcher.orders) == order_count
    for change in ({"machine": "there"}, {"digest": "another"}):
        before = len(launcher.orders)
        ask(launcher, **change)
        assert len(launcher.orders) > before
    cache_file = tmp_path / "cache" / "capabilities" / "mxnet.json"
    cache_file.write_text("{" + cache_file.read_text())
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
    assert null["kinds"] == dict.fromkeys(
        ("dense", "convolutional", "recurrent", "attention"), True
    )
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
    sources = {
        row.build.name: BuildSource(row.build, Path("/python"), "CPython", "env")
        for row in plan.rows
    }
    return capabilities.threads_by_default(plan, sources, "here", launcher, print)


@pytest.mark.parametrize(
    ("threads_evidence", "expected"),
    [
        (evidence(3, 0.9, 0.8), 3),
        (evidence(0, 0.9, 0.8, 0.0), 2),
        (evidence(None, 0.9), 1),
        (evidence(None, 0.8, 0.7, 0.6), 2),
    ],
    ids=["its word", "zero is no word", "no word", "three take turns on two"],
)
def test_the_frameworks_word_counts_and_else_what_was_seen(threads_evidence, expected):
    assert defaults(showing(threads_evidence)) == {("mxnet", "hybrid", TUNED): expected}


def test_a_launch_that_failed_leaves_the_row_out_and_is_tried_again():
    launcher = showing(None)
    assert defaults(launcher) == {}
    assert defaults(launcher) == {}
    assert len(launcher.orders) == 2


# The columns of the table of 2021.


def row(name: str, **answers: bool) -> dict[str, Any]:
    """What a build of this framework answers; what is not said is not asked."""
    return {
        "name": name,
        "title": name.title(),
        "answers": {
            key: {"answer": answer, "how": f"{key} was seen"} for key, answer in answers.items()
        },
        "networks": {"alexnet": {"supported": False, "reason": "no convolutions"}},
        "kinds": {"recurrent": True, "convolutional": False},
        "last_release": {"version": "7.8.1", "date": "2022-01-05"},
        "project": {"licence": "MIT License", "distribution": f"{name} 1.0", "languages": "Python"},
    }


def test_every_column_of_the_table_is_asked() -> None:
    text = (
        resources.files("dlbench.reports")
        .joinpath("data/gurari2021_capabilities.csv")
        .read_text(encoding="utf-8")
    )
    _, _, *names = next(csv.reader(text.splitlines()))
    assert names == [*capability_table.columns(row("jax"))]
    assert set(capability_table.published()) <= set(catalogue())


def test_only_answers_that_both_have_can_differ() -> None:
    compared = capability_table.compare(
        row("chainer", openmp=True, opencl=False, gpu=False, automatic_gradients=True)
    )
    assert compared["software"] == "Chainer"
    assert {name: column["here"] for name, column in compared["columns"].items()} == {
        **dict.fromkeys(compared["columns"], "-"),
        **{
            "license": "MIT License",
            "open source": "yes",
            "written in": "Python",
            "interface": "Python",
        },
        **{"OpenMP": "yes", "OpenCL": "no", "CUDA": "no", "automatic differentiation": "yes"},
        **{"recurrent nets": "yes", "convolutional nets": "no", "actively developed": "no"},
    }
    # The table has Chainer with CUDA and convolutions, without OpenMP and OpenCL, and does not know
    # whether it lives.
    assert compared["differences"] == [
        "Chainer: OpenMP: 'No' in 2021, on this machine yes: openmp was seen",
        "Chainer: CUDA: 'Yes' in 2021, on this machine no: gpu was seen",
        "Chainer: convolutional nets: 'Yes' in 2021, on this machine no: no convolutions",
    ]
    unknown = capability_table.compare(row("jax", openmp=True))
    assert (unknown["software"], unknown["differences"]) == (None, [])


def test_the_capability_table_differs_in_its_first_word() -> None:
    assert capability_table.differs("Under development", "no")
    same = [("Yes, by hand", "yes"), ("?", "no"), ("Python, C++", "Python")]
    assert not any(capability_table.differs(*case) for case in same)


METADATA = """Metadata-Version: 2.1
Name: mynet-cpu
Version: 3.1
Author: Somebody
License: see the file
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3.11

Words.
"""


def test_a_build_shows_its_models_its_names_and_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an installed framework whose distribution has another name."""
    package, folder = tmp_path / "mynet", tmp_path / "mynet_cpu-3.1.dist-info"
    for directory in (package, folder, package / "applications"):
        directory.mkdir()
    (package / "__init__.py").write_text("class DeepBoltzmannMachine: pass\nclass Carbon: pass\n")
    (package / "applications" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "METADATA").write_text(METADATA)
    (folder / "RECORD").write_text("mynet/__init__.py,,\nmynet/libnet.so,,\nmynet/libnet.so.3,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("mynet")
    monkeypatch.setitem(sys.modules, "mynet", sys.modules["mynet"])
    answers = inventory.answers("mynet")
    assert answers["pretrained_models"] == (True, "mynet.applications is there")
    assert answers["boltzmann_machines"] == (True, "mynet.DeepBoltzmannMachine")
    assert not answers["opencl"][0]
    assert inventory.project("mynet") == {
        "distribution": "mynet-cpu 3.1",
        "creator": "Somebody",
        "licence": "Apache Software License",
        "platform": "Linux",
        "languages": "C++",
        "libraries": "2 shared libraries",
    }
    assert inventory.project("there_is_no_such_module") == {}


def test_the_command_shows_the_table(tmp_path: Path) -> None:
    words = ("list", "--capabilities", "--frameworks", "null,torch7", "--against", "gurari2021")
    done = run_command(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "not in the table of 2021" in " ".join(done.stdout.split())
    assert "torch7: not asked." in done.stdout
    (null,) = json.loads(run_command(tmp_path, *words, "--json").stdout)
    assert null["columns"]["recurrent nets"]["here"] == "yes"

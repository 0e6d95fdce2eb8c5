"""Builds in the columns of the table of 2021: what a build shows, and what differs."""

import csv
import importlib
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from processes import run_command

from dlbench.adapters.libraries import inventory
from dlbench.suites.planning.framework import catalogue
from dlbench.suites.run import capability_table


def row(name: str, **answers: bool) -> dict[str, Any]:
    """What a build of this framework answers; what is not said is not asked."""
    return {
        "name": name,
        "title": name.title(),
        "answers": {key: {"answer": answer, "how": f"{key} was seen"} for key, answer in answers.items()},
        "networks": {"alexnet": {"supported": False, "reason": "no convolutions"}},
        "kinds": {"recurrent": True, "convolutional": False},
        "last_release": {"version": "7.8.1", "date": "2022-01-05"},
        "project": {"licence": "MIT License", "distribution": f"{name} 1.0", "languages": "Python"},
    }


def test_every_column_of_the_table_is_asked() -> None:
    text = resources.files("dlbench.reports").joinpath("data/gurari2021_capabilities.csv").read_text(encoding="utf-8")
    _, _, *names = next(csv.reader(text.splitlines()))
    assert names == [*capability_table.columns(row("jax"))]
    assert set(capability_table.published()) <= set(catalogue())


def test_only_answers_that_both_have_can_differ() -> None:
    found = capability_table.beside(row("chainer", openmp=True, opencl=False, gpu=False, automatic_gradients=True))
    assert found["software"] == "Chainer"
    assert {name: column["here"] for name, column in found["columns"].items()} == {
        **dict.fromkeys(found["columns"], "-"),
        **{"license": "MIT License", "open source": "yes", "written in": "Python", "interface": "Python"},
        **{"OpenMP": "yes", "OpenCL": "no", "CUDA": "no", "automatic differentiation": "yes"},
        **{"recurrent nets": "yes", "convolutional nets": "no", "actively developed": "no"},
    }
    # The table has Chainer with CUDA and convolutions, without OpenMP and OpenCL, and does not know whether it lives.
    assert found["differences"] == [
        "Chainer: OpenMP: 'No' in 2021, here yes: openmp was seen",
        "Chainer: CUDA: 'Yes' in 2021, here no: gpu was seen",
        "Chainer: convolutional nets: 'Yes' in 2021, here no: no convolutions",
    ]
    unknown = capability_table.beside(row("jax", openmp=True))
    assert (unknown["software"], unknown["differences"]) == (None, [])


def test_what_differs() -> None:
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


@pytest.fixture
def mynet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the name of an installed framework whose distribution has another name."""
    package, folder = tmp_path / "mynet", tmp_path / "mynet_cpu-3.1.dist-info"
    for each in (package, folder, package / "applications"):
        each.mkdir()
    (package / "__init__.py").write_text("class DeepBoltzmannMachine: pass\nclass Carbon: pass\n")
    (package / "applications" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "METADATA").write_text(METADATA)
    (folder / "RECORD").write_text("mynet/__init__.py,,\nmynet/libnet.so,,\nmynet/libnet.so.3,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("mynet")
    monkeypatch.setitem(sys.modules, "mynet", sys.modules["mynet"])
    return "mynet"


def test_a_build_shows_its_models_its_names_and_its_metadata(mynet: str) -> None:
    answers = inventory.answers(mynet)
    assert answers["pretrained_models"] == (True, "mynet.applications is there")
    assert answers["boltzmann_machines"] == (True, "mynet.DeepBoltzmannMachine")
    assert not answers["opencl"][0]
    assert inventory.project(mynet) == {
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

"""What is said before environments are built, and how a missing Python is got."""

from types import SimpleNamespace

import pytest
from made_up_pythons import make_python, script

from dlbench.suites.environments import announcements, interpreters, lacking_pythons
from dlbench.suites.planning.framework import find


def test_builds_are_announced_with_sizes_place_and_time(home):
    frameworks = [find(name) for name in ("torch", "onnxruntime", "tensorflow", "mxnet")]
    sizes, place, time = announcements.announcement(frameworks)
    assert sizes == (
        "To be downloaded: about 770 MB (PyTorch 250 MB; ONNX Runtime 53 MB; TensorFlow 400 MB; "
        "MXNet 67 MB)."
    )
    assert place == f"Installed that takes about 3.0 GB in {home / 'environments'}."
    assert time == "It may take 2 min at 50 Mbit/s, and 2 min to install."
    assert announcements.announcement([]) == []


@pytest.fixture
def pythons(home, tmp_path, monkeypatch):
    """Give a function that makes a Python of this version; there is no other."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    own = SimpleNamespace(version_info=(3, 99), executable="")
    monkeypatch.setattr(interpreters, "sys", own)

    def make(version):
        make_python(tmp_path / "path" / f"python{version}", version)
        interpreters.find_python.cache_clear()

    return make


@pytest.mark.parametrize(
    ("version", "measured", "missing"),
    [
        ("3.11", ["torch", "onnxruntime", "tensorflow", "mxnet"], ""),
        ("3.12", ["torch", "onnxruntime", "tensorflow", "jax"], "mxnet"),
        ("3.13", ["jax", "onnx"], "torch, onnxruntime, tensorflow, mxnet"),
    ],
)
def test_quick_measures_others_instead_of_those_without_a_python(
    command, pythons, version, measured, missing
):
    pythons(version)
    code, output, errors = command("plan", "quick", "--networks", "fcn5", "--threads", "1")
    assert code == 0
    rows = [line.split()[2] for line in output.splitlines() if line.startswith("fcn5 ")]
    assert rows == measured
    expected = []
    if missing:
        count = len(missing.split(", "))
        replacements = ", ".join(measured[4 - count :])
        expected = [
            f"No Python 3.11 was found for {missing}. To measure them: `uv python install 3.11` "
            f"or `pyenv install 3.11`. Measured instead: {replacements}."
        ]
    assert [line for line in errors.splitlines() if "Python" in line] == expected


def test_a_framework_that_is_asked_for_is_planned_without_a_python_too(command, pythons):
    pythons("3.13")
    _, output, errors = command("plan", "quick", "--frameworks", "mxnet,jax", "--threads", "1")
    assert "mxnet" in output
    assert "Measured instead" not in errors


@pytest.mark.parametrize("installer", ["uv", "pyenv"])
def test_of_two_installers_the_one_that_is_there_is_named(pythons, tmp_path, installer):
    script(tmp_path / "path" / installer, "#!/bin/sh\n")
    command = lacking_pythons.command_for("3.11")
    assert command.startswith(f"`{installer} ")
    assert " or " not in command


def test_the_version_named_serves_most_of_those_that_lack_one():
    lacking = [find(name) for name in ("theano", "mxnet", "torch")]  # 3.8; 3.11 to 3.8; 3.11, 3.12
    assert lacking_pythons.version_for(lacking) in ("3.8", "3.11")
    assert lacking_pythons.version_for([*lacking, find("onnxruntime")]) == "3.11"

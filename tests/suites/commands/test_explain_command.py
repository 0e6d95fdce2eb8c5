"""`dlbench explain`: a cell in the words of the other commands, one launch that profiles, else
clear answers."""

import json

import pytest
from processes import run_command, suite_of_null

ADAPTER = """
from ..libraries.profiles import Calls, profile
from ..base import Adapter
from ..null.adapter import NullAdapter


class Pretended(NullAdapter):
    def profile(self, steps):
        if self.settings.get("broken"):
            raise RuntimeError("no room for a trace")
        if self.settings.get("none"):
            return None
        for _ in range(steps):
            self.step()
        calls = [Calls("MatMul", False, 0.0006 * steps, 2 * steps), Calls("Relu", False, 0.0002 * steps, steps)]
        return profile("a pretended profiler", steps, 0.001 * steps, calls)


ADAPTER = Pretended
"""
DESCRIPTION = """
name = "pretended"
title = "Pretended"
summary = "null with a profile that is made up"
environment = "host"
computes = false

[modes.usual]
summary = "as it is"
default = true
settings = { step_seconds = 0.001, serial_fraction = 1.0 }

[modes.broken]
summary = "its profiler fails"
settings = { broken = true }

[modes.none]
summary = "it has no profiler"
settings = { none = true }

[modes.crashing]
summary = "it crashes"
settings = { fault = "error" }
"""


@pytest.fixture
def run(tmp_path):
    """Give a function that explains a cell of the pretended framework."""
    folder = tmp_path / "pretended"
    folder.mkdir()
    (folder / "framework.toml").write_text(DESCRIPTION)
    (folder / "adapter.py").write_text(ADAPTER)

    def explained(*words):
        return run_command(tmp_path, "explain", *words, "--adapter", f"pretended={folder}")

    return explained


def test_it_shows_kinds_and_operators_of_one_launch_and_stores_nothing(run, tmp_path):
    done = run(
        "pretended/fcn5", "--threads", "2", "--batch-size", "8", "--steps", "3", "--top", "1"
    )
    assert done.returncode == 0, done.stderr
    assert "fcn5, mini-batch 8" in done.stdout
    assert "2 threads" in done.stdout
    assert "a pretended profiler" in done.stdout
    assert "MatMul" in done.stdout
    assert "Relu" not in done.stdout  # of two operators only one is shown
    assert "launching fcn5, mini-batch 8, pretended usual, 2 threads" in done.stderr
    assert not list(tmp_path.glob("*.sqlite"))


def test_a_network_of_ones_own_is_explained_with_the_suite_that_defines_it(run, tmp_path):
    (tmp_path / "mine.toml").write_text(
        suite_of_null()
        + """
[[network]]
name = "small"
family = "feedforward"
inputs = 784
hidden = [512]
outputs = 10
activation = "relu"
batch_size = 48
"""
    )
    done = run("pretended/small", "--suite", "mine.toml", "--json")
    assert done.returncode == 0, done.stderr
    cell = json.loads(done.stdout)["cell"]
    assert (cell["network"], cell["batch_size"], cell["threads"] > 0) == ("small", 48, True)
    assert "no network named 'small'" in run("pretended/small").stderr


@pytest.mark.parametrize(
    ("cell", "code", "message"),
    [
        ("pretended:none/fcn5", 2, "Pretended's adapter has no profiler"),
        ("pretended:broken/fcn5", 2, "its profiler failed: RuntimeError: no room for a trace"),
        ("pretended:crashing/fcn5", 1, "no step was timed, crashed"),
    ],
)
def test_where_there_is_nothing_to_show_it_says_why(run, cell, code, message):
    done = run(cell)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""

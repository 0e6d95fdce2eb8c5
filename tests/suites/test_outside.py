"""Adapters outside the package: how they are named, and what they may do wrong without harm to anything else."""

import json
import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest
from processes import gone, run_command, wait_until

from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.suites import framework, outside
from dlbench.suites.errors import UsageError
from dlbench.suites.launcher import Order, ProcessLauncher

ABOUT = """
name = "{name}"
title = "Mine"
summary = "made up by a test"
environment = "host"
computes = {computes}

[modes.only]
default = true
summary = "the one mode"
"""
# What a launch needs to end well; a test puts its own lines in front of the last.
ADAPTER = """
import os, sys, time
import numpy as np
from ..base import Adapter
from ..batches import initial_weights

class Mine(Adapter):
    computes = {computes}
    parity_reason = "it computes nothing"
    def prepare(self, network, weights, batch): self.held = {{name: value.copy() for name, value in weights.items()}}
    def set_learning_rate(self, rate): pass
    def step(self): pass
    def last_loss(self): return 1.0
    def parameters(self): return iter(self.held.items())
    def describe(self): return {{"framework": "mine", "version": "1"}}
{more}

ADAPTER = Mine
"""


def write_adapter(folder: Path, more: str = "", name: str = "mine", computes: bool = False) -> Path:
    """Write an adapter whose class has these lines more; return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "framework.toml").write_text(ABOUT.format(name=name, computes=str(computes).lower()))
    indented = "\n".join("    " + line for line in more.splitlines())
    (folder / "adapter.py").write_text(ADAPTER.format(more=indented, computes=computes))
    return folder


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch):
    """Keep what a test registers out of the catalogue of the others."""
    monkeypatch.setattr(framework, "_added", {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine", "cannot be read"),
        ("=folder", "cannot be read"),
        ("mine=", "cannot be read"),
        ("my-frame work=folder", "cannot be read"),
        ("mine=nowhere", "has no framework.toml"),
        ("mine=~nobody-of-this-name/x", "cannot be looked into"),
    ],
)
def test_what_cannot_be_meant(text, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words) as caught:
        outside.read(text, "--adapter")
    assert str(caught.value).startswith("--adapter")
    assert "\n" not in str(caught.value)


def test_a_folder_without_adapter_py(tmp_path):
    folder = write_adapter(tmp_path / "a")
    (folder / "adapter.py").unlink()
    with pytest.raises(UsageError, match=r"no adapter\.py"):
        outside.read(f"mine={folder}", "--adapter")


def test_two_names_for_one_framework(tmp_path):
    with pytest.raises(UsageError, match="describes 'mine', not 'other'"):
        outside.read(f"other={write_adapter(tmp_path / 'a')}", "--adapter")


def test_the_name_of_one_of_ours(tmp_path):
    with pytest.raises(UsageError, match="torch is the name of a framework that dlbench has"):
        outside.read(f"torch={write_adapter(tmp_path / 'a', name='torch')}", "--adapter")


def test_the_variable_and_the_option_add_up(tmp_path, monkeypatch):
    first, second = write_adapter(tmp_path / "a", name="first"), write_adapter(tmp_path / "b", name="second")
    monkeypatch.setenv(outside.VARIABLE, f"first={first}")
    assert outside.register([f"second={second}"]) == [f"second={second}"]
    assert {"first", "second", "null"} <= set(framework.offered())
    assert framework.find("first").outside == str(first)
    assert framework.find("null").outside is None


def test_an_installed_package_declares_its_adapter(tmp_path, monkeypatch):
    package = tmp_path / "site" / "mine_benchmarks"
    package.parent.mkdir()
    write_adapter(package)
    (package / "__init__.py").write_text("")
    about = tmp_path / "site" / "mine_benchmarks-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-benchmarks\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{outside.GROUP}]\nmine = mine_benchmarks\n")
    monkeypatch.syspath_prepend(package.parent)
    outside.register(None)
    assert framework.find("mine").outside == str(package)
    (about / "entry_points.txt").write_text(f"[{outside.GROUP}]\nmine = no_such_package\n")
    with pytest.raises(UsageError, match="which is no package here"):
        outside.register(None)


def test_it_joins_the_rows_of_a_suite_and_is_resumed_with(tmp_path):
    folder = write_adapter(tmp_path / "a")
    (tmp_path / "s.toml").write_text(
        'name = "s"\nsummary = "x"\nnetworks = ["fcn5"]\nframeworks = ["null"]\nthreads = [1]\n'
        "[protocol]\nlaunches = 2\nsteps = 2\nminimum_steps = 2\n"
    )
    done = run_command(tmp_path, "run", "s.toml", "--adapter", f"mine={folder}", "--budget", "0.001s")
    assert done.returncode in (0, 1), done.stderr
    assert f"--adapter mine={folder}" in done.stderr
    done = run_command(tmp_path, "run", "s.toml", "--resume", "--adapter", f"mine={folder}")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  mine only +\*?[0-9.e-]+±", done.stdout, flags=re.MULTILINE), done.stdout
    done = run_command(tmp_path, "list", "--json", "--adapter", f"mine={folder}")
    assert "mine" in [each["name"] for each in json.loads(done.stdout)["frameworks"]]


def launch(folder: Path, timeout: float = 120.0, network: str = "lstm32", threads: int = 1):
    """Carry out one launch of the adapter in this folder."""
    cell = Cell("mine", "mine", "only", network, "cpu", threads, 1)
    protocol = Protocol(warmup_steps=2, steps=4, minimum_steps=2, seconds=0.2)
    asked = Launch(cell, protocol, {}, None, str(folder), adapter_directory=str(folder))
    return ProcessLauncher().launch(Order(asked, Path(sys.executable), {}, timeout)).outcome


def test_a_good_one_runs(tmp_path):
    assert launch(write_adapter(tmp_path / "a", computes=True)).status is Status.OK


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("def parameters(self): return ((n, v.T) for n, v in self.held.items())", r"embedding\.weight has shape"),
        ("def parameters(self): return iter(list(self.held.items())[1:])", "did not yield embedding.weight"),
        ("def last_loss(self): return np.ones((32, 1))", "an array of shape (32, 1)"),
        ("def supports(self, network): return False", "supports() returned False"),
        ("def supports(self, network): return False, ''", "refused without a reason"),
        ("def describe(self): return None", "describe() returned"),
    ],
)
def test_a_breach_of_the_contract_is_said(tmp_path, more, words):
    outcome = launch(write_adapter(tmp_path / "a", more, computes=True))
    assert outcome.status is Status.CRASHED
    assert outcome.reason.startswith("the adapter breaks its contract: ")
    assert words.replace("\\", "") in outcome.reason
    assert not outcome.samples_ns


def test_one_that_never_returns_times_out(tmp_path):
    folder = write_adapter(tmp_path / "a", "def step(self): time.sleep(1000)")
    outcome = launch(folder, timeout=15.0)
    assert outcome.status is Status.TIMED_OUT
    assert "first step" in outcome.reason


def test_one_that_prints_harms_nobody(tmp_path):
    more = "def step(self): print('x' * 10**6); sys.stdout.write('{}'); os.write(1, b'y' * 10**6)"
    assert launch(write_adapter(tmp_path / "a", more)).status is Status.OK


def test_one_that_leaves_the_process_is_a_crash(tmp_path):
    outcome = launch(write_adapter(tmp_path / "a", "def step(self): sys.exit(0)"))
    assert outcome.status is Status.CRASHED


def test_a_copy_that_it_forks_answers_for_nobody(tmp_path):
    """Both processes go on as if each were the launch; the copy is the faster one to end."""
    more = (
        "def prepare(self, network, weights, batch):\n    self.copy = os.fork() == 0\n    self.held = weights.copy()\n"
    )
    more += "def step(self): time.sleep(0 if self.copy else 0.2)\n"
    more += "def describe(self): return {'framework': 'the copy' if self.copy else 'mine', 'version': '1'}"
    outcome = launch(write_adapter(tmp_path / "a", more))
    assert outcome.status is Status.OK
    assert outcome.software["framework"] == "mine"


def test_the_work_of_its_helpers_counts(tmp_path):
    more = (
        "def prepare(self, network, weights, batch):\n"
        "    self.held = weights.copy()\n"
        "    for _ in range(2):\n"
        "        if os.fork() == 0:\n"
        "            until = time.monotonic() + 60\n"
        "            while time.monotonic() < until: pass\n"
        "            os._exit(0)\n"
        "def step(self): time.sleep(0.5)\n"
    )
    threads = launch(write_adapter(tmp_path / "a", more)).threads
    assert len([seconds for seconds in threads.cpu_seconds_by_thread if seconds > 0.2]) == 2
    assert threads.cpu_seconds > 0.4


def test_a_daemon_does_not_outlive_its_launch(tmp_path):
    seen = tmp_path / "daemon"
    more = (
        "def prepare(self, network, weights, batch):\n"
        "    self.held = weights.copy()\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        f"            open({str(seen)!r} + '.part', 'w').write(str(os.getpid()))\n"
        f"            os.replace({str(seen)!r} + '.part', {str(seen)!r})\n"
        "            time.sleep(600)\n"
        "        os._exit(0)\n"
        f"    while not os.path.exists({str(seen)!r}): time.sleep(0.01)\n"
    )
    assert launch(write_adapter(tmp_path / "a", more)).status is Status.OK
    pid = int(seen.read_text())
    wait_until(lambda: gone(pid), "the end of the daemon")


def test_no_process_of_others_is_touched(tmp_path):
    sleeper = psutil.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, "DLBENCH_LAUNCH": "x"}
    )
    try:
        assert launch(write_adapter(tmp_path / "a")).status is Status.OK
        time.sleep(0.1)
        assert not gone(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()

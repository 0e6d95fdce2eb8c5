"""`dlbench doctor` as people and scripts meet it."""

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import run_command

from dlbench.suites.commands.probe import folded
from dlbench.suites.run import quiet


def test_the_command_on_this_machine(tmp_path: Path) -> None:
    ended = run_command(tmp_path, "doctor", "--json", TMPDIR=str(tmp_path), OMP_NUM_THREADS="3")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines() == ["observing this machine for some seconds (5 readings)"]
    report = json.loads(ended.stdout)
    assert len(report["readings"]) == 5
    observations = {finding["name"]: finding["seen"] for finding in report["findings"]}
    assert {"others", "repeatability", "cpu_quota", "governor", "memory"} <= observations.keys()
    assert sum(report["counts"].values()) == len(observations) == len(report["findings"])
    assert "OMP_NUM_THREADS" in observations["variables"]


def test_a_measurement_is_left_in_peace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(tmp_path))
    with quiet.measuring(pytest.fail):
        ended = run_command(tmp_path, "doctor", DLBENCH_LOCK_FOLDER=str(tmp_path))
    assert ended.returncode == 0
    assert "looking" not in ended.stderr
    report = " ".join(ended.stdout.partition("Unknown")[2].split())
    assert "Current load: Another dlbench (process" in report
    assert "is measuring on this machine" in report
    assert "CPU quota" in ended.stdout  # what needs no sample is reported all the same


words = st.text(st.sampled_from("abc/-*.=|"), min_size=1, max_size=60)


@given(st.lists(words, min_size=1, max_size=12), st.integers(20, 80))
def test_a_folded_command_is_the_same_to_a_shell(parts: list[str], width: int) -> None:
    command = " ".join(parts)
    lines = folded(command, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)
    assert all(len(line) <= width or len(line.split()) <= 2 for line in lines)

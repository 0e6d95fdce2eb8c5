"""Whether a job has its node to itself, by what it may use and by who else is there."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dlbench.hardware_probe import Machine, probe
from dlbench.suites.fleet.whole_node import Occupation, gpus_given, lacking, name_of_node, other_jobs


@pytest.fixture(scope="module")
def machine() -> Machine:
    found = probe()
    cpu = replace(found.cpu, affinity=tuple(range(8)), logical_cpus=8, quota_cpus=None)
    return replace(found, cpu=cpu, memory=replace(found.memory, total_bytes=64 * 1024**3, limit_bytes=None))


def test_a_whole_node_lacks_nothing(machine: Machine) -> None:
    assert lacking(machine) == []
    assert lacking(machine, gpus_given=0) == []


def test_a_part_of_a_node_is_told(machine: Machine) -> None:
    cpu = replace(machine.cpu, affinity=(0, 1))
    assert lacking(replace(machine, cpu=cpu)) == ["it may use 2 of 8 CPUs"]
    quota = replace(machine.cpu, quota_cpus=2.5)
    assert lacking(replace(machine, cpu=quota)) == ["a quota of 2.5 of 8 CPUs' time"]
    tight = replace(machine.memory, limit_bytes=16 * 1024**3)
    assert lacking(replace(machine, memory=tight)) == ["it may use 16 of 64 GiB of memory"]
    # What a scheduler keeps for the system itself is nobody's share.
    reserve = replace(machine.memory, limit_bytes=61 * 1024**3)
    assert lacking(replace(machine, memory=reserve)) == []


def test_the_affinity_of_this_process_is_seen() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one CPU has no part")
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert f"it may use 1 of {os.cpu_count()} CPUs" in lacking(probe())
    finally:
        os.sched_setaffinity(0, allowed)


def test_names_are_the_schedulers_first() -> None:
    assert name_of_node("asked", {"SLURMD_NODENAME": "n1"}) == "n1"
    assert name_of_node("asked", {}) == "asked"
    assert name_of_node("", {})


def test_gpus_are_counted_as_slurm_gives_them() -> None:
    assert gpus_given({}) is None
    assert gpus_given({"SLURM_JOB_GPUS": "0,3"}) == 2


def test_other_jobs_are_those_of_the_node_but_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert other_jobs("n1", {}) is None
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\necho 7\necho 8\necho 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert other_jobs("n1", {"SLURM_JOB_ID": "7"}) == ["8"]
    program.write_text("#!/bin/sh\nexit 1\n")
    assert other_jobs("n1", {"SLURM_JOB_ID": "7"}) is None


def test_others_are_looked_for_now_and_then_and_remembered_where_nobody_tells() -> None:
    now, answers = [0.0], [["8"], None, []]
    occupation = Occupation("f", "n1", ["it may use 2 of 8 CPUs"], lambda node: answers.pop(0), lambda: now[0])
    both = "it may use 2 of 8 CPUs", "other jobs are on it: 8"
    assert occupation.now().shared == both
    assert occupation.now().shared == both
    assert len(answers) == 2
    now[0] += 301
    assert occupation.now().shared == both
    now[0] += 301
    assert occupation.now().shared == both[:1]

"""What the doctor finds while it looks on: busy programs, heat, repeatability."""

import dataclasses
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import recorded_trees
from hypothesis import given
from hypothesis import strategies as st
from made_up_machines import CALM, READING, TREES, command, diagnosed, laptop, server
from recorded_trees import HOST_NAME, SERIAL, USER_NAME

from dlbench.hardware_probe import files
from dlbench.hardware_probe.doctor import Facts, Sample, Severity, cpu_list, diagnose, gather_settings, take_sample


def sampled(**changes: object) -> Sample:
    return dataclasses.replace(CALM, **changes)  # type: ignore[arg-type]


def contended(**changes: float | None) -> Sample:
    return sampled(contention=dataclasses.replace(CALM.contention, **changes))


@pytest.mark.parametrize(
    ("sample", "name", "severity", "seen"),
    [
        (
            CALM,
            "repeatability",
            Severity.FINE,
            "matrix products 100 GFLOP/s, spread 0.0%; memory 20.0 GB/s, spread 0.0%",
        ),
        (contended(others_cpus=0.0), "others", Severity.FINE, "used 0.00 of 2 CPUs"),
        (contended(others_cpus=0.1), "others", Severity.MAY_HARM, "used 0.10 of 2 CPUs"),
        (contended(others_cpus=1.0), "others", Severity.HARMS, "used 1.00 of 2 CPUs"),
        (contended(others_cpus=None), "others", Severity.UNKNOWN, "not reported"),
        (contended(pressure_share=0.3), "waiting", Severity.HARMS, "some program 30.0% of the time"),
        (contended(pressure_share=None), "waiting", Severity.FINE, "the sentinel 0.1% of its own time"),
        (contended(steal_share=0.07), "steal", Severity.HARMS, "7.0% of the time wanted"),
        (contended(steal_share=0.02), "steal", Severity.MAY_HARM, "2.0% of the time wanted"),
        (contended(steal_share=None), "steal", Severity.UNKNOWN, "not reported"),
    ],
)
def test_what_happens_just_now(tmp_path: Path, sample: Sample, name: str, severity: Severity, seen: str) -> None:
    finding = diagnosed(tmp_path, recorded_trees.small_vm(), sample)[name]
    assert finding.severity is severity
    assert seen in finding.seen


@pytest.mark.parametrize(
    ("gemm", "bandwidth", "severity"),
    [
        ((1.0, 0.98), (1.0, 0.95), Severity.FINE),
        ((1.0, 0.95), (1.0, 1.0), Severity.MAY_HARM),
        ((1.0, 1.0), (1.0, 0.8), Severity.MAY_HARM),
        ((1.0, 0.8), (1.0, 1.0), Severity.HARMS),
        ((1.0, 1.0), (1.0, 0.5), Severity.HARMS),
    ],
)
def test_repeatability(
    tmp_path: Path, gemm: tuple[float, ...], bandwidth: tuple[float, ...], severity: Severity
) -> None:
    readings = tuple(
        dataclasses.replace(READING, gemm_flops_per_second=1e11 * g, bandwidth_bytes_per_second=2e10 * b)
        for g, b in zip(gemm, bandwidth, strict=True)
    )
    assert diagnosed(tmp_path, server(), sampled(readings=readings))["repeatability"].severity is severity


def test_busy_programs_by_name(tmp_path: Path) -> None:
    contention = dataclasses.replace(CALM.contention, others_cpus=3.0)
    processes = (("backupd", 1.5), ("browser", 1.0))
    found = diagnosed(tmp_path, server(), sampled(contention=contention, processes=processes))
    assert found["others"].seen == "used 3.00 of 32 CPUs: backupd 1.50, browser 1.00, the rest 0.50"
    assert found["others"].severity is Severity.MAY_HARM  # a tenth of 32 CPUs is not reached


def test_heat_while_it_looks(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, laptop(), sampled(throttle_events=4))
    assert found["heat"].severity is Severity.HARMS
    assert found["heat"].seen == "4 times in 2.5 s"
    assert diagnosed(tmp_path, laptop(), sampled(throttle_events=0))["heat"].seen.endswith("not now")


def test_without_a_sample(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, server(), None)
    assert found["load"].severity is Severity.UNKNOWN
    assert found["load"].seen == "not asked for"
    assert not {"others", "waiting", "steal", "repeatability"} & set(found)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("sample", [CALM, None, contended(others_cpus=9.0, pressure_share=0.9, steal_share=0.5)])
def test_every_finding_is_whole(tmp_path: Path, name: str, sample: Sample | None) -> None:
    found = diagnosed(tmp_path, TREES[name](), sample)
    assert list(found) == sorted(found, key=lambda each: list(Severity).index(found[each].severity))
    for finding in found.values():
        assert finding.seen
        assert finding.why.endswith(".")
        assert finding.why.count(". ") == 0  # one sentence
        # Whatever harms can be mended, or the remedy says why not; what is fine needs none.
        assert (finding.remedy is not None) == (finding.severity in (Severity.HARMS, Severity.MAY_HARM))
        if finding.remedy:
            assert finding.remedy.advice.endswith((".", ":"))
            assert finding.remedy.needs_root == ("sudo" in (finding.remedy.command or ""))
    told = json.dumps([finding.to_dict() for finding in found.values()])
    for secret in (HOST_NAME, USER_NAME, SERIAL, "/home"):
        assert secret not in told


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_commands_are_what_a_shell_understands(tmp_path: Path) -> None:
    commands = {
        command(finding)
        for number, tree in enumerate(TREES.values())
        for finding in diagnosed(tmp_path / str(number), tree(), contended(others_cpus=9.0)).values()
    } - {None}
    assert len(commands) > 6
    for each in commands:
        subprocess.run(["bash", "-n", "-c", str(each)], check=True)
        assert shlex.split(str(each))


@given(st.sets(st.integers(0, 300)))
def test_cpu_list_is_what_the_kernel_reads(cpus: set[int]) -> None:
    assert set(files.parse_cpu_list(cpu_list(cpus))) == cpus


def test_this_machine() -> None:
    """Really looked at, with a neighbour that must be found: the child of a child, as children are not others."""
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys\n"
            "busy = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
            "sys.stdin.read()\n"
            "busy.kill()",
        ],
        stdin=subprocess.PIPE,
    )
    numbers: list[int] = []
    try:
        sample = take_sample(2, 0.1, numbers.append)
    finally:
        parent.communicate()
    assert numbers == [1, 2]
    assert len(sample.readings) == 2
    assert sample.seconds > 0.3
    assert sum(used for _, used in sample.processes) > 0.1
    if sample.contention.others_cpus is not None:
        assert sample.contention.others_cpus > 0.1
    findings = diagnose(Facts(gather_settings(), sample))
    assert {"governor", "cpu_quota", "memory", "others", "repeatability"} <= {finding.name for finding in findings}

"""What the doctor finds on recorded machines, under made-up loads, and on this machine."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_trees
from recorded_trees import HOST_NAME, READING, SERIAL, USER_NAME, Tree, write_tree

from dlbench.hardware_probe.doctor import (
    Facts,
    Finding,
    Sample,
    Severity,
    diagnose,
    gather_facts,
    take_sample,
)

PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
SHELL = {
    "OMP_NUM_THREADS": "3",
    "OPENBLAS_CORETYPE": "Haswell",
    "LD_PRELOAD": f"/home/{USER_NAME}/libjemalloc.so",
    "LD_LIBRARY_PATH": f"/home/{USER_NAME}/lib",
    "MKL_NUM_THREADS": "",  # empty: as if it were not set
    "HOME": f"/home/{USER_NAME}",
    "TF_CLI_CONFIG_FILE": "another program's",
}
CALM = Sample(
    seconds=2.5,
    contention={
        "pressure_share": 0.01,
        "pressure_avg10": 0.0,
        "steal_share": 0.0,
        "others_cpus": 0.01,
    },
    processes=(),
    throttle_events=None,
    readings=(READING,) * 5,
)


def laptop() -> Tree:
    """A hybrid processor on battery: four fast cores, four slow ones, hot, some of its memory
    swapped out."""
    tree = recorded_trees.xeon(sockets=1, cores=8, smt=1)
    for cpu in range(8):
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        tree[f"{folder}/cpufreq/scaling_governor"] = "powersave\n"
        tree[f"{folder}/thermal_throttle/core_throttle_count"] = "12\n"
        tree[f"{folder}/thermal_throttle/package_throttle_count"] = "0\n"
    return tree | {
        "proc/meminfo": (
            "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\nSwapTotal: 2097148 kB\nSwapFree: "
            "1048574 kB\n"
        ),
        "proc/sys/vm/swappiness": "60\n",
        "sys/devices/cpu_core/cpus": "0-3\n",
        "sys/devices/cpu_atom/cpus": "4-7\n",
        "sys/class/power_supply/AC/type": "Mains\n",
        "sys/class/power_supply/AC/online": "0\n",
        "sys/class/power_supply/BAT0/type": "Battery\n",
        "sys/class/power_supply/BAT0/status": "Discharging\n",
        "sys/class/power_supply/mouse/type": "Battery\n",
        "sys/class/power_supply/mouse/scope": "Device\n",
    }


def server() -> Tree:
    """Two sockets with SMT, with what a distribution leaves switched on."""
    return recorded_trees.xeon() | {
        "proc/sys/kernel/numa_balancing": "1\n",
        "proc/sys/vm/swappiness": "10\n",
        "proc/loadavg": "0.10 0.20 0.30 1/300 4242\n",
        "sys/devices/system/cpu/smt/control": "on\n",
        "sys/devices/system/cpu/isolated": "\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "0\n",
    }


TREES: dict[str, Callable[[], Tree]] = {**recorded_trees.ALL, "laptop": laptop, "server": server}


def diagnosed(folder: Path, tree: Tree, sample: Sample | None = CALM) -> dict[str, Finding]:
    return found_in(facts_of(folder, tree), sample)


def facts_of(folder: Path, tree: Tree) -> Facts:
    return gather_facts(write_tree(folder, tree), SHELL, PASSED_ON)


def found_in(facts: Facts, sample: Sample | None) -> dict[str, Finding]:
    findings = diagnose(replace(facts, sample=sample))
    by_name = {finding.name: finding for finding in findings}
    assert len(by_name) == len(findings)
    return by_name


def of(findings: dict[str, Finding], severity: Severity) -> set[str]:
    return {name for name, finding in findings.items() if finding.severity is severity}


def test_a_laptop_with_powersave(tmp_path: Path) -> None:
    findings = diagnosed(tmp_path, laptop())
    assert of(findings, Severity.HARMS) == {"governor", "power", "core_kinds"}
    assert of(findings, Severity.MAY_HARM) == {
        "turbo",
        "heat",
        "huge_pages",
        "swap",
        "variables_passed_on",
    }
    assert of(findings, Severity.UNKNOWN) == set()
    assert findings["governor"].seen == "powersave"
    assert findings["governor"].needs_root
    assert findings["turbo"].seen == "on, up to 3200 MHz"
    assert (
        findings["turbo"].command
        == "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
    )
    assert findings["heat"].seen == "96 times since boot"
    assert findings["core_kinds"].seen == "performance 0-3, efficiency 4-7"
    assert findings["core_kinds"].command == "taskset --all-tasks --cpu-list --pid 0-3 $$"
    assert findings["swap"].seen == "1 GiB of 2 GiB in use, swappiness 60"
    assert findings["swap"].command == "sudo swapoff --all"


@pytest.mark.parametrize(
    ("seconds", "severity"), [(0.3e-6, Severity.FINE), (2.1e-6, Severity.MAY_HARM)]
)
def test_what_page_faults_cost(tmp_path: Path, seconds: float, severity: Severity) -> None:
    facts = facts_of(tmp_path, server())
    assert "page_faults" not in found_in(facts, CALM)
    finding = found_in(replace(facts, fault_seconds=seconds), CALM)["page_faults"]
    assert finding.severity is severity
    assert f"{1e6 * seconds:.1f} us each" in finding.seen
    assert ("keep_heap" in finding.advice) == (severity is Severity.MAY_HARM)


@pytest.mark.parametrize(
    ("features", "severity"),
    [("01100101" + 56 * "0", Severity.MAY_HARM), ("01100001" + 56 * "0", Severity.FINE)],
)
def test_free_memory_that_returns_to_the_host(
    tmp_path: Path, features: str, severity: Severity
) -> None:
    assert "free_memory" not in diagnosed(tmp_path / "without", server())
    balloon = {"sys/bus/virtio/drivers/virtio_balloon/virtio3/features": features + "\n"}
    result = diagnosed(tmp_path / "with", {**server(), **balloon})["free_memory"]
    assert (result.severity, "keep_heap" in result.advice) == (
        severity,
        severity is Severity.MAY_HARM,
    )


def test_a_server_with_smt(tmp_path: Path) -> None:
    findings = diagnosed(tmp_path, server())
    assert of(findings, Severity.HARMS) == set()
    assert of(findings, Severity.MAY_HARM) == {
        "smt",
        "turbo",
        "numa_balancing",
        "huge_pages",
        "variables_passed_on",
    }
    assert findings["smt"].seen == "2 threads on each of 16 cores"
    assert findings["smt"].command == "echo off | sudo tee /sys/devices/system/cpu/smt/control"
    assert findings["numa_balancing"].seen == "on, 2 nodes"
    assert findings["governor"].severity is Severity.FINE
    assert findings["heat"].seen == "never since boot"
    assert findings["load_average"].seen == "0.10 over 1 minute, 0.20 over 5, on 32 CPUs"
    assert findings["virtual_machine"].seen == "no"
    assert "steal" not in findings


def test_a_container_with_a_quota_of_one_and_a_half(tmp_path: Path) -> None:
    findings = diagnosed(tmp_path, recorded_trees.container_v2("150000 100000"))
    assert findings["cpu_quota"].severity is Severity.HARMS
    assert findings["cpu_quota"].seen == "1.5 CPUs' worth of time on 8 CPUs"
    assert findings["cpu_quota"].command == "podman run --cpuset-cpus=0 ..."
    assert findings["memory"].seen.endswith("limited to 8 GiB here")
    assert findings["huge_pages"].advice.endswith("Run this on the container's host.")
    # Siblings are shown here, but a guest cannot switch them off.
    assert findings["smt"].command == "taskset --all-tasks --cpu-list --pid 0,2,4,6 $$"


@pytest.mark.parametrize(
    ("quota", "severity"),
    [
        ("max", Severity.FINE),
        ("800000", Severity.FINE),
        ("200000", Severity.MAY_HARM),
        ("350000", Severity.HARMS),
    ],
)
def test_quotas(tmp_path: Path, quota: str, severity: Severity) -> None:
    assert (
        diagnosed(tmp_path, recorded_trees.container_v2(f"{quota} 100000"))["cpu_quota"].severity
        is severity
    )


@pytest.mark.parametrize(
    ("allowed", "severity"),
    [
        ("4", Severity.FINE),
        ("4-5", Severity.HARMS),
        ("0-3", Severity.FINE),
        ("3-4", Severity.HARMS),
    ],
)
def test_isolated(tmp_path: Path, allowed: str, severity: Severity) -> None:
    isolated = {
        "proc/self/status": f"Cpus_allowed_list:\t{allowed}\n",
        "sys/devices/system/cpu/isolated": "4-7\n",
    }
    assert (
        diagnosed(tmp_path, recorded_trees.xeon(1, 8, 1) | isolated)["isolated_cpus"].severity
        is severity
    )


def sampled(**changes: object) -> Sample:
    return replace(CALM, **changes)  # type: ignore[arg-type]


def contended(**changes: float | None) -> Sample:
    return sampled(contention={**CALM.contention, **changes})


@pytest.mark.parametrize(
    ("sample", "name", "severity", "observation"),
    [
        (
            CALM,
            "repeatability",
            Severity.FINE,
            "matrix products 100 GFLOP/s, spread 0.0%; memory 20.0 GB/s, spread 0.0%",
        ),
        (contended(others_cpus=0.1), "others", Severity.MAY_HARM, "used 0.10 of 2 CPUs"),
        (contended(others_cpus=1.0), "others", Severity.HARMS, "used 1.00 of 2 CPUs"),
        (contended(others_cpus=None), "others", Severity.UNKNOWN, "not reported"),
        (
            contended(pressure_share=0.3),
            "waiting",
            Severity.HARMS,
            "some program 30.0% of the time",
        ),
        (contended(steal_share=0.07), "steal", Severity.HARMS, "7.0% of the time wanted"),
        (contended(steal_share=0.02), "steal", Severity.MAY_HARM, "2.0% of the time wanted"),
    ],
)
def test_findings_of_a_reading(
    tmp_path: Path, sample: Sample, name: str, severity: Severity, observation: str
) -> None:
    finding = diagnosed(tmp_path, recorded_trees.small_vm(), sample)[name]
    assert finding.severity is severity
    assert observation in finding.seen


def test_repeatability(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, recorded_trees.small_vm())
    for gemm, bandwidth, severity in (
        ((1.0, 0.98), (1.0, 0.95), Severity.FINE),
        ((1.0, 0.95), (1.0, 1.0), Severity.MAY_HARM),
        ((1.0, 1.0), (1.0, 0.8), Severity.MAY_HARM),
        ((1.0, 0.8), (1.0, 1.0), Severity.HARMS),
        ((1.0, 1.0), (1.0, 0.5), Severity.HARMS),
    ):
        readings = tuple(
            replace(READING, gemm_flops_per_second=1e11 * g, bandwidth_bytes_per_second=2e10 * b)
            for g, b in zip(gemm, bandwidth, strict=True)
        )
        findings = found_in(facts, sampled(readings=readings))
        assert findings["repeatability"].severity is severity, (gemm, bandwidth)


@pytest.mark.parametrize("name", TREES)
def test_every_finding_is_whole(tmp_path: Path, name: str) -> None:
    facts = facts_of(tmp_path, TREES[name]())
    for sample in (CALM, None, contended(others_cpus=9.0, pressure_share=0.9, steal_share=0.5)):
        check_whole(found_in(facts, sample))


def check_whole(findings: dict[str, Finding]) -> None:
    assert list(findings) == sorted(
        findings, key=lambda name: list(Severity).index(findings[name].severity)
    )
    for finding in findings.values():
        assert finding.seen
        assert finding.why.endswith(".")
        assert finding.why.count(". ") == 0  # one sentence
        # Whatever harms can be mended, or the remedy says why not; what is fine needs none.
        assert bool(finding.advice) == (finding.severity in (Severity.HARMS, Severity.MAY_HARM))
        assert finding.advice.endswith((".", ":")) or not finding.advice
    text = json.dumps([finding.to_dict() for finding in findings.values()])
    for secret in (HOST_NAME, USER_NAME, SERIAL, "/home"):
        assert secret not in text


def test_this_machine() -> None:
    """Really looked at, with a neighbour that must be found: the child of a child, as children are
    not others."""
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
    try:
        sample = take_sample(2, 0.1)
    finally:
        parent.communicate()
    assert len(sample.readings) == 2
    assert sample.seconds > 0.3
    assert sum(used for _, used in sample.processes) > 0.1
    assert sample.contention["others_cpus"] is None or sample.contention["others_cpus"] > 0.1
    findings = diagnose(replace(gather_facts(), sample=sample))
    assert {"governor", "cpu_quota", "memory", "others", "repeatability"} <= {
        finding.name for finding in findings
    }

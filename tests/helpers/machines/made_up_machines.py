"""Machines made up of files, and what the doctor says of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import recorded_trees
from recorded_trees import USER_NAME, Tree, write_tree

from dlbench.hardware_probe.doctor import Finding, Sample, Severity, diagnose, gather_facts
from dlbench.hardware_probe.sentinel import Reading

GIB = 1024**3
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
READING = Reading(
    gemm_flops_per_second=100e9,
    bandwidth_bytes_per_second=20e9,
    waiting_share=0.001,
    steal_share=0.0,
    pressure_share=0.01,
    pressure_avg10=0.0,
    others_cpus=0.01,
    cpus=8.0,
    method="m",
    taken="2026-01-01T00:00:00+00:00",
)
CALM = Sample(
    seconds=2.5,
    contention={"pressure_share": 0.01, "pressure_avg10": 0.0, "steal_share": 0.0, "others_cpus": 0.01},
    processes=(),
    throttle_events=None,
    readings=(READING,) * 5,
)


def laptop() -> Tree:
    """A hybrid processor on battery: four fast cores, four slow ones, hot, some of its memory swapped out."""
    tree = recorded_trees.xeon(sockets=1, cores=8, smt=1)
    for cpu in range(8):
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        tree[f"{folder}/cpufreq/scaling_governor"] = "powersave\n"
        tree[f"{folder}/thermal_throttle/core_throttle_count"] = "12\n"
        tree[f"{folder}/thermal_throttle/package_throttle_count"] = "0\n"
    return tree | {
        "proc/meminfo": (
            "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\nSwapTotal: 2097148 kB\nSwapFree: 1048574 kB\n"
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
    """Two sockets with SMT, as recorded_trees makes it, with what a distribution leaves switched on."""
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
    findings = diagnose(replace(gather_facts(write_tree(folder, tree), SHELL, PASSED_ON), sample=sample))
    by_name = {finding.name: finding for finding in findings}
    assert len(by_name) == len(findings)
    return by_name


def of(findings: dict[str, Finding], severity: Severity) -> set[str]:
    return {name for name, finding in findings.items() if finding.severity is severity}

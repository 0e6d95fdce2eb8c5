"""What the doctor says of recorded machines, of made-up loads, and of this machine."""

from pathlib import Path

import pytest
import recorded_trees
from made_up_machines import PASSED_ON, SHELL, command, diagnosed, laptop, of, server
from recorded_trees import write_tree

from dlbench.hardware_probe.doctor import Severity, faults, gather_settings


def test_a_laptop_with_powersave(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, laptop())
    assert of(found, Severity.HARMS) == {"governor", "power", "core_kinds"}
    assert of(found, Severity.MAY_HARM) == {"turbo", "heat", "huge_pages", "swap", "variables_passed_on"}
    assert of(found, Severity.UNKNOWN) == set()
    assert found["governor"].seen == "powersave"
    assert found["governor"].remedy is not None
    assert found["governor"].remedy.needs_root
    assert found["turbo"].seen == "on, up to 3200 MHz"
    assert command(found["turbo"]) == "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
    assert found["heat"].seen == "96 times since it was started"
    assert found["core_kinds"].seen == "performance 0-3, efficiency 4-7"
    assert command(found["core_kinds"]) == "taskset --all-tasks --cpu-list --pid 0-3 $$"
    assert found["swap"].seen == "1 GiB of 2 GiB in use, swappiness 60"
    assert command(found["swap"]) == "sudo swapoff --all"


def test_a_server_with_smt(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, server())
    assert of(found, Severity.HARMS) == set()
    assert of(found, Severity.MAY_HARM) == {"smt", "turbo", "numa_balancing", "huge_pages", "variables_passed_on"}
    assert found["smt"].seen == "2 threads on each of 16 cores"
    assert command(found["smt"]) == "echo off | sudo tee /sys/devices/system/cpu/smt/control"
    assert found["numa_balancing"].seen == "on, 2 nodes"
    assert found["governor"].severity is Severity.FINE
    assert found["heat"].seen == "never since it was started"
    assert found["load_average"].seen == "0.10 over 1 minute, 0.20 over 5, on 32 CPUs"
    assert found["virtual_machine"].seen == "no"
    assert "steal" not in found


def test_the_faults_are_the_settings_that_are_not_fine(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, laptop())
    settings = gather_settings(write_tree(tmp_path / "again", laptop()), SHELL, PASSED_ON)
    told = {each.name: each for each in faults(settings)}
    assert told.keys() == of(found, Severity.HARMS) | of(found, Severity.MAY_HARM)
    assert told["governor"] == found["governor"]


def test_a_container_with_a_quota_of_one_and_a_half(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, recorded_trees.container_v2("150000 100000"))
    assert found["cpu_quota"].severity is Severity.HARMS
    assert found["cpu_quota"].seen == "1.5 CPUs' worth of time on 8 CPUs"
    assert command(found["cpu_quota"]) == "podman run --cpuset-cpus=0 ..."
    assert found["memory"].seen.endswith("limited to 8 GiB here")
    assert found["huge_pages"].remedy is not None
    assert found["huge_pages"].remedy.advice.endswith("To be done on the container's host.")
    # Siblings are shown here, but a guest cannot switch them off.
    assert command(found["smt"]) == "taskset --all-tasks --cpu-list --pid 0,2,4,6 $$"


@pytest.mark.parametrize(
    ("quota", "severity"),
    [
        ("max 100000", Severity.FINE),
        ("800000 100000", Severity.FINE),
        ("200000 100000", Severity.MAY_HARM),
        ("50000 100000", Severity.HARMS),
        ("350000 100000", Severity.HARMS),
    ],
)
def test_quotas(tmp_path: Path, quota: str, severity: Severity) -> None:
    assert diagnosed(tmp_path, recorded_trees.container_v2(quota))["cpu_quota"].severity is severity


def test_a_quota_under_lxc_has_no_command(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, recorded_trees.container_v1())
    assert found["cpu_quota"].severity is Severity.MAY_HARM
    assert command(found["cpu_quota"]) is None


def test_a_virtual_machine_that_shows_no_frequency(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, recorded_trees.small_vm())
    assert of(found, Severity.HARMS) == set()
    assert of(found, Severity.MAY_HARM) == {"virtual_machine", "variables_passed_on"}
    assert of(found, Severity.UNKNOWN) == {"governor", "turbo", "heat", "smt"}
    assert found["virtual_machine"].seen == "yes, under KVM"
    assert found["governor"].seen == "hidden by the host of this virtual machine"
    assert found["steal"].severity is Severity.FINE
    assert command(found["virtual_machine"]) is None


def test_a_mask_and_isolated_cpus(tmp_path: Path) -> None:
    tree = server() | {"proc/self/status": "Cpus_allowed_list:\t0-5\n", "sys/devices/system/cpu/isolated": "4-7\n"}
    found = diagnosed(tmp_path, tree)
    assert found["affinity"].severity is Severity.MAY_HARM
    assert found["affinity"].seen == "6 of 32: 0-5"
    assert found["isolated_cpus"].severity is Severity.HARMS
    assert command(found["isolated_cpus"]) == "taskset --all-tasks --cpu-list --pid 0-3 $$"
    # One thread of each core is allowed: the siblings are outside.
    assert found["smt"].severity is Severity.FINE


@pytest.mark.parametrize(
    ("allowed", "isolated", "severity"),
    [
        ("4", "4-7", Severity.FINE),
        ("4-5", "4-7", Severity.HARMS),
        ("0-3", "4-7", Severity.FINE),
        ("3-4", "4-7", Severity.HARMS),
    ],
)
def test_isolated(tmp_path: Path, allowed: str, isolated: str, severity: Severity) -> None:
    tree = server() | {
        "proc/self/status": f"Cpus_allowed_list:\t{allowed}\n",
        "sys/devices/system/cpu/isolated": f"{isolated}\n",
    }
    assert diagnosed(tmp_path, tree)["isolated_cpus"].severity is severity


def test_arm_cores_of_two_speeds(tmp_path: Path) -> None:
    speeds = {f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity": f"{1024 if cpu > 1 else 446}\n" for cpu in range(4)}
    found = diagnosed(tmp_path, recorded_trees.arm() | speeds)
    assert found["core_kinds"].seen == "100% speed 2-3, 44% speed 0-1"
    assert command(found["core_kinds"]) == "taskset --all-tasks --cpu-list --pid 2-3 $$"
    assert found["governor"].seen == "not reported by this system"


def test_a_laptop_on_mains(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, laptop() | {"sys/class/power_supply/AC/online": "1\n"})
    assert found["power"].severity is Severity.FINE


def test_a_laptop_bound_to_its_fast_cores(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, laptop() | {"proc/self/status": "Cpus_allowed_list:\t0-3\n"})
    assert found["core_kinds"].severity is Severity.FINE


def test_swap_that_does_not_fit_into_memory_is_not_switched_off(tmp_path: Path) -> None:
    memory = "MemTotal: 4000000 kB\nMemAvailable: 500000 kB\nSwapTotal: 8000000 kB\nSwapFree: 4000000 kB\n"
    found = diagnosed(tmp_path, laptop() | {"proc/meminfo": memory})
    assert found["swap"].severity is Severity.MAY_HARM
    assert command(found["swap"]) is None
    assert found["memory"].severity is Severity.MAY_HARM


def test_boost_of_another_driver(tmp_path: Path) -> None:
    tree = server() | {"sys/devices/system/cpu/cpufreq/boost": "1\n"}
    del tree["sys/devices/system/cpu/intel_pstate/no_turbo"]
    assert command(diagnosed(tmp_path, tree)["turbo"]) == "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost"
    tree["sys/devices/system/cpu/cpufreq/boost"] = "0\n"
    assert diagnosed(tmp_path, tree)["turbo"].severity is Severity.FINE


def test_variables_of_the_shell(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, server())
    assert found["variables"].seen == "LD_PRELOAD, OMP_NUM_THREADS, OPENBLAS_CORETYPE: not passed on"
    assert found["variables"].severity is Severity.FINE
    assert found["variables_passed_on"].seen == "LD_LIBRARY_PATH"
    assert command(found["variables_passed_on"]) == "unset LD_LIBRARY_PATH"

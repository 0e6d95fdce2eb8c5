"""The processors, read from recorded trees and from this machine."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import loky
import psutil
import pytest
import recorded_trees
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded_trees import write_tree

from dlbench.hardware_probe import Cache, Frequency, probe_cpu
from dlbench.hardware_probe.files import parse_cpu_list, parse_size, read_int, selected_option

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys")


def test_two_sockets_with_smt(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon()))
    assert cpu.model == "Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz"
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cpus, cpu.threads_per_core) == (2, 16, 32, 2)
    assert cpu.core_siblings[:2] == ((0, 16), (1, 17))
    assert cpu.numa_nodes == 2
    assert cpu.caches == (
        Cache("L1d", 32 * 1024, 16, 16 * 32 * 1024),
        Cache("L1i", 32 * 1024, 16, 16 * 32 * 1024),
        Cache("L2", 256 * 1024, 16, 16 * 256 * 1024),
        Cache("L3", 20 * 1024**2, 2, 40 * 1024**2),
    )
    assert cpu.last_level_cache_bytes == 40 * 1024**2
    assert cpu.instruction_sets == ("avx", "avx2", "f16c", "fma", "sse4_2")
    assert cpu.frequency == Frequency(1200.0, 3200.0, 2415.5, "performance", True)
    assert cpu.architecture == "x86_64"
    assert (cpu.virtualisation.kind, cpu.virtualisation.hypervisor, cpu.virtualisation.container) == (
        "none",
        None,
        None,
    )
    assert cpu.affinity == tuple(range(32))
    assert (cpu.quota_cpus, cpu.effective_cpus, cpu.usable_physical_cores) == (None, 32, 16)


def test_small_virtual_machine(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.small_vm()))
    assert (cpu.model, cpu.family, cpu.model_number) == ("AMD EPYC", "26", "2")
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cpus, cpu.threads_per_core) == (1, 2, 2, 1)
    assert [(cache.name, cache.size_bytes // 1024, cache.instances) for cache in cpu.caches] == [
        ("L1d", 48, 2),
        ("L1i", 32, 2),
        ("L2", 1024, 2),
        ("L3", 32768, 1),
    ]
    assert {"avx512_bf16", "avx_vnni"} <= set(cpu.instruction_sets)
    assert cpu.frequency == Frequency(None, None, 2596.1, None, None)
    # No firmware tables: the clocks on offer give the hypervisor away.
    assert (cpu.virtualisation.kind, cpu.virtualisation.hypervisor) == ("vm", "KVM")
    assert cpu.virtualisation.container == "docker"
    assert cpu.quota_cpus is None


def test_container_with_a_quota(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.container_v2()))
    assert (cpu.quota_cpus, cpu.capacity_cpus, cpu.effective_cpus) == (1.5, 1.5, 2)
    assert (cpu.logical_cpus, cpu.physical_cores, cpu.threads_per_core) == (8, 4, 2)
    assert {"amx_bf16", "amx_int8", "amx_tile", "avx512_fp16"} <= set(cpu.instruction_sets)
    assert cpu.virtualisation.hypervisor == "Google (KVM)"
    assert cpu.virtualisation.container == "podman"
    assert (cpu.caches, cpu.last_level_cache_bytes) == ((), None)


def test_quota_of_version_1(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.container_v1()))
    assert (cpu.quota_cpus, cpu.effective_cpus) == (2.0, 2)
    assert cpu.virtualisation.container == "lxc"


def test_arm_without_frequencies(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.arm()))
    assert (cpu.architecture, cpu.model, cpu.vendor) == ("aarch64", "Arm Cortex-A72", "0x41")
    assert (cpu.sockets, cpu.physical_cores, cpu.threads_per_core) == (1, 4, 1)
    assert cpu.instruction_sets == ("neon",)
    assert cpu.frequency == Frequency(None, None, None, None, None)
    assert cpu.virtualisation.kind == "none"


def test_arm_guest_and_arm_metal(tmp_path: Path) -> None:
    tree = recorded_trees.arm() | {"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}
    guest = tree | {"sys/class/dmi/id/product_name": "c6g.large\n"}
    metal = tree | {"sys/class/dmi/id/product_name": "c6g.metal\n"}
    assert probe_cpu(write_tree(tmp_path / "guest", guest)).virtualisation.hypervisor == "Amazon Nitro"
    assert probe_cpu(write_tree(tmp_path / "metal", metal)).virtualisation.kind == "none"


def test_an_unknown_arm_core_shows_its_numbers(tmp_path: Path) -> None:
    tree = recorded_trees.arm()
    tree["proc/cpuinfo"] = tree["proc/cpuinfo"].replace("0xd08", "0xfff")
    assert probe_cpu(write_tree(tmp_path, tree)).model == "Arm implementer 0x41 part 0xfff"


def test_affinity_mask_narrower_than_the_machine(tmp_path: Path) -> None:
    tree = recorded_trees.xeon() | {"proc/self/status": "Cpus_allowed_list:\t0-1,16,18\n"}
    cpu = probe_cpu(write_tree(tmp_path, tree))
    assert cpu.affinity == (0, 1, 16, 18)
    assert (cpu.effective_cpus, cpu.usable_physical_cores) == (4, 3)  # 0 and 16 share a core


def test_topology_from_proc_alone(tmp_path: Path) -> None:
    """Some sandboxes show no /sys."""
    tree = {name: text for name, text in recorded_trees.xeon().items() if not name.startswith("sys/")}
    cpu = probe_cpu(write_tree(tmp_path, tree))
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cpus, cpu.threads_per_core) == (2, 16, 32, 2)


def test_an_empty_tree_still_gives_a_record(tmp_path: Path) -> None:
    cpu = probe_cpu(tmp_path)
    assert cpu.model == "unknown"
    assert cpu.physical_cores == cpu.logical_cpus >= 1
    assert cpu.effective_cpus >= 1


@examples(8)  # each example writes some hundred files
@given(sockets=st.integers(1, 3), cores=st.integers(1, 4), smt=st.sampled_from([1, 2, 4]))
def test_counts_follow_the_topology(sockets: int, cores: int, smt: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cpu = probe_cpu(write_tree(Path(folder), recorded_trees.xeon(sockets, cores, smt)))
    assert (cpu.sockets, cpu.physical_cores, cpu.threads_per_core) == (sockets, sockets * cores, smt)
    assert sorted(number for core in cpu.core_siblings for number in core) == list(range(cpu.logical_cpus))
    assert cpu.caches[-1].instances == sockets


@examples(30)
@given(
    broken=st.dictionaries(
        st.sampled_from(sorted(recorded_trees.small_vm())),
        st.text(max_size=20) | st.sampled_from(["-1", "\n\n", "processor: x", "max", "0 0", "a: b - c d"]),
        min_size=1,
        max_size=12,
    )
)
def test_no_content_of_the_files_breaks_the_probe(broken: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cpu = probe_cpu(write_tree(Path(folder), recorded_trees.small_vm() | broken))
    assert cpu.logical_cpus >= cpu.physical_cores >= 1
    assert 1 <= cpu.effective_cpus <= cpu.logical_cpus


@linux
def test_this_machine_agrees_with_other_libraries() -> None:
    cpu = probe_cpu()
    assert cpu.logical_cpus == psutil.cpu_count()
    assert cpu.affinity == tuple(sorted(os.sched_getaffinity(0)))
    # loky sees the quota of the topmost group only, and a variable that we do not follow.
    assert cpu.effective_cpus <= loky.cpu_count() or "LOKY_MAX_CPU_COUNT" in os.environ
    assert cpu.usable_physical_cores == loky.cpu_count(only_physical_cores=True) or cpu.quota_cpus is not None


@linux
@pytest.mark.skipif(shutil.which("lscpu") is None, reason="lscpu is not installed")
def test_this_machine_agrees_with_lscpu() -> None:
    answer = subprocess.run(["lscpu", "--json"], capture_output=True, check=True, env={"LC_ALL": "C"})
    fields = {each["field"].rstrip(":"): each["data"] for each in json.loads(answer.stdout)["lscpu"]}
    if not {"Socket(s)", "Core(s) per socket", "Thread(s) per core"} <= set(fields):
        pytest.skip("this lscpu nests its fields")
    cpu = probe_cpu()
    assert cpu.sockets == int(fields["Socket(s)"])
    assert cpu.physical_cores == cpu.sockets * int(fields["Core(s) per socket"])
    assert cpu.threads_per_core == int(fields["Thread(s) per core"])


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_round_trip(numbers: set[int]) -> None:
    assert parse_cpu_list(",".join(map(str, numbers))) == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8\n", (0, 1, 2, 3, 8)), ("0", (0,)), ("", ()), (None, ()), ("nonsense", ()), ("1-x", ())],
)
def test_cpu_list_spellings(text: str | None, numbers: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == numbers


@pytest.mark.parametrize(
    ("text", "size"), [("48K", 49152), ("32M", 32 * 1024**2), ("512", 512), ("", None), ("K", None), ("?", None)]
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


def test_selected_option() -> None:
    assert selected_option("always [madvise] never") == "madvise"
    assert selected_option("always madvise never") is None


def test_files_that_hold_no_number(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("<unknown>\n")
    assert read_int(tmp_path / "x") is None
    assert read_int(tmp_path / "missing") is None
    assert read_int(tmp_path) is None  # a folder

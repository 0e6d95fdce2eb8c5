"""The processors, control groups and bound CPUs, of recorded trees and of this machine."""

import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import loky
import psutil
import pytest
import recorded_trees
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded_trees import Tree, write_tree

from dlbench.hardware_probe.cgroups import cpu_quota, memory_limit
from dlbench.hardware_probe.cpu import Cache, Cpu, Frequency, bound_mask, probe_cpu

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys")


def test_two_sockets_with_smt(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon()))
    assert cpu.model == "Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz"
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cpus, cpu.threads_per_core) == (
        2,
        16,
        32,
        2,
    )
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
    assert (
        cpu.virtualisation.kind,
        cpu.virtualisation.hypervisor,
        cpu.virtualisation.container,
    ) == ("none", None, None)
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
    assert (
        probe_cpu(write_tree(tmp_path / "guest", guest)).virtualisation.hypervisor == "Amazon Nitro"
    )
    assert probe_cpu(write_tree(tmp_path / "metal", metal)).virtualisation.kind == "none"


@examples(30)
@given(
    broken=st.dictionaries(
        st.sampled_from(sorted(recorded_trees.small_vm())),
        st.text(max_size=20)
        | st.sampled_from(["-1", "\n\n", "processor: x", "max", "0 0", "a: b - c d"]),
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
    assert (
        cpu.usable_physical_cores == loky.cpu_count(only_physical_cores=True)
        or cpu.quota_cpus is not None
    )


def masks(cpu: Cpu) -> list[tuple[int, ...] | None]:
    """The masks of 1, 2, ... threads until there is none."""
    results = [bound_mask(cpu, 1)]
    while results[-1] is not None:
        results.append(bound_mask(cpu, len(results) + 1))
    return results


def added(cpu: Cpu) -> list[int]:
    """The CPUs in the order in which more threads bring them in."""
    cpu_sets = [set(mask) for mask in masks(cpu) if mask is not None]
    assert all(len(mask) == count for count, mask in enumerate(cpu_sets, 1))
    return [
        (mask - before).pop()
        for before, mask in zip([set(), *cpu_sets[:-1]], cpu_sets, strict=True)
    ]


@pytest.mark.parametrize("named", [True, False])
def test_a_hybrid_laptop_takes_its_fast_cores_first_then_the_slow_then_siblings(
    tmp_path: Path, named: bool
) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.hybrid_laptop(named)))
    assert [place["kind"] for place in cpu.core_places] == [0] * 4 + [1] * 8
    assert added(cpu) == [0, 2, 4, 6, *range(8, 16), 1, 3, 5, 7]


@examples(40)
@given(st.data(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3))
def test_every_mask_is_part_of_the_next_and_cores_come_before_siblings(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    sockets: int,
    cores: int,
    smt: int,
) -> None:
    tree = recorded_trees.xeon(sockets, cores, smt)
    full_cpu = probe_cpu(write_tree(tmp_path_factory.mktemp("tree"), tree))
    chosen = data.draw(st.sets(st.sampled_from(full_cpu.affinity), min_size=1))
    cpu = replace(full_cpu, affinity=tuple(sorted(chosen)))
    order = added(cpu)
    assert sorted(order) == sorted(chosen)
    core_of = {sibling: core for core in cpu.core_siblings for sibling in core}
    assert (
        len({core_of[number] for number in order[: cpu.usable_physical_cores]})
        == cpu.usable_physical_cores
    )
    socket_of = dict(
        zip(cpu.core_siblings, (place["socket"] for place in cpu.core_places), strict=True)
    )
    sockets_in_order = [socket_of[core_of[number]] for number in order[: cpu.usable_physical_cores]]
    assert sockets_in_order == sorted(
        sockets_in_order, key=sockets_in_order.index
    )  # one socket, then the next


@examples(40)
@given(st.data(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(2, 4))
def test_workers_get_the_same_cpus_and_share_as_few_cores_as_can_be(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    sockets: int,
    cores: int,
    smt: int,
    workers: int,
) -> None:
    cpu = probe_cpu(
        write_tree(tmp_path_factory.mktemp("tree"), recorded_trees.xeon(sockets, cores, smt))
    )
    threads = data.draw(st.integers(0, len(cpu.affinity) // workers))
    if not threads:
        return
    mask, alone = bound_mask(cpu, threads * workers, workers), bound_mask(cpu, threads * workers)
    assert mask is not None
    assert alone is not None
    assert sorted(mask) == list(alone)
    parts = [
        cores_of(cpu, mask[worker * threads : (worker + 1) * threads]) for worker in range(workers)
    ]
    groups = [len(set(core) & set(alone)) for core in cpu.core_siblings if set(core) & set(alone)]
    if set(groups) == {1} or (len(set(groups)) == 1 and threads % groups[0] == 0):
        assert sum(map(len, parts)) == len(
            set().union(*parts)
        )  # nobody shares a core where nobody need


def cores_of(cpu: Cpu, cpus: Iterable[int]) -> set[tuple[int, ...]]:
    return {core for core in cpu.core_siblings if set(core) & set(cpus)}


GIB = 1024**3


def v2(group: str, mount_root: str = "/", **files: str) -> Tree:
    """A version 2 hierarchy; `files` maps a group ("a__b" for a/b, "_" for the mount point) to its
    cpu.max."""
    tree = {
        "proc/self/cgroup": f"0::{group}\n",
        "proc/self/mountinfo": f"30 24 0:26 {mount_root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    }
    for name, text in files.items():
        folder = name.strip("_").replace("__", "/")
        tree[str(Path("sys/fs/cgroup", folder, "cpu.max"))] = text + "\n"
    return tree


@pytest.mark.parametrize(
    ("tree", "quota"),
    [
        (v2("/", _="150000 100000"), 1.5),
        (v2("/", _="max 100000"), None),
        (v2("/", _="50000"), 0.5),  # the period left out is 100 ms
        (v2("/", _="rubbish"), None),
        (v2("/a/b", a__b="max 100000", a="300000 100000"), 3.0),  # an ancestor's quota binds too
        (v2("/a/b", a__b="200000 100000", a="300000 100000"), 2.0),
        (v2("/a/b", c="100000 100000"), None),  # another group's
        (
            v2("/docker/x", "/docker/x", _="200000 100000"),
            2.0,
        ),  # the container's group is the mount point
        (v2("/../../x", _="200000 100000"), 2.0),  # above what can be seen
        (v2("/host/path", "/elsewhere", _="200000 100000"), 2.0),
        ({}, None),
    ],
)
def test_quota(tmp_path: Path, tree: Tree, quota: float | None) -> None:
    assert cpu_quota(write_tree(tmp_path, tree)) == quota


def test_memory_limits(tmp_path: Path) -> None:
    for name, limit in (
        ("container_v2", 8 * GIB),
        ("container_v1", 4 * GIB),
        ("small_vm", None),
        ("arm", None),
    ):
        assert memory_limit(write_tree(tmp_path / name, recorded_trees.ALL[name]())) == limit

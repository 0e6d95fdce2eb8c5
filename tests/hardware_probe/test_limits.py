"""What control groups and the memory of the machine allow."""

from pathlib import Path

import psutil
import pytest
import recorded_trees
from recorded_trees import Tree, write_tree

from dlbench.hardware_probe import probe_memory
from dlbench.hardware_probe.cgroups import cpu_quota, memory_limit

GIB = 1024**3


def v2(group: str, mount_root: str = "/", **files: str) -> Tree:
    """A version 2 hierarchy; `files` maps a group ("a__b" for a/b, "_" for the mount point) to its cpu.max."""
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
        (v2("/", _="0 100000"), None),
        (v2("/", _="rubbish"), None),
        (v2("/a/b", a__b="max 100000", a="300000 100000"), 3.0),  # an ancestor's quota binds too
        (v2("/a/b", a__b="200000 100000", a="300000 100000"), 2.0),
        (v2("/a/b", a__b="400000 100000", a="300000 100000"), 3.0),
        (v2("/a/b", c="100000 100000"), None),  # another group's
        (v2("/docker/x", "/docker/x", _="200000 100000"), 2.0),  # the container's group is the mount point
        (v2("/docker/x/y", "/docker/x", y="100000 100000", _="200000 100000"), 1.0),
        (v2("/../../x", _="200000 100000"), 2.0),  # above what can be seen
        (v2("/host/path", "/elsewhere", _="200000 100000"), 2.0),
        ({}, None),
    ],
)
def test_quota(tmp_path: Path, tree: Tree, quota: float | None) -> None:
    assert cpu_quota(write_tree(tmp_path, tree)) == quota


def test_the_tighter_of_both_versions_counts(tmp_path: Path) -> None:
    """Both are mounted on many systems; the controller is on one, and a sloppy recording may show both."""
    tree = recorded_trees.small_vm() | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "120000\n"}
    assert cpu_quota(write_tree(tmp_path, tree)) == pytest.approx(1.2)


def test_memory_limits(tmp_path: Path) -> None:
    for name, limit in (("container_v2", 8 * GIB), ("container_v1", 4 * GIB), ("small_vm", None), ("arm", None)):
        assert memory_limit(write_tree(tmp_path / name, recorded_trees.ALL[name]())) == limit


def test_memory_of_a_tree(tmp_path: Path) -> None:
    memory = probe_memory(write_tree(tmp_path, recorded_trees.container_v2()))
    assert memory.total_bytes == 32_800_000 * 1024
    assert memory.available_bytes == 16_400_000 * 1024
    assert memory.limit_bytes == 8 * GIB
    assert memory.swap_total_bytes == memory.swap_free_bytes == 2_097_148 * 1024
    assert memory.transparent_huge_pages == "always"
    assert memory.transparent_huge_pages_defrag is None
    assert memory.numa_balancing is None


def test_memory_of_a_tree_without_meminfo(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="record it with the tree"):
        probe_memory(tmp_path)


def test_memory_of_this_machine() -> None:
    memory = probe_memory()
    assert memory.total_bytes == psutil.virtual_memory().total
    assert 0 < memory.available_bytes <= memory.total_bytes

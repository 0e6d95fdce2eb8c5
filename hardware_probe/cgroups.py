"""The limits that control groups, versions 1 and 2, put on this process.

Own reading rather than ``loky.cpu_count()``: loky looks only at the file of the topmost visible
group and rounds the quota up to whole CPUs. A systemd slice or a nested container sets the limit
further down, on the process's own group or one of its ancestors, where the tightest counts. And a
quota of 1.5 CPUs is itself a finding. The tests use loky as the second opinion for the cases that
it covers.

Only numbers leave this module: the names of groups may hold user names and container identifiers.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dlbench.hardware_probe.files import ROOT, read_int, read_text

# Version 1 has no word for "no limit" on memory: it shows the largest page-aligned 64-bit number.
_NO_MEMORY_LIMIT = 1 << 60


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the CPUs' worth of time per period that the tightest quota allows this process.

    It may be 1.5. None means that no quota is set or that there are no control groups.
    """
    quotas = []
    for directory in directories(root, "cpu"):
        quota = _quota_v2(directory) or _quota_v1(directory)
        if quota is not None:
            quotas.append(quota)
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Return the bytes of memory that the tightest group allows; None without a limit."""
    limits = []
    for directory in directories(root, "memory"):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            limit = read_int(directory / name)
            if limit is not None and 0 < limit < _NO_MEMORY_LIMIT:
                limits.append(limit)
    return min(limits, default=None)


def _quota_v2(directory: Path) -> float | None:
    fields = (read_text(directory / "cpu.max") or "").split()
    if not fields or not fields[0].isdecimal():  # "max 100000" means none
        return None
    quota = int(fields[0])
    period = 100_000
    if len(fields) > 1 and fields[1].isdecimal():
        period = int(fields[1])
    if period <= 0 or quota <= 0:
        return None
    return quota / period


def _quota_v1(directory: Path) -> float | None:
    quota = read_int(directory / "cpu.cfs_quota_us")
    period = read_int(directory / "cpu.cfs_period_us")
    if quota is None or period is None or quota <= 0 or period <= 0:  # -1 means none
        return None
    return quota / period


def directories(root: Path, controller: str) -> Iterator[Path]:
    """Yield this process's group and its visible ancestors in each mounted hierarchy.

    These are hierarchies that may limit `controller`. Versions 1 and 2 may be mounted at once.
    """
    groups: dict[str, str] = {}  # by controller; the version 2 hierarchy has the key ""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        groups |= dict.fromkeys(controllers.split(","), path)
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        left = before.split()
        right = after.split()
        if len(left) < 5 or not right:
            continue
        if right[0] == "cgroup2":
            key = ""
        elif right[0] == "cgroup" and controller in right[-1].split(","):
            key = controller
        else:
            continue
        mount = root / left[4].lstrip("/")
        directory = mount / _below_mount(groups.get(key, "/"), left[3])
        for group in (directory, *directory.parents):
            if group.is_relative_to(mount):
                yield group


def _below_mount(group: str, mount_root: str) -> PurePosixPath:
    """Return the path of `group` below a mount point that shows the hierarchy from `mount_root` on.

    A container commonly sees its own group as the mount point, while /proc/self/cgroup may still
    hold the path on the host. Groups outside the mount (or above it, "/../..") cannot be seen: the
    mount point is used.
    """
    path = PurePosixPath(group)
    if ".." in path.parts:
        return PurePosixPath()
    try:
        return path.relative_to(mount_root)
    except ValueError:
        return path.relative_to("/") if mount_root == "/" else PurePosixPath()

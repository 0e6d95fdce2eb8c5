"""CPU quotas: a control group around all processes of one launch, whose CPU time the kernel limits.

With cgroup v2 it is made in the nearest group around dlbench that this user may write to and that
delegates the CPU controller, with v1 in dlbench's own group. Either way a tighter quota on dlbench
itself stays in force. The group is removed with its launch or, if dlbench was killed, by the next
run.
"""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine
from dlbench.hardware_probe.cgroups import cpu_quota, directories
from dlbench.hardware_probe.files import ROOT, read_int, read_text
from dlbench.reports.results.naming import counted
from dlbench.reports.results.outcome import QuotaUse

PERIOD_US = 100_000
_REMOVED_SECONDS = 5.0
_NUMBERS = itertools.count()
_REMEDY = (
    "run dlbench as root, or with `systemd-run --user --scope -p Delegate=yes dlbench ...`; "
    "in a container, give the container itself the quota"
)


class NoQuotaError(Exception):
    """The reason why no launch can have a CPU quota on this machine, with the remedy."""


@dataclass(frozen=True)
class ControlGroup:
    """The control group of one launch."""

    folders: tuple[Path, ...]
    """The folder in the hierarchy of the quota, then that of CPU time.

    Only version 1 may have two hierarchies."""

    def add(self, process: int) -> None:
        """Put a process into the group, and all that it starts from now on. Raises NoQuotaError."""
        for folder in self.folders:
            _write(folder / "cgroup.procs", str(process))

    def limit(self, cpus: float | None) -> None:
        """Set the quota, or remove it. Raises NoQuotaError."""
        folder = self.folders[0]
        amount = None if cpus is None else max(1000, round(cpus * PERIOD_US))
        if _is_first_version(folder):
            _write(folder / "cpu.cfs_period_us", str(PERIOD_US))
            _write(folder / "cpu.cfs_quota_us", str(amount or -1))
        else:
            _write(folder / "cpu.max", f"{amount or 'max'} {PERIOD_US}")

    def lift(self) -> None:
        """Remove the quota, so that the processes left of the launch can end at once."""
        with contextlib.suppress(NoQuotaError):
            self.limit(None)

    def use(self) -> QuotaUse:
        """Return the use of the quota so far."""
        counts = {}
        for line in (read_text(self.folders[0] / "cpu.stat") or "").splitlines():
            name, _, count = line.partition(" ")
            if count.isdecimal():
                counts[name] = int(count)
        throttled = counts.get("throttled_usec", 0) * 1e-6 + counts.get("throttled_time", 0) * 1e-9
        nanoseconds = read_int(self.folders[-1] / "cpuacct.usage")
        seconds = None
        if "usage_usec" in counts:
            seconds = counts["usage_usec"] * 1e-6
        elif nanoseconds is not None:
            seconds = nanoseconds * 1e-9
        return QuotaUse(
            counts.get("nr_periods", 0), counts.get("nr_throttled", 0), throttled, seconds
        )


def used_between(before: QuotaUse, after: QuotaUse) -> QuotaUse:
    """Return the use of a quota between two readings."""

    def difference(now: Any, then: Any) -> Any:
        return None if None in (now, then) else now - then

    return QuotaUse(*map(difference, after, before))


@contextlib.contextmanager
def limited(cpus: float) -> Iterator[ControlGroup | None]:
    """Give a group with this quota, or None for a quota of 0.

    Finally remove it with all processes left in it. Raises NoQuotaError.
    """
    if not cpus:
        yield None
        return
    parents = parents_of_launch_groups()
    if isinstance(parents, str):
        raise NoQuotaError(parents)
    remove_left()
    name = f"dlbench-{os.getpid()}-{_start_time(os.getpid())}-{next(_NUMBERS)}"
    group = ControlGroup(tuple(parent / name for parent in parents))
    try:
        for folder in group.folders:
            _make(folder)
        group.limit(min(cpus, cpu_quota() or cpus))
        yield group
    finally:
        for folder in group.folders:
            _remove(folder)


def notes(cells: Iterable[Cell], machine: Machine) -> list[str]:
    """Return notes for the user on the quotas of a plan's cells, as sentences."""
    limited_cells = [cell for cell in cells if cell.cpu_quota]
    if not limited_cells:
        return []
    parents = parents_of_launch_groups()
    if isinstance(parents, str):
        count = counted(len(limited_cells), "cell")
        return [f"{count} with a CPU quota will not be launched: {parents}."]
    outer = machine.cpu.quota_cpus
    if outer is None:
        return []
    larger = [cell for cell in limited_cells if cell.cpu_quota > outer]
    if not larger:
        return []
    count = counted(len(larger), "cell")
    return [
        f"dlbench runs under a CPU quota of {outer:g}, which also limits {count} with a larger "
        "quota."
    ]


@cache
def parents_of_launch_groups() -> tuple[Path, ...] | str:
    """Return the parents of launches' groups, the one that takes the quota first.

    If there can be no group, return the reason.
    """
    around = list(directories(ROOT, "cpu"))
    writable = [
        folder
        for folder in around
        if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
    ]
    for folder in writable:
        if "cpu" in _words(folder / "cgroup.subtree_control") or _delegate_cpu(folder):
            return (folder,)
    for folder in writable:
        if _is_first_version(folder):
            parents = [folder]
            for directory in directories(ROOT, "cpuacct"):
                if (directory / "cpuacct.usage").exists():
                    if directory != folder:
                        parents.append(directory)
                    break
            return tuple(parents)
    if not around:
        return "this system shows no control groups, which a CPU quota needs"
    return f"no control group for a CPU quota can be made on this machine; {_REMEDY}"


@cache
def remove_left() -> None:
    """Remove the groups that killed dlbench processes left, once in this process.

    They may lie in another group than those of this process: once a group delegates the CPU
    controller, one below can.
    """
    for folder in {*directories(ROOT, "cpu"), *directories(ROOT, "cpuacct")}:
        if not os.access(folder, os.W_OK):
            continue
        for group in folder.glob("dlbench-*-*-*"):
            _, process, started, _ = group.name.split("-", 3)
            if not process.isdecimal() or not started.isdecimal():
                continue
            if _start_time(int(process)) != started:
                ControlGroup((group,)).lift()  # killed processes end sooner
                _remove(group)


def _delegate_cpu(folder: Path) -> bool:
    """Make a v2 group delegate the CPU controller, and return whether it does.

    Only the root group can while it has processes.
    """
    has_processes = (folder / "cgroup.type").exists() and _words(folder / "cgroup.procs")
    if "cpu" not in _words(folder / "cgroup.controllers") or has_processes:
        return False
    try:
        _write(folder / "cgroup.subtree_control", "+cpu")
    except NoQuotaError:
        return False
    return True


def _is_first_version(folder: Path) -> bool:
    return (folder / "cpu.cfs_quota_us").exists()


def _words(path: Path) -> list[str]:
    return (read_text(path) or "").split()


def _start_time(process: int) -> str:
    """Return the start time of a process in kernel ticks, or nothing if it does not exist."""
    fields = (read_text(Path(f"/proc/{process}/stat")) or "").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _make(folder: Path) -> None:
    try:
        folder.mkdir()
    except OSError as error:
        raise NoQuotaError(
            f"no control group can be made: {error.strerror or error}; {_REMEDY}"
        ) from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise NoQuotaError(
            f"{path.name} of a control group cannot be set: {error.strerror or error}"
        ) from error


def _remove(folder: Path) -> None:
    """Remove a group and end what runs in it. One that stays is removed by the next run."""
    until = time.monotonic() + _REMOVED_SECONDS
    while folder.exists() and time.monotonic() < until:
        for process in filter(None, map(int, _words(folder / "cgroup.procs"))):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.01)  # until its processes have ended

"""Whose the processes are that compute on a GPU while a launch runs on it."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from dlbench.hardware_probe.gpu.nvml import in_use, text_of
from dlbench.hardware_probe.gpu.queries import Queries

#: NVML's functions that list the processes that compute, new name and old name.
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")


def computing(nvml: Any = None) -> dict[str, int]:
    """Return by UUID how many processes compute on each GPU now, MIG devices of their own; empty without a driver.

    ``nvml`` is as for `gpu.probe_gpus`. Raises nothing: a GPU that does not answer is left out.
    """
    nvml = in_use() if nvml is None else nvml
    found: dict[str, int] = {}
    with contextlib.suppress(Exception):  # no answer of a driver is worth a failure
        nvml.nvmlInit()
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(Exception):
                    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
                    for handle in (gpu, *_parts(nvml, gpu)):
                        # Asked anew: what a GPU cannot answer, its MIG devices may.
                        ask = Queries(nvml).ask
                        uuid, listed = text_of(ask("nvmlDeviceGetUUID", handle)), ask(PROCESSES[0], handle)
                        if uuid is not None and listed is not None:
                            found[uuid] = len(listed)
        finally:
            nvml.nvmlShutdown()
    return found


def _parts(nvml: Any, gpu: Any) -> Iterator[Any]:
    """Yield the MIG devices of a GPU: most have none, and a slot may be empty."""
    ask = Queries(nvml).ask
    for slot in range(ask("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
        handle = ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, slot)
        if handle is not None:
            yield handle


def descends_from_this_process(pid: int) -> bool | None:
    """Tell whether a process is this one or descends from it; None where no such process can be seen."""
    try:
        if pid == os.getpid():
            return True
        return any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    except (psutil.Error, OSError, ValueError, OverflowError):
        return None


@dataclass
class _Seen:
    first: float
    last: float
    times: int = 0
    held: int | None = None
    own: bool | None = None
    before: bool = False


class Processes:
    """The processes that NVML listed, each with when it was seen.

    In a container NVML may number them as its host does: then the launch's own is not found by its number, and a number
    that is found may be another process's. The numbers tell only where one of the launch's own was found among them.
    Without that, those that were there before the launch are others' all the same.
    """

    def __init__(self, own: Callable[[int], bool | None]) -> None:
        self._own = own
        self._seen: dict[int, _Seen] = {}
        self._listed = False

    def note(self, listed: Iterable[Any], now: float, before_launch: bool) -> None:
        """Take in a list of NVML's: objects with ``pid`` and ``usedGpuMemory`` (bytes or None)."""
        self._listed = True
        for each in listed:
            seen = self._seen.setdefault(each.pid, _Seen(now, now))
            seen.last, seen.times = now, seen.times + 1
            seen.before = seen.before or before_launch
            seen.held = max(seen.held or 0, each.usedGpuMemory) if each.usedGpuMemory else seen.held
            if seen.own is None:
                seen.own = self._own(each.pid)

    def told(self, origin: float) -> list[dict[str, Any]] | None:
        """Return them as plain JSON, their times in seconds after ``origin``; None where there was no list at all.

        Their numbers are nobody's business.
        """
        if not self._listed:
            return None
        all_seen = list(self._seen.values())
        numbers_tell = any(seen.own for seen in all_seen)
        return [
            {
                "whose": _whose(seen, numbers_tell),
                "first": round(seen.first - origin, 4),
                "last": round(seen.last - origin, 4),
                "bytes": seen.held,
            }
            for seen in all_seen
        ]


def _whose(seen: _Seen, numbers_tell: bool) -> str:
    if seen.own:
        return "own"
    # One that was listed once and cannot be seen may have been a short one of the launch.
    known = numbers_tell and (seen.own is False or seen.times > 1)
    return "other" if seen.before or known else "unknown"

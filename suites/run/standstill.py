"""The processes of a launch: stopping them, the CPUs on which they begin, and their CPU time.

Launches that take turns are stopped by SIGSTOP to each of their processes, so that neither spinning
threads nor helpers disturb the others. The CPU time that they use nevertheless is in their records.
"""

import contextlib
import ctypes
import mmap
import os
import re
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import psutil

from dlbench.adapters.launch.evidence import read_file, stat_fields, thread_times
from dlbench.hardware_probe import Cpu
from dlbench.hardware_probe.cpu import bound_mask

_STANDING = "TtZX"
"""States of threads that use no CPU: stopped, traced, or ended."""
_PEAK_MEMORY = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
_NOTICEABLE = 0.05
_SIGNAL_THREAD = getattr(ctypes.CDLL(None), "tgkill", None)
"""Sends a signal to one thread: glibc has it from version 2.30 on."""
_STANDSTILL_SECONDS = 1.0
"""A process that still runs this long after SIGSTOP does not stop."""


class CpuTime(NamedTuple):
    """The CPU time of processes so far, or in a stretch of time."""

    used: float
    """Seconds used by all threads."""
    waiting: float
    """Seconds for which threads were ready to run and had no CPU."""
    by_thread: Mapping[int, float] = MappingProxyType({})
    """Seconds used by each thread."""

    def since(self, earlier: "CpuTime") -> "CpuTime":
        """Return the time since an earlier reading, not below zero if threads ended meanwhile."""
        by_thread = {
            thread: used - earlier.by_thread.get(thread, 0.0)
            for thread, used in self.by_thread.items()
        }
        return CpuTime(
            max(0.0, self.used - earlier.used), max(0.0, self.waiting - earlier.waiting), by_thread
        )

    def computing(self) -> list[int]:
        """Return the threads that had a noticeable part of the CPU time."""
        return [thread for thread, used in self.by_thread.items() if used > _NOTICEABLE * self.used]


def places(cpu: Cpu, threads: int) -> list[tuple[int, ...]]:
    """Return the sets of CPUs that a launch may have in a round, a core for each of its threads.

    The list is empty for a launch with more threads than cores, or without a thread count.
    """
    cores = bound_mask(cpu, cpu.usable_physical_cores) or ()
    if not 0 < threads <= len(cores):
        return []
    return [tuple(cores[first : first + threads]) for first in range(len(cores) - threads + 1)]


class Placement:
    """The CPUs of a launch's threads: they are moved to some of them, and let go again."""

    def __init__(self) -> None:
        """Begin without the CPUs that its threads may use: they are read before the first move."""
        self._allowed: frozenset[int] | None = None
        """The CPUs that each of its threads could use then, or none where they differ."""
        self._confined: list[int] = []
        """The threads that are not to use all of them now."""

    def confine(
        self, processes: Sequence[int], cpus: Sequence[int], threads: Sequence[int] = ()
    ) -> None:
        """Move these threads of processes to these CPUs, or all where none are given.

        If there are enough CPUs, each of the given threads begins on one of its own: two that
        continue at once may else share a CPU for a part of the slice, while another one is idle.
        Threads that bound themselves to CPUs of their own are left there.
        """
        if self._allowed is None:
            masks = {_allowed(thread) for thread in _living_threads(processes)} - {frozenset()}
            self._allowed = masks.pop() if len(masks) == 1 else frozenset()
        if not set(cpus) <= self._allowed:
            return
        if threads and len(threads) <= len(cpus):
            self._confined = sorted(threads)
            for thread, cpu in zip(self._confined, cpus, strict=False):
                _move([thread], [cpu])
        elif set(cpus) < self._allowed:
            self._confined = list(threads or _living_threads(processes))
            _move(self._confined, cpus)

    def let_go(self) -> None:
        """Let the confined threads use the CPUs again that they could use before."""
        if self._allowed:
            _move(self._confined, self._allowed)
        self._confined = []


def _move(threads: Sequence[int], cpus: Collection[int]) -> None:
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, cpus)


def _living_threads(processes: Sequence[int]) -> list[int]:
    """Return the living threads of processes."""
    return [int(thread) for process in processes for thread in _numbers(f"/proc/{process}/task")]


def _allowed(thread: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return frozenset()


def descendants(root: int) -> list[int]:
    """Return the living descendants of a process, itself left out."""
    if _LISTS_CHILDREN:
        return _descendants(root)
    try:
        return [process.pid for process in psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return []


_LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether the kernel lists the children of a thread.

psutil reads the parents of all processes of the machine instead."""


def _descendants(root: int) -> list[int]:
    processes: list[int] = []
    for thread in _numbers(f"/proc/{root}/task"):
        for child in (read_file(f"/proc/{root}/task/{thread}/children") or "").split():
            processes += [int(child), *_descendants(int(child))]
    return processes


def _numbers(folder: str) -> list[str]:
    """Return the processes or threads that this folder of /proc lists, or none once it is gone."""
    try:
        # names alone, in a hot path
        return [name for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []


def stop(processes: Sequence[int]) -> bool:
    """Stop processes and wait until all of their threads stand still. Return whether they do."""
    for process in processes:
        _stop(process)
    deadline = time.monotonic() + _STANDSTILL_SECONDS
    while not all(map(_stands_still, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0001)
    return True


def _stop(process: int) -> None:
    """Send SIGSTOP to each thread of a process.

    A signal to the process is handled by one of its threads, which must first get a CPU. With 8
    and 16 spinning threads on two CPUs that took up to 8 and 20 ms (99 of 100 times), and by a
    signal to each thread, some of which run, 2.6 and 2.8 ms. The freezer of control groups took
    2.4 ms, and needs a group that may be written to. SIGCONT takes back what is still pending.
    """
    if _SIGNAL_THREAD is None:
        _send(process, signal.SIGSTOP)
        return
    for thread in _numbers(f"/proc/{process}/task"):
        _SIGNAL_THREAD(process, int(thread), int(signal.SIGSTOP))


def let_run(processes: Sequence[int]) -> None:
    """Let stopped processes run again."""
    for process in processes:
        _send(process, signal.SIGCONT)


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _stands_still(process: int) -> bool:
    """Return whether all threads of a process are stopped, or it has ended."""
    for thread in _numbers(f"/proc/{process}/task"):
        content = read_file(f"/proc/{process}/task/{thread}/stat")
        if content is not None and stat_fields(content)[0] not in _STANDING:
            return False
    return True


def busy_seconds() -> float:
    """Return the CPU seconds of all programs so far, without this process, counted in ticks."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq")
    busy = sum(getattr(times, name, 0.0) for name in names)
    return busy - time.process_time()


def peak_pages(processes: Sequence[int]) -> int:
    """Return the sum of the most pages of memory that each process had in use, or 0 if unknown."""
    kibibytes = 0
    for process in processes:
        peak = _PEAK_MEMORY.search(read_file(f"/proc/{process}/status") or "")
        if peak is not None:
            kibibytes += int(peak[1])
    return kibibytes * 1024 // mmap.PAGESIZE


def cpu_time(processes: Sequence[int]) -> CpuTime:
    """Return the CPU time of all living threads of processes.

    It is counted in ticks of 0.01 s where the kernel's scheduler reports none.
    """
    by_thread: dict[int, float] = {}
    waited = 0.0
    for process in processes:
        times = thread_times(str(process))
        if times is not None:
            used, waiting = times
            by_thread.update({int(thread): seconds for thread, seconds in used.items()})
            waited += sum(waiting.values())
    return CpuTime(sum(by_thread.values()), waited, by_thread)

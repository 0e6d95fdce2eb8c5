"""Telemetry of a GPU while a launch runs on it: a thread of this process queries NVML, and changes nothing.

    sampler = Sampler(uuid, nvml)
    sampler.start()
    ...                         # the launch
    telemetry = sampler.stop()

``telemetry`` is plain JSON, raw readings in columns; they are interpreted on reading (``reports.gpu_evidence``).
A column whose values are all equal is that one value; one that the GPU or the driver does not report is left out.

=====================  ================================================================================================
``schema``             of this table: 1
``period_seconds``     between two of ``samples``; ``slow_period_seconds`` between two of ``slow_samples``
``origin``             what the clock of ``Outcome.timed_between`` showed at second 0 of every ``at`` in here
``launched_at``        when the launch began; null where the first sample was not there in time
``lost_at``            when the GPU stopped answering; null where it did not
``gpu``                ``uuid``, ``name``, ``driver``, ``power_limit_watts``, ``part``: true where the launch has but a
                       part of it (MIG); clocks, power, temperature and ECC errors are then those of the whole GPU
``samples``            ``at``, ``joules`` (the energy counter less its first reading), ``watts``, ``sm_mhz``,
                       ``memory_mhz``, ``temperature`` (Celsius), ``reasons`` (NVML's bit mask of clock event reasons),
                       ``utilisation`` and ``memory_utilisation`` (per cent), ``used_bytes``
``slow_samples``       ``at``, ``sent`` and ``received`` by the GPU over PCIe (bytes per second, of 20 ms),
                       ``corrected`` and ``uncorrected`` (ECC errors since the driver was loaded)
``processes``          those that compute on the GPU, each ``whose`` (``own``: of this launch; ``other``; ``unknown``),
                       ``first`` and ``last`` (when it was seen), ``bytes``; null where they cannot be listed
``notes``              sentences: what went wrong
``cpu_seconds``        CPU time of all this; null where the thread has not ended
=====================  ================================================================================================

What it costs: at 5 Hz eight queries a time, and once a second six more, two of them, for PCIe, wait 20 ms each while
the driver counts. A launch's own bill is in ``cpu_seconds``. Other processes are looked at once a second: one that came
and went in between is not seen.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from dlbench.hardware_probe.gpu import in_use, text_of

# NVML's numbers, part of its C interface, and so not asked of the binding handed in.
_NEVER_ANSWERED = frozenset({3, 4, 13})  # not supported, no permission, no such function in this driver
_GONE = frozenset({1, 9, 15, 16})  # uninitialised, driver not loaded, GPU is lost, GPU requires reset


class GpuGone(Exception):  # noqa: N818 - it is what happened
    """The GPU or its driver is no longer there."""


class Queries:
    """Asks NVML, and does not repeat what can never be answered; `notes` holds what went wrong otherwise, each once."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._never: set[Hashable] = set()
        self.notes: list[str] = []

    def ask(self, function: str, handle: Any, *arguments: Any) -> Any:
        """Return the answer, or None where there is none; raises GpuGone."""
        if handle is None or (function, arguments) in self._never:
            return None
        try:
            return getattr(self._nvml, function)(handle, *arguments)
        except Exception as error:
            # Besides NVMLError: AttributeError from a binding older than the function, a mismatch class of the
            # binding's own. Neither has a number, and both are for ever.
            code = getattr(error, "value", None)
            if code in _GONE:
                raise GpuGone(str(error)) from error
            if code is None or code in _NEVER_ANSWERED:
                self._never.add((function, arguments))
            elif (note := f"{function}: {error}") not in self.notes:
                self.notes.append(note)
            return None

    def first(self, functions: Sequence[str], handle: Any) -> Any:
        """Return the answer of the first of these functions that has one, or None; raises GpuGone."""
        return next((found for each in functions if (found := self.ask(each, handle)) is not None), None)


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
    """Return whether a process is this one or descends from it; None where no such process can be seen."""
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
    that is found may be another process's. The numbers are used where one of the launch's own was found among them.
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

    def to_json(self, origin: float) -> list[dict[str, Any]] | None:
        """Return them as plain JSON, their times in seconds after ``origin``; None where there was no list at all.

        Process numbers are left out.
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


SCHEMA = 1
PERIOD_SECONDS = 0.2
SLOW_PERIOD_SECONDS = 1.0
START_SECONDS = 5.0
"""How long a launch waits for the first sample: without persistence mode the driver may take seconds to wake up."""
END_SECONDS = 2.0
"""How long the end of a launch waits for a query that does not return."""
MOST_SAMPLES = 3000
"""Kept of each kind, the latest: ten minutes at 5 Hz."""

# NVML's numbers, part of its C interface, and so not asked of the binding handed in.
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_GPU_SENSOR = 0
_SENT, _RECEIVED = 0, 1
_CORRECTED, _UNCORRECTED, _SINCE_DRIVER_LOADED = 0, 1, 0
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # new name, old name


class Sampler:
    """Samples one GPU, found by its UUID (of a whole GPU or of a MIG device), until it is stopped.

    ``nvml`` is the pynvml module or a stand-in. ``own`` returns whether a process belongs to the launch, None
    where no such process is visible. Nothing raises: what goes wrong is in the telemetry's notes.
    """

    def __init__(
        self,
        uuid: str,
        nvml: Any,
        period_seconds: float = PERIOD_SECONDS,
        own: Callable[[int], bool | None] = descends_from_this_process,
    ) -> None:
        self._uuid = uuid
        self._nvml = nvml
        self._period = period_seconds
        self._slow_every = max(1, round(SLOW_PERIOD_SECONDS / period_seconds))
        self._queries = Queries(nvml)
        self._gpu: Any = None
        self._part: Any = None  # what the launch has of it: the MIG device's handle, or the GPU's own
        self._facts: dict[str, Any] = {"uuid": uuid, "part": False}
        self._fast: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self._slow: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self._processes: Processes | None = Processes(own)
        self._notes: list[str] = []
        self._lost_at: float | None = None
        self._launched_at: float | None = None
        self._cpu_seconds: float | None = None
        self._ready, self._launched, self._stopped = threading.Event(), threading.Event(), threading.Event()
        # A query that never returns must not keep this process from ending.
        self._thread = threading.Thread(target=self._run, name="gpu-telemetry", daemon=True)

    def start(self) -> None:
        """Begin; returns when the first sample is taken, so that what it shows was there before the launch."""
        self._thread.start()
        if self._ready.wait(START_SECONDS):
            self._launched_at = time.monotonic()
        self._launched.set()

    def stop(self) -> dict[str, Any]:
        """End with a last sample, and return the telemetry; waits `END_SECONDS` at most."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)
        notes = [*self._notes, *self._queries.notes]
        if self._thread.is_alive():
            notes.append(f"NVML did not answer within {END_SECONDS:g} s of the launch's end")
        # Copies, since the thread may still be there; a row is in them as a whole or not at all.
        fast, slow = list(self._fast), list(self._slow)
        origin = fast[0]["at"] if fast else time.monotonic()
        spent = [row["joules"] for row in fast]
        first = next((joules for joules in spent if joules is not None), 0.0)
        for place, joules in enumerate(spent):
            fast[place] = fast[place] | {"joules": None if joules is None else round(joules - first, 3)}
        return {
            "schema": SCHEMA,
            "period_seconds": self._period,
            "slow_period_seconds": self._slow_every * self._period,
            "origin": origin,
            "launched_at": _since(origin, self._launched_at),
            "lost_at": _since(origin, self._lost_at),
            "gpu": dict(self._facts),
            "samples": _columns(fast, origin),
            "slow_samples": _columns(slow, origin),
            "processes": None if self._processes is None else self._processes.to_json(origin),
            "notes": notes,
            "cpu_seconds": self._cpu_seconds,
        }

    def _run(self) -> None:
        try:
            self._nvml.nvmlInit()
        except Exception as error:  # As for every query.
            self._notes.append(f"no usable NVIDIA driver: {error}")
            self._ready.set()
            return
        try:
            if self._find():
                self._loop()
        except GpuGone as error:
            self._lost_at = time.monotonic()
            self._notes.append(f"the GPU stopped answering: {error}")
        except Exception as error:  # An answer of an unheard-of form; the launch must not end for it.
            self._notes.append(f"NVML's answers were not understood: {type(error).__name__}: {error}")
        finally:
            self._ready.set()
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()
            self._cpu_seconds = round(time.thread_time(), 4)

    def _find(self) -> bool:
        ask = self._queries.ask
        self._part = ask("nvmlDeviceGetHandleByUUID", self._uuid)
        if self._part is None:
            self._notes.append(f"no GPU of this driver has the UUID {self._uuid}")
            return False
        self._gpu = ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self._part) if _is_slice(self._uuid) else None
        parted = self._gpu is not None
        self._gpu = self._part if self._gpu is None else self._gpu
        mode = ask("nvmlDeviceGetMigMode", self._gpu)
        if not parted and mode is not None and bool(mode[0]):
            # The launch has the first of its slices, and the lists of the whole GPU are about all of them.
            parted, self._processes = True, None
        limit = ask("nvmlDeviceGetEnforcedPowerLimit", self._gpu)
        self._facts.update(
            name=text_of(ask("nvmlDeviceGetName", self._part)),
            driver=self._driver(),
            power_limit_watts=None if limit is None else limit / 1000,
            part=parted or _is_slice(self._uuid),
        )
        return True

    def _driver(self) -> str | None:
        with contextlib.suppress(Exception):
            return text_of(self._nvml.nvmlSystemGetDriverVersion())
        return None

    def _loop(self) -> None:
        turn, due = 0, time.monotonic()
        ended = False
        while not ended:
            self._fast.append(self._take())
            if turn % self._slow_every == 0:
                self._take_slowly(pcie=turn > 0)
            self._ready.set()
            turn += 1
            # A sample that took long moves the later ones: there is never a burst of them.
            due = max(due + self._period, time.monotonic())
            ended = self._stopped.wait(due - time.monotonic())
        self._fast.append(self._take())
        self._take_slowly(pcie=False)

    def _take(self) -> dict[str, Any]:
        ask, gpu = self._queries.ask, self._gpu
        now = time.monotonic()
        millijoules = ask("nvmlDeviceGetTotalEnergyConsumption", gpu)
        milliwatts = ask("nvmlDeviceGetPowerUsage", gpu)
        rates = ask("nvmlDeviceGetUtilizationRates", gpu)
        memory = ask("nvmlDeviceGetMemoryInfo", self._part)
        return {
            "at": now,
            "joules": None if millijoules is None else millijoules / 1000,
            "watts": None if milliwatts is None else round(milliwatts / 1000, 1),
            "sm_mhz": ask("nvmlDeviceGetClockInfo", gpu, _SM_CLOCK),
            "memory_mhz": ask("nvmlDeviceGetClockInfo", gpu, _MEMORY_CLOCK),
            "temperature": ask("nvmlDeviceGetTemperature", gpu, _GPU_SENSOR),
            "reasons": self._queries.first(_REASONS, gpu),
            "utilisation": None if rates is None else rates.gpu,
            "memory_utilisation": None if rates is None else rates.memory,
            "used_bytes": None if memory is None else memory.used,
        }

    def _take_slowly(self, pcie: bool) -> None:
        ask, gpu = self._queries.ask, self._gpu
        now = time.monotonic()
        row: dict[str, Any] = {"at": now, "sent": None, "received": None}
        for name, kind in (("corrected", _CORRECTED), ("uncorrected", _UNCORRECTED)):
            row[name] = ask("nvmlDeviceGetTotalEccErrors", gpu, kind, _SINCE_DRIVER_LOADED)
        self._look_for_processes(now)
        for name, way in (("sent", _SENT), ("received", _RECEIVED)) if pcie else ():
            kilobytes = ask("nvmlDeviceGetPcieThroughput", gpu, way)
            row[name] = None if kilobytes is None else kilobytes * 1000
        self._slow.append(row)

    def _look_for_processes(self, now: float) -> None:
        if self._processes is None:
            return
        listed = self._queries.first(PROCESSES, self._part)
        if listed is not None:
            self._processes.note(listed, now, before_launch=not self._launched.is_set())


def _columns(rows: Sequence[dict[str, Any]], origin: float) -> dict[str, Any]:
    """Turn rows into columns; see the module."""
    columns: dict[str, Any] = {"at": [_since(origin, row["at"]) for row in rows]}
    for name in list(rows[0])[1:] if rows else ():
        values = [row[name] for row in rows]
        if any(value is not None for value in values):
            columns[name] = values[0] if all(value == values[0] for value in values) else values
    return columns


def _since(origin: float, moment: float | None) -> float | None:
    return None if moment is None else round(moment - origin, 4)


def _is_slice(uuid: str) -> bool:
    return uuid.startswith("MIG-")

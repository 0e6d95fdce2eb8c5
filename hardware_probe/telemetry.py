"""Telemetry of a GPU while a launch runs on it.

A thread of this process queries NVML, and changes nothing.

    sampler = Sampler(uuid, nvml)
    sampler.start()
    ...                         # the launch
    telemetry = sampler.stop()

``telemetry`` is plain JSON, raw readings in columns. They are interpreted on reading
(``reports.results.gpu_evidence``). A column whose values are all equal is that one value. A column
that the GPU or the driver does not report is left out.

``schema``
    Of this table: 1.
``period_seconds``
    Between two of ``samples``. ``slow_period_seconds`` is the time between two of ``slow_samples``.
``origin``
    The reading of the clock of ``Outcome.timed_between`` at second 0 of every ``at`` in here.
``launched_at``
    When the launch began. Null where the first sample was not there in time.
``lost_at``
    When the GPU stopped answering. Null where it did not.
``gpu``
    ``uuid``, ``name``, ``driver``, ``power_limit_watts``, and ``part``: true where the launch has
    only a part (MIG). Clocks, power, temperature and ECC errors are then those of the whole GPU.
``samples``
    ``at``, ``joules`` (the energy counter less its first reading), ``watts``, ``sm_mhz``,
    ``memory_mhz``, ``temperature`` (Celsius), ``reasons`` (NVML's bit mask of clock event reasons),
    ``utilisation`` and ``memory_utilisation`` (per cent), ``used_bytes``.
``slow_samples``
    ``at``, ``sent`` and ``received`` by the GPU over PCIe (bytes per second, over 20 ms),
    ``corrected`` and ``uncorrected`` (ECC errors since the driver was loaded).
``processes``
    Those that compute on the GPU, each ``whose`` (``own``: of this launch, ``other`` or
    ``unknown``), ``first`` and ``last`` (when it was seen), ``bytes``. Null where they cannot be
    listed.
``notes``
    Sentences about failures.
``cpu_seconds``
    CPU time of all this. Null where the thread has not ended.

The cost: eight queries per sample at 5 Hz, and once a second six more. Two of these (PCIe) wait 20
ms each while the driver counts. ``cpu_seconds`` is the CPU time that this took of a launch. Other
processes are listed once a second: one that comes and goes in between is missed.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import psutil

from dlbench.hardware_probe.gpu import MEMORY_CLOCK, PROCESSES, SM_CLOCK, GpuGoneError, Queries


def descends_from_this_process(pid: int) -> bool | None:
    """Return whether a process is this one or descends from it.

    It is None where no such process can be seen.
    """
    try:
        if pid == os.getpid():
            return True
        return any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    except (psutil.Error, OSError, ValueError, OverflowError):
        return None


class Sighting(NamedTuple):
    """A process in a list of NVML's."""

    number: int
    moment: float
    before_launch: bool
    used_bytes: int | None
    own: bool | None  # whether it is the launch's; None where this is not known


def processes_of(seen: Iterable[Sighting], origin: float) -> list[dict[str, Any]]:
    """Return the processes as plain JSON, without their numbers.

    Their times are in seconds after ``origin``. In a container NVML may report the host's process
    numbers: the launch's own are then not found, and a number that is found may be another
    process's. So the numbers count only if one of the launch's own is among them. If not, only
    processes that were there before the launch are known to be others'.
    """
    sightings_by_number: dict[int, list[Sighting]] = {}
    for sighting in seen:
        sightings_by_number.setdefault(sighting.number, []).append(sighting)
    own = {number: _is_own(sightings) for number, sightings in sightings_by_number.items()}
    any_own = any(own.values())
    rows = []
    for number, sightings in sightings_by_number.items():
        # One that was listed once and cannot be seen may have been a short one of the launch.
        is_other = any_own and (own[number] is False or len(sightings) > 1)
        if own[number]:
            whose = "own"
        elif sightings[0].before_launch or is_other:
            whose = "other"
        else:
            whose = "unknown"
        sizes = [sighting.used_bytes for sighting in sightings if sighting.used_bytes]
        rows.append(
            {
                "whose": whose,
                "first": _since(origin, sightings[0].moment),
                "last": _since(origin, sightings[-1].moment),
                "bytes": max(sizes, default=None),
            }
        )
    return rows


def _is_own(sightings: Iterable[Sighting]) -> bool | None:
    for sighting in sightings:
        if sighting.own is not None:
            return sighting.own
    return None


SCHEMA = 1
PERIOD_SECONDS = 0.2
SLOW_PERIOD_SECONDS = 1.0
# How long a launch waits for the first sample: without persistence mode the driver may take seconds
# to wake up.
START_SECONDS = 5.0
END_SECONDS = 2.0
"""How long the end of a launch waits for a query that does not return."""
MOST_SAMPLES = 3000
"""Most samples kept of each kind, the latest: ten minutes at 5 Hz."""

# NVML's numbers, see `gpu`.
_GPU_SENSOR = 0
_SENT = 0
_RECEIVED = 1
_CORRECTED = 0
_UNCORRECTED = 1
_SINCE_DRIVER_LOADED = 0
# New name, old name.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class GpuSampler:
    """Sampler of one GPU, found by its UUID (of a whole GPU or of a MIG device), until it stops.

    ``nvml`` is the pynvml module or a stand-in. ``own`` returns whether a process belongs to the
    launch, None where no such process is visible. Nothing raises: failures are in the telemetry's
    notes.
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
        self._queries = Queries(nvml, watching=True)
        self._gpu: Any = None
        self._part: Any = None  # the launch's part: the MIG device's handle, or the GPU's own
        self._facts: dict[str, Any] = {"uuid": uuid, "part": False}
        self._fast: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self._slow: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self._own = own
        self._known_owners: dict[int, bool | None] = {}
        self._lists_processes = True
        self._seen: list[Sighting] | None = None
        self._notes: list[str] = []
        self._lost_at: float | None = None
        self._launched_at: float | None = None
        self._cpu_seconds: float | None = None
        self._ready = threading.Event()
        self._launched = threading.Event()
        self._stopped = threading.Event()
        # A query that never returns must not keep this process from ending.
        self._thread = threading.Thread(target=self._run, name="gpu-telemetry", daemon=True)

    def start(self) -> None:
        """Start sampling, and return once the first sample is taken.

        It thus shows the state before the launch.
        """
        self._thread.start()
        if self._ready.wait(START_SECONDS):
            self._launched_at = time.monotonic()
        self._launched.set()

    def stop(self) -> dict[str, Any]:
        """Take a last sample, and return the telemetry; waits `END_SECONDS` at most."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)
        notes = [*self._notes, *self._queries.notes]
        if self._thread.is_alive():
            notes.append(f"NVML did not answer within {END_SECONDS:g} s of the launch's end")
        # Copies, since the thread may still run. A row is in them as a whole or not at all.
        fast = list(self._fast)
        slow = list(self._slow)
        origin = fast[0]["at"] if fast else time.monotonic()
        processes = None
        if self._seen is not None:
            processes = processes_of(self._seen, origin)
        return {
            "schema": SCHEMA,
            "period_seconds": self._period,
            "slow_period_seconds": self._slow_every * self._period,
            "origin": origin,
            "launched_at": _since(origin, self._launched_at),
            "lost_at": _since(origin, self._lost_at),
            "gpu": dict(self._facts),
            "samples": _columns(_joules_from_first(fast), origin),
            "slow_samples": _columns(slow, origin),
            "processes": processes,
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
        except GpuGoneError as error:
            self._lost_at = time.monotonic()
            self._notes.append(f"the GPU stopped answering: {error}")
        except Exception as error:  # An unexpected answer must not end the launch.
            self._notes.append(
                f"NVML's answers were not understood: {type(error).__name__}: {error}"
            )
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
        is_part = self._uuid.startswith("MIG-")
        whole = None
        if is_part:
            whole = ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self._part)
        self._gpu = self._part if whole is None else whole
        if whole is None and self._queries.switch("nvmlDeviceGetMigMode", self._gpu):
            # The launch has the first of its slices, and the lists of the whole GPU are about all
            # of them.
            is_part = True
            self._lists_processes = False
        limit = ask("nvmlDeviceGetEnforcedPowerLimit", self._gpu)
        watts = None if limit is None else limit / 1000
        self._facts.update(
            name=self._queries.text("nvmlDeviceGetName", self._part),
            driver=Queries(self._nvml).text("nvmlSystemGetDriverVersion"),
            power_limit_watts=watts,
            part=is_part,
        )
        return True

    def _loop(self) -> None:
        turn = 0
        due = time.monotonic()
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
        ask = self._queries.ask
        gpu = self._gpu
        now = time.monotonic()
        millijoules = ask("nvmlDeviceGetTotalEnergyConsumption", gpu)
        milliwatts = ask("nvmlDeviceGetPowerUsage", gpu)
        rates = ask("nvmlDeviceGetUtilizationRates", gpu)
        return {
            "at": now,
            "joules": None if millijoules is None else millijoules / 1000,
            "watts": None if milliwatts is None else round(milliwatts / 1000, 1),
            "sm_mhz": ask("nvmlDeviceGetClockInfo", gpu, SM_CLOCK),
            "memory_mhz": ask("nvmlDeviceGetClockInfo", gpu, MEMORY_CLOCK),
            "temperature": ask("nvmlDeviceGetTemperature", gpu, _GPU_SENSOR),
            "reasons": self._queries.first(_REASONS, gpu),
            "utilisation": getattr(rates, "gpu", None),
            "memory_utilisation": getattr(rates, "memory", None),
            "used_bytes": getattr(ask("nvmlDeviceGetMemoryInfo", self._part), "used", None),
        }

    def _take_slowly(self, pcie: bool) -> None:
        ask = self._queries.ask
        gpu = self._gpu
        row: dict[str, Any] = {"at": time.monotonic(), "sent": None, "received": None}
        for name, kind in (("corrected", _CORRECTED), ("uncorrected", _UNCORRECTED)):
            row[name] = ask("nvmlDeviceGetTotalEccErrors", gpu, kind, _SINCE_DRIVER_LOADED)
        if self._lists_processes:
            self._list_processes(row["at"])
        if pcie:
            for name, direction in (("sent", _SENT), ("received", _RECEIVED)):
                kilobytes = ask("nvmlDeviceGetPcieThroughput", gpu, direction)
                row[name] = None if kilobytes is None else kilobytes * 1000
        self._slow.append(row)

    def _list_processes(self, moment: float) -> None:
        processes = self._queries.first(PROCESSES, self._part)
        if processes is None:
            return
        if self._seen is None:
            self._seen = []
        before_launch = not self._launched.is_set()
        for process in processes:
            number = process.pid
            if self._known_owners.get(number) is None:
                self._known_owners[number] = self._own(number)
            own = self._known_owners[number]
            self._seen.append(Sighting(number, moment, before_launch, process.usedGpuMemory, own))


def _joules_from_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the energy counter less its first reading."""
    first: float | None = None
    adjusted = []
    for row in rows:
        joules = row["joules"]
        if joules is not None:
            if first is None:
                first = joules
            joules = round(joules - first, 3)
        adjusted.append(row | {"joules": joules})
    return adjusted


def _columns(rows: Sequence[dict[str, Any]], origin: float) -> dict[str, Any]:
    """Turn rows into columns; see the module."""
    columns: dict[str, Any] = {"at": [_since(origin, row["at"]) for row in rows]}
    names = list(rows[0])[1:] if rows else []
    for name in names:
        values = [row[name] for row in rows]
        first = values[0]
        if any(value != first for value in values):
            columns[name] = values
        elif first is not None:
            columns[name] = first
    return columns


def _since(origin: float, moment: float | None) -> float | None:
    if moment is None:
        return None
    return round(moment - origin, 4)

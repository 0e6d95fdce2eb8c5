"""The GPUs, through NVML, which needs the driver but neither CUDA nor a framework.

A stand-in for NVML plays drivers and GPUs that a machine does not have: an object `nvml` in the
Python file that the variable DLBENCH_NVML names. It has pynvml's functions; one that it lacks
counts as missing from the driver. A query that a driver or board does not support costs one field,
never the whole probe.
"""

import contextlib
import functools
import os
import runpy
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

VARIABLE = "DLBENCH_NVML"


def in_use() -> Any:
    """Return the NVML to ask: pynvml's module or the stand-in. Raises nothing.

    A stand-in that cannot be loaded is an NVML whose `nvmlInit` fails with the reason, as that of a
    broken driver does.
    """
    if path := os.environ.get(VARIABLE, ""):
        return _stand_in(path)
    import pynvml  # takes 60 ms, and most commands need no GPU

    return pynvml


@functools.cache  # one object for a process: a stand-in may remember its queries
def _stand_in(path: str) -> Any:
    try:
        return runpy.run_path(path)["nvml"]
    except Exception as error:  # whatever the user's own code raises
        words = " ".join(str(error).split()) or type(error).__name__
        reason = f"{VARIABLE}={path} cannot be used: {words}"

        def refuse() -> None:
            raise RuntimeError(reason)

        return SimpleNamespace(nvmlInit=refuse)


# NVML's numbers for two clock domains, and for its errors. They are part of its C interface, and so
# not asked of the binding handed in.
SM_CLOCK = 1
MEMORY_CLOCK = 2
_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_FUNCTION_NOT_FOUND = 13
# Uninitialised, driver not loaded, GPU is lost, GPU requires reset.
_GONE = frozenset({1, 9, 15, 16})


class GpuGoneError(Exception):
    """The GPU or its driver is no longer there."""


class Queries:
    """Queries of NVML, which never repeat a query that cannot be answered.

    `notes` lists other failures, each once. ``watching`` is for a GPU that is asked again and
    again: one that is gone raises GpuGoneError, and a query that this user may not make is no
    problem.
    """

    def __init__(self, nvml: Any, watching: bool = False) -> None:
        self._nvml = nvml
        self._watching = watching
        self._silent = {_NOT_SUPPORTED, _FUNCTION_NOT_FOUND}
        if watching:
            self._silent.add(_NO_PERMISSION)
        self._never: set[Hashable] = set()
        self._notes: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        """Return each failure with the function that first met it.

        A GPU off the bus answers every query alike.
        """
        return [f"{function}: {error}" for error, function in self._notes.items()]

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return the answer of a function of NVML; None where there is none, or no handle."""
        if None in arguments or (function, arguments[1:]) in self._never:
            return None
        try:
            return getattr(self._nvml, function)(*arguments)
        except Exception as error:
            # Besides NVMLError: AttributeError from a binding older than the function, a mismatch
            # class of the binding's own, UnicodeDecodeError from a broken board's name.
            code = getattr(error, "value", None)
            if code in _GONE and self._watching:
                raise GpuGoneError(str(error)) from error
            if code in self._silent or isinstance(error, AttributeError):
                self._never.add((function, arguments[1:]))
            else:
                self._notes.setdefault(str(error) or type(error).__name__, function)
            return None

    def first(self, functions: Sequence[str], handle: Any) -> Any:
        """Return the answer of the first of these functions that has one, or None."""
        for function in functions:
            answer = self.ask(function, handle)
            if answer is not None:
                return answer
        return None

    def text(self, function: str, *arguments: Any) -> str | None:
        """Return an answer that is text, which older bindings give as bytes."""
        answer = self.ask(function, *arguments)
        if isinstance(answer, bytes):
            return answer.decode("utf-8", "replace")
        if answer is None:
            return None
        return str(answer)

    def switch(self, function: str, handle: Any) -> bool | None:
        """Return whether a mode is on; of a (current, pending) pair the current one."""
        answer = self.ask(function, handle)
        if isinstance(answer, list | tuple):
            answer = answer[0]
        if answer is None:
            return None
        return bool(answer)

    def slices(self, gpu: Any) -> Iterator[Any]:
        """Yield the handles of a GPU's MIG devices.

        Most GPUs have none, and a slot may be empty.
        """
        for slot in range(self.ask("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
            handle = Queries(self._nvml).ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, slot)
            if handle is not None:
                yield handle


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML numbers them; None where the driver or board does not report it.

    NVML disregards CUDA_VISIBLE_DEVICES: all GPUs of the machine or container are listed.
    """

    index: int
    name: str | None
    uuid: str | None
    """Identifies the board; not part of the fingerprint."""
    memory_bytes: int | None
    compute_capability: str | None
    """"9.0" for Hopper."""
    sm_clock_max_mhz: int | None
    memory_clock_max_mhz: int | None
    power_limit_watts: float | None
    pcie_generation_max: int | None
    pcie_width_max: int | None
    mig_enabled: bool | None
    mig_devices: tuple[dict[str, Any], ...]
    """The slices of a GPU in MIG mode: "name", "uuid", "memory_bytes"."""
    ecc_enabled: bool | None
    persistence_mode: bool | None
    """Without it the first use after a pause pays for the driver's start."""


@dataclass(frozen=True)
class Gpus:
    """All GPUs, with the driver that serves them."""

    devices: tuple[Gpu, ...]
    driver_version: str | None
    cuda_driver_version: str | None
    """The newest CUDA version that the driver supports, "12.4"; not that of a toolkit."""
    reason: str | None
    """Why a GPU or a fact is missing; None when every GPU could be listed."""


def probe_gpus(nvml: Any = None) -> Gpus:
    """List the GPUs; without a driver the list is empty and `reason` says so. Raises nothing.

    `nvml` is the pynvml module or a stand-in with its functions; None: the one in use (see
    `in_use`).
    """
    nvml = in_use() if nvml is None else nvml
    try:
        nvml.nvmlInit()
    except Exception as error:  # The reason for so wide a catch is given at Queries.ask.
        words = str(error) or type(error).__name__
        return Gpus((), None, None, f"no usable NVIDIA driver: {words}")
    try:
        system = Queries(nvml)
        driver = system.text("nvmlSystemGetDriverVersion")
        cuda = system.ask("nvmlSystemGetCudaDriverVersion")
        cuda_version: str | None = None
        if cuda is not None:
            cuda_version = f"{cuda // 1000}.{cuda % 1000 // 10}"  # 12040 is 12.4
        count = system.ask("nvmlDeviceGetCount")
        if count is None:
            why = ", ".join(system.notes) or "not supported"
            return Gpus((), driver, cuda_version, f"the driver did not count its GPUs: {why}")
        devices = []
        reasons = []
        if not count:
            reasons.append("the driver is installed, but finds no GPU")
        for index in range(count):
            queries = Queries(nvml)
            devices.append(_probe_gpu(queries, index, nvml))
            if queries.notes:
                reasons.append(f"GPU {index}: {', '.join(queries.notes)}")
        return Gpus(tuple(devices), driver, cuda_version, "; ".join(reasons) or None)
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()


def _probe_gpu(queries: Queries, index: int, nvml: Any) -> Gpu:
    """Return one GPU.

    A GPU that cannot be reached is still listed, with None in all fields, so that the count is
    right.
    """
    handle = queries.ask("nvmlDeviceGetHandleByIndex", index)
    memory = queries.ask("nvmlDeviceGetMemoryInfo", handle)
    capability = queries.ask("nvmlDeviceGetCudaComputeCapability", handle)
    milliwatts = queries.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    compute_capability = None
    if capability is not None:
        compute_capability = f"{capability[0]}.{capability[1]}"
    mig = queries.switch("nvmlDeviceGetMigMode", handle)
    mig_devices = []
    if mig:
        for mig_handle in queries.slices(handle):
            mig_devices.append(_mig_device(Queries(nvml), mig_handle))
    return Gpu(
        index=index,
        name=queries.text("nvmlDeviceGetName", handle),
        uuid=queries.text("nvmlDeviceGetUUID", handle),
        memory_bytes=None if memory is None else int(memory.total),
        compute_capability=compute_capability,
        sm_clock_max_mhz=queries.ask("nvmlDeviceGetMaxClockInfo", handle, SM_CLOCK),
        memory_clock_max_mhz=queries.ask("nvmlDeviceGetMaxClockInfo", handle, MEMORY_CLOCK),
        power_limit_watts=None if milliwatts is None else milliwatts / 1000,
        pcie_generation_max=queries.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width_max=queries.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        mig_enabled=mig,
        mig_devices=tuple(mig_devices),
        ecc_enabled=queries.switch("nvmlDeviceGetEccMode", handle),
        persistence_mode=queries.switch("nvmlDeviceGetPersistenceMode", handle),
    )


def _mig_device(queries: Queries, handle: Any) -> dict[str, Any]:
    memory = queries.ask("nvmlDeviceGetMemoryInfo", handle)
    memory_bytes = None if memory is None else int(memory.total)
    return {
        "name": queries.text("nvmlDeviceGetName", handle),
        "uuid": queries.text("nvmlDeviceGetUUID", handle),
        "memory_bytes": memory_bytes,
    }


#: NVML's functions that list the processes that compute, new name and old name.
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")


def computing(nvml: Any = None) -> dict[str, int]:
    """Return by UUID how many processes compute on each GPU now; empty without a driver.

    MIG devices are counted apart. ``nvml`` is as for `probe_gpus`. Raises nothing: a GPU that does
    not answer is left out.
    """
    nvml = in_use() if nvml is None else nvml
    counts: dict[str, int] = {}
    with contextlib.suppress(Exception):  # no answer of a driver is worth a failure
        nvml.nvmlInit()
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                gpu = Queries(nvml).ask("nvmlDeviceGetHandleByIndex", index)
                for handle in (gpu, *Queries(nvml).slices(gpu)):
                    # Anew: MIG devices may answer a query that their GPU cannot.
                    queries = Queries(nvml)
                    uuid = queries.text("nvmlDeviceGetUUID", handle)
                    processes = queries.ask(PROCESSES[0], handle)
                    if uuid is not None and processes is not None:
                        counts[uuid] = len(processes)
        finally:
            nvml.nvmlShutdown()
    return counts

"""The GPUs, through NVML, which needs the driver but neither CUDA nor a framework.

A stand-in for NVML plays drivers and GPUs that a machine does not have. The variable DLBENCH_NVML names it:
`module:attribute`, or a path to a Python file with an object `nvml` in it. It has pynvml's functions; one that it lacks
counts as missing from the driver. What one driver or board does not support costs one field, never the probe.
"""

import functools
import importlib
import importlib.util
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "DLBENCH_NVML"
_IN_A_FILE = "nvml"


def in_use() -> Any:
    """Return the NVML to ask: pynvml's module or the stand-in. Raises nothing.

    A stand-in that cannot be loaded is an NVML whose `nvmlInit` fails with the reason, as that of a broken driver does.
    """
    text = os.environ.get(VARIABLE, "")
    if text:
        return _stand_in(text)
    import pynvml  # takes 60 ms, and most commands look at no GPU

    return pynvml


class _Unusable:
    """An NVML that does not start."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def nvmlInit(self) -> None:  # noqa: N802
        """Say why."""
        raise RuntimeError(self._reason)


@functools.cache  # one object for a process: a stand-in may remember what it was asked
def _stand_in(text: str) -> Any:
    try:
        if text.endswith(".py"):
            return getattr(_module_in(Path(text)), _IN_A_FILE)
        module, _, attribute = text.partition(":")
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's own code raises
        said = " ".join(str(error).split()) or type(error).__name__
        return _Unusable(f"{VARIABLE}={text} cannot be used: {said}")


def _module_in(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlbench_nvml_stand_in", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(answer: Any) -> str | None:
    """Return an answer that is text, which older bindings give as bytes; None where there was none."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    return None if answer is None else str(answer)


# NVML's numbers for two clock domains, and for the two errors that only mean "this board or driver has no
# such thing". They are part of its C interface, and so not asked of the binding handed in.
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_NOT_SUPPORTED, _FUNCTION_NOT_FOUND = 3, 13


@dataclass(frozen=True)
class MigDevice:
    """One slice of a GPU in MIG mode; what a framework then sees as its device."""

    name: str | None
    uuid: str | None
    memory_bytes: int | None


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
    """All of it, as the driver counts."""
    memory_free_bytes: int | None
    compute_capability: str | None
    """"9.0" for Hopper."""
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    memory_clock_mhz: int | None
    memory_clock_max_mhz: int | None
    power_limit_watts: float | None
    """The limit in force."""
    pcie_generation: int | None
    """Of the moment: an idle link steps down."""
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    mig_enabled: bool | None
    mig_devices: tuple[MigDevice, ...]
    ecc_enabled: bool | None
    persistence_mode: bool | None
    """Without it the first use after a pause pays for the driver's start."""


@dataclass(frozen=True)
class Gpus:
    """All GPUs, with the driver that serves them; `reason` says why something is missing."""

    devices: tuple[Gpu, ...]
    driver_version: str | None
    cuda_driver_version: str | None
    """The newest CUDA version that the driver supports, "12.4"; not that of any toolkit or framework."""
    reason: str | None
    """None when every GPU could be listed."""


def probe_gpus(nvml: Any = None) -> Gpus:
    """List the GPUs; without a driver the list is empty and `reason` says so. Raises nothing.

    `nvml` is the pynvml module or a stand-in with its functions; None: the one in use (see `nvml.in_use`).
    """
    nvml = in_use() if nvml is None else nvml
    try:
        nvml.nvmlInit()
    except Exception as error:  # The reason for so wide a catch is given at _Queries.ask.
        return Gpus((), None, None, f"no usable NVIDIA driver: {_words(error)}")
    try:
        return _list_gpus(nvml)
    finally:
        _Queries(nvml).ask("nvmlShutdown")


@dataclass
class _Queries:
    """Asks NVML one thing at a time, and keeps what went wrong."""

    nvml: Any
    problems: list[str] = field(default_factory=list)

    def ask(self, function: str, *arguments: object) -> Any:
        """Return the answer of one NVML function; None without one, or without a handle.

        Failures other than "not supported" are kept in `problems`, each once: a GPU that fell off the bus
        answers every query alike.
        """
        if None in arguments:
            return None
        try:
            return getattr(self.nvml, function)(*arguments)
        except Exception as error:
            # Besides NVMLError: AttributeError from a binding older than the function, a mismatch class of
            # the binding's own, UnicodeDecodeError from a broken board's name. No answer of a driver is worth
            # losing the rest of the probe.
            unsupported = getattr(error, "value", None) in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND)
            if not unsupported and not isinstance(error, AttributeError) and _words(error) not in self.problems:
                self.problems.append(_words(error))
            return None

    def text(self, function: str, *arguments: object) -> str | None:
        """Return the same for text, which older bindings give as bytes."""
        return text_of(self.ask(function, *arguments))

    def memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return total and free bytes of a GPU or MIG device."""
        answer = self.ask("nvmlDeviceGetMemoryInfo", handle)
        return (None, None) if answer is None else (int(answer.total), int(answer.free))

    def switch(self, function: str, handle: Any) -> bool | None:
        """Return the state of a mode that is on (1) or off (0); of a (current, pending) pair the current one."""
        answer = self.ask(function, handle)
        if answer is None:
            return None
        return bool(answer[0] if isinstance(answer, list | tuple) else answer)


def _list_gpus(nvml: Any) -> Gpus:
    system = _Queries(nvml)
    driver = system.text("nvmlSystemGetDriverVersion")
    cuda = system.ask("nvmlSystemGetCudaDriverVersion")
    cuda_version = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"  # 12040 is 12.4
    count = system.ask("nvmlDeviceGetCount")
    if count is None:
        why = ", ".join(system.problems) or "not supported"
        return Gpus((), driver, cuda_version, f"the driver did not count its GPUs: {why}")
    devices: list[Gpu] = []
    reasons = [] if count else ["the driver is there, but has no GPU"]
    for index in range(count):
        queries = _Queries(nvml)
        devices.append(_probe_gpu(queries, index))
        if queries.problems:
            reasons.append(f"GPU {index}: {', '.join(queries.problems)}")
    return Gpus(tuple(devices), driver, cuda_version, "; ".join(reasons) or None)


def _probe_gpu(queries: _Queries, index: int) -> Gpu:
    """Return one GPU; one that cannot be reached is still listed, all None, so that the count stays true."""
    handle = queries.ask("nvmlDeviceGetHandleByIndex", index)

    def ask(function: str, *arguments: object) -> Any:
        return queries.ask(function, handle, *arguments)

    total, free = queries.memory(handle)
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    milliwatts = ask("nvmlDeviceGetEnforcedPowerLimit")
    mig = queries.switch("nvmlDeviceGetMigMode", handle)
    return Gpu(
        index=index,
        name=queries.text("nvmlDeviceGetName", handle),
        uuid=queries.text("nvmlDeviceGetUUID", handle),
        memory_bytes=total,
        memory_free_bytes=free,
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", _SM_CLOCK),
        sm_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),
        memory_clock_mhz=ask("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
        memory_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),
        power_limit_watts=None if milliwatts is None else milliwatts / 1000,
        pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_generation_max=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        mig_enabled=mig,
        mig_devices=_mig_devices(queries, handle) if mig else (),
        ecc_enabled=queries.switch("nvmlDeviceGetEccMode", handle),
        persistence_mode=queries.switch("nvmlDeviceGetPersistenceMode", handle),
    )


def _mig_devices(queries: _Queries, gpu: Any) -> tuple[MigDevice, ...]:
    found: list[MigDevice] = []
    for slot in range(queries.ask("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
        # Apart from the GPU's own queries: an empty slot answers "not found", no problem of the GPU.
        device = _Queries(queries.nvml)
        handle = device.ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, slot)
        if handle is not None:
            name, uuid = (device.text(what, handle) for what in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"))
            found.append(MigDevice(name, uuid, memory_bytes=device.memory(handle)[0]))
    return tuple(found)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__

"""The devices of launches: their names, those of this machine, and those that a launch sees.

    cpu          the CPU
    gpus         every GPU, if any: for a suite that many machines share
    cuda:all     every GPU; an error without one
    cuda:0       the GPU that the driver numbers 0, as nvidia-smi shows it
    cuda:0:1     MIG device 1 of GPU 0
    GPU-8932f9   the GPU whose UUID begins so; MIG-41ac for a MIG device

CUDA does not offer a GPU in MIG mode as a whole, only its MIG devices. "All" and "every" respect
CUDA_VISIBLE_DEVICES, which batch systems set; a GPU that is named is used regardless.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dlbench.hardware_probe import Gpus

from ..errors import UsageError

CPU = "cpu"
GPUS = "gpus"
_ALL = "cuda:all"
_NUMBERED = re.compile(r"cuda:([0-9]{1,4})(?::([0-9]{1,2}))?")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")
_WORDS = (
    "cpu, cuda:0 (a GPU by its number), cuda:all, gpus (all there are, if any), or a UUID: "
    "GPU-..., MIG-..."
)


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG device of one, that a launch can be given."""

    name: str  # in cells: "cuda:0", or "cuda:0:1" of a MIG device
    index: int  # the GPU's, as NVML numbers it
    title: str | None  # "NVIDIA H200", where the driver says so
    uuid: str | None  # None: it does not answer
    memory_bytes: int | None = None

    @property
    def words(self) -> str:
        """Name and title."""
        return f"{self.name} ({self.title})" if self.title else self.name

    def identity(self, driver: str | None) -> dict[str, Any]:
        """Return the device as a record has it, in plain JSON."""
        return {"index": self.index, "name": self.title, "uuid": self.uuid, "driver": driver}


def check(word: str) -> str:
    """Return the word when it can name a device of some machine; raises UsageError otherwise."""
    if word in (CPU, GPUS, _ALL) or _NUMBERED.fullmatch(word) or _UUID.fullmatch(word):
        return word
    raise UsageError(f"{word[:60]!r} is not a device. Write {_WORDS}.")


def present(gpus: Gpus) -> tuple[Device, ...]:
    """Return every device that launches can be given, in the driver's order.

    One that does not answer is among them.
    """
    devices: list[Device] = []
    for gpu in gpus.devices:
        name = f"cuda:{gpu.index}"
        if gpu.mig_enabled:
            for slot, part in enumerate(gpu.mig_devices):
                names = (part["name"], part["uuid"])
                devices.append(Device(f"{name}:{slot}", gpu.index, *names, part["memory_bytes"]))
        else:
            devices.append(Device(name, gpu.index, gpu.name, gpu.uuid, gpu.memory_bytes))
    return tuple(devices)


def resolve(words: Iterable[str], gpus: Gpus, visible: str | None = None) -> tuple[str, ...]:
    """Return the names of the devices that these words mean on a machine with these GPUs.

    Each is named once. ``visible`` is CUDA_VISIBLE_DEVICES where it is set. Raises UsageError, with
    the devices that there are, for a word that means no device, and where all of them together mean
    none.
    """
    names: list[str] = []
    last = GPUS
    for last in words:
        if check(last) == CPU:
            names.append(CPU)
        elif last in (GPUS, _ALL):
            every = _visible_devices(present(gpus), visible)
            if last == _ALL and not every:
                raise _no_device(last, gpus, visible)
            names += [device.name for device in every]
        else:
            names.append(_named(last, gpus).name)
    if not names:
        raise _no_device(last, gpus, visible)
    return tuple(dict.fromkeys(names))


def _visible_devices(devices: tuple[Device, ...], visible: str | None) -> tuple[Device, ...]:
    """Return the devices that CUDA_VISIBLE_DEVICES leaves; its numbers follow the bus order."""
    if visible is None:
        return devices
    kept: list[Device] = []
    for part in visible.split(","):
        word = part.strip()
        matching: list[Device] = []
        if _UUID.fullmatch(word):
            matching = _with_uuid(devices, word)
        elif word.isdecimal():
            matching = [device for device in devices if device.index == int(word)]
        if not matching:
            break  # CUDA passes over what follows a word that means nothing
        kept += matching
    return tuple(device for device in devices if device in kept)


def _with_uuid(devices: Iterable[Device], beginning: str) -> list[Device]:
    return [device for device in devices if (device.uuid or "").startswith(beginning)]


def _named(word: str, gpus: Gpus) -> Device:
    """Return the device of this number or beginning of a UUID. Raises UsageError."""
    if not gpus.devices:
        raise _no_device(word, gpus)
    devices = present(gpus)
    there_are = f"There are: {CPU}, {_listed(devices)}."
    match = _NUMBERED.fullmatch(word)
    gpu = None
    if match is None:
        matching = _with_uuid(devices, word)
        for board in gpus.devices:
            if (board.uuid or "").startswith(word):
                gpu = board
                break
        if len(matching) > 1:
            raise UsageError(
                f"{word} matches several GPUs: {_listed(matching)}. Give more characters."
            )
        if not matching and gpu is None:
            raise UsageError(
                f"No GPU of this machine has a UUID that begins with {word}. {there_are}"
            )
    else:
        numbers = [int(part) for part in match.groups() if part]
        name = ":".join(["cuda", *map(str, numbers)])
        matching = [device for device in devices if device.name == name]
        for board in gpus.devices:
            if board.index == numbers[0]:
                gpu = board
                break
        if gpu is None:
            raise UsageError(f"This machine has no GPU {numbers[0]}. {there_are}")
        if match[2] and not gpu.mig_enabled:
            raise UsageError(f"GPU {gpu.index} is not in MIG mode. Write cuda:{gpu.index}.")
        if match[2] and not matching:
            raise UsageError(f"This machine has no {name}. {there_are}")
    if gpu is not None and not matching:  # a GPU in MIG mode, named as a whole
        slices = _listed(device for device in devices if device.index == gpu.index)
        if not slices:
            raise UsageError(
                f"GPU {gpu.index} is in MIG mode and has no MIG device. Make one (nvidia-smi mig), "
                "or leave MIG mode."
            )
        raise UsageError(
            f"GPU {gpu.index} is in MIG mode and cannot be used as a whole. It has: {slices}."
        )
    if matching[0].uuid is None:
        raise UsageError(
            f"{matching[0].words} does not answer ({gpus.reason or 'the driver gives no reason'})."
        )
    return matching[0]


def _no_device(word: str, gpus: Gpus, visible: str | None = None) -> UsageError:
    """Return the error for a word that needs a GPU where none can be used."""
    if visible is not None and present(gpus):
        why = f"CUDA_VISIBLE_DEVICES={visible[:80]} leaves none"
    elif gpus.devices:
        why = "in MIG mode without a MIG device"
    else:
        why = gpus.reason or "no driver"
    return UsageError(
        f"{word} means no device of this machine: no GPU can be used ({why}). There is: {CPU} "
        f"(--devices {CPU})."
    )


def _listed(devices: Iterable[Device]) -> str:
    return ", ".join(f"{device.words} = {device.uuid or 'no answer'}" for device in devices)


def variables(uuid: str | None) -> dict[str, str]:
    """Return the environment variables that show a launch these devices alone; None: no GPU.

    The framework sees a single device as number 0. A launch on the CPU sees none, so that a
    framework built for GPUs does not initialise one or take its memory.
    """
    if uuid is None:
        return {"CUDA_VISIBLE_DEVICES": ""}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuid}


def locate(
    name: str,
    planned: Gpus,
    now: Gpus,
    count: int = 1,
    named: tuple[str, ...] = (),
    visible: str | None = None,
) -> tuple[Device, ...] | str:
    """Return the device of this name and the next ones, ``count`` in all, or why there are none.

    They are recognised by UUID: a board that falls off the bus leaves the list, and the boards
    behind it may then be numbered otherwise. The next ones are the devices that the plan names or,
    where it names only one, those in CUDA_VISIBLE_DEVICES.
    """
    devices = present(planned)
    offered = set(named)
    if len(named) <= 1:
        offered = {device.name for device in _visible_devices(devices, visible)}
    chosen: list[Device] = []
    for device in devices:
        if device.name == name or (chosen and device.name in offered):
            chosen.append(device)
    chosen = chosen[:count]
    if not chosen:
        return f"this machine has no {name}; it has: {_listed(devices) or 'no GPU'}"
    if len(chosen) < count:
        return f"{count} workers need {count} GPUs from {name} on, and there are {len(chosen)}"
    slices = [device.name for device in chosen if device.name.count(":") > 1]
    if count > 1 and slices:
        return f"workers on MIG devices ({', '.join(slices)}) cannot reach one another"
    titles = {device.title for device in chosen}
    if len(titles) > 1:
        # Each step lasts as long as its slowest worker's: nothing could be said of either board.
        unlike = ", ".join(device.words for device in chosen)
        return (
            f"workers need GPUs of one kind, but these differ: {unlike}; name others with --devices"
        )
    answering = {device.uuid for device in present(now)}
    for device in chosen:
        if device.uuid is None or device.uuid not in answering:
            return (
                f"{device.words} does not answer: {now.reason or 'the driver no longer lists it'}"
            )
    return tuple(chosen)

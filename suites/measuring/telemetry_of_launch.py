"""Telemetry of a launch: its GPU is sampled from before it starts until it has ended."""

from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from dlbench.hardware_probe.gpu.processes import descends_from_this_process
from dlbench.hardware_probe.gpu.telemetry import Sampler

from .launcher import MARK

_T = TypeVar("_T")


def while_sampled(uuid: str, nvml: Any, launch: Callable[[], _T]) -> tuple[_T, dict[str, Any]]:
    """Carry out a launch; return what it gave, and the telemetry of the GPU with this UUID.

    Raises what ``launch`` raises, the sampling ended all the same.
    """
    sampler = Sampler(uuid, nvml, own=of_a_launch)
    sampler.start()
    try:
        launched = launch()
    finally:
        telemetry = sampler.stop()
    return launched, telemetry


def of_a_launch(pid: int) -> bool | None:
    """Tell whether a process belongs to a launch; None where no such process can be seen.

    One that left its launch's tree still carries the mark. There is one launch at a time on a machine.
    """
    descends = descends_from_this_process(pid)
    if descends is not False:
        return descends
    try:
        return MARK in psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False

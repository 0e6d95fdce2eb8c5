"""The operators of some steps, as PyTorch's own profiler tells them."""

from typing import Any, Iterator

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from ..base import Adapter
from ..libraries import profiles
from ..libraries.profiles import Calls
from ..protocol import Profile

NAME = "torch.profiler"
_MICROSECONDS = 1e-6


def take(adapter: Adapter, steps: int) -> Profile:
    """Run so many steps under the profiler; on a GPU its kernels and copies are told besides the CPU's operators."""
    activities = [ProfilerActivity.CPU]
    if not adapter.cell.on_cpu:
        activities.append(ProfilerActivity.CUDA)
    # The first session of a process loads what the profiler needs, within its first step.
    with torch.profiler.profile(activities=activities):
        profiles.run(adapter.step, adapter.synchronize, 1)
    with torch.profiler.profile(activities=activities) as recorded:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    return profiles.profile(NAME, steps, seconds, calls(recorded.key_averages()))


def calls(averages: Any) -> Iterator[Calls]:
    """Yield the calls of each row of ``key_averages()``.

    A row of the CPU holds the device's time of the kernels that it started too; they have rows of their own.
    """
    for row in averages:
        on_device = row.device_type != DeviceType.CPU
        if on_device and row.is_user_annotation:
            continue  # a stretch of the device's time line that spans kernels
        spent = row.self_device_time_total if on_device else row.self_cpu_time_total
        yield Calls(str(row.key), on_device, spent * _MICROSECONDS, row.count)

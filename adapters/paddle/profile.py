"""The operators of some steps, as PaddlePaddle's own profiler tells them."""

import json
import os
import re
import tempfile
from typing import Any, Dict, Iterator, List

import paddle

from ..base import Adapter
from ..libraries import profiles
from ..libraries.profiles import Calls, Span
from ..protocol import Profile

NAME = "paddle.profiler"
_KERNEL = re.compile(
    r"(.+?) kernel launch\[.*\]"
)  # "matmul_grad kernel launch[49.374 ms]"; on the CPU it is the kernel
_MICROSECONDS = 1e-6


def take(adapter: Adapter, steps: int) -> Profile:
    """Run so many steps under the profiler."""
    recorder = paddle.profiler.Profiler(targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=lambda ready: None)
    with recorder:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    with tempfile.TemporaryDirectory(prefix="paddle-", dir=adapter.cache_directory) as directory:
        path = os.path.join(directory, "trace.json")
        recorder.export(path, "json")
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    return profiles.profile(NAME, steps, seconds, calls(events))


def calls(events: List[Dict[str, Any]]) -> Iterator[Calls]:
    """Yield the calls of each kernel; what else the trace holds wraps them: layers, gradient nodes, Python."""
    of_threads: Dict[str, List[Span]] = {}
    for event in events:
        found = _KERNEL.fullmatch(event["name"]) if event.get("ph") == "X" else None
        if found:
            span = Span(found.group(1), float(event["ts"]), float(event["dur"]))
            of_threads.setdefault(str(event.get("tid")), []).append(span)
    for spans in of_threads.values():
        for name, duration in profiles.self_durations(spans):
            yield Calls(name, False, duration * _MICROSECONDS, 1)

"""The operators of some steps, as the profile that ONNX Runtime writes tells them.

A session profiles from its making to its end or not at all, so the timed one does not: a second one, of the same graph
and over the same buffers, is made for the profiled steps.
"""

import json
import os
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..base import Adapter
from ..libraries import profiles
from ..libraries.profiles import Calls, Span
from ..protocol import Profile

NAME = "ONNX Runtime's profiling"
WARMUP = 2  # runs of a new session before the ones that count
_MICROSECONDS = 1e-6
_SUFFIX = "_kernel_time"  # older versions write several events of a node; this is the one of its kernel


def take(adapter: Adapter, open_session: Callable[[Any], Any], options: Any, steps: int) -> Optional[Profile]:
    """Run so many steps in a session made with these options, which ``open_session`` makes the adapter's."""
    with tempfile.TemporaryDirectory(prefix="onnx-", dir=adapter.cache_directory) as directory:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(directory, "profile")
        session = open_session(options)
        profiles.run(adapter.step, adapter.synchronize, WARMUP)
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        events = read(session.end_profiling())
    return joined(adapter, steps, seconds, list(calls(events, WARMUP)))


def joined(adapter: Adapter, steps: int, seconds: float, found: List[Calls]) -> Optional[Profile]:
    """Return the profile; None where the device computes and nothing is told of it."""
    if not (adapter.cell.on_cpu or any(each.on_device for each in found)):
        return None
    return profiles.profile(NAME, steps, seconds, found)


def read(path: str) -> List[Dict[str, Any]]:
    """Return the events of a profile."""
    with open(path, encoding="utf-8") as file:
        events: List[Dict[str, Any]] = json.load(file)
    return events


def calls(events: List[Dict[str, Any]], skipped: int) -> Iterator[Calls]:
    """Yield the calls of each node, by its operator, after the first ``skipped`` runs of the session.

    An event of a node tells when the CPU was busy with it; one of a kernel, which builds for GPUs may write, when the
    device was.
    """
    runs = sorted(float(event["ts"]) for event in events if event.get("name") == "model_run")
    if len(runs) <= skipped:
        return
    first = runs[skipped]
    of_threads: Dict[Any, List[Span]] = {}
    for event in events:
        if float(event.get("ts", 0)) < first:
            continue
        if event.get("cat") == "Kernel":
            yield Calls(str(event["name"]), True, float(event["dur"]) * _MICROSECONDS, 1)
        elif event.get("cat") == "Node" and str(event.get("name")).endswith(_SUFFIX):
            span = Span(str(event["args"]["op_name"]), float(event["ts"]), float(event["dur"]))
            of_threads.setdefault((event.get("pid"), event.get("tid")), []).append(span)
    for spans in of_threads.values():
        for name, duration in profiles.self_durations(spans):
            yield Calls(name, False, duration * _MICROSECONDS, 1)

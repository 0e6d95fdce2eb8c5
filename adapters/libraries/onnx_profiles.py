"""The operators of some steps, as the profiles that ONNX Runtime writes tell them.

A session profiles from its making to its end or not at all, so the timed ones do not: others, of the same graphs, are
made for the profiled steps. Each writes a profile of its own when it ends.
"""

import glob
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List

from ..protocol import Profile
from . import profiles
from .profiles import Calls, Span

if TYPE_CHECKING:
    from .onnx_sessions import SessionAdapter  # ONNX Runtime is not there where the host reads a profile

NAME = "ONNX Runtime's profiling"
WARMUP = 2  # runs of a new session before the ones that count
_MICROSECONDS = 1e-6
_SUFFIX = "_kernel_time"  # older versions write several events of a node; this is the one of its kernel


def take(
    adapter: "SessionAdapter", open_sessions: Callable[[Any], object], close_sessions: Callable[[], object], steps: int
) -> Profile:
    """Run so many steps in sessions of their own.

    ``open_sessions`` makes them the adapter's, with the options that it is given; ``close_sessions`` ends them.
    """
    options = adapter.session_options()
    with tempfile.TemporaryDirectory(prefix="onnxruntime-", dir=adapter.cache_directory) as directory:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(directory, "profile")
        open_sessions(options)
        profiles.run(adapter.step, adapter.synchronize, WARMUP)
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        close_sessions()
        found: List[Calls] = []
        for path in glob.glob(os.path.join(directory, "*.json")):
            with open(path, encoding="utf-8") as file:
                found += calls(json.load(file), WARMUP)
    return profiles.profile(NAME, steps, seconds, found)


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

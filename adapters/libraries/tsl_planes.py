"""What the profiler that TensorFlow and JAX share (TSL's) tells: planes, of lines, of events.

A plane is the host or a device, a line a thread of the host or a stream of the device. Besides what is computed, lines
hold much else: calls of the runtime, waiting, pieces of loops.

On the CPU a compiled program's operation may go on, on other threads, after the call that began it: an event
"end: dot.3" then says when "dot.3" was done.
"""

import bisect
import glob
import os
import re
from typing import Dict, Iterable, Iterator, List, NamedTuple

from .profiles import Calls, Span, self_durations

HLO = "hlo_op"  # the statistic that an event of a compiled program's operation carries
_END = "end: "
_FURTHER_GPU = re.compile("/device:GPU:[1-9]")
_OPERATION = re.compile(r"[^:]+:([A-Za-z_]\w*)")  # "mean/MatMul:MatMul", a node of a graph and its operation
_COPY = re.compile(r"(?:[._](?:\d+|clone|remat))+$")  # "dot.12.clone": one of many of its name


class Event(NamedTuple):
    """One stretch of time on a line, in nanoseconds, by one clock for all lines."""

    name: str
    start: float
    duration: float
    compiled: bool  # it carries the statistic HLO


class Line(NamedTuple):
    """A thread or a stream."""

    plane: str
    name: str
    events: List[Event]


def calls(lines: Iterable[Line], on_cpu: bool) -> Iterator[Calls]:
    """Yield the calls of the operators that the host ran, or of the kernels and copies of the device."""
    if on_cpu:
        events = [event for line in lines if line.plane.startswith("/host:CPU") for event in line.events]
        for name, duration in self_durations(_on_host(events)):
            yield Calls(name, False, duration * 1e-9, 1)
        return
    for line in lines:
        # Of several GPUs, whose workers do the same side by side, the first: time is not added up over them.
        of_first = line.plane.startswith("/device:GPU") and not _FURTHER_GPU.match(line.plane)
        # The device's other lines are summaries of its streams.
        if of_first and line.name.startswith("Stream"):
            for event in line.events:
                yield Calls(_COPY.sub("", event.name), True, event.duration * 1e-9, 1)


def _on_host(events: List[Event]) -> Iterator[Span]:
    """Yield the spans of operators, named by what they do and not by their place in the program."""
    ends: Dict[str, List[float]] = {}
    for event in sorted(events, key=lambda each: each.start):
        if event.name.startswith(_END):
            ends.setdefault(event.name[len(_END) :], []).append(event.start)
    for event in events:
        if event.compiled:
            later = ends.get(event.name, [])
            place = bisect.bisect_left(later, event.start)
            done = later[place] if place < len(later) else event.start
            yield Span(_COPY.sub("", event.name), event.start, max(event.duration, done - event.start))
        else:
            found = _OPERATION.fullmatch(event.name)
            if found:
                yield Span(found.group(1), event.start, event.duration)


def file_in(directory: str) -> str:
    """Return the one profile below this directory; raises RuntimeError where the profiler wrote none."""
    found = glob.glob(os.path.join(directory, "plugins", "profile", "*", "*.xplane.pb"))
    if not found:
        raise RuntimeError("the profiler wrote no profile")
    return found[0]

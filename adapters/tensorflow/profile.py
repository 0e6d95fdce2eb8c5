"""The operators of some steps, as TensorFlow's own profiler tells them."""

import tempfile
from typing import Any, Iterator, Optional

import tensorflow as tf

from ..base import Adapter
from ..libraries import profiles, tsl_planes
from ..libraries.tsl_planes import HLO, Event, Line
from ..protocol import Profile

try:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
except ImportError:  # where the description of the file lies differs between versions
    xplane_pb2 = None

NAME = "tf.profiler"


def take(adapter: Adapter, steps: int) -> Optional[Profile]:
    """Run so many steps under the profiler; None where this version of TensorFlow cannot read what it writes."""
    if xplane_pb2 is None:
        return None
    with tempfile.TemporaryDirectory(prefix="tensorflow-", dir=adapter.cache_directory) as directory:
        tf.profiler.experimental.start(directory)
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        with open(tsl_planes.file_in(directory), "rb") as file:
            space.ParseFromString(file.read())
        found = list(tsl_planes.calls(lines(space), adapter.cell.on_cpu))
    return profiles.profile(NAME, steps, seconds, found)


def lines(space: Any) -> Iterator[Line]:
    """Yield the lines of an ``XSpace``, whose events name their words by number and count time from their line's."""
    # Nanoseconds since 1970 would take all the digits that a float has.
    first = min((line.timestamp_ns for plane in space.planes for line in plane.lines), default=0)
    for plane in space.planes:
        names = {number: kind.name for number, kind in plane.event_metadata.items()}
        compiled = {number for number, kind in plane.stat_metadata.items() if kind.name == HLO}
        for line in plane.lines:
            events = [
                Event(
                    names[event.metadata_id],
                    line.timestamp_ns - first + event.offset_ps * 1e-3,
                    event.duration_ps * 1e-3,
                    any(stat.metadata_id in compiled for stat in event.stats),
                )
                for event in line.events
            ]
            yield Line(plane.name, line.name, events)

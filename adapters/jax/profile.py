"""The operators of some steps, as JAX's own profiler tells them."""

import tempfile
from typing import Any, Iterator, Optional

import jax

from ..base import Adapter
from ..libraries import profiles, tsl_planes
from ..libraries.tsl_planes import HLO, Event, Line
from ..protocol import Profile

NAME = "jax.profiler"


def take(adapter: Adapter, steps: int) -> Optional[Profile]:
    """Run so many steps under the profiler; None where this version of JAX cannot read what it writes."""
    if not hasattr(jax.profiler, "ProfileData"):
        return None
    with tempfile.TemporaryDirectory(prefix="jax-", dir=adapter.cache_directory) as directory:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # a step's Python is a few lines; tracing them slows it
        jax.profiler.start_trace(directory, profiler_options=options)
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        jax.profiler.stop_trace()
        data = jax.profiler.ProfileData.from_file(tsl_planes.file_in(directory))
        found = list(tsl_planes.calls(lines(data), adapter.cell.on_cpu))
    return profiles.profile(NAME, steps, seconds, found)


def lines(data: Any) -> Iterator[Line]:
    """Yield the lines of a ``ProfileData``."""
    for plane in data.planes:
        for line in plane.lines:
            events = [
                Event(event.name, event.start_ns, event.duration_ns, any(key == HLO for key, _ in event.stats))
                for event in line.events
            ]
            yield Line(plane.name, line.name, events)

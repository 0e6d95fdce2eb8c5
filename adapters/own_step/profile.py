"""The functions of some steps, as Python's own profiler tells them: those of C, which frameworks are made of, too."""

import cProfile
import os
import pstats
from typing import Any, Dict, Iterator, Tuple

from ..base import Adapter
from ..libraries import profiles
from ..libraries.profiles import Calls
from ..protocol import Profile

NAME = "Python's cProfile"


def take(adapter: Adapter, steps: int) -> Profile:
    """Run so many steps under the profiler, which makes calls of Python longer than they are.

    What threads of the framework do is part of the function that waits for them.
    """
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    finally:
        profiler.disable()
    told: Dict[Tuple[str, int, str], Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # it has them
    return profiles.profile(NAME, steps, seconds, calls(told))


def calls(told: Dict[Tuple[str, int, str], Any]) -> Iterator[Calls]:
    """Yield each function with its own time; those that dlbench itself adds are left out."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for (file, line, function), (_, count, own, _, _) in told.items():
        if not file.startswith(ours) and "_lsprof.Profiler" not in function:
            yield Calls(_name(file, line, function), False, own, count)


def _name(file: str, line: int, function: str) -> str:
    if file == "~":  # of C: "<built-in method torch._C._nn.linear>"
        return function.strip("<>").replace("built-in method ", "")
    return "%s (%s:%d)" % (function, os.path.basename(file), line)

"""The profile of a step of the user's own, by the profiler of the framework that its file imports.

A file may import several frameworks and compute with one of them. Each one's profiler is tried, and
the one whose operators explain most of the step counts. Without such a profiler, Python's own
counts functions.
"""

import cProfile
import importlib
import os
import pstats
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..base import Adapter
from ..libraries import gpus, profiles
from ..libraries.profiles import PYTHON_PROFILER, Calls
from ..protocol import Profile

#: By the framework's module: the adapter's module whose ``take_profile`` drives its profiler.
PROFILERS = {
    "torch": "pytorch.adapter",
    "tensorflow": "tensorflow.devices",
    "jax": "jax.devices",
    "mxnet": "mxnet.adapter",
    "paddle": "paddle.adapter",
    "onnxruntime": "onnx.sessions_of_steps",
}
#: Operators that take this share of a step leave no doubt about which framework computes it.
_ENOUGH = 0.5
#: A smaller share of the step, in all operators together, says that another library computes it.
_LEAST = 0.05


def take_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under each profiler that may fit, and return the profile that explains
    most of a step.
    """
    best: Optional[Profile] = None
    failures: List[str] = []
    for name, module in PROFILERS.items():
        if name not in sys.modules:
            continue
        try:
            profile = _profile_of(module, adapter, steps)
        except (
            Exception
        ) as error:  # a release of the framework that dlbench's adapter does not know
            failures.append("%s: %s" % (name, gpus.noted(error)))
            continue
        if profile is None:
            continue
        if best is None or _explained(profile, adapter) > _explained(best, adapter):
            best = profile
        if _explained(best, adapter) >= _ENOUGH:
            break
    if best is not None and _explained(best, adapter) >= _LEAST:
        return best
    found = take_python_profile(adapter, steps)
    if failures:
        return found._replace(
            profiler="%s, because that of %s failed" % (found.profiler, "; ".join(failures))
        )
    return found


def _profile_of(module: str, adapter: Adapter, steps: int) -> Optional[Profile]:
    package = str(__package__).rpartition(".")[0]
    take: Any = importlib.import_module("%s.%s" % (package, module)).take_profile
    profile: Optional[Profile] = take(adapter, steps)
    return profile


def _explained(profile: Profile, adapter: Adapter) -> float:
    """Return the share of a profiled step that its operators take on the cell's device."""
    there = [
        operator for operator in profile.operators if operator.on_device is not adapter.cell.on_cpu
    ]
    return sum(operator.seconds for operator in there) / max(profile.step_seconds, 1e-9)


def take_python_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under Python's profiler, which slows calls of Python."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    finally:
        profiler.disable()
    # it exists
    statistics: Any = pstats.Stats(profiler)
    functions: Dict[Tuple[str, int, str], Any] = statistics.stats
    of_step = str(getattr(adapter, "file", ""))
    return profiles.profile(PYTHON_PROFILER, steps, seconds, profiled_calls(functions, of_step))


def profiled_calls(
    functions: Dict[Tuple[str, int, str], Any], of_step: str = ""
) -> Iterator[Calls]:
    """Yield each function with its own time; dlbench's own are left out. ``of_step`` is the user's
    file.
    """
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for (file, line, function), (_, count, own, _, _) in functions.items():
        if not file.startswith(ours) and "_lsprof.Profiler" not in function:
            yield Calls(_name(file, line, function, of_step), False, own, count)


def _name(file: str, line: int, function: str, of_step: str) -> str:
    if file == "~":  # of C: "<built-in method torch._C._nn.linear>"
        return function.strip("<>").replace("built-in method ", "")
    if file == of_step:
        return "%s (the step's file)" % function  # the same in two files that are compared
    return "%s (%s:%d)" % (function, os.path.basename(file), line)

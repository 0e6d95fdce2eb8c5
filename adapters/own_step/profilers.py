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

#: By the framework's module, the adapter's module whose ``take_profile`` drives its profiler.
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
    """Run this many steps under each profiler that may fit.

    Return the profile that explains most of a step.
    """
    best: Optional[Profile] = None
    failures: List[str] = []
    for name, module in PROFILERS.items():
        if name not in sys.modules:
            continue
        try:
            profile = _take_framework_profile(module, adapter, steps)
        except Exception as error:
            # Perhaps a release of the framework that dlbench's adapter does not know.
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
    python_profile = take_python_profile(adapter, steps)
    if not failures:
        return python_profile
    words = "%s, because that of %s failed" % (python_profile.profiler, "; ".join(failures))
    return python_profile._replace(profiler=words)


def _take_framework_profile(module: str, adapter: Adapter, steps: int) -> Optional[Profile]:
    package = str(__package__).rpartition(".")[0]
    take: Any = importlib.import_module("%s.%s" % (package, module)).take_profile
    profile: Optional[Profile] = take(adapter, steps)
    return profile


def _explained(profile: Profile, adapter: Adapter) -> float:
    """Return the share of a profiled step that its operators take on the cell's device."""
    seconds = 0.0
    for operator in profile.operators:
        if operator.on_device is not adapter.cell.on_cpu:
            seconds += operator.seconds
    return seconds / max(profile.step_seconds, 1e-9)


def take_python_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under Python's profiler, which slows calls of Python."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    finally:
        profiler.disable()
    statistics: Any = pstats.Stats(profiler)
    functions: Dict[Tuple[str, int, str], Any] = statistics.stats
    step_file = str(getattr(adapter, "file", ""))
    calls = profiled_calls(functions, step_file)
    return profiles.profile(PYTHON_PROFILER, steps, seconds, calls)


def profiled_calls(
    functions: Dict[Tuple[str, int, str], Any], step_file: str = ""
) -> Iterator[Calls]:
    """Yield each function with its own time; dlbench's own functions are left out."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for (file, line, function), (_, count, own, _, _) in functions.items():
        if not file.startswith(ours) and "_lsprof.Profiler" not in function:
            yield Calls(_name(file, line, function, step_file), False, own, count)


def _name(file: str, line: int, function: str, step_file: str) -> str:
    if file == "~":  # of C: "<built-in method torch._C._nn.linear>"
        return function.strip("<>").replace("built-in method ", "")
    if file == step_file:
        return "%s (the step's file)" % function  # the same in two files that are compared
    return "%s (%s:%d)" % (function, os.path.basename(file), line)

"""A comparative benchmark suite of deep-learning frameworks in the style of DLBench (Shi et al.
2016).

`run` measures a suite, `launches` and `cells` return the results of a store as pandas DataFrames.
Whatever a user can put right is raised as `DlbenchError`. All are loaded at their first use.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from dlbench.reports.frames import cells, launches
    from dlbench.reports.results.errors import DlbenchError
    from dlbench.suites.from_python import run

__all__ = ["DlbenchError", "cells", "launches", "run"]
_MODULES = {
    "DlbenchError": "dlbench.reports.results.errors",
    "cells": "dlbench.reports.frames",
    "launches": "dlbench.reports.frames",
    "run": "dlbench.suites.from_python",
}


def __getattr__(name: str) -> "typing.Any":
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List what is offered, loaded or not; a completion shows nothing else."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

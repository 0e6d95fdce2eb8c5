"""A comparative benchmark suite of deep-learning frameworks in the style of DLBench (Shi et al.
2016).

`measure`, `compare` and `gate` measure steps of your own, `run` measures a suite, `launches` and
`cells` return the results of a store as pandas DataFrames. Whatever a user can put right is raised
as `DlbenchError`; `dlbench.errors` has its kinds. All are loaded at their first use.
"""

TYPE_CHECKING = False  # as type checkers read it; importing typing would take most of the time
if TYPE_CHECKING:
    from dlbench.errors import DlbenchError
    from dlbench.reports.frames import cells, launches
    from dlbench.reports.from_python import CompareResult, GateResult, MeasureResult
    from dlbench.suites.from_python import compare, gate, measure, run

__all__ = [
    "CompareResult",
    "DlbenchError",
    "GateResult",
    "MeasureResult",
    "cells",
    "compare",
    "gate",
    "launches",
    "measure",
    "run",
]

if not TYPE_CHECKING:
    _MODULES = {
        "CompareResult": "dlbench.reports.from_python",
        "DlbenchError": "dlbench.errors",
        "GateResult": "dlbench.reports.from_python",
        "MeasureResult": "dlbench.reports.from_python",
        "cells": "dlbench.reports.frames",
        "compare": "dlbench.suites.from_python",
        "gate": "dlbench.suites.from_python",
        "launches": "dlbench.reports.frames",
        "measure": "dlbench.suites.from_python",
        "run": "dlbench.suites.from_python",
    }

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)

    def __dir__():
        """List what is offered, loaded or not; a completion shows nothing else."""
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

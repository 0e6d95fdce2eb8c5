"""The plugin's options that are not axes, and how its errors name them."""

from __future__ import annotations

import re
from typing import Any

from ..planning.axes import AXIS_OPTIONS, LIMITS

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")

OPTIONS: dict[str, dict[str, Any]] = {
    "launches": {
        "metavar": "N|N-M",
        "help": "launches (fresh processes) of each cell: 5, or 5-20: as many as its interval needs",
    },
    "interval": {"metavar": "SHARE", "help": "half-width of a cell's interval at which launches end: 1%%"},
    "steps": {"metavar": "N", "type": int, "help": "timed steps per launch, at most"},
    "cell-budget": {"metavar": "TIME", "help": "time for one launch: 60s, 10m"},
    "budget": {"metavar": "TIME", "help": "time for all launches"},
    "seed": {"metavar": "N", "type": int, "help": "seed of the launching order"},
    "store": {"metavar": "FILE", "help": "keep the records in this store, too"},
    "no-quiet-gate": {"action": "store_true", "help": "do not wait for a quiet machine or repeat disturbed launches"},
    "yes": {"action": "store_true", "help": "measure more than 10,000 cells, too"},
    "python": {
        "metavar": "NAME=PATH",
        "action": "append",
        "help": "your own interpreter, torch=/path/to/python. May be repeated",
    },
    "step": {
        "metavar": "FILE",
        "action": "append",
        "help": "a training step of your own in place of the networks: --dlbench-step=train_step.py, written by "
        "`dlbench new step`. May be repeated",
    },
    "loss-tolerance": {"metavar": "SHARE", "help": "by how much its first losses may differ between launches"},
    "adapter": {
        "metavar": "NAME=FOLDER",
        "action": "append",
        "help": "an adapter of your own, my_framework=path/to/folder. May be repeated",
    },
}
"""What says nothing without --dlbench-suite, beside the axes."""


def of_suite(error: Exception) -> str:
    """Return what is wrong with a session over a suite, each option named as pytest knows it.

    Commands, between backticks, stay as they are.
    """
    names = {*OPTIONS, "suite", *(axis.option[2:] for axis in (*AXIS_OPTIONS, *LIMITS))}

    def named(found: re.Match[str]) -> str:
        return f"--dlbench-{found[1]}" if found[1] in names else found[0]

    parts = [part if place % 2 else _OPTION.sub(named, part) for place, part in enumerate(str(error).split("`"))]
    return _inert(f"dlbench: {'`'.join(parts)}")


def of_baseline(error: Exception) -> str:
    """Return what is wrong with a baseline, which stands where a command has its store."""
    return _inert(f"dlbench: {str(error).replace('--store', '--dlbench-baseline')}")


def _inert(text: str) -> str:
    from dlbench.reports.formats.inert import visible

    return visible(text)

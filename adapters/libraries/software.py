"""The software around a launch: the interpreter, what it can import, and the settings that the host gave."""

import os
import platform
import sys
from typing import Any, Dict

import numpy as np

from ..protocol import Launch


def environment() -> Dict[str, Any]:
    """Name every distribution this interpreter can import, and the interpreter itself."""
    found = {}
    for directory in sys.path:
        try:
            names = os.listdir(directory or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                project, _, version = name.rpartition(".")[0].partition("-")
                found[project.lower().replace("_", "-")] = version.split("-py")[0]
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "distributions": found,
        "numpy": np.__version__,
        "libc": "-".join(platform.libc_ver()),
    }


def settings_in_force(launch: Launch) -> Dict[str, Any]:
    """Return the mode's settings and those environment variables that the host set for this launch."""
    named = os.environ.get("DLBENCH_VARIABLES", "").split(",")
    return {
        "mode_settings": launch.settings,
        "variables": {name: os.environ[name] for name in named if name in os.environ},
    }

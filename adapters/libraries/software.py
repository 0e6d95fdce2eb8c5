"""The software around a launch: interpreter, distributions, compilers, and the host's settings."""

import hashlib
import os
import platform
import subprocess
import sys
from typing import Any, Dict, Tuple

import numpy as np

from ..protocol import Launch


def environment() -> Dict[str, Any]:
    """Return the interpreter and every distribution it can import."""
    distributions = {}
    for directory in sys.path:
        try:
            names = os.listdir(directory or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                project, _, version = name.rpartition(".")[0].partition("-")
                distributions[project.lower().replace("_", "-")] = version.split("-py")[0]
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "distributions": distributions,
        "numpy": np.__version__,
        "libc": "-".join(platform.libc_ver()),
        **system(),
    }


def system() -> Dict[str, str]:
    """Return what of the machine may change between two runs: kernel, microcode and the CPUs'
    frequency governor.
    """
    found = {"kernel": platform.release()}
    for name, path, line in (
        ("microcode", "/proc/cpuinfo", "microcode"),
        ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", ""),
    ):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [each for each in file if each.startswith(line)]
        except OSError:
            continue
        if lines:
            found[name] = lines[0].rpartition(":")[2].strip()
    return found


def compiler(command: str) -> Tuple[str, str]:
    """Return the name and version of a compiler, and why it cannot be run; "" where it can."""
    try:
        output = subprocess.check_output([command, "--version"], stderr=subprocess.STDOUT)
    except (OSError, subprocess.CalledProcessError) as error:
        return "", "%s cannot be run: %s" % (command, error)
    return output.decode("utf-8", "replace").splitlines()[0].strip(), ""


def mark(words: str) -> str:
    """Return a short digest of these words, to separate the output of different compilers in a
    folder.
    """
    return hashlib.sha256(words.encode("utf-8")).hexdigest()[:8]


def settings_in_force(launch: Launch) -> Dict[str, Any]:
    """Return the mode's settings and those environment variables that the host set for this
    launch.
    """
    named = os.environ.get("DLBENCH_VARIABLES", "").split(",")
    return {
        "mode_settings": launch.settings,
        "variables": {name: os.environ[name] for name in named if name in os.environ},
    }

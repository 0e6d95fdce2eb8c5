"""The software around a launch: interpreter, distributions, compilers, and the host's settings."""

import hashlib
import os
import platform
import subprocess
import sys
from typing import Any, Dict, Tuple

import numpy as np

from ..protocol import Launch

#: Facts of the system: the name, the file, and the start of the line that has it.
_SYSTEM_FILES = (
    ("microcode", "/proc/cpuinfo", "microcode"),
    ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", ""),
)


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
    """Return kernel, microcode and the CPUs' frequency governor, which may change between runs."""
    facts = {"kernel": platform.release()}
    for name, path, start in _SYSTEM_FILES:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line for line in file if line.startswith(start)]
        except OSError:
            continue
        if lines:
            facts[name] = lines[0].rpartition(":")[2].strip()
    return facts


def compiler(command: str) -> Tuple[str, str]:
    """Return the name and version of a compiler, and why it cannot be run; "" where it can."""
    try:
        output = subprocess.check_output([command, "--version"], stderr=subprocess.STDOUT)
    except (OSError, subprocess.CalledProcessError) as error:
        return "", "%s cannot be run: %s" % (command, error)
    return output.decode("utf-8", "replace").splitlines()[0].strip(), ""


def mark(words: str) -> str:
    """Return a short digest of these words.

    It separates the output of different compilers in a folder.
    """
    return hashlib.sha256(words.encode("utf-8")).hexdigest()[:8]


def settings_in_force(launch: Launch) -> Dict[str, Any]:
    """Return the mode's settings and the environment variables that the host set."""
    names = os.environ.get("DLBENCH_VARIABLES", "").split(",")
    variables = {name: os.environ[name] for name in names if name in os.environ}
    return {"mode_settings": launch.settings, "variables": variables}

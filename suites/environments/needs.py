"""What a framework's environment needs of this machine, looked at before anything is downloaded."""

import platform
import shutil
import sys
from pathlib import Path

from ..errors import SuiteError
from ..planning.framework import Framework
from . import apt, python_packages
from .debian import architecture, read_lock
from .folders import downloads, free_megabytes, used_megabytes
from .interpreters import find_python

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # the kernel's names and Debian's


def base_python(framework: Framework) -> Path | None:
    """Return an interpreter of a version that this framework can live in, None where there is none."""
    return next((found for version in framework.python if (found := find_python(version))), None)


def how_to_get_python(framework: Framework, bring: bool = True) -> str:
    """Return the sentence that tells how to get an interpreter this framework can live in.

    ``bring``: one that has the framework already is a way, too.
    """
    if not framework.python:
        where = 'as in python = ["3.11"], in framework.toml'
        return f"{framework.title} names no Python. Write the versions that it can live in, {where}."
    versions, newest = ", ".join(framework.python), framework.python[0]
    brought = f", or bring an interpreter that has it: --python {framework.name}=/path/to/python" if bring else ""
    return (
        f"{framework.title} needs a Python of version {versions}, and none is on PATH, under pyenv or under uv. "
        f"Install one (for example `uv python install {newest}`, `pyenv install {newest}` or your system's "
        f"python{newest} package){brought}."
    )


def missing(framework: Framework, directory: Path) -> str:
    """Return why this machine cannot have the framework's environment in ``directory``, with what to do; "" if it can.

    Asks no network: what it finds is known before the first byte is downloaded.
    """
    if framework.unavailable:
        return unavailable(framework)
    bring = f"Or bring an interpreter that has it: --python {framework.name}=/path/to/python."
    if framework.debian is not None:
        try:
            kind = architecture(read_lock(framework.directory / framework.debian.lock))
        except SuiteError as error:
            return str(error)
        here = _ARCHITECTURES.get(platform.machine(), platform.machine())
        if sys.platform != "linux" or kind not in ("", here):
            this = f"{sys.platform} on {here}"
            return f"{framework.title} is not available here: its packages are for Linux on {kind}, this is {this}."
        reason = apt.missing()
        if reason:
            return f"{framework.title} is not available here: {reason} {bring}"
    if framework.python and base_python(framework) is None:
        return how_to_get_python(framework)
    for program in framework.programs:
        if shutil.which(program) is None:
            lacking = f"it needs {program}, which is not on PATH. Install it."
            return f"{framework.title} is not available here: {lacking} {bring}"
    return _room(framework, directory)


def unavailable(framework: Framework) -> str:
    """Return the sentence for a framework that nobody can have any more."""
    stands = f" {framework.successor} takes its place." if framework.successor else ""
    return f"{framework.title} is not available: {framework.unavailable}{stands}"


def _room(framework: Framework, directory: Path) -> str:
    free = free_megabytes(directory)
    needed = framework.disk_megabytes
    hashed = not framework.interpreter and python_packages.is_hashed(framework.lock_file)
    if hashed or framework.debian is not None:  # what was downloaded then lies beside the environment until it is ready
        needed += framework.download_megabytes
    if free is None or free >= needed:
        return ""
    if free + used_megabytes(downloads(directory)) + used_megabytes(directory) >= needed:  # of an interrupted build
        return ""
    return (
        f"{framework.title} is not available here: it needs about {needed} MB and {directory.parent} has {free:.0f} MB "
        "free. Free some, or set DLBENCH_HOME to a folder on a larger disk."
    )

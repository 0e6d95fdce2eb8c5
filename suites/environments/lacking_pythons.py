"""Frameworks that cannot be built on this machine for lack of a Python, and how to get it."""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence

from ..planning.framework import Framework
from .environment import State, base_python, locate

_INSTALLERS = ("uv python install", "pyenv install")


def lack_python(frameworks: Iterable[Framework]) -> list[Framework]:
    """Return the frameworks that are not built, and for which this machine has no Python."""
    lacking = []
    for framework in frameworks:
        if framework.unavailable or not framework.python:
            continue
        unavailable = locate(framework).state is State.UNAVAILABLE
        if unavailable and base_python(framework) is None:
            lacking.append(framework)
    return lacking


def version_for(frameworks: Sequence[Framework]) -> str:
    """Return the version of Python that serves most of these frameworks."""
    served = Counter(version for framework in frameworks for version in framework.python)
    return max(served, key=served.__getitem__)


def command_for(version: str) -> str:
    """Return the command that installs this version: by uv or pyenv, whichever is on PATH."""
    commands = [f"`{installer} {version}`" for installer in _INSTALLERS]
    for installer, command in zip(_INSTALLERS, commands, strict=True):
        if shutil.which(installer.split()[0]):
            return command
    return " or ".join(commands)

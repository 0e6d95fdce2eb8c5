"""Adapters that live outside dlbench: named on the command line, in DLBENCH_ADAPTERS, or by an installed package.

    dlbench run quick --adapter my_framework=path/to/folder
    DLBENCH_ADAPTERS=my_framework=path/to/folder:other=another/folder
    [project.entry-points."dlbench.adapters"]        in an installed package's pyproject.toml
    my_framework = "my_package.dlbench_adapter"      the package that is the adapter's folder

The folder is what an adapter's folder in ``adapters/`` is; adapters/TUTORIAL.md says how to write one.
"""

import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path

from . import framework
from .errors import UsageError

GROUP = "dlbench.adapters"
VARIABLE = "DLBENCH_ADAPTERS"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def read(text: str, where: str) -> framework.Framework:
    """Return the framework meant by "my_framework=path/to/folder"; raises UsageError with what is wrong."""
    name, equals, path = text.partition("=")
    if not equals or not path or not _NAME.fullmatch(name):
        raise UsageError(
            f"{where} {text!r} cannot be read. Write NAME=FOLDER, the name in small letters, digits and underscores, "
            "for example my_framework=adapters/my_framework."
        )
    try:
        folder = Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{where}: {path} cannot be looked into: {error}.") from error
    for needed in ("framework.toml", "adapter.py"):
        if not (folder / needed).is_file():
            raise UsageError(f"{where}: {folder} has no {needed}. See adapters/TUTORIAL.md for what it must hold.")
    found = framework.read(folder / "framework.toml")
    if found.name != name:
        raise UsageError(f"{where}: {folder}/framework.toml describes {found.name!r}, not {name!r}. Use one name.")
    if name in framework.shipped():
        raise UsageError(f"{where}: {name} is the name of a framework that dlbench has. Choose another in {folder}.")
    return found


def register(texts: list[str] | None) -> list[str] | None:
    """Add the adapters named on the command line and in DLBENCH_ADAPTERS, and those of installed packages.

    For typer's callbacks: gives back what it was given. Raises UsageError for the first that will not do.
    """
    for each in _of_packages():
        framework.add(each)
    for text in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        framework.add(read(text, VARIABLE))
    for text in texts or []:
        framework.add(read(text, "--adapter"))
    return texts


def _of_packages() -> list[framework.Framework]:
    found = []
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            spec = importlib.util.find_spec(point.module)
        except ImportError:
            spec = None
        where = f"The installed package's entry point {point.name}"
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise UsageError(f"{where} names {point.module}, which is no package here. Reinstall or remove it.")
        found.append(read(f"{point.name}={places[0]}", where))
    return found

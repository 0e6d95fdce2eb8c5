"""The file of a training step that Python code names: a path, `module:prepare`, or the function.

Each launch is a fresh process, which imports the file and calls its ``prepare``. So a function
counts only if it is the `prepare` at the top level of a file, and the file still has the code that
the function was made from.
"""

import importlib.util
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from ..errors import UsageError

Step = str | os.PathLike[str] | Callable[..., Any]
"""A path, "module:prepare", or the function."""
PREPARE = "prepare"
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(\w+)")
_REMEDY = (
    "Write it into a file (in a notebook, with `%%writefile train_step.py` as the first line of "
    'its cell), and pass "train_step.py".'
)


def file_of(step: Step) -> str:
    """Return the path of a step's file. Raises UsageError where none can be measured honestly."""
    if isinstance(step, str | os.PathLike):
        path = os.fspath(step)
        named = _MODULE.fullmatch(path)
        return path if named is None else _file_of_module(named[1], named[2])
    if not inspect.isfunction(step):
        raise UsageError(
            f"A step is a file, {PREPARE!r} of a module, or that function, not "
            f"{type(step).__name__}. {_REMEDY}"
        )
    return _file_of_function(step)


def is_step(value: object) -> bool:
    """Tell whether a value names a step, and not a stored run: a file ending in .py, or a function.

    Raises no error.
    """
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        return path.endswith(".py") or path.endswith(f":{PREPARE}")
    return callable(value)


def _file_of_module(module: str, function: str) -> str:
    """Return the file of a module, which is found and not imported. Raises UsageError."""
    if function != PREPARE:
        raise UsageError(
            f"{module}:{function} cannot be measured: a launch calls the function {PREPARE} of a "
            f"file. Rename it, or write a file whose {PREPARE} calls it."
        )
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise UsageError(
            f"{module}:{function} names no module with a file. Give the path of the file instead."
        )
    return spec.origin


def _file_of_function(step: Callable[..., Any]) -> str:
    """Return the file that a function was read from. Raises UsageError."""
    code: CodeType = inspect.unwrap(step).__code__
    name = code.co_qualname
    path = Path(code.co_filename)
    if not path.is_file():
        raise UsageError(
            f"{step.__name__} was defined in a notebook or at a prompt, and a launch is a fresh "
            f"process, which has none of its variables. {_REMEDY}"
        )
    if "<" in name:
        raise UsageError(
            f"{step.__qualname__} is defined inside another function, and a launch is a fresh "
            f"process, which has none of its variables. {_REMEDY}"
        )
    if name != PREPARE:
        raise UsageError(
            f"{name} of {path.name} cannot be measured: a launch calls the function {PREPARE} of a "
            f"file. Rename it, or write a file whose {PREPARE} calls it."
        )
    if code not in _functions_of(path):
        raise UsageError(
            f"{path.name} has changed since {PREPARE} was imported, and launches would measure the "
            "file as it is now. Import it again, or pass the path of the file."
        )
    return str(path)


def _functions_of(path: Path) -> list[CodeType]:
    """Return the code of the functions `prepare` at the top level of a file; none if it is not
    Python.
    """
    try:
        module = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return []
    constants = [constant for constant in module.co_consts if isinstance(constant, CodeType)]
    return [constant for constant in constants if constant.co_qualname == PREPARE]

"""Environment variables of launches: inherited, given with --env, or not passed on.

A number must not depend on the shell that dlbench was started from. A launch therefore gets a few
variables of the shell (`INHERITED`), those that follow from its cell (threads, mode, settings), and
those that the user gives.
"""

import ast
import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from dlbench.adapters.protocol import HOST_LINE
from dlbench.hardware_probe.doctor import TELLING_VARIABLES

from ..errors import UsageError
from .framework import Framework

OPTION = "--env"
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "TZ")
"""Variables of the shell that every launch gets."""
LAUNCH_MARK = "DLBENCH_LAUNCH"
"""The variable by which the processes of a launch are known, in whatever session they are."""
GIVEN_NAMES = "DLBENCH_VARIABLES"
"""The variable with the names of those that dlbench sets for a launch."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile("KEY|TOKEN(?!IZ)|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_RESERVED = {
    "CUDA_VISIBLE_DEVICES": (
        "dlbench chooses the GPU of each launch. Name it with --devices, as in --devices cuda:1, "
        "or set the variable in the shell, where dlbench reads it."
    ),
    "CUDA_DEVICE_ORDER": (
        "dlbench chooses the GPU of each launch. Name it with --devices, as in --devices cuda:1."
    ),
    "TMPDIR": (
        "each launch has a folder of its own for temporary files. Set TMPDIR in the shell: dlbench "
        "makes these folders there."
    ),
    **dict.fromkeys(
        (HOST_LINE, LAUNCH_MARK, GIVEN_NAMES), "dlbench needs this variable itself. Leave it out."
    ),
}
"""Variables that cannot be given, with the reason and the way to the same end."""
_EFFECTIVE = ("CUDA_VISIBLE_DEVICES", *INHERITED)
"""Variables of the shell that have their effect without being given."""
_READ_BY_OWN_CODE = (
    "HF_*",
    "HUGGINGFACE_*",
    "KERAS_*",
    "PYTHONHASHSEED",
    "PYTHONMALLOC",
    "PYTHONPATH",
    "TFDS_*",
    "TOKENIZERS_PARALLELISM",
    "TRANSFORMERS_*",
)
"""Patterns of variables that only a user's own step or adapter reads.

The networks of dlbench use no such library."""
_MOST_NAMES = 4


def is_secret(name: str) -> bool:
    """Tell whether a variable of this name may hold a secret: its value is not stored or shown."""
    return _SECRET.search(name) is not None


def read(words: Sequence[str], option: str = OPTION) -> dict[str, str]:
    """Return the variables that these words give: NAME=VALUE, or NAME with the shell's value.

    Folders in PYTHONPATH become absolute, since a launch runs in another folder. Raises UsageError.
    """
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{word[:60]!r} is not an environment variable. Write NAME=VALUE, as in "
                "OMP_WAIT_POLICY=passive."
            )
        if name in _RESERVED:
            raise UsageError(f"{option} {name}: {_RESERVED[name]}")
        if name in given:
            raise UsageError(f"{option} gives {name} twice. Leave one of them out.")
        if not equals and name not in os.environ:
            raise UsageError(
                f"{option} {name}: {name} is not set in this shell. Set it there, or write "
                "NAME=VALUE."
            )
        if not equals:
            value = os.environ[name]
        if "\0" in value:
            raise UsageError(
                f"The value of {name} contains a NUL byte, which environment variables cannot hold."
            )
        if name == "PYTHONPATH":
            folders = [Path(folder) for folder in value.split(os.pathsep) if folder]
            value = os.pathsep.join(str(folder.expanduser().absolute()) for folder in folders)
        given[name] = value
    return given


def command_words(given: Mapping[str, str]) -> list[str]:
    """Return the words that give these variables in another command.

    A secret's value is to come from the shell of that command.
    """
    words: list[str] = []
    for name, value in given.items():
        words.append(OPTION)
        if is_secret(name):
            words.append(name)
        else:
            words.append(f"{name}={value}")
    return words


def contradiction(
    given: Mapping[str, str],
    framework: Framework,
    mode: str,
    threads: int,
    settings: Iterable[str] = (),
    option: str = OPTION,
) -> str:
    """Return why these variables contradict an axis of a cell; empty: they do not.

    The axes are threads, mode and settings in force. A cell would otherwise be shown under a value
    of the axis that its launches did not have.
    """
    variables_of_mode: Mapping[str, str] = {}
    if mode in framework.modes:
        variables_of_mode = framework.modes[mode].variables
    setting_by_variable: dict[str, str] = {}
    for setting in settings:
        for name in framework.setting(setting).variables:
            setting_by_variable[name] = setting
    for name, value in given.items():
        shown_value = "***" if is_secret(name) else value[:60]
        words = f"{option} {name}={shown_value}"
        if name in thread_variables(framework, mode):
            if threads and value != str(threads):
                return (
                    f"{words}: dlbench sets {name} from the thread count of each cell. Give "
                    f"--threads {value[:20]} instead. With --threads default it sets no count, and "
                    "launches get the value given."
                )
        elif name in setting_by_variable:
            setting = setting_by_variable[name]
            if value != framework.setting(setting).variables[name]:
                return (
                    f"{words}: the setting {setting} of {framework.name} sets {name} too. Measure "
                    f"without the setting, as in --tuning installed, or leave {name} out."
                )
        elif name in variables_of_mode and value != variables_of_mode[name]:
            return (
                f"{words}: {framework.name} in the mode {mode} needs "
                f"{name}={variables_of_mode[name]}. Choose another mode with --frameworks "
                f"{framework.name}:MODE, or leave {name} out."
            )
    return ""


def thread_variables(framework: Framework, mode: str) -> frozenset[str]:
    """Return the names of the variables that dlbench sets from a cell's thread count."""
    variables = dict(framework.variables)
    if mode in framework.modes:
        variables.update(framework.modes[mode].variables)
    return frozenset(name for name, value in variables.items() if "{threads}" in value)


def left_behind(
    given: Collection[str], frameworks: Iterable[Framework], of_threads: Collection[str] = ()
) -> str:
    """Return a sentence with the shell's variables that frameworks read and launches do not get.

    It is empty if there are none. Of a user's own step, these are also the variables that its file
    names. ``of_threads`` are set by dlbench from thread counts.
    """
    rows = list(frameworks)
    patterns = list(TELLING_VARIABLES)
    if any(row.external for row in rows):
        patterns += _READ_BY_OWN_CODE
    else:
        patterns.remove("PYTHONPATH")
    telling = re.compile("|".join(map(fnmatch.translate, patterns)))
    read_by: dict[str, str] = {}
    for file in {row.file for row in rows if row.file is not None}:
        for name in names_read(file):
            read_by.setdefault(name, file.name)
    shown = []
    passable = []
    counts = []
    for name in sorted(os.environ):
        if not os.environ[name] or name in given or name in _EFFECTIVE or name in _RESERVED:
            continue
        is_telling = telling.fullmatch(name) and not name.endswith("_VERSION")
        if name in read_by:
            shown.append(f"{name} (read by {read_by[name]})")
        elif is_telling:
            shown.append(name)
        else:
            continue
        if name in of_threads:
            counts.append(name)
        else:
            passable.append(name)
    if not shown:
        return ""
    several = len(shown) > 1
    if len(shown) > _MOST_NAMES:
        shown[_MOST_NAMES:] = [f"{len(shown) - _MOST_NAMES} more"]
    listed = shown[0]
    verb = "is set in this shell and is"
    if several:
        listed = f"{', '.join(shown[:-1])} and {shown[-1]}"
        verb = "are set in this shell and are"
    ways = []
    if passable and not several:
        ways.append(f"{OPTION} {passable[0]} passes it on")
    elif passable:
        ways.append(f"{OPTION} NAME passes one on")
    if counts:
        ways.append(f"dlbench sets {' and '.join(counts)} from --threads")
    return f"{listed} {verb} not passed to launches: {', and '.join(ways)}."


def names_read(file: Path) -> frozenset[str]:
    """Return the environment variables that a Python file reads, written as constants."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()  # its launch says what is wrong with it
    names = {_name_read(node) for node in ast.walk(tree)}
    return frozenset(names - {""})


def _name_read(node: ast.AST) -> str:
    """Return the variable that an expression reads; empty if it reads none.

    Such as os.environ["X"], os.environ.get("X") and os.getenv("X").
    """
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "environ":
        key = node.slice
    elif isinstance(node, ast.Compare) and _last_name(node.comparators[0]) == "environ":
        key = node.left
    elif isinstance(node, ast.Call) and node.args:
        function = node.func
        is_method = isinstance(function, ast.Attribute) and _last_name(function.value) == "environ"
        if is_method or _last_name(function) == "getenv":
            key = node.args[0]
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    return ""


def _last_name(node: ast.expr) -> str:
    """Return the last name of an expression: "environ" for `os.environ` and for `environ`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""

"""Environment variables of launches: inherited ones, those given with --env, and those that a
launch does not get.

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
_OF_DLBENCH = {
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
_HEEDED = ("CUDA_VISIBLE_DEVICES", *INHERITED)
"""Variables of the shell that have their effect without being given."""
_OF_OWN_CODE = (
    *("HF_*", "HUGGINGFACE_*", "KERAS_*", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONPATH"),
    *("TFDS_*", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_*"),
)
"""Patterns of variables that only a user's own step or adapter reads: networks of dlbench's use no
such library."""
_MOST_NAMES = 4


def is_secret(name: str) -> bool:
    """Tell whether a variable of this name may hold a secret, whose value is neither stored nor
    shown.
    """
    return _SECRET.search(name) is not None


def read(words: Sequence[str], option: str = OPTION) -> dict[str, str]:
    """Return the variables that these words give: NAME=VALUE, or NAME, which takes the value from
    the shell.

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
        if name in _OF_DLBENCH:
            raise UsageError(f"{option} {name}: {_OF_DLBENCH[name]}")
        if name in given:
            raise UsageError(f"{option} gives {name} twice. Leave one of them out.")
        if not equals and name not in os.environ:
            raise UsageError(
                f"{option} {name}: {name} is not set in this shell. Set it there, or write "
                "NAME=VALUE."
            )
        value = value if equals else os.environ[name]
        if "\0" in value:
            raise UsageError(
                f"The value of {name} contains a NUL byte, which environment variables cannot hold."
            )
        given[name] = _absolute(value) if name == "PYTHONPATH" else value
    return given


def _absolute(folders: str) -> str:
    return os.pathsep.join(
        str(Path(folder).expanduser().absolute()) for folder in folders.split(os.pathsep) if folder
    )


def command_words(given: Mapping[str, str]) -> list[str]:
    """Return the words that give these variables in another command; a secret's value is to come
    from its shell.
    """
    words: list[str] = []
    for name, value in given.items():
        words += [OPTION, name if is_secret(name) else f"{name}={value}"]
    return words


def contradiction(
    given: Mapping[str, str],
    framework: Framework,
    mode: str,
    threads: int,
    settings: Iterable[str] = (),
    option: str = OPTION,
) -> str:
    """Return why these variables contradict an axis of a cell (threads, mode, settings in force);
    empty: they do not.

    A cell would otherwise be shown under a value of the axis that its launches did not have.
    """
    of_mode = framework.modes[mode].variables if mode in framework.modes else {}
    of_settings = {
        name: setting for setting in settings for name in framework.setting(setting).variables
    }
    for name, value in given.items():
        what = f"{option} {name}={'***' if is_secret(name) else value[:60]}"
        if name in of_thread_counts(framework, mode):
            if threads and value != str(threads):
                return (
                    f"{what}: dlbench sets {name} from the thread count of each cell. Give "
                    f"--threads {value[:20]} instead. With --threads default it sets no count, and "
                    "launches get the value given."
                )
        elif name in of_settings:
            setting = of_settings[name]
            if value != framework.setting(setting).variables[name]:
                return (
                    f"{what}: the setting {setting} of {framework.name} sets {name} too. Measure "
                    f"without the setting, as in --tuning installed, or leave {name} out."
                )
        elif name in of_mode and value != of_mode[name]:
            return (
                f"{what}: {framework.name} in the mode {mode} needs {name}={of_mode[name]}. Choose "
                f"another mode with --frameworks {framework.name}:MODE, or leave {name} out."
            )
    return ""


def of_thread_counts(framework: Framework, mode: str) -> frozenset[str]:
    """Return the names of the variables that dlbench sets from a cell's thread count."""
    of_mode = framework.modes[mode].variables if mode in framework.modes else {}
    return frozenset(
        name for name, value in {**framework.variables, **of_mode}.items() if "{threads}" in value
    )


def left_behind(
    given: Collection[str], frameworks: Iterable[Framework], of_threads: Collection[str] = ()
) -> str:
    """Return a sentence with the variables of this shell that frameworks read and launches do not
    get; else empty.

    Of a user's own step, these are also the variables that its file names. ``of_threads`` are set
    by dlbench from thread counts.
    """
    rows = list(frameworks)
    patterns = list(TELLING_VARIABLES)
    if any(row.external for row in rows):
        patterns += _OF_OWN_CODE
    else:
        patterns.remove("PYTHONPATH")
    telling = re.compile("|".join(map(fnmatch.translate, patterns)))
    read_by: dict[str, str] = {}
    for file in {row.file for row in rows if row.file is not None}:
        for name in names_read(file):
            read_by.setdefault(name, file.name)
    names = [
        name
        for name in sorted(os.environ)
        if os.environ[name]
        and name not in given
        and name not in _HEEDED
        and name not in _OF_DLBENCH
        if name in read_by or (telling.fullmatch(name) and not name.endswith("_VERSION"))
    ]
    if not names:
        return ""
    shown = [
        f"{name} (read by {read_by[name]})" if name in read_by else name
        for name in names[:_MOST_NAMES]
    ]
    if len(names) > _MOST_NAMES:
        shown.append(f"{len(names) - _MOST_NAMES} more")
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    verb = "is set in this shell and is" if len(names) == 1 else "are set in this shell and are"
    ways = []
    passable = [name for name in names if name not in of_threads]
    counts = [name for name in names if name in of_threads]
    if passable:
        ways.append(
            f"{OPTION} {passable[0]} passes it on"
            if len(names) == 1
            else f"{OPTION} NAME passes one on"
        )
    if counts:
        ways.append(f"dlbench sets {' and '.join(counts)} from --threads")
    return f"{listed} {verb} not passed to launches: {', and '.join(ways)}."


def names_read(file: Path) -> frozenset[str]:
    """Return the names of the environment variables that a Python file reads, where they are
    written as constants.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (
        OSError,
        SyntaxError,
        ValueError,
        RecursionError,
        MemoryError,
    ):  # its launch says what is wrong with it
        return frozenset()
    return frozenset(filter(None, map(_name_read, ast.walk(tree))))


def _name_read(node: ast.AST) -> str:
    """Return the variable that an expression reads: os.environ["X"], os.environ.get("X"),
    os.getenv("X"), and such.
    """
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and _called(node.value) == "environ":
        key = node.slice
    elif isinstance(node, ast.Compare) and _called(node.comparators[0]) == "environ":
        key = node.left
    elif isinstance(node, ast.Call) and node.args:
        of_environ = isinstance(node.func, ast.Attribute) and _called(node.func.value) == "environ"
        if of_environ or _called(node.func) == "getenv":
            key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _called(node: ast.expr) -> str:
    """Return the last name of an expression: "environ" for `os.environ` and for `environ`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

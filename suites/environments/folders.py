"""Folders for everything that dlbench builds and downloads for this user."""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

from dlbench.hardware_probe import probe_cpu

from ..errors import FrameworkEnvironmentError
from ..planning.framework import Framework

MEGABYTE = 1_000_000
NO_ROOM = "no space is left. Free some, or set DLBENCH_HOME to a folder on a larger disk."
_REMEDY = "Set DLBENCH_HOME to a folder with room that you may write to."


def given_path(text: str) -> Path:
    """Return a path that a variable gives, absolute: programs that take it run in other folders."""
    # Path's own raises where there is no such user
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111


def home() -> Path:
    """Return the folder of everything dlbench keeps for this user (DLBENCH_HOME overrides it)."""
    given = os.environ.get("DLBENCH_HOME")
    return given_path(given) if given else platformdirs.user_cache_path("dlbench").absolute()


def fleets() -> Path:
    """Return the folder of fleets' descriptions and logs, a folder for each fleet: not a cache."""
    given = os.environ.get("DLBENCH_HOME")
    folder = given_path(given) if given else platformdirs.user_state_path("dlbench").absolute()
    return folder / "fleets"


@functools.cache
def processor() -> str:
    """Return a short name for this kind of processor: its model and its instruction sets."""
    cpu = probe_cpu()
    kind = (
        cpu.architecture,
        cpu.vendor,
        cpu.family,
        cpu.model_number,
        cpu.model,
        cpu.instruction_sets,
    )
    return hashlib.sha256(repr(kind).encode()).hexdigest()[:8]


def cache_directory(framework: Framework) -> Path:
    """Return the folder where this framework's adapter may cache costly results.

    These are results such as compiled programs. Each kind of processor has its own folder: machines
    may share a home, and programs are compiled for the one they run on.
    """
    return home() / "cache" / framework.name / processor()


def downloads(environment: Path) -> Path:
    """Return the folder of downloads for an environment that is not ready yet."""
    return home() / "downloads" / environment.name


def exists(path: Path) -> bool:
    """Return whether a path can be seen; not one in a folder that this user may not enter."""
    return os.path.exists(path)  # noqa: PTH110 - Path's own raises for such a folder


def make_folder(folder: Path) -> Path:
    """Make a folder of dlbench's own and return it; raises FrameworkEnvironmentError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"The folder {folder} cannot be made: {error.strerror}. {_REMEDY}"
        ) from error
    return folder


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Raise FrameworkEnvironmentError where dlbench's own folder cannot be written."""
    try:
        yield
    except TimeoutError:
        raise  # filelock's, where another process holds the lock
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"{folder} cannot be written: {error.strerror or error}. {_REMEDY}"
        ) from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all.

    That holds even if this process is killed or another writes the file at the same time.
    """
    path = path.resolve()  # a symbolic link is followed
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remembered(file: Path, key: str, stamp: str, find: Callable[[], str]) -> str:
    """Return the answer for a key from a file of answers, found again if its stamp has changed."""
    answers: dict[str, list[str]] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        answers = dict(json.loads(file.read_text(encoding="utf-8")))
        if answers[key][0] == stamp:
            return str(answers[key][1])
    answer = find()
    with contextlib.suppress(OSError):  # a home that cannot be written: it is found each time
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps({**answers, key: [stamp, answer]}))
    return answer

"""Where dlbench keeps what it builds and downloads for this user."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from ..errors import FrameworkEnvironmentError
from ..planning.framework import Framework
from .processor_kernels import processor

MEGABYTE = 1_000_000


def given_path(text: str) -> Path:
    """Return a path that a variable gives, absolute: programs that take it run in other folders."""
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - Path's own raises where there is no such user


def home() -> Path:
    """Return the folder of everything dlbench keeps for this user (DLBENCH_HOME overrides it)."""
    given = os.environ.get("DLBENCH_HOME")
    return given_path(given) if given else platformdirs.user_cache_path("dlbench").absolute()


def fleets() -> Path:
    """Return the folder of fleets' descriptions and logs, a folder for each fleet: not a cache."""
    given = os.environ.get("DLBENCH_HOME")
    return (given_path(given) if given else platformdirs.user_state_path("dlbench").absolute()) / "fleets"


def caches(framework: Framework) -> Path:
    """Return the folder of all that this framework's adapter keeps, whatever the processor."""
    return home() / "cache" / framework.name


def cache_directory(framework: Framework) -> Path:
    """Return the folder where this framework's adapter may keep what is costly to derive, such as compiled programs.

    Each kind of processor has its own: machines may share a home, and programs are compiled for the one they run on.
    """
    return caches(framework) / processor()


def downloads(environment: Path) -> Path:
    """Return the folder of what was downloaded for an environment, named by its folder, that is not ready yet."""
    return home() / "downloads" / environment.name


def make_folder(folder: Path) -> Path:
    """Make a folder of dlbench's own and return it; raises FrameworkEnvironmentError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"The folder {folder} cannot be made: {error.strerror}. "
            "Set DLBENCH_HOME to a folder with room that you may write to."
        ) from error
    return folder


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Raise FrameworkEnvironmentError for what cannot be written below a folder of dlbench's own within."""
    try:
        yield
    except TimeoutError:
        raise  # filelock's, of a lock that another holds
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"{folder} cannot be written: {error.strerror or error}. "
            "Set DLBENCH_HOME to a folder with room that you may write to."
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, whatever ends this process and whoever writes it at the same time."""
    path = path.resolve()  # a symbolic link is followed
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def free_megabytes(folder: Path) -> float | None:
    """Return the room on the disk that this folder lies on or would lie on; None where nobody can tell."""
    for candidate in (folder, *folder.parents):
        try:
            return shutil.disk_usage(candidate).free / MEGABYTE
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def used_megabytes(folder: Path) -> float:
    """Return what the files of this folder take; 0 where there is none."""
    used = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # another process may be removing it
                used += Path(place, name).lstat().st_size
    return used / MEGABYTE

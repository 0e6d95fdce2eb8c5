"""Where dlbench keeps what it builds and downloads for this user."""

import os
import shutil
from pathlib import Path

import platformdirs

from ..errors import FrameworkEnvironmentError
from ..framework import Framework

MEGABYTE = 1_000_000


def home() -> Path:
    """Return the folder of everything dlbench keeps for this user (DLBENCH_HOME overrides it)."""
    return Path(os.environ.get("DLBENCH_HOME") or platformdirs.user_cache_path("dlbench"))


def cache_directory(framework: Framework) -> Path:
    """Return the folder where this framework's adapter may keep what is costly to derive."""
    return home() / "cache" / framework.name


def downloads(framework: Framework) -> Path:
    """Return the folder of what was downloaded for an environment that is not ready yet."""
    return home() / "downloads" / framework.name


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
    """Return what the files of this folder take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / MEGABYTE

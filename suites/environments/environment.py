"""Environments: for each framework an interpreter of its own with exactly what its locks name.

An environment lies in the user's cache under a name made of its framework and a digest of its locks, so a changed
lock is another environment. It counts as built once its manifest, written last, is there: whatever was interrupted
before is half-built and is made anew. What a lock names by checksum is verified as it comes, kept by an interrupted
build and fetched no second time; what is locked by version alone is left to pip.
"""

import fcntl
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import filelock

from ..errors import FrameworkEnvironmentError, SuiteError
from ..planning.framework import Framework
from . import debian, needs, python_packages
from .debian import Draw
from .folders import caches, downloads, home, make_folder, write_whole
from .interpreters import MANIFEST, inspect

Report = Callable[[str], None]
_PATIENCE = 2.0  # seconds that removing waits for a build to end


class State(StrEnum):
    """Whether an environment can be used."""

    READY = "ready"
    NOT_BUILT = "not built"
    HALF_BUILT = "half-built"
    BEING_BUILT = "being built"  # by another process
    UNAVAILABLE = "unavailable"  # this machine lacks something, or nobody can have it any more


@dataclass(frozen=True)
class Environment:
    """A framework's environment on this machine, built or not."""

    framework: Framework
    directory: Path
    state: State
    interpreter: Path | None  # the environment's own; None until it is ready
    reason: str = ""


def _directory(framework: Framework) -> Path:
    digest = hashlib.sha256()
    for file in framework.recipe_files:
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise SuiteError(
                f"{file}, which {framework.name}'s framework.toml names, cannot be read: {error.strerror}."
            ) from error
    if framework.debian is not None:
        digest.update(json.dumps(sorted(framework.debian.links.items())).encode())
    return home() / "environments" / f"{framework.name}-{digest.hexdigest()[:8]}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # of a folder on the way: what cannot be looked into is not there
        return False


def _lock(directory: Path, patience: float = -1) -> filelock.FileLock:
    """Return the lock of whoever builds or removes an environment; a negative patience (seconds) waits for ever."""
    return filelock.FileLock(f"{directory}.lock", timeout=patience)


def _is_being_built(directory: Path) -> bool:
    """Tell whether somebody holds the environment's lock."""
    try:
        with Path(f"{directory}.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not see each other
    except BlockingIOError:
        return True
    except OSError:  # there is none, or it is not for this user
        return False
    return False


def locate(framework: Framework) -> Environment:
    """Return the framework's environment as it is now: of its locks that of the first that there is a Python for."""
    found = _locate(framework.by_lock[0])
    for each in framework.by_lock[1:]:
        if found.state is not State.UNAVAILABLE or needs.base_python(found.framework) is not None:
            break
        found = _locate(each)
    return found


def _locate(framework: Framework) -> Environment:
    if framework.unavailable:
        directory = home() / "environments" / framework.name
        return Environment(framework, directory, State.UNAVAILABLE, None, needs.unavailable(framework))
    if framework.environment == "host":
        return Environment(framework, Path(sys.prefix), State.READY, Path(sys.executable))
    try:
        directory = _directory(framework)
    except SuiteError as error:  # of an adapter that is being written: the others can be used
        return Environment(framework, framework.directory, State.UNAVAILABLE, None, str(error))
    interpreter = directory / "bin" / "python"
    if _is_there(directory / MANIFEST) and _is_there(interpreter):
        return Environment(framework, directory, State.READY, interpreter)
    command = f"`dlbench env build {framework.name}`"
    if _is_being_built(directory):
        state, reason = State.BEING_BUILT, "Another process builds it now."
    elif _is_there(directory):
        state, reason = State.HALF_BUILT, f"Its build was interrupted. {command} makes it anew."
    elif reason := needs.missing(framework, directory):
        state = State.UNAVAILABLE
    else:
        state, reason = State.NOT_BUILT, f"{command} builds it."
    return Environment(framework, directory, state, None, reason)


def announce(framework: Framework) -> str:
    """Return the line that says what building will download and where it goes."""
    return (
        f"{framework.title}: downloads about {framework.download_megabytes} MB, takes about "
        f"{framework.disk_megabytes} MB in {locate(framework).directory}"
    )


def build(framework: Framework, report: Report = lambda line: None, draw: Draw = lambda line: None) -> Environment:
    """Build the framework's environment unless it is ready, and return it.

    ``report`` takes the lines that stay, ``draw`` those that tell how far it is and may be overwritten by the next.
    Raises FrameworkEnvironmentError, with what to do, when this machine lacks something, the folder cannot be written,
    or a package cannot be had or is not what the lock says; nothing half-built is left behind.
    """
    current = locate(framework)
    if current.state is State.READY:
        # Of a build that was killed when it had all but this to do.
        shutil.rmtree(downloads(current.directory), ignore_errors=True)
        return current
    framework, directory = current.framework, current.directory
    reason = current.reason if current.state is State.UNAVAILABLE else needs.missing(framework, directory)
    if reason:
        raise FrameworkEnvironmentError(reason)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _lock(directory):
            if locate(framework).state is State.READY:
                return locate(framework)
            shutil.rmtree(directory, ignore_errors=True)
            try:
                _install(framework, directory, report, draw)
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            shutil.rmtree(downloads(directory), ignore_errors=True)
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"The environment of {framework.title} cannot be written to {directory}: {error.strerror or error}. "
            "Set DLBENCH_HOME to a folder with room that you may write to."
        ) from error
    return locate(framework)


def _install(framework: Framework, directory: Path, report: Report, draw: Draw) -> None:
    log = directory.with_name(directory.name + ".log")
    log.unlink(missing_ok=True)  # an earlier attempt's words would be taken for this one's
    kept = make_folder(downloads(directory))
    packages: dict[str, str] = {}
    if not framework.interpreter:
        python = needs.base_python(framework)
        assert python is not None  # looked at before
        report(f"{framework.title}: making an environment with {python}, {framework.lock_file.name} (log: {log})")
        python_packages.install(framework, python, directory, kept, log, draw)
    if framework.debian is not None:
        report(
            f"{framework.title}: packages of Debian {framework.debian.release}, {framework.debian.lock} (log: {log})"
        )
        packages = debian.install(framework, directory, kept, log, draw)
    if framework.interpreter:
        start = directory / "bin" / "python"
        start.parent.mkdir(parents=True)
        shutil.copyfile(framework.directory / framework.interpreter, start)
        start.chmod(0o755)
    inspection = inspect(directory / "bin" / "python", (framework.imports,))
    if inspection.missing:
        raise FrameworkEnvironmentError(
            f"The environment of {framework.title} was installed but lacks the module {framework.imports}."
        )
    manifest = {
        "framework": framework.name,
        "python": inspection.version,
        "distributions": inspection.distributions,
        "debian": packages,
    }
    write_whole(directory / MANIFEST, json.dumps(manifest, indent=1))
    report(f"{framework.title}: ready")


def _names(framework: Framework) -> list[str]:
    """Return the names of all environments of this framework, whatever its locks were when they were made."""
    pattern = re.compile(re.escape(framework.name) + r"-[0-9a-f]{8}")
    folders = (home() / "environments", home() / "downloads")
    found = {entry.name.removesuffix(".lock") for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return sorted(name for name in found if pattern.fullmatch(name))


def remove(framework: Framework) -> bool:
    """Remove the framework's environments, their downloads and its adapter's cache; False where there was none.

    Raises FrameworkEnvironmentError where one is being built now, before anything is removed, or cannot be removed.
    """
    if framework.unavailable:
        return False
    if framework.environment == "host":
        raise FrameworkEnvironmentError(f"{framework.name} uses dlbench's own environment; there is nothing to remove.")
    try:
        with ExitStack() as locks:
            environments = [home() / "environments" / name for name in _names(framework)]
            for directory in environments:
                directory.parent.mkdir(parents=True, exist_ok=True)
                # The lock's file stays: who waits for it and who comes later must mean the same file.
                locks.enter_context(_lock(directory, _PATIENCE))
            folders = [caches(framework), *environments, *map(downloads, environments)]
            there = [folder for folder in folders if folder.exists()]
            for folder in there:
                shutil.rmtree(folder)
            for directory in environments:
                directory.with_name(f"{directory.name}.log").unlink(missing_ok=True)
    except filelock.Timeout as error:
        raise FrameworkEnvironmentError(
            f"{framework.title} is being built now ({error.lock_file} is taken). Wait for the end of that build, then "
            f"`dlbench env remove {framework.name}`."
        ) from error
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"{framework.title} cannot be removed: {error.filename or home()}: {error.strerror or error}."
        ) from error
    return bool(there)

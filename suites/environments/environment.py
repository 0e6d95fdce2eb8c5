"""Environments: for each framework an interpreter of its own with exactly its locked requirements.

An environment is in the user's cache, named by its framework and a digest of its locks, so a
changed lock makes another environment. It counts as built once its manifest exists, which is
written last: an interrupted build is half-built, and is built again. Files that a lock names by
checksum are verified on download, and kept by an interrupted build; requirements locked by version
alone are left to pip.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import filelock

from ..display.screen import StatusLine, err
from ..errors import FrameworkEnvironmentError, SuiteError
from ..planning.framework import Framework
from ..planning.values import Build
from . import debian, packages
from .announcements import announcement
from .digests import build_digest
from .folders import MEGABYTE, downloads, exists, home, make_folder, write_whole, written
from .interpreters import MANIFEST, Inspection, find_python, inspect
from .packages import Draw

Say = Callable[[str], None]
_PATIENCE = 2.0  # seconds that removing waits for a build to end
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # the kernel's names and Debian's


class State(StrEnum):
    """Whether an environment can be used."""

    READY = "ready"
    NOT_BUILT = "not built"
    HALF_BUILT = "half-built"
    BEING_BUILT = "being built"  # by another process
    UNAVAILABLE = "unavailable"  # this machine lacks something, or dlbench has no adapter for it


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
                f"{file}, which {framework.name}'s framework.toml names, cannot be read: "
                f"{error.strerror}."
            ) from error
    if framework.debian is not None:
        digest.update(json.dumps(sorted(framework.debian.links.items())).encode())
    return home() / "environments" / f"{framework.name}-{digest.hexdigest()[:8]}"


def _is_being_built(directory: Path) -> bool:
    """Return whether another process holds the environment's lock."""
    # The lock may be missing, or closed to this user. It is shared: two who look do not see each
    # other.
    with suppress(OSError), Path(f"{directory}.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def locate(framework: Framework) -> Environment:
    """Return the framework's environment as it is now.

    It is that of the first of its locks that there is a Python for.
    """
    first, *others = framework.by_lock
    environment = _locate(first)
    for variant in others:
        if environment.state is not State.UNAVAILABLE:
            break
        if base_python(environment.framework) is not None:
            break
        environment = _locate(variant)
    return environment


def _locate(framework: Framework) -> Environment:
    if framework.unavailable:
        directory = home() / "environments" / framework.name
        reason = _why_unavailable(framework, directory)
        return Environment(framework, directory, State.UNAVAILABLE, None, reason)
    if framework.environment == "host":
        return Environment(framework, Path(sys.prefix), State.READY, Path(sys.executable))
    try:
        directory = _directory(framework)
    except SuiteError as error:  # of an adapter that is being written: the others can be used
        return Environment(framework, framework.directory, State.UNAVAILABLE, None, str(error))
    interpreter = directory / "bin" / "python"
    if exists(directory / MANIFEST) and exists(interpreter):
        return Environment(framework, directory, State.READY, interpreter)
    command = f"`dlbench env build {framework.name}`"
    if _is_being_built(directory):
        state, reason = State.BEING_BUILT, "Another process is building it."
    elif exists(directory):
        state, reason = State.HALF_BUILT, f"Its build was interrupted. {command} builds it again."
    else:
        state, reason = State.UNAVAILABLE, _why_unavailable(framework, directory)
        if not reason:
            state, reason = State.NOT_BUILT, f"{command} builds it."
    return Environment(framework, directory, state, None, reason)


def to_build(frameworks: Iterable[Framework]) -> list[Framework]:
    """Return the frameworks whose environments are not ready, and can be built."""
    usable = (State.READY, State.UNAVAILABLE)
    return [framework for framework in frameworks if locate(framework).state not in usable]


def build(
    framework: Framework, report: Say = lambda line: None, draw: Draw = lambda line: None
) -> Environment:
    """Build the framework's environment unless it is ready, and return it.

    ``report`` takes lines that stay, ``draw`` lines of progress that the next may overwrite. Raises
    FrameworkEnvironmentError, with the remedy, if this machine lacks something, the folder cannot
    be written, or a package is unavailable or does not match the lock. Nothing half-built is left
    behind.
    """
    current = locate(framework)
    if current.state is State.READY:
        # Left by a build that was killed just before its end.
        shutil.rmtree(downloads(current.directory), ignore_errors=True)
        return current
    framework = current.framework
    directory = current.directory
    reason = current.reason
    if current.state is not State.UNAVAILABLE:
        reason = _why_unavailable(framework, directory)
    if reason:
        raise FrameworkEnvironmentError(reason)
    with written(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{directory}.lock"):
            if locate(framework).state is State.READY:
                return locate(framework)
            shutil.rmtree(directory, ignore_errors=True)
            try:
                _install(framework, directory, report, draw)
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            shutil.rmtree(downloads(directory), ignore_errors=True)
    return locate(framework)


def _install(framework: Framework, directory: Path, report: Say, draw: Draw) -> None:
    log = directory.with_name(directory.name + ".log")
    log.unlink(missing_ok=True)  # so that an earlier attempt's output is not taken for this one's
    kept = make_folder(downloads(directory))
    from_debian: dict[str, str] = {}
    if not framework.interpreter:
        python = base_python(framework)
        assert python is not None  # looked at before
        report(
            f"{framework.title}: making an environment with {python}, {framework.lock_file.name} "
            f"(log: {log})"
        )
        packages.install(framework, python, directory, kept, log, draw)
    if framework.debian is not None:
        report(
            f"{framework.title}: packages of Debian {framework.debian.release}, "
            f"{framework.debian.lock} (log: {log})"
        )
        from_debian = debian.install(framework, directory, kept, log, draw)
    if framework.interpreter:
        start = directory / "bin" / "python"
        start.parent.mkdir(parents=True)
        shutil.copyfile(framework.directory / framework.interpreter, start)
        start.chmod(0o755)
    inspection = inspect(directory / "bin" / "python", (framework.imports,))
    if inspection.missing:
        raise FrameworkEnvironmentError(
            f"The environment of {framework.title} was installed but lacks the module "
            f"{framework.imports}."
        )
    manifest = {
        "framework": framework.name,
        "python": inspection.version,
        "distributions": inspection.distributions,
        "debian": from_debian,
        "megabytes": round(_used_megabytes(directory)),
    }
    write_whole(directory / MANIFEST, json.dumps(manifest, indent=1))
    report(f"{framework.title}: ready")


def remove(framework: Framework, releases: bool = False) -> bool:
    """Remove the framework's environments, their downloads and its adapter's cache.

    With ``releases`` remove those of its releases (`releases.build_release`) instead, and no cache.
    Return False if there was none. Raises FrameworkEnvironmentError where one is being built now,
    before anything is removed, or cannot be removed.
    """
    if framework.unavailable:
        return False
    if framework.environment == "host":
        raise FrameworkEnvironmentError(
            f"{framework.name} uses dlbench's own environment; there is nothing to remove."
        )
    try:
        with ExitStack() as locks:
            environments = _environment_folders(framework, releases)
            for directory in environments:
                directory.parent.mkdir(parents=True, exist_ok=True)
                # The lock file stays: present and later waiters must lock the same file.
                locks.enter_context(filelock.FileLock(f"{directory}.lock", timeout=_PATIENCE))
            caches = [] if releases else [home() / "cache" / framework.name]
            folders = [*caches, *environments, *map(downloads, environments)]
            present = [folder for folder in folders if folder.exists()]
            for folder in present:
                shutil.rmtree(folder)
            for directory in environments:
                directory.with_name(f"{directory.name}.log").unlink(missing_ok=True)
    except filelock.Timeout as error:
        raise FrameworkEnvironmentError(
            f"{framework.title} is being built now ({error.lock_file} is taken). Wait for that "
            "build to end, then run `dlbench env remove "
            f"{framework.name}{' --releases' if releases else ''}`."
        ) from error
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"{framework.title} cannot be removed: {error.filename or home()}: "
            f"{error.strerror or error}."
        ) from error
    return bool(present)


def _environment_folders(framework: Framework, releases: bool) -> list[Path]:
    """Return the folders of its environments, or of those of its releases.

    A folder may be missing where there are only its downloads or its lock file.
    """
    folder = home() / "environments"
    names: set[str] = set()
    for place in (folder, home() / "downloads"):
        if place.is_dir():
            names.update(path.name.removesuffix(".lock") for path in place.iterdir())
    pattern = _pattern(framework, releases)
    return [folder / name for name in sorted(names) if pattern.fullmatch(name)]


def _pattern(framework: Framework, releases: bool) -> re.Pattern[str]:
    """Return the pattern of its environments' folders, or of its releases' (`jax-0.4-1a2b3c4d`)."""
    version = "-[^-]+" if releases else ""
    return re.compile(rf"{re.escape(framework.name)}{version}-[0-9a-f]{{8}}")


def size_of_releases(framework: Framework) -> tuple[int, int]:
    """Return how many releases of a framework are built, and the megabytes that they take."""
    folder = home() / "environments"
    pattern = _pattern(framework, releases=True)
    sizes: list[int] = []
    for directory in folder.iterdir() if folder.is_dir() else ():
        if pattern.fullmatch(directory.name):
            with suppress(OSError, ValueError, LookupError, TypeError):  # half-built
                manifest = json.loads((directory / MANIFEST).read_bytes())
                sizes.append(int(manifest["megabytes"]))
    return len(sizes), sum(sizes)


def base_python(framework: Framework) -> Path | None:
    """Return an interpreter of a version that this framework can live in; None if there is none."""
    for version in framework.python:
        interpreter = find_python(version)
        if interpreter is not None:
            return interpreter
    return None


def _why_unavailable(framework: Framework, directory: Path) -> str:
    """Return why this machine cannot have the framework's environment, with the remedy; else "".

    Uses no network: the answer is known before the first byte is downloaded.
    """
    if framework.unavailable:
        successor = f" {framework.successor} takes its place." if framework.successor else ""
        return f"{framework.title} is not available: {framework.unavailable}{successor}"
    problem = f"{framework.title} is not available on this machine:"
    other_way = f"Or give an interpreter that has it: --python {framework.name}=/path/to/python."
    if framework.debian is not None:
        try:
            locked = debian.read_lock(framework.directory / framework.debian.lock)
        except SuiteError as error:
            return str(error)
        kind = debian.architecture(locked)
        machine = _ARCHITECTURES.get(platform.machine(), platform.machine())
        if sys.platform != "linux" or kind not in ("", machine):
            return (
                f"{problem} its packages are for Linux on {kind}, this is {sys.platform} on "
                f"{machine}."
            )
        reason = debian.missing()
        if reason:
            return f"{problem} {reason} {other_way}"
    if not framework.python and not framework.interpreter:
        example = 'as in python = ["3.11"], in framework.toml'
        return f"{framework.title} names no Python. List the versions that it supports, {example}."
    if framework.python and base_python(framework) is None:
        newest = framework.python[0]
        return (
            f"{framework.title} needs a Python of version {', '.join(framework.python)}, and none "
            "is on PATH, under pyenv or under uv. Install one (for example `uv python install "
            f"{newest}`, `pyenv install {newest}` or your system's python{newest} package), or "
            f"give an interpreter that has it: --python {framework.name}=/path/to/python."
        )
    for program in framework.programs:
        if shutil.which(program) is None:
            return f"{problem} it needs {program}, which is not on PATH. Install it. {other_way}"
    return _lack_of_space(framework, directory)


def _lack_of_space(framework: Framework, directory: Path) -> str:
    """Return that the disk is too small for the environment, with the remedy; "" if it is not."""
    needed = framework.disk_megabytes
    hashed = not framework.interpreter and packages.is_hashed(framework.lock_file)
    if framework.debian is not None or hashed:
        needed += framework.download_megabytes  # kept until the environment is ready
    free = free_megabytes(directory)
    if free is None or free >= needed:
        return ""
    if free + _used_megabytes(downloads(directory)) + _used_megabytes(directory) >= needed:
        return ""
    return (
        f"{framework.title} is not available on this machine: it needs about {needed} MB and "
        f"{directory.parent} has {free:.0f} MB free. Free some, or set DLBENCH_HOME to a folder "
        "on a larger disk."
    )


def free_megabytes(folder: Path) -> float | None:
    """Return the free space of the disk that this folder is or would be on; None if not known."""
    for candidate in (folder, *folder.parents):
        try:
            return shutil.disk_usage(candidate).free / MEGABYTE
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def _used_megabytes(folder: Path) -> float:
    used = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # another process may be removing it
                used += Path(place, name).lstat().st_size
    return used / MEGABYTE


@dataclass(frozen=True)
class BuildSource:
    """A build's interpreter, or the reason why there is none."""

    build: Build
    interpreter: Path | None
    name: str  # "CPython 3.11.7"; "" where there is none
    digest: str  # of the interpreter and its packages' files; "" where there is none
    reason: str = ""
    folder: Path | None = None
    """Folder of the environment: the value of {environment} in a framework's variables."""


def look_into(build: Build, interpreter: Path) -> Inspection:
    """Inspect an interpreter for NumPy and the framework's own module."""
    return inspect(interpreter, ("numpy", build.framework.imports))


def external_source(build: Build) -> BuildSource:
    """Look into an interpreter that the user gave.

    Raises FrameworkEnvironmentError when it does not start, is too old, or lacks the framework or
    NumPy.
    """
    assert build.interpreter is not None
    if build.framework.unavailable:
        raise FrameworkEnvironmentError(locate(build.framework).reason)
    inspection = look_into(build, build.interpreter)
    if inspection.missing:
        raise FrameworkEnvironmentError(
            f"The interpreter given for {build.name}, {build.interpreter}, lacks "
            f"{' and '.join(inspection.missing)}. Install it there (`{build.interpreter} -m pip "
            "install ...`) or give another interpreter."
        )
    folder = inspection.prefix or build.interpreter.parent.parent
    return BuildSource(
        build, build.interpreter, inspection.name, build_digest(inspection), folder=folder
    )


def prepare_sources(
    builds: Iterable[Build], report: Say, build_missing: bool = True, announced: bool = False
) -> dict[str, BuildSource]:
    """Return a source for every build, by row name, building environments that are missing.

    They are announced first, unless that was done already.
    An environment that cannot be built gives a source without an interpreter, with the reason: the
    other frameworks still run. An unusable interpreter that the user named is an error.
    """
    by_name = {build.name: build for build in builds}
    sources: dict[str, BuildSource] = {}
    own: dict[str, Build] = {}
    for name, row in by_name.items():
        if row.interpreter is None:
            own[name] = row
        else:
            sources[name] = external_source(row)
    missing = to_build(row.framework for row in own.values()) if build_missing else []
    if not announced:
        for line in announcement(missing):
            report(line)
    for name, row in own.items():
        try:
            if row.framework in missing:
                with StatusLine(err) as status:
                    build(row.framework, report, status.draw)
            located = locate(row.framework)
            if located.interpreter is None:
                raise FrameworkEnvironmentError(located.reason)
            inspection = look_into(row, located.interpreter)
            digest = build_digest(inspection)
            sources[name] = BuildSource(
                row, located.interpreter, inspection.name, digest, folder=located.directory
            )
        except FrameworkEnvironmentError as error:
            report(f"{row.framework.title} is left out. {error}")
            sources[name] = BuildSource(row, None, "", "", str(error))
    return sources

"""Environments: for each framework an interpreter of its own with exactly the locked requirements.

An environment lies in the user's cache under a name made of its framework and a digest of its lock file, so a changed
lock is another environment. It counts as built once its manifest, written last, is there: whatever was interrupted
before is half-built and is made anew.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import filelock
import platformdirs

from .errors import FrameworkEnvironmentError
from .framework import Framework, find
from .interpreters import find_python, inspect

MANIFEST = "dlbench-environment.json"
# What pip prints when no package index can be reached, as against an index that lacks the package.
_NO_NETWORK = (
    "NewConnectionError",
    "Temporary failure in name resolution",
    "ConnectTimeoutError",
    "Max retries",
    "Network is unreachable",
    "ProxyError",
    "NameResolutionError",
)

Report = Callable[[str], None]


class State(StrEnum):
    """Whether an environment can be used."""

    READY = "ready"
    NOT_BUILT = "not built"
    HALF_BUILT = "half-built"
    NO_PYTHON = "no python"  # no interpreter of a version this framework can live in


@dataclass(frozen=True)
class Environment:
    """A framework's environment on this machine, built or not."""

    framework: Framework
    directory: Path
    state: State
    interpreter: Path | None  # the environment's own; None until it is ready
    reason: str = ""


def home() -> Path:
    """Return the folder of everything dlbench keeps for this user (DLBENCH_HOME overrides it)."""
    return Path(os.environ.get("DLBENCH_HOME") or platformdirs.user_cache_path("dlbench"))


def cache_directory(framework: Framework) -> Path:
    """Return the folder where this framework's adapter may keep what is costly to derive."""
    return home() / "cache" / framework.name


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


def _directory(framework: Framework) -> Path:
    digest = hashlib.sha256(framework.lock_file.read_bytes()).hexdigest()[:8]
    return home() / "environments" / f"{framework.name}-{digest}"


def _base_python(framework: Framework) -> Path | None:
    return next((found for version in framework.python if (found := find_python(version))), None)


def how_to_get_python(framework: Framework) -> str:
    """Return the sentence that tells how to get an interpreter this framework can live in."""
    versions = ", ".join(framework.python)
    newest = framework.python[0]
    return (
        f"{framework.title} needs a Python of version {versions}, and none is on PATH, under pyenv or under uv. "
        f"Install one (for example `uv python install {newest}`, `pyenv install {newest}` or your system's "
        f"python{newest} package), or bring an interpreter that has it: --python {framework.name}=/path/to/python."
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # of a folder on the way: what cannot be looked into is not there
        return False


def locate(framework: Framework) -> Environment:
    """Return the framework's environment as it is now."""
    if framework.environment == "host":
        return Environment(framework, Path(sys.prefix), State.READY, Path(sys.executable))
    directory = _directory(framework)
    interpreter = directory / "bin" / "python"
    if _is_there(directory / MANIFEST) and _is_there(interpreter):
        return Environment(framework, directory, State.READY, interpreter)
    if _is_there(directory):
        reason = f"Its build was interrupted. `dlbench env build {framework.name}` makes it anew."
        return Environment(framework, directory, State.HALF_BUILT, None, reason)
    if _base_python(framework) is None:
        return Environment(framework, directory, State.NO_PYTHON, None, how_to_get_python(framework))
    reason = f"`dlbench env build {framework.name}` builds it."
    return Environment(framework, directory, State.NOT_BUILT, None, reason)


def find_interpreter(name: str) -> Path | None:
    """Return the interpreter of a framework's built environment, None where it is not built."""
    return locate(find(name)).interpreter


def announce(framework: Framework) -> str:
    """Return the line that says what building will download and where it goes."""
    return (
        f"{framework.title}: downloads about {framework.download_megabytes} MB, takes about "
        f"{framework.disk_megabytes} MB in {_directory(framework)}"
    )


def build(framework: Framework, report: Report = lambda line: None) -> Environment:
    """Build the framework's environment unless it is ready, and return it.

    Raises FrameworkEnvironmentError, with what to do, when no interpreter fits, the folder cannot be written, the
    package index cannot be reached or a package cannot be had; nothing half-built is left behind.
    """
    current = locate(framework)
    if current.state is State.READY:
        return current
    python = _base_python(framework)
    if python is None:
        raise FrameworkEnvironmentError(how_to_get_python(framework))
    directory = current.directory
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(f"{directory}.lock")
        with lock:
            if locate(framework).state is State.READY:
                return locate(framework)
            shutil.rmtree(directory, ignore_errors=True)
            try:
                _install(framework, python, directory, report)
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
    except OSError as error:
        raise FrameworkEnvironmentError(
            f"The environment of {framework.title} cannot be written to {directory}: {error.strerror or error}. "
            "Set DLBENCH_HOME to a folder with room that you may write to."
        ) from error
    return locate(framework)


def _install(framework: Framework, python: Path, directory: Path, report: Report) -> None:
    log = directory.with_name(directory.name + ".log")
    log.unlink(missing_ok=True)  # an earlier attempt's words would be taken for this one's
    report(f"{framework.title}: making an environment with {python}")
    pip = [str(directory / "bin" / "python"), "-m", "pip"]
    if _run([str(python), "-m", "venv", str(directory)], log) != 0:
        # Debian's Python without python3-venv lacks ensurepip: install with the pip that installed us.
        shutil.rmtree(directory, ignore_errors=True)
        if _run([str(python), "-m", "venv", "--without-pip", str(directory)], log) != 0:
            raise FrameworkEnvironmentError(
                f"{python} cannot make virtual environments ({_last_line(log)}). Install its venv package."
            )
        pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python")]
    report(f"{framework.title}: installing {framework.lock_file.name} (log: {log})")
    command = [
        *pip,
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "--retries",
        "2",
        "--progress-bar",
        "off",
    ]
    if _run([*command, "-r", str(framework.lock_file)], log) != 0:
        raise FrameworkEnvironmentError(_why_pip_failed(framework, log))
    inspection = inspect(directory / "bin" / "python", (framework.imports,))
    if inspection.missing:
        raise FrameworkEnvironmentError(
            f"The environment of {framework.title} was installed but lacks the module {framework.imports}."
        )
    manifest = {
        "framework": framework.name,
        "python": inspection.version,
        "distributions": inspection.distributions,
    }
    partial = directory / (MANIFEST + ".part")
    partial.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    partial.replace(directory / MANIFEST)
    report(f"{framework.title}: ready")


def _run(command: list[str], log: Path) -> int:
    with log.open("a", encoding="utf-8") as output:
        output.write("$ " + " ".join(command) + "\n")
        output.flush()
        child = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    return child.returncode


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no output"])[-1][:300]


def _why_pip_failed(framework: Framework, log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    tried = f"The environment of {framework.title} could not be installed"
    if any(sign in text for sign in _NO_NETWORK):
        return (
            f"{tried}: the package index could not be reached. Check the network and pip's index settings, then "
            f"`dlbench env build {framework.name}`; or bring an interpreter: --python {framework.name}=/path/to/python."
        )
    if "No space left on device" in text:
        return f"{tried}: no space is left. Free some, or set DLBENCH_HOME to a folder on a larger disk."
    return f"{tried}: {_last_line(log)} (the whole log: {log})."


def remove(framework: Framework) -> bool:
    """Remove the framework's environment and adapter cache; False where there was none."""
    if framework.environment == "host":
        raise FrameworkEnvironmentError(f"{framework.name} lives in dlbench's own environment; nothing to remove.")
    folders = [folder for folder in (_directory(framework), cache_directory(framework)) if folder.exists()]
    for folder in folders:
        shutil.rmtree(folder)
    for left in (Path(f"{_directory(framework)}.lock"), _directory(framework).with_suffix(".log")):
        left.unlink(missing_ok=True)
    return bool(folders)

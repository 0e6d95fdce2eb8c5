"""A virtual environment with a framework's locked Python packages."""

import hashlib
import re
import shutil
import sys
from pathlib import Path

from ..errors import FrameworkEnvironmentError
from ..planning.framework import Framework
from . import children
from .debian import Draw

_FILES = "python"
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_COMMENT = re.compile(r"(^|\s)#.*")
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


def install(framework: Framework, python: Path, directory: Path, kept: Path, log: Path, draw: Draw) -> None:
    """Make a virtual environment with this interpreter and install the framework's locked requirements.

    The files of a lock with checksums are kept in ``kept``, where a later attempt finds what has come already. Raises
    FrameworkEnvironmentError with the reason where the environment or a package cannot be had.
    """
    pip = [str(directory / "bin" / "python"), "-m", "pip"]
    if children.run([str(python), "-m", "venv", str(directory)], log) != 0:
        # Debian's Python without python3-venv lacks ensurepip: install with the pip that installed us.
        shutil.rmtree(directory, ignore_errors=True)
        if children.run([str(python), "-m", "venv", "--without-pip", str(directory)], log) != 0:
            text = children.said(log)
            if children.out_of_room(text, log):
                raise FrameworkEnvironmentError(_no_room(framework))
            raise FrameworkEnvironmentError(
                f"{python} cannot make virtual environments ({children.last_line(text)}). Install its venv package."
            )
        pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python")]
    options = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    online = [*options, "--retries", "2"]
    hashed = is_hashed(framework.lock_file)
    if hashed:
        _download(framework, _lines(framework.lock_file), [*pip, "download", *online], kept, log, draw)
    source = [*options, "--no-index", "--find-links", str(kept / _FILES)] if hashed else online
    _run(framework, [*pip, "install", *source, "-r", str(framework.lock_file)], log, framework.title, draw)


def is_hashed(lock: Path) -> bool:
    """Tell whether a lock names every file by its checksum: only then are files verified and kept."""
    return all(_HASH.search(line) for line in _lines(lock))


def _lines(lock: Path) -> list[str]:
    """Return the requirements of a lock, one a line: continued lines joined and comments left out, as pip does."""
    lines = lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [line for each in lines if (line := _COMMENT.sub("", each).strip())]


def _run(framework: Framework, command: list[str], log: Path, doing: str, draw: Draw) -> None:
    """Run pip and tell what it does; raises FrameworkEnvironmentError with the reason where it fails."""
    before = len(children.said(log))
    following = _Following(doing, log, draw)
    if children.run(command, log, watch=following.show) != 0:
        raise FrameworkEnvironmentError(_why_pip_failed(framework, children.said(log)[before:], log))


def _download(framework: Framework, lines: list[str], command: list[str], kept: Path, log: Path, draw: Draw) -> None:
    """Download the file of each requirement, one after the other, those that are there and verified left out.

    In one command pip would keep nothing before it has everything.
    """
    files = kept / _FILES
    files.mkdir(parents=True, exist_ok=True)
    one = kept / "requirement.txt"
    there = {_digest(path) for path in files.iterdir()}
    for number, line in enumerate(lines, start=1):
        if not there.isdisjoint(_HASH.findall(line)):
            continue
        one.write_text(line + "\n", encoding="utf-8")
        name = re.split(r"[ =@]", line, maxsplit=1)[0]
        download = [*command, "--no-deps", "--dest", str(files), "-r", str(one)]
        _run(framework, download, log, f"{framework.title}: {name}, {number} of {len(lines)} packages", draw)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Following:
    """Tells what pip does, by the lines it writes."""

    def __init__(self, title: str, log: Path, draw: Draw) -> None:
        self._title = title
        self._log = log
        self._draw = draw
        self._before = len(children.said(log))

    def show(self) -> None:
        doing = ("Collecting ", "Downloading ", "Building ", "Installing ", "Running ")
        lines = [line.strip() for line in children.said(self._log)[self._before :].splitlines()]
        now = next((line for line in reversed(lines) if line.startswith(doing)), "")
        words = [word for word in now.split() if "://" not in word]  # where pip names a link, its file says enough
        self._draw(f"{self._title}: {' '.join(words) or 'pip begins'}")


def _no_room(framework: Framework) -> str:
    return (
        f"The environment of {framework.title} could not be installed: no space is left. Free some, or set "
        "DLBENCH_HOME to a folder on a larger disk."
    )


def _why_pip_failed(framework: Framework, text: str, log: Path) -> str:
    tried = f"The environment of {framework.title} could not be installed"
    if children.out_of_room(text, log):
        return _no_room(framework)
    if "DO NOT MATCH THE HASHES" in text:
        return (
            f"{tried}: the package index gave a file with another checksum than {framework.lock_file.name} has. Check "
            f"pip's index settings (the whole log: {log})."
        )
    if any(sign in text for sign in _NO_NETWORK):
        return (
            f"{tried}: the package index could not be reached. Check the network and pip's index settings, then "
            f"`dlbench env build {framework.name}`; or bring an interpreter: --python {framework.name}=/path/to/python."
        )
    return f"{tried}: {children.last_line(text)} (the whole log: {log})."

"""A virtual environment with a framework's locked Python packages."""

import email
import hashlib
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..errors import FrameworkEnvironmentError
from ..planning.framework import Framework
from . import children
from .debian import Draw

_FILES = "python"
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
ONLY_WHERE = "\n# Only where"
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
    source, wanted = online, framework.lock_file
    if is_hashed(framework.lock_file):
        wanted = kept / "requirements.txt"
        lines = _download(framework, [*pip, "download", *online], _Kept(kept, directory), log, draw)
        wanted.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        source = [*options, "--no-index", "--find-links", str(kept / _FILES)]
    _run(framework, [*pip, "install", *source, "-r", str(wanted)], log, framework.title, draw)


def is_hashed(lock: Path) -> bool:
    """Tell whether a lock names every file by its checksum: only then are files verified and kept."""
    return all(_HASH.search(line) for line in _requirements(lock.read_text(encoding="utf-8")))


def _requirements(text: str) -> list[str]:
    """Return the requirements of a lock, one a line: continued lines joined and comments left out, as pip does."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for each in lines if (line := _COMMENT.sub("", each).strip())]


def _run(framework: Framework, command: list[str], log: Path, doing: str, draw: Draw) -> None:
    """Run pip and tell what it does; raises FrameworkEnvironmentError with the reason where it fails."""
    before = len(children.said(log))
    if children.run(command, log, watch=lambda: _tell(children.said(log)[before:], doing, draw)) != 0:
        raise FrameworkEnvironmentError(_why_pip_failed(framework, children.said(log)[before:], log))


class _Kept(NamedTuple):
    """Where files are kept, and the environment they are for."""

    folder: Path
    environment: Path


def _download(framework: Framework, command: list[str], kept: _Kept, log: Path, draw: Draw) -> list[str]:
    """Download the file of each requirement, one after the other, those that are there and verified left out.

    In one command pip would keep nothing before it has everything. Returns the requirements. Of several lines of one
    package the first that pip finds is taken (``torch==2.13.0+cpu`` before ``torch==2.13.0``); lines after one that
    begins with ``# Only where`` are taken where a file that came asks for their package.
    """
    files = kept.folder / _FILES
    files.mkdir(parents=True, exist_ok=True)
    one = kept.folder / "requirement.txt"
    there = {_digest(path) for path in files.iterdir()}
    always, where_asked = map(by_name, sections(framework.lock_file))
    wanted = []
    for number, (name, lines) in enumerate([*always.items(), *where_asked.items()], start=1):
        if number > len(always) and name not in _asked_for(files, kept.environment):
            continue
        doing = f"{framework.title}: {name}, {number} of {len(always) + len(where_asked)} packages"
        for line in lines:
            if there.isdisjoint(_HASH.findall(line)):
                one.write_text(line + "\n", encoding="utf-8")
                try:
                    download = [*command, "--no-deps", "--dest", str(files), "-r", str(one)]
                    _run(framework, download, log, doing, draw)
                except FrameworkEnvironmentError:
                    if line is lines[-1]:
                        raise
                    continue
            wanted.append(line)
            break
    return wanted


def by_name(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines of each package, by its name; several are alternatives."""
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(canonicalize_name(re.split(r"[ =@]", line, maxsplit=1)[0]), []).append(line)
    return found


def sections(lock: Path) -> tuple[list[str], list[str]]:
    """Return the requirements before and after the line that begins with ``# Only where``."""
    always, _, where_asked = lock.read_text(encoding="utf-8").partition(ONLY_WHERE)
    return _requirements(always), _requirements(where_asked.partition("\n")[2])


def _asked_for(files: Path, environment: Path) -> set[str]:
    """Return the names that wheels ask for in this environment, each once for every extra that another asks of it."""
    python = next((path.name[6:] for path in (environment / "lib").glob("python3.*")), "")
    wheels = sorted(files.glob("*.whl"))
    told = {canonicalize_name(path.name.partition("-")[0]): _told(path) for path in wheels}
    extras: dict[str, set[str]] = {name: {""} for name in told}
    for _ in told:  # an extra may ask for another one
        for name, requirements in told.items():
            for each in requirements:
                if any(_applies(each, extra, python) for extra in extras[name]):
                    extras.setdefault(canonicalize_name(each.name), {""}).update(each.extras)
    return {
        canonicalize_name(each.name)
        for name, requirements in told.items()
        for each in requirements
        if any(_applies(each, extra, python) for extra in extras[name])
    }


def _applies(requirement: Requirement, extra: str, python: str) -> bool:
    here = {"extra": extra, **({"python_version": python, "python_full_version": f"{python}.0"} if python else {})}
    return requirement.marker is None or requirement.marker.evaluate(here)


def _told(wheel: Path) -> list[Requirement]:
    """Return what a wheel says it needs."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tell(said: str, title: str, draw: Draw) -> None:
    """Tell what pip does, by the lines it wrote."""
    doing = ("Collecting ", "Downloading ", "Building ", "Installing ", "Running ")
    now = next((line for each in reversed(said.splitlines()) if (line := each.strip()).startswith(doing)), "")
    words = [word for word in now.split() if "://" not in word]  # where pip names a link, its file says enough
    draw(f"{title}: {' '.join(words) or 'pip begins'}")


def unreachable(text: str) -> bool:
    """Tell whether pip failed because it could reach no package index, by its words."""
    return any(sign in text for sign in _NO_NETWORK)


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
            f"{tried}: the package index gave another file than {framework.lock_file} names by its checksum. Check "
            f"pip's index settings (the whole log: {log}); or, for another build, bring an interpreter that has it: "
            f"--python {framework.name}=/path/to/python."
        )
    if unreachable(text):
        return (
            f"{tried}: the package index could not be reached. Check the network and pip's index settings, then "
            f"`dlbench env build {framework.name}`; or bring an interpreter: --python {framework.name}=/path/to/python."
        )
    return f"{tried}: {children.last_line(text)} (the whole log: {log})."

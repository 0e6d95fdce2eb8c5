"""A virtual environment with a framework's locked Python packages, by pip.

Also how the programs that build environments are run.
"""

import ctypes
import email
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..errors import FrameworkEnvironmentError, IndexUnreachableError
from ..planning.framework import Framework
from .folders import NO_ROOM, file_digest

ONLY_WHERE = "\n# Only where"
"""Begins the section of a lock with packages to install only if another package requires them."""
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_COMMENT = re.compile(r"(^|\s)#.*")
_NO_NETWORK = (
    "NewConnectionError",
    "Temporary failure in name resolution",
    "ConnectTimeoutError",
    "Max retries",
    "Network is unreachable",
    "ProxyError",
    "NameResolutionError",
)
"""Printed by pip when no package index can be reached, not when an index lacks the package."""
_NO_ROOM = (
    "No space left on device",
    "have enough free space",
    "Disk quota exceeded",
    "File too large",
    "File size limit exceeded",
    f"received signal {int(signal.SIGXFSZ)}",
)
_A_LINE = 100_000  # bytes; with less a log ends in the middle of a word
_LOOK_SECONDS, _GRACE_SECONDS = 0.5, 5.0
SILENT_SECONDS = 1800.0
"""A program without output for this long is hanging: pip prints nothing while it downloads one
file."""
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

Draw = Callable[[str], object]
"""Takes a line of progress, which the next one may overwrite."""


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def run(
    command: list[str],
    log: Path,
    *,
    variables: Mapping[str, str] | None = None,
    directory: Path | None = None,
    limit: float | None = None,
    watch: Callable[[str], object] = str,
) -> tuple[int, str]:
    """Run a command and append its output to the log; return its exit code and output.

    ``watch`` gets the output so far now and then. A command without output for `SILENT_SECONDS` is
    ended, or with a ``limit`` one that takes more seconds than that. The command ends with this
    process, however that ends: a later build must not find it still writing.
    """
    with log.open("a", encoding="utf-8") as output:
        output.write("$ " + " ".join(command)[:2000] + "\n")
        output.flush()
        before = log.stat().st_size

        def output_so_far() -> str:
            return log.read_bytes()[before:].decode(errors="replace")

        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables} if variables else None,
            cwd=directory,
            preexec_fn=_die_with_parent,
        )
        last_output = time.monotonic()
        length = 0
        try:
            while child.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_LOOK_SECONDS)
                text = output_so_far()
                watch(text)
                if limit is None and len(text) > length:
                    last_output = time.monotonic()
                    length = len(text)
                elif time.monotonic() - last_output > (limit or SILENT_SECONDS):
                    _end(child)
                    why = f"said nothing for {SILENT_SECONDS / 60:g} minutes"
                    if limit:
                        why = f"took more than {limit:g} s"
                    output.write(f"ERROR: it {why} and was ended\n")
                    output.flush()
            if child.returncode == -signal.SIGXFSZ:
                output.write(f"{os.strerror(errno.EFBIG)}\n")
                output.flush()
            return child.returncode, output_so_far()
        finally:
            if child.poll() is None:
                _end(child)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End a program, and all that it started."""
    started: list[psutil.Process] = []
    with suppress(psutil.Error):
        started = psutil.Process(child.pid).children(recursive=True)
    child.terminate()
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for process in started:
        with suppress(psutil.Error):
            process.kill()


def out_of_room(text: str, log: Path) -> bool:
    """Return whether a program failed because a disk or quota is full.

    Its output says so, or could not be written.
    """
    return any(sign in text for sign in _NO_ROOM) or shutil.disk_usage(log.parent).free < _A_LINE


def last_line(text: str) -> str:
    """Return the last complaint, else the last line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("$ ")]
    errors = [line for line in lines if line.startswith(("ERROR", "E:", "dpkg-deb: error"))]
    return (errors or lines or ["no output"])[-1].strip()[:300]


def install(
    framework: Framework, python: Path, directory: Path, kept: Path, log: Path, draw: Draw
) -> None:
    """Make a virtual environment with this interpreter and the framework's locked requirements.

    The files of a lock with checksums are kept in ``kept``, where a later attempt finds them.
    Raises FrameworkEnvironmentError with the reason.
    """
    pip = [str(directory / "bin" / "python"), "-m", "pip"]
    if run([str(python), "-m", "venv", str(directory)], log)[0] != 0:
        # Debian's Python without python3-venv lacks ensurepip: install with the pip that installed
        # us.
        shutil.rmtree(directory, ignore_errors=True)
        code, text = run([str(python), "-m", "venv", "--without-pip", str(directory)], log)
        if code != 0:
            failed = f"{python} cannot make virtual environments"
            if out_of_room(text, log):
                raise FrameworkEnvironmentError(f"{failed}: {NO_ROOM}")
            raise FrameworkEnvironmentError(
                f"{failed} ({last_line(text)}). Install its venv package."
            )
        pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python")]
    options = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    source = [*options, "--retries", "2"]
    wanted = framework.lock_file
    if is_hashed(framework.lock_file):
        wanted = kept / "requirements.txt"
        files = kept / "python"
        lines = _download(framework, [*pip, "download", *source], files, directory, log, draw)
        wanted.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        source = [*options, "--no-index", "--find-links", str(files)]
    run_pip(framework, [*pip, "install", *source, "-r", str(wanted)], log, framework.title, draw)


def is_hashed(lock: Path) -> bool:
    """Return whether a lock has the checksum of every file: only then are files verified."""
    return all(_HASH.search(line) for line in _requirements(lock.read_text(encoding="utf-8")))


def sections(lock: Path) -> tuple[list[str], list[str]]:
    """Return the requirements before and after the line that begins with ``# Only where``."""
    always, _, where_asked = lock.read_text(encoding="utf-8").partition(ONLY_WHERE)
    return _requirements(always), _requirements(where_asked.partition("\n")[2])


def by_name(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines of each package, by its name; several are alternatives."""
    lines_by_name: dict[str, list[str]] = {}
    for line in lines:
        name = canonicalize_name(re.split(r"[ =@]", line, maxsplit=1)[0])
        lines_by_name.setdefault(name, []).append(line)
    return lines_by_name


def _requirements(text: str) -> list[str]:
    """Return the requirements of a lock, one a line.

    Continued lines are joined and comments left out, as pip does.
    """
    lines = text.replace("\\\n", " ").splitlines()
    without_comments = [_COMMENT.sub("", line).strip() for line in lines]
    return [line for line in without_comments if line]


def _download(
    framework: Framework, command: list[str], files: Path, environment: Path, log: Path, draw: Draw
) -> list[str]:
    """Download the file of each requirement, unless it is there already; return the requirements.

    They are downloaded one by one: with one command for all, pip would keep nothing before it has
    everything. Of several lines of one package the first that pip finds is taken
    (``torch==2.13.0+cpu`` before ``torch==2.13.0``).
    """
    files.mkdir(parents=True, exist_ok=True)
    one = files.parent / "requirement.txt"
    present = {file_digest(path) for path in files.iterdir()}
    always, where_asked = map(by_name, sections(framework.lock_file))
    wanted = []
    for number, (name, lines) in enumerate([*always.items(), *where_asked.items()], start=1):
        if number > len(always) and name not in _required_names(files, environment):
            continue
        doing = f"{framework.title}: {name}, {number} of {len(always) + len(where_asked)} packages"
        for line in lines:
            if present.isdisjoint(_HASH.findall(line)):
                one.write_text(line + "\n", encoding="utf-8")
                download = [*command, "--no-deps", "--dest", str(files), "-r", str(one)]
                try:
                    run_pip(framework, download, log, doing, draw)
                except FrameworkEnvironmentError:
                    if line is lines[-1]:
                        raise
                    continue
            wanted.append(line)
            break
    return wanted


def _required_names(files: Path, environment: Path) -> set[str]:
    """Return the packages that wheels require in this environment, also by each other's extras."""
    python = next((path.name[6:] for path in (environment / "lib").glob("python3.*")), "")
    markers = {"python_version": python, "python_full_version": f"{python}.0"} if python else {}
    wheels: dict[str, list[Requirement]] = {}
    for path in sorted(files.glob("*.whl")):
        wheels[canonicalize_name(path.name.partition("-")[0])] = _wheel_requirements(path)
    extras: dict[str, set[str]] = {name: {""} for name in wheels}
    needed: list[Requirement] = []
    for _ in wheels:  # an extra may ask for another one
        needed = []
        for name, requirements in wheels.items():
            for requirement in requirements:
                marker = requirement.marker
                if marker is None or any(
                    marker.evaluate({**markers, "extra": extra}) for extra in extras[name]
                ):
                    needed.append(requirement)
        for requirement in needed:
            extras.setdefault(canonicalize_name(requirement.name), {""}).update(requirement.extras)
    return {canonicalize_name(requirement.name) for requirement in needed}


def _wheel_requirements(path: Path) -> list[Requirement]:
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(names[0]))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


def run_pip(framework: Framework, command: list[str], log: Path, doing: str, draw: Draw) -> None:
    """Run pip and show its progress; raises FrameworkEnvironmentError with the reason.

    Where the package index cannot be reached that is an IndexUnreachableError.
    """

    def show(output: str) -> None:
        words = ("Collecting ", "Downloading ", "Building ", "Installing ", "Running ")
        lines = [line.strip() for line in output.splitlines()]
        steps = [line for line in lines if line.startswith(words)]
        shown = [word for word in steps[-1].split() if "://" not in word] if steps else []
        draw(f"{doing}: {' '.join(shown) or 'starting pip'}")

    code, output = run(command, log, watch=show)
    if code != 0:
        raise _why_pip_failed(framework, output, log)


def _why_pip_failed(framework: Framework, text: str, log: Path) -> FrameworkEnvironmentError:
    tried = f"The environment of {framework.title} could not be installed"
    if out_of_room(text, log):
        return FrameworkEnvironmentError(f"{tried}: {NO_ROOM}")
    if "DO NOT MATCH THE HASHES" in text:
        return FrameworkEnvironmentError(
            f"{tried}: the package index served a file that does not match its checksum in "
            f"{framework.lock_file}. Check pip's index settings (full log: {log}); or give an "
            f"interpreter with another build: --python {framework.name}=/path/to/python."
        )
    if any(sign in text for sign in _NO_NETWORK):
        return IndexUnreachableError(
            f"{tried}: the package index could not be reached. Check the network and pip's index "
            f"settings, then `dlbench env build {framework.name}`; or give an interpreter: "
            f"--python {framework.name}=/path/to/python."
        )
    return FrameworkEnvironmentError(f"{tried}: {last_line(text)} (full log: {log}).")

"""Packages of a Debian release as part of an environment: locked, downloaded, verified, unpacked without root.

The lock names every file with its size and SHA-256, so it is the lock that is trusted; the mirror only has to have
the files. ``apt`` fetches them, ``dpkg-deb`` unpacks them, and nothing of the machine's own packages is touched.
"""

import hashlib
import os
import re
import stat
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..errors import FrameworkEnvironmentError, SuiteError
from ..planning.framework import Framework
from . import apt, children
from .folders import MEGABYTE

TREE = "debian"
_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]+) (?P<version>([0-9]+:)?[0-9][A-Za-z0-9.+~-]*) (?P<architecture>[a-z0-9-]+) "
    r"(?P<size>[0-9]{1,15}) (?P<sha256>[0-9a-f]{64})"
)

Draw = Callable[[str], object]


@dataclass(frozen=True)
class Package:
    """One file of a Debian mirror."""

    name: str
    version: str
    architecture: str  # "amd64", or "all" for a package without machine code
    size: int  # bytes
    sha256: str

    @property
    def file_name(self) -> str:
        """What apt calls the file: an epoch's colon is escaped."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"

    @property
    def pin(self) -> str:
        """The package and its version as apt takes them."""
        return f"{self.name}={self.version}"


def read_lock(path: Path) -> tuple[Package, ...]:
    """Return the packages of a lock; raises SuiteError naming the line that cannot be read."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = " ".join(line.partition("#")[0].split())
        if not words:
            continue
        fields = _LINE.fullmatch(words)
        if fields is None:
            raise SuiteError(f"{path}, line {number} is not 'package version architecture bytes SHA-256'.")
        found.append(
            Package(fields["name"], fields["version"], fields["architecture"], int(fields["size"]), fields["sha256"])
        )
    return tuple(found)


def architecture(packages: Iterable[Package]) -> str:
    """Return the one machine architecture that these packages are for; "" where all run on any."""
    return next((each.architecture for each in packages if each.architecture != "all"), "")


def install(framework: Framework, environment: Path, kept: Path, log: Path, draw: Draw) -> dict[str, str]:
    """Download and verify what the framework's lock names, unpack it into the environment, make the links.

    Files that were verified stay in ``kept`` and are not fetched again. Returns the version of every package. Raises
    FrameworkEnvironmentError with the reason for whatever cannot be had.
    """
    assert framework.debian is not None
    packages = read_lock(framework.directory / framework.debian.lock)
    kept.mkdir(parents=True, exist_ok=True)
    _fetch(framework, packages, kept, log, draw)
    tree = environment / TREE
    tree.mkdir(parents=True)
    for number, package in enumerate(packages):
        draw(f"{framework.title}: unpacking {number + 1} of {len(packages)} packages")
        _refuse_to_leave(framework, package, kept / package.file_name, tree, log)
        if children.run(["dpkg-deb", "-x", str(kept / package.file_name), str(tree)], log) != 0:
            raise FrameworkEnvironmentError(_why_not_unpacked(framework, package, log))
    _take_privileges_away(tree)
    for link, target in framework.debian.links.items():
        _link(framework, environment, link, target)
    return {package.name: package.version for package in packages}


def _verified(path: Path, package: Package) -> bool:
    try:
        if path.stat().st_size != package.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == package.sha256
    except FileNotFoundError:
        return False


def _fetch(framework: Framework, packages: tuple[Package, ...], kept: Path, log: Path, draw: Draw) -> None:
    missing = [package for package in packages if not _verified(kept / package.file_name, package)]
    for package in missing:
        (kept / package.file_name).unlink(missing_ok=True)
    if not missing:
        return
    assert framework.debian is not None
    client = apt.Client(kept / "apt", framework.debian.release, architecture(packages) or "amd64", log)
    draw(f"{framework.title}: reading what the Debian mirror has")
    client.update()
    progress = _Progress(framework.title, packages, kept, draw)
    client.download([package.pin for package in missing], kept, progress.show)
    for package in missing:
        path = kept / package.file_name
        if not _verified(path, package):
            there = path.exists()
            path.unlink(missing_ok=True)
            raise FrameworkEnvironmentError(
                f"The Debian mirror's {package.file_name} is not the file that {framework.debian.lock} names "
                f"({'other content' if there else 'not downloaded'}). Try another mirror (DLBENCH_DEBIAN_MIRROR); "
                "where that does not help, the lock is wrong."
            )


class _Progress:
    """Tells how far a download is, by the files that are there."""

    def __init__(self, title: str, packages: tuple[Package, ...], kept: Path, draw: Draw) -> None:
        self._title = title
        self._packages = packages
        self._kept = kept
        self._draw = draw
        self._all = sum(package.size for package in packages)
        self._began = time.monotonic()
        self._had = self._count()[1]

    def _count(self) -> tuple[int, int]:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(self._kept) if entry.is_file()}
        done = sum(sizes.get(package.file_name, 0) >= package.size for package in self._packages)
        return done, sum(sizes.get(package.file_name, 0) for package in self._packages)

    def show(self) -> None:
        done, there = self._count()
        line = (
            f"{self._title}: downloading {done} of {len(self._packages)} packages, "
            f"{there / MEGABYTE:.0f} of {self._all / MEGABYTE:.0f} MB"
        )
        seconds = time.monotonic() - self._began
        if there > self._had and seconds > 1:
            left = (self._all - there) * seconds / (there - self._had)
            line += f", {left:.0f} s left" if left < 100 else f", {left / 60:.0f} min left"
        self._draw(line)


def _why_not_unpacked(framework: Framework, package: Package, log: Path) -> str:
    text = children.said(log)
    if children.out_of_room(text, log):
        return (
            f"{framework.title}: no space is left to unpack {package.name}. Free some, or set DLBENCH_HOME to a folder "
            "on a larger disk."
        )
    return f"{framework.title}: {package.name} cannot be unpacked: {children.last_line(text)} (the whole log: {log})."


def _refuse_to_leave(framework: Framework, package: Package, file: Path, tree: Path, log: Path) -> None:
    """Refuse a package that has something below an earlier package's link to a folder outside the tree.

    Unpacking may follow such a link, and it would come to lie among the machine's own files.
    """
    command = ["dpkg-deb", "--fsys-tarfile", str(file)]
    with log.open("a", encoding="utf-8") as output:
        try:
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output) as unpacker:
                assert unpacker.stdout is not None
                with tarfile.open(fileobj=unpacker.stdout, mode="r|") as members:
                    paths = {(PurePosixPath(member.name), member.isdir()) for member in members}
        except tarfile.TarError as error:
            raise FrameworkEnvironmentError(_why_not_unpacked(framework, package, log)) from error
    root = tree.resolve()
    for folder in sorted({path if is_folder else path.parent for path, is_folder in paths}):
        if not (root / folder).resolve().is_relative_to(root):
            raise FrameworkEnvironmentError(
                f"{framework.title}: {package.name} cannot be unpacked: {folder} in it is another package's link to a "
                "folder outside the environment."
            )


def _take_privileges_away(tree: Path) -> None:
    """Clear the bits that let a program run as its owner: nothing here is a system's installed program."""
    for folder, _, files in os.walk(tree):
        for name in files:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _link(framework: Framework, environment: Path, link: str, target: str) -> None:
    root = environment.resolve()
    place, meant = environment / link, environment / target
    if not place.parent.resolve().is_relative_to(root) or not meant.resolve().is_relative_to(root):
        raise FrameworkEnvironmentError(
            f"{framework.title}: the link {link} to {target} leaves the environment. Correct framework.toml in "
            f"{framework.directory}."
        )
    if not meant.exists():
        raise FrameworkEnvironmentError(
            f"The Debian packages of {framework.title} lack {target}, which {link} should point to. The lock and "
            f"framework.toml in {framework.directory} do not fit each other."
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(meant, place.parent))

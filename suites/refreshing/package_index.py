"""What pip finds in the package index for a framework's interpreter: newest versions, a resolved set, checksums.

Everything goes through pip, so the index, find-links and constraints that the user has set apply. Nothing is installed.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from ..environments import children, python_packages
from ..errors import FrameworkEnvironmentError

_OPTIONS = ("--no-input", "--disable-pip-version-check", "--retries", "2")
_VERSIONS = re.compile(r"^Available versions: (.*)$", re.MULTILINE)
_LACKING = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)==")
MACHINES = ("x86_64", "aarch64")
"""The kinds of processor that a lock has files for."""
_NEWEST_C_LIBRARY = 40  # of glibc's 2.x that wheels may ask for; more than any machine has
_PLATFORMS = (
    "manylinux1",
    "manylinux2010",
    "manylinux2014",
    *(f"manylinux_2_{n}" for n in range(5, _NEWEST_C_LIBRARY)),
)


@cache
def serves(python: Path) -> bool:
    """Tell whether this pip works for an interpreter: new ones give old Pythons up."""
    asked = subprocess.run([sys.executable, "-m", "pip", "--python", python, "--version"], capture_output=True)
    return asked.returncode == 0


@dataclass(frozen=True)
class Package:
    """A package of a resolved set: its canonical name, its version, and the SHA-256 of files of that version."""

    name: str
    version: str
    checksums: frozenset[str] = frozenset()

    @property
    def pinned(self) -> str:
        """The requirement of exactly this version."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class PackageIndex:
    """The index as pip sees it for one interpreter; what pip says is appended to the log."""

    python: Path
    log: Path

    def releases(self, package: str) -> list[str]:
        """Return the releases of a package that have a file for this interpreter, the newest first.

        Raises FrameworkEnvironmentError where the index cannot be asked.
        """
        code, said = self._pip("index", "versions", *_OPTIONS, package)
        if code != 0 and "No matching distribution" not in said:
            raise self._failed(f"The versions of {package} cannot be asked", said)
        found = _VERSIONS.search(said)
        return sorted(found[1].split(", ") if found else [], key=Version, reverse=True)

    def resolve(self, requirements: Sequence[str], constraints: Sequence[str]) -> list[Package]:
        """Return the newest set of packages that meets these requirements and constraints, by pip's resolver.

        Each has the checksum of the file that this interpreter would take. Raises FrameworkEnvironmentError where
        there is no such set, or a file without a checksum.
        """
        with tempfile.TemporaryDirectory() as scratch:
            limits = Path(scratch, "constraints.txt")
            limits.write_text("".join(f"{each}\n" for each in constraints), encoding="utf-8")
            found, said = self._dry_run("--constraint", str(limits), *requirements)
        if found is None:
            raise self._failed(f"No set of packages can be resolved for {', '.join(requirements)}", said)
        for package in found:
            if not package.checksums:
                raise FrameworkEnvironmentError(
                    f"pip gives no checksum of {package.pinned}: it is no single file. Let pip find a wheel of it."
                )
        return found

    def checksums(self, packages: Iterable[Package], pythons: Sequence[str]) -> dict[str, frozenset[str]]:
        """Return by name the checksums of the wheels that these Pythons ("3.12") take on each kind of machine.

        Where a package has no wheel for one of them, the others are given. Raises FrameworkEnvironmentError where the
        index cannot be asked.
        """
        found: dict[str, frozenset[str]] = {}
        pinned = {package.name: package.pinned for package in packages}
        for machine in MACHINES:
            for python in pythons:
                for package in self._of_machine(dict(pinned), python, machine):
                    found[package.name] = found.get(package.name, frozenset()) | package.checksums
        return found

    def _of_machine(self, pinned: dict[str, str], python: str, machine: str) -> list[Package]:
        platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_{machine}")]
        with tempfile.TemporaryDirectory() as scratch:
            # pip asks for a target beside a platform, and writes nothing there.
            target = ("--no-deps", "--only-binary=:all:", "--python-version", python, *platforms, "--target", scratch)
            while pinned:
                found, said = self._dry_run(*target, *pinned.values())
                if found is not None:
                    return found
                lacking = _LACKING.search(said)
                if lacking is None or pinned.pop(canonicalize_name(lacking[1]), None) is None:
                    raise self._failed(f"The files for Python {python} on {machine} cannot be asked", said)
        return []

    def _dry_run(self, *words: str) -> tuple[list[Package] | None, str]:
        """Return what an installation would install (None where it would fail), and what pip said."""
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch, "report.json")
            asked = ("install", "--dry-run", "--ignore-installed", "--quiet", *_OPTIONS, "--report", str(report))
            code, said = self._pip(*asked, *words)
            if code != 0:
                return None, said
            content = json.loads(report.read_text(encoding="utf-8"))
        return sorted(map(_package, content["install"]), key=lambda each: each.name), said

    def _pip(self, *words: str) -> tuple[int, str]:
        """Run pip for the interpreter, and return its exit code and what it said."""
        before = len(children.said(self.log))
        code = children.run([sys.executable, "-m", "pip", "--python", str(self.python), *words], self.log)
        return code, children.said(self.log)[before:]

    def _failed(self, what: str, said: str) -> FrameworkEnvironmentError:
        if python_packages.unreachable(said):
            return FrameworkEnvironmentError(
                f"{what}: the package index could not be reached. Check the network and pip's index settings."
            )
        return FrameworkEnvironmentError(f"{what}: {children.last_line(said)} (the whole log: {self.log}).")


def _package(installed: dict[str, Any]) -> Package:
    about = installed["metadata"]
    checksum = installed["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    return Package(canonicalize_name(about["name"]), about["version"], frozenset([checksum] if checksum else []))

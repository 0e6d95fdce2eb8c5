"""What is newer than the locks: for each row the locked and the newest release, and why a release stays."""

from dataclasses import asdict, dataclass
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..environments.environment import Report
from ..errors import DlbenchError, Interrupted
from .new_lock import is_newer
from .row import Row

COLUMNS = ("framework", "Python", "package", "locked", "newest", "")


@dataclass(frozen=True)
class Found:
    """One package of a row: the locked release, and the newest that has a file for the row's Python."""

    framework: str
    python: str
    """Those that the lock is for: "3.13, 3.12"."""
    package: str
    locked: str
    newest: str
    """Empty where nobody can tell."""
    newer: bool
    why: str
    """Why the locked one stays, or what to do."""

    held: bool = False

    @property
    def cells(self) -> list[str]:
        """The line of a table; `note` says more."""
        word = "held" if self.held else "newer" if self.newer else ""
        pythons = self.python.split(", ")
        span = f"{min(pythons, key=Version)}-{max(pythons, key=Version)}" if len(pythons) > 1 else self.python
        return [self.framework, span, self.package or "-", self.locked or "-", self.newest or "?", word]

    @property
    def note(self) -> str:
        """A line below the table: what to do, or why nothing is done; empty where there is nothing to say."""
        package = "" if self.package == self.framework else self.package
        what = " ".join(filter(None, (f"{self.framework}:" if package else "", package or self.framework, self.newest)))
        return f"{what}: {self.why.removeprefix('held: ')}" if self.why else ""


def check(row: Row, draw: Report) -> tuple[list[Found], DlbenchError | None]:
    """Ask the index for the newest releases of the row's own packages; return them and the first error.

    Where one cannot be asked its line says why.
    """
    found: list[Found] = []
    failed: DlbenchError | None = None
    held = {str(canonicalize_name(name)): reason for name, reason in row.framework.held.items()}
    pythons = ", ".join(row.framework.python)
    try:
        packages = row.own
    except DlbenchError as error:
        return [Found(row.name, pythons, "", "", "", False, str(error))], error
    for package in packages:
        draw(f"{row.framework.title}: {package}")
        locked = newest = ""
        try:
            locked = row.old.version(package)
            releases = [release.partition("+")[0] for release in row.index.releases(package)]
            newest = next(iter(releases), "")
            newer = is_newer(newest, locked)
            why = _why(row, package, locked, releases) if newer else "" if newest else "no release for this Python"
            if newer and package in held:
                why = f"held: {held[package]}"
        except Interrupted:
            raise
        except DlbenchError as error:
            failed, newer, why = failed or error, False, str(error)
        found.append(Found(row.name, pythons, package, locked, newest, newer, why, newer and package in held))
    return found, failed


def _why(row: Row, package: str, locked: str, releases: list[str]) -> str:
    """Return what a refresh does about a package that has newer releases, the newest first."""
    asked = row.asked.get(package, SpecifierSet())
    taken = next(iter(asked.filter(releases)), "")
    limit = "" if taken == releases[0] else f"framework.toml asks for {package}{asked}"
    command = f"`dlbench env refresh {row.name}`" if is_newer(taken, locked) else ""
    return f"{command} takes {taken}: {limit}" if command and limit else command or limit


def data(found: list[Found]) -> list[dict[str, Any]]:
    """Return what was found for JSON."""
    return [asdict(each) for each in found]

"""A row that can be refreshed: a framework with one of its locks, its Python, and what the lock is resolved from."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..environments import needs
from ..environments.folders import home, make_folder
from ..environments.interpreters import find_python
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning.framework import Framework, find, offered
from .new_lock import OldLock
from .package_index import PackageIndex, serves


@dataclass(frozen=True)
class Row:
    """A framework with one of its locks, whose environment is refreshed by itself."""

    framework: Framework
    """With this lock alone (see `Framework.by_lock`)."""
    python: Path | None
    """The oldest interpreter here that the lock is for: what it can have, later ones can. None where there is none."""

    @property
    def name(self) -> str:
        """The framework's name."""
        return self.framework.name

    @cached_property
    def old(self) -> OldLock:
        """The lock as it is; raises UsageError where it cannot be used."""
        return OldLock.of(self.framework)

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """What the lock is resolved from: the packages that framework.toml names and NumPy, else all that it has."""
        named = self.framework.packages
        if not named:
            return tuple(self.old.lines)
        numpy = () if "numpy" in map(name_of, named) else ("numpy",)
        return (*named, *(name for name in numpy if name in self.old.lines))

    @property
    def own(self) -> tuple[str, ...]:
        """The packages whose releases make the row what it is, the framework's own first."""
        if self.framework.packages:
            return tuple(map(name_of, self.framework.packages))
        module = canonicalize_name(self.framework.imports.partition(".")[0])
        return (module if module in self.old.lines else next(iter(self.old.lines)),)

    @property
    def asked(self) -> dict[str, SpecifierSet]:
        """The versions that framework.toml asks for, by package."""
        return {name_of(each): Requirement(each).specifier for each in self.framework.packages}

    @property
    def constraints(self) -> list[str]:
        """The locked versions of the packages that are held."""
        return [f"{name}=={version}" for name in self.framework.held if (version := self.old.version(name))]

    @property
    def folder(self) -> Path:
        """Where the log and the new lock are kept until it takes the old one's place."""
        return make_folder(home() / "refresh" / self.name)

    @property
    def index(self) -> PackageIndex:
        """The package index for its Python; raises FrameworkEnvironmentError where this machine has none."""
        if self.python is None:
            raise FrameworkEnvironmentError(needs.how_to_get_python(self.framework, bring=False))
        return PackageIndex(self.python, self.folder / "pip.log")

    def candidate(self, text: str) -> "Row":
        """Return the row with this new lock, which is written beside the log."""
        lock = self.folder / self.framework.lock_file.name
        lock.write_text(text, encoding="utf-8")
        return Row(self.framework.model_copy(update={"requirements": str(lock)}), self.python)


def name_of(requirement: str) -> str:
    """Return the canonical name of the package that a requirement is about."""
    return str(canonicalize_name(Requirement(requirement).name))


def rows(names: Iterable[str]) -> list[Row]:
    """Return the rows of these frameworks; without names those of every one that is not historic.

    Raises UsageError for a framework without locked Python packages.
    """
    frameworks = [find(name) for name in names]
    for each in frameworks:
        if not _is_locked(each):
            reason = f"is not available: {each.unavailable}" if each.unavailable else "has no locked Python packages."
            raise UsageError(f"{each.name} cannot be refreshed: it {reason}")
    if not frameworks:
        frameworks = [each for each in offered().values() if _is_locked(each) and not each.historic]
    return [Row(each, _oldest_python(each)) for framework in frameworks for each in framework.by_lock]


def without_python(wanted: Iterable[Row]) -> list[Row]:
    """Return the rows whose lock is for Pythons that are not here, where another lock of the framework is for one."""
    wanted = list(wanted)
    able = {row.name for row in wanted if row.python is not None}
    return [row for row in wanted if row.python is None and row.name in able]


def _oldest_python(framework: Framework) -> Path | None:
    versions = sorted(framework.python, key=Version)
    found = [python for version in versions if (python := find_python(version))]
    return next((python for python in found if serves(python)), next(iter(found), None))


def _is_locked(framework: Framework) -> bool:
    return framework.environment == "own" and not framework.interpreter and not framework.unavailable

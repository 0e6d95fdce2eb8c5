"""A new lock from a resolved set of packages, in the form of the old one."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from ..environments import python_packages
from ..errors import UsageError
from ..planning.framework import Framework, catalogue
from .package_index import Package

_CHECKSUM = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_HEADING = re.compile(r"\A(?:#.*\n|\n)*")

Checksums = Callable[[list[Package]], Mapping[str, frozenset[str]]]
"""Asks the index for the checksums of all files of these packages."""


@dataclass(frozen=True)
class OldLock:
    """A lock as it is: the lines of each package by name, and the second section of what is only there where asked."""

    text: str
    lines: Mapping[str, tuple[str, ...]]
    where_asked: frozenset[str]

    @classmethod
    def of(cls, framework: Framework) -> "OldLock":
        """Read the framework's lock; raises UsageError where it cannot be read or is no list of ``name==version``."""
        try:
            text = framework.lock_file.read_text(encoding="utf-8")
            always, where_asked = map(python_packages.by_name, python_packages.sections(framework.lock_file))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"{framework.lock_file} cannot be read: {reason}.") from error
        wrong = next((line for lines in always.values() for line in lines if "==" not in line), None)
        if wrong is not None or not always:
            raise UsageError(f"{framework.lock_file} is not a list of name==version lines ({wrong or 'it is empty'}).")
        return cls(text, {name: tuple(lines) for name, lines in always.items()}, frozenset(where_asked))

    def version(self, package: str) -> str:
        """Return the locked version of a package without what tells builds of it apart; "" where it is not locked."""
        lines = self.lines.get(canonicalize_name(package))
        return version_of(lines[0]).partition("+")[0] if lines else ""


def version_of(line: str) -> str:
    """Return the version in a line of a lock."""
    return line.split()[0].partition("==")[2]


def known_lines(pythons: tuple[str, ...]) -> dict[str, str]:
    """Return the lines of all locks for exactly these Pythons, by "name==version".

    One version has the same checksums in all of them, so a new lock takes those that are there.
    """
    found: dict[str, str] = {}
    for framework in catalogue().values():
        for each in framework.by_lock:
            if each.environment == "own" and each.python == pythons and each.lock_file.is_file():
                for section in python_packages.sections(each.lock_file):
                    found.update({line.split()[0]: line for line in section if _CHECKSUM.search(line)})
    return found


def compose(framework: Framework, old: OldLock, resolved: Iterable[Package], checksums: Checksums) -> str:
    """Return the text of the new lock; equal to the old text where nothing is newer.

    Packages that are held keep their lines, and so does the second section. Raises UsageError where the lock has
    several builds of a package that is not held: a resolved set has one.
    """
    held = set(map(canonicalize_name, framework.held))
    hashed = python_packages.is_hashed(framework.lock_file)
    packages = [each for each in resolved if each.name not in old.where_asked]
    several = next((each for each in packages if each.name not in held and len(old.lines.get(each.name, ())) > 1), None)
    if several is not None:
        raise UsageError(
            f"{framework.lock_file} has several builds of {several.name}, which a refresh cannot write. Name it in "
            f"[held] of framework.toml, or change its lines by hand."
        )
    own = {line.split()[0]: line for lines in old.lines.values() for line in lines}
    known = {**known_lines(framework.python), **own} if hashed else {}
    kept = {each.pinned: line for each in packages if _fits(line := known.get(each.pinned, ""), each)}
    stays = {each.name for each in packages if each.name in held and each.name in old.lines}
    unknown = [each for each in packages if each.name not in stays and each.pinned not in kept]
    found = checksums(unknown) if hashed and unknown else {}
    lines: list[str] = []
    for each in packages:
        if each.name in stays:
            lines += old.lines[each.name]
        elif each.pinned in kept:
            lines.append(kept[each.pinned])
        else:
            all_files = sorted(each.checksums | found.get(each.name, frozenset())) if hashed else []
            lines.append(" ".join([each.pinned, *(f"--hash=sha256:{checksum}" for checksum in all_files)]))
    heading = _HEADING.match(old.text)
    _, mark, rest = old.text.partition(python_packages.ONLY_WHERE)
    first = "".join(f"{line}\n" for line in lines)
    return f"{heading[0] if heading else ''}{first}{mark.lstrip()}{rest}"


def _fits(line: str, package: Package) -> bool:
    return package.checksums <= set(_CHECKSUM.findall(line))


def changes(old: OldLock, new: OldLock) -> list[tuple[str, str, str]]:
    """Return what differs between two locks: package, old version, new version ("": not there).

    Where the version stays the files differ; in which order lines and checksums stand does not matter.
    """
    words = [{name: set(" ".join(lines).split()) for name, lines in each.lines.items()} for each in (old, new)]
    names = sorted(name for name in {*old.lines, *new.lines} if words[0].get(name) != words[1].get(name))
    return [(name, old.version(name), new.version(name)) for name in names]


def is_newer(version: str, than: str) -> bool:
    """Tell whether a version is a later release than another, or than none."""
    return bool(version) and (not than or Version(version) > Version(than))

"""Releases of a framework on the package index: the Pythons here that they are for, and an
environment for each.

A release is resolved once, as pip would have resolved it at the time: each of its dependencies is
no newer than a week after it, where the index says when files were uploaded. The files, with their
checksums, are kept as the release's lock; from it the environment is built like any other, and
built again with the same files.
"""

import contextlib
import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import filelock
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted

from ..display.screen import StatusLine, err, say
from ..errors import FrameworkEnvironmentError, IndexUnreachableError, UsageError
from ..planning.framework import Framework, row_of_package
from ..planning.values import Build
from . import environment, index, packages
from .environment import Report, Source, State, external_source
from .folders import home, make_folder, write_whole, written
from .index import Wheel
from .interpreters import pythons_at_hand

EVERY = ("minor", "all")
LATER = timedelta(days=7)
"""A dependency may be so much newer than the release: packages of one project come out within some
days."""
_HEADING = re.compile(r"^# \S+, uploaded (\S+), for Python (3\.\d+), (\d+) MB\n")
_REPORTING_PIP = Version("22.2")
_ROUNDS = 4
"""Of resolving: an older dependency may need packages that the newest one does not."""


@dataclass(frozen=True)
class Release:
    """A release of a framework."""

    version: str
    uploaded: date | None = None
    """None where the index does not say."""
    pythons: tuple[str, ...] = ()
    """Those here that it is for. Its environment is made with the first that its dependencies have
    files for."""
    problem: str = ""
    """Why it cannot be built here."""
    locked: Framework | None = None
    """The framework with the lock of this release, once it is resolved."""

    @property
    def is_built(self) -> bool:
        """Whether its environment is ready."""
        return self.locked is not None and environment.locate(self.locked).state is State.READY


def package_of(framework: Framework) -> Requirement:
    """Return the package whose releases are the framework's; raises UsageError for one that is no
    such package.
    """
    if (
        framework.environment != "own"
        or framework.interpreter
        or framework.unavailable
        or not framework.packages
    ):
        raise UsageError(
            f"{framework.title} is not installed from the package index, so it has no releases to "
            "choose from. Give interpreters instead: --python OLD=PATH,NEW=PATH."
        )
    return Requirement(framework.packages[0])


def elsewhere(framework: Framework) -> str:
    """Return a sentence with the row of the package that has this framework's name; empty where it
    is its own.
    """
    other = row_of_package(framework.name)
    if other is None:
        return ""
    return (
        f" The row {framework.name} is the package {package_of(framework).name}; the releases of "
        f"the package {framework.name} are those of the row {other.name}."
    )


def row_of(
    framework: Framework,
    release: Release,
    python: Path | None = None,
    step: Framework | None = None,
) -> Build:
    """Return the row of a release, as `--python jax-0.4.20:jax=PATH` gives it; of a user's own
    ``step`` with it.
    """
    return Build(f"{framework.name}-{release.version}", step or framework, python, release.uploaded)


# Which there are.


def releases_on_index(
    framework: Framework,
    *,
    first: str | None = None,
    last: str | None = None,
    every: str = "all",
    pre: bool = False,
    report: Report = say,
) -> list[Release]:
    """Return the releases that the index has wheels of, the oldest first, from ``first`` to
    ``last``.

    With ``every`` "minor", only ``first`` and the last release of each minor version; with ``pre``
    pre-releases too. They share as few Pythons as possible, so that little else differs; resolved
    releases keep theirs. If the index cannot be reached, the releases that are built here are
    returned, and ``report`` gets a line.

    Raises UsageError for a framework that is not on the index or has no such release, and
    IndexUnreachableError if none is built either.
    """
    package = package_of(framework)
    low, high = _version(first), _version(last)
    if low is not None and high is not None and low > high:
        raise UsageError(f"{framework.title} {low} is later than {high}. Swap the two.")
    known = known_releases(framework)
    try:
        (found,) = index.wheels([package.name]).values()
    except IndexUnreachableError as error:
        built = chosen_versions(
            (version for version, each in known.items() if each.is_built), low, high, "all"
        )
        if not built:
            raise
        report(
            f"{error} Only the releases that are built here are used: {', '.join(map(str, built))}."
        )
        return [known[each] for each in built]
    found = tuple(each for each in found if pre or not each.version.is_prerelease)
    files = grouped(found, lambda each: Version(each.version.public))
    versions = chosen_versions(files, low, high, every)
    if not versions:
        raise UsageError(
            f"The package index has no wheels of {package.name} in this "
            f"range.{elsewhere(framework)}"
        )
    here = pythons_at_hand()
    order = sorted(here, key=lambda each: [*framework.python, *here].index(each))
    fitting = {
        version: known[version].pythons if version in known else _fitting(files[version], order)
        for version in versions
    }
    best = fewest_pythons(fitting)

    def release(version: Version) -> Release:
        pythons = sorted(fitting[version], key=lambda each: each != best[version])
        uploaded = min((each.uploaded for each in files[version] if each.uploaded), default=None)
        return Release(
            str(version), uploaded, tuple(pythons), "" if pythons else _unfit(files[version], here)
        )

    return [known.get(version) or release(version) for version in versions]


def _version(word: str | None) -> Version | None:
    try:
        return None if word is None else Version(word)
    except InvalidVersion as error:
        raise UsageError(
            f"{word!r} is not a version. Name a release by its version, as in 0.4.20."
        ) from error


def chosen_versions(
    known: Iterable[Version], low: Version | None, high: Version | None, every: str
) -> list[Version]:
    """Return those of the versions that are asked for, rising."""
    within = sorted(
        each for each in known if (low is None or low <= each) and (high is None or each <= high)
    )
    newest = {each.release[:2]: each for each in within}
    return (
        within
        if every == "all"
        else sorted({*newest.values(), *(each for each in within if each == low)})
    )


def _fitting(files: Sequence[Wheel], pythons: Iterable[str]) -> list[str]:
    """Return those of the Pythons that a release was made for, else those that it may run on."""
    of_its_time, any_time = (
        [each for each in pythons if any(wheel.fits(each, later) for wheel in files)]
        for later in (False, True)
    )
    return of_its_time or any_time


def fewest_pythons(fitting: Mapping[Version, Sequence[str]]) -> dict[Version, str]:
    """Return a Python for each version that has one: the Python of the most versions, then of the
    most others.

    On a tie, the one named first.
    """
    found: dict[Version, str] = {}
    while left := {
        version: pythons for version, pythons in fitting.items() if pythons and version not in found
    }:
        counts = Counter(each for pythons in left.values() for each in pythons)
        best = max(counts, key=counts.__getitem__)  # the first of several
        found |= {version: best for version, pythons in left.items() if best in pythons}
    return found


def _unfit(files: Iterable[Wheel], here: Iterable[str]) -> str:
    tags = {each.interpreter for wheel in files for each in wheel.made_for}
    meant = {re.sub(r"^(?:cp|py)(\d)(\d+)$", r"\1.\2", each) for each in tags}
    names = ", ".join(sorted(meant, key=lambda each: (len(each), each)))
    return f"its files are for {names}, not for this machine with Python {', '.join(here)}"


# Locks of releases.


def _lock(framework: Framework, version: str) -> Path:
    return home() / "releases" / f"{framework.name}-{version}.txt"


def _read(framework: Framework, version: str) -> Release | None:
    """Return a resolved release; None where it is not, or its Python is gone."""
    lock = _lock(framework, version)
    try:
        ((day, python, megabytes),) = _HEADING.findall(lock.read_text(encoding="utf-8"))
        uploaded = None if day == "-" else date.fromisoformat(day)
    except (OSError, ValueError):
        return None
    if python not in pythons_at_hand():
        return None
    unpacked = (
        framework.disk_megabytes / framework.download_megabytes
        if framework.download_megabytes
        else 4.0
    )
    changed = {
        "name": f"{framework.name}-{version}",
        "title": f"{framework.title} {version}",
        "requirements": str(lock),
        "python": (python,),
        "locks": {},
        "download_megabytes": int(megabytes),
        "disk_megabytes": math.ceil(int(megabytes) * unpacked),
    }
    return Release(version, uploaded, (python,), locked=framework.model_copy(update=changed))


def known_releases(framework: Framework) -> dict[Version, Release]:
    """Return the releases that are resolved here, built or not, by their versions."""
    kept = _lock(framework, "*")
    names = [each.stem.removeprefix(f"{framework.name}-") for each in kept.parent.glob(kept.name)]
    return {Version(name): known for name in names if (known := _read(framework, name)) is not None}


# Building.


@contextlib.contextmanager
def _in_short() -> Iterator[None]:
    """Remove the remedy from an error: it is about the framework's own environment."""
    try:
        yield
    except FrameworkEnvironmentError as error:
        reason = str(error).rpartition("could not be installed: ")[2].partition(". ")[0]
        raise type(error)(f"{reason.rstrip('.')}.") from error


@_in_short()
def source_of(
    framework: Framework, release: Release, step: Framework | None = None, report: Report = say
) -> Source:
    """Return the source of a release's row, after resolving and building its environment if needed.

    Raises FrameworkEnvironmentError with the reason, or IndexUnreachableError.
    """
    locked = resolved(framework, release).locked
    assert locked is not None
    with StatusLine(err) as status:
        built = environment.build(locked, report, status.draw)
    return external_source(row_of(framework, release, built.interpreter, step))


def sources(
    framework: Framework,
    releases: Sequence[Release],
    step: Framework | None = None,
    report: Report = say,
    build_missing: bool = True,
) -> list[Source]:
    """Return the sources of the releases' rows, in their order, after building missing
    environments.

    All are resolved first, and ``report`` gets a line with their downloads and disk space. An
    unreachable index is not asked again. Raises FrameworkEnvironmentError if the disk is too small,
    before anything is built, and if no release has an environment.
    """
    away = None if build_missing else FrameworkEnvironmentError("it is not built.")
    known: list[Release] = []
    for each in releases:
        try:
            if away is not None and each.locked is None:
                raise away
            known.append(resolved(framework, each))
        except FrameworkEnvironmentError as error:
            away = error if isinstance(error, IndexUnreachableError) else away
            known.append(replace(each, pythons=(), problem=str(error)))
    missing = [each.locked for each in known if each.locked is not None and not each.is_built]
    if missing and build_missing:
        _announce(framework, missing, report)
    found = []
    for each in known:
        try:
            if away is not None and each.locked is not None and not each.is_built:
                raise away
            found.append(source_of(framework, each, step, report))
        except FrameworkEnvironmentError as error:
            away = error if isinstance(error, IndexUnreachableError) else away
            if build_missing:
                report(f"{framework.title} {each.version} is left out: {error}")
            found.append(Source(row_of(framework, each, None, step), None, "", "", str(error)))
    if not any(each.interpreter for each in found):
        if not build_missing and not any(each.is_built for each in known):
            raise FrameworkEnvironmentError(
                f"No environment of these releases of {framework.title} is built on this machine. "
                "Leave --no-build out to build them."
            )
        reason = found[-1].reason
        reason = reason[:1].upper() + reason[1:]
        raise FrameworkEnvironmentError(f"No release of {framework.title} could be built. {reason}")
    return found


def _announce(framework: Framework, missing: Sequence[Framework], report: Report) -> None:
    """Say what is downloaded and how much room it takes; raises FrameworkEnvironmentError where
    there is less.
    """
    folder, several = home() / "environments", counted(len(missing), "release")
    downloads = [each.download_megabytes for each in missing]
    needed = sum(each.disk_megabytes for each in missing) + max(
        downloads
    )  # of one release: kept until it is ready
    report(
        f"{framework.title}: {several} to build; downloads about {sum(downloads)} MB, takes about "
        f"{needed} MB in {folder}"
    )
    free = environment.free_megabytes(folder)
    if free is not None and free < needed:
        raise FrameworkEnvironmentError(
            f"{several} of {framework.title} take about {needed} MB, and {folder} has {free:.0f} "
            "MB free. Name fewer (--from, --to), free some, or set DLBENCH_HOME to a folder on a "
            "larger disk."
        )


# Resolving.


@_in_short()
def resolved(framework: Framework, release: Release) -> Release:
    """Return the release with its lock, which is made unless it is there.

    Raises FrameworkEnvironmentError with the reason.
    """
    if release.locked is not None:
        return release
    if not release.pythons:
        raise FrameworkEnvironmentError(release.problem or "there is no Python for it here")
    lock = _lock(framework, release.version)
    make_folder(lock.parent)
    with written(lock.parent), filelock.FileLock(lock.with_suffix(".lock")):
        if _read(framework, release.version) is None:
            write_whole(lock, _resolve(framework, release, lock.with_suffix(".log")))
    known = _read(framework, release.version)
    assert known is not None  # it was written for a Python that is here
    return known


def _resolve(framework: Framework, release: Release, log: Path) -> str:
    """Return the lock of a release for the first of its Pythons that all its dependencies have
    files for.
    """
    log.unlink(missing_ok=True)
    errors: list[FrameworkEnvironmentError] = []
    for python in release.pythons:
        try:
            return _resolve_for(framework, release, python, log)
        except IndexUnreachableError:
            raise
        except FrameworkEnvironmentError as error:
            errors.append(error)
    raise errors[0]


def _resolve_for(framework: Framework, release: Release, python: str, log: Path) -> str:
    package, own = package_of(framework), str(canonicalize_name(package_of(framework).name))
    package.specifier = SpecifierSet(f"=={release.version}")
    wanted = [str(package), *framework.packages[1:]]
    lock = framework.lock_file
    names = {own, *(packages.by_name(packages.sections(lock)[0]) if lock.exists() else ())}
    found: dict[str, tuple[str, str]] = {}
    for _ in range(_ROUNDS):
        limits = limits_of(names - {own}, release.uploaded, python)
        try:
            found = _ask_pip(framework, python, wanted, limits, log)
        except IndexUnreachableError:
            raise
        except FrameworkEnvironmentError:
            if not limits:
                raise
            found = found or _ask_pip(
                framework, python, wanted, {}, log
            )  # it needs something newer
            break
        if release.uploaded is None or found.keys() <= names:
            break
        names |= found.keys()
    lines, files = zip(*(found[name] for name in sorted(found)), strict=True)
    size = sum(
        wheel.size for of in index.wheels(found).values() for wheel in of if wheel.file in files
    )
    megabytes = math.ceil(size / 1e6) or framework.download_megabytes
    heading = (
        f"# {release.version}, uploaded {release.uploaded or '-'}, for Python {python}, "
        f"{megabytes} MB\n"
    )
    return heading + "".join(lines)


def limits_of(names: Iterable[str], uploaded: date | None, python: str) -> dict[str, Version]:
    """Return the newest allowed version of each of these packages for a release of that day.

    This is the newest one of the time that fits the Python; if the Python is too new for all of
    them, the oldest that fits.
    """
    if uploaded is None:
        return {}
    found = {}
    for name, of in index.wheels(sorted(names)).items():
        final = [each for each in of if not each.version.is_prerelease]
        fitting = [
            (each.uploaded, each.version)
            for each in final
            if each.uploaded and each.fits(python, later=True)
        ]
        if fitting:
            then = [version for day, version in fitting if day <= uploaded + LATER]
            found[name] = max(then) if then else min(version for _, version in fitting)
    return found


def _ask_pip(
    framework: Framework,
    python: str,
    wanted: Sequence[str],
    limits: Mapping[str, Version],
    log: Path,
) -> dict[str, tuple[str, str]]:
    """Return the line of a lock and the file of each package that pip would install.

    Raises FrameworkEnvironmentError.
    """
    with tempfile.TemporaryDirectory() as folder:
        constraints, answer = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text(
            "".join(f"{name}<={limit}\n" for name, limit in sorted(limits.items()))
        )
        command = [*_pip(pythons_at_hand()[python]), "install", "--dry-run", "--ignore-installed"]
        command += [
            "--only-binary",
            ":all:",
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
        ]
        command += [
            "--retries",
            "2",
            "--report",
            str(answer),
            "--constraint",
            str(constraints),
            *wanted,
        ]
        with StatusLine(err) as status:
            packages.run_pip(framework, command, log, f"resolving {wanted[0]}", status.draw)
        items = json.loads(answer.read_bytes())["install"]
    found = {}
    for each in items:
        name, archive = (
            str(canonicalize_name(each["metadata"]["name"])),
            each["download_info"]["archive_info"],
        )
        digest = archive.get("hashes", {}).get("sha256") or archive["hash"].removeprefix("sha256=")
        line = f"{name}=={each['metadata']['version']} --hash=sha256:{digest}\n"
        found[name] = line, index.file_name(each["download_info"]["url"])
    return found


@cache
def _pip(python: Path) -> list[str]:
    """Return the command of a pip that resolves for this Python: its own where that is new enough,
    else dlbench's.
    """
    done = subprocess.run(
        [str(python), "-I", "-m", "pip", "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    words = done.stdout.split()
    if done.returncode == 0 and len(words) > 1 and Version(words[1]) >= _REPORTING_PIP:
        return [str(python), "-I", "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(python)]

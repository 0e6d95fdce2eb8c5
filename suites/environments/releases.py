"""Releases of a framework on the package index, their Pythons on this machine, and environments.

A release is resolved once, as pip would have resolved it at the time: each of its dependencies is
no newer than a week after it, where the index says when files were uploaded. The files, with their
checksums, are kept as the release's lock. From it the environment is built like any other, and
built again with the same files.
"""

import contextlib
import itertools
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
from .environment import BuildSource, Say, State, external_source
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
    """Those on this machine that it is for.

    Its environment is made with the first that its dependencies have files for."""
    problem: str = ""
    """Why it cannot be built on this machine."""
    locked: Framework | None = None
    """The framework with the lock of this release, once it is resolved."""

    @property
    def is_built(self) -> bool:
        """Whether its environment is ready."""
        return self.locked is not None and environment.locate(self.locked).state is State.READY


def package_of(framework: Framework) -> Requirement:
    """Return the package whose releases are the framework's.

    Raises UsageError for a framework that is no such package.
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
    """Return a sentence with the row of the package that has this framework's name.

    It is empty where that is the framework's own row.
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
    """Return the row of a release, as `--python jax-0.4.20:jax=PATH` gives it.

    With a ``step`` of the user's own it is the row of that step.
    """
    return Build(f"{framework.name}-{release.version}", step or framework, python, release.uploaded)


# Releases on the index.


def releases_on_index(
    framework: Framework,
    *,
    first: str | None = None,
    last: str | None = None,
    every: str = "all",
    pre: bool = False,
    report: Say = say,
) -> list[Release]:
    """Return the releases that the index has wheels of, oldest first, from ``first`` to ``last``.

    With ``every`` "minor", only ``first`` and the last release of each minor version; with ``pre``
    pre-releases too. They share as few Pythons as possible, so that little else differs. Resolved
    releases keep theirs. If the index cannot be reached, the releases that are built on this
    machine are returned, and ``report`` gets a line.

    Raises UsageError for a framework that is not on the index or has no such release, and
    IndexUnreachableError if no release is built either.
    """
    package = package_of(framework)
    low, high = _version(first), _version(last)
    if low is not None and high is not None and low > high:
        raise UsageError(f"{framework.title} {low} is later than {high}. Swap the two.")
    known = known_releases(framework)
    try:
        (wheels,) = index.wheels([package.name]).values()
    except IndexUnreachableError as error:
        built = [version for version, release in known.items() if release.is_built]
        built = chosen_versions(built, low, high, "all")
        if not built:
            raise
        report(
            f"{error} Only the releases that are built already are used: "
            f"{', '.join(map(str, built))}."
        )
        return [known[version] for version in built]
    if not pre:
        wheels = tuple(wheel for wheel in wheels if not wheel.version.is_prerelease)
    files = grouped(wheels, lambda wheel: Version(wheel.version.public))
    versions = chosen_versions(files, low, high, every)
    if not versions:
        raise UsageError(
            f"The package index has no wheels of {package.name} in this "
            f"range.{elsewhere(framework)}"
        )
    return _with_pythons(framework, {version: files[version] for version in versions}, known)


def _with_pythons(
    framework: Framework, files: Mapping[Version, Sequence[Wheel]], known: Mapping[Version, Release]
) -> list[Release]:
    """Return the releases that these wheels belong to, each with its Pythons on this machine."""
    at_hand = pythons_at_hand()
    preferred = sorted(at_hand, key=[*framework.python, *at_hand].index)
    fitting: dict[Version, Sequence[str]] = {}
    for version, wheels in files.items():
        if version in known:
            fitting[version] = known[version].pythons
        else:
            fitting[version] = _fitting_pythons(wheels, preferred)
    best = fewest_pythons(fitting)
    releases = []
    for version, wheels in files.items():
        if version in known:
            releases.append(known[version])
            continue
        days = [wheel.uploaded for wheel in wheels if wheel.uploaded]
        uploaded = min(days, default=None)
        if version in best:
            others = [python for python in fitting[version] if python != best[version]]
            release = Release(str(version), uploaded, (best[version], *others))
        else:
            release = Release(str(version), uploaded, problem=_unfit_reason(wheels, at_hand))
        releases.append(release)
    return releases


def _version(word: str | None) -> Version | None:
    if word is None:
        return None
    try:
        return Version(word)
    except InvalidVersion as error:
        raise UsageError(
            f"{word!r} is not a version. Name a release by its version, as in 0.4.20."
        ) from error


def chosen_versions(
    versions: Iterable[Version], low: Version | None, high: Version | None, every: str
) -> list[Version]:
    """Return those of the versions that are asked for, rising."""
    within: list[Version] = []
    for version in sorted(versions):
        if (low is None or low <= version) and (high is None or version <= high):
            within.append(version)
    if every == "all":
        return within
    newest = {version.release[:2]: version for version in within}
    chosen = set(newest.values())
    chosen.update(version for version in within if version == low)
    return sorted(chosen)


def _fitting_pythons(wheels: Sequence[Wheel], pythons: Iterable[str]) -> list[str]:
    """Return those of the Pythons that a release was made for, else those that it may run on."""
    fitting: list[str] = []
    for later in (False, True):
        fitting = [
            python for python in pythons if any(wheel.fits(python, later) for wheel in wheels)
        ]
        if fitting:
            break
    return fitting


def fewest_pythons(fitting: Mapping[Version, Sequence[str]]) -> dict[Version, str]:
    """Return a Python for each version that has one, as few different ones as possible.

    The first is the Python of the most versions, the next that of the most others. On a tie, it is
    the one named first.
    """
    chosen: dict[Version, str] = {}
    left = {version: pythons for version, pythons in fitting.items() if pythons}
    while left:
        counts = Counter(itertools.chain.from_iterable(left.values()))
        best = max(counts, key=counts.__getitem__)  # the first of several
        for version, pythons in list(left.items()):
            if best in pythons:
                chosen[version] = best
                del left[version]
    return chosen


def _unfit_reason(wheels: Iterable[Wheel], at_hand: Iterable[str]) -> str:
    tags = {tag.interpreter for wheel in wheels for tag in wheel.made_for}
    meant = {re.sub(r"^(?:cp|py)(\d)(\d+)$", r"\1.\2", tag) for tag in tags}
    names = ", ".join(sorted(meant, key=lambda name: (len(name), name)))
    return f"its files are for {names}, not for this machine with Python {', '.join(at_hand)}"


# Locks of releases.


def _lock_path(framework: Framework, version: str) -> Path:
    return home() / "releases" / f"{framework.name}-{version}.txt"


def _read(framework: Framework, version: str) -> Release | None:
    """Return a resolved release; None where it is not resolved, or its Python is gone."""
    lock = _lock_path(framework, version)
    try:
        ((day, python, megabytes),) = _HEADING.findall(lock.read_text(encoding="utf-8"))
        uploaded = None if day == "-" else date.fromisoformat(day)
    except (OSError, ValueError):
        return None
    if python not in pythons_at_hand():
        return None
    unpacked = 4.0
    if framework.download_megabytes:
        unpacked = framework.disk_megabytes / framework.download_megabytes
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
    """Return the releases that are resolved on this machine, built or not, by their versions."""
    pattern = _lock_path(framework, "*")
    releases: dict[Version, Release] = {}
    for lock in pattern.parent.glob(pattern.name):
        version = lock.stem.removeprefix(f"{framework.name}-")
        release = _read(framework, version)
        if release is not None:
            releases[Version(version)] = release
    return releases


# Building.


@contextlib.contextmanager
def _without_remedy() -> Iterator[None]:
    """Remove the remedy from an error: it is about the framework's own environment."""
    try:
        yield
    except FrameworkEnvironmentError as error:
        reason = str(error).rpartition("could not be installed: ")[2].partition(". ")[0]
        raise type(error)(f"{reason.rstrip('.')}.") from error


@_without_remedy()
def source_of(
    framework: Framework, release: Release, step: Framework | None = None, report: Say = say
) -> BuildSource:
    """Return the source of a release's row, after building its environment if needed.

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
    report: Say = say,
    build_missing: bool = True,
) -> list[BuildSource]:
    """Return the sources of the releases' rows, in their order, after building what is missing.

    All are resolved first, and ``report`` gets a line with their downloads and disk space. An
    unreachable index is not asked again. Raises FrameworkEnvironmentError if the disk is too small,
    before anything is built, and if no release has an environment.
    """
    refusal = None if build_missing else FrameworkEnvironmentError("it is not built.")
    known: list[Release] = []
    for release in releases:
        try:
            if refusal is not None and release.locked is None:
                raise refusal
            known.append(resolved(framework, release))
        except FrameworkEnvironmentError as error:
            if isinstance(error, IndexUnreachableError):
                refusal = error
            known.append(replace(release, pythons=(), problem=str(error)))
    if build_missing:
        missing = [
            release.locked
            for release in known
            if release.locked is not None and not release.is_built
        ]
        if missing:
            _announce(framework, missing, report)
    rows: list[BuildSource] = []
    for release in known:
        try:
            if refusal is not None and release.locked is not None and not release.is_built:
                raise refusal
            rows.append(source_of(framework, release, step, report))
        except FrameworkEnvironmentError as error:
            if isinstance(error, IndexUnreachableError):
                refusal = error
            if build_missing:
                report(f"{framework.title} {release.version} is left out: {error}")
            build = row_of(framework, release, None, step)
            rows.append(BuildSource(build, None, "", "", str(error)))
    if not any(row.interpreter for row in rows):
        none_is_there = not any(release.is_built for release in known)
        raise _nothing_built(framework, rows[-1].reason, not build_missing and none_is_there)
    return rows


def _nothing_built(framework: Framework, reason: str, by_choice: bool) -> FrameworkEnvironmentError:
    if by_choice:
        return FrameworkEnvironmentError(
            f"No environment of these releases of {framework.title} is built on this machine. "
            "Leave --no-build out to build them."
        )
    reason = reason[:1].upper() + reason[1:]
    return FrameworkEnvironmentError(f"No release of {framework.title} could be built. {reason}")


def _announce(framework: Framework, missing: Sequence[Framework], report: Say) -> None:
    """Report the size of the downloads and the disk space that they take.

    Raises FrameworkEnvironmentError where there is less.
    """
    folder = home() / "environments"
    several = counted(len(missing), "release")
    downloads = [locked.download_megabytes for locked in missing]
    largest_download = max(downloads)  # is kept until its release is ready
    needed = sum(locked.disk_megabytes for locked in missing) + largest_download
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


@_without_remedy()
def resolved(framework: Framework, release: Release) -> Release:
    """Return the release with its lock, which is made if it is missing.

    Raises FrameworkEnvironmentError with the reason.
    """
    if release.locked is not None:
        return release
    if not release.pythons:
        raise FrameworkEnvironmentError(release.problem or "this machine has no Python for it")
    lock = _lock_path(framework, release.version)
    make_folder(lock.parent)
    with written(lock.parent), filelock.FileLock(lock.with_suffix(".lock")):
        if _read(framework, release.version) is None:
            write_whole(lock, _resolve(framework, release, lock.with_suffix(".log")))
    known = _read(framework, release.version)
    assert known is not None  # it was written for a Python of this machine
    return known


def _resolve(framework: Framework, release: Release, log: Path) -> str:
    """Return the lock of a release for the first Python that suits all its dependencies."""
    log.unlink(missing_ok=True)
    errors: list[FrameworkEnvironmentError] = []
    for python in release.pythons:
        try:
            return _lock_text(framework, release, python, log)
        except IndexUnreachableError:
            raise
        except FrameworkEnvironmentError as error:
            errors.append(error)
    raise errors[0]


def _lock_text(framework: Framework, release: Release, python: str, log: Path) -> str:
    package = package_of(framework)
    own = str(canonicalize_name(package.name))
    package.specifier = SpecifierSet(f"=={release.version}")
    wanted = [str(package), *framework.packages[1:]]
    names = {own}
    if framework.lock_file.exists():
        names.update(packages.by_name(packages.sections(framework.lock_file)[0]))
    pinned: dict[str, tuple[str, str]] = {}
    for _ in range(_ROUNDS):
        limits = limits_of(names - {own}, release.uploaded, python)
        try:
            pinned = _ask_pip(framework, python, wanted, limits, log)
        except IndexUnreachableError:
            raise
        except FrameworkEnvironmentError:
            if not limits:
                raise
            if not pinned:  # it needs something newer
                pinned = _ask_pip(framework, python, wanted, {}, log)
            break
        if release.uploaded is None or pinned.keys() <= names:
            break
        names |= pinned.keys()
    lines = [pinned[name][0] for name in sorted(pinned)]
    files = {file for _, file in pinned.values()}
    size = 0
    for wheels in index.wheels(pinned).values():
        size += sum(wheel.size for wheel in wheels if wheel.file in files)
    megabytes = math.ceil(size / 1e6) or framework.download_megabytes
    heading = (
        f"# {release.version}, uploaded {release.uploaded or '-'}, for Python {python}, "
        f"{megabytes} MB\n"
    )
    return heading + "".join(lines)


def limits_of(names: Iterable[str], uploaded: date | None, python: str) -> dict[str, Version]:
    """Return the newest allowed version of each of these packages for a release of that day.

    This is the newest one of the time that fits the Python. If the Python is too new for all of
    them, it is the oldest that fits.
    """
    if uploaded is None:
        return {}
    limits: dict[str, Version] = {}
    for name, wheels in index.wheels(sorted(names)).items():
        fitting: list[Version] = []
        old_enough: list[Version] = []
        for wheel in wheels:
            if wheel.version.is_prerelease or wheel.uploaded is None:
                continue
            if not wheel.fits(python, later=True):
                continue
            fitting.append(wheel.version)
            if wheel.uploaded <= uploaded + LATER:
                old_enough.append(wheel.version)
        if old_enough:
            limits[name] = max(old_enough)
        elif fitting:
            limits[name] = min(fitting)
    return limits


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
        constraints = Path(folder, "constraints.txt")
        answer = Path(folder, "report.json")
        lines = [f"{name}<={limit}\n" for name, limit in sorted(limits.items())]
        constraints.write_text("".join(lines))
        command = [*_pip(pythons_at_hand()[python]), "install", "--dry-run", "--ignore-installed"]
        command += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
        command += ["--progress-bar", "off", "--retries", "2", "--report", str(answer)]
        command += ["--constraint", str(constraints), *wanted]
        with StatusLine(err) as status:
            packages.run_pip(framework, command, log, f"resolving {wanted[0]}", status.draw)
        items = json.loads(answer.read_bytes())["install"]
    pinned: dict[str, tuple[str, str]] = {}
    for item in items:
        name = str(canonicalize_name(item["metadata"]["name"]))
        archive = item["download_info"]["archive_info"]
        digest = archive.get("hashes", {}).get("sha256") or archive["hash"].removeprefix("sha256=")
        line = f"{name}=={item['metadata']['version']} --hash=sha256:{digest}\n"
        pinned[name] = line, index.file_name(item["download_info"]["url"])
    return pinned


@cache
def _pip(python: Path) -> list[str]:
    """Return the command of a pip that resolves for this Python: its own if new enough, or ours."""
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

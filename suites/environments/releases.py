"""Releases of a framework on the package index: the Pythons here that they are for, and an environment for each.

A release is resolved once, as pip would have resolved it at the time: each of its dependencies is no newer than a week
after it, where the index says when files were uploaded. The files, with their checksums, are kept as the release's
lock; from it the environment is built like any other, and built again with the same files.
"""

import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Literal

import filelock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..display.screen import StatusLine, counted, err, say
from ..errors import FrameworkEnvironmentError, IndexUnreachableError, UsageError, unknown_name
from ..planning.framework import Framework
from ..planning.values import Build
from . import environment, index, packages
from .environment import Report, State
from .folders import home, make_folder, write_whole, written
from .index import Wheel
from .interpreters import name_of, pythons_at_hand

Every = Literal["minor", "all"]
EVERY: tuple[Every, ...] = ("minor", "all")
LATER = timedelta(days=7)
"""A dependency may be so much newer than the release: packages of one project come out within some days."""
_HEADING = re.compile(r"# (\S+), uploaded (\S+), for Python (3\.\d+), (\d+) MB\n")
_REPORTING_PIP = Version("22.2")
_ROUNDS = 4
"""Of resolving: an older dependency may need packages that the newest one does not."""


@dataclass(frozen=True)
class Release:
    """A release of a framework."""

    version: str
    uploaded: date | None = None
    """None where the index does not say."""
    interpreter: Path | None = None
    """The Python here to make its environment with; None: `problem` says why there is none."""
    problem: str | None = None
    others: tuple[Path, ...] = ()
    """Further Pythons that it is for, tried where its dependencies have no files for the first."""


@dataclass(frozen=True)
class Built:
    """A release and its environment, or the reason why it has none."""

    release: Release
    python: Path | None
    reason: str = ""


def package_of(framework: Framework) -> Requirement:
    """Return the package whose releases are the framework's; raises UsageError for one that is no such package."""
    if framework.environment != "own" or framework.interpreter or framework.unavailable or not framework.packages:
        raise UsageError(
            f"{framework.title} is not installed from the package index, so that it has no releases to choose from. "
            "Give interpreters instead: --python OLD=PATH,NEW=PATH."
        )
    return Requirement(framework.packages[0])


def releases_on_index(
    framework: Framework,
    *,
    first: str | None = None,
    last: str | None = None,
    every: Every = "all",
    report: Report = say,
) -> list[Release]:
    """Return the releases that the index has wheels of, the oldest first, from ``first`` to ``last``.

    Of each minor version only the last one where ``every`` says so, and those that are named. They share as few
    Pythons as possible, so that little else differs; one that is resolved already keeps its own. Where the index
    cannot be reached those that are built here are returned, and ``report`` gets a line.

    Raises UsageError for a framework or a version that is not on the index, and IndexUnreachableError where nothing is
    built either.
    """
    package = package_of(framework)
    known = known_releases(framework)
    try:
        found = index.wheels([package.name])[str(canonicalize_name(package.name))]
    except IndexUnreachableError as error:
        built = {version: each for version, each in known.items() if is_built(framework, each)}
        if not built:
            raise
        names = ", ".join(each.version for each in built.values())
        report(f"{error} Only the releases that are built here are used: {names}.")
        return [built[each] for each in chosen_versions(framework, built, first, last, "all", complete=False)]
    if not found:
        raise UsageError(f"The package index has no wheels of {package.name}.")
    of_version: dict[Version, list[Wheel]] = {}
    for wheel in found:
        of_version.setdefault(Version(wheel.version.public), []).append(wheel)
    versions = chosen_versions(framework, of_version, first, last, every)
    here = pythons_at_hand()
    order = sorted(here, key=lambda each: [*framework.python, *here].index(each))

    def fitting_of(files: Sequence[Wheel]) -> list[str]:
        of_its_time, any_time = (
            [python for python in order if any(wheel.fits(python, later) for wheel in files)] for later in (False, True)
        )
        return of_its_time or any_time

    fitting = {version: fitting_of(of_version[version]) for version in versions}
    best = fewest_pythons(fitting)
    releases = []
    for version in versions:
        uploaded = min((each.uploaded for each in of_version[version] if each.uploaded), default=None)
        if version in known:
            releases.append(known[version])
        elif version in best:
            others = tuple(here[each] for each in fitting[version] if each != best[version])
            releases.append(Release(str(version), uploaded, here[best[version]], None, others))
        else:
            releases.append(Release(str(version), uploaded, problem=_unfit(of_version[version], here)))
    return releases


def _unfit(files: Iterable[Wheel], here: Iterable[str]) -> str:
    tags = {each.interpreter for wheel in files for each in wheel.made_for}
    meant = {re.sub(r"^(?:cp|py)(\d)(\d+)$", r"\1.\2", each) for each in tags}
    names = ", ".join(sorted(meant, key=lambda each: (len(each), each)))
    return f"its files are for {names}, none of them for this machine and Python {', '.join(here)}"


def chosen_versions(
    framework: Framework,
    known: Iterable[Version],
    first: str | None,
    last: str | None,
    every: Every,
    complete: bool = True,
) -> list[Version]:
    """Return those of the versions that are asked for, rising.

    Raises UsageError where ``first`` or ``last`` is not among them, unless these are not all that there are.
    """
    versions = sorted(known)
    ends = [_version(framework, word, versions if complete else None) for word in (first, last)]
    low, high = ends[0] or versions[0], ends[1] or versions[-1]
    if low > high:
        raise UsageError(f"{framework.title} {low} is later than {high}. Exchange the two.")
    within = [each for each in versions if low <= each <= high]
    newest = {each.release[:2]: each for each in within}
    return within if every == "all" else sorted({*newest.values(), *(each for each in within if each in ends)})


def _version(framework: Framework, word: str | None, known: Sequence[Version] | None) -> Version | None:
    if word is None:
        return None
    try:
        version: Version | None = Version(word)
    except InvalidVersion:
        version = None
    if version is None or (known is not None and version not in known):
        what = f"release of {framework.title} with a wheel on the package index"
        raise unknown_name(what, word, map(str, known or ()))
    return version


def fewest_pythons(fitting: Mapping[Version, Sequence[str]]) -> dict[Version, str]:
    """Return a Python for each version that any is for: the one that is for most, then for most of the others.

    Of several that are for as many, the one that is named first.
    """
    left = {version: pythons for version, pythons in fitting.items() if pythons}
    order = list(dict.fromkeys(each for pythons in left.values() for each in pythons))
    found: dict[Version, str] = {}
    while left:
        counts = Counter(each for pythons in left.values() for each in pythons)
        best = max(order, key=counts.__getitem__)  # the first of several
        found |= dict.fromkeys([version for version, pythons in left.items() if best in pythons], best)
        left = {version: pythons for version, pythons in left.items() if version not in found}
    return found


def row_of(framework: Framework, release: Release, python: Path | None, step: Framework | None = None) -> Build:
    """Return the row of a release, as `--python jax-0.4.20:jax=PATH` gives it; of a user's own ``step`` with it."""
    return Build(f"{framework.name}-{release.version}", step or framework, python, release.uploaded)


# Locks of releases.


def _lock(framework: Framework, version: str) -> Path:
    return home() / "releases" / f"{framework.name}-{version}.txt"


def _read(framework: Framework, version: str) -> tuple[Release, Framework] | None:
    """Return a resolved release, and the framework with its lock; None where it is not, or its Python is gone."""
    lock = _lock(framework, version)
    try:
        heading = _HEADING.match(lock.read_text(encoding="utf-8"))
        uploaded = date.fromisoformat(heading[2]) if heading and heading[2] != "-" else None
    except (OSError, ValueError):
        return None
    python = pythons_at_hand().get(heading[3]) if heading else None
    if heading is None or python is None:
        return None
    download = int(heading[4])
    unpacked = framework.disk_megabytes / framework.download_megabytes if framework.download_megabytes else 4.0
    changed = {
        "name": f"{framework.name}-{version}",
        "title": f"{framework.title} {version}",
        "requirements": str(lock),
        "python": (heading[3],),
        "locks": {},
        "download_megabytes": download,
        "disk_megabytes": math.ceil(download * unpacked),
    }
    return Release(version, uploaded, python), framework.model_copy(update=changed)


def known_releases(framework: Framework) -> dict[Version, Release]:
    """Return the releases that are resolved here, built or not, by their versions, rising."""
    kept = _lock(framework, "*")
    names = [each.stem.removeprefix(f"{framework.name}-") for each in kept.parent.glob(kept.name)]
    found = [known[0] for name in names if (known := _read(framework, name)) is not None]
    return {Version(each.version): each for each in sorted(found, key=lambda each: Version(each.version))}


def is_built(framework: Framework, release: Release) -> bool:
    """Return whether a release's environment is ready."""
    known = _read(framework, release.version)
    return known is not None and environment.locate(known[1]).state is State.READY


# Building.


def build_release(framework: Framework, release: Release, progress: Report = say) -> Path:
    """Return the interpreter of the release's environment, which is resolved and built unless it is there.

    Raises FrameworkEnvironmentError with the reason, an IndexUnreachableError where that is it.
    """
    locked = resolved(framework, release)
    try:
        with StatusLine(err) as status:
            built = environment.build(locked, progress, status.draw)
    except FrameworkEnvironmentError as error:
        raise type(error)(_reason(error)) from error
    assert built.interpreter is not None  # it is ready
    return built.interpreter


def build_releases(
    framework: Framework, releases: Sequence[Release], report: Report = say, build_missing: bool = True
) -> list[Built]:
    """Return the releases with their environments, in their order; those that are missing are built.

    First all are resolved, and ``report`` gets what they will download and take. Once the index cannot be reached, it
    is not asked again. Raises FrameworkEnvironmentError where the disk would not hold them, before anything is built.
    """
    locks: dict[str, Framework] = {}
    reasons: dict[str, str] = {}
    unreachable = ""
    with StatusLine(err) as status:
        for number, release in enumerate(releases, start=1):
            if (known := _read(framework, release.version)) is not None:
                locks[release.version] = known[1]
                continue
            reasons[release.version] = "it is not built" if not build_missing else unreachable
            if reasons[release.version]:
                continue
            status.draw(f"{framework.title} {release.version}: resolving, {number} of {len(releases)} releases")
            try:
                locks[release.version] = resolved(framework, release)
            except FrameworkEnvironmentError as error:
                reasons[release.version] = str(error)
                unreachable = str(error) if isinstance(error, IndexUnreachableError) else ""
    missing = [each for each in releases if each.version in locks and not is_built(framework, each)]
    if missing and build_missing:
        _announce(framework, [locks[each.version] for each in missing], report)
    found = []
    for release in releases:
        python: Path | None = None
        reason = reasons.get(release.version, "")
        if not reason and release in missing and not build_missing:
            reason = "it is not built"
        if not reason and release in missing and unreachable:
            reason = unreachable
        if not reason:
            try:
                python = build_release(framework, release, report)
            except FrameworkEnvironmentError as error:
                reason = str(error)
                unreachable = reason if isinstance(error, IndexUnreachableError) else ""
        if reason and build_missing:
            report(f"{framework.title} {release.version} is left out: {reason.rstrip('.')}.")
        found.append(Built(release, python, reason))
    return found


def _announce(framework: Framework, missing: Sequence[Framework], report: Report) -> None:
    """Say what is downloaded and how much room it takes; raises FrameworkEnvironmentError where there is less."""
    folder = home() / "environments"
    download = sum(each.download_megabytes for each in missing)
    # Downloads of one release are kept until it is ready.
    needed = sum(each.disk_megabytes for each in missing) + max(each.download_megabytes for each in missing)
    several = counted(len(missing), "release")
    report(f"{framework.title}: {several} to build; downloads about {download} MB, takes about {needed} MB in {folder}")
    free = environment.free_megabytes(folder)
    if free is not None and free < needed:
        raise FrameworkEnvironmentError(
            f"{several} of {framework.title} take about {needed} MB, and {folder} has {free:.0f} MB free. Name fewer "
            "(--from, --to), free some, or set DLBENCH_HOME to a folder on a larger disk."
        )


def _reason(error: FrameworkEnvironmentError) -> str:
    """Return why a build failed, without what to do about it: that is about the framework's own environment."""
    said = str(error).partition("could not be installed: ")
    return (said[2] or said[0]).partition(". ")[0].rstrip(".") + "."


# Resolving.


def resolved(framework: Framework, release: Release) -> Framework:
    """Return the framework with the lock of this release, which is made unless it is there.

    Raises FrameworkEnvironmentError with the reason.
    """
    if (known := _read(framework, release.version)) is None:
        if release.interpreter is None:
            raise FrameworkEnvironmentError(f"{release.problem or 'there is no Python for it here'}.")
        lock = _lock(framework, release.version)
        make_folder(lock.parent)
        with written(lock.parent), filelock.FileLock(lock.with_suffix(".lock")):
            if _read(framework, release.version) is None:
                write_whole(lock, _resolve(framework, release, lock.with_suffix(".log")))
        known = _read(framework, release.version)
        assert known is not None  # it was written for a Python that is here
    return known[1]


def _resolve(framework: Framework, release: Release, log: Path) -> str:
    """Return the lock of a release for the first of its Pythons that all its dependencies have files for."""
    log.unlink(missing_ok=True)
    first: FrameworkEnvironmentError | None = None
    for python in (release.interpreter, *release.others):
        assert python is not None
        try:
            return _resolve_for(framework, release, python, log)
        except IndexUnreachableError as error:
            raise IndexUnreachableError(_reason(error)) from error
        except FrameworkEnvironmentError as error:
            first = first or error
    assert first is not None
    raise FrameworkEnvironmentError(_reason(first)) from first


def _resolve_for(framework: Framework, release: Release, python: Path, log: Path) -> str:
    package, version = package_of(framework), name_of(python).split()[1].rpartition(".")[0]
    own = str(canonicalize_name(package.name))
    extras = f"[{','.join(sorted(package.extras))}]" if package.extras else ""
    wanted = [f"{package.name}{extras}=={release.version}", *framework.packages[1:]]
    titled = framework.model_copy(update={"title": f"{framework.title} {release.version}"})
    names = {str(canonicalize_name(Requirement(each).name)) for each in framework.packages[1:]}
    if framework.lock_file.exists():
        names |= {*packages.by_name(packages.sections(framework.lock_file)[0])}
    found: dict[str, tuple[str, str, str]] = {}
    for _ in range(_ROUNDS):
        limits = limits_of(names - {own}, release.uploaded, version)
        try:
            found = _ask_pip(titled, python, wanted, limits, log)
        except IndexUnreachableError:
            raise
        except FrameworkEnvironmentError:
            if not limits:
                raise
            found = found or _ask_pip(titled, python, wanted, {}, log)  # it needs something newer
            break
        if release.uploaded is None or not found.keys() - names - {own}:
            break
        names |= found.keys()
    sizes = {wheel.file: wheel.size or 0 for of in index.wheels(found).values() for wheel in of}
    bytes_in_all = sum(sizes.get(file, 0) for _, _, file in found.values())
    megabytes = math.ceil(bytes_in_all / 1e6) or framework.download_megabytes
    heading = f"# {release.version}, uploaded {release.uploaded or '-'}, for Python {version}, {megabytes} MB\n"
    lines = (f"{name}=={of} --hash=sha256:{digest}\n" for name, (of, digest, _) in sorted(found.items()))
    return heading + "".join(lines)


def limits_of(names: Iterable[str], uploaded: date | None, python: str) -> dict[str, Version]:
    """Return the newest version that each of these packages may have, beside a release of that day.

    It is the newest of the time that fits the Python; where that is too new for any of the time, the oldest that fits.
    """
    if uploaded is None:
        return {}
    found = {}
    for name, of in index.wheels(sorted(names)).items():
        fitting = [each for each in of if each.fits(python, later=True) and each.uploaded is not None]
        then = [each.version for each in fitting if each.uploaded and each.uploaded <= uploaded + LATER]
        if fitting:
            found[name] = max(then) if then else min(each.version for each in fitting)
    return found


def _ask_pip(
    framework: Framework, python: Path, wanted: Sequence[str], limits: Mapping[str, Version], log: Path
) -> dict[str, tuple[str, str, str]]:
    """Return version, checksum and file of each package that pip would install; raises FrameworkEnvironmentError."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, answer = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text("".join(f"{name}<={limit}\n" for name, limit in sorted(limits.items())))
        command = [*_pip(python), "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--no-input"]
        command += ["--disable-pip-version-check", "--progress-bar", "off", "--retries", "2"]
        command += ["--report", str(answer), "--constraint", str(constraints), *wanted]
        packages.run_pip(framework, command, log, framework.title, lambda line: None)
        items = json.loads(answer.read_bytes())["install"]
    found = {}
    for each in items:
        archive = each["download_info"]["archive_info"]
        digest = archive.get("hashes", {}).get("sha256") or archive["hash"].removeprefix("sha256=")
        file = index.file_name(each["download_info"]["url"])
        found[str(canonicalize_name(each["metadata"]["name"]))] = (each["metadata"]["version"], digest, file)
    return found


@cache
def _pip(python: Path) -> list[str]:
    """Return the command of a pip that resolves for this Python: its own where that is new enough, else dlbench's."""
    done = subprocess.run(
        [str(python), "-I", "-m", "pip", "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    words = done.stdout.split()
    if done.returncode == 0 and len(words) > 1 and Version(words[1]) >= _REPORTING_PIP:
        return [str(python), "-I", "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(python)]

"""Packages of a Debian release in an environment: locked, verified, unpacked without root.

The lock names every file with its size and SHA-256, so the lock is trusted; the mirror only has to
have the files. apt fetches them with separate lists and settings, and the machine's packages are
left alone. From the machine's apt configuration come only the mirror and the access to it (proxy,
certificates).
"""

import functools
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import FrameworkEnvironmentError, SuiteError
from ..planning.framework import Framework
from . import packages
from .folders import MEGABYTE, NO_ROOM, file_digest, given_path
from .packages import Draw

TREE = "debian"
_LINE = re.compile(
    r"[a-z0-9][a-z0-9+.-]+ ([0-9]+:)?[0-9][A-Za-z0-9.+~-]* [a-z0-9-]+ [0-9]{1,15} [0-9a-f]{64}"
)
_KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)
_SECONDS = 30
_MIRROR = re.compile(r"/debian(/\d{8}T\d{6}Z)?$")  # as it is now, or a dated archive's
_AT_THE_TOP = re.compile(r"(://[^/]+|/archive)/debian(/[^/]+)?$")
_COMPANIONS = ("-updates", "-backports")  # of a release's suites
_REASONS = (
    (
        r"Temporary failure resolving|Could not resolve|Could not connect"
        r"|Cannot initiate the connection|"
        r"Unable to connect|Connection (failed|refused|timed out|reset)|Network is unreachable|"
        r"Could not handshake|timed out|SSL connection|Certificate verification failed"
        r"|No route to host",
        (
            "The Debian mirror could not be reached. Check the network, or set "
            "DLBENCH_DEBIAN_MIRROR to another mirror; finished downloads are kept."
        ),
    ),
    (
        r"NO_PUBKEY|is not signed|signatures? (was|were) invalid|EXPKEYSIG|couldn't be verified"
        r"|BADSIG",
        (
            "The Debian mirror's lists of {release} are not signed by a key in {keyring}. "
            "Update the package debian-archive-keyring, or set DLBENCH_DEBIAN_KEYRING or "
            "DLBENCH_DEBIAN_MIRROR."
        ),
    ),
    (
        r"Version '(?P<version>[^']+)' for '(?P<name>[^']+)' was not found"
        r"|Unable to locate package (?P<lost>\S+)",
        (
            "The Debian mirror no longer has {which}. Set DLBENCH_DEBIAN_MIRROR to a mirror that "
            "keeps old versions (Debian's archive of snapshots)."
        ),
    ),
    (
        r"Hash Sum mismatch|unexpected size",
        (
            "The Debian mirror served a file that does not match the checksum in its lists. Try "
            "again later, or set DLBENCH_DEBIAN_MIRROR to another mirror."
        ),
    ),
    (
        r"does not have a Release file|no longer has a Release file|File not found|404 +Not Found",
        (
            "The Debian mirror has no release {release} (any more). Set DLBENCH_DEBIAN_MIRROR to "
            "a mirror that keeps old releases (Debian's archive)."
        ),
    ),
)
"""Patterns of apt's messages, and their meaning: the first that fits."""


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
        """The name that apt gives the file: an epoch's colon is escaped."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


def read_lock(path: Path) -> tuple[Package, ...]:
    """Return the packages of a lock; raises SuiteError naming the line that cannot be read."""
    locked = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = " ".join(line.partition("#")[0].split())
        if not words:
            continue
        if not _LINE.fullmatch(words):
            raise SuiteError(
                f"{path}, line {number} is not 'package version architecture bytes SHA-256'."
            )
        name, version, kind, size, sha256 = words.split()
        locked.append(Package(name, version, kind, int(size), sha256))
    return tuple(locked)


def architecture(locked: Iterable[Package]) -> str:
    """Return the one machine architecture that these packages are for; "" where all run on any."""
    for package in locked:
        if package.architecture != "all":
            return package.architecture
    return ""


def missing() -> str:
    """Return why this machine cannot have Debian packages, with the remedy; "" where it can."""
    for program, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        if shutil.which(program) is None:
            return (
                f"it needs Debian packages, and {program} (of the package {package}) is not on "
                f"PATH. Install {package}."
            )
    if not mirror():
        return (
            "it needs Debian packages, and this machine's apt sources name no Debian mirror. Set "
            "DLBENCH_DEBIAN_MIRROR to one (its address ends in /debian)."
        )
    if not keyring().is_file():
        return (
            f"it needs Debian packages, and the keys that sign them are not there ({keyring()}). "
            "Install the package debian-archive-keyring, or set DLBENCH_DEBIAN_KEYRING to a "
            "keyring file."
        )
    return ""


def keyring() -> Path:
    """Return the file of the keys that may sign the mirror's lists."""
    given = os.environ.get("DLBENCH_DEBIAN_KEYRING")
    if given:
        return given_path(given)
    for path in _KEYRINGS:
        if Path(path).is_file():
            return Path(path)
    return Path(_KEYRINGS[0])


def mirror() -> str:
    """Return the address of a Debian mirror.

    It is DLBENCH_DEBIAN_MIRROR, else the one in this machine's apt sources.
    """
    given = os.environ.get("DLBENCH_DEBIAN_MIRROR")
    return given.rstrip("/") if given else machines_mirror()


@functools.cache
def machines_mirror() -> str:
    """Return the address of the Debian mirror in this machine's apt sources, "" if there is none.

    A vendor's repository may lie in a folder ``debian`` too. So the first address with suites that
    only Debian's releases have is taken, else the first with nothing but a host above that folder,
    else the first.
    """
    # Lists the addresses of an update: however the sources are written, and with no list downloaded
    # yet.
    answer = _output_of("apt-get", "update", "--print-uris")
    listed = re.findall(r"^'(\S+?)/+dists/([^']*)/(?:In)?Release'", answer, re.MULTILINE)
    mirrors: list[str] = [address for address, _ in listed if _MIRROR.search(address)]
    debians = {address for address, suite in listed if suite.endswith(_COMPANIONS)}

    def rank(address: str) -> tuple[bool, bool]:
        return address not in debians, not _AT_THE_TOP.search(address)

    return min(mirrors, key=rank, default="")


def _output_of(*command: str) -> str:
    """Return the output of a program of the machine's apt; "" where it cannot be run."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


class Client:
    """An apt client for one release.

    Every method raises FrameworkEnvironmentError with the reason where apt fails.
    """

    def __init__(self, folder: Path, release: str, kind: str, log: Path) -> None:
        """Write lists and configuration of its own into a folder."""
        self._release, self._log = release, log
        configuration = folder / "apt.conf"
        self._variables = {"APT_CONFIG": str(configuration), "LC_ALL": "C.UTF-8"}
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "state/status").touch()
        (folder / "sources.list").write_text(
            f"deb [signed-by={keyring()}] {mirror()} {release} main\n"
        )
        # Settings of the machine, such as hooks of its own updates, do not apply.
        nothing = ("main", "parts", "sourceparts", "preferences", "preferencesparts")
        settings = {
            **{f"Dir::Etc::{name}": "/dev/null" for name in nothing},
            "Dir::Etc::sourcelist": str(folder / "sources.list"),
            "Dir::State": str(folder / "state"),
            "Dir::State::status": str(folder / "state/status"),
            "Dir::Cache": str(folder / "cache"),
            "Dir::Cache::pkgcache": "",  # would be many times the lists
            "Dir::Cache::srcpkgcache": "",
            "APT::Architecture": kind,
            "APT::Install-Recommends": "0",
            # where root runs this, its home may be closed to apt's own user
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            # The lock decides, so lists of a release that ended will do.
            "Acquire::Check-Valid-Until": "false",
        }
        machines_lines = _output_of("apt-config", "dump", "Acquire").splitlines()
        lines = [line for line in machines_lines if "Acquire::http" in line]
        lines += [f'{key} "{value}";' for key, value in settings.items()]
        configuration.write_text("\n".join([*lines, f'APT::Architectures {{ "{kind}"; }};', ""]))

    def download(self, locked: list[Package], folder: Path, draw: Draw) -> None:
        """Read the mirror's lists, and download packages into a folder."""
        self.update()
        whole = sum(package.size for package in locked) / MEGABYTE
        before = _megabytes(folder)

        def show(output: str) -> None:
            draw(
                f"downloading {len(locked)} packages, {_megabytes(folder) - before:.0f} of "
                f"{whole:.0f} MB"
            )

        names = [f"{package.name}={package.version}" for package in locked]
        self._run(["apt-get", "download", *names], folder, show)

    def update(self) -> None:
        """Read the mirror's lists."""
        self._run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"])

    def lock_lines(self, names: list[str], dependencies: bool) -> list[str]:
        """Return the lines of a lock for these packages.

        With ``dependencies`` they are also those of all that they need on an empty system.
        """
        if dependencies:
            answer = self._ask(["apt-get", "install", "--simulate", *names])
            installed = re.findall(r"^Inst (\S+) \((\S+) ", answer, re.MULTILINE)
            names = [f"{name.partition(':')[0]}={version}" for name, version in installed]
        blocks = self._ask(["apt-cache", "show", "--no-all-versions", *names]).strip().split("\n\n")
        lines = []
        for block in blocks:
            described = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", block, re.MULTILINE))
            fields = ("Package", "Version", "Architecture", "Size", "SHA256")
            lines.append(" ".join(described[field] for field in fields))
        return sorted(lines)

    def _run(
        self, command: list[str], folder: Path | None = None, watch: Callable[[str], object] = str
    ) -> None:
        code, output = packages.run(
            command, self._log, variables=self._variables, directory=folder, watch=watch
        )
        if code != 0:
            raise FrameworkEnvironmentError(self._why(output))

    def _ask(self, command: list[str]) -> str:
        variables = {**os.environ, **self._variables}
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=variables
        )
        if answer.returncode != 0:
            raise FrameworkEnvironmentError(self._why(answer.stderr))
        return answer.stdout

    def _why(self, text: str) -> str:
        if packages.out_of_room(text, self._log):
            return f"Debian packages cannot be downloaded: {NO_ROOM}"
        for sign, meaning in _REASONS:
            match = re.search(sign, text)
            if match:
                groups = match.groupdict()
                name_and_version = filter(None, (groups.get("name"), groups.get("version")))
                which = groups.get("lost") or " ".join(name_and_version)
                return meaning.format(release=self._release, keyring=keyring(), which=which)
        return (
            f"Debian packages cannot be downloaded: {packages.last_line(text)} (full log: "
            f"{self._log})."
        )


def _megabytes(folder: Path) -> float:
    sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()]
    return sum(sizes) / MEGABYTE


def install(
    framework: Framework, environment: Path, kept: Path, log: Path, draw: Draw
) -> dict[str, str]:
    """Download, verify and unpack the packages of the framework's lock, and make the links.

    Verified files stay in ``kept`` and are not fetched again. Returns the version of every package.
    Raises FrameworkEnvironmentError with the reason.
    """
    debian = framework.debian
    assert debian is not None
    locked = read_lock(framework.directory / debian.lock)
    kept.mkdir(parents=True, exist_ok=True)
    lacking = [package for package in locked if not _verified(kept / package.file_name, package)]
    for package in lacking:
        (kept / package.file_name).unlink(missing_ok=True)
    if lacking:
        client = Client(kept / "apt", debian.release, architecture(locked) or "amd64", log)
        client.download(lacking, kept, lambda line: draw(f"{framework.title}: {line}"))
    for package in lacking:
        path = kept / package.file_name
        if not _verified(path, package):
            state = "other content" if path.exists() else "not downloaded"
            path.unlink(missing_ok=True)
            raise FrameworkEnvironmentError(
                f"The Debian mirror's {package.file_name} is not the file that {debian.lock} names "
                f"({state}). Try another mirror (DLBENCH_DEBIAN_MIRROR); if that does not help, "
                "the lock is wrong."
            )
    tree = environment / TREE
    tree.mkdir(parents=True)
    for number, package in enumerate(locked):
        draw(f"{framework.title}: unpacking {number + 1} of {len(locked)} packages")
        _unpack(framework, package, kept / package.file_name, tree, log)
    for link, target in debian.links.items():
        _link(framework, environment, link, target)
    return {package.name: package.version for package in locked}


def _verified(path: Path, package: Package) -> bool:
    return (
        path.exists()
        and path.stat().st_size == package.size
        and file_digest(path) == package.sha256
    )


def _unpack(framework: Framework, package: Package, file: Path, tree: Path, log: Path) -> None:
    """Unpack a package.

    The filter refuses to write outside the tree, and clears the bits of privileged programs.
    """
    command = ["dpkg-deb", "--fsys-tarfile", str(file)]
    failed = f"{framework.title}: {package.name} cannot be unpacked"
    with log.open("a", encoding="utf-8") as output:
        try:
            with subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output
            ) as unpacker:
                assert unpacker.stdout is not None
                with tarfile.open(fileobj=unpacker.stdout, mode="r|") as members:
                    members.extractall(tree, filter="tar")
        except tarfile.FilterError as error:
            raise FrameworkEnvironmentError(f"{failed}: {error}.") from error
        except (tarfile.TarError, OSError) as error:
            text = log.read_text(encoding="utf-8", errors="replace")
            if packages.out_of_room(f"{text}{error}", log):
                raise FrameworkEnvironmentError(f"{failed}: {NO_ROOM}") from error
            reason = packages.last_line(text)
            raise FrameworkEnvironmentError(f"{failed}: {reason} (full log: {log}).") from error


def _link(framework: Framework, environment: Path, link: str, target: str) -> None:
    root = environment.resolve()
    path = environment / link
    target_path = environment / target
    inside = path.parent.resolve().is_relative_to(root)
    if not inside or not target_path.resolve().is_relative_to(root):
        raise FrameworkEnvironmentError(
            f"{framework.title}: the link {link} to {target} leaves the environment. Correct "
            f"framework.toml in {framework.directory}."
        )
    if not target_path.exists():
        raise FrameworkEnvironmentError(
            f"The Debian packages of {framework.title} lack {target}, which {link} should point "
            f"to. The lock and framework.toml in {framework.directory} do not fit each other."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target_path, path.parent))

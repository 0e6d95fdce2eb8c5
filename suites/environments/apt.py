"""An apt client with a state of its own: it reads a Debian mirror and downloads from it, and installs nothing.

Needs no root and leaves the machine's package lists alone. Of the machine's apt configuration it takes the mirror,
and how to reach it (proxy, certificates).
"""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from ..errors import FrameworkEnvironmentError
from . import children
from .folders import given_path

MIRROR = "DLBENCH_DEBIAN_MIRROR"
KEYRING = "DLBENCH_DEBIAN_KEYRING"
_KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp")
_SECONDS = 30
_MIRROR = re.compile(r"/debian(/\d{8}T\d{6}Z)?$")  # as it is now, or a dated archive's
_AT_THE_TOP = re.compile(r"(://[^/]+|/archive)/debian(/[^/]+)?$")
_COMPANIONS = ("-updates", "-backports")  # of a release's suites
_REASONS = (
    (
        re.compile(
            r"Temporary failure resolving|Could not resolve|Could not connect|Cannot initiate the connection|"
            r"Unable to connect|Connection (failed|refused|timed out|reset)|Network is unreachable|"
            r"Could not handshake|timed out|SSL connection|Certificate verification failed|No route to host"
        ),
        "The Debian mirror could not be reached. Check the network, or set DLBENCH_DEBIAN_MIRROR to another mirror; "
        "what was downloaded is kept.",
    ),
    (
        re.compile(r"NO_PUBKEY|is not signed|signatures? (was|were) invalid|EXPKEYSIG|couldn't be verified|BADSIG"),
        "The Debian mirror's lists of {release} are not signed by a key in {keyring}. Update the package "
        "debian-archive-keyring, or set DLBENCH_DEBIAN_KEYRING or DLBENCH_DEBIAN_MIRROR.",
    ),
    (
        re.compile(
            r"Version '(?P<version>[^']+)' for '(?P<name>[^']+)' was not found|Unable to locate package (?P<lost>\S+)"
        ),
        "The Debian mirror no longer has {which}. Set DLBENCH_DEBIAN_MIRROR to a mirror that keeps old versions "
        "(Debian's archive of snapshots).",
    ),
    (
        re.compile(r"Hash Sum mismatch|unexpected size"),
        "The Debian mirror gave a file with another checksum than its lists say. Try again later, or set "
        "DLBENCH_DEBIAN_MIRROR to another mirror.",
    ),
    (
        re.compile(r"does not have a Release file|no longer has a Release file|File not found|404 +Not Found"),
        "The Debian mirror has no release {release} (any more). Set DLBENCH_DEBIAN_MIRROR to a mirror that keeps old "
        "releases (Debian's archive).",
    ),
)
"""What apt says, and what that means: the first that fits."""


def missing() -> str:
    """Return why Debian packages cannot be had on this machine, as a sentence with what to do; "" where they can."""
    for program, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        if shutil.which(program) is None:
            return (
                f"it needs Debian packages, and {program} (of the package {package}) is not on PATH. Install {package}."
            )
    if not mirror():
        return (
            "it needs Debian packages, and this machine's apt sources name no Debian mirror. Set DLBENCH_DEBIAN_MIRROR "
            "to one (its address ends in /debian)."
        )
    if not keyring().is_file():
        return (
            f"it needs Debian packages, and the keys that sign them are not there ({keyring()}). Install the package "
            "debian-archive-keyring, or set DLBENCH_DEBIAN_KEYRING to a keyring file."
        )
    return ""


def keyring() -> Path:
    """Return the file of the keys that may sign the mirror's lists."""
    given = os.environ.get(KEYRING)
    if given:
        return given_path(given)
    return Path(next((each for each in _KEYRINGS if Path(each).is_file()), _KEYRINGS[0]))


def mirror() -> str:
    """Return the address of a Debian mirror: DLBENCH_DEBIAN_MIRROR, else the one in this machine's apt sources."""
    given = os.environ.get(MIRROR)
    return given.rstrip("/") if given else machines_mirror()


@functools.cache
def machines_mirror() -> str:
    """Return the address of the Debian mirror in this machine's apt sources, "" where there is none.

    A vendor's repository may lie in a folder ``debian`` too: taken is the first address with suites that only Debian's
    releases come with, else the first with nothing but a host above that folder, else the first.
    """
    # Lists what an update would fetch: however the sources are written, and with no list downloaded yet.
    answer = _told_by("apt-get", "update", "--print-uris")
    listed = re.findall(r"^'(\S+?)/+dists/([^']*)/(?:In)?Release'", answer, re.MULTILINE)
    found: list[str] = [address for address, _ in listed if _MIRROR.search(address)]
    debians = {address for address, suite in listed if suite.endswith(_COMPANIONS)}
    return min(found, key=lambda address: (address not in debians, not _AT_THE_TOP.search(address)), default="")


def _machines_way_to_mirrors() -> str:
    """Return the machine's apt settings for reaching mirrors: proxies, certificates, time-outs."""
    told = _told_by("apt-config", "dump", "Acquire")
    return "".join(line + "\n" for line in told.splitlines() if line.startswith("Acquire::http"))


def _told_by(*command: str) -> str:
    """Return what a program of the machine's apt prints; "" where it cannot be asked."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


class Client:
    """An apt client for one release, with lists and configuration in a folder of its own.

    ``log`` takes what apt says. Every method raises FrameworkEnvironmentError with the reason where apt fails.
    """

    def __init__(self, folder: Path, release: str, architecture: str, log: Path) -> None:
        self._release = release
        self._log = log
        self._configuration = folder / "apt.conf"
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "state/status").touch()
        (folder / "sources.list").write_text(f"deb [signed-by={keyring()}] {mirror()} {release} main\n")
        settings = {
            "Dir::Etc::main": "/dev/null",  # the machine's configuration: hooks of its own updates among it
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::sourcelist": str(folder / "sources.list"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State": str(folder / "state"),
            "Dir::State::status": str(folder / "state/status"),
            "Dir::Cache": str(folder / "cache"),
            "Dir::Cache::pkgcache": "",  # would be many times the lists
            "Dir::Cache::srcpkgcache": "",
            "APT::Architecture": architecture,
            "APT::Install-Recommends": "0",
            "APT::Sandbox::User": "root",  # where root runs this, its home may be closed to apt's own user
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            # The lock decides what is right, so lists of a release that ended are as good as any.
            "Acquire::Check-Valid-Until": "false",
        }
        lines = [f'{key} "{value}";\n' for key, value in settings.items()]
        lines.append(f'APT::Architectures {{ "{architecture}"; }};\n')
        self._configuration.write_text(_machines_way_to_mirrors() + "".join(lines))

    @property
    def _variables(self) -> dict[str, str]:
        return {"APT_CONFIG": str(self._configuration), "LC_ALL": "C.UTF-8"}

    def update(self) -> None:
        """Read the mirror's lists."""
        self._run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"], None, lambda: None)

    def download(self, packages: list[str], folder: Path, watch: children.Watch) -> None:
        """Download packages, each as NAME=VERSION, into a folder."""
        self._run(["apt-get", "download", *packages], folder, watch)

    def closure(self, packages: list[str]) -> list[str]:
        """Return these packages and all they need on an empty system, each as NAME=VERSION."""
        answer = self._ask(["apt-get", "install", "--simulate", *packages])
        found = re.findall(r"^Inst (\S+) \((\S+) ", answer, re.MULTILINE)
        return [f"{name.partition(':')[0]}={version}" for name, version in found]

    def describe(self, packages: list[str]) -> list[dict[str, str]]:
        """Return the mirror's fields of these packages."""
        blocks = self._ask(["apt-cache", "show", "--no-all-versions", *packages]).strip().split("\n\n")
        return [dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", block, re.MULTILINE)) for block in blocks]

    def _run(self, command: list[str], directory: Path | None, watch: children.Watch) -> None:
        before = len(children.said(self._log))
        code = children.run(command, self._log, variables=self._variables, directory=directory, watch=watch)
        if code != 0:
            raise FrameworkEnvironmentError(self._why(children.said(self._log)[before:]))

    def _ask(self, command: list[str]) -> str:
        variables = {**os.environ, **self._variables}
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=variables)
        if answer.returncode != 0:
            raise FrameworkEnvironmentError(self._why(answer.stderr))
        return answer.stdout

    def _why(self, text: str) -> str:
        if children.out_of_room(text, self._log):
            return (
                "Debian packages cannot be downloaded: no space is left. Free some, or set DLBENCH_HOME to a folder on "
                "a larger disk."
            )
        for sign, words in _REASONS:
            if found := sign.search(text):
                gone = found.groupdict()
                which = gone.get("lost") or " ".join(filter(None, (gone.get("name"), gone.get("version"))))
                return words.format(release=self._release, keyring=keyring(), which=which)
        return f"Debian packages cannot be downloaded: {children.last_line(text)} (the whole log: {self._log})."

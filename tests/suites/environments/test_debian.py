"""Environments with Debian packages: real apt and dpkg-deb on a mirror of the tests, by the real
command."""

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from file_server import Server, serving
from made_up_pythons import script
from processes import Running, fork_command, gone, run_with, variables_of_command, wait_until

from dlbench.suites.environments import debian, environment
from dlbench.suites.errors import SuiteError
from dlbench.suites.planning.framework import catalogue, read

RELEASE = "oldie"
PLENTY = 400_000  # bytes of a package: more than one buffer of a connection


@dataclass
class Mirror:
    """The folder of a mirror, and the keyring of the key that signs its lists."""

    folder: Path
    keyring: Path
    signing: Path  # gpg's home

    def add(self, name: str, version: str = "1.0", files: Mapping[str, bytes | str] = {}) -> None:
        """Make a package with these files, of a text a link to it, and put it into the pool;
        ``publish`` lists it."""
        root = self.folder.parent / "build" / name
        shutil.rmtree(root, ignore_errors=True)
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: "
            "tests\nDescription: for tests\n"
        )
        contents = {
            f"usr/share/{name}": os.urandom(PLENTY),
            "DEBIAN/control": control.encode(),
            **files,
        }
        for path, content in contents.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                (root / path).symlink_to(content)
            else:
                (root / path).write_bytes(content)
        package_file = (
            self.folder / "pool" / f"{name}_{version.rpartition(':')[2]}_all.deb"
        )  # a pool's names have no epoch
        package_file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-b", root, package_file],
            check=True,
            capture_output=True,
        )

    def publish(self, release: str = RELEASE, sign: bool = True) -> None:
        """Write the lists of what the pool holds, signed."""
        blocks = [
            (
                f"{control}Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\nSHA256: "
                f"{digest(deb)}\n"
            )
            for deb, control in self._pool()
        ]
        lists = self.folder / "dists" / release / "main" / "binary-amd64" / "Packages"
        lists.parent.mkdir(parents=True, exist_ok=True)
        lists.write_text("\n".join(blocks))
        text = (
            f"Origin: tests\nSuite: {release}\nCodename: {release}\nArchitectures: "
            "amd64\nComponents: main\nDate: Sat, 14 Aug 2021 09:00:00 UTC\nSHA256:\n "
            f"{digest(lists)} {lists.stat().st_size} main/binary-amd64/Packages\n"
        )
        (self.folder / "dists" / release / "Release").write_text(text)
        signed = self.folder / "dists" / release / "InRelease"
        signed.unlink(missing_ok=True)
        if sign:
            command = [
                "gpg",
                "--homedir",
                self.signing,
                "--batch",
                "--clearsign",
                "--output",
                signed,
            ]
            subprocess.run(command, input=text, text=True, check=True, capture_output=True)

    def lock(self) -> str:
        """Return the lock of everything in the pool."""
        lines = ["# a mirror of the tests"]
        for deb, control in self._pool():
            name, version, architecture = (
                line.partition(": ")[2] for line in control.splitlines()[:3]
            )
            lines.append(f"{name} {version} {architecture} {deb.stat().st_size} {digest(deb)}")
        return "\n".join(lines) + "\n"

    def _pool(self) -> Iterator[tuple[Path, str]]:
        """Yield each package with what it says of itself."""
        for deb in sorted((self.folder / "pool").glob("*.deb")):
            yield (
                deb,
                subprocess.run(
                    ["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True
                ).stdout,
            )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_key(folder: Path) -> tuple[Path, Path]:
    """Make a key; return gpg's home and the keyring for those who verify."""
    signing, keyring = folder / "gpg", folder / "keyring.gpg"
    signing.mkdir(parents=True, mode=0o700)
    command = ["gpg", "--homedir", signing, "--batch"]
    named = [
        "--passphrase",
        "",
        "--quick-generate-key",
        "Tests <tests@example.invalid>",
        "ed25519",
        "sign",
        "never",
    ]
    subprocess.run([*command, *named], check=True, capture_output=True)
    subprocess.run([*command, "--output", keyring, "--export"], check=True, capture_output=True)
    return signing, keyring


TOML = f"""
name = "tiny"
title = "Tiny"
summary = "a framework for tests"
interpreter = "start.sh"
imports = "json"
[debian]
release = "{RELEASE}"
packages = ["tiny-a", "tiny-b", "tiny-c"]
[debian.links]
"lib/libtiny.so.1" = "debian/usr/share/tiny-a"
[modes.only]
default = true
summary = "the one mode"
"""


class Recipe:
    """A framework of three Debian packages, and the real command that builds it."""

    def __init__(self, folder: Path, mirror: Mirror) -> None:
        self.folder = folder
        self.mirror = mirror
        self.adapter = folder / "tiny"
        self.adapter.mkdir()
        (self.adapter / "framework.toml").write_text(TOML)
        (self.adapter / "adapter.py").write_text("")
        (self.adapter / "debian.lock").write_text(mirror.lock())
        script(self.adapter / "start.sh", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        self.variables = variables_of_command(
            folder / "home",
            DLBENCH_ADAPTERS=f"tiny={self.adapter}",
            DLBENCH_DEBIAN_MIRROR=mirror.folder.as_uri(),
            DLBENCH_DEBIAN_KEYRING=str(mirror.keyring),
            no_proxy="127.0.0.1",
        )

    def start(self, first: Callable[[], None] = lambda: None) -> Running:
        """Start a build in a process of its own, in which ``first`` is called before it."""
        output, words = self.folder / "output", ("env", "build", "tiny")
        output.mkdir(exist_ok=True)
        return Running(
            fork_command(self.folder, output, *words, first=first, variables=self.variables), output
        )

    def build(self, first: Callable[[], None] | None = None) -> tuple[int | None, str]:
        """Build; return the exit code and the last line said."""
        if first is not None:
            process = self.start(first)
            code, out, errors = process.wait(), process.said("out"), process.said()
        else:
            done = run_with(self.variables, self.folder, "env", "build", "tiny")
            code, out, errors = done.returncode, done.stdout, done.stderr
        assert out == ""
        assert "Traceback" not in errors
        return code, errors.splitlines()[-1]

    def relock(self) -> None:
        """List what the pool holds now, and lock it."""
        self.mirror.publish()
        (self.adapter / "debian.lock").write_text(self.mirror.lock())

    def refused(self, first: Callable[[], None] | None = None) -> str:
        """Build in vain; return the one line of complaint."""
        code, last = self.build(first)
        assert code == 3, last
        assert last.startswith("dlbench: ")
        assert self.environments() == []
        return last

    def listed(self) -> dict:
        answer = run_with(self.variables, self.folder, "env", "list", "--json")
        assert answer.returncode == 0, answer.stderr
        (entry,) = [entry for entry in json.loads(answer.stdout) if entry["name"] == "tiny"]
        return entry

    def environments(self) -> list[Path]:
        return [
            path for path in (self.folder / "home" / "environments").glob("tiny-*") if path.is_dir()
        ]

    @property
    def kept(self) -> Path:
        directory = environment._directory(read(self.adapter / "framework.toml"))
        return self.folder / "home" / "downloads" / directory.name

    def succeeds(self) -> Path:
        """Build; check what was built and return its folder."""
        code, last = self.build()
        assert (code, last) == (0, "Tiny: ready")
        (folder,) = self.environments()
        for name in ("tiny-a", "tiny-b", "tiny-c"):
            assert (folder / "debian" / "usr" / "share" / name).is_file()
        assert not self.kept.exists()
        return folder


@contextlib.contextmanager
def over_http(recipe: Recipe) -> Iterator[Server]:
    with serving(recipe.mirror.folder) as server:
        recipe.variables["DLBENCH_DEBIAN_MIRROR"] = server.address
        yield server


@pytest.fixture(scope="session")
def key(tmp_path_factory):
    if not all(shutil.which(program) for program in ("apt-get", "dpkg-deb", "gpg")):
        pytest.skip("apt-get, dpkg-deb and gpg are needed to make a Debian mirror")
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="session")
def first_mirror(tmp_path_factory, key) -> Mirror:
    """Give a mirror with three packages: one has an epoch, and its file lies behind a link of
    another."""
    mirror = Mirror(tmp_path_factory.mktemp("first") / "mirror", key[1], key[0])
    mirror.add("tiny-a", files={"usr/lib/real/a": b"a", "lib": "usr/lib"})
    mirror.add("tiny-b", "1:2.0", {"lib/real/b": b"b"})
    mirror.add("tiny-c")
    mirror.publish()
    return mirror


@pytest.fixture
def mirror(tmp_path, first_mirror) -> Mirror:
    """Give a copy of it."""
    shutil.copytree(first_mirror.folder, tmp_path / "mirror")
    return replace(first_mirror, folder=tmp_path / "mirror")


@pytest.fixture
def recipe(tmp_path, mirror) -> Recipe:
    return Recipe(tmp_path, mirror)


def test_every_debian_lock_names_what_was_asked_for_and_no_host():
    locked = [framework for framework in catalogue().values() if framework.debian is not None]
    assert {framework.name for framework in locked} >= {"caffe", "cntk"}
    for framework in locked:
        path = framework.directory / framework.debian.lock
        packages = debian.read_lock(path)
        names = [package.name for package in packages]
        assert set(framework.debian.packages) <= set(names)
        assert len(set(names)) == len(names)
        assert "://" not in path.read_text()
        megabytes = sum(package.size for package in packages) / 1e6
        assert megabytes <= framework.download_megabytes


@pytest.mark.parametrize(
    "line",
    [
        "a 1 all 3",
        "../../a 1.0 all 3 " + "0" * 64,
        "-a 1.0 all 3 " + "0" * 64,
        "a-b 1.0 all/.. 3 " + "0" * 64,
        "a-b 1.0 all 3 " + "g" * 64,
        "a-b 1.0 all 3 " + "0" * 64 + " more",
    ],
)
def test_a_line_of_the_lock_with_anything_else_is_refused(tmp_path, line):
    (tmp_path / "lock").write_text(f"# fine\n{line}\n")
    with pytest.raises(SuiteError, match="lock, line 2 is not"):
        debian.read_lock(tmp_path / "lock")


def test_a_build_unpacks_links_and_notes_what_the_lock_names(recipe):
    folder = recipe.succeeds()
    assert (folder / "lib" / "libtiny.so.1").resolve() == (
        folder / "debian" / "usr" / "share" / "tiny-a"
    )
    assert not (folder / "lib" / "libtiny.so.1").readlink().is_absolute()
    assert (folder / "debian" / "lib" / "real" / "b").read_bytes() == b"b"
    noted = json.loads((folder / "dlbench-environment.json").read_text())
    assert noted["debian"] == {"tiny-a": "1.0", "tiny-b": "1:2.0", "tiny-c": "1.0"}
    assert recipe.listed()["state"] == "ready"
    assert recipe.build() == (0, "Tiny: ready")  # nothing to do


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        *(
            pytest.param(number, marks=pytest.mark.slow)
            for number in (signal.SIGINT, signal.SIGTERM)
        ),
    ],
)
def test_an_interrupted_download_goes_on_with_what_was_verified(recipe, number):
    with over_http(recipe) as server:
        server.stalls = "tiny-c_1.0_all.deb"
        process = recipe.start()
        assert server.stalled.wait(60)
        wait_until(lambda: (recipe.kept / "tiny-b_1%3a2.0_all.deb").exists(), "the second package")
        apts = [
            int(line)
            for line in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ]
        assert apts
        os.kill(process.pid, number)
        code, output = process.wait(), process.said()
        assert code == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[number], output
        wait_until(lambda: all(gone(pid) for pid in apts), "the end of apt")
        if number != signal.SIGKILL:
            assert recipe.environments() == []
            assert output.splitlines()[-1].startswith("dlbench: ")
        server.stalls = ""
        server.asked.clear()
        recipe.succeeds()
        assert set(server.downloads()) == {"tiny-c_1.0_all.deb"}


def test_a_file_that_is_not_what_the_mirror_lists_is_refused(recipe):
    package = recipe.mirror.folder / "pool" / "tiny-b_2.0_all.deb"
    content = package.read_bytes()
    package.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with over_http(recipe):
        assert "not match the checksum in its lists" in recipe.refused()
        package.write_bytes(content)
        recipe.succeeds()


def test_a_file_that_is_not_what_the_lock_names_is_refused(recipe):
    recipe.mirror.add(
        "tiny-b", "1:2.0"
    )  # the same version with other content, rightly listed and signed
    recipe.mirror.publish()
    message = recipe.refused()
    assert (
        "tiny-b_1%3a2.0_all.deb is not the file that debian.lock names (other content)" in message
    )
    assert "DLBENCH_DEBIAN_MIRROR" in message
    assert not (recipe.kept / "tiny-b_1%3a2.0_all.deb").exists()
    lock = recipe.adapter / "debian.lock"
    lock.write_text(recipe.mirror.lock().replace("1:2.0", "1:1.9"))
    assert "The Debian mirror no longer has tiny-b 1:1.9" in recipe.refused()
    recipe.relock()
    recipe.succeeds()


def test_a_release_that_the_mirror_has_no_more_is_named(recipe):
    shutil.rmtree(recipe.mirror.folder / "dists")
    recipe.mirror.publish("newer")
    message = recipe.refused()
    assert f"The Debian mirror has no release {RELEASE}" in message
    with over_http(recipe):
        assert f"The Debian mirror has no release {RELEASE}" in recipe.refused()
        recipe.mirror.publish()
        recipe.succeeds()


def test_lists_that_another_key_signed_are_refused(recipe, tmp_path):
    recipe.variables["DLBENCH_DEBIAN_KEYRING"] = str(make_key(tmp_path / "other")[1])
    message = recipe.refused()
    assert "are not signed by a key in" in message
    assert "debian-archive-keyring" in message
    recipe.variables["DLBENCH_DEBIAN_MIRROR"] = "http://127.0.0.1:9/debian"
    assert "The Debian mirror could not be reached. Check the network" in recipe.refused()


def assert_unavailable(recipe: Recipe, *parts: str) -> None:
    """The reason is in the list, and the build ends with it before a folder was made."""
    listed = recipe.listed()
    assert listed["state"] == "unavailable"
    for part in parts:
        assert part in listed["reason"]
    assert recipe.refused() == f"dlbench: {listed['reason']}"
    assert not recipe.kept.exists()


@pytest.mark.parametrize(("program", "package"), [("apt-get", "apt"), ("dpkg-deb", "dpkg")])
def test_without_apt_it_is_unavailable(recipe, program, package):
    folder = recipe.folder / "path"
    folder.mkdir()
    for program_name in {"apt-get", "dpkg-deb", "apt-config", "sh"} - {program}:
        (folder / program_name).symlink_to(shutil.which(program_name))
    recipe.variables["PATH"] = str(folder)
    assert_unavailable(
        recipe, f"{program} (of the package {package}) is not on PATH", f"Install {package}"
    )


def test_without_mirror_keys_or_the_right_machine_it_is_unavailable(recipe):
    mirror, lock = recipe.variables.pop("DLBENCH_DEBIAN_MIRROR"), recipe.adapter / "debian.lock"
    apt = script(
        recipe.folder / "path/apt-get",
        "#!/bin/sh\necho \"'http://a.example/ubuntu/dists/n/InRelease' 0\"\n",
    )
    recipe.variables["PATH"] = f"{apt.parent}:{recipe.variables['PATH']}"
    assert_unavailable(recipe, "apt sources name no Debian mirror", "Set DLBENCH_DEBIAN_MIRROR")
    recipe.variables |= {"DLBENCH_DEBIAN_MIRROR": mirror, "DLBENCH_DEBIAN_KEYRING": "/none.gpg"}
    assert_unavailable(recipe, "(/none.gpg)", "debian-archive-keyring")
    lock.write_text(lock.read_text().replace("tiny-a 1.0 all", "tiny-a 1.0 s390x"))
    assert_unavailable(recipe, "its packages are for Linux on s390x")


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (["http://deb.example/debian/dists/bookworm"], "http://deb.example/debian"),
        (
            [
                "https://tool.example/apt/dists/any",
                "file:/srv/archive/debian/20250101T000000Z/dists/bookworm",
            ],
            "file:/srv/archive/debian/20250101T000000Z",
        ),
        (  # a vendor's, with Debian's name of a release
            [
                "https://tool.example/linux/debian/dists/bookworm",
                "http://deb.example/debian//dists/bookworm",
            ],
            "http://deb.example/debian",
        ),
        (
            [
                "https://tool.example/debian/dists/stable",
                *(
                    f"http://mirror.example/pub/debian/dists/{suite}"
                    for suite in ("bookworm", "bookworm-updates")
                ),
            ],
            "http://mirror.example/pub/debian",
        ),
        (
            [
                "https://tool.example/debian/stable/dists/bookworm",
                "http://archive.example/ubuntu/dists/noble",
            ],
            "",
        ),
    ],
)
def test_the_mirror_is_taken_from_the_machines_sources(tmp_path, monkeypatch, lists, expected):
    monkeypatch.delenv("DLBENCH_DEBIAN_MIRROR", raising=False)
    answers = [f"echo \"'{address}/InRelease' x 0\"\n" for address in lists]
    script(tmp_path / "apt-get", "".join(["#!/bin/sh\n", *answers]))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    debian.machines_mirror.cache_clear()
    try:
        assert debian.mirror() == expected
        (tmp_path / "apt-get").unlink()
        assert debian.mirror() == expected  # asked once
        monkeypatch.setenv("DLBENCH_DEBIAN_MIRROR", "http://given.example/any/")
        assert debian.mirror() == "http://given.example/any"
    finally:
        debian.machines_mirror.cache_clear()


def test_a_disk_that_is_full_while_unpacking(recipe):
    recipe.mirror.add("tiny-c", files={"usr/share/tiny-c": bytes(6_000_000)})  # packed it is small
    recipe.relock()
    full = (5_000_000, 5_000_000)  # bytes of a file, as on a full disk
    message = recipe.refused(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, full))
    assert "tiny-c cannot be unpacked: no space is left" in message
    assert (recipe.kept / "tiny-c_1.0_all.deb").exists()
    recipe.succeeds()


@pytest.mark.parametrize(
    ("link", "target", "reason"),
    [
        (
            "lib/libtiny.so.1",
            "debian/usr/share/none",
            "lack debian/usr/share/none, which lib/libtiny.so.1 should point to",
        ),
        (
            "/tmp/dlbench-tests-out",
            "debian/usr/share/tiny-a",
            "leaves the environment. Correct framework.toml",
        ),
        ("lib/it", "../../..", "the link lib/it to ../../.. leaves the environment"),
    ],
)
def test_a_link_to_nothing_or_out_of_the_environment_is_refused(recipe, link, target, reason):
    line = f'"{link}" = "{target}"'
    (recipe.adapter / "framework.toml").write_text(
        TOML.replace('"lib/libtiny.so.1" = "debian/usr/share/tiny-a"', line)
    )
    assert reason in recipe.refused()
    assert not os.path.lexists("/tmp/dlbench-tests-out")


def test_nothing_is_unpacked_through_a_link_out_of_the_environment(recipe):
    outside = recipe.folder / "outside"
    outside.mkdir()
    recipe.mirror.add("tiny-a", files={"usr/lib/door": str(outside)})
    recipe.mirror.add("tiny-b", "1:2.0", {"usr/lib/door/deep/file": b"b"})
    recipe.relock()
    message = recipe.refused()
    assert "tiny-b cannot be unpacked" in message
    assert "outside the destination" in message
    assert list(outside.iterdir()) == []

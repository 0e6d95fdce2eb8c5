"""A Debian mirror that tests make: packages of a few files, signed lists, a server that can stall and count."""

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from made_up_pythons import script
from processes import COMMAND, PATIENCE, run_with, variables_of_command

from dlbench.suites.environments import environment
from dlbench.suites.planning.framework import read

RELEASE = "oldie"
PLENTY = 400_000  # bytes of a package: more than one buffer of a connection


@dataclass
class Mirror:
    """The folder of a mirror, and the keyring of the key that signs its lists."""

    folder: Path
    keyring: Path
    signing: Path  # gpg's home

    def add(
        self, name: str, version: str = "1.0", files: dict[str, bytes] | None = None, links: Mapping[str, str] = {}
    ) -> None:
        """Make a package with these files and links (place: target) and put it into the pool; ``publish`` lists it."""
        root = self.folder.parent / "build" / name
        shutil.rmtree(root, ignore_errors=True)
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN" / "control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: tests\nDescription: for tests\n"
        )
        for path, content in (files or {f"usr/share/{name}": os.urandom(PLENTY)}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        for path, target in links.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)
        made = self.folder / "pool" / f"{name}_{version.rpartition(':')[2]}_all.deb"  # a pool's names have no epoch
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, made], check=True, capture_output=True)

    def publish(self, release: str = RELEASE, sign: bool = True) -> None:
        """Write the lists of what the pool holds, signed."""
        blocks = [
            f"{control}Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest(deb)}\n"
            for deb, control in self._pool()
        ]
        lists = self.folder / "dists" / release / "main" / "binary-amd64" / "Packages"
        lists.parent.mkdir(parents=True, exist_ok=True)
        lists.write_text("\n".join(blocks))
        text = (
            f"Origin: tests\nSuite: {release}\nCodename: {release}\nArchitectures: amd64\nComponents: main\n"
            f"Date: Sat, 14 Aug 2021 09:00:00 UTC\nSHA256:\n {digest(lists)} {lists.stat().st_size} "
            "main/binary-amd64/Packages\n"
        )
        (self.folder / "dists" / release / "Release").write_text(text)
        signed = self.folder / "dists" / release / "InRelease"
        signed.unlink(missing_ok=True)
        if sign:
            command = ["gpg", "--homedir", self.signing, "--batch", "--clearsign", "--output", signed]
            subprocess.run(command, input=text, text=True, check=True, capture_output=True)

    def lock(self) -> str:
        """Return the lock of everything in the pool."""
        lines = ["# a mirror of the tests"]
        for deb, control in self._pool():
            name, version, architecture = (line.partition(": ")[2] for line in control.splitlines()[:3])
            lines.append(f"{name} {version} {architecture} {deb.stat().st_size} {digest(deb)}")
        return "\n".join(lines) + "\n"

    def _pool(self) -> Iterator[tuple[Path, str]]:
        """Yield each package with what it says of itself."""
        for deb in sorted((self.folder / "pool").glob("*.deb")):
            yield deb, subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True).stdout


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_key(folder: Path) -> tuple[Path, Path]:
    """Make a key; return gpg's home and the keyring for those who verify."""
    signing, keyring = folder / "gpg", folder / "keyring.gpg"
    signing.mkdir(parents=True, mode=0o700)
    command = ["gpg", "--homedir", signing, "--batch"]
    named = ["--passphrase", "", "--quick-generate-key", "Tests <tests@example.invalid>", "ed25519", "sign", "never"]
    subprocess.run([*command, *named], check=True, capture_output=True)
    subprocess.run([*command, "--output", keyring, "--export"], check=True, capture_output=True)
    return signing, keyring


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.stalls and self.path.endswith(self.server.stalls):
            path = Path(self.translate_path(self.path))
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(path.read_bytes()[: path.stat().st_size // 2])
                self.wfile.flush()
                self.server.stalled.set()
                self.server.go_on.wait(60)
            return
        super().do_GET()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Serves a mirror; a file whose address ends with ``stalls`` stops after its first bytes."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), lambda *arguments: _Handler(*arguments, directory=str(folder)))
        self.asked: list[str] = []
        self.stalls = ""
        self.stalled = threading.Event()
        self.go_on = threading.Event()

    @property
    def address(self) -> str:
        """The mirror's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def downloads(self) -> list[str]:
        """Return the names of the packages that were asked for."""
        return [Path(path).name for path in self.asked if path.endswith(".deb")]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a mirror's folder."""
    server = Server(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()


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

    def start(self, **options) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*COMMAND, "env", "build", "tiny"],
            **{"env": self.variables, "stdin": subprocess.DEVNULL, "text": True, "start_new_session": True},
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def build(self, **options) -> tuple[int, str]:
        """Build; return the exit code and the last line said."""
        if options:
            process = self.start(**options)
            out, said = process.communicate(timeout=PATIENCE)
            code = process.returncode
        else:
            done = run_with(self.variables, self.folder, "env", "build", "tiny")
            code, out, said = done.returncode, done.stdout, done.stderr
        assert out == ""
        assert "Traceback" not in said
        return code, said.splitlines()[-1]

    def refused(self, **options) -> str:
        """Build in vain; return the one line of complaint."""
        code, last = self.build(**options)
        assert code == 3, last
        assert last.startswith("dlbench: ")
        assert self.environments() == []
        return last

    def listed(self) -> dict:
        answer = run_with(self.variables, self.folder, "env", "list", "--json")
        assert answer.returncode == 0, answer.stderr
        (found,) = [each for each in json.loads(answer.stdout) if each["name"] == "tiny"]
        return found

    def environments(self) -> list[Path]:
        return [path for path in (self.folder / "home" / "environments").glob("tiny-*") if path.is_dir()]

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

"""A framework of three Debian packages on a mirror of the tests' own, and the real command that builds it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from debian_mirror import RELEASE, Mirror, Server, serving
from made_up_pythons import script
from processes import COMMAND, PATIENCE, run_with, variables_of_command

from dlbench.suites.environments import environment
from dlbench.suites.planning.framework import read

NAMES = ("tiny-a", "tiny-b", "tiny-c")
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
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
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
        for name in NAMES:
            assert (folder / "debian" / "usr" / "share" / name).is_file()
        assert not self.kept.exists()
        return folder


@contextlib.contextmanager
def over_http(recipe: Recipe) -> Iterator[Server]:
    with serving(recipe.mirror.folder) as server:
        recipe.variables["DLBENCH_DEBIAN_MIRROR"] = server.address
        yield server


def replace_program(recipe: Recipe, program: str, text: str) -> None:
    """Let a program on PATH be this shell script."""
    folder = recipe.folder / "path"
    script(folder / program, f"#!/bin/sh\n{text}\n")
    recipe.variables["PATH"] = f"{folder}:{recipe.variables['PATH']}"

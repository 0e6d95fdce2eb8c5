"""Interpreters that tests make up: shell scripts that answer as a Python would, and wheels of one
module."""

import base64
import hashlib
import multiprocessing
import sys
import zipfile
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from dlbench.suites.environments import environment
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import Framework, Mode

# Answers what dlbench asks of an interpreter; FAKE_* variables make it fail where a real one might.
_SCRIPT = """#!/bin/sh
case "$*" in
"-m venv --without-pip "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; exit ${{FAKE_BARE_VENV_EXIT:-0}} ;;
"-m venv "*)
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "venv: $FAKE_VENV_SAYS"
    if [ -n "$FAKE_VENV_HANGS" ]; then echo $$ > "$FAKE_VENV_HANGS"; exec sleep 600; fi
    exit ${{FAKE_VENV_EXIT:-0}} ;;
*"pip install"*) echo "$FAKE_PIP_SAYS"; exit ${{FAKE_PIP_EXIT:-0}} ;;
*) echo '{{"version": "{version}.1", "implementation": "FakePython", "distributions": {{"tiny": "1.0"}}, "missing":'
   echo "[$FAKE_MISSING]}}" ;;
esac
"""


def script(path: Path, text: str) -> Path:
    """Make an executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_python(path: Path, version: str) -> Path:
    """Make a script that answers as a Python of this minor version."""
    return script(path, _SCRIPT.format(version=version))


def make_wheel(
    folder: Path, module: str, version: str = "1.0", text: str = "", requires: str = ""
) -> Path:
    """Make a wheel of one module with this text."""
    information = f"{module}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{module}.py": text,
        f"{information}/METADATA": (
            f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n{needs}"
        ),
        f"{information}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    lines = []
    for name, text in files.items():
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        )
        lines.append(f"{name},sha256={digest},{len(text)}")
    files[f"{information}/RECORD"] = "\n".join([*lines, f"{information}/RECORD,,"]) + "\n"
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


HOST = f"{sys.version_info[0]}.{sys.version_info[1]}"


def make_framework(
    folder: Path, requirements: str = "", python: str = "3.99", imports: str = "tiny"
) -> Framework:
    """Describe a framework whose locked requirements are these lines."""
    lock = folder / "requirements.lock"
    lock.write_text(requirements)
    return Framework(
        name="tiny",
        title="Tiny",
        summary="a framework for tests",
        folder="null",
        directory=folder,
        python=(python,),
        requirements=str(lock),
        imports=imports,
        download_megabytes=1,
        disk_megabytes=2,
        modes={"only": Mode(summary="the one mode")},
    )


def left_behind(home: Path) -> list[str]:
    """List what lies in the folder of environments, log and lock files aside."""
    folder = home / "environments"
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return [name for name in names if not name.endswith((".log", ".lock"))]


def refused(framework: Framework) -> str:
    """Return the sentence with which a build is given up."""
    with pytest.raises(FrameworkEnvironmentError) as caught:
        environment.build(framework)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 3
    return message


def start_build(framework: Framework) -> BaseProcess:
    """Start a process, a fork of this one, that builds the framework's environment."""
    builder = multiprocessing.get_context("fork").Process(
        target=environment.build, args=(framework,)
    )
    builder.start()
    return builder

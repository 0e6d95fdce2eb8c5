"""A framework for tests, and what is left and said when its environment is built."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.suites.environments import environment
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import Framework, Mode
from dlbench.suites.planning.values import Build

HOST = f"{sys.version_info[0]}.{sys.version_info[1]}"


def make_framework(folder: Path, requirements: str = "", python: str = "3.99", imports: str = "tiny") -> Framework:
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


def source_of(framework, interpreter=None, name="tiny", build_missing=True):
    said = []
    found = environment.prepare_sources([Build(name, framework, interpreter)], said.append, build_missing)
    return found[name], said


def start_build(framework, **variables):
    """Start a process that builds the framework's environment."""
    program = (
        "import sys\n"
        "from dlbench.suites.environments import environment\n"
        "from dlbench.suites.planning.framework import Framework\n"
        "environment.build(Framework.model_validate_json(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, framework.model_dump_json()]
    return subprocess.Popen(command, env={**os.environ, **variables})

"""What tests of environments start from: a home of their own, a made-up framework."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_pythons import make_framework, make_python, script

from dlbench.suites.environments import environment, interpreters


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give a DLBENCH_HOME of the test's own, no Python but those it makes, and a pip that reaches
    no index."""
    folder = tmp_path / "home"
    monkeypatch.setenv("DLBENCH_HOME", str(folder))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_INDEX"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_TIMEOUT", "2")
    interpreters.find_python.cache_clear()
    yield folder
    interpreters.find_python.cache_clear()


@pytest.fixture
def tiny(tmp_path, home):
    """Give a framework for a made-up Python 3.99 that is on PATH."""
    make_python(tmp_path / "path" / "python3.99", "3.99")
    return make_framework(tmp_path)


@pytest.fixture(scope="module")
def virtual_environment(tmp_path_factory):
    """Give a virtual environment with this one's pip: to install it takes 5 seconds of a CPU, to
    copy it a tenth."""
    site = Path(pytest.importorskip("pip").__file__).parents[1]
    folder = tmp_path_factory.mktemp("environment") / "made"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in (site / "pip", *site.glob("pip-*.dist-info")):
        shutil.copytree(path, packages / path.name)
    return folder


@pytest.fixture
def host_python(tmp_path, monkeypatch, virtual_environment):
    """Let builds use an interpreter that is this one, but copies a virtual environment rather than
    make one."""
    copy = (
        f'case "$*" in "-m venv "*) exec cp -a {shlex.quote(str(virtual_environment))} "$3" ;; esac'
    )
    python = script(
        tmp_path / "host" / "python",
        f'#!/bin/sh\n{copy}\nexec {shlex.quote(sys.executable)} "$@"\n',
    )
    monkeypatch.setattr(environment, "find_python", lambda version: python)
    return python

"""Finding Pythons on PATH and under pyenv and uv, and inspecting one."""

import sys
from pathlib import Path

import pytest
from made_up_pythons import make_python, script

from dlbench.suites.environments import interpreters
from dlbench.suites.errors import FrameworkEnvironmentError


@pytest.fixture
def places(home, tmp_path, monkeypatch):
    """Give a machine with no Python on PATH, under pyenv or under uv, whose folders a test may
    fill."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    "place",
    [
        "path/python3.99",
        "pyenv/versions/3.99.7/bin/python3.99",
        "uv/cpython-3.99.1-linux-x86_64-gnu/bin/python3.99",
        "home/.pyenv/versions/3.99.7/bin/python3.99",
        "home/.local/share/uv/python/cpython-3.99/bin/python3.99",
    ],
)
def test_a_python_is_found_where_it_may_lie(places, monkeypatch, place):
    if place.startswith("home"):
        monkeypatch.delenv("PYENV_ROOT")
        monkeypatch.delenv("UV_PYTHON_INSTALL_DIR")
    python = make_python(places / place, "3.99")
    assert interpreters.find_python("3.99") == python
    assert interpreters.find_python("3.9") != python


def test_a_shim_of_pyenv_is_not_started_and_a_known_interpreter_only_once(places, monkeypatch):
    monkeypatch.setenv("PATH", f"{places / 'pyenv/shims'}:/usr/bin:/bin")
    script(places / "pyenv/shims/python3.99", f"#!/bin/sh\ntouch {places / 'started'}\nexit 127\n")
    python = make_python(places / "pyenv/versions/3.99.7/bin/python3.99", "3.99")
    assert interpreters.find_python("3.99") == python
    monkeypatch.setattr(interpreters, "inspect", lambda path: pytest.fail(f"{path} started again"))
    assert interpreters.name_of(python) == "FakePython 3.99.1"
    assert not (places / "started").exists()


@pytest.mark.parametrize(
    "broken",
    [
        "#!/bin/sh\nexit 127\n",  # a pyenv shim whose version is not active
        "#!/bin/sh\necho 3.98\n",  # another version under this name
        "#!/no/such/interpreter\n",
        "\x7fELF and nothing more",
    ],
)
def test_interpreters_that_do_not_start_or_have_another_version_are_skipped(places, broken):
    script(places / "path" / "python3.99", broken)
    python = make_python(places / "pyenv/versions/3.99.0/bin/python3.99", "3.99")
    assert interpreters.find_python("3.99") == python


def test_an_interpreter_is_inspected_without_importing_anything_or_the_hosts_python_path(
    tmp_path, monkeypatch
):
    (tmp_path / "sneaked_in.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    inspection = interpreters.inspect(
        Path(sys.executable), ("numpy", "no_such_module", "sneaked_in")
    )
    assert inspection.name == f"CPython {sys.version.split()[0]}"
    assert inspection.missing == ("no_such_module", "sneaked_in")
    assert inspection.distributions.keys() >= {"numpy", "sqlalchemy"}


@pytest.mark.parametrize("text", ["no script", "#!/bin/sh\necho hello\n", "#!/bin/sh\necho '[]'\n"])
def test_a_file_that_is_no_python_is_refused(tmp_path, text):
    for path in (
        Path("/no/such/python"),
        Path("/"),
        Path("/bin/cat"),
        Path("a\0b"),
        script(tmp_path / "python", text),
    ):
        with pytest.raises(
            FrameworkEnvironmentError,
            match=r"is not a Python interpreter that starts\. Give the path",
        ):
            interpreters.inspect(path)


def test_a_pyenv_of_another_user_is_passed_over(places, monkeypatch):
    def forbidden(folder, pattern):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "glob", forbidden)
    assert interpreters.find_python("3.99") is None
    python = make_python(places / "path/python3.99", "3.99")
    interpreters.find_python.cache_clear()
    assert interpreters.find_python("3.99") == python

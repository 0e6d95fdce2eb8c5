"""What sessions of pytest with the plugin start from."""

import os
from pathlib import Path

import command_server
import plugin_sessions
import pytest
from plugin_sessions import ARGUMENTS, SUITE
from processes import PATIENCE


@pytest.fixture
def session(pytester, monkeypatch, tmp_path):
    """Give a function that runs pytest with the plugin in a process of its own, in a folder with a suite."""
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    (tmp_path / "temporary").mkdir()
    # Where the lock lies that keeps two from measuring at once: others may be measuring.
    for name in ("TMPDIR", "DLBENCH_LOCK_FOLDER"):
        monkeypatch.setenv(name, str(tmp_path / "temporary"))
    # Neither these tests' own options, nor that they may themselves be spread over processes.
    for name in [name for name in os.environ if name.startswith(("PYTEST_ADDOPTS", "PYTEST_XDIST_"))]:
        monkeypatch.delenv(name)
    # The made-up launches take their suite from the helpers.
    monkeypatch.setenv("PYTHONPATH", str(Path(plugin_sessions.__file__).parent))
    pytester.path.joinpath("mine.toml").write_text(SUITE)

    def run(*words, suite="mine.toml"):
        chosen = () if suite is None else ("--dlbench-suite", suite)
        given = "--basetemp", str(tmp_path / "base"), *ARGUMENTS, *chosen, *words
        output = tmp_path / "temporary"
        code = command_server.call(given, pytester.path, dict(os.environ), output, PATIENCE, "pytest")
        out, err = ((output / name).read_text().splitlines() for name in ("out", "err"))
        return pytest.RunResult(code, out, err, 0.0)

    return run

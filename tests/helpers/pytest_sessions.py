"""Sessions of pytest with the plugin, each in a process of its own."""

import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path

import command_server
import pytest
from processes import PATIENCE, share_digests, suite_of_null

PLUGIN = "dlbench.suites.in_pytest.plugin"
# An editable install made before the entry point was there does not know it.
INSTALLED = any(
    entry_point.value == PLUGIN for entry_point in importlib.metadata.entry_points(group="pytest11")
)
ARGUMENTS = (
    *(() if INSTALLED else ("-p", PLUGIN)),
    *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:timeout"),
)
SUITE = suite_of_null(
    step_seconds=0.002,
    threads=[1, 2],
    protocol={"launches": 2, "warmup_steps": 1, "minimum_steps": 2, "cell_seconds": 20.0},
)


def sessions_of(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs pytest with the plugin in a process of its own, in a folder with
    a suite."""
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    share_digests(tmp_path / "home")
    (tmp_path / "temporary").mkdir()
    # Where the lock lies that keeps two from measuring at once: others may be measuring.
    for name in ("TMPDIR", "DLBENCH_LOCK_FOLDER"):
        monkeypatch.setenv(name, str(tmp_path / "temporary"))
    # Neither these tests' own options, nor that they may themselves be spread over processes.
    for name in [
        name for name in os.environ if name.startswith(("PYTEST_ADDOPTS", "PYTEST_XDIST_"))
    ]:
        monkeypatch.delenv(name)
    pytester.path.joinpath("mine.toml").write_text(SUITE)

    def run(
        *words: str, suite: str | None = "mine.toml", benchmark: bool = True, folder: str = "."
    ) -> pytest.RunResult:
        chosen = () if suite is None else ("--dlbench-suite", suite)
        of_benchmark = ("--benchmark-quiet",) if benchmark else ("-p", "no:benchmark")
        arguments = "--basetemp", str(tmp_path / "base"), *ARGUMENTS, *of_benchmark, *chosen, *words
        output = tmp_path / "temporary"
        code = command_server.call(
            arguments, pytester.path / folder, dict(os.environ), output, PATIENCE, "pytest"
        )
        out, err = ((output / name).read_text().splitlines() for name in ("out", "err"))
        return pytest.RunResult(code, out, err, 0.0)

    return run

"""The way from an option to the matrix, as CONTRIBUTING.md lists it, followed through a real run."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import signal_handlers
from processes import suite_of_null
from typer.testing import CliRunner

from dlbench.suites.cli import build_app

ROOT = Path(__file__).resolve().parent.parent
_HOP = re.compile(r"^\d+\. `(\S+\.py)` `([\w.]+)`: ", re.MULTILINE)
_MOST_HOPS = 12


def listed_hops() -> list[tuple[str, str]]:
    """Return the file and the function of each hop."""
    return _HOP.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def functions_of(file: str) -> set[str]:
    """Return the qualified names of a file's functions and methods."""
    names = set()
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    names.add(f"{node.name}.{member.name}")
    return names


def test_every_hop_is_a_function_that_exists() -> None:
    hops = listed_hops()
    assert 2 < len(hops) <= _MOST_HOPS
    for file, function in hops:
        assert function in functions_of(file), f"{file} has no {function}"


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Restore the handlers of signals, which a command sets for its process."""
    with signal_handlers.restored():
        yield


def test_a_run_goes_this_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_signals: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(tmp_path))
    (tmp_path / "mine.toml").write_text(suite_of_null(step_seconds=0.001))
    in_host = [hop for hop in listed_hops() if not hop[0].startswith("adapters/")]
    ways = {}
    for file, function in in_host:
        ways[str(Path(file)), function.rpartition(".")[2]] = (file, function)
    first_calls: dict[tuple[str, str], None] = {}
    home = str(ROOT) + "/"

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        path = frame.f_code.co_filename.replace("/.packages/dlbench/", "/").removeprefix(home)
        hop = ways.get((path, frame.f_code.co_name))
        if hop is not None:
            first_calls.setdefault(hop)

    words = ["run", "mine.toml", "--threads", "1,2", "--launches", "1", "--store", "s.sqlite"]
    sys.setprofile(note)
    try:
        done = CliRunner().invoke(build_app("run"), [*words, "--no-wait-for-quiet"])
    finally:
        sys.setprofile(None)
    assert done.exit_code == 0, done.output
    assert "null" in done.stdout
    assert list(first_calls) == in_host

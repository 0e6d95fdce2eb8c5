"""Tables on terminals of any width."""

import io

import pytest
from rich.console import Console

from dlbench.suites.display import screen


@pytest.mark.parametrize("width", [20, 40, 66, 80])
def test_what_is_to_be_copied_stands_on_one_line(monkeypatch, width):
    shown = io.StringIO()
    monkeypatch.setattr(screen, "out", Console(file=shown, width=width))
    name = "20261120T153347-1d345f"
    screen.table("Runs", ["id", "suite", "finished"], [[name, "quick", "2026-11-20 15:36"]], whole=("id",))
    (line,) = [each for each in shown.getvalue().splitlines() if name in each]
    assert line.split() == [name, "quick", "2026-11-20", "15:36"]

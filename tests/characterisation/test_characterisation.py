"""Every report says of fixed stores what it said when its output was recorded.

A difference that is meant is taken over by `python tests/characterisation/record.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from carry_out import Server, server
from kept_commands import COMMANDS

OUTPUTS = Path(__file__).parent / "outputs"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as started:
        yield started


#: What other reports print in these formats: every run sees them of the matrix alone.
LIKE_THE_MATRIX = ("-latex", "-markdown")


def _param(name: str) -> object:
    alike = name.endswith(LIKE_THE_MATRIX) and not name.startswith("matrix")
    return pytest.param(name, marks=pytest.mark.slow if alike else ())


@pytest.mark.parametrize("name", [_param(name) for name in COMMANDS])
@pytest.mark.thinned(4)
def test_a_command_prints_what_it_printed(name: str, running: Server) -> None:
    recorded = (OUTPUTS / f"{name}.txt").read_text(encoding="utf-8")
    assert running.carry_out(name).splitlines() == recorded.splitlines()


def test_no_output_is_recorded_that_no_command_makes() -> None:
    assert {path.stem for path in OUTPUTS.glob("*.txt")} == set(COMMANDS)

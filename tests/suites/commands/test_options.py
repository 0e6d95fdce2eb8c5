"""How commands declare their options, and that their help and plans import little."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from dlbench.suites.commands import options
from dlbench.suites.planning.axes import AXIS_OPTIONS, KEYS


def test_every_axis_is_an_option() -> None:
    assert tuple(options.names_of(options.AxisOptions)) == KEYS
    assert options.names_of(options.ShownAxisOptions) == [axis.key for axis in AXIS_OPTIONS]


def test_a_command_offers_the_options_of_its_bases_from_left_to_right() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Left:
        first: Annotated[str, options.argument("FIRST", "An argument.")]
        second: Annotated[bool, options.flag("--second", "A flag.")] = False

    @dataclass(frozen=True, kw_only=True)
    class Right:
        third: Annotated[int, options.option("--third", "A number.", metavar="N")] = 3

    @dataclass(frozen=True, kw_only=True)
    class Both(Left, Right):
        fourth: Annotated[str | None, options.option("--fourth", "A text.")] = None
        second: Annotated[bool, options.flag("--other", "Another flag.")] = False

    parameters = options.parameters_of(Both, without=("fourth",))
    assert [parameter.name for parameter in parameters] == ["first", "second", "third"]
    parsed = []
    command = options.takes(Both, parameters)(parsed.append)
    command(first="a", third=4)
    assert parsed == [Both(first="a", third=4)]
    words = options.words_of(Both(first="a", second=True, fourth="b c"), ("second", "third"))
    assert words == ["--other", "--third", "3"]


@pytest.mark.parametrize("words", [["run", "--help"], ["list"], ["plan", "quick"]])
def test_quick_commands_import_neither_scipy_nor_sqlalchemy(
    tmp_path: Path, words: list[str]
) -> None:
    """Importing them takes longer than all else that these commands do."""
    program = (
        "import sys\n"
        "from dlbench.suites import cli\n"
        "try:\n"
        "    cli.main()\n"
        "except SystemExit as error:\n"
        "    assert not error.code, error.code\n"
        "heavy = {'scipy', 'sqlalchemy', 'dlbench.suites.run.runner'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

"""The help of every command: it fits its terminal, reads without colours, and its examples work."""

import contextlib
import lzma
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dlbench.reports import catalogue
from dlbench.suites import cli
from dlbench.suites.commands import report
from dlbench.suites.display import help as of_help
from dlbench.suites.errors import DlbenchError, UsageError
from dlbench.suites.planning import framework, own

MOST_IN_A_PANEL = 16  # a screen of options
MOST_WITHOUT_PANELS = 3
"""Options of a command whose help has a panel of options only."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
STORES = Path(__file__).parents[1] / "goldens" / "stores"


@cache
def app_of(word: str) -> Any:
    return cli.build_app(word)


@cache
def command_of(words: tuple[str, ...]) -> Any:
    """Return the command of these words."""
    command = typer.main.get_command(app_of(words[0] if words else ""))
    for word in words:
        command = command.get_command(command.context_class(command, info_name="dlbench"), word)  # type: ignore[attr-defined]  # it is a group
        assert command is not None, words
    return command


def commands() -> Iterator[tuple[str, ...]]:
    for word in cli.COMMANDS:
        names = list(getattr(command_of((word,)), "commands", {}))
        if word == "report":
            names += [name for name, entry in catalogue.reports().items() if entry.of_stores]
        yield (word,)
        for name in names:
            yield (word, name)


ALL = [(), *commands()]


def shown(*words: str, width: int = 80) -> str:
    done = CliRunner().invoke(
        app_of(words[0] if words else ""), [*words, "-h"], env={"COLUMNS": str(width)}
    )
    assert done.exit_code == 0, done.output
    return done.output


def panels_of(text: str) -> dict[str, list[str]]:
    """Return the options of each panel."""
    return {
        panel.split(" ─")[0]: re.findall(r"^│ (--[a-z-]+)", panel, re.MULTILINE)
        for panel in text.split("╭─ ")[1:]
    }


def check(text: str, width: int) -> None:
    """Fail for a text that does not read well, or does not fit."""
    assert not re.search(r"<\w+(\[\w+\])?>", text), text
    assert "[[" not in text, text
    assert "{" not in text.split("\n\n")[0], text
    assert not re.search(r"'\d\*'", text), text
    assert max(map(len, text.splitlines())) <= width, text
    assert re.search(r"--help +-h +Show this help", text)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_help_of_a_command_fits_has_no_types_and_a_panel_for_each_option(
    words: tuple[str, ...],
) -> None:
    for width in (80, 100):
        text = shown(*words, width=width)
        check(text, width)
    panels = panels_of(text)
    assert all(len(options) <= MOST_IN_A_PANEL for options in panels.values()), panels
    of_command = {
        name
        for parameter in command_of(words).params
        for name in parameter.opts
        if name.startswith("--")
    }
    in_panels = [name for options in panels.values() for name in options]
    assert sorted(in_panels) == sorted({*of_command, "--help"})
    if len(of_command) > MOST_WITHOUT_PANELS:
        assert set(panels.get("Options", ())) <= {"--help"}, panels["Options"]


@pytest.mark.parametrize("words", [(), ("run",), ("gate",), ("report",), ("report", "matrix")])
def test_the_help_reads_the_same_in_a_terminal_without_the_backticks(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer import rich_utils

    piped = shown(*words)
    monkeypatch.setattr(rich_utils, "FORCE_TERMINAL", True)
    monkeypatch.setattr(of_help, "_has_colours", lambda: True)
    coloured = shown(*words)
    assert "\x1b[" in coloured
    text = ANSI.sub("", coloured)
    check(text, 80)
    assert panels_of(text) == panels_of(piped)
    assert re.findall(r"\w+", text) == re.findall(r"\w+", piped)
    assert "`" not in text


def test_a_real_terminal_gets_colours_and_no_line_that_is_too_long() -> None:
    master, slave = pty.openpty()
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    with subprocess.Popen(
        [sys.executable, "-m", "dlbench.suites", "gate", "-h"],
        stdout=slave,
        stderr=slave,
        stdin=slave,
        env={**variables, "TERM": "xterm-256color", "COLUMNS": "80"},
    ) as process:
        os.close(slave)
        read = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(master, 65536):
                read += part
    os.close(master)
    assert process.returncode == 0
    text = read.decode()
    assert "\x1b[" in text
    check(ANSI.sub("", text).replace("\r", ""), 80)


def test_the_help_of_run_fits_one_screen() -> None:
    text = shown("run", width=100)
    in_panels = sum(line.startswith(("│", "╭", "╰")) for line in text.splitlines())
    assert in_panels <= 60
    assert len(text.splitlines()) <= 72


def test_panels_are_named_by_the_readers_question() -> None:
    titles = list(panels_of(shown("run")))
    measuring = ["What to measure", "CPUs, workers and data", "How precisely", "Your own code"]
    assert titles == ["Arguments", *measuring, "Fleet", "Session and output"]
    assert "Which results" in shown("report", "matrix")
    assert {"The two sides", "What counts as slower"} <= set(panels_of(shown("gate")))
    assert panels_of(shown())["Options"][0] == "--version"


def test_every_option_command_and_report_with_a_panel_is_in_one_alone() -> None:
    names = [name for names in of_help.PANELS.values() for name in names]
    assert len(names) == len(set(names))
    in_panels = [name for names in of_help.COMMAND_PANELS.values() for name in names]
    assert sorted(in_panels) == sorted(cli.COMMANDS)
    reports = [name for names in report.PANELS.values() for name in names]
    of_stores = {name for name, entry in catalogue.reports().items() if entry.of_stores}
    assert sorted(reports) == sorted({*of_stores, "page", "site"})


def test_code_words_keep_their_backticks_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(shown("run").split())
    assert "The suite `claims` measures what `dlbench report claims` still needs" in text
    assert "`torch:compile` (one mode)" in text
    assert "• dlbench run quick •" in text  # an example is there to be copied
    assert of_help.spelled("the suite `claims`") == "the suite `` `claims` ``"
    monkeypatch.setattr(of_help, "_has_colours", lambda: True)
    assert of_help.spelled("the suite `claims`") == "the suite `claims`"


def test_arguments_are_shown_as_they_are_typed() -> None:
    assert "Usage: dlbench compare [OPTIONS] [A] [B]" in shown("compare")
    assert "Usage: dlbench run [OPTIONS] SUITE" in shown("run")
    assert "Usage: dlbench import [OPTIONS] FILE..." in shown("import")
    assert "Usage: dlbench env build [OPTIONS] [NAME]..." in shown("env", "build")


def test_defaults_stand_at_the_end_of_a_text() -> None:
    text = " ".join(shown("explain").replace("│", "").split())
    assert "--top N Operators to show; --json has all (default 12)." in text
    assert "[default" not in text
    assert "[env var" not in text


@pytest.mark.parametrize(("old", "new"), report.RENAMED.items())
def test_an_old_name_of_a_report_is_answered_with_the_new_one(old: str, new: str) -> None:
    done = CliRunner().invoke(app_of("report"), ["report", old])
    assert isinstance(done.exception, UsageError)
    assert f"`dlbench report {new}`" in str(done.exception)
    assert new in catalogue.modules()


def examples_of(words: tuple[str, ...]) -> list[str]:
    """Return the examples in a command's help."""
    match = of_help._EXAMPLES.search(of_help.cleandoc(command_of(words).help or ""))
    return re.findall(r"^- `([^`]+)`$", match[1], re.MULTILINE) if match else []


EXAMPLES = list(dict.fromkeys(example for words in ALL for example in examples_of(words)))


def test_every_command_begins_with_one_to_three_examples_that_fit_a_line() -> None:
    for words in ALL:
        examples = examples_of(words)
        if hasattr(command_of(words), "commands") and words:
            continue  # its commands have some
        assert 1 <= len(examples) <= 3, words
        text = shown(*words)
        for example in examples:
            assert f"• {example} " in text, f"does not fit 80 columns: {example}"


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that has the files of the examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(framework, "_added", {})
    for name in ("train_step.py", "bench.py", "old.py", "new.py"):
        Path(name).write_text(f"# {name}\ndef prepare(cell):\n    return lambda: None\n")
    for folder in ("venv", "old", "new"):
        (tmp_path / folder / "bin").mkdir(parents=True)
        (tmp_path / folder / "bin" / "python").symlink_to(sys.executable)
    Path("what-we-changed.md").write_text("A note.")
    store = lzma.decompress((STORES / "cpu.sqlite.xz").read_bytes())
    for name in ("dlbench", "here", "there", "results", "nightly"):
        Path(f"{name}.sqlite").write_bytes(store)
    return tmp_path


def words_of(example: str) -> list[str]:
    command = re.split(r" > | \| ", example)[0]
    return [
        word.replace("~", str(Path.home()), 1)
        for word in shlex.split(command.removeprefix("dlbench"))
    ]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_command_line_takes_every_example(example: str, surroundings: Path) -> None:
    words = words_of(example)
    assert words[0] in cli.COMMANDS
    names = tuple(words[: 2 if hasattr(command_of((words[0],)), "commands") else 1])
    command_of(names).make_context("dlbench", words[len(names) :])
    if "--step" in words:
        own.name_of(words[words.index("--step") + 1])


class PlannedError(Exception):
    """Raised where a command would begin to measure."""


def _planned(*arguments: Any, **further: Any) -> Any:
    raise PlannedError


MEASURED = [
    example
    for example in EXAMPLES
    if example.split()[1] in ("run", "tune", "gate")
    or example.startswith("dlbench compare --now")
    or example.split()[1] == "explain"
]
INDEX = "--against 0.4.20"
"""What needs the package index: these examples are parsed alone."""


@pytest.mark.parametrize("example", [example for example in MEASURED if INDEX not in example])
def test_every_example_that_measures_can_be_planned(
    example: str, surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dlbench.suites.commands import compare, explain, qualify
    from dlbench.suites.run import first_part, runner

    monkeypatch.setattr(first_part, "first_part", lambda plan, to_build: None)  # builds nothing
    for module in (runner, compare, qualify):
        monkeypatch.setattr(module, "run_plan", _planned)
    monkeypatch.setattr(explain, "_launch", _planned)
    monkeypatch.setattr(qualify.sides, "prepare", lambda *arguments: {})
    words = words_of(example)
    done = CliRunner().invoke(app_of(words[0]), words)
    if words[:2] == ["run", "claims"] and done.exit_code == 0:
        return
    assert isinstance(done.exception, PlannedError), (done.exception, done.output)


SHOWN = [
    example
    for example in EXAMPLES
    if example.split()[1] in ("report", "list", "plan", "history", "export", "new")
    and not re.search(r"--plot|postgresql|--capabilities|mine\.toml|report (page|site)", example)
]


@pytest.mark.parametrize("example", SHOWN)
def test_every_example_that_shows_something_does(example: str, surroundings: Path) -> None:
    words = words_of(example)
    Path("train_step.py").unlink()  # `dlbench new step` writes it
    done = CliRunner().invoke(app_of(words[0]), words)
    if isinstance(done.exception, DlbenchError):
        # The store of the tests has none of these cells.
        assert re.search(
            r"matches|There is no (network|framework|run|fleet)|single night|holds no|No run|"
            r"Give more characters",
            str(done.exception),
        ), done.exception
        return
    assert done.exit_code == 0, (done.exception, done.output)

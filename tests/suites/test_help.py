"""The help of every command: short panels, no Python types, and words that need no colours."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dlbench.reports import catalogue
from dlbench.suites import cli
from dlbench.suites.display import help as of_help

MOST_IN_A_PANEL = 16  # a screen of options


@cache
def app_of(word: str) -> Any:
    return cli.build_app(word)


def commands() -> Iterator[tuple[str, ...]]:
    for word in cli.COMMANDS:
        command = typer.main.get_command(app_of(word)).commands[word]  # type: ignore[attr-defined]  # it is a group
        names = list(getattr(command, "commands", {}))
        if word == "report":
            names += list(catalogue.modules())
        yield (word,)
        yield from (
            (word, name)
            for name in names
            if name not in ("compare", "bisect", "history", "explain")
        )


def shown(*words: str) -> str:
    done = CliRunner().invoke(
        app_of(words[0] if words else ""), [*words, "-h"], env={"COLUMNS": "80"}
    )
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_the_help_of_a_command_has_no_python_types_and_short_panels(words: tuple[str, ...]) -> None:
    text = shown(*words)
    assert not re.search(r"<\w+(\[\w+\])?>", text), text
    assert "[[" not in text
    assert "{" not in text.split("\n\n")[0]
    assert re.search(r"--help +-h +Show this message", text)
    for panel in text.split("╭─ ")[1:]:
        if not panel.startswith(("Commands", "Arguments")):
            options = re.findall(r"^│ \*? *(--[a-z-]+)", panel, re.MULTILINE)
            assert len(options) <= MOST_IN_A_PANEL, (panel.split(" ─")[0], options)


def test_options_are_in_panels() -> None:
    titles = re.findall(r"╭─ (.+?) ─", shown("run"))
    expected = [
        "What to measure",
        "Workers, CPUs and mini-batches",
        "How precisely",
        "Your own code and interpreters",
    ]
    assert titles == ["Arguments", "Options", *expected, "Session", "Output"]
    assert "Which results" in shown("report", "matrix")
    assert "The two sides" in shown("compare")


def test_every_option_with_a_panel_is_in_one_alone() -> None:
    names = [name for names in of_help.PANELS.values() for name in names]
    assert len(names) == len(set(names))


def test_code_words_keep_their_backticks_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(shown("run").split())
    assert "The suite `claims` measures what is still needed" in text
    assert "`1,2,4-8`, `cores`" in text
    assert "• dlbench run quick •" in text  # an example is there to be copied
    assert of_help.spelled("the suite `claims`") == "the suite `` `claims` ``"
    monkeypatch.setattr(of_help, "_has_colours", lambda: True)
    assert of_help.spelled("the suite `claims`") == "the suite `claims`"


def test_arguments_are_shown_as_they_are_typed() -> None:
    assert "Usage: dlbench compare [OPTIONS] [A] [B]" in shown("compare")
    assert "Usage: dlbench run [OPTIONS] SUITE" in shown("run")
    assert "Usage: dlbench import [OPTIONS] FILE..." in shown("import")
    assert "Usage: dlbench env build [OPTIONS] [NAME]..." in shown("env", "build")

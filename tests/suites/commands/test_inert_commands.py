"""What commands print of an adapter, a suite and a machine of somebody else: none of it does
anything to a terminal."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import ALL, CHECKS, HOSTILE, check_seen, check_terminal, write_hostile_adapter
from rich.console import Console

from dlbench.hardware_probe.doctor import Finding, Severity
from dlbench.reports.results.safe_text import visible
from dlbench.suites.commands.probe import show_findings
from dlbench.suites.display import screen
from dlbench.suites.planning import framework, own

Command = Callable[..., tuple[Any, str, str]]


def test_an_adapter_of_somebody_else(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is hostile wherever it may be."""
    monkeypatch.setattr(framework, "_added", {})
    monkeypatch.setattr(own, "_warned", set())
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    adapter = write_hostile_adapter(tmp_path / "adapter")
    for words in (
        ("list",),
        ("list", "--json"),
        ("env", "list"),
        ("env", "list", "--json"),
        ("plan", "mine.toml"),
    ):
        code, out, errors = command(*words, "--adapter", adapter)
        assert (code, errors) == (0, ""), errors
        if "--json" in words:
            CHECKS["json"](out)
        elif "env" in words:
            check_seen(out)
        else:
            check_terminal(out)
    code, out, errors = command(
        "run", "mine.toml", "--adapter", adapter, "--no-ceilings", "--no-wait-for-quiet"
    )
    assert code == 0, errors
    check_seen(errors)
    assert visible(f"mine able{ALL}")[:900] in errors
    assert "[red]x[/red][link=https://example.org]y[/link][/]:boom:" in errors
    check_terminal(out.partition("Next (")[0])
    assert out.count("n/a") >= 1
    for form in ("terminal", "markdown", "latex", "csv", "json"):
        code, out, errors = command(
            "report", "tables", "--store", "dlbench.sqlite", "--format", form
        )
        assert (code, errors) == (0, "")
        CHECKS[form](out.removesuffix("\n"))


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("report", "matrix", "--store"),
        (),
        ("plan", "quick", "--python"),
        ("import",),
        ("explain",),
    ],
)
def test_a_wrong_word_is_quoted_and_does_nothing(command: Command, words: tuple[str, ...]) -> None:
    for text in (ALL, f"a{ALL}=b", HOSTILE[0], "half\udcff"):
        code, out, errors = command(*words, text)
        assert code != 0
        check_seen(out + errors)
        assert len(errors.splitlines()) == 1, errors


def test_hostile_findings_of_the_doctor_are_inert(capsys: pytest.CaptureFixture[str]) -> None:
    show_findings(
        tuple(Finding("others", "Others", severity, ALL, ALL, ALL, ALL) for severity in Severity)
    )
    check_seen(capsys.readouterr().out)


def test_the_line_of_a_run_on_a_terminal() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=60, highlight=False)
    with screen.StatusLine(console) as status:
        for text in HOSTILE:
            before = len(stream.getvalue())
            status.draw(text, at_once=True)
            status.print(text)
            written = stream.getvalue()[before:]
            # The library's own sequences move the cursor and clear a line: none of the text's is
            # among them.
            assert not any(
                sequence in written
                for sequence in ("\x1b[2J", "\x1b[31m", "\x1b]", "\x9b", "\x07", "\u202e")
            )
            assert written.count("\n") == 1
            assert visible(text)[:20] in written

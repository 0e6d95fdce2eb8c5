"""Progress in a notebook: one output, with a last line that is redrawn and then disappears."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from dlbench.suites.display import screen
from dlbench.suites.display.screen import StatusLine, err, progress_shown, say


class ZMQInteractiveShell:
    """Stands for the shell of a notebook's kernel."""


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The outputs of a made-up notebook: the texts of each, as they were redrawn."""
    texts: list[list[str]] = []

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> SimpleNamespace:
        texts.append([bundle["text/plain"]])
        return SimpleNamespace(update=lambda bundle, raw: texts[-1].append(bundle["text/plain"]))

    package, of_display = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    of_display.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", of_display)
    # as the kernel of a notebook sets it; no escape sequence may come of it
    monkeypatch.setenv("FORCE_COLOR", "1")
    return texts


def test_progress_is_one_output_that_grows(outputs, capsys):
    with progress_shown(True):
        say("begins")
        with StatusLine(err) as status:
            status.draw("timed, 3 s left", at_once=True)
            status.print("pair 1")
        say("ends")
    (texts,) = outputs
    assert texts == [
        "begins",
        "begins\ntimed, 3 s left",
        "begins\npair 1\ntimed, 3 s left",
        "begins\npair 1",
        "begins\npair 1\nends",
    ]
    assert capsys.readouterr().err == ""
    say("later")
    assert capsys.readouterr().err == "later\n"


def test_a_long_run_shows_its_last_lines(outputs):
    with progress_shown(True):
        for number in range(100):
            say(f"pair {number}")
    lines = outputs[0][-1].splitlines()
    assert lines[0] == "... 60 earlier lines"
    assert lines[1:] == [f"pair {number}" for number in range(60, 100)]


def test_progress_can_be_turned_off(outputs, capsys):
    with progress_shown(False):
        say("begins")
        with StatusLine(err) as status:
            status.draw("timed", at_once=True)
            status.print("pair 1")
    assert outputs == []
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ValueError, match="as it comes"), progress_shown(False):
        raise ValueError("as it comes")
    assert not err.quiet


def test_outside_a_notebook_progress_is_printed(capsys):
    with progress_shown(True):
        say("begins")
    assert capsys.readouterr().err == "begins\n"


def test_hints_name_the_command_that_does_the_same(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/lib/ipykernel_launcher.py", "-f", "kernel.json"])
    with screen.equivalent_to(["gate", "quick", "--step", "my step.py", "--resume"]):
        assert screen.resume_command() == "dlbench gate quick --step 'my step.py' --resume"
    assert screen.command_words() == ["-f", "kernel.json"]

"""Output shared by the commands: lines on stderr, a status line, tables and JSON on stdout."""

import contextlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.errors import LiveError
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dlbench.reports.results.safe_text import FIELD, one_line, table_field, visible

from .notebook import NotebookOutput, is_notebook


def program() -> str:
    """Return how this command was called, for hints that can be typed as they stand."""
    called = Path(sys.argv[0])
    if called.name != "dlbench" or shutil.which("dlbench") == str(called):
        return "dlbench"
    if called.is_absolute() and called.is_relative_to(Path.cwd()):
        return os.path.relpath(called)
    return str(called)


def as_called(command: str) -> str:
    """Return a command of dlbench as it can be typed in this shell."""
    return f"{shlex.quote(program())}{command.removeprefix('dlbench')}"


_EQUIVALENT: ContextVar[tuple[str, ...] | None] = ContextVar("equivalent command", default=None)


@contextlib.contextmanager
def equivalent_to(words: Sequence[str]) -> Iterator[None]:
    """Let hints name the command of these words: a call from Python has no command line."""
    token = _EQUIVALENT.set(tuple(words))
    try:
        yield
    finally:
        _EQUIVALENT.reset(token)


def command_words() -> list[str]:
    """Return the words after `dlbench` of this command, or of that for a call from Python."""
    words = _EQUIVALENT.get()
    return sys.argv[1:] if words is None else list(words)


def resume_command() -> str:
    """Return the command that resumes this one if it ends early, ready to type.

    It is the same with --resume, without the password of a store's URL.
    """
    from dlbench.reports.results.storage import servers

    words = (servers.without_password(word) for word in command_words() if word != "--resume")
    return shlex.join([program(), *words, "--resume"])


# A redraw costs about 2 ms of a core that may be measuring.
_REDRAW_SECONDS = 1.0

out = Console(highlight=False)
# In a notebook rich would make an output of each line; see `progress_shown`.
err = Console(stderr=True, highlight=False, force_jupyter=False)


@contextlib.contextmanager
def progress_shown(shown: bool) -> Iterator[None]:
    """Show the progress of a call from Python on stderr, in an output of its own in a notebook.

    Without ``shown`` nothing is printed.
    """
    was_quiet = err.quiet
    err.quiet = was_quiet or not shown
    output: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if shown and is_notebook():
        output = contextlib.redirect_stderr(NotebookOutput())
    try:
        with output:
            yield
    finally:
        err.quiet = was_quiet


def show(line: str = "", whole: bool = False) -> None:
    """Print a line of a result to stdout, folded to the terminal's width unless ``whole``."""
    from dlbench.reports.formats.terminal import wrapped

    text = visible(line)
    lines = [text] if whole else wrapped(text, out.width)
    for part in lines or [""]:
        out.print(Text(part), soft_wrap=True)


def say(line: str) -> None:
    """Print a progress line to stderr."""
    err.print(Text(visible(line)), soft_wrap=True)


def complain(error: object) -> None:
    """Print an error to stderr, without rich."""
    print(f"dlbench: {visible(str(error)).strip()}", file=sys.stderr)


def print_json(content: object) -> None:
    """Print JSON to stdout."""
    from dlbench.reports.formats.json import json_text

    print(json_text(content, indent=1), end="")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout, folded to the terminal's width."""
    shown = Table(box=None, pad_edge=False)
    for name in columns:
        shown.add_column(Text(name), overflow="fold")
    for row in rows:
        shown.add_row(*(Text(table_field(text)) for text in row))
    # A title of the table's own would be no wider than the table.
    out.print(Text(one_line(title, FIELD), style="table.title"))
    out.print(shown)


class StatusLine:
    """A context manager for a status line that disappears at the end.

    Nothing is drawn outside the context, or if the output is neither a terminal nor a notebook.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._drawn_at = 0.0
        self._live: Live | None = None
        self._notebook: NotebookOutput | None = None
        if isinstance(console.file, NotebookOutput):
            self._notebook = console.file
        elif console.is_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live:
            try:
                self._live.start()
            except LiveError:  # another line is being drawn
                self._live = None
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()
        if self._notebook:
            self._notebook.draw("")

    def draw(self, line: str, at_once: bool = False) -> None:
        """Redraw the line, at most once a second unless ``at_once``.

        A narrow terminal cuts off its end.
        """
        now = time.monotonic()
        if not at_once and now - self._drawn_at < _REDRAW_SECONDS:
            return
        if self._live:
            self._live.update(Text(visible(line), overflow="ellipsis", no_wrap=True), refresh=True)
            self._drawn_at = now
        elif self._notebook:
            self._notebook.draw(visible(line))
            self._drawn_at = now

    def print(self, line: str) -> None:
        """Print a line that stays."""
        self.console.print(Text(visible(line)), soft_wrap=True)

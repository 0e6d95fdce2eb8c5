"""What the commands share for showing things: lines on stderr, plain tables and JSON on stdout."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table


def program() -> str:
    """Return how this command was called, for hints that can be typed as they stand."""
    called = Path(sys.argv[0])
    if called.name != "dlbench" or shutil.which("dlbench") == str(called):
        return "dlbench"
    return os.path.relpath(called) if called.is_absolute() and called.is_relative_to(Path.cwd()) else str(called)


def resume_command() -> str:
    """Return the command that goes on where this one ends early: the same with --resume, as it can be typed."""
    return shlex.join([program(), *(word for word in sys.argv[1:] if word != "--resume"), "--resume"])


_NARROWEST = 66
"""Columns of a table with something that must not be folded, on a narrower terminal too."""

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """Print a line about what is going on, to stderr."""
    err.print(line, soft_wrap=True, markup=False)


def print_json(content: object) -> None:
    """Print JSON to stdout."""
    print(json.dumps(content, indent=1))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Collection[str] = ()) -> None:
    """Print a table to stdout, folded to the terminal's width; what is named in ``whole`` is to be copied: no fold."""
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        shown.add_column(name, overflow="fold", no_wrap=name in whole)
    for row in rows:
        shown.add_row(*row)
    wide = Console(highlight=False, file=out.file, width=_NARROWEST) if whole and out.width < _NARROWEST else out
    wide.print(shown, markup=False)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return "1 cell", "2 cells", "2 launches"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"

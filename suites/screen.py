"""What the commands share for showing things: lines on stderr, plain tables and JSON on stdout."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """Print a line about what is going on, to stderr."""
    err.print(line, soft_wrap=True, markup=False)


def print_json(content: object) -> None:
    """Print JSON to stdout."""
    print(json.dumps(content, indent=1))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout, folded to the terminal's width."""
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        shown.add_column(name, overflow="fold")
    for row in rows:
        shown.add_row(*row)
    out.print(shown, markup=False)

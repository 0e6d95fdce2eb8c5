"""Tables for a terminal: they fit its width, and read as well without colour.

A matrix that is too wide is shown as several tables beneath one another, first one for each
machine, then with its columns dealt out evenly; nothing is cut off.
"""

import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from dlbench.reports.formats import layout
from dlbench.reports.results.safe_text import spelled

WIDTH = 80
_INDENT = "  "
_UNBROKEN = "\u00a0"  # a blank at which no line is broken
_MOST_INDENT = 8


def page_to_terminal(
    page: layout.Page, width: int = WIDTH, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """Return the words before, the tables beneath one another, the words after."""
    page = page.inert("*", encoding)
    parts = [_paragraphs(page.before, width)]
    for table in page.tables:
        parts.append(_table(table, width, colour))
    parts.append(_paragraphs(page.after, width))
    text = "\n".join(part for part in parts if part)
    return spelled(text, encoding)  # the lines of tables


def _stacks(table: layout.Table, width: int) -> list[layout.Table]:
    """Return a table with spans as several that fit the width.

    Each span is one, or several with its columns dealt out evenly.
    """
    stacks: list[tuple[int, ...]] = []
    start = table.keys
    for _, count in table.spans:
        columns = tuple(range(start, start + count))
        start += count
        if stacks and _fits(table, (*stacks[-1], *columns), width):
            stacks[-1] = (*stacks[-1], *columns)
            continue
        pieces = 1
        parts = [columns]
        while pieces < count and not all(_fits(table, part, width) for part in parts):
            pieces += 1
            parts = _dealt_out(columns, pieces)
        stacks += parts
    return [_keep_columns(table, columns) for columns in stacks]


def _dealt_out(columns: tuple[int, ...], pieces: int) -> list[tuple[int, ...]]:
    """Return neighbouring columns in this many parts, as even as can be."""
    parts = []
    first = 0
    for piece in range(1, pieces + 1):
        end = round(len(columns) * piece / pieces)
        parts.append(columns[first:end])
        first = end
    return parts


def _fits(table: layout.Table, columns: tuple[int, ...], width: int) -> bool:
    return _total(_widths(_keep_columns(table, columns))) <= width


def _keep_columns(table: layout.Table, columns: tuple[int, ...]) -> layout.Table:
    """Return the leading columns and these, without the rows and headings that become empty."""
    rows: list[tuple[layout.Entry, ...]] = []
    for row in table.rows:
        if len(row) > 1 and all(row[place].plain == layout.MISSING for place in columns):
            continue
        if len(row) == 1 and rows and len(rows[-1]) == 1:
            rows.pop()
        rows.append(row)
    if rows and len(rows[-1]) == 1:
        rows.pop()
    return _part(table._replace(rows=tuple(rows), spans=()), (*range(table.keys), *columns))


def _widths(table: layout.Table) -> list[int]:
    """Return the width that each column needs for its longest field."""
    needed = [cell_len(head) for head in table.head]
    longest_heading = 0
    has_headings = False
    for row in table.rows:
        if len(row) == 1:
            has_headings = True
            longest_heading = max(longest_heading, cell_len(row[0].plain))
            continue
        for place in range(len(needed)):
            needed[place] = max(needed[place], cell_len(row[place].plain))
    # A heading stands in the first column, which must not fold it. Other rows are indented then.
    if has_headings:
        needed[0] = max(needed[0] + len(_INDENT), longest_heading)
    return needed


def _total(widths: Sequence[int], gap: int = 2) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _table(table: layout.Table, width: int, colour: bool) -> str:
    notes = _paragraphs(table.notes, width)
    if table.spans and _total(_widths(table)) > width:
        parts = []
        for stack in _stacks(table, width):
            parts.append(_table(stack._replace(notes=()), width, colour))
        return "\n".join(parts) + notes
    text = ""
    if table.title:
        text += _text([Text(table.title, style="bold")], width, colour)
    if table.rows:
        text += _body(table, width, colour)
    return text + notes


def _body(table: layout.Table, width: int, colour: bool) -> str:
    widths = _widths(table)
    gap = 2 if _total(widths) <= width else 1
    if _total(widths, gap) > width and len(table.head) > table.keys + 1 and not table.words:
        # Numbers are not to be folded: the right half of the columns follows beneath, behind the
        # first ones again.
        half = max((len(table.head) + 1) // 2, table.keys + 1)
        left = _part(table, range(half))
        right = _part(table, [*range(table.keys), *range(half, len(table.head))])
        return _body(left, width, colour) + _body(right, width, colour)
    grouped = any(len(row) == 1 for row in table.rows)
    shown = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
        show_edge=False,
        header_style="bold",
        show_header=any(table.head),
    )
    numbered = not grouped and any(row[0].text.isdecimal() for row in table.rows)
    fits = _total(widths, gap) <= width
    for place, head in enumerate(table.head):
        is_left = table.words or (place == 0 and not numbered)
        side: Literal["left", "right"] = "left" if is_left else "right"
        least = widths[place] if fits else None
        shown.add_column(Text(head), justify=side, overflow="fold", min_width=least)
    indent = _INDENT if grouped else ""
    for row in table.rows:
        if len(row) == 1:
            shown.add_row(Text(row[0].text, style="bold"), *[""] * (len(table.head) - 1))
        else:
            shown.add_row(Text(indent + row[0].plain), *map(_styled, row[1:]))
    return _text([shown], width, colour)


def _styled(entry: layout.Entry) -> Text:
    style = ""
    if entry.best:
        style = "bold green"
    elif entry.hole:
        style = "red"
    return Text(entry.plain, style=style)


def _part(table: layout.Table, places: Sequence[int]) -> layout.Table:
    """Return a table with the columns at these places."""
    head = tuple(table.head[place] for place in places)
    rows = []
    for row in table.rows:
        if len(row) > 1:
            row = tuple(row[place] for place in places)
        rows.append(row)
    return table._replace(head=head, rows=tuple(rows))


def _text(renderables: Iterable[RenderableType], width: int, colour: bool) -> str:
    buffer = io.StringIO()
    system: Literal["standard"] | None = "standard" if colour else None
    console = Console(
        file=buffer,
        width=width,
        force_terminal=colour,
        no_color=not colour,
        color_system=system,
        emoji=False,
        force_jupyter=False,  # which would show the text in the notebook instead
    )
    for renderable in renderables:
        console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _paragraphs(lines: Iterable[str], width: int) -> str:
    """Return the lines, wrapped with a hanging indent."""
    text = ""
    for line in lines:
        text += "\n".join(wrapped(line, width)) + "\n"
    return text


def wrapped(line: str, width: int) -> list[str]:
    """Return a line in lines that fit, all but the first indented by two blanks more.

    A command between backticks stays whole, so that it can be copied, unless the line has
    characters that are wider than one column, or have no width. If a command is longer than a line,
    other long words are not broken either.
    """
    text = line.strip()
    start = " " * min(len(line) - len(line.lstrip()), _MOST_INDENT)
    if cell_len(text) == len(text):
        room = width - len(start + _INDENT)
        commands_fit = True
        for command in re.findall("`[^`]*`", text):
            if not command.startswith("`dlbench "):
                continue
            text = text.replace(command, command.replace(" ", _UNBROKEN))
            commands_fit = commands_fit and len(command) <= room
        lines = textwrap.wrap(
            text,
            width,
            initial_indent=start,
            subsequent_indent=start + _INDENT,
            break_on_hyphens=False,
            break_long_words=commands_fit,
        )
        return [part.replace(_UNBROKEN, " ") for part in lines]
    # With wide characters, and those without a width, textwrap counts other columns than a terminal
    # shows.
    parts = Text(text).wrap(Console(width=width), width - len(start) - len(_INDENT))
    lines = []
    for number, part in enumerate(parts):
        indent = start if number == 0 else start + _INDENT
        lines.append(indent + part.plain.rstrip())
    return lines

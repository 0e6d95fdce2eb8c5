"""Tables for a terminal: they fit its width, and read as well without colour.

A matrix that is too wide is shown as several tables beneath one another, first one for each
machine, then with its columns dealt out evenly; nothing is cut off.
"""

import io
import itertools
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
    tables = (_table(table, width, colour) for table in page.tables)
    text = "\n".join(
        filter(None, [_paragraphs(page.before, width), *tables, _paragraphs(page.after, width)])
    )
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
            ends = [round(count * piece / pieces) for piece in range(pieces + 1)]
            parts = [columns[first:end] for first, end in itertools.pairwise(ends)]
        stacks += parts
    return [_keep_columns(table, columns) for columns in stacks]


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
    rows = [row for row in table.rows if len(row) > 1]
    indent = len(_INDENT) if len(rows) < len(table.rows) else 0
    needed = []
    for place, head in enumerate(table.head):
        fields = [head, *(row[place].plain for row in rows)]
        needed.append(max(map(cell_len, fields)))
    # A heading stands in the first column, which must not fold it.
    headings = [cell_len(row[0].plain) for row in table.rows if len(row) == 1]
    needed[0] = max([needed[0] + indent, *headings])
    return needed


def _total(widths: Sequence[int], gap: int = 2) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _table(table: layout.Table, width: int, colour: bool) -> str:
    if table.spans and _total(_widths(table)) > width:
        stacks = [stack._replace(notes=()) for stack in _stacks(table, width)]
        text = "\n".join(_table(stack, width, colour) for stack in stacks)
        return text + _paragraphs(table.notes, width)
    head = _text([Text(table.title, style="bold")], width, colour) if table.title else ""
    body = _body(table, width, colour) if table.rows else ""
    return head + body + _paragraphs(table.notes, width)


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
        least = widths[place] if fits else None
        shown.add_column(
            Text(head), justify="left" if is_left else "right", overflow="fold", min_width=least
        )
    for row in table.rows:
        if len(row) == 1:
            shown.add_row(Text(row[0].text, style="bold"), *[""] * (len(table.head) - 1))
        else:
            name = Text((_INDENT if grouped else "") + row[0].plain)
            shown.add_row(name, *map(_styled, row[1:]))
    return _text([shown], width, colour)


def _styled(entry: layout.Entry) -> Text:
    if entry.best:
        return Text(entry.plain, style="bold green")
    return Text(entry.plain, style="red" if entry.hole else "")


def _part(table: layout.Table, places: Sequence[int]) -> layout.Table:
    """Return a table with the columns at these places."""
    head = tuple(table.head[place] for place in places)
    rows = []
    for row in table.rows:
        is_heading = len(row) == 1
        rows.append(row if is_heading else tuple(row[place] for place in places))
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
    return "".join(f"{part}\n" for line in lines for part in wrapped(line, width) or [""])


def wrapped(line: str, width: int) -> list[str]:
    """Return a line in lines that fit, all but the first indented by two blanks more.

    A command between backticks stays whole, so that it can be copied, unless the line has
    characters that are wider than one column, or have no width. If a command is longer than a line,
    other long words are not broken either.
    """
    text = line.strip()
    start = " " * min(len(line) - len(line.lstrip()), _MOST_INDENT)
    if cell_len(text) == len(text):
        commands = [part for part in re.findall("`[^`]*`", text) if part.startswith("`dlbench ")]
        for command in commands:
            text = text.replace(command, command.replace(" ", _UNBROKEN))
        room = width - len(start + _INDENT)
        lines = textwrap.wrap(
            text,
            width,
            initial_indent=start,
            subsequent_indent=start + _INDENT,
            break_on_hyphens=False,
            break_long_words=all(len(command) <= room for command in commands),
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

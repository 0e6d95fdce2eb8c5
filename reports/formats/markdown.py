"""Tables in Markdown (GitHub's pipe tables); the best of a column is bold."""

import re
from collections.abc import Iterable

from dlbench.reports.formats import layout


def page_to_markdown(page: layout.Page) -> str:
    """Return the words before as paragraphs, the tables, and the words after as a list."""
    before = "\n".join(f"{escaped(line)}\n" for line in page.before)
    return "\n".join(filter(None, [before, *map(_table, page.tables), _list(page.after)]))


def _table(table: layout.Table) -> str:
    columns = len(table.head)
    others = ":--" if table.words else "--:"
    lines = [pipe_row(escaped(head) for head in table.head), pipe_row([":--", *[others] * (columns - 1)])]
    for row in table.rows:
        if len(row) == 1:
            lines.append(pipe_row([f"**{escaped(row[0].text)}**", *[""] * (columns - 1)]))
        else:
            lines.append(pipe_row(_entry(entry) for entry in row))
    notes = "\n" + _list(table.notes) if table.notes else ""
    middle = "\n".join(lines) + "\n" if table.rows else ""
    return f"## {escaped(table.title)}\n\n" + middle + notes


def pipe_row(fields: Iterable[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(fields) + " |"


def _entry(entry: layout.Entry) -> str:
    text = escaped(entry.text + entry.interval + entry.marks)
    return f"**{text}**" if entry.best else text


def _list(lines: Iterable[str]) -> str:
    # A line that begins with the mark of what was not measured would open a list within the list.
    said = ((line, escaped(line).replace(layout.BEST, "bold:")) for line in lines if line.strip())
    return "".join(f"{'  ' if line[0] == ' ' else ''}- " + re.sub(r"^-", r"\\-", text) + "\n" for line, text in said)


def escaped(text: str) -> str:
    """Return text that Markdown takes for nothing else."""
    text = " ".join(text.split())
    for character in "\\`*_{}[]<>|~^#":
        text = text.replace(character, "\\" + character)
    return text

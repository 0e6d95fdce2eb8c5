"""Tables in Markdown (GitHub's pipe tables); the best of a column is bold."""

import re
from collections.abc import Iterable

from dlbench.reports.formats import layout
from dlbench.reports.formats.inert import one_line


def page_to_markdown(page: layout.Page) -> str:
    """Return the words before as paragraphs, the tables, and the words after as a list."""
    page = page.inert(best="bold:")
    before = "\n".join(f"{paragraph(line)}\n" for line in page.before)
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
    return "".join(f"{'  ' if line[0] == ' ' else ''}- {paragraph(line)}\n" for line in lines if line.strip())


# What makes a line one of a list, or the one before it a heading; and what makes a link anywhere.
_AT_THE_START = re.compile(r"^(?:[-=]|\+(?=\s|$)|(\d{1,9})(?=[.)](?:\s|$)))")
_LINK = re.compile(r"(?<=\bwww)\.|:(?=//)", re.IGNORECASE)


def paragraph(text: str) -> str:
    """Return text, for the beginning of a line, that Markdown takes for nothing else."""
    return _AT_THE_START.sub(lambda found: f"{found[0]}\\" if found[1] else f"\\{found[0]}", escaped(text))


def escaped(text: str) -> str:
    """Return text, for a field or behind other text, that Markdown takes for nothing else."""
    return _LINK.sub(r"\\\g<0>", re.sub(r"[\\`*_{}\[\]<>|~^#&$]", r"\\\g<0>", one_line(text)))

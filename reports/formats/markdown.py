"""Tables in Markdown (GitHub's pipe tables); the best of a column is bold."""

import re
from collections.abc import Iterable, Sequence

from dlbench.reports.formats import layout
from dlbench.reports.matrix.analysis import Matrix
from dlbench.reports.threads import words as threads
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.curve import Curve


def matrix_to_markdown(matrix: Matrix, quantity: str = "seconds") -> str:
    """Return the matrix as one table, with its machines above and its notes beneath."""
    if not matrix.cells:
        return f"## {layout.quantity_named(quantity).title}\n\nNothing was measured yet.\n"
    table = layout.matrix_table(matrix, matrix.columns, quantity)
    machines = _list(layout.machine_lines(matrix))
    return _table(table._replace(notes=tuple(layout.matrix_notes(matrix, quantity, best="bold:"))), before=machines)


def threads_to_markdown(curves: Sequence[Curve], notes: Sequence[str] = ()) -> str:
    """Return the oversubscription analysis: findings, then a table for each curve."""
    if not curves:
        return f"## Threads\n\n{threads.NOTHING}\n" + ("\n" + _list(notes) if notes else "")
    said = findings(curves)
    lines = [f"{'  ' if line.startswith(' ') else ''}- {escaped(line.strip())}\n" for line in said]
    head = ["## Past the physical cores\n\n" + "".join(lines)] if said else []
    tables = [_table(table) for table in threads.threads_tables(curves)]
    machines = "## Machines\n\n" + _list(threads.capacity_lines(curves))
    return "\n".join([machines, *head, *tables, _list([*threads.threads_legend(curves, best="bold:"), *notes])])


def tables_to_markdown(tables: Iterable[layout.Table]) -> str:
    """Return these tables beneath one another."""
    return "\n".join(_table(table) for table in tables)


def page_to_markdown(page: layout.Page) -> str:
    """Return the words before as paragraphs, the tables, and the words after as a list."""
    before = "\n".join(f"{escaped(line)}\n" for line in page.before)
    return "\n".join(filter(None, [before, *map(_table, page.tables), _list(page.after)]))


def _table(table: layout.Table, before: str = "") -> str:
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
    return f"## {escaped(table.title)}\n\n" + (before + "\n" if before else "") + middle + notes


def pipe_row(fields: Iterable[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(fields) + " |"


def _entry(entry: layout.Entry) -> str:
    text = escaped(entry.text + entry.interval + entry.marks)
    return f"**{text}**" if entry.best else text


def _list(lines: Iterable[str]) -> str:
    # A line that begins with the mark of what was not measured would open a list within the list.
    return "".join("- " + re.sub(r"^-", r"\\-", escaped(line)) + "\n" for line in lines)


def escaped(text: str) -> str:
    """Return text that Markdown takes for nothing else."""
    text = " ".join(text.split())
    for character in "\\`*_{}[]<>|~^#":
        text = text.replace(character, "\\" + character)
    return text

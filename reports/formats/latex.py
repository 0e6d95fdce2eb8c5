r"""Tables in LaTeX, with no package but the standard classes (``\hline``); the best of a column is bold."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from dlbench.reports.formats import layout
from dlbench.reports.matrix.analysis import Matrix
from dlbench.reports.threads import words as threads
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.curve import Curve

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    "±": r"\ensuremath{\pm}",
    '"': r"\textquotedbl{}",
}


def matrix_to_latex(matrix: Matrix, quantity: str = "seconds") -> str:
    """Return the matrix as a ``tabular``, its machines as column groups, its notes as a list beneath."""
    if not matrix.cells:
        return "Nothing was measured yet.\n"
    table = layout.matrix_table(matrix, matrix.columns, quantity)
    groups = [(machine, len(list(columns))) for machine, columns in groupby(c.machine for c in matrix.columns)]
    over = [""] + [rf"\multicolumn{{{n}}}{{c}}{{{_escaped(matrix.hosts[m].name)}}}" for m, n in groups]
    return _table(
        table._replace(notes=tuple(layout.matrix_notes(matrix, quantity, best="bold:"))),
        " & ".join(over) + r" \\" + "\n",
    )


def threads_to_latex(curves: Sequence[Curve], notes: Sequence[str] = ()) -> str:
    """Return the oversubscription analysis: a ``tabular`` for each curve, then the findings."""
    if not curves:
        return f"{threads.NOTHING}\n{_notes(notes)}"
    parts = [_table(table) for table in threads.threads_tables(curves)]
    closing = [*threads.threads_legend(curves, best="bold:"), *notes, *(line.strip() for line in findings(curves))]
    return "\n".join([_notes(threads.capacity_lines(curves)), *parts, _notes(closing)])


def tables_to_latex(tables: Iterable[layout.Table]) -> str:
    """Return a ``tabular`` for each table."""
    return "\n".join(_table(table) for table in tables)


def page_to_latex(page: layout.Page) -> str:
    """Return the words before, a ``tabular`` for each table, and the words after."""
    # A title is a comment in a table of its own; here it tells the tables apart.
    tables = (_notes([table.title]) + _table(table) for table in page.tables)
    return "\n".join(filter(None, [_notes(page.before), *tables, _notes(page.after)]))


def _table(table: layout.Table, over: str = "") -> str:
    columns = len(table.head)
    kinds = "l" * columns if table.words else "l" + "r" * (columns - 1)
    body = "".join(_row(row, columns) for row in table.rows)
    head = " & ".join(_escaped(head) for head in table.head) + r" \\" + "\n\\hline\n" if any(table.head) else ""
    return (
        f"% {' '.join(table.title.split())}\n\\begin{{tabular}}{{{kinds}}}\n\\hline\n"
        f"{over}{head}{body}\\hline\n\\end{{tabular}}\n{_notes(table.notes)}"
    )


def _row(row: tuple[layout.Entry, ...], columns: int) -> str:
    if len(row) == 1:
        return rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{_escaped(row[0].text)}}}}} \\" + "\n"
    fields = []
    for entry in row:
        text = _escaped(entry.text + entry.interval + entry.marks)
        fields.append(rf"\textbf{{{text}}}" if entry.best else text)
    return " & ".join(fields) + r" \\" + "\n"


def _notes(lines: Sequence[str]) -> str:
    return "".join(rf"\par\noindent {_escaped(line)}" + "\n" for line in lines)


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))

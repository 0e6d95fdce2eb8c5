r"""Tables in LaTeX, with no package but the standard classes (``\hline``); the best of a column is bold."""

import re
from collections.abc import Sequence

from dlbench.reports.formats import layout
from dlbench.reports.formats.inert import one_line, written_out

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
    # The usual encoding of fonts has no \textquotedbl.
    '"': r"\char34{}",
    # At the beginning of a row these would belong to the end of the row before.
    "[": "{[}",
    "*": "{*}",
    **{bar: rf"\rule{{0.4em}}{{{height / 5:.1f}ex}}" for height, bar in enumerate("▁▂▃▄▅▆▇█", start=1)},
}
_UNSET = re.compile("[^\x20-\x7e\xa1-\xff\u2013-\u2014\u2018-\u2019\u201c-\u201d…→]|[«»ÐÞðþ]")
"""What LaTeX stops at, unless a package or another encoding of fonts is loaded."""


def page_to_latex(page: layout.Page) -> str:
    """Return the words before, a ``tabular`` for each table, and the words after."""
    page = page.inert(best="bold:")
    # A title is a comment in a table of its own; here it tells the tables apart.
    tables = (_notes([table.title]) + (_table(table) if table.rows else _notes(table.notes)) for table in page.tables)
    return "\n".join(filter(None, [_notes(page.before), *tables, _notes(page.after)]))


def _table(table: layout.Table) -> str:
    columns = len(table.head)
    names = ["", *(rf"\multicolumn{{{count}}}{{c}}{{{_escaped(name)}}}" for name, count in table.spans)]
    over = " & ".join(names) + r" \\" + "\n" if table.spans else ""
    kinds = "l" * columns if table.words else "l" + "r" * (columns - 1)
    body = "".join(_row(row, columns) for row in table.rows)
    head = " & ".join(_escaped(head) for head in table.head) + r" \\" + "\n\\hline\n" if any(table.head) else ""
    return (
        f"% {table.title}\n\\begin{{tabular}}{{{kinds}}}\n\\hline\n"
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
    return "".join(rf"\par\noindent {_escaped(line)}" + "\n" for line in lines if line.strip())


def _escaped(text: str) -> str:
    return "".join(map(_escape, one_line(text)))


def _escape(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    return "".join(map(_escape, written_out(character))) if _UNSET.match(character) else character

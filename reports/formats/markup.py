"""Reports in Markdown (pipe tables), LaTeX (no package but the standard classes) and HTML, all
texts escaped.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.results.safe_text import one_line, visible, written_out

# Markdown: the best of a column is bold.


def page_to_markdown(page: Page) -> str:
    """Return the words before as paragraphs, the tables, and the words after as a list."""
    page = page.inert(best="bold:")
    before = "\n".join(f"{paragraph(line)}\n" for line in page.before)
    return "\n".join(
        filter(None, [before, *map(_markdown_table, page.tables), _markdown_list(page.after)])
    )


def _markdown_table(table: Table) -> str:
    columns = len(table.head)
    others = ":--" if table.words else "--:"
    lines = [
        pipe_row(escaped(head) for head in table.head),
        pipe_row([":--", *[others] * (columns - 1)]),
    ]
    for row in table.rows:
        if len(row) == 1:
            lines.append(pipe_row([f"**{escaped(row[0].text)}**", *[""] * (columns - 1)]))
        else:
            lines.append(pipe_row(_markdown_entry(entry) for entry in row))
    notes = "\n" + _markdown_list(table.notes) if table.notes else ""
    middle = "\n".join(lines) + "\n" if table.rows else ""
    return f"## {escaped(table.title)}\n\n" + middle + notes


def pipe_row(fields: Iterable[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(fields) + " |"


def _markdown_entry(entry: Entry) -> str:
    text = escaped(entry.text + entry.interval + entry.marks)
    return f"**{text}**" if entry.best else text


def _markdown_list(lines: Iterable[str]) -> str:
    return "".join(
        f"{'  ' if line[0] == ' ' else ''}- {paragraph(line)}\n" for line in lines if line.strip()
    )


# What makes a line one of a list, the one before it a heading, or a command of GitLab's; what makes
# a link anywhere.
_AT_THE_START = re.compile(r"^(?:[-=/]|\+(?=\s|$)|(\d{1,9})(?=[.)](?:\s|$)))")
_LINK = re.compile(r"(?<=\bwww)\.|:(?=//)", re.IGNORECASE)
# GitHub and GitLab look for people to notify and for numbers of issues after Markdown: no backslash
# stops them, a space without width does.
_MENTION = re.compile(r"@(?=\w)|[#!](?=\d)")


def paragraph(text: str) -> str:
    """Return text, for the beginning of a line, that Markdown takes for nothing else."""
    return _AT_THE_START.sub(
        lambda found: f"{found[0]}\\" if found[1] else f"\\{found[0]}", escaped(text)
    )


def escaped(text: str) -> str:
    """Return text, for a field or behind other text, that Markdown takes for nothing else."""
    plain = re.sub(r"[\\`*_{}\[\]<>|~^#&$]", r"\\\g<0>", one_line(text))
    return _MENTION.sub(r"\g<0>&#8203;", _LINK.sub(r"\\\g<0>", plain))


# LaTeX: the best of a column is bold.

_SPECIAL = str.maketrans(
    {
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
    }
)
_UNSET = re.compile("[^\x20-\x7e\xa1-\xff\u2013-\u2014\u2018-\u2019\u201c-\u201d…→]|[«»ÐÞðþ]")
"""What LaTeX stops at, unless a package or another encoding of fonts is loaded."""


def page_to_latex(page: Page) -> str:
    """Return the words before, a ``tabular`` for each table, and the words after."""
    page = page.inert(best="bold:")
    # A title is a comment in a table of its own; here it tells the tables apart.
    tables = (
        _latex_lines([table.title])
        + (_latex_table(table) if table.rows else _latex_lines(table.notes))
        for table in page.tables
    )
    return "\n".join(filter(None, [_latex_lines(page.before), *tables, _latex_lines(page.after)]))


def _latex_table(table: Table) -> str:
    columns = len(table.head)
    names = [
        "",
        *(rf"\multicolumn{{{count}}}{{c}}{{{_latex(name)}}}" for name, count in table.spans),
    ]
    over = " & ".join(names) + r" \\" + "\n" if table.spans else ""
    kinds = "l" * columns if table.words else "l" + "r" * (columns - 1)
    body = "".join(_latex_row(row, columns) for row in table.rows)
    head = (
        " & ".join(_latex(head) for head in table.head) + r" \\" + "\n\\hline\n"
        if any(table.head)
        else ""
    )
    return (
        f"% {table.title}\n\\begin{{tabular}}{{{kinds}}}\n\\hline\n"
        f"{over}{head}{body}\\hline\n\\end{{tabular}}\n{_latex_lines(table.notes)}"
    )


def _latex_row(row: tuple[Entry, ...], columns: int) -> str:
    if len(row) == 1:
        return rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{_latex(row[0].text)}}}}} \\" + "\n"
    fields = []
    for entry in row:
        text = _latex(entry.text + entry.interval + entry.marks)
        fields.append(rf"\textbf{{{text}}}" if entry.best else text)
    return " & ".join(fields) + r" \\" + "\n"


def _latex_lines(lines: Sequence[str]) -> str:
    return "".join(rf"\par\noindent {_latex(line)}" + "\n" for line in lines if line.strip())


def _latex(text: str) -> str:
    shown = _UNSET.sub(lambda found: written_out(found[0]), one_line(text))
    return shown.translate(_SPECIAL)


# HTML: one template each of `page/assets`.


def page_to_html(page: Page, level: int = 3) -> Markup:
    """Return a report's page as HTML; its tables have headings of this level."""
    return rendered("tables.html.j2", page=page.inert("★"), level=level)


@cache
def _environment(show: Callable[[str], str]) -> Environment:
    # Markup is made of inert texts already.
    return Environment(
        loader=PackageLoader("dlbench.reports", "page/assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            show(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )


def rendered(template: str, show: Callable[[str], str] = visible, **given: Any) -> Markup:
    """Return a template of ours with these values, in which every text is inert."""
    return Markup(_environment(show).get_template(template).render(**given) + "\n")

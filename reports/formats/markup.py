"""Reports in Markdown (pipe tables), LaTeX (standard classes alone) and HTML, all texts escaped."""

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
    parts = ["\n".join(f"{paragraph(line)}\n" for line in page.before)]
    for table in page.tables:
        parts.append(_markdown_table(table))
    parts.append(_markdown_list(page.after))
    return "\n".join(part for part in parts if part)


def _markdown_table(table: Table) -> str:
    columns = len(table.head)
    others = ":--" if table.words else "--:"
    head = pipe_row(escaped(head) for head in table.head)
    lines = [head, pipe_row([":--", *[others] * (columns - 1)])]
    for row in table.rows:
        if len(row) == 1:
            lines.append(pipe_row([f"**{escaped(row[0].text)}**", *[""] * (columns - 1)]))
        else:
            lines.append(pipe_row(_markdown_entry(entry) for entry in row))
    text = f"## {escaped(table.title)}\n\n"
    if table.rows:
        text += "\n".join(lines) + "\n"
    if table.notes:
        text += "\n" + _markdown_list(table.notes)
    return text


def pipe_row(fields: Iterable[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(fields) + " |"


def _markdown_entry(entry: Entry) -> str:
    text = escaped(entry.text + entry.interval + entry.marks)
    if entry.best:
        return f"**{text}**"
    return text


def _markdown_list(lines: Iterable[str]) -> str:
    items = []
    for line in lines:
        if line.strip():
            indent = "  " if line.startswith(" ") else ""
            items.append(f"{indent}- {paragraph(line)}\n")
    return "".join(items)


# At its start these make a line an item of a list or a command of GitLab's, or the line before it a
# heading.
_MARKUP_AT_START = re.compile(r"^(?:[-=/]|\+(?=\s|$)|(\d{1,9})(?=[.)](?:\s|$)))")
# These make a link anywhere.
_LINK = re.compile(r"(?<=\bwww)\.|:(?=//)", re.IGNORECASE)
# GitHub and GitLab look for people to notify and for numbers of issues after Markdown: no backslash
# stops them, a space without width does.
_MENTION = re.compile(r"@(?=\w)|[#!](?=\d)")


def paragraph(text: str) -> str:
    """Return text, for the beginning of a line, that Markdown takes for nothing else."""
    return _MARKUP_AT_START.sub(_escape_start, escaped(text))


def _escape_start(match: re.Match[str]) -> str:
    """Return the start of a line with a backslash after a number, or before another mark."""
    if match[1]:
        return f"{match[0]}\\"
    return f"\\{match[0]}"


def escaped(text: str) -> str:
    """Return text, for a field or after other text, that Markdown takes for nothing else."""
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
"""Characters at which LaTeX stops, unless a package or another encoding of fonts is loaded."""


def page_to_latex(page: Page) -> str:
    """Return the words before, a ``tabular`` for each table, and the words after."""
    page = page.inert(best="bold:")
    parts = [_latex_lines(page.before)]
    for table in page.tables:
        # In `_latex_table` the title is a comment. This one tells the tables apart.
        title = _latex_lines([table.title])
        content = _latex_table(table) if table.rows else _latex_lines(table.notes)
        parts.append(title + content)
    parts.append(_latex_lines(page.after))
    return "\n".join(filter(None, parts))


def _latex_table(table: Table) -> str:
    columns = len(table.head)
    others = "l" if table.words else "r"
    kinds = "l" + others * (columns - 1)
    text = f"% {table.title}\n\\begin{{tabular}}{{{kinds}}}\n\\hline\n"
    if table.spans:
        names = [""]
        for name, count in table.spans:
            names.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex(name)}}}")
        text += " & ".join(names) + r" \\" + "\n"
    if any(table.head):
        text += " & ".join(map(_latex, table.head)) + r" \\" + "\n\\hline\n"
    for row in table.rows:
        text += _latex_row(row, columns)
    return f"{text}\\hline\n\\end{{tabular}}\n{_latex_lines(table.notes)}"


def _latex_row(row: tuple[Entry, ...], columns: int) -> str:
    if len(row) == 1:
        return rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{_latex(row[0].text)}}}}} \\" + "\n"
    fields = []
    for entry in row:
        text = _latex(entry.text + entry.interval + entry.marks)
        if entry.best:
            text = rf"\textbf{{{text}}}"
        fields.append(text)
    return " & ".join(fields) + r" \\" + "\n"


def _latex_lines(lines: Sequence[str]) -> str:
    return "".join(rf"\par\noindent {_latex(line)}" + "\n" for line in lines if line.strip())


def _latex(text: str) -> str:
    shown = _UNSET.sub(lambda match: written_out(match[0]), one_line(text))
    return shown.translate(_SPECIAL)


# HTML: templates of `page/assets`.


def page_to_html(page: Page, level: int = 3) -> Markup:
    """Return a report's page as HTML; its tables have headings of this level."""
    return rendered("tables.html.j2", page=page.inert("★"), level=level)


@cache
def _environment(show: Callable[[str], str]) -> Environment:
    def finalize(value: Any) -> Any:
        # Markup is made of inert texts already.
        if isinstance(value, str) and not isinstance(value, Markup):
            return show(value)
        return value

    return Environment(
        loader=PackageLoader("dlbench.reports", "page/assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )


def rendered(template: str, show: Callable[[str], str] = visible, **given: Any) -> Markup:
    """Return a template of ours with these values, in which every text is inert."""
    return Markup(_environment(show).get_template(template).render(**given) + "\n")

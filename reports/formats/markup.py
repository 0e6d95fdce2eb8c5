"""Reports in Markdown (pipe tables), LaTeX (no package but the standard classes) and HTML, all texts escaped."""

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from dlbench.reports.formats.inert import one_line, written_out
from dlbench.reports.formats.layout import Entry, Page, Table

# Markdown: the best of a column is bold.


def page_to_markdown(page: Page) -> str:
    """Return the words before as paragraphs, the tables, and the words after as a list."""
    page = page.inert(best="bold:")
    before = "\n".join(f"{paragraph(line)}\n" for line in page.before)
    return "\n".join(filter(None, [before, *map(_markdown_table, page.tables), _markdown_list(page.after)]))


def _markdown_table(table: Table) -> str:
    columns = len(table.head)
    others = ":--" if table.words else "--:"
    lines = [pipe_row(escaped(head) for head in table.head), pipe_row([":--", *[others] * (columns - 1)])]
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


# LaTeX: the best of a column is bold.

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


def page_to_latex(page: Page) -> str:
    """Return the words before, a ``tabular`` for each table, and the words after."""
    page = page.inert(best="bold:")
    # A title is a comment in a table of its own; here it tells the tables apart.
    tables = (
        _latex_lines([table.title]) + (_latex_table(table) if table.rows else _latex_lines(table.notes))
        for table in page.tables
    )
    return "\n".join(filter(None, [_latex_lines(page.before), *tables, _latex_lines(page.after)]))


def _latex_table(table: Table) -> str:
    columns = len(table.head)
    names = ["", *(rf"\multicolumn{{{count}}}{{c}}{{{_latex(name)}}}" for name, count in table.spans)]
    over = " & ".join(names) + r" \\" + "\n" if table.spans else ""
    kinds = "l" * columns if table.words else "l" + "r" * (columns - 1)
    body = "".join(_latex_row(row, columns) for row in table.rows)
    head = " & ".join(_latex(head) for head in table.head) + r" \\" + "\n\\hline\n" if any(table.head) else ""
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
    return "".join(map(_latex_character, one_line(text)))


def _latex_character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    return "".join(map(_latex_character, written_out(character))) if _UNSET.match(character) else character


# HTML.

STAR = "★"


def page_to_html(page: Page, level: int = 3) -> Markup:
    """Return a report's page as HTML; its tables have headings of this level."""
    page = page.inert(STAR)
    parts = [*_html_paragraphs(page.before), *(table_to_html(table, level) for table in page.tables)]
    return Markup("\n").join([*parts, *_html_notes(page.after)])


def table_to_html(table: Table, level: int = 3) -> Markup:
    """Return one table, of inert texts, with its heading above and its notes beneath."""
    parts = [Markup("<h{0}>{1}</h{0}>").format(level, table.title)] if table.title else []
    if table.rows:
        words = Markup(' class="words"') if table.words else Markup("")
        body = Markup("").join(_html_row(row, table) for row in table.rows)
        name = table.title or "table"
        parts.append(
            Markup(
                '<div class="wide" role="group" aria-label="{}" tabindex="0"><table{}>{}<tbody>{}</tbody></table></div>'
            ).format(name, words, _html_head(table), body)
        )
    return Markup("\n").join([*parts, *_html_notes(table.notes)])


def _html_head(table: Table) -> Markup:
    if not any(table.head):
        return Markup("")
    spans = Markup("")
    if table.spans:
        empty = len(table.head) - sum(count for _, count in table.spans)
        heads = [Markup('<td colspan="{}"></td>').format(empty)] if empty else []
        heads += [
            Markup('<th scope="colgroup" colspan="{}">{}</th>').format(count, name) for name, count in table.spans
        ]
        spans = Markup("<tr>{}</tr>").format(Markup("").join(heads))
    cells = Markup("").join(
        Markup('<th scope="col">{}</th>').format(head) if head else Markup("<td></td>") for head in table.head
    )
    return Markup("<thead>{}<tr>{}</tr></thead>").format(spans, cells)


def _html_row(row: tuple[Entry, ...], table: Table) -> Markup:
    if len(row) == 1:
        return Markup('<tr class="group"><th scope="rowgroup" colspan="{}">{}</th></tr>').format(
            max(1, len(table.head)), row[0].text
        )
    cells = [
        Markup('<th scope="row">{}</th>').format(_html_entry(each))
        if place < table.keys and row[place].plain
        else Markup("<td{}>{}</td>").format(
            Markup(' class="hole"') if each.hole else Markup(' class="best"') if each.best else "", _html_entry(each)
        )
        for place, each in enumerate(row)
    ]
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


def _html_entry(entry: Entry) -> Markup:
    best = Markup('<span class="mark">{}</span> ').format(STAR) if entry.best else Markup("")
    spread = Markup('<span class="spread">{}</span>').format(entry.interval) if entry.interval else Markup("")
    return Markup("{}{}{}{}").format(best, escape(entry.text), spread, entry.marks)


def _html_paragraphs(lines: tuple[str, ...]) -> list[Markup]:
    return [Markup("<p>{}</p>").format(line) for line in lines if line]


def _html_notes(lines: tuple[str, ...]) -> list[Markup]:
    items = [Markup("<li>{}</li>").format(line) for line in lines if line]
    return [Markup('<ul class="notes">{}</ul>').format(Markup("").join(items))] if items else []

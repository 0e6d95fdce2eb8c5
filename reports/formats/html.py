"""HTML: a report's page as headings, tables and lists, every text escaped."""

from markupsafe import Markup, escape

from dlbench.reports.formats.layout import Entry, Page, Table

BEST = "★"


def page_to_html(page: Page, level: int = 3) -> Markup:
    """Return a report's page as HTML; its tables have headings of this level."""
    page = page.inert(BEST)
    parts = [*_paragraphs(page.before), *(table_to_html(table, level) for table in page.tables)]
    return Markup("\n").join([*parts, *_notes(page.after)])


def table_to_html(table: Table, level: int = 3) -> Markup:
    """Return one table, of inert texts, with its heading above and its notes beneath."""
    parts = [Markup("<h{0}>{1}</h{0}>").format(level, table.title)] if table.title else []
    if table.rows:
        words = Markup(' class="words"') if table.words else Markup("")
        body = Markup("").join(_row(row, table) for row in table.rows)
        name = table.title or "table"
        parts.append(
            Markup(
                '<div class="wide" role="group" aria-label="{}" tabindex="0"><table{}>{}<tbody>{}</tbody></table></div>'
            ).format(name, words, _head(table), body)
        )
    return Markup("\n").join([*parts, *_notes(table.notes)])


def _head(table: Table) -> Markup:
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


def _row(row: tuple[Entry, ...], table: Table) -> Markup:
    if len(row) == 1:
        return Markup('<tr class="group"><th scope="rowgroup" colspan="{}">{}</th></tr>').format(
            max(1, len(table.head)), row[0].text
        )
    cells = [
        Markup('<th scope="row">{}</th>').format(_entry(each))
        if place < table.keys and row[place].plain
        else Markup("<td{}>{}</td>").format(
            Markup(' class="hole"') if each.hole else Markup(' class="best"') if each.best else "", _entry(each)
        )
        for place, each in enumerate(row)
    ]
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


def _entry(entry: Entry) -> Markup:
    best = Markup('<span class="mark">{}</span> ').format(BEST) if entry.best else Markup("")
    spread = Markup('<span class="spread">{}</span>').format(entry.interval) if entry.interval else Markup("")
    return Markup("{}{}{}{}").format(best, escape(entry.text), spread, entry.marks)


def _paragraphs(lines: tuple[str, ...]) -> list[Markup]:
    return [Markup("<p>{}</p>").format(line) for line in lines if line]


def _notes(lines: tuple[str, ...]) -> list[Markup]:
    told = [Markup("<li>{}</li>").format(line) for line in lines if line]
    return [Markup('<ul class="notes">{}</ul>').format(Markup("").join(told))] if told else []

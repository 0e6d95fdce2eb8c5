"""The sections that reports bring: of every report that says so, its words, tables and picture."""

from dataclasses import dataclass

from markupsafe import Markup

from dlbench.reports.catalogue import reports
from dlbench.reports.errors import ReportError
from dlbench.reports.formats.html import page_to_html
from dlbench.reports.formats.layout import Page
from dlbench.reports.page.document import Document
from dlbench.reports.page.inline_svg import pictures
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.networks import family_of_record

LAST_BEFORE_THE_MATRIX = 10
"""Reports of a place up to this stand before the matrix."""
MOST_ROWS = 300
"""Rows of tables in a section; the command shows all."""
MOST_CELLS_DRAWN = 1000
"""A page of more cells has no plots: nobody could read them, and they would be most of the page."""


@dataclass(frozen=True)
class Section:
    """One report on the page."""

    name: str
    heading: str
    pictures: tuple[Markup, ...]
    body: Markup
    headline: tuple[str, ...]
    """Its sentences at the head of the page."""
    first: bool
    """Whether it stands before the matrix."""


def sections(document: Document) -> list[Section]:
    """Return what every report with a heading has to tell of these results, in the order of their places."""
    source = document.source()
    found = []
    cells = {each.cell for each in document.matrix.cells.values() if each.timed is not None}
    families = {family.name for each in document.results.records if (family := family_of_record(each)) is not None}
    told = [report for report in reports().values() if report.heading and report.of_stores]
    for report in sorted(told, key=lambda report: (report.place, report.name)):
        if not report.applies(cells) or (report.families and not report.families & families):
            continue
        quantity = report.section_quantity or next(iter(report.quantities), ReportOptions().quantity)
        options = ReportOptions(quantity=quantity)
        try:
            what = report.analyse(source)
        except ReportError:
            continue  # It has nothing to tell of these results.
        if not report.has_section(what):
            continue
        drawn = pictures(report, what, options) if len(document.matrix.cells) <= MOST_CELLS_DRAWN else []
        body = page_to_html(shortened(report.page(what, options), report.name))
        found.append(
            Section(
                report.name,
                report.heading,
                tuple(drawn),
                body,
                tuple(report.headline(what)),
                report.place <= LAST_BEFORE_THE_MATRIX,
            )
        )
    return found


def shortened(page: Page, name: str) -> Page:
    """Return a report's page with `MOST_ROWS` rows at most, and a line on what was left out."""
    room, tables = MOST_ROWS, []
    for table in page.tables:
        tables.append(table._replace(rows=table.rows[:room]))
        room -= len(tables[-1].rows)
    rows = sum(len(table.rows) for table in page.tables)
    if rows <= MOST_ROWS:
        return page
    kept = tuple(table for table in tables if table.rows)
    left_out = f"{rows - MOST_ROWS} further rows are not on this page; `dlbench report {name}` shows them."
    return page._replace(tables=kept, after=(*page.after, left_out))

"""The output formats: what writes each report as text, Markdown, LaTeX, CSV or JSON."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlbench.reports.against.analysis import Against
from dlbench.reports.against.words import against_page, against_to_csv, against_to_json
from dlbench.reports.figure1.analysis import Figure1
from dlbench.reports.figure1.tables import figure1_page, figure1_to_csv, figure1_to_json
from dlbench.reports.formats import csv, json, latex, markdown, terminal
from dlbench.reports.formats.layout import Table
from dlbench.reports.matrix.analysis import Matrix
from dlbench.reports.progress.analysis import Progress
from dlbench.reports.progress.words import progress_page, progress_to_csv, progress_to_json
from dlbench.reports.threads.analysis import Curve
from dlbench.reports.workers.analysis import Workers
from dlbench.reports.workers.data import workers_to_csv, workers_to_json
from dlbench.reports.workers.words import workers_page

from ..errors import unknown_name


class Exporter(NamedTuple):
    """One output format: a function for each report."""

    matrix: Callable[[Matrix, str], str]
    threads: Callable[[Sequence[Curve], Sequence[str]], str]
    tables: Callable[[Sequence[Table]], str]
    against: Callable[[Against], str]
    progress: Callable[[Progress], str]
    figure1: Callable[[Figure1, str], str]
    workers: Callable[[Workers], str]


def _colour() -> bool:
    return os.isatty(1) and "NO_COLOR" not in os.environ


EXPORTERS = {
    "terminal": Exporter(
        lambda matrix, quantity: terminal.matrix_to_terminal(matrix, quantity, colour=_colour()),
        lambda found, notes: terminal.threads_to_terminal(found, colour=_colour(), notes=notes),
        lambda found: terminal.tables_to_terminal(found, colour=_colour()),
        lambda found: terminal.page_to_terminal(against_page(found), colour=_colour()),
        lambda found: terminal.page_to_terminal(progress_page(found), colour=_colour()),
        lambda found, quantity: terminal.page_to_terminal(figure1_page(found, quantity), colour=_colour()),
        lambda found: terminal.page_to_terminal(workers_page(found), colour=_colour()),
    ),
    "markdown": Exporter(
        markdown.matrix_to_markdown,
        markdown.threads_to_markdown,
        markdown.tables_to_markdown,
        lambda found: markdown.page_to_markdown(against_page(found)),
        lambda found: markdown.page_to_markdown(progress_page(found)),
        lambda found, quantity: markdown.page_to_markdown(figure1_page(found, quantity, best="bold:")),
        lambda found: markdown.page_to_markdown(workers_page(found)),
    ),
    "latex": Exporter(
        latex.matrix_to_latex,
        latex.threads_to_latex,
        latex.tables_to_latex,
        lambda found: latex.page_to_latex(against_page(found)),
        lambda found: latex.page_to_latex(progress_page(found)),
        lambda found, quantity: latex.page_to_latex(figure1_page(found, quantity, best="bold:")),
        lambda found: latex.page_to_latex(workers_page(found)),
    ),
    # These two hold every quantity of a cell at once.
    "csv": Exporter(
        lambda matrix, _: csv.matrix_to_csv(matrix),
        lambda found, _: csv.threads_to_csv(found),
        csv.tables_to_csv,
        against_to_csv,
        progress_to_csv,
        lambda found, _: figure1_to_csv(found),
        workers_to_csv,
    ),
    "json": Exporter(
        lambda matrix, _: json.matrix_to_json(matrix),
        json.threads_to_json,
        json.tables_to_json,
        against_to_json,
        progress_to_json,
        lambda found, _: figure1_to_json(found),
        workers_to_json,
    ),
}


def exporter_named(name: str, as_json: bool) -> Exporter:
    """Return the format of this name, or JSON where that was asked for; raises UsageError for an unknown one."""
    chosen = "json" if as_json else name
    if chosen not in EXPORTERS:
        raise unknown_name("format", chosen, EXPORTERS)
    return EXPORTERS[chosen]

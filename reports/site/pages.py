"""The pages of a site that are no report of a run: its index and its histories. Neither has a script."""

from dataclasses import replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dlbench.reports.formats.html import page_to_html
from dlbench.reports.formats.inert import one_line
from dlbench.reports.history.nights import History
from dlbench.reports.history.report import REPORT, tables_page
from dlbench.reports.page.inline_svg import pictures
from dlbench.reports.page.policy import own_style, policy
from dlbench.reports.report import ReportOptions
from dlbench.reports.site.contents import Contents, notices
from dlbench.reports.site.names import run_file

MOST_NOTICES = 20
"""On the index; the feed has more."""


def index_page(contents: Contents, title: str, version: str) -> str:
    """Return the index: confirmed regressions, machines with their suites, and every night, the newest first."""
    told = notices(contents)
    return _rendered(
        "index.html.j2",
        title=title,
        version=version,
        notices=told[:MOST_NOTICES],
        more=max(0, len(told) - MOST_NOTICES),
        histories=sorted(
            contents.histories.values(), key=lambda each: (contents.machine_name(each.machine), each.suite)
        ),
        nights=contents.newest_first(),
        contents=contents,
    )


def history_page(history: History, suite: str, where: str, version: str) -> str:
    """Return the page of a history: its picture, its change points with what changed that night, and all series."""
    nights = dict.fromkeys(change.night for _, change in history.changes)
    return _rendered(
        "history.html.j2",
        title=f"History of {suite} on {where}",
        version=version,
        # Of very many series the picture shows those with changes; the tables have all.
        pictures=pictures(REPORT, replace(history, everything=False), ReportOptions()),
        tables=page_to_html(tables_page(replace(history, everything=True)), level=2),
        nights={night.run: (night.started, "../" + run_file(night.run)) for night in nights},
    )


def _rendered(template: str, **given: Any) -> str:
    style = own_style()
    environment = Environment(
        loader=PackageLoader("dlbench.reports", "site/assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    return environment.get_template(template).render(policy=policy(style), style=Markup(style), **given) + "\n"  # ours


def _seen(value: Any) -> Any:
    """Return a text with nothing in it but what can be seen."""
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value

"""The page's data as JSON, to be saved by the reader: every cell with its launches and raw
samples.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from dlbench.reports.formats.json import plain
from dlbench.reports.history.nights import CAVEATS, ChangePoint, Night, Series
from dlbench.reports.history.report import drift_words
from dlbench.reports.matrix import matrix_cells
from dlbench.reports.page.document import Document, Launch
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.number_text import number
from dlbench.reports.results.quantities import QUANTITIES, Numbers
from dlbench.reports.results.safe_text import visible

SCHEMA = 2
MOST_SAMPLES = 200_000
"""With more samples the page has every second, third, ... step of each launch, and says so."""
MOST_NIGHTS = 60
"""The newest nights of a cell; `dlbench history` has all."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_NOT_SHOWN = ("software", "profile", "parity_sample", "outside", "timed_between", "cpus", "phases")


def page_data(document: Document) -> dict[str, Any]:
    """Return the data of a page: the matrix report's JSON, with the launches of each cell
    (``reports/SCHEMA.md``).
    """
    step = thinning(document)
    software: dict[str, Any] = {}
    cells = matrix_cells(document.matrix)
    for cell, content in zip(document.matrix.cells.values(), cells, strict=True):
        del content["parity"], content["threads_evidence"]  # its launches have them
        content["rerun_command"] = rerun_command(document, cell)
        content["launches"] = [_launch(each, step, software) for each in document.launches_of(cell)]
        content["histories"] = [
            _history(each) for each in document.histories.get((cell.machine, cell.cell), ())
        ]
    head = {
        "schema": SCHEMA,
        "title": document.title,
        "made": document.made.isoformat(timespec="seconds"),
    }
    content = {
        **head,
        "dlbench": document.version,
        "thinned": step,
        "software": list(software.values()),
    }
    inert_content: dict[str, Any] = inert({**content, "cells": cells})
    return inert_content


def inert(content: Any) -> Any:
    """Return plain JSON types with every text as `formats.inert` shows it, and seven digits of what
    is no integer.
    """
    if isinstance(content, Mapping):
        return {visible(str(key)): inert(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [inert(value) for value in content]
    if isinstance(content, float):
        return float(f"{content:.7g}")
    return visible(content) if isinstance(content, str) else content


def thinning(document: Document, most: int = MOST_SAMPLES) -> int:
    """Return n where one of n samples is shown, so that no more than ``most`` are."""
    samples = sum(
        len(each.record.outcome.samples_ns) for of in document.launches.values() for each in of
    )
    return max(1, -(-samples // most))


def numbers(cell: CellResult) -> dict[str, Numbers]:
    """Return each quantity of a cell with its interval."""
    if not cell.shown or cell.seconds is None:
        return {}
    values = {name: quantity.value(cell) for name, quantity in QUANTITIES.items()}
    return {name: value for name, value in values.items() if value is not None}


def ends(found: Numbers) -> str:
    """Return the ends of an interval: "0.97 to 1.35"; empty without one."""
    return (
        "" if found[1] is None or found[2] is None else f"{number(found[1])} to {number(found[2])}"
    )


def software_of(launch: Launch) -> dict[str, Any]:
    """Return what a launch's framework reported of itself, and its interpreter and environment."""
    record = launch.record
    return {
        **record.outcome.software,
        "interpreter": record.interpreter,
        "environment": record.environment,
    }


def rerun_command(document: Document, cell: CellResult) -> str:
    """Return the command that measures a cell again; "" where there is none."""
    launches = document.launches_of(cell)
    if not launches:
        return document.rerun_command(cell.cell, "", 0)
    newest = launches[-1].record
    command = document.rerun_command(
        newest.cell, newest.suite, sum(each.counts for each in launches)
    )
    given = [
        f" --env {shlex.quote(_word(name, value))}" for name, value in newest.variables.items()
    ]
    return command + "".join(given) if command else ""


def _word(name: str, value: str) -> str:
    """Return the word that gives a variable again; the shell is to have a value that the record
    does not have whole.
    """
    return (
        name
        if any(mark in value for mark in ("***", "~", "<path>", "<user>", "<host>"))
        else f"{name}={value}"
    )


def _launch(launch: Launch, step: int, software: dict[str, Any]) -> dict[str, Any]:
    record, outcome = launch.record, launch.record.outcome
    reported = software_of(launch)
    key = repr(sorted(map(repr, reported.items())))
    software.setdefault(key, plain(reported))
    shown = {
        name: value
        for name, value in plain(outcome).items()
        if name not in _NOT_SHOWN and value not in _EMPTY
    }
    return {
        "launch": record.launch,
        "attempt": record.attempt,
        "started": record.started.isoformat(timespec="seconds"),
        "run": record.run,
        "counts": launch.counts,
        "disturbed": launch.disturbed,
        "protocol": plain(record.protocol),
        "software": list(software).index(key),
        **shown,
        "samples_ns": list(outcome.samples_ns[::step]),
    }


def newest_nights(series: Series) -> tuple[int, list[Night], list[ChangePoint]]:
    """Return the place of the first of a cell's newest nights, these nights, and the changes of its
    level in them.
    """
    first = max(0, len(series) - MOST_NIGHTS)
    nights = [series.night(place) for place in range(first, len(series))]
    return first, nights, [each for each in series.changes if each.place >= first]


def _history(series: Series) -> dict[str, Any]:
    first, nights, changes = newest_nights(series)
    return {
        "kind": series.kind,
        "caveat": CAVEATS[series.kind],
        "nights": [
            {
                "run": n.run,
                "started": n.started,
                "numbers": [n.value, n.low, n.high],
                "searched": n.searched,
            }
            for n in nights
        ],
        "changes": [
            {"place": c.place - first, "numbers": [c.ratio, c.low, c.high], "pending": c.pending}
            for c in changes
        ],
        "drift": None if series.drift is None else drift_words(series, series.drift),
    }

"""The page's data as JSON for the reader to save: every cell with its launches and raw samples."""

import math
import shlex
from collections.abc import Mapping
from typing import Any

from dlbench.reports.formats.json import plain
from dlbench.reports.history.nights import CAVEATS, ChangePoint, Night, Series
from dlbench.reports.history.report import drift_words
from dlbench.reports.matrix import matrix_cells
from dlbench.reports.page.document import Document, ShownLaunch
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
_NOT_SHOWN = ("software", "profile", "outside", "timed_between", "cpus", "phases")


def page_data(document: Document) -> dict[str, Any]:
    """Return the matrix report's JSON with the launches of each cell (``json-keys.toml``)."""
    step = thinning(document)
    software: dict[str, Any] = {}
    cells = matrix_cells(document.matrix)
    for cell, content in zip(document.matrix.cells.values(), cells, strict=True):
        del content["parity"], content["threads_evidence"]  # its launches have them
        histories = document.histories.get((cell.machine, cell.cell), ())
        content["rerun_command"] = rerun_command(document, cell)
        launches = document.launches_of(cell)
        content["launches"] = [_launch(launch, step, software) for launch in launches]
        content["histories"] = [_history(series) for series in histories]
    data: dict[str, Any] = inert(
        {
            "schema": SCHEMA,
            "title": document.title,
            "made": document.made.isoformat(timespec="seconds"),
            "dlbench": document.version,
            "thinned": step,
            "software": list(software.values()),
            "cells": cells,
        }
    )
    return data


def inert(content: Any) -> Any:
    """Return plain JSON types with every text made inert, and seven digits of other numbers."""
    if isinstance(content, Mapping):
        return {visible(str(key)): inert(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [inert(value) for value in content]
    if isinstance(content, float):
        return float(f"{content:.7g}")
    if isinstance(content, str):
        return visible(content)
    return content


def thinning(document: Document, most: int = MOST_SAMPLES) -> int:
    """Return n where one of n samples is shown, so that no more than ``most`` are."""
    samples = sum(len(launch.record.outcome.samples_ns) for launch in document.all_launches())
    return max(1, math.ceil(samples / most))


def numbers(cell: CellResult) -> dict[str, Numbers]:
    """Return each quantity of a cell with its interval."""
    if not cell.shown or cell.seconds is None:
        return {}
    numbers = {}
    for name, quantity in QUANTITIES.items():
        value = quantity.value(cell)
        if value is not None:
            numbers[name] = value
    return numbers


def ends(numbers: Numbers) -> str:
    """Return the ends of an interval: "0.97 to 1.35"; empty without one."""
    _, low, high = numbers
    if low is None or high is None:
        return ""
    return f"{number(low)} to {number(high)}"


def software_of(launch: ShownLaunch) -> dict[str, Any]:
    """Return the report of a launch's framework on itself, and its interpreter and environment."""
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
    count = sum(launch.counts for launch in launches)
    command = document.rerun_command(newest.cell, newest.suite, count)
    if not command:
        return ""
    for name, value in newest.variables.items():
        command += f" --env {shlex.quote(_variable_word(name, value))}"
    return command


def _variable_word(name: str, value: str) -> str:
    """Return the word of an option that sets a variable again.

    It is the name alone if the record has only a part of the value. The shell must have it then.
    """
    if any(mark in value for mark in ("***", "~", "<path>", "<user>", "<host>")):
        return name
    return f"{name}={value}"


def _launch(launch: ShownLaunch, step: int, software: dict[str, Any]) -> dict[str, Any]:
    """Return a launch as an object, and add its software to the list of all."""
    record = launch.record
    outcome = record.outcome
    reported = software_of(launch)
    key = repr(sorted(map(repr, reported.items())))
    software.setdefault(key, plain(reported))
    shown = {}
    for name, value in plain(outcome).items():
        if name not in _NOT_SHOWN and value not in _EMPTY:
            shown[name] = value
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
    """Return the place of the first of the newest nights, these nights, and their changes."""
    first = max(0, len(series) - MOST_NIGHTS)
    nights = [series.night(place) for place in range(first, len(series))]
    changes = [change for change in series.changes if change.place >= first]
    return first, nights, changes


def _history(series: Series) -> dict[str, Any]:
    first, nights, changes = newest_nights(series)
    nights_data = []
    for night in nights:
        nights_data.append(
            {
                "run": night.run,
                "started": night.started,
                "numbers": [night.value, night.low, night.high],
                "searched": night.searched,
            }
        )
    changes_data = []
    for change in changes:
        changes_data.append(
            {
                "place": change.place - first,
                "numbers": [change.ratio, change.low, change.high],
                "pending": change.pending,
            }
        )
    drift = None
    if series.drift is not None:
        drift = drift_words(series, series.drift)
    return {
        "kind": series.kind,
        "caveat": CAVEATS[series.kind],
        "nights": nights_data,
        "changes": changes_data,
        "drift": drift,
    }

"""The page's data as plain JSON types, to be saved by the reader: every cell with its launches and raw samples."""

from collections.abc import Mapping
from typing import Any

from dlbench.adapters import axes
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, values
from dlbench.reports.formats.inert import visible
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import HOLES, QUANTITIES, why_hole
from dlbench.reports.history.nights import CAVEATS, CellHistory
from dlbench.reports.naming import group_name, place_name, row_name
from dlbench.reports.page.document import Document, Launch

SCHEMA = 2
MOST_SAMPLES = 200_000
"""With more samples the page has every second, third, ... step of each launch, and says so."""
MOST_NIGHTS = 60
"""The newest nights of a cell; `dlbench history` has all."""
_OF_LAUNCH = ("import_seconds", "prepare_seconds", "first_step_seconds", "peak_memory_bytes", "steps_per_sample")

Numbers = tuple[float, float | None, float | None]
"""A value and the ends of its interval, None without one."""


def page_data(document: Document) -> dict[str, Any]:
    """Return the data of a page (``reports/SCHEMA.md`` describes every key)."""
    step = thinning(document)
    hosts = list(document.matrix.hosts)
    software: dict[str, dict[str, Any]] = {}
    cells = [_cell(document, cell, step, hosts, software) for cell in document.matrix.cells.values()]
    found: dict[str, Any] = inert(
        {
            "schema": SCHEMA,
            "title": document.title,
            "made": document.made.isoformat(timespec="seconds"),
            "dlbench": document.version,
            "thinned": step,
            "axes": axes.NAMES,
            "quantities": {name: each.title for name, each in QUANTITIES.items()},
            "flags": {each.name: each.legend for each in flags.KINDS},
            "machines": [
                {"fingerprint": host.fingerprint, "name": host.name, "description": [list(x) for x in host.description]}
                for host in document.matrix.hosts.values()
            ],
            "columns": [
                {"machine": hosts.index(each.machine), "place": place_name(each.cell)}
                for each in document.matrix.columns
            ],
            "software": list(software.values()),
            "cells": cells,
        }
    )
    return found


def inert(content: Any) -> Any:
    """Return plain JSON types with every text as `formats.inert` shows it, and seven digits of what is no integer."""
    if isinstance(content, Mapping):
        return {visible(str(key)): inert(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [inert(value) for value in content]
    if isinstance(content, float):
        return float(f"{content:.7g}")
    return visible(content) if isinstance(content, str) else content


def thinning(document: Document) -> int:
    """Return n where one of n samples is on the page."""
    samples = sum(len(each.record.outcome.samples_ns) for of in document.launches.values() for each in of)
    return max(1, -(-samples // MOST_SAMPLES))


def numbers(cell: CellResult) -> dict[str, Numbers]:
    """Return each quantity of a cell with its interval, which follows the seconds' (but of joules and time shares)."""
    if not cell.shown or cell.seconds is None:
        return {}
    middle, low, high = cell.seconds.median, cell.seconds.low, cell.seconds.high
    found: dict[str, Numbers] = {}
    for name, quantity in QUANTITIES.items():
        value = quantity.value(cell)
        if name == "seconds":
            found[name] = middle, low, high
        elif value is not None and name not in ("joules", "busy") and low is not None and high is not None:
            found[name] = value, value * middle / high, value * middle / low
        elif value is not None:
            found[name] = value, None, None
    return found


def launches_of(document: Document, cell: CellResult) -> list[Launch]:
    """Return the launches of a cell, the oldest first."""
    return document.launches.get((cell.column.machine, cell.cell), [])


def software_of(launch: Launch) -> dict[str, Any]:
    """Return what a launch's framework reported of itself, and its interpreter and environment."""
    record = launch.record
    return {**record.outcome.software, "interpreter": record.interpreter, "environment": record.environment}


def rerun_command(document: Document, cell: CellResult) -> str:
    """Return the command that measures a cell again; "" where there is none."""
    launches = launches_of(document, cell)
    if not launches:
        return document.rerun_command(cell.cell, "", 0)
    newest = launches[-1].record
    return document.rerun_command(newest.cell, newest.suite, sum(each.counts for each in launches))


def _cell(
    document: Document, cell: CellResult, step: int, hosts: list[str], software: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    timed = cell.seconds if cell.shown else None
    histories = document.histories.get((cell.column.machine, cell.cell), ())
    return {
        "at": list(values(cell.cell).values()),
        "group": group_name(cell.cell),
        "row": row_name(cell.cell),
        "machine": hosts.index(cell.column.machine),
        "column": document.matrix.columns.index(cell.column),
        "status": cell.status.value,
        "word": "" if cell.shown else HOLES[cell.status],
        "reason": "" if cell.shown else why_hole(cell),
        "numbers": {name: list(each) for name, each in numbers(cell).items()},
        "method": timed.method if timed else "",
        "of_launches": timed.launches if timed else 0,
        "covers_launches": bool(timed and timed.covers_launches),
        "best": cell.best,
        "flags": [[flag.kind.name, flag.sentence] for flag in cell.flags],
        "threads": plain(cell.observed),
        "device": plain(cell.device_observed),
        "run": cell.run,
        "environment": cell.environment,
        "interpreter": cell.interpreter,
        "rerun_command": rerun_command(document, cell),
        "launches": [_launch(each, step, software) for each in launches_of(document, cell)],
        "histories": [_history(each) for each in histories],
    }


def _launch(launch: Launch, step: int, software: dict[str, dict[str, Any]]) -> dict[str, Any]:
    record, outcome = launch.record, launch.record.outcome
    key = repr(sorted(map(repr, software_of(launch).items())))
    software.setdefault(key, plain(software_of(launch)))
    return {
        "launch": record.launch,
        "attempt": record.attempt,
        "started": record.started.isoformat(timespec="seconds"),
        "run": record.run,
        "status": outcome.status.value,
        "reason": outcome.reason,
        "counts": launch.counts,
        "disturbed": launch.disturbed,
        "warmup_ns": list(outcome.warmup_ns),
        "samples_ns": list(outcome.samples_ns[::step]),
        **{name: getattr(outcome, name) for name in _OF_LAUNCH},
        "final_loss": outcome.final_loss,
        "parity": plain(outcome.parity),
        "threads": plain(outcome.threads),
        "contention": plain(outcome.contention),
        "protocol": plain(record.protocol),
        "software": list(software).index(key),
    }


def _history(history: CellHistory) -> dict[str, Any]:
    """Return the newest nights of a cell, and the changes of its level within them."""
    first = max(0, len(history.series) - MOST_NIGHTS)
    nights = [history.series.night(place) for place in range(first, len(history.series))]
    return {
        "kind": history.series.kind,
        "caveat": CAVEATS[history.series.kind],
        "nights": [
            {
                "run": each.run,
                "started": each.started,
                "numbers": [each.value, each.low, each.high],
                "searched": each.searched,
            }
            for each in nights
        ],
        "changes": [
            {"place": each.place - first, "numbers": [each.ratio, each.low, each.high], "pending": each.pending}
            for each in history.changes
            if each.place >= first
        ],
    }

"""The page's data: every cell with its launches and raw samples, as plain JSON types for the script and for download.

Axes, quantities and flags come as tables, so that the script spells out none of them.
"""

from collections.abc import Mapping
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import CellResult, values
from dlbench.reports.flags import KINDS
from dlbench.reports.formats.inert import visible
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import HOLES, QUANTITIES, why_hole
from dlbench.reports.naming import group_name, place_name, row_name
from dlbench.reports.page.document import Document, Launch
from dlbench.reports.page.nights import nights_data
from dlbench.reports.statistics import LAUNCH_DEVIATION, WORSE

SCHEMA = 1
MOST_SAMPLES = 200_000
"""A page with more samples than this shows every second, third, ... step of each launch, and says so."""
_LESS_IS_BETTER = ("seconds", "joules")
_OF_LAUNCH = ("import_seconds", "prepare_seconds", "first_step_seconds", "peak_memory_bytes", "steps_per_sample")


def page_data(document: Document) -> dict[str, Any]:
    """Return everything that the script of a page needs (``reports/SCHEMA.md`` describes every key)."""
    step = thinning(document)
    hosts = list(document.matrix.hosts)
    software: dict[str, int] = {}
    known: list[dict[str, Any]] = []
    cells = []
    for cell in document.matrix.cells.values():
        key = cell.column.machine, cell.cell
        launches = document.launches.get(key, [])
        cells.append(
            {
                **_cell(cell, hosts.index(cell.column.machine)),
                "column": document.matrix.columns.index(cell.column),
                "again": _again(document, cell, launches),
                "launches": [_launch(each, step, software, known) for each in launches],
                "histories": [nights_data(each) for each in document.histories.get(key, ())],
            }
        )
    found: dict[str, Any] = _seen(
        {
            "schema": SCHEMA,
            "title": document.title,
            "made": document.made.isoformat(timespec="seconds"),
            "dlbench": document.version,
            "thinned": step,
            "launch_deviation": LAUNCH_DEVIATION,
            "least_ratio": WORSE,
            "axes": [
                {
                    "name": each.name,
                    "role": each.role,
                    "usual": each.usual,
                    "goes_with": each.goes_with,
                    "order": each.order,
                }
                for each in axes.AXES
            ],
            "quantities": [
                {"name": name, "title": each.title, "less_is_better": name in _LESS_IS_BETTER}
                for name, each in QUANTITIES.items()
            ],
            "flags": {each.name: {"symbol": each.symbol, "legend": each.legend} for each in KINDS},
            "machines": [
                {"fingerprint": host.fingerprint, "name": host.name, "description": [list(x) for x in host.description]}
                for host in document.matrix.hosts.values()
            ],
            "columns": [
                {"machine": hosts.index(each.machine), "place": place_name(each.cell)}
                for each in document.matrix.columns
            ],
            "software": known,
            "cells": cells,
        }
    )
    return found


def _seen(content: Any) -> Any:
    """Return plain JSON types with every text as `formats.inert` shows it: the script writes texts as they are."""
    if isinstance(content, Mapping):
        return {visible(str(key)): _seen(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_seen(value) for value in content]
    return visible(content) if isinstance(content, str) else content


def thinning(document: Document) -> int:
    """Return of how many samples one is on the page: 1 where all of them are."""
    samples = sum(len(each.record.outcome.samples_ns) for of in document.launches.values() for each in of)
    return max(1, -(-samples // MOST_SAMPLES))


def _cell(cell: CellResult, machine: int) -> dict[str, Any]:
    timed = cell.seconds if cell.shown else None
    return {
        "at": list(values(cell.cell).values()),
        "group": group_name(cell.cell),
        "row": row_name(cell.cell),
        "machine": machine,
        "status": cell.status.value,
        "word": "" if cell.shown else HOLES[cell.status],
        "reason": "" if cell.shown else why_hole(cell),
        "numbers": {name: number for name in QUANTITIES if (number := _number(cell, name)) is not None},
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
    }


def _number(cell: CellResult, name: str) -> list[float | None] | None:
    """Return value, low and high of a quantity; all but joules and shares of time follow the seconds."""
    if not cell.shown or cell.seconds is None or (value := QUANTITIES[name].value(cell)) is None:
        return None
    middle, low, high = cell.seconds.median, cell.seconds.low, cell.seconds.high
    if name == "seconds":
        return [middle, low, high]
    if name in ("joules", "busy") or low is None or high is None:
        return [value, None, None]
    return [value, value * middle / high, value * middle / low]


def _launch(launch: Launch, step: int, software: dict[str, int], known: list[dict[str, Any]]) -> dict[str, Any]:
    record, outcome = launch.record, launch.record.outcome
    told = {**outcome.software, "interpreter": record.interpreter, "environment": record.environment}
    key = repr(sorted(map(repr, told.items())))
    if key not in software:
        software[key] = len(known)
        known.append(plain(told))
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
        "software": software[key],
    }


def _again(document: Document, cell: CellResult, launches: list[Launch]) -> str:
    """Return the command that measures a cell again; "" where there is none."""
    newest = launches[-1].record if launches else None
    if newest is None:
        return document.again(cell.cell, "", 0)
    return document.again(newest.cell, newest.suite, sum(each.counts for each in launches))

"""Small recurrent networks for scripts: JSON, and their times as CSV (``reports/SCHEMA.md`` describes every key)."""

import math
from collections.abc import Iterator
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.against.brandfonbrener2017 import UPDATES
from dlbench.reports.cells import CellResult, Place
from dlbench.reports.formats.csv import MEDIAN, Rows, parts
from dlbench.reports.formats.json import plain
from dlbench.reports.matrix.data import of_cell, of_place
from dlbench.reports.rnn.analysis import Crossed, Side, StudiedLine, Study
from dlbench.reports.rnn.lines import Line, Size

_OF_LINE = [name for name in axes.NAMES if name not in ("network", "specification")]
_COLUMNS = (
    "machine",
    "machine_name",
    *_OF_LINE,
    *Size._fields,
    "status",
    "reason",
    *parts("seconds_per_minibatch", *MEDIAN),
    "seconds_per_time_step",
    "seconds_of_a_run",
    "flags",
)


def rnn_data(found: Study) -> dict[str, Any]:
    """Return a JSON object: the lines, what follows from them, and the published study beside."""
    return {
        "updates_of_a_run": UPDATES,
        "lines": [_line(found, each) for each in found.lines],
        "threads": [
            {
                **_where(found, line),
                **pays.series._asdict(),
                "against": 1,
                "faster_from": pays.from_units,
                "sizes": [
                    {
                        "hidden": hidden,
                        "ratio": plain(each.ratio),
                        "p_adjusted": each.p_adjusted,
                        "verdict": each.verdict,
                    }
                    for hidden, each in pays.sizes
                ],
            }
            for line, pays in found.threads
        ],
        "crossings": [_crossed(found, each) for each in found.crossings],
        "compared": [
            {
                **_where(found, each.line),
                "times_fastest": plain(each.mean),
                "sizes": each.sizes,
                "of": each.of,
                "fastest_at": plain(each.wins),
            }
            for each in found.compared
        ],
        "beside": None if found.beside is None else rnn_data(found.beside),
        "notes": list(found.notes),
    }


def rnn_rows(found: Study) -> Rows:
    """Return a line for each time, those without a number and those of the study beside too."""
    return Rows(_COLUMNS, list(_rows(found)))


def _rows(found: Study) -> Iterator[dict[str, Any]]:
    for each in found.lines:
        line = _line(found, each)
        yield from ({**line, **size} for size in line["sizes"])
    if found.beside is not None:
        yield from _rows(found.beside)


def _where(found: Study, line: Line) -> dict[str, Any]:
    return of_place(found.hosts, Place(line.machine, line.cell), "network", "specification")


def _line(found: Study, each: StudiedLine) -> dict[str, Any]:
    return {
        **_where(found, each.line),
        "sizes": [_size(size, cell) for size, cell in sorted(each.cells.items())],
        "fits": plain(each.fits),
        "growth": [{**of.series._asdict(), "knee": plain(of.knee), "sizes": plain(of.sizes)} for of in each.growth],
    }


def _size(size: Size, cell: CellResult) -> dict[str, Any]:
    seconds = cell.seconds.median if cell.seconds is not None else None
    return {
        **size._asdict(),
        **of_cell(cell, "status", "reason", "seconds"),
        "seconds_per_time_step": None if seconds is None else seconds / size.steps,
        "seconds_of_a_run": None if seconds is None else seconds * UPDATES,
        **of_cell(cell, "flags"),
    }


def _crossed(found: Study, each: Crossed) -> dict[str, Any]:
    at = each.at
    told = at.low is not None and at.high is not None
    return {
        "what": each.what,
        "first": _side(found, each.first),
        "second": _side(found, each.second),
        **each.series._asdict(),
        "where": "below" if at.units == 0 else "above" if math.isinf(at.units) else "between",
        "units": at.units if 0 < at.units < math.inf else None,
        "interval": [at.low, at.high] if told else None,
        "told": at.told,
        "smallest": at.smallest,
        "largest": at.largest,
    }


def _side(found: Study, side: Side) -> dict[str, Any]:
    line = side.line
    shown = {"machine": line.machine, "machine_name": found.hosts[line.machine].name, "name": side.name}
    return {**shown, "device": line.cell.device, "batch_size": line.cell.batch_size}

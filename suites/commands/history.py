"""`dlbench history`: which cells became slower or faster, on which night, and what else changed then."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import probe
from dlbench.reports.formats.export import formats_of, to_stdout
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import NIGHTLY, History, build_history, explained
from dlbench.reports.history.report import PANELS, REPORT, history_to_picture
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.results import fits, names_of
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning import values
from ..planning.networks import LARGEST_BATCH
from ..run import preparation
from . import options
from .options import OptionGroup, grouped

_COUNTED = {"threads": "thread count", "batch_size": "mini-batch size"}
_EXPLAINED = 20
"""Changes whose records are read unless all are asked for: as many as a report shows."""


@dataclass(frozen=True)
class WhichNights(OptionGroup):
    """The store and the nights."""

    store_file: options.StoreFile = options.DEFAULT_STORE
    suite: options.OfSuite = None
    machine: options.OfMachine = None
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Only nights from this date on: 2026-03-01.")
    ] = None
    magnitude: Annotated[str, typer.Option("--magnitude", help="Smallest change to report: 2.5%.")] = "2.5%"


@dataclass(frozen=True)
class HowToShow(OptionGroup):
    """The output format."""

    form: Annotated[str | None, typer.Option("--format", help=f"{', '.join(formats_of(REPORT))}.")] = None
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw it too: a .png or .svg, 24 series, those with changes first."
        ),
    ] = None
    everything: Annotated[
        bool, typer.Option("--all", help="Every series and every change; further pages of the plot.")
    ] = False
    as_json: options.Json = False


@grouped
def history_command(axes: options.AxesToShow, which: WhichNights, how: HowToShow) -> None:
    """Which cells became slower or faster, on which night, by how much, and what else changed that night.

    A night is a run. Nights that measured a baseline too give the ratio to it; others give absolute seconds, where the
    machine's own shifts cannot be told from the code's.

    Examples:

    - `dlbench history --plot history.png`
    - `dlbench history --network fcn5 --framework torch --since 2026-03-01 --all`
    """
    form = options.form_of(how.form, how.as_json, formats_of(REPORT))
    least = values.share(which.magnitude, "--magnitude")
    start = _date(which.since)
    if how.plot is not None:
        check_picture(how.plot)
    chosen = _Chosen(which.suite, which.machine, axes.wanted, start)
    with Store.open(which.store_file, create=False) as store:
        history = _history(store, chosen, least, how.everything)
    if how.plot is not None:
        _draw(history, how.plot)
    print(to_stdout(REPORT, history, ReportOptions(), form))


class _Chosen(NamedTuple):
    """The filter of the options."""

    suite: str | None
    machine: str | None
    wanted: dict[str, str]
    """Words by axis."""
    since: str

    def narrows(self) -> bool:
        return any(self)


def _date(text: str | None) -> str:
    """Return the moment as ISO 8601 in UTC, as the store writes it; "" for none."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"--since {text[:40]!r} is not a date. Write it as 2026-03-01.") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _history(store: Store, chosen: _Chosen, magnitude: float, everything: bool) -> History:
    cells = store.cells()
    wanted = _cells(cells, chosen)
    nights = store.nights(suite=chosen.suite, machine=chosen.machine, purpose=NIGHTLY)
    if len(wanted) < len(cells):
        nights = nights[nights["cell"].isin(wanted)]
    if chosen.since:
        nights = nights[nights["started"] >= chosen.since]
    names = {name: read_host(name, described).name for name, described in store.machines().items()}
    history = build_history(nights, cells, magnitude, names, everything)
    _check_nights(store, history, chosen)
    return explained(history, store.example, None if everything else _EXPLAINED)


def _check_nights(store: Store, history: History, chosen: _Chosen) -> None:
    if not history.cells:
        if chosen.narrows():
            raise UsageError(
                f"No night of {store.name} matches what was asked. Leave an option out, or see `dlbench report runs`."
            )
        raise UsageError(f"{store.name} holds no measured run yet. Fill it night by night: dlbench run SUITE.")
    count, first, _ = history.nights()
    if count < 2:
        raise UsageError(
            f"{store.name} holds a single night of these cells ({first[:10]}); a history begins with the second, and "
            f"changes can be confirmed from {2 * ENOUGH_NIGHTS} nights on."
        )


def _cells(cells: Mapping[int, Cell], chosen: _Chosen) -> set[int]:
    """Return the numbers of the cells that the options leave; raises UsageError for a name that no cell has."""
    kept = dict(cells)
    for axis, words in chosen.wanted.items():
        if axis in ("network", "framework"):
            known = {name for cell in cells.values() for name in names_of(cell, axis)}
            _check_known(axis, values.words(words), known)
        if axis in _COUNTED:
            counts = values.counts(words, preparation.capacity(probe()), _COUNTED[axis], LARGEST_BATCH)
            words = ",".join(map(str, counts))
        kept = {number: cell for number, cell in kept.items() if fits(cell, axis, values.words(words))}
    return set(kept)


def _check_known(axis: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if not any(fnmatchcase(each, name) for each in known):
            raise unknown_name(f"{axis} in this store", name, known)


def _draw(history: History, plot: Path) -> None:
    written = history_to_picture(history, plot)
    left = len(history.cells) - PANELS * len(written)
    more = f"; {left} more series with --all" if left > 0 else ""
    say(f"Drawn: {', '.join(str(path) for path in written)}{more}")

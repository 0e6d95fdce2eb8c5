"""`dlbench history`: which cells became slower or faster, on which night or slowly, and what else changed then."""

from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from dlbench.adapters.protocol import Cell
from dlbench.reports.formats.export import formats_of, to_stdout
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import NIGHTLY, build_history, explained
from dlbench.reports.history.report import PANELS, REPORT, history_to_picture
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.results import Narrowing, names_of
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning import values
from . import options
from .options import Given, flag, option, takes

_EXPLAINED = 20  # changes whose records are read unless all are asked for: as many as a report shows

_OPTIONS: options.Options = {
    "store_file": options.STORE,
    "suite": options.OF_SUITE,
    "machine": options.OF_MACHINE,
    "since": option("--since", "Only nights from this date on: 2026-03-01.", metavar="DATE"),
    "magnitude": option("--magnitude", "Smallest change to report: 2.5%.", str, "2.5%"),
    "form": option("--format", f"{', '.join(formats_of(REPORT))}."),
    "plot": option(
        "--plot", "Also draw 24 series (.png or .svg), those with changes first.", Path | None, metavar="FILE"
    ),
    "everything": flag("--all", "Show every series and every change, on further pages of the plot too."),
    "as_json": options.JSON,
}


@takes(options.AXES_TO_SHOW, _OPTIONS)
def history_command(given: Given) -> None:
    """Show which cells became slower or faster, when, by how much, and what else changed then.

    A change is a night from which on a cell has another level, or a slow drift over many nights. A night is a run.
    Nights that also measured a baseline show the ratio to it. Others show absolute seconds, where a shift of the
    machine looks like a change of the code.

    Examples:

    - `dlbench history --plot history.png`
    - `dlbench history --network fcn5 --framework torch --since 2026-03-01 --all`
    """
    form = options.form_of(given.form, given.as_json, formats_of(REPORT))
    least, wanted = values.share(given.magnitude, "--magnitude"), options.wanted(given)
    start = _date(given.since)
    if given.plot is not None:
        check_picture(given.plot)
    with Store.open(given.store_file, create=False) as store:
        cells = store.cells()
        chosen = _cells(cells, wanted)
        nights = store.nights(suite=given.suite, machine=given.machine, purpose=NIGHTLY)
        nights = nights[nights["cell"].isin(chosen)]
        if start:
            nights = nights[nights["started"] >= start]
        names = {name: read_host(name, described).name for name, described in store.machines().items()}
        history = build_history(nights, cells, least, names, given.everything)
        if not history.cells:
            if any((given.suite, given.machine, wanted, start)):
                raise UsageError(
                    f"No night in {store.name} matches these options. Leave one out, or see `dlbench report runs`."
                )
            raise UsageError(f"{store.name} holds no measured run yet. Fill it night by night: dlbench run SUITE.")
        count, first, _ = history.nights()
        if count < 2:
            raise UsageError(
                f"{store.name} holds a single night of these cells ({first[:10]}). A history needs at least two, and "
                f"{2 * ENOUGH_NIGHTS} to confirm a change."
            )
        history = explained(history, store.example, None if given.everything else _EXPLAINED)
    if given.plot is not None:
        written = history_to_picture(history, given.plot)
        left = len(history.cells) - PANELS * len(written)
        more = f" --all draws {left} more series." if left > 0 else ""
        say(f"Drawn: {', '.join(str(path) for path in written)}.{more}")
    print(to_stdout(REPORT, history, ReportOptions(), form))


def _date(text: str | None) -> str:
    """Return the moment as ISO 8601 in UTC, as the store writes it; "" for none."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"--since {text[:40]!r} is not a date. Write it as 2026-03-01.") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _cells(cells: Mapping[int, Cell], wanted: Mapping[str, str]) -> list[int]:
    """Return the numbers of the cells that the options select; raises UsageError for a name that no cell has."""
    for axis in sorted(wanted.keys() & {"network", "framework"}):
        known = {name for cell in cells.values() for name in names_of(cell, axis)}
        for name in values.words(wanted[axis]):
            if not any(fnmatchcase(each, name) for each in known):
                raise unknown_name(f"{axis} in this store", name, known)
    asked = Narrowing(axes=wanted)
    return [number for number, cell in cells.items() if asked.has(cell)]

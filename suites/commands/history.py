"""`dlbench history`: which cells became slower or faster, when, and what else changed then."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from dlbench.reports.formats.export import formats_of, to_stdout
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import NIGHTLY, add_differences, build_history
from dlbench.reports.history.report import PANELS, REPORT, history_to_picture
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.judged import JUDGED, NAMES, TIME
from dlbench.reports.results.results import Narrowing
from dlbench.reports.results.storage.store import Store

from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning import values
from ..planning.axes import listed_or
from . import options
from .options import ShownAxisOptions, flag, option, takes

_EXPLAINED = 20
"""Changes whose causes are looked up without --all: as many as a report shows."""


@dataclass(frozen=True, kw_only=True)
class HistoryOptions(ShownAxisOptions):
    """The options of `dlbench history`."""

    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE
    suite: Annotated[str | None, options.OF_SUITE] = None
    machine: Annotated[str | None, options.OF_MACHINE] = None
    since: Annotated[
        str | None, option("--since", "Only nights from this date on: 2026-03-01.", metavar="DATE")
    ] = None
    magnitude: Annotated[
        str, option("--magnitude", "Smallest change to report.", metavar="SHARE")
    ] = "2.5%"
    quantity: Annotated[str, option("--quantity", f"{listed_or(NAMES)}.")] = TIME
    form: Annotated[str | None, option("--format", f"{listed_or(formats_of(REPORT))}.")] = None
    plot: Annotated[
        Path | None,
        option("--plot", "Also draw 24 series (.png or .svg), changes first.", metavar="FILE"),
    ] = None
    everything: Annotated[
        bool, flag("--all", "Show every series and every change, also in plots.")
    ] = False
    as_json: Annotated[bool, options.JSON] = False


@takes(HistoryOptions)
def history_command(given: HistoryOptions) -> None:
    """Show which cells became slower or faster, when, by how much, and what else changed then.

    A night is one run. A change is a night from which on a cell stays at another level, or a slow
    drift over many nights. Nights that also measured a baseline show the ratio to it. Others show
    absolute seconds, where a shift of the machine looks like a change of the code. The exit code is
    0, whether there is a change or not.

    Examples:

    - `dlbench history`
    - `dlbench history --network fcn5 --framework torch --since 2026-03-01`
    - `dlbench history --quantity memory --plot history.png`
    """
    form = options.form_of(given.form, given.as_json, formats_of(REPORT))
    if given.quantity not in NAMES:
        raise unknown_name("quantity", given.quantity, NAMES)
    smallest = values.share(given.magnitude, "--magnitude")
    wanted = options.wanted(given)
    start = _date(given.since)
    if given.plot is not None:
        check_picture(given.plot)
    with Store.open(given.store_file, create=False) as store:
        cells = store.cells()
        narrowing = Narrowing(axes=wanted, cells=tuple(cells.values()))
        options.check_names(narrowing, store.name)
        chosen = [number for number, cell in cells.items() if narrowing.has(cell)]
        judged = JUDGED.get(given.quantity)
        nights = store.nights(given.suite, given.machine, NIGHTLY, judged)
        nights = nights[nights["cell"].isin(chosen)]
        if start:
            nights = nights[nights["started"] >= start]
        names = {
            fingerprint: read_host(fingerprint, description).name
            for fingerprint, description in store.machines().items()
        }
        history = build_history(nights, cells, smallest, names, given.everything, given.quantity)
        if not history.cells:
            narrowed = any((given.suite, given.machine, wanted, start))
            raise _no_history(store, narrowed)
        count, first, _ = history.nights()
        if count < 2:
            raise UsageError(
                f"{store.name} holds a single night of these cells ({first[:10]}). A history needs "
                f"at least two, and {2 * ENOUGH_NIGHTS} to confirm a change."
            )
        history = add_differences(history, store.example, None if given.everything else _EXPLAINED)
    if given.plot is not None:
        written = history_to_picture(history, given.plot)
        left = len(history.cells) - PANELS * len(written)
        more = f" --all draws {left} more series." if left > 0 else ""
        say(f"Drawn: {', '.join(str(path) for path in written)}.{more}")
    # A blank line at its end is no line of CSV.
    print(to_stdout(REPORT, history, ReportOptions(), form), end="" if form == "csv" else "\n")


def _no_history(store: Store, narrowed: bool) -> UsageError:
    """Return the error for a store without a night; ``narrowed`` if options choose some."""
    if narrowed:
        return UsageError(
            f"No night in {store.name} matches these options. Leave one out, or see `dlbench "
            "report runs`."
        )
    if store.record_counts():
        return UsageError(
            f"{store.name} holds no time for a history: that takes runs of a suite and gates, and "
            "leaves out comparisons, releases, searches, bisections and cells without a number."
        )
    return UsageError(
        f"{store.name} holds no measured run yet. Fill it night by night: dlbench run SUITE."
    )


def _date(text: str | None) -> str:
    """Return the moment as ISO 8601 in UTC, as the store writes it; "" for none."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"--since {text[:40]!r} is not a date. Write it as 2026-03-01.") from error
    if not moment.tzinfo:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat()

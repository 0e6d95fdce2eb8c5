"""`dlbench history`: which cells became slower or faster, on which night or slowly, and what else
changed then.
"""

from datetime import UTC, datetime
from pathlib import Path

from dlbench.reports.formats.export import formats_of, to_stdout
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import NIGHTLY, build_history, explained
from dlbench.reports.history.report import PANELS, REPORT, history_to_picture
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.judged import JUDGED, NAMES, TIME
from dlbench.reports.results.results import Narrowing
from dlbench.reports.results.storage.store import Store

from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning import values
from . import options
from .options import Given, flag, option, takes

_EXPLAINED = (
    20  # changes whose records are read unless all are asked for: as many as a report shows
)

_OPTIONS: options.Options = {
    "store_file": options.STORE,
    "suite": options.OF_SUITE,
    "machine": options.OF_MACHINE,
    "since": option("--since", "Only nights from this date on: 2026-03-01.", metavar="DATE"),
    "magnitude": option("--magnitude", "Smallest change to report: 2.5%.", str, "2.5%"),
    "quantity": option(
        "--quantity",
        "Instead of the time of a step: memory, first_step, import, start or faults.",
        str,
        TIME,
    ),
    "form": option("--format", f"{', '.join(formats_of(REPORT))}."),
    "plot": option(
        "--plot",
        "Also draw 24 series (.png or .svg), those with changes first.",
        Path | None,
        metavar="FILE",
    ),
    "everything": flag(
        "--all", "Show every series and every change, on further pages of the plot too."
    ),
    "as_json": options.JSON,
}


@takes(options.AXES_TO_SHOW, _OPTIONS)
def history_command(given: Given) -> None:
    """Show which cells became slower or faster, when, by how much, and what else changed then.

    A change is a night from which on a cell has another level, or a slow drift over many nights. A
    night is a run. Nights that also measured a baseline show the ratio to it. Others show absolute
    seconds, where a shift of the machine looks like a change of the code.

    Examples:

    - `dlbench history --plot history.png`
    - `dlbench history --network fcn5 --framework torch --since 2026-03-01 --all`
    - `dlbench history --quantity memory`
    """
    form = options.form_of(given.form, given.as_json, formats_of(REPORT))
    if given.quantity not in NAMES:
        raise unknown_name("quantity", given.quantity, NAMES)
    least, wanted = values.share(given.magnitude, "--magnitude"), options.wanted(given)
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
            name: read_host(name, described).name for name, described in store.machines().items()
        }
        history = build_history(nights, cells, least, names, given.everything, given.quantity)
        if not history.cells:
            if any((given.suite, given.machine, wanted, start)):
                raise UsageError(
                    f"No night in {store.name} matches these options. Leave one out, or see "
                    "`dlbench report runs`."
                )
            if store.record_counts():
                raise UsageError(
                    f"{store.name} holds no time for a history: that takes runs of a suite and "
                    "gates, and leaves out comparisons, releases, searches, bisections and cells "
                    "without a number."
                )
            raise UsageError(
                f"{store.name} holds no measured run yet. Fill it night by night: dlbench run "
                "SUITE."
            )
        count, first, _ = history.nights()
        if count < 2:
            raise UsageError(
                f"{store.name} holds a single night of these cells ({first[:10]}). A history needs "
                f"at least two, and {2 * ENOUGH_NIGHTS} to confirm a change."
            )
        history = explained(history, store.example, None if given.everything else _EXPLAINED)
    if given.plot is not None:
        written = history_to_picture(history, given.plot)
        left = len(history.cells) - PANELS * len(written)
        more = f" --all draws {left} more series." if left > 0 else ""
        say(f"Drawn: {', '.join(str(path) for path in written)}.{more}")
    # A blank line at its end is no line of CSV.
    print(to_stdout(REPORT, history, ReportOptions(), form), end="" if form == "csv" else "\n")


def _date(text: str | None) -> str:
    """Return the moment as ISO 8601 in UTC, as the store writes it; "" for none."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"--since {text[:40]!r} is not a date. Write it as 2026-03-01.") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()

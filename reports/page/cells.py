"""An opened cell as HTML: its numbers, launches, steps, nights, software, and command."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from markupsafe import Markup, escape

from dlbench.adapters.axes import NAMES, word
from dlbench.reports.columns import Column, table
from dlbench.reports.formats.layout import MISSING, Page, Table, entries, why_hole
from dlbench.reports.formats.markup import page_to_html, rendered
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import CAVEATS, RATIO
from dlbench.reports.history.nights import Series as NightSeries
from dlbench.reports.history.report import drift_words
from dlbench.reports.page.data import ends, newest_nights, numbers, rerun_command, software_of
from dlbench.reports.page.document import Document, ShownLaunch
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import axis_value
from dlbench.reports.results.naming import counted, rest_of, work_name
from dlbench.reports.results.number_text import amount, deviation, number
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.quantities import OF_LAUNCHES, QUANTITIES, Numbers, title_of
from dlbench.reports.results.safe_text import one_line
from dlbench.reports.results.thread_evidence import observe

MOST_DOTS = 60_000
"""Steps drawn on a page: with more, pictures show every second, third, ... step."""
# The size of a picture of steps or nights, and the ends of its axes.
_WIDTH = 900
_HEIGHT = 240
_LEFT = 74
_RIGHT = 888
_TOP = 14
_BOTTOM = 210


def cell_html(document: Document, cell: CellResult, software: int | None, thinned: int) -> Markup:
    """Return the content of a cell's dialog; the script inserts the list of ``software``."""
    launches = document.launches_of(cell)
    command = rerun_command(document, cell)
    versions = [_version(launch) for launch in launches]
    versions.append(f"dlbench {document.version}")
    histories = document.histories.get((cell.machine, cell.cell), ())
    launch_table: Markup | str = ""
    if launches:
        launch_table = page_to_html(Page((), (table(_LAUNCHES, launches, "Launches"),)))
    facts: list[tuple[str, Any]] = []
    for name in NAMES:
        value = axis_value(cell.cell, name)
        if value is not None:
            facts.append((name, word(name, value)))
    facts.append(("run", cell.run))
    reason: Markup | str = ""
    numbers_table: Markup | str = ""
    if cell.shown:
        numbers_table = _numbers(cell)
    else:
        reason = _whole(why_hole(cell), 20_000)
    return rendered(
        "cell.html.j2",
        one_line,
        heading=rest_of(cell.cell),
        where=f"{work_name(cell.cell)} · {document.matrix.hosts[cell.machine].name}",
        reason=reason,
        numbers=numbers_table,
        flags=cell.flags,
        steps=_steps(cell, launches, thinned),
        thinned=thinned,
        launches=launch_table,
        nights=[_nights(series) for series in histories],
        command=_whole(command, 4000),
        was=_whole("; ".join(dict.fromkeys(versions)), 4000),
        software=software,
        facts=facts_html(facts),
    )


def facts_html(facts: Iterable[tuple[str, Any]]) -> Markup:
    """Return names and values as a list; of an object its items."""
    filled = [(name, value) for name, value in facts if value not in (None, "", {}, [], ())]
    return rendered("facts.html.j2", one_line, facts=filled)


def _steps(cell: CellResult, launches: Sequence[ShownLaunch], thinned: int) -> Markup | str:
    """Return the picture of the timed steps of these launches; empty without any."""
    series: list[Series] = []
    for launch in launches:
        outcome = launch.record.outcome
        if outcome.samples_ns:
            name = str(launch.record.launch + 1)
            series.append((name, outcome.step_seconds()[::thinned], not launch.counts, None, None))
    if not series:
        return ""
    label = f"Seconds of every timed step of {counted(len(series), 'launch', 'launches')}"
    return dots_svg(label, series, numbers(cell).get("seconds"), _seconds)


def _whole(text: str, most: int) -> Markup:
    return escape(one_line(text, most))


def _numbers(cell: CellResult) -> Markup:
    timed = cell.seconds
    assert timed is not None  # it is shown
    rows = []
    for name, quantity in numbers(cell).items():
        median = amount(quantity[0])
        spread = deviation(*quantity) or MISSING
        rows.append(entries(title_of(name, [cell]), median, spread, ends(quantity) or MISSING))
    interval = "interval"
    if timed.coverage is not None:
        interval = f"{timed.coverage:.0%} interval"
    note = f"Interval: {timed.method}."
    if not timed.covers_launches:
        note += " It does not cover variation between launches."
    notes = [note]
    for name, reason in cell.unmeasured.items():
        notes.append(f"{QUANTITIES[name].title}: not measured; {reason}.")
    if cell.best:
        notes.append("★ The fastest of its column, or no slower than noise explains.")
    head = ("quantity", "median", "±", interval)
    return page_to_html(Page((), (Table("Numbers", head, tuple(rows), tuple(notes)),)))


def _seconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1:
            return f"{number(value * factor)} {unit}"
    return f"{number(value * 1e9)} ns"


def _outcome_column(
    heading: str, value: Callable[[Outcome], Any], text: Callable[[Any], str] = str
) -> Column[ShownLaunch]:
    """Return a column of a value of each launch's outcome."""

    def shown(launch: ShownLaunch) -> str:
        content = value(launch.record.outcome)
        if content is None:
            return MISSING
        return text(content)

    return Column("", heading, lambda launch: None, shown)


def _part_column(
    part: str, heading: str, name: str, text: Callable[[Any], str] = str
) -> Column[ShownLaunch]:
    """Return a column of an attribute of a part of each launch's outcome, where it has the part."""

    def value(outcome: Outcome) -> Any:
        return getattr(getattr(outcome, part), name, None)

    return _outcome_column(heading, value, text)


def _error_column(name: str) -> Column[ShownLaunch]:
    """Return a column of an error of the parity check and its tolerance."""

    def text(outcome: Outcome) -> str:
        error = getattr(outcome.parity, f"{name}_error", None)
        tolerance = getattr(outcome.parity, f"{name}_tolerance", None)
        return f"{_scientific(error)} / {_scientific(tolerance)}"

    return _outcome_column(f"{name} error / allowed", text)


def _scientific(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.1e}"


def _end(outcome: Outcome) -> str:
    end = outcome.status.replace("_", " ")
    if outcome.reason:
        end += f": {outcome.reason}"
    return end


def _cpu_per_wall(outcome: Outcome) -> float | None:
    evidence = observe([outcome])
    if evidence is None:
        return None
    return evidence.cpu_per_wall


_LAUNCHES: tuple[Column[ShownLaunch], ...] = (
    Column("", "no.", lambda launch: str(launch.record.launch + 1)),
    Column("", "started (UTC)", lambda launch: f"{launch.record.started:%Y-%m-%d %H:%M:%S}"),
    Column("", "attempt", lambda launch: str(launch.record.attempt + 1)),
    Column("", "counts", lambda launch: launch.counts),
    Column("", "disturbed", lambda launch: launch.disturbed),
    _outcome_column("ended", _end),
    _outcome_column("median step", lambda outcome: outcome.median_seconds(), _seconds),
    _outcome_column("timed steps", lambda outcome: outcome.observed_steps()),
    _outcome_column("warm-up steps", lambda outcome: len(outcome.warmup_ns)),
    _outcome_column("first step", lambda outcome: outcome.first_step_seconds, _seconds),
    _outcome_column("final loss", lambda outcome: outcome.final_loss, number),
    _part_column("parity", "parity", "verdict"),
    _error_column("loss"),
    _error_column("update"),
    _part_column("threads", "threads asked", "requested"),
    _part_column("threads", "framework says", "framework_says"),
    _part_column("threads", "system saw", "os_threads"),
    _outcome_column("CPU s per s", _cpu_per_wall, number),
    _part_column("contention", "waited for a CPU", "run_queue_seconds", _seconds),
    _part_column("contention", "involuntary switches", "involuntary_switches"),
    _part_column("contention", "stolen by the hypervisor", "steal_seconds", _seconds),
    _part_column("contention", "CPU time of others", "others_cpu_seconds", _seconds),
    _outcome_column("peak memory, MiB", OF_LAUNCHES["memory"][2], number),
)


def _version(launch: ShownLaunch) -> str:
    software = software_of(launch)
    names = [str(software[key]) for key in ("framework", "version") if software.get(key)]
    parts = [" ".join(names)] if names else []
    if launch.record.interpreter:
        parts.append(launch.record.interpreter)
    parts.append(f"environment {launch.record.environment[:12]}")
    return ", ".join(parts)


Series = tuple[str, Sequence[float], bool, float | None, float | None]
"""One launch or night of a picture: name, values, whether dots are hollow, ends of an interval."""


def dots_svg(
    label: str, series: Sequence[Series], band: Numbers | None, text: Callable[[float], str]
) -> Markup:
    """Return series next to one another over one axis of values, with a band for a number."""
    low, high = _limits(series, band)
    gap = 2.0
    step = (_RIGHT - _LEFT) / (sum(len(values) for _, values, *_ in series) + gap * len(series))

    def down(value: float | None) -> float | None:
        if value is None:
            return None
        return round(_TOP + (_BOTTOM - _TOP) * (high - value) / (high - low), 1)

    drawn: list[dict[str, Any]] = []
    x = _LEFT + step * gap / 2
    last_label = -100.0
    for name, values, hollow, lowest, highest in series:
        middle = round(x + step * len(values) / 2, 1)
        dots = []
        for place, value in enumerate(values):
            dots.append(f"M{x + step * (place + 0.5):.1f} {down(value)}h0")
        is_labelled = middle - last_label > 8 * len(name) + 8
        drawn.append(
            {
                "middle": middle,
                "low": down(lowest),
                "high": down(highest),
                "dots": Markup("".join(dots)),
                "hollow": hollow,
                "labelled": is_labelled,
                "name": name,
            }
        )
        if is_labelled:
            last_label = middle
        x += step * (len(values) + gap)
    ticks = []
    for share in (0.05, 0.5, 0.95):
        value = low + (high - low) * share
        ticks.append((down(value), text(value)))
    return rendered(
        "dots.html.j2",
        one_line,
        label=label,
        ticks=ticks,
        band=band and tuple(map(down, band)),
        series=drawn,
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_RIGHT,
    )


def _limits(series: Sequence[Series], band: Numbers | None) -> tuple[float, float]:
    """Return the ends of the axis of values: a little more than all values and intervals."""
    candidates: list[float | None] = [*(band or ())]
    for _, values, _, lowest, highest in series:
        candidates += [*values, lowest, highest]
    bounds = [value for value in candidates if value is not None]
    low = min(bounds)
    high = max(bounds)
    if low == high:
        return low * 0.98, high * 1.02
    margin = (high - low) / 20
    return low - margin, high + margin


def _nights(series: NightSeries) -> tuple[str, Markup, list[str]]:
    """Return heading, picture and notes."""
    _, nights, _ = newest_nights(series)

    heading = "By night"
    text: Callable[[float], str] = _seconds
    if series.kind == RATIO:
        heading = "By night, candidate over baseline"
        text = _multiple
    points: list[Series] = []
    for night in nights:
        day = night.started[5:10]
        points.append((day, [night.value], not night.searched, night.low, night.high))
    picture = dots_svg(f"{len(nights)} nights of this cell", points, None, text)
    caveat = CAVEATS[series.kind]
    notes = [
        *_change_notes(series),
        f"Hollow: disturbed by other programs throughout. {caveat[:1].upper()}{caveat[1:]}.",
    ]
    return heading, picture, notes


def _multiple(ratio: float) -> str:
    return f"{number(ratio)}×"  # noqa: RUF001


def _change_notes(series: NightSeries) -> list[str]:
    """Return the changes of level and the drift of a cell's newest nights, or why there is none."""
    if not series.comparable:
        return [
            "Not searched for changes: the machine is unknown, and the nights may come from "
            "several."
        ]
    _, _, changes = newest_nights(series)
    notes = []
    for change in changes:
        interval = ends((change.ratio, change.low, change.high))
        note = (
            f"Since {change.night.started[:10]}: {_multiple(change.ratio)} the time before "
            f"({interval})"
        )
        if change.pending:
            note += ", not confirmed yet: too few nights since"
        notes.append(f"{note}.")
    if series.drift is not None:
        first = series.drift.first_night.started[:10]
        notes.append(f"{first} on: {drift_words(series, series.drift)}.")
    if notes:
        return notes
    if int(series.searched.sum()) > ENOUGH_NIGHTS:
        return ["No change of level was found in these nights."]
    return ["Too few nights to look for a change."]

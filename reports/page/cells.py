"""An opened cell as HTML: its numbers, launches, steps, nights and software, and the command that measures it again."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from dlbench.adapters.axes import NAMES
from dlbench.reports.cells import CellResult, axis_value
from dlbench.reports.formats.inert import one_line
from dlbench.reports.formats.layout import MISSING, QUANTITIES, Page, Table, deviation, entries, number, why_hole
from dlbench.reports.formats.markup import page_to_html
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import CAVEATS, CellHistory
from dlbench.reports.naming import group_name, place_name, row_name
from dlbench.reports.page.data import MOST_NIGHTS, Numbers, launches_of, numbers, rerun_command, software_of
from dlbench.reports.page.document import Document, Launch

MOST_DOTS = 60_000
"""Steps drawn on a page: with more, pictures show every second, third, ... step."""
_NONE = "not launched, or a published number"


def cell_html(document: Document, cell: CellResult, software: int | None, thinned: int) -> Markup:
    """Return the inside of the dialog of a cell; the script puts the list of ``software`` into its place."""
    launches = launches_of(document, cell)
    host = document.matrix.hosts[cell.column.machine].name
    command = rerun_command(document, cell)
    parts = [
        Markup(
            '<div class="title"><h2 id="cell-heading">{}, {}</h2>'
            '<button type="button" id="cell-close">Close</button><p>{} · {}</p></div>'
        ).format(*map(_seen, (row_name(cell.cell), place_name(cell.cell), group_name(cell.cell), host))),
        _numbers(cell)
        if cell.shown
        else Markup('<h3>No number</h3><p class="reason">{}</p>').format(_seen(why_hole(cell), 20_000)),
        _warnings(cell),
        _steps(launches, cell, thinned),
        _launches(launches),
        *(_nights(each) for each in document.histories.get((cell.column.machine, cell.cell), ())),
    ]
    if command:
        was = dict.fromkeys(_version(each) for each in launches)
        parts.append(
            Markup(
                '<h3>Measure it again</h3><div class="command"><code tabindex="0">{}</code>'
                '<button type="button" class="copy">Copy</button><output></output></div>'
                '<p class="small">It was: {}.</p>'
            ).format(_seen(command, 4000), _seen("; ".join([*was, f"dlbench {document.version}"]), 4000))
        )
    if software is not None:
        values = [(name, value) for name in NAMES if (value := axis_value(cell.cell, name)) not in ("", None)]
        facts = facts_html([*values, ("run", cell.run)])
        parts.append(
            Markup("<h3>Software and settings in force</h3>{}<div data-software={}></div>").format(facts, software)
        )
    return Markup("\n").join(parts)


def facts_html(facts: Iterable[tuple[str, Any]]) -> Markup:
    """Return names and values as a list; of an object its items."""
    items = [
        Markup("<dt>{}</dt><dd>{}</dd>").format(_seen(name.replace("_", " ")), _value(value))
        for name, value in facts
        if value not in (None, "", {}, [], ())
    ]
    return Markup('<dl class="facts">{}</dl>').format(Markup("").join(items))


def _value(value: Any) -> Markup:
    if isinstance(value, dict):
        items = [Markup("<li>{} = {}</li>").format(_seen(name), _value(each)) for name, each in value.items()]
        listed = Markup('<ul class="plain">{}</ul>').format(Markup("").join(items))
        if len(items) <= 12:
            return listed
        return Markup("<details><summary>{} entries</summary>{}</details>").format(len(items), listed)
    if isinstance(value, list | tuple):
        return _seen(", ".join(map(str, value)), 2000)
    return _seen(value if value != "" else '""', 2000)


def _seen(value: Any, most: int = 200) -> Markup:
    return escape(one_line(str(value), most))


def ends(found: Numbers) -> str:
    """Return the ends of an interval: "0.97 to 1.35"; empty without one."""
    return "" if found[1] is None or found[2] is None else f"{number(found[1])} to {number(found[2])}"


def _numbers(cell: CellResult) -> Markup:
    timed = cell.seconds
    assert timed is not None  # it is shown
    rows = tuple(
        entries(QUANTITIES[name].title, number(each[0]), deviation(*each) or MISSING, ends(each) or MISSING)
        for name, each in numbers(cell).items()
    )
    covered = "interval" if timed.coverage is None else f"{timed.coverage:.0%} interval"
    notes = [f"Interval: {timed.method}." + ("" if timed.covers_launches else " It does not cover other launches.")]
    if cell.best:
        notes.append("★ The fastest of its column, or no slower than noise explains.")
    return _html(Table("Numbers", ("quantity", "median", "±", covered), rows, tuple(notes)))


def _html(table: Table) -> Markup:
    return page_to_html(Page((), (table,)))


def _warnings(cell: CellResult) -> Markup:
    if not cell.flags:
        return Markup("")
    items = [
        Markup("<li><b>{}</b> {}{}</li>").format(
            flag.kind.symbol,
            flag.kind.legend,
            "" if flag.sentence in ("", flag.kind.legend) else Markup(": {}").format(_seen(flag.sentence, 2000)),
        )
        for flag in cell.flags
    ]
    return Markup('<h3>Warnings</h3><ul class="legend">{}</ul>').format(Markup("").join(items))


def _seconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    factor, unit = next(
        ((factor, unit) for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if value * factor >= 1), (1e9, "ns")
    )
    return f"{number(value * factor)} {unit}"


def _bytes(value: int | None) -> str:
    return (
        MISSING if value is None else f"{number(value / 2**30)} GiB" if value >= 2**30 else f"{value / 2**20:.3g} MiB"
    )


def _within(error: float | None, tolerance: float | None) -> str:
    return " / ".join(MISSING if each is None else f"{each:.1e}" for each in (error, tolerance))


def _of(part: Any, name: str, text: Callable[[Any], str] = str) -> str:
    value = None if part is None else getattr(part, name)
    return MISSING if value is None else text(value)


def _launches(launches: Sequence[Launch]) -> Markup:
    if not launches:
        return Markup("<h3>Launches</h3><p>None: {}.</p>").format(_NONE)
    rows = []
    for each in launches:
        record, outcome = each.record, each.record.outcome
        threads, waits, parity = outcome.threads, outcome.contention, outcome.parity
        timed = outcome.step_seconds()
        ended = outcome.status.value.replace("_", " ") + (f": {outcome.reason}" if outcome.reason else "")
        busy = threads.cpu_seconds / threads.wall_seconds if threads and threads.wall_seconds > 0 else None
        fields = {
            "no.": str(record.launch + 1),
            "started (UTC)": f"{record.started:%Y-%m-%d %H:%M:%S}",
            "attempt": str(record.attempt + 1),
            "counts": "yes" if each.counts else "no",
            "disturbed": "yes" if each.disturbed else "no",
            "ended": ended,
            "median step": _seconds(_median(timed)),
            "timed steps": str(outcome.observed_steps()),
            "warm-up steps": str(len(outcome.warmup_ns)),
            "first step": _seconds(outcome.first_step_seconds),
            "final loss": MISSING if outcome.final_loss is None else number(outcome.final_loss),
            "parity": _of(parity, "verdict"),
            "loss error / allowed": _within(*_pair(parity, "loss_error", "loss_tolerance")),
            "update error / allowed": _within(*_pair(parity, "update_error", "update_tolerance")),
            "threads asked": _of(threads, "requested"),
            "framework says": _of(threads, "framework_says"),
            "system saw": _of(threads, "os_threads"),
            "CPU s per s": MISSING if busy is None else number(busy),
            "waited for a CPU": _of(waits, "run_queue_seconds", _seconds),
            "involuntary switches": _of(waits, "involuntary_switches"),
            "stolen by the hypervisor": _of(waits, "steal_seconds", _seconds),
            "CPU time of others": _of(waits, "others_cpu_seconds", _seconds),
            "peak memory": _bytes(outcome.peak_memory_bytes),
        }
        rows.append(fields)
    table = Table("Launches", tuple(rows[0]), tuple(entries(*each.values()) for each in rows))
    return _html(table)


def _pair(part: Any, *names: str) -> tuple[Any, ...]:
    return tuple(None if part is None else getattr(part, name) for name in names)


def _median(timed: Sequence[float]) -> float | None:
    return median(timed) if len(timed) else None


def _version(launch: Launch) -> str:
    software = software_of(launch)
    name = " ".join(str(software[key]) for key in ("framework", "version") if software.get(key))
    return ", ".join(filter(None, (name, launch.record.interpreter, f"environment {launch.record.environment[:12]}")))


class Dots(NamedTuple):
    """One launch or night of a picture."""

    name: str
    values: Sequence[float]
    hollow: bool
    low: float | None = None
    high: float | None = None


def dots_svg(label: str, series: Sequence[Dots], band: Numbers | None, text: Callable[[float], str]) -> Markup:
    """Return series beside one another over one axis of values, with a line and a band for a number."""
    width, height, left, right, top, bottom = 900, 240, 74, 12, 14, 30
    found = [value for each in series for value in (*each.values, each.low, each.high) if value is not None]
    found += [value for value in band or () if value is not None]
    low, high = min(found), max(found)
    low, high = (low * 0.98, high * 1.02) if low == high else (low - (high - low) / 20, high + (high - low) / 20)
    gap = 2.0
    step = (width - left - right) / (sum(len(each.values) for each in series) + gap * len(series))

    def down(value: float) -> float:
        return round(top + (height - top - bottom) * (high - value) / (high - low), 1)

    marks = [
        Markup('<path class="grid" d="M{} {}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>').format(
            left, down(value), width - right, left - 6, down(value) + 4, text(value)
        )
        for value in (low + (high - low) * share for share in (0.05, 0.5, 0.95))
    ]
    if band is not None and band[1] is not None and band[2] is not None:
        tall = max(1.0, round(down(band[1]) - down(band[2]), 1))
        box = '<rect class="band" x="{}" y="{}" width="{}" height="{}"/>'
        marks.append(Markup(box).format(left, down(band[2]), width - left - right, tall))
    if band is not None:
        marks.append(Markup('<path class="median" d="M{} {}H{}"/>').format(left, down(band[0]), width - right))
    x, labelled = left + step * gap / 2, -100.0
    for each in series:
        middle = round(x + step * len(each.values) / 2, 1)
        if each.low is not None and each.high is not None:
            marks.append(
                Markup('<path class="whisker" d="M{} {}V{}"/>').format(middle, down(each.low), down(each.high))
            )
        dots = "".join(f"M{x + step * (place + 0.5):.1f} {down(value)}h0" for place, value in enumerate(each.values))
        marks.append(Markup('<path class="dots{}" d="{}"/>').format(" hollow" if each.hollow else "", dots))
        if middle - labelled > 8 * len(each.name) + 8:
            marks.append(
                Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(middle, height - 10, each.name)
            )
            labelled = middle
        x += step * (len(each.values) + gap)
    svg = '<svg class="plot" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}">{}</svg>'
    drawn = Markup(svg).format(label, width, height, width, Markup("").join(marks))
    return Markup('<div class="wide" role="group" aria-label="{}" tabindex="0">{}</div>').format(label, drawn)


def _steps(launches: Sequence[Launch], cell: CellResult, thinned: int) -> Markup:
    series = [
        Dots(str(each.record.launch + 1), each.record.outcome.step_seconds()[::thinned], not each.counts)
        for each in launches
        if len(each.record.outcome.samples_ns)
    ]
    if not series:
        return Markup("")
    band = numbers(cell).get("seconds")
    some = f" One of {thinned} steps is shown." if thinned > 1 else ""
    caption = (
        "One dot for each timed step, launch by launch; line and band: the median and its interval; hollow: a launch "
        "that does not count." + some
    )
    label = f"Seconds of every timed step of {len(series)} launch{'es' * (len(series) > 1)}"
    return Markup("<h3>Every step</h3><figure>{}<figcaption>{}</figcaption></figure>").format(
        dots_svg(label, series, band, _seconds), caption
    )


def _nights(history: CellHistory) -> Markup:
    series, ratios = history.series, history.series.kind == "ratio"
    first = max(0, len(series) - MOST_NIGHTS)
    nights = [series.night(place) for place in range(first, len(series))]

    def text(value: float) -> str:
        return f"{number(value)}×" if ratios else _seconds(value)  # noqa: RUF001

    picture = dots_svg(
        f"{len(nights)} nights of this cell",
        [Dots(each.started[5:10], [each.value], not each.searched, each.low, each.high) for each in nights],
        None,
        text,
    )
    changes = [
        f"From {series.night(each.place).started[:10]} on {number(each.ratio)}× the time "  # noqa: RUF001
        f"({ends((each.ratio, each.low, each.high))}){', not confirmed yet: too few nights since' * each.pending}."
        for each in history.changes
        if each.place >= first
    ]
    if not changes:
        enough = int(series.searched.sum()) > ENOUGH_NIGHTS
        changes = [
            "No change of its level is found in these nights." if enough else "Too few nights to look for a change."
        ]
    caveat = CAVEATS[series.kind]
    notes = [*changes, f"Hollow: disturbed by other programs throughout. {caveat[:1].upper()}{caveat[1:]}."]
    heading = "By night, candidate over baseline" if ratios else "By night"
    items = Markup("").join(Markup("<li>{}</li>").format(each) for each in notes)
    return Markup('<h3>{}</h3><figure>{}</figure><ul class="notes">{}</ul>').format(heading, picture, items)

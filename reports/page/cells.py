"""An opened cell as HTML: its numbers, launches, steps, nights and software, and the command that
measures it again.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from markupsafe import Markup, escape

from dlbench.adapters.axes import NAMES, word
from dlbench.adapters.protocol import Outcome
from dlbench.reports.columns import Column, table
from dlbench.reports.formats.layout import MISSING, Page, Table, entries, why_hole
from dlbench.reports.formats.markup import page_to_html, rendered
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import CAVEATS
from dlbench.reports.history.nights import Series as NightSeries
from dlbench.reports.history.report import drift_words
from dlbench.reports.page.data import ends, newest_nights, numbers, rerun_command, software_of
from dlbench.reports.page.document import Document, Launch
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import axis_value
from dlbench.reports.results.naming import group_name, rest_of
from dlbench.reports.results.number_text import amount, deviation, number
from dlbench.reports.results.quantities import OF_LAUNCHES, QUANTITIES, Numbers, title_of
from dlbench.reports.results.safe_text import one_line
from dlbench.reports.results.thread_evidence import observe

MOST_DOTS = 60_000
"""Steps drawn on a page: with more, pictures show every second, third, ... step."""


def cell_html(document: Document, cell: CellResult, software: int | None, thinned: int) -> Markup:
    """Return the content of a cell's dialog; the script inserts the list of ``software``."""
    launches = document.launches_of(cell)
    command = rerun_command(document, cell)
    was = "; ".join([*dict.fromkeys(map(_version, launches)), f"dlbench {document.version}"])
    series = [
        (
            str(each.record.launch + 1),
            each.record.outcome.step_seconds()[::thinned],
            not each.counts,
            None,
            None,
        )
        for each in launches
        if each.record.outcome.samples_ns
    ]
    label = f"Seconds of every timed step of {len(series)} launch{'es' * (len(series) > 1)}"
    values = ((name, axis_value(cell.cell, name)) for name in NAMES)
    axes = [
        *((name, None if value is None else word(name, value)) for name, value in values),
        ("run", cell.run),
    ]
    return rendered(
        "cell.html.j2",
        one_line,
        heading=rest_of(cell.cell),
        where=f"{group_name(cell.cell)} · {document.matrix.hosts[cell.machine].name}",
        reason="" if cell.shown else _whole(why_hole(cell), 20_000),
        numbers=_numbers(cell) if cell.shown else "",
        flags=cell.flags,
        steps=dots_svg(label, series, numbers(cell).get("seconds"), _seconds) if series else "",
        thinned=thinned,
        launches=page_to_html(Page((), (table(_LAUNCHES, launches, "Launches"),)))
        if launches
        else "",
        nights=[_nights(each) for each in document.histories.get((cell.machine, cell.cell), ())],
        command=_whole(command, 4000),
        was=_whole(was, 4000),
        software=software,
        facts=facts_html(axes),
    )


def facts_html(facts: Iterable[tuple[str, Any]]) -> Markup:
    """Return names and values as a list; of an object its items."""
    known = [(name, value) for name, value in facts if value not in (None, "", {}, [], ())]
    return rendered("facts.html.j2", one_line, facts=known)


def _whole(text: str, most: int) -> Markup:
    return escape(one_line(text, most))


def _numbers(cell: CellResult) -> Markup:
    timed = cell.seconds
    assert timed is not None  # it is shown
    rows = tuple(
        entries(
            title_of(name, [cell]),
            amount(each[0]),
            deviation(*each) or MISSING,
            ends(each) or MISSING,
        )
        for name, each in numbers(cell).items()
    )
    covered = "interval" if timed.coverage is None else f"{timed.coverage:.0%} interval"
    uncovered = "" if timed.covers_launches else " It does not cover variation between launches."
    notes = [f"Interval: {timed.method}.{uncovered}"]
    notes += [
        f"{QUANTITIES[name].title}: not measured; {why}." for name, why in cell.unmeasured.items()
    ]
    if cell.best:
        notes.append("★ The fastest of its column, or no slower than noise explains.")
    return page_to_html(
        Page((), (Table("Numbers", ("quantity", "median", "±", covered), rows, tuple(notes)),))
    )


def _seconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    factor, unit = next(
        (
            (factor, unit)
            for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs"))
            if value * factor >= 1
        ),
        (1e9, "ns"),
    )
    return f"{number(value * factor)} {unit}"


def _within(error: float | None, tolerance: float | None) -> str:
    return " / ".join(MISSING if each is None else f"{each:.1e}" for each in (error, tolerance))


def _launch_columns() -> Iterable[Column[Launch]]:
    def column(
        heading: str, value: Callable[[Outcome], Any], text: Callable[[Any], str] = str
    ) -> Column[Launch]:
        def shown(launch: Launch) -> str:
            found = value(launch.record.outcome)
            return MISSING if found is None else text(found)

        return Column("", heading, lambda launch: None, shown)

    def part(
        name: str, heading: str, field: str, text: Callable[[Any], str] = str
    ) -> Column[Launch]:
        return column(heading, lambda outcome: getattr(getattr(outcome, name), field, None), text)

    def errors(name: str) -> Callable[[Outcome], str]:
        return lambda outcome: _within(
            getattr(outcome.parity, f"{name}_error", None),
            getattr(outcome.parity, f"{name}_tolerance", None),
        )

    yield Column("", "no.", lambda launch: str(launch.record.launch + 1))
    yield Column("", "started (UTC)", lambda launch: f"{launch.record.started:%Y-%m-%d %H:%M:%S}")
    yield Column("", "attempt", lambda launch: str(launch.record.attempt + 1))
    yield Column("", "counts", lambda launch: launch.counts)
    yield Column("", "disturbed", lambda launch: launch.disturbed)
    yield column(
        "ended",
        lambda outcome: ": ".join(filter(None, (outcome.status.replace("_", " "), outcome.reason))),
    )
    yield column("median step", lambda outcome: outcome.median_seconds(), _seconds)
    yield column("timed steps", lambda outcome: outcome.observed_steps())
    yield column("warm-up steps", lambda outcome: len(outcome.warmup_ns))
    yield column("first step", lambda outcome: outcome.first_step_seconds, _seconds)
    yield column("final loss", lambda outcome: outcome.final_loss, number)
    yield part("parity", "parity", "verdict")
    yield column("loss error / allowed", errors("loss"))
    yield column("update error / allowed", errors("update"))
    yield part("threads", "threads asked", "requested")
    yield part("threads", "framework says", "framework_says")
    yield part("threads", "system saw", "os_threads")
    yield column(
        "CPU s per s", lambda outcome: getattr(observe([outcome]), "cpu_per_wall", None), number
    )
    yield part("contention", "waited for a CPU", "run_queue_seconds", _seconds)
    yield part("contention", "involuntary switches", "involuntary_switches")
    yield part("contention", "stolen by the hypervisor", "steal_seconds", _seconds)
    yield part("contention", "CPU time of others", "others_cpu_seconds", _seconds)
    yield column("peak memory, MiB", OF_LAUNCHES["memory"][2], number)


_LAUNCHES = tuple(_launch_columns())


def _version(launch: Launch) -> str:
    software = software_of(launch)
    name = " ".join(str(software[key]) for key in ("framework", "version") if software.get(key))
    return ", ".join(
        filter(
            None, (name, launch.record.interpreter, f"environment {launch.record.environment[:12]}")
        )
    )


Series = tuple[str, Sequence[float], bool, float | None, float | None]
"""One launch or night of a picture: name, values, whether its dots are hollow, ends of an
interval."""


def dots_svg(
    label: str, series: Sequence[Series], band: Numbers | None, text: Callable[[float], str]
) -> Markup:
    """Return series beside one another over one axis of values, with a line and a band for a
    number.
    """
    width, height, left, right, top, bottom = 900, 240, 74, 888, 14, 30
    everything = [
        *(band or ()),
        *(value for _, values, _, *interval in series for value in (*values, *interval)),
    ]
    known: list[float] = [value for value in everything if value is not None]
    low, high = min(known), max(known)
    low, high = (
        (low * 0.98, high * 1.02)
        if low == high
        else (low - (high - low) / 20, high + (high - low) / 20)
    )
    gap = 2.0
    step = (right - left) / (sum(len(values) for _, values, *_ in series) + gap * len(series))

    def down(value: float | None) -> float | None:
        return (
            None
            if value is None
            else round(top + (height - top - bottom) * (high - value) / (high - low), 1)
        )

    drawn: list[dict[str, Any]] = []
    x, last = left + step * gap / 2, -100.0
    for name, values, hollow, lowest, highest in series:
        middle = round(x + step * len(values) / 2, 1)
        dots = "".join(
            f"M{x + step * (place + 0.5):.1f} {down(value)}h0" for place, value in enumerate(values)
        )
        labelled = middle - last > 8 * len(name) + 8
        ends = {"middle": middle, "low": down(lowest), "high": down(highest)}
        drawn.append(
            {**ends, "dots": Markup(dots), "hollow": hollow, "labelled": labelled, "name": name}
        )
        last = middle if labelled else last
        x += step * (len(values) + gap)
    ticks = [
        (down(value), text(value))
        for value in (low + (high - low) * share for share in (0.05, 0.5, 0.95))
    ]
    size = {"width": width, "height": height, "left": left, "right": right}
    line = band and tuple(map(down, band))
    return rendered(
        "dots.html.j2", one_line, label=label, ticks=ticks, band=line, series=drawn, **size
    )


def _nights(series: NightSeries) -> tuple[str, Markup, list[str]]:
    """Return heading, picture and notes."""
    ratios = series.kind == "ratio"
    _, nights, changed = newest_nights(series)

    def text(value: float) -> str:
        return f"{number(value)}×" if ratios else _seconds(value)  # noqa: RUF001

    picture = dots_svg(
        f"{len(nights)} nights of this cell",
        [
            (each.started[5:10], [each.value], not each.searched, each.low, each.high)
            for each in nights
        ],
        None,
        text,
    )
    changes = [
        f"Since {series.night(each.place).started[:10]}: {number(each.ratio)}× "  # noqa: RUF001
        f"the time before ({ends((each.ratio, each.low, each.high))})"
        f"{', not confirmed yet: too few nights since' * each.pending}."
        for each in changed
    ]
    if series.drift is not None:
        changes.append(
            f"{series.drift.first_night.started[:10]} on: {drift_words(series, series.drift)}."
        )
    if not series.comparable:
        changes = [
            (
                "Not searched for changes: the machine is unknown, and the nights may come from "
                "several."
            )
        ]
    elif not changes:
        enough = int(series.searched.sum()) > ENOUGH_NIGHTS
        changes = [
            "No change of level was found in these nights."
            if enough
            else "Too few nights to look for a change."
        ]
    caveat = CAVEATS[series.kind]
    notes = [
        *changes,
        f"Hollow: disturbed by other programs throughout. {caveat[:1].upper()}{caveat[1:]}.",
    ]
    return "By night, candidate over baseline" if ratios else "By night", picture, notes

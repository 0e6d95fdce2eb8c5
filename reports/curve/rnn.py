"""Small recurrent networks, as Brandfonbrener 2017 studied them: time by time steps and units.

A curve is a row of the matrix at a place, over the sizes of networks of the family elman. Networks
with leaky units, unusual gradient clipping, or different numbers of outputs and inputs take no
part: no study has them.

Five questions: the times; straight lines through them over the time steps, T = c + s n_steps; their
growth with the units, and the number of units from which more threads pay; the crossings of
devices, machines and thread counts; rows compared.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column, attributes, objects, within
from dlbench.reports.curve.curve import (
    Curve,
    CurvePoint,
    Curves,
    adjust_together,
    best_times,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    find_knee,
    finding_columns,
    grid,
    points_of,
    usable,
)
from dlbench.reports.curve.elman import FAMILY, Size, sizes_of
from dlbench.reports.curve.fits import Crossing, crossing, fit_line
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report, ReportSource
from dlbench.reports.results import flag_kinds, quantities
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import place_name, rest_of, row_name, threads_name, work_name
from dlbench.reports.results.networks import Networks, networks_of
from dlbench.reports.results.number_text import number
from dlbench.reports.results.published import BRANDFONBRENER2017, UPDATES, networks_of_2017
from dlbench.reports.results.published import study as published_study
from dlbench.reports.results.published_matrix import published_matrix
from dlbench.reports.results.statistics import (
    Contrast,
    Estimate,
    RatioVerdict,
    Summary,
    contrast,
    geometric_mean,
    ratio,
)

FLAT = 1.1
"""Up to this many times the time of the smallest network, growth does not count."""
NOTHING = "No small recurrent network was measured yet: `dlbench run rnn`."


def _milliseconds(seconds: float, size: Size) -> float:
    return seconds * 1e3


def _microseconds_of_time_step(seconds: float, size: Size) -> float:
    return seconds * 1e6 / size.steps


def _seconds_of_time_step(seconds: float, size: Size) -> float:
    return seconds / size.steps


def _seconds_of_run(seconds: float, size: Size) -> float:
    return seconds * UPDATES


QUANTITIES: dict[str, tuple[str, Callable[[float, Size], float]]] = {
    "update": ("milliseconds of an update", _milliseconds),
    "step": ("microseconds of an update for each time step", _microseconds_of_time_step),
    "paper": (f"seconds of {UPDATES} updates, the paper's run", _seconds_of_run),
}
"""Quantities of the first table, of the seconds of an update."""


_SERIES = Size._fields[1:]
Times = Mapping[Size, Summary]
ByUnits = Mapping[int, Summary]


class CrossingSide(NamedTuple):
    """A side of a crossing: a device with the best time at each size, or one thread count."""

    name: str
    curve: "SizeCurve"
    """Any of its curves."""
    times: Times


class FittedLine(NamedTuple):
    """A straight line over the time steps, of networks with these numbers."""

    hidden: int
    inputs: int
    activation: str
    steps: tuple[int, ...]
    fixed: Estimate
    per_step: Estimate
    largest_residual: float | None


class UnitsKnee(NamedTuple):
    """The number of units from which growth counts, or None where it never does."""

    hidden: int | None
    earliest: int | None
    latest: int | None


class GrownSize(NamedTuple):
    """The growth of the time up to a number of units."""

    hidden: int
    ratio: Estimate
    """Over the time of the smallest."""
    exponent: Estimate | None
    """From the next smaller number of units."""


class Growth(NamedTuple):
    """The growth of a time with the units."""

    knee: UnitsKnee
    sizes: list[GrownSize]


class SeriesGrowth(NamedTuple):
    """The growth with the units, of networks with these numbers."""

    steps: int
    inputs: int
    activation: str
    knee: UnitsKnee
    sizes: list[GrownSize]

    @property
    def size(self) -> Size:
        """The numbers that its networks share."""
        return Size(0, self.steps, self.inputs, self.activation)


class SizeFindings(NamedTuple):
    """The findings about a curve."""

    fits: list[FittedLine]
    growth: list[SeriesGrowth]


SizePoint = CurvePoint[Size, None]
SizeCurve = Curve[Size, None, SizeFindings]


class UnitsCompared(NamedTuple):
    """More threads against one, with this number of units."""

    hidden: int
    ratio: Estimate
    p_adjusted: float | None
    verdict: RatioVerdict


class ThreadsCompared(NamedTuple):
    """A row with more threads against the same row with one."""

    curve: SizeCurve
    one: SizeCurve
    size: Size
    """The numbers that the compared networks share."""
    faster_from: int | None
    sizes: list[UnitsCompared]
    against: int = 1


class NamedSide(NamedTuple):
    """A side of a crossing, as JSON has it."""

    machine: str
    machine_name: str
    name: str
    device: str
    batch_size: int | None


class SeriesCrossing(NamedTuple):
    """The number of units from which the second side is faster."""

    curve: SizeCurve
    """A curve of the second side."""
    what: str
    """The row, or the framework."""
    first: NamedSide
    second: NamedSide
    size: Size
    """The numbers that the networks share."""
    crossing: Crossing


class ComparedRow(NamedTuple):
    """A row against the fastest rows of its machine and work."""

    curve: SizeCurve
    times_fastest: Estimate
    """The mean over its networks."""
    sizes: int
    """Its networks."""
    compared: int
    """All networks compared."""
    fastest_at: tuple[Size, ...]


class SizeConclusions(NamedTuple):
    """The findings about several curves together."""

    threads: list[ThreadsCompared]
    crossings: list[SeriesCrossing]
    compared: list[ComparedRow]
    published: "SizeCurves | None" = None
    """A published study to show too."""


SizeCurves = Curves[Size, None, SizeFindings, SizeConclusions]


def study(matrix: Matrix, networks: Networks) -> SizeCurves:
    """Return the study of these networks in the matrix."""
    curves = []
    for place, cells in sizes_of(matrix, networks).items():
        name = name_among(matrix.hosts, place.machine)
        host = replace(matrix.hosts[place.machine], name=name)
        points = []
        times = {}
        for size in sorted(cells):
            seconds = usable(cells[size])
            points.append(CurvePoint(size, cells[size], seconds, None))
            if seconds is not None:
                times[size] = seconds
        curves.append(Curve(host, place.cell, tuple(points), _find(times)))
    threads = _compare_threads(curves)
    crossings = [*_crossings_of_threads(curves, threads), *_crossings_of_places(curves)]
    conclusions = SizeConclusions(threads, crossings, list(_compare_rows(curves)))
    return Curves(tuple(curves), matrix.notes if curves else (), conclusions)


def series(times: Times, name: str = "hidden") -> dict[Size, dict[int, Summary]]:
    """Return the times of networks that differ in one number alone, by its rising values."""
    cleared: dict[str, Any] = {name: 0}

    def order(size: Size) -> tuple[object, ...]:
        return size.activation, size.inputs, size._replace(**cleared), size

    by_size: dict[Size, dict[int, Summary]] = {}
    for size in sorted(times, key=order):
        by_size.setdefault(size._replace(**cleared), {})[getattr(size, name)] = times[size]
    return by_size


def _find(times: Times) -> SizeFindings:
    """Return straight lines over the time steps, and the growth over the units."""
    fits = []
    for size, times_by_steps in series(times, "steps").items():
        if len(times_by_steps) > 1:
            line = fit_line(times_by_steps)
            fits.append(FittedLine(size.hidden, size.inputs, size.activation, *line))
    grown = []
    for size, times_by_units in series(times).items():
        if len(times_by_units) > 1:
            grown.append(SeriesGrowth(*size[1:], *growth(times_by_units)))
    return SizeFindings(fits, grown)


def growth(times: ByUnits) -> Growth:
    """Return the growth of at least two seconds with the rising number of units.

    For each number of units: T over T of the smallest, and the exponent with which T grows from the
    next smaller number of units. The knee is the smallest number of units that takes over `FLAT`
    times as long as the smallest of all.
    """
    smallest = next(iter(times))
    smaller = None
    ratios = {}
    sizes = []
    for units, seconds in times.items():
        exponent = None
        if smaller is None:
            over_smallest = Estimate(1.0, 1.0, 1.0, "the smallest itself")
        else:
            over_smallest = ratio(seconds, times[smallest])
            exponent = _exponent(smaller, units, times)
        ratios[units] = over_smallest
        sizes.append(GrownSize(units, over_smallest, exponent))
        smaller = units
    return Growth(UnitsKnee(*find_knee(ratios, _grows, _may_grow, _surely_grows)), sizes)


def _exponent(few: int, many: int, times: ByUnits) -> Estimate:
    """Return the power of the number of units with which the time grows between two of them."""

    def power(value: float) -> float:
        return math.log(value) / math.log(many / few)

    return ratio(times[many], times[few]).changed(power)


def _grows(over_smallest: Estimate) -> bool:
    return over_smallest.value > FLAT


def _may_grow(over_smallest: Estimate) -> bool:
    high = over_smallest.value if over_smallest.high is None else over_smallest.high
    return high > FLAT


def _surely_grows(over_smallest: Estimate) -> bool:
    low = over_smallest.value if over_smallest.low is None else over_smallest.low
    return low > FLAT


def _compare_threads(curves: Sequence[SizeCurve]) -> list[ThreadsCompared]:
    """Compare each row's time with a thread for each core, or the most below, with that of one."""
    sides: list[tuple[SizeCurve, SizeCurve, Size]] = []
    contrasts: list[dict[int, Contrast]] = []
    for one in curves:
        if not one.cell.on_cpu or one.cell.threads != 1:
            continue
        more = _most_threads(one, curves)
        if more is one:
            continue
        times_of_one = series(one.times)
        for size, times in series(more.times).items():
            by_units = {}
            for units, seconds in times_of_one.get(size, {}).items():
                if units in times:
                    by_units[units] = contrast(more.cell.threads, 1, times[units], seconds)
            if by_units:
                sides.append((more, one, size))
                contrasts.append(by_units)
    rows = []
    # All rows are one family of comparisons.
    for (more, one, size), by_units in zip(sides, adjust_together(contrasts), strict=True):
        verdicts = {}
        sizes = []
        for units, compared in by_units.items():
            verdict = compared.verdict
            verdicts[units] = verdict
            sizes.append(UnitsCompared(units, compared.ratio, compared.p_adjusted, verdict))
        rows.append(ThreadsCompared(more, one, size, faster_from(verdicts), sizes))
    return rows


def _most_threads(one: SizeCurve, curves: Iterable[SizeCurve]) -> SizeCurve:
    """Return the curve of this row with the most threads, at most one for each core."""
    cores = one.host.own_cores or math.inf
    same_row = []
    for curve in curves:
        if (
            curve.host == one.host
            and curve.cell._replace(threads=1) == one.cell
            and curve.cell.threads <= cores
        ):
            same_row.append(curve)
    return max(same_row, key=lambda curve: curve.cell.threads)


def faster_from(verdicts: Mapping[int, RatioVerdict]) -> int | None:
    """Return the smallest number of units from which more threads are always clearly faster.

    Return None where there is no such number.
    """
    smallest = None
    for units in reversed(list(verdicts)):
        if verdicts[units] is not RatioVerdict.FASTER:
            break
        smallest = units
    return smallest


def _crossings_of_threads(
    curves: Sequence[SizeCurve], compared: Iterable[ThreadsCompared]
) -> Iterator[SeriesCrossing]:
    """Yield the number of units from which a row is faster with more threads."""
    for row in {row.curve.place: row for row in compared}.values():
        sides = []
        for curve in (row.one, row.curve):
            name = place_name(curve.cell) + _machine_suffix(curves, curve)
            sides.append(CrossingSide(name, curve, curve.times))
        yield from _cross(sides[0], sides[1], row_name(row.curve.cell))


def _crossings_of_places(curves: Sequence[SizeCurve]) -> Iterator[SeriesCrossing]:
    """Yield the number of units from which another device or machine is faster.

    A framework is compared with itself, on each device at its best.
    """
    shared_axes = ("framework", "batch_size", "precision", "placement", "storage", "tuning")

    def shared_cell(curve: SizeCurve) -> Cell:
        return axes.project(curve.cell, shared_axes)

    for shared, alike in grouped(curves, shared_cell).items():
        sides = []
        for curves_of_device in grouped(alike, _machine_and_device).values():
            first_curve = curves_of_device[0]
            name = first_curve.cell.device + _machine_suffix(curves, first_curve)
            sides.append(CrossingSide(name, first_curve, best_times(curves_of_device)))
        for first, second in combinations(sides, 2):
            first_on_cpu = first.curve.cell.on_cpu
            swap = first_on_cpu is second.curve.cell.on_cpu
            if swap or first_on_cpu:
                yield from _cross(first, second, row_name(shared), swap=swap)
            else:
                yield from _cross(second, first, row_name(shared))


def _machine_and_device(curve: SizeCurve) -> tuple[str, str]:
    return curve.host.fingerprint, curve.cell.device


def _machine_suffix(curves: Iterable[SizeCurve], curve: SizeCurve) -> str:
    """Return the suffix that names a machine where there are several."""
    machines = {other.host.fingerprint for other in curves}
    if len(machines) == 1:
        return ""
    return f" of {curve.host.name}"


def _cross(
    first: CrossingSide, second: CrossingSide, what: str, swap: bool = False
) -> Iterator[SeriesCrossing]:
    """Yield the crossing of each series of two sides.

    With ``swap`` the sides change places where the second does not gain with the units.
    """
    series_of_first = series(first.times)
    series_of_second = series(second.times)
    for size, times_of_first in series_of_first.items():
        if size not in series_of_second:
            continue
        slow, slow_times = first, times_of_first
        fast, fast_times = second, series_of_second[size]
        if swap and not _gains(slow_times, fast_times):
            slow, fast = fast, slow
            slow_times, fast_times = fast_times, slow_times
        at = crossing(slow_times, fast_times)
        if at is not None:
            yield SeriesCrossing(fast.curve, what, _named_side(slow), _named_side(fast), size, at)


def _named_side(side: CrossingSide) -> NamedSide:
    host, cell = side.curve.host, side.curve.cell
    return NamedSide(host.fingerprint, host.name, side.name, cell.device, cell.batch_size)


def _gains(first: ByUnits, second: ByUnits) -> bool:
    """Return whether the second is relatively better at the end than at the beginning."""
    gains = [first[units].median / second[units].median for units in first if units in second]
    return not gains or gains[-1] >= gains[0]


def _compare_rows(curves: Iterable[SizeCurve]) -> Iterator[ComparedRow]:
    """Compare the curves of each machine and work, over networks of usual inputs and activation.

    A network takes part if at least half as many curves have it as have the most common one: being
    the fastest of few means little.
    """
    for rivals in grouped(curves, _machine_and_work).values():
        sizes = _common_sizes(rivals)
        fastest = best_times(rivals)
        rows = []
        for curve in rivals:
            times = curve.times
            ratios = []
            fastest_at = []
            for size in sizes:
                if size not in times:
                    continue
                ratios.append(_over_fastest(times[size], fastest[size]))
                if times[size] is fastest[size]:
                    fastest_at.append(size)
            if ratios:
                mean = geometric_mean(ratios)
                rows.append(ComparedRow(curve, mean, len(ratios), len(sizes), tuple(fastest_at)))
        if len(rows) > 1:
            yield from sorted(rows, key=lambda row: row.times_fastest.value)


def _common_sizes(curves: Iterable[SizeCurve]) -> list[Size]:
    """Return the usual sizes that at least half as many curves have as the most common one."""
    counts: Counter[Size] = Counter()
    for curve in curves:
        counts.update(filter(_is_usual, curve.times))
    most = max(counts.values(), default=0)
    return sorted(size for size, count in counts.items() if 2 * count >= most)


def _machine_and_work(curve: SizeCurve) -> tuple[str, Cell]:
    return curve.host.fingerprint, _work_cell(curve)


def _is_usual(size: Size) -> bool:
    return size == Size(size.hidden, size.steps)


def _over_fastest(seconds: Summary, fastest: Summary) -> Estimate:
    if seconds is fastest:
        return Estimate(1.0, 1.0, 1.0, "the fastest itself")
    return ratio(seconds, fastest)


# Tables.


class Field(NamedTuple):
    """The place of an entry: the subtitle of its table, a heading in it, its row and column."""

    subtitle: str
    heading: str
    row: Hashable
    column: str


class Saying(NamedTuple):
    """A sentence of a note about one series of networks."""

    subtitle: str
    head: str
    text: str
    size: Size


def rnn_page(content: SizeCurves, quantity: str) -> Page:
    """Return the five tables and, of a published study, its times and lines."""
    if not content.curves:
        return Page((NOTHING,), (), content.notes)
    studies = [content]
    if content.conclusions.published is not None:
        studies.append(content.conclusions.published)
    tables: list[Table] = []
    notes: list[str] = []
    for one_study in studies:
        tables += _times_tables(one_study, quantity)
        tables += _line_tables(one_study)
        notes += one_study.notes
    tables += _growth_tables(content)
    tables += _threads_tables(content)
    tables += _crossing_tables(content)
    tables += _compared_tables(content)
    title = "Small recurrent networks: n_rec units down, n_steps time steps across."
    return Page((title,), tuple(tables), (*_legend(content), *notes))


def _pivot(
    title: str,
    fields: Mapping[Field, Entry],
    notes: Mapping[str, Sequence[str]],
    corner: str = "n_rec",
) -> Iterator[Table]:
    """Yield a table for each subtitle, in their order, with its notes."""
    for subtitle, fields_of_table in grouped(fields, lambda field: field.subtitle).items():
        columns = sorted({field.column for field in fields_of_table}, key=_column_order)
        lines: list[tuple[Entry, ...]] = []
        for heading, block in grouped(fields_of_table, lambda field: field.heading).items():
            if heading:
                lines.append((Entry(heading),))
            entries = {(field.row, field.column): fields[field] for field in block}
            lines += grid(entries, columns)
        head = (corner, *columns)
        yield Table(f"{title}: {subtitle}", head, tuple(lines), tuple(notes.get(subtitle, ())))


def _column_order(column: str) -> tuple[bool, int]:
    """Return a sort key that puts the time steps first, then the numbers of inputs."""
    return column.startswith("i"), int(column.removeprefix("i"))


def _title(curve: SizeCurve, size: Size) -> str:
    """Return the subtitle of a table: "AMD EPYC, relu, mini-batch 1"."""
    return f"{curve.host.name}, {_work(curve, size)}"


def _work_cell(curve: SizeCurve) -> Cell:
    """Return the axes of curves that do the same work."""
    return axes.project(curve.cell, ("batch_size", "precision", "placement", "storage"))


def _work(curve: SizeCurve, size: Size) -> str:
    """Return the work: "relu, mini-batch 1", with unusual inputs the time steps too."""
    steps = "" if size.inputs == 2 else f", n_steps {size.steps}"
    return work_name(_work_cell(curve)._replace(network=size.activation)) + steps


def _column(size: Size) -> str:
    """Return the head of a column: the time steps, or the inputs where they are unusual."""
    return str(size.steps) if size.inputs == 2 else f"i{size.inputs}"


def _inputs_suffix(count: int) -> str:
    return "" if count == 2 else f" i{count}"


def _series_name(size: Size) -> str:
    """Return a series in a sentence: "20", "20 i10"."""
    return f"{size.steps}{_inputs_suffix(size.inputs)}"


def _times_tables(content: SizeCurves, quantity: str) -> Iterator[Table]:
    title, value = QUANTITIES[quantity]
    points = points_of(content.curves)
    common = layout.common_flags(point.cell for point in points if point.cell.shown)
    fields: dict[Field, Entry] = {}
    holes: dict[str, list[tuple[str, str, str]]] = {}
    for curve in content.curves:
        name = rest_of(curve.cell)
        for point in curve.points:
            size, cell = point.at, point.cell
            subtitle = _title(curve, size)
            entry = layout.entry(cell, quantities.QUANTITIES["seconds"], common)
            entry = entry._replace(best=False)
            if not entry.hole and cell.seconds is not None:
                entry = entry._replace(text=number(value(cell.seconds.median, size)))
            fields[Field(subtitle, name, size.hidden, _column(size))] = entry
            if not cell.shown:
                where = f"n_rec {size.hidden}, n_steps {_series_name(size)}"
                holes.setdefault(subtitle, []).append((layout.why_hole(cell), name, where))
    notes = {}
    for subtitle, holes_of_table in holes.items():
        notes[subtitle] = layout.reasons(holes_of_table)
    yield from _pivot(title.capitalize(), fields, notes)


def _line_tables(content: SizeCurves) -> Iterator[Table]:
    lines_by_title: dict[str, list[tuple[Entry, ...]]] = {}
    for curve in content.curves:
        for fit in curve.findings.fits:
            title = _title(curve, Size(0, 0, activation=fit.activation))
            lines = lines_by_title.setdefault(title, [])
            heading = (Entry(rest_of(curve.cell)),)
            if heading not in lines:
                lines.append(heading)
            name = f"{fit.hidden}{_inputs_suffix(fit.inputs)}"
            fixed = _microseconds(fit.fixed)
            per_step = _microseconds(fit.per_step)
            residual = "" if fit.largest_residual is None else f"{fit.largest_residual:.1%}"
            lines.append(layout.entries(name, fixed, per_step, residual))
    head = ("n_rec", "c, us", "s, us", "residual")
    for title, lines in lines_by_title.items():
        yield Table(f"T = c + s n_steps: {title}", head, tuple(lines))


def _microseconds(seconds: Estimate) -> str:
    """Return an estimate in microseconds with half the width of its interval: "157±4.2"."""
    text = number(seconds.value * 1e6)
    if seconds.high is None:
        return text
    return f"{text}±{number((seconds.high - seconds.value) * 1e6)}"


def _notes(sayings: Iterable[Saying]) -> dict[str, list[str]]:
    """Return the notes of each subtitle: a head's sayings, each with its time steps."""
    notes: dict[str, list[str]] = {}
    for (subtitle, head), sayings_of_head in grouped(sayings, operator.itemgetter(0, 1)).items():
        parts = []
        for text, alike in grouped(sayings_of_head, lambda saying: saying.text).items():
            steps = ", ".join(_series_name(saying.size) for saying in alike)
            parts.append(f"{text} (n_steps {steps})")
        notes.setdefault(subtitle, []).append(f"{head} {'; '.join(parts)}.")
    return notes


def _growth_tables(content: SizeCurves) -> Iterator[Table]:
    fields: dict[Field, Entry] = {}
    knees = []
    for curve in content.curves:
        name = rest_of(curve.cell)
        for grown in curve.findings.growth:
            title = _title(curve, grown.size)
            knees.append(Saying(title, f"{name}: knee", knee_words(*grown.knee), grown.size))
            for size in grown.sizes:
                field = Field(title, name, size.hidden, _column(grown.size))
                fields[field] = _growth_entry(size.ratio, size.exponent)
    yield from _pivot("T over T of the fewest units", fields, _notes(knees))


def _growth_entry(over_smallest: Estimate, exponent: Estimate | None) -> Entry:
    if exponent is None:
        return Entry(f"{number(over_smallest.value)}x")
    power = round(exponent.value, 2) + 0.0  # no "-0.00"
    return layout.multiple(over_smallest, f" ^{power:.2f}")


def knee_words(hidden: int | None, earliest: int | None, latest: int | None) -> str:
    """Return the number of units at the knee: "100", "100 (20 to 200)", "none"."""
    words = []
    for units in (hidden, earliest, latest):
        words.append("none" if units is None else str(units))
    knee, first, last = words
    if first == last == knee:
        return knee
    return f"{knee} ({first} to {last})"


def _threads_tables(content: SizeCurves) -> Iterator[Table]:
    fields: dict[Field, Entry] = {}
    sayings = []
    for row in content.conclusions.threads:
        cell = row.curve.cell
        title = _title(row.curve, row.size)
        units = [size.hidden for size in row.sizes]
        words = threads_words(cell.threads, row.faster_from, units)
        sayings.append(Saying(title, f"{row_name(cell)}:", words, row.size))
        for size in row.sizes:
            field = Field(title, rest_of(cell), size.hidden, _column(row.size))
            fields[field] = layout.multiple(size.ratio, best=size.verdict is RatioVerdict.FASTER)
    yield from _pivot("T with a thread for each core over T with one", fields, _notes(sayings))


def threads_words(threads: int, smallest_faster: int | None, units: Sequence[int]) -> str:
    """Return how many threads to use, from the units compared and the first with a gain."""
    if smallest_faster is None:
        return f"use 1 thread up to n_rec {units[-1]}, the largest measured"
    if smallest_faster == units[0]:
        return f"use {threads_name(threads)} from n_rec {units[0]} on, the smallest measured"
    return f"use 1 thread below n_rec {smallest_faster}"


def _crossing_tables(content: SizeCurves) -> Iterator[Table]:
    fields: dict[Field, Entry] = {}
    for crossed in content.conclusions.crossings:
        title = _work(crossed.curve, crossed.size)
        row = f"{crossed.what}: {crossed.first.name}, {crossed.second.name}"
        fields[Field(title, "", row, _column(crossed.size))] = Entry(crossed.crossing.words)
    yield from _pivot("n_rec from which on the second is faster", fields, {}, corner="")


def _compared_tables(content: SizeCurves) -> Iterator[Table]:
    lines_by_title: dict[str, list[tuple[Entry, ...]]] = {}
    for row in content.conclusions.compared:
        lines = lines_by_title.setdefault(_title(row.curve, Size(0, 0)), [])
        name = Entry(rest_of(row.curve.cell))
        mean = layout.multiple(row.times_fastest, best=not lines)
        share = Entry(f"{row.sizes} of {row.compared}")
        lines.append((name, mean, share, Entry(_describe_sizes(row.fastest_at, row.compared))))
    head = ("", "mean", "over", "fastest at n_rec")
    for title, lines in lines_by_title.items():
        yield Table(f"T over T of the fastest row: {title}", head, tuple(lines), words=True)


def _describe_sizes(sizes: Sequence[Size], compared: int) -> str:
    """Return these of the compared networks in words: all, none, or each by units and steps."""
    if len(sizes) == compared:
        return f"all {compared}"
    share = f"{len(sizes)} of {compared}"
    if not sizes:
        return share
    units: dict[int, list[str]] = {}
    for size in sizes:
        units.setdefault(size.steps, []).append(str(size.hidden))
    words = [f"{', '.join(hidden)} at {steps} steps" for steps, hidden in sorted(units.items())]
    return f"{share}: {'; '.join(words)}"


def _legend(content: SizeCurves) -> Iterator[str]:
    yield f"{layout.HALF_WIDTH}; iN: N inputs and outputs instead of 2."
    if any(curve.findings.fits for curve in content.curves):
        yield (
            "c: fixed time per update, s: time per time step, each ± half of its 95 % interval "
            "(none from two step counts with too few launches); residual: the largest distance of "
            "a time from the line."
        )
    if any(curve.findings.growth for curve in content.curves):
        yield (
            "^: T grows as n_rec to this power, from the previous size. Knee: the smallest n_rec "
            f"that takes over {FLAT:g} times as long as the smallest measured; in brackets: others "
            "that the intervals allow."
        )
    if content.conclusions.threads:
        yield (
            f"{layout.BEST} more threads are clearly faster, Holm-adjusted over all comparisons of "
            "threads."
        )
        sizes: list[UnitsCompared] = []
        for row in content.conclusions.threads:
            sizes += row.sizes
        if any(size.p_adjusted is None for size in sizes):
            yield layout.WIDENED
    if content.conclusions.crossings:
        yield (
            "Crossings: in brackets the 95 % interval; none: no size shows a clear difference. A "
            "device is represented by a framework's fastest mode and thread count."
        )
    points = points_of(content.curves)
    cells = [point.cell for point in points if point.cell.shown]
    if any(cell.timed and cell.has(flag_kinds.THREADS_EXCEEDED) for cell in cells):
        yield f"Times marked {flag_kinds.THREADS_EXCEEDED.symbol} appear in the first table only."
    yield from layout.flag_lines(cells, layout.common_flags(cells))


# JSON and CSV.


def _seconds_column(name: str, convert: Callable[[float, Size], float]) -> Column[SizePoint]:
    def value(point: SizePoint) -> float | None:
        seconds = point.cell.seconds
        if seconds is None:
            return None
        return convert(seconds.median, point.at)

    return Column(name, None, value)


def _curve_of_threads(compared: ThreadsCompared) -> SizeCurve:
    return compared.curve


def _curve_of_row(compared: ComparedRow) -> SizeCurve:
    return compared.curve


_KEYS = curve_columns("network", "specification")
_CURVE = (*_KEYS, *finding_columns("fits", "growth", fits=None, growth=None))
_POINT = (
    *attributes(lambda point: point.at, *Size._fields),
    *cell_columns("status", "reason", "seconds"),
    _seconds_column("seconds_per_time_step", _seconds_of_time_step),
    _seconds_column("seconds_of_a_run", _seconds_of_run),
    *cell_columns("flags"),
)
_THREADS: tuple[Column[ThreadsCompared], ...] = (
    *within(_KEYS, _curve_of_threads),
    *attributes(lambda row: row.size, *_SERIES),
    *attributes(lambda row: row, "against", "faster_from", "sizes"),
)


def _crossing_data(crossed: SeriesCrossing) -> dict[str, Any]:
    return crossed.crossing.data("units")


_CROSSING: tuple[Column[SeriesCrossing], ...] = (
    *attributes(lambda crossed: crossed, "what", "first", "second"),
    *attributes(lambda crossed: crossed.size, *_SERIES),
    *attributes(_crossing_data, "where", "units", "interval", "clear", "smallest", "largest"),
)


_COMPARED: tuple[Column[ComparedRow], ...] = (
    *within(_KEYS, _curve_of_row),
    *attributes(lambda row: row, "times_fastest", "sizes"),
    Column("of", None, lambda row: row.compared),
    *attributes(lambda row: row, "fastest_at"),
)


def rnn_data(content: SizeCurves) -> dict[str, Any]:
    """Return a JSON object: the curves, the conclusions, and the published study."""
    conclusions = content.conclusions
    beside = None
    if conclusions.published is not None:
        beside = rnn_data(conclusions.published)
    return {
        "updates_of_a_run": UPDATES,
        "lines": curve_objects(content.curves, _CURVE, _POINT, "sizes"),
        "threads": objects(_THREADS, conclusions.threads),
        "crossings": objects(_CROSSING, conclusions.crossings),
        "compared": objects(_COMPARED, conclusions.compared),
        "beside": beside,
        "notes": list(content.notes),
    }


def rnn_rows(content: SizeCurves) -> Rows:
    """Return a CSV line for each time, missing ones and those of the published study too."""
    curves = [*content.curves]
    if content.conclusions.published is not None:
        curves += content.conclusions.published.curves
    return curve_rows(curves, _CURVE, _POINT)


def published() -> SizeCurves:
    """Return the study of 2017 without its first trials, which its author calls strangely long."""
    table = published_study(BRANDFONBRENER2017)
    return study(published_matrix(table, first=False), networks_of_2017())


def _analyse(source: ReportSource) -> SizeCurves:
    reference = source.options.reference
    if reference == BRANDFONBRENER2017:
        return published()
    networks: Networks = {}
    if not reference:
        networks = networks_of(source.results().records)
    content = study(source.matrix(), networks)
    if source.options.against:
        conclusions = content.conclusions._replace(published=published())
        content = content._replace(conclusions=conclusions)
    return content


REPORT = Report(
    name="rnn",
    summary="""Small recurrent networks at mini-batch 1, by units and steps.

Five tables: the times; T = c + s n_steps; growth with the units, and the number of units from which
more threads pay; crossings, where one device, machine or thread count becomes faster than another;
rows compared.""",
    examples=(
        "dlbench report rnn",
        "dlbench report rnn --quantity paper --against brandfonbrener2017",
        "dlbench report rnn --reference brandfonbrener2017",
    ),
    analyse=_analyse,
    page=lambda content, options: rnn_page(content, options.quantity),
    data=rnn_data,
    rows=rnn_rows,
    suggestion="small recurrent networks: time by units and steps, when threads pay",
    applies=bool,
    options=frozenset({REFERENCE, ALL_RUNS}),
    published=(BRANDFONBRENER2017,),
    families=frozenset({FAMILY}),
    quantities=tuple(QUANTITIES),
    heading="Small recurrent networks",
    place=70,
)

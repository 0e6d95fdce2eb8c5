"""Small recurrent networks as Brandfonbrener 2017 studied them: their times by time steps and
units.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, takewhile
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column, attributes, objects, within
from dlbench.reports.curve.curve import (
    Curve,
    Curves,
    Point,
    adjust_together,
    along,
    best_times,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    find_knee,
    found_columns,
    grid,
    usable,
)
from dlbench.reports.curve.fits import crossing, fit_line
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report, Source
from dlbench.reports.results import flags, quantities
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import group_name, place_name, rest_of, row_name, threads_name
from dlbench.reports.results.networks import Networks, networks_of
from dlbench.reports.results.number_text import number
from dlbench.reports.results.published import BRANDFONBRENER2017, UPDATES, networks_of_2017
from dlbench.reports.results.published import study as published_study
from dlbench.reports.results.statistics import (
    Contrast,
    Ratio,
    Summary,
    contrast,
    geometric_mean,
    ratio,
)

FAMILY = "elman"
FLAT = 1.1
"""Up to this many times the time of the smallest network, growth does not count."""
NOTHING = "No small recurrent network was measured yet: `dlbench run rnn`."
QUANTITIES: dict[str, tuple[str, Callable[[float, "Size"], float]]] = {
    "update": ("milliseconds of an update", lambda seconds, size: seconds * 1e3),
    "step": (
        "microseconds of an update for each time step",
        lambda seconds, size: seconds * 1e6 / size.steps,
    ),
    "paper": (
        f"seconds of {UPDATES} updates, the paper's run",
        lambda seconds, size: seconds * UPDATES,
    ),
}
"""Quantities of the first table, of the seconds of an update."""


class Size(NamedTuple):
    """The numbers of one of these networks; 0 where several differ in a number."""

    hidden: int
    steps: int
    inputs: int = 2
    """As many as outputs."""
    activation: str = "relu"


_SERIES = Size._fields[1:]
Times = Mapping[Size, Summary]
ByUnits = Mapping[int, Summary]
Side = tuple[str, Curve, Times]
"""One side of a crossing: its name; a device with the fastest of its curves at each size, or one
thread count."""


def study(matrix: Matrix, networks: Networks) -> Curves:
    """Return the study of these networks in the matrix."""
    curves = [
        Curve(
            replace(matrix.hosts[place.machine], name=name_among(matrix.hosts, place.machine)),
            place.cell,
            tuple(
                Point(size, cell, usable(cell))
                for size, cell in sorted(cells.items(), key=operator.itemgetter(0))
            ),
        )
        for place, cells in sizes_of(matrix, networks).items()
    ]
    curves = [curve._replace(found=_found(curve.times)) for curve in curves]
    pays = _threads(curves)
    conclusions = {
        "threads": pays,
        "crossings": [*_crossings_of_threads(curves, pays), *_crossings_of_places(curves)],
        "compared": list(_compared(curves)),
        "beside": None,
    }
    return Curves(tuple(curves), matrix.notes if curves else (), conclusions)


def sizes_of(matrix: Matrix, networks: Networks) -> dict[Place, dict[Size, CellResult]]:
    """Return the cells of these networks; ``networks`` has the numbers of each, by its name and
    digest.
    """
    sizes = {}
    for key, network in networks.items():
        numbers = network.get("numbers", {})
        plain = network.get("family") == FAMILY and set(numbers) == {*Size._fields, "outputs"}
        if plain and numbers["inputs"] == numbers["outputs"]:
            sizes[key] = Size(*(numbers[name] for name in Size._fields))

    def key_of(cell: CellResult) -> tuple[str, str]:
        return cell.group.network, cell.group.specification

    found = along(
        (cell for cell in matrix.cells.values() if key_of(cell) in sizes),
        "network",
        "specification",
    )
    return {place: {sizes[key_of(cell)]: cell for cell in cells} for place, cells in found.items()}


def series(times: Times, name: str = "hidden") -> dict[Size, dict[int, Summary]]:
    """Return the times of networks that differ in one number alone, by its rising values."""
    rest: dict[str, Any] = {name: 0}
    found: dict[Size, dict[int, Summary]] = {}
    for size in sorted(
        times, key=lambda size: (size.activation, size.inputs, size._replace(**rest), size)
    ):
        found.setdefault(size._replace(**rest), {})[getattr(size, name)] = times[size]
    return found


def _found(times: Times) -> dict[str, list[dict[str, Any]]]:
    """Return straight lines over the time steps, and the growth over the units."""
    lines, grown = series(times, "steps"), series(times)
    return {
        "fits": [
            {
                "hidden": size.hidden,
                "inputs": size.inputs,
                "activation": size.activation,
                **fit_line(of),
            }
            for size, of in lines.items()
            if len(of) > 1
        ],
        "growth": [{**_numbers(size), **growth(of)} for size, of in grown.items() if len(of) > 1],
    }


def _numbers(size: Size) -> dict[str, Any]:
    return dict(zip(_SERIES, size[1:], strict=True))


def growth(times: ByUnits) -> dict[str, Any]:
    """Return how these seconds grow with the number of units; at least two numbers, rising.

    For each number of units: T over T of the smallest, and the exponent with which T grows from the
    next smaller number of units. The knee is the smallest number of units that takes over `FLAT`
    times as long as the smallest of all.
    """
    units = list(times)
    ratios = {each: ratio(times[each], times[units[0]]) for each in units}
    ratios[units[0]] = Ratio(1.0, 1.0, 1.0, "the smallest itself")

    def exponent(few: int, many: int) -> Ratio:
        return ratio(times[many], times[few]).changed(
            lambda value: math.log(value) / math.log(many / few)
        )

    exponents = {many: exponent(few, many) for few, many in pairwise(units)}
    knee = find_knee(
        "hidden",
        ratios,
        lambda found: found.value > FLAT,
        lambda found: (found.value if found.high is None else found.high) > FLAT,
        lambda found: (found.value if found.low is None else found.low) > FLAT,
    )
    sizes = [
        {"hidden": each, "ratio": ratios[each], "exponent": exponents.get(each)} for each in units
    ]
    return {"knee": knee, "sizes": sizes}


def _threads(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Compare each row's time with a thread for each core, or the most below, with that of one."""
    rows: list[dict[str, Any]] = []
    found: list[dict[int, Contrast]] = []
    for one in (curve for curve in curves if curve.cell.on_cpu and curve.cell.threads == 1):
        same = [
            each
            for each in curves
            if each.host == one.host and each.cell._replace(threads=1) == one.cell
        ]
        cores = one.host.own_cores or math.inf
        more = max(
            (each for each in same if each.cell.threads <= cores),
            key=lambda each: each.cell.threads,
        )
        alone = series(one.times)
        for size, of in series(more.times).items() if more is not one else ():
            both = {
                units: (of[units], time)
                for units, time in alone.get(size, {}).items()
                if units in of
            }
            if both:
                rows.append({"curve": more, "one": one, **_numbers(size), "against": 1})
                found.append(
                    {units: contrast(more.cell.threads, 1, *times) for units, times in both.items()}
                )
    # All rows are one family of comparisons.
    for row, compared in zip(rows, adjust_together(found), strict=True):
        row["faster_from"] = faster_from({units: each.verdict for units, each in compared.items()})
        row["sizes"] = [
            {
                "hidden": units,
                "ratio": each.ratio,
                "p_adjusted": each.p_adjusted,
                "verdict": each.verdict,
            }
            for units, each in compared.items()
        ]
    return rows


def faster_from(verdicts: Mapping[int, str]) -> int | None:
    """Return the smallest number of units from which more threads are always clearly faster; None
    if there is none.
    """
    better = list(takewhile(lambda units: verdicts[units] == "better", reversed(list(verdicts))))
    return better[-1] if better else None


def _crossings_of_threads(
    curves: Sequence[Curve], pays: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the number of units from which a row is faster with more threads."""
    for one, more in {each["curve"].place: (each["one"], each["curve"]) for each in pays}.values():
        first, second = (
            (place_name(each.cell) + _of_machine(curves, each), each, each.times)
            for each in (one, more)
        )
        yield from _crossed(first, second, row_name(more.cell))


def _crossings_of_places(curves: Sequence[Curve]) -> Iterator[dict[str, Any]]:
    """Yield the number of units from which a framework is faster on another device or machine, each
    at its best.
    """
    shared_axes = ("framework", "batch_size", "precision", "placement", "storage", "tuning")
    for shared, alike in grouped(
        curves, lambda curve: axes.project(curve.cell, shared_axes)
    ).items():
        sides: list[Side] = []
        for (_, device), of in grouped(
            alike, lambda curve: (curve.host.fingerprint, curve.cell.device)
        ).items():
            sides.append((device + _of_machine(curves, of[0]), of[0], best_times(of)))
        for first, second in combinations(sides, 2):
            swap = first[1].cell.on_cpu is second[1].cell.on_cpu
            ordered = (first, second) if swap or first[1].cell.on_cpu else (second, first)
            yield from _crossed(*ordered, row_name(shared), swap=swap)


def _of_machine(curves: Iterable[Curve], curve: Curve) -> str:
    """Return the suffix that names a machine where there are several."""
    several = len({each.host.fingerprint for each in curves}) > 1
    return f" of {curve.host.name}" if several else ""


def _crossed(first: Side, second: Side, what: str, swap: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the crossing of each series of two sides; ``swap`` them where the second does not gain
    with the units.
    """
    both = series(first[2]), series(second[2])
    for size in (size for size in both[0] if size in both[1]):
        sides = [(first, both[0][size]), (second, both[1][size])]
        if swap and not _gains(both[0][size], both[1][size]):
            sides.reverse()
        if (at := crossing(*(times for _, times in sides))) is not None:
            yield {
                "curve": sides[1][0][1],
                "at": at,
                "what": what,
                **{
                    key: {
                        "machine": curve.host.fingerprint,
                        "machine_name": curve.host.name,
                        "name": name,
                        "device": curve.cell.device,
                        "batch_size": curve.cell.batch_size,
                    }
                    for key, ((name, curve, _), _) in zip(("first", "second"), sides, strict=True)
                },
                **_numbers(size),
                **at.data("units"),
            }


def _gains(first: ByUnits, second: ByUnits) -> bool:
    """Return whether the second is relatively better at the end than at the beginning."""
    gains = [first[units].median / second[units].median for units in first if units in second] or [
        1.0
    ]
    return gains[-1] >= gains[0]


def _compared(curves: Iterable[Curve]) -> Iterator[dict[str, Any]]:
    """Compare the curves of each machine and work, over the networks of the study's usual inputs
    and activation.

    A network takes part if at least half as many curves have it as have the most common one: being
    the fastest of few means little.
    """
    for of in grouped(curves, lambda curve: (curve.host.fingerprint, _work_of(curve))).values():
        count = Counter(
            size for curve in of for size in curve.times if size == Size(size.hidden, size.steps)
        )
        sizes = sorted(
            size for size, several in count.items() if 2 * several >= max(count.values())
        )
        fastest = best_times(of)
        itself = Ratio(1.0, 1.0, 1.0, "the fastest itself")
        rows: list[dict[str, Any]] = []
        for curve in of:
            times = {size: seconds for size, seconds in curve.times.items() if size in sizes}
            ratios = [
                itself if fastest[size] is seconds else ratio(seconds, fastest[size])
                for size, seconds in times.items()
            ]
            if ratios:
                wins = tuple(size for size in sizes if fastest[size] is times.get(size))
                mean = {
                    "times_fastest": geometric_mean(ratios),
                    "sizes": len(ratios),
                    "of": len(sizes),
                }
                rows.append({"curve": curve, **mean, "fastest_at": wins})
        if len(rows) > 1:
            yield from sorted(rows, key=lambda row: row["times_fastest"].value)


# Tables.


Field = tuple[str, str, Any, str]
"""Where an entry stands: its table's subtitle, a heading in it, a row under that, and a column."""


def rnn_page(found: Curves, quantity: str) -> Page:
    """Return the five tables; with a published study beside, its times and lines too."""
    if not found.curves:
        return Page((NOTHING,), (), found.notes)
    both: list[Curves] = [found, *filter(None, [found.conclusions["beside"]])]
    tables = [
        table for each in both for table in (*_times_tables(each, quantity), *_line_tables(each))
    ]
    tables += [
        *_growth_tables(found),
        *_threads_tables(found),
        *_crossing_tables(found),
        *_compared_tables(found),
    ]
    title = "Small recurrent networks: n_rec units down, n_steps time steps across."
    return Page(
        (title,), tuple(tables), (*_legend(found), *(note for each in both for note in each.notes))
    )


def _pivot(
    title: str,
    fields: Mapping[Field, Entry],
    notes: Mapping[str, Sequence[str]],
    corner: str = "n_rec",
) -> Iterator[Table]:
    """Yield a table for each subtitle, in their order, with its notes."""
    for subtitle, of_subtitle in grouped(fields, lambda field: field[0]).items():
        heads = {column for *_, column in of_subtitle}
        columns = sorted(
            heads, key=lambda head: (head.startswith("i"), int(head.removeprefix("i")))
        )
        lines: list[tuple[Entry, ...]] = []
        for heading, block in grouped(of_subtitle, lambda field: field[1]).items():
            lines += [(Entry(heading),)] if heading else []
            lines += grid({field[2:]: fields[field] for field in block}, columns)
        yield Table(
            f"{title}: {subtitle}", (corner, *columns), tuple(lines), tuple(notes.get(subtitle, ()))
        )


def _title(curve: Curve, size: Size) -> str:
    """Return the subtitle of a table: "AMD EPYC, relu, mini-batch 1"."""
    return f"{curve.host.name}, {_work(curve, size)}"


def _work_of(curve: Curve) -> Cell:
    """Return the axes of curves that do the same work."""
    return axes.project(curve.cell, ("batch_size", "precision", "placement", "storage"))


def _work(curve: Curve, size: Size) -> str:
    """Return the work: "relu, mini-batch 1"; with other inputs than the usual ones the time steps
    too.
    """
    steps = "" if size.inputs == 2 else f", n_steps {size.steps}"
    return group_name(_work_of(curve)._replace(network=size.activation)) + steps


def _column(size: Size) -> str:
    """Return the head of a column: the time steps, or the inputs where they are not the usual
    ones.
    """
    return str(size.steps) if size.inputs == 2 else f"i{size.inputs}"


def _inputs(count: int) -> str:
    return "" if count == 2 else f" i{count}"


def _series_name(size: Size) -> str:
    """Return a series in a sentence: "20", "20 i10"."""
    return f"{size.steps}{_inputs(size.inputs)}"


def _size_of(row: Mapping[str, Any]) -> Size:
    return Size(0, *(row[name] for name in _SERIES))


def _times_tables(found: Curves, quantity: str) -> Iterator[Table]:
    title, value = QUANTITIES[quantity]
    common = layout.common_flags(
        p.cell for curve in found.curves for p in curve.points if p.cell.shown
    )
    fields: dict[Field, Entry] = {}
    missing: dict[str, list[tuple[str, str, str]]] = {}
    for curve in found.curves:
        name = rest_of(curve.cell)
        for size, cell, *_ in curve.points:
            subtitle = _title(curve, size)
            entry = layout.entry(cell, quantities.QUANTITIES["seconds"], common)._replace(
                best=False
            )
            if not entry.hole and cell.seconds is not None:
                entry = entry._replace(text=number(value(cell.seconds.median, size)))
            fields[subtitle, name, size.hidden, _column(size)] = entry
            if not cell.shown:
                where = f"n_rec {size.hidden}, n_steps {_series_name(size)}"
                missing.setdefault(subtitle, []).append((layout.why_hole(cell), name, where))
    notes = {subtitle: layout.reasons(several) for subtitle, several in missing.items()}
    yield from _pivot(title.capitalize(), fields, notes)


def _line_tables(found: Curves) -> Iterator[Table]:
    together: dict[str, list[tuple[Entry, ...]]] = {}
    for curve in found.curves:
        for fit in curve.found["fits"]:
            rows = together.setdefault(_title(curve, Size(0, 0, activation=fit["activation"])), [])
            heading = (Entry(rest_of(curve.cell)),)
            rows += [] if heading in rows else [heading]
            residual = "" if fit["largest_residual"] is None else f"{fit['largest_residual']:.1%}"
            estimates = (_microseconds(fit["fixed"]), _microseconds(fit["per_step"]))
            rows.append(
                layout.entries(f"{fit['hidden']}{_inputs(fit['inputs'])}", *estimates, residual)
            )
    for title, lines in together.items():
        yield Table(
            f"T = c + s n_steps: {title}", ("n_rec", "c, us", "s, us", "residual"), tuple(lines)
        )


def _microseconds(found: Ratio) -> str:
    """Return an estimate in microseconds with half the width of its interval: "157±4.2"."""
    half = "" if found.high is None else f"±{number((found.high - found.value) * 1e6)}"
    return number(found.value * 1e6) + half


def _sayings(sayings: Iterable[tuple[str, str, str, Size]]) -> dict[str, list[str]]:
    """Return by the title the notes of (title, head, saying, series): a head's sayings, each with
    its time steps.
    """
    notes: dict[str, list[str]] = {}
    for (title, head), of_head in grouped(sayings, operator.itemgetter(0, 1)).items():
        said = grouped(of_head, operator.itemgetter(2)).items()
        words = (
            f"{saying} (n_steps {', '.join(_series_name(size) for *_, size in of)})"
            for saying, of in said
        )
        notes.setdefault(title, []).append(f"{head} {'; '.join(words)}.")
    return notes


def _growth_tables(found: Curves) -> Iterator[Table]:
    fields: dict[Field, Entry] = {}
    knees: list[tuple[str, str, str, Size]] = []
    for curve in found.curves:
        for each in curve.found["growth"]:
            series, name = _size_of(each), rest_of(curve.cell)
            title = _title(curve, series)
            knees.append((title, f"{name}: knee", knee_words(**each["knee"]), series))
            for size in each["sizes"]:
                fields[title, name, size["hidden"], _column(series)] = _growth_entry(
                    size["ratio"], size["exponent"]
                )
    yield from _pivot("T over T of the fewest units", fields, _sayings(knees))


def _growth_entry(found: Ratio, exponent: Ratio | None) -> Entry:
    if exponent is None:
        return Entry(f"{number(found.value)}x")
    power = round(exponent.value, 2) + 0.0  # no "-0.00"
    return layout.multiple(found, f" ^{power:.2f}")


def knee_words(hidden: int | None, earliest: int | None, latest: int | None) -> str:
    """Return where time begins to grow: "100", "100 (20 to 200)", "none"."""
    value, *ends = ("none" if each is None else str(each) for each in (hidden, earliest, latest))
    return value if ends == [value, value] else f"{value} ({ends[0]} to {ends[1]})"


def _threads_tables(found: Curves) -> Iterator[Table]:
    fields: dict[Field, Entry] = {}
    sayings: list[tuple[str, str, str, Size]] = []
    for pays in found.conclusions["threads"]:
        curve, series = pays["curve"], _size_of(pays)
        title = _title(curve, series)
        sayings.append(
            (title, f"{row_name(curve.cell)}:", threads_words(curve.cell.threads, pays), series)
        )
        for each in pays["sizes"]:
            entry = layout.multiple(each["ratio"], best=each["verdict"] == "better")
            fields[title, rest_of(curve.cell), each["hidden"], _column(series)] = entry
    yield from _pivot("T with a thread for each core over T with one", fields, _sayings(sayings))


def threads_words(threads: int, pays: Mapping[str, Any]) -> str:
    """Return how many threads to use."""
    smallest, largest = (pays["sizes"][end]["hidden"] for end in (0, -1))
    if pays["faster_from"] is None:
        return f"use 1 thread up to n_rec {largest}, the largest measured"
    if pays["faster_from"] == smallest:
        return f"use {threads_name(threads)} from n_rec {smallest} on, the smallest measured"
    return f"use 1 thread below n_rec {pays['faster_from']}"


def _crossing_tables(found: Curves) -> Iterator[Table]:
    fields: dict[Field, Entry] = {}
    for each in found.conclusions["crossings"]:
        size = _size_of(each)
        row = f"{each['what']}: {each['first']['name']}, {each['second']['name']}"
        fields[_work(each["curve"], size), "", row, _column(size)] = Entry(each["at"].words)
    yield from _pivot("n_rec from which on the second is faster", fields, {}, corner="")


def _compared_tables(found: Curves) -> Iterator[Table]:
    together: dict[str, list[tuple[Entry, ...]]] = {}
    for each in found.conclusions["compared"]:
        rows = together.setdefault(_title(each["curve"], Size(0, 0)), [])
        mean = layout.multiple(each["times_fastest"], best=not rows)
        over, wins = f"{each['sizes']} of {each['of']}", _sizes(each["fastest_at"], each["of"])
        rows.append((Entry(rest_of(each["curve"].cell)), mean, Entry(over), Entry(wins)))
    for title, lines in together.items():
        head = ("", "mean", "over", "fastest at n_rec")
        yield Table(f"T over T of the fastest row: {title}", head, tuple(lines), words=True)


def _sizes(sizes: Sequence[Size], of: int) -> str:
    """Return these networks in words: all, none, or each by units x steps."""
    if len(sizes) == of:
        return f"all {of}"
    units: dict[int, list[str]] = {}
    for size in sizes:
        units.setdefault(size.steps, []).append(str(size.hidden))
    words = (f"{', '.join(hidden)} at {steps} steps" for steps, hidden in sorted(units.items()))
    return f"{len(sizes)} of {of}" + (f": {'; '.join(words)}" if sizes else "")


def _legend(found: Curves) -> Iterator[str]:
    yield f"{layout.HALF_WIDTH}; iN: N inputs and outputs instead of 2."
    if any(curve.found["fits"] for curve in found.curves):
        yield (
            "c: fixed time per update, s: time per time step, each ± half of its 95 % interval "
            "(none from two step counts with too few launches); residual: the largest distance of "
            "a time from the line."
        )
    if any(curve.found["growth"] for curve in found.curves):
        yield (
            "^: T grows as n_rec to this power, from the previous size. Knee: the smallest n_rec "
            f"that takes over {FLAT:g} times as long as the smallest measured; in brackets: others "
            "that the intervals allow."
        )
    if found.conclusions["threads"]:
        yield (
            f"{layout.BEST} more threads are clearly faster, Holm-adjusted over all comparisons of "
            "threads."
        )
        if any(
            each["p_adjusted"] is None
            for pays in found.conclusions["threads"]
            for each in pays["sizes"]
        ):
            yield layout.WIDENED
    if found.conclusions["crossings"]:
        yield (
            "Crossings: in brackets the 95 % interval; none: no size shows a clear difference. A "
            "device is represented by a framework's fastest mode and thread count."
        )
    cells = [point.cell for curve in found.curves for point in curve.points if point.cell.shown]
    if any(cell.timed and cell.has(flags.THREADS_EXCEEDED) for cell in cells):
        yield f"Times marked {flags.THREADS_EXCEEDED.symbol} appear in the first table only."
    yield from layout.flag_lines(cells, layout.common_flags(cells))


# JSON and CSV.


def _seconds(name: str, value: Callable[[float, Size], float]) -> Column[Point]:
    return Column(
        name, None, lambda point: point.cell.seconds and value(point.cell.seconds.median, point.at)
    )


_KEYS = curve_columns("network", "specification")
_OF_ROW: tuple[Column[Any], ...] = within(_KEYS, operator.itemgetter("curve"))
_CURVE = (*_KEYS, *found_columns("fits", "growth", fits=None, growth=None))
_POINT = (
    *attributes(lambda point: point.at, *Size._fields),
    *cell_columns("status", "reason", "seconds"),
    _seconds("seconds_per_time_step", lambda seconds, size: seconds / size.steps),
    _seconds("seconds_of_a_run", QUANTITIES["paper"][1]),
    *cell_columns("flags"),
)
_CROSSING = (
    "what",
    "first",
    "second",
    *_SERIES,
    "where",
    "units",
    "interval",
    "clear",
    "smallest",
    "largest",
)


def rnn_data(found: Curves) -> dict[str, Any]:
    """Return a JSON object: the curves, the conclusions, and the published study beside."""
    beside = found.conclusions["beside"]
    threads = (*_OF_ROW, *attributes(dict, *_SERIES, "against", "faster_from", "sizes"))
    compared = (*_OF_ROW, *attributes(dict, "times_fastest", "sizes", "of", "fastest_at"))
    return {
        "updates_of_a_run": UPDATES,
        "lines": curve_objects(found.curves, _CURVE, _POINT, "sizes"),
        "threads": objects(threads, found.conclusions["threads"]),
        "crossings": objects(attributes(dict, *_CROSSING), found.conclusions["crossings"]),
        "compared": objects(compared, found.conclusions["compared"]),
        "beside": beside and rnn_data(beside),
        "notes": list(found.notes),
    }


def rnn_rows(found: Curves) -> Rows:
    """Return a CSV line for each time, missing ones and those of the study beside too."""
    beside = found.conclusions["beside"]
    return curve_rows([*found.curves, *(beside.curves if beside else ())], _CURVE, _POINT)


def published() -> Curves:
    """Return the study of 2017 without its first trials, which its author calls strangely long."""
    return study(published_study(BRANDFONBRENER2017).matrix(first=False), networks_of_2017())


def _analyse(source: Source) -> Curves:
    reference = source.options.reference
    if reference == BRANDFONBRENER2017:
        return published()
    found = study(source.matrix(), {} if reference else networks_of(source.results().records))
    beside = published() if source.options.against else None
    return found._replace(conclusions={**found.conclusions, "beside": beside})


REPORT = Report(
    name="rnn",
    summary="""Small recurrent networks at mini-batch 1: time by units and time steps.

Five tables: the times; T = c + s n_steps; growth with the units, and the number of units from which
more threads pay; crossings, where one device, machine or thread count becomes faster than another;
rows compared.""",
    examples=(
        "dlbench report rnn",
        "dlbench report rnn --quantity paper --against brandfonbrener2017",
        "dlbench report rnn --reference brandfonbrener2017",
    ),
    analyse=_analyse,
    page=lambda found, options: rnn_page(found, options.quantity),
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

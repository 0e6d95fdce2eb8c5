"""`dlbench report rnn`: small recurrent networks as tables, JSON and CSV."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dlbench.reports import flags
from dlbench.reports.cells import CellResult
from dlbench.reports.columns import Column, attributes, objects
from dlbench.reports.curve.curve import CurveColumns, Knee, cell_columns, line_columns
from dlbench.reports.curve.fits import Crossing
from dlbench.reports.curve.rnn import (
    FAMILY,
    FLAT,
    Crossed,
    Growth,
    Line,
    Series,
    Side,
    Size,
    StudiedLine,
    Study,
    ThreadsPay,
    study,
)
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.naming import row_name, threads_name, work_name
from dlbench.reports.published import BRANDFONBRENER2017, UPDATES, networks_of_2017
from dlbench.reports.published import study as published_study
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report, Source
from dlbench.reports.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Ratio
from dlbench.reports.storage.hosts import name_among
from dlbench.reports.storage.networks import networks_of

NOTHING = "No small recurrent network was measured yet: `dlbench run rnn`."
USUAL = Series(0)
"""The inputs and the activation that need no word."""


class Quantity(NamedTuple):
    """A quantity of the first table."""

    title: str
    value: Callable[[float, Size], float]
    """Of seconds of an update."""


QUANTITIES = {
    "update": Quantity("milliseconds of an update", lambda seconds, size: seconds * 1e3),
    "step": Quantity("microseconds of an update for each time step", lambda seconds, size: seconds * 1e6 / size.steps),
    "paper": Quantity(f"seconds of {UPDATES} updates, the paper's run", lambda seconds, size: seconds * UPDATES),
}

Field = tuple[str, str, str, str, Entry]
"""A table's subtitle, a heading in it, a row under that, a column, and its content."""


def rnn_page(found: Study, quantity: str) -> Page:
    """Return the five tables; with a published study beside, its times and lines too."""
    if not found.lines:
        return Page((NOTHING,), (), found.notes)
    both = [found, *([found.beside] if found.beside is not None else [])]
    tables = [table for each in both for table in (*_times(each, QUANTITIES[quantity]), *_fits(each))]
    tables += [*_growth(found), *_threads(found), *_crossings(found), *_compared(found)]
    title = "Small recurrent networks: n_rec units down, n_steps time steps across."
    return Page((title,), tuple(tables), (*_legend(found), *(note for each in both for note in each.notes)))


def _pivot(
    title: str, fields: Iterable[Field], notes: Iterable[tuple[str, str]] = (), corner: str = "n_rec"
) -> Iterator[Table]:
    """Yield a table for each subtitle, in their order, with its notes."""
    subtitles: dict[str, dict[str, dict[str, dict[str, Entry]]]] = {}
    for subtitle, heading, row, column, entry in fields:
        subtitles.setdefault(subtitle, {}).setdefault(heading, {}).setdefault(row, {})[column] = entry
    said: dict[str, dict[str, None]] = {}
    for subtitle, note in notes:
        said.setdefault(subtitle, {})[note] = None
    for subtitle, blocks in subtitles.items():
        heads = {head for rows in blocks.values() for row in rows.values() for head in row}
        columns = sorted(heads, key=lambda head: (head.startswith("i"), int(head.removeprefix("i"))))
        lines: list[tuple[Entry, ...]] = []
        for heading, rows in blocks.items():
            lines += [(Entry(heading),)] if heading else []
            for row in sorted(rows, key=lambda row: int(row) if row.isdecimal() else 0):
                lines.append((Entry(row), *(rows[row].get(column, Entry(layout.MISSING)) for column in columns)))
        yield Table(f"{title}: {subtitle}", (corner, *columns), tuple(lines), tuple(said.get(subtitle, ())))


def _title(study: Study, line: Line, series: Series) -> str:
    """Return the subtitle of a table: "AMD EPYC, relu, mini-batch 1"."""
    return f"{name_among(study.hosts, line.machine)}, {_work(line, series)}"


def _work(line: Line, series: Series) -> str:
    """Return the work: "relu, mini-batch 1"; with other inputs than the usual ones the time steps too."""
    steps = "" if series.inputs == USUAL.inputs else f", n_steps {series.steps}"
    return f"{work_name(line.work._replace(network=series.activation))}, mini-batch {line.work.batch_size}{steps}"


def _column(series: Series) -> str:
    """Return the head of a column: the time steps, or the inputs where they are not the usual ones."""
    return str(series.steps) if series.inputs == USUAL.inputs else f"i{series.inputs}"


def _inputs(count: int) -> str:
    return "" if count == USUAL.inputs else f" i{count}"


def _name(series: Series) -> str:
    """Return a series in a sentence: "20", "20 i10"."""
    return f"{series.steps}{_inputs(series.inputs)}"


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names)


def _times(found: Study, quantity: Quantity) -> Iterator[Table]:
    common = layout.common_flags(cell for line in found.lines for cell in line.cells.values() if cell.shown)
    fields: list[Field] = []
    notes: list[tuple[str, str]] = []
    for line, cells, *_ in found.lines:
        missing: dict[str, list[tuple[str, str, str]]] = {}
        for size, cell in sorted(cells.items()):
            series = Series(*size[1:])
            title = _title(found, line, series)
            entry = layout.entry(cell, layout.QUANTITIES["seconds"], common)._replace(best=False)
            if not entry.hole and cell.seconds is not None:
                entry = entry._replace(text=number(quantity.value(cell.seconds.median, size)))
            fields.append((title, line.name, str(size.hidden), _column(series), entry))
            if not cell.shown:
                where = f"n_rec {size.hidden}, n_steps {_name(series)}"
                missing.setdefault(title, []).append((layout.why_hole(cell), line.name, where))
        notes += [(title, reason) for title, several in missing.items() for reason in layout.reasons(several)]
    yield from _pivot(quantity.title.capitalize(), fields, notes)


def _fits(found: Study) -> Iterator[Table]:
    together: dict[str, list[tuple[Entry, ...]]] = {}
    for line in found.lines:
        headed = set()
        for size, fit in line.fits.items():
            title = _title(found, line.line, USUAL._replace(activation=size.activation))
            rows = together.setdefault(title, [])
            if title not in headed:
                rows.append((Entry(line.line.name),))
                headed.add(title)
            residual = "" if fit.largest_residual is None else f"{fit.largest_residual:.1%}"
            estimates = map(_microseconds, (fit.fixed, fit.per_step))
            rows.append(layout.entries(f"{size.hidden}{_inputs(size.inputs)}", *estimates, residual))
    for title, lines in together.items():
        yield Table(f"T = c + s n_steps: {title}", ("n_rec", "c, us", "s, us", "residual"), tuple(lines))


def _microseconds(found: Ratio) -> str:
    """Return an estimate in microseconds with half the width of its interval: "157±4.2"."""
    half = "" if found.high is None else f"±{number((found.high - found.value) * 1e6)}"
    return number(found.value * 1e6) + half


def _growth(found: Study) -> Iterator[Table]:
    fields: list[Field] = []
    notes: list[tuple[str, str]] = []
    for line in found.lines:
        knees: dict[str, dict[str, list[str]]] = {}
        for each in line.growth:
            title = _title(found, line.line, each.series)
            knees.setdefault(title, {}).setdefault(knee_words(each.knee), []).append(_name(each.series))
            fields += [
                (title, line.line.name, str(size.hidden), _column(each.series), _growth_entry(size))
                for size in each.sizes
            ]
        for title, of_title in knees.items():
            said = "; ".join(f"{knee} (n_steps {_joined(steps)})" for knee, steps in of_title.items())
            notes.append((title, f"{line.line.name}: knee {said}."))
    yield from _pivot("T over T of the fewest units", fields, notes)


def _growth_entry(size: Growth) -> Entry:
    if size.exponent is None:
        return Entry(f"{number(size.ratio.value)}x")
    power = round(size.exponent.value, 2) + 0.0  # no "-0.00"
    return _ratio(size.ratio)._replace(marks=f" ^{power:.2f}")


def _ratio(found: Ratio, best: bool = False) -> Entry:
    return Entry(f"{number(found.value)}x", layout.deviation(found.value, found.low, found.high), best=best)


def knee_words(knee: Knee) -> str:
    """Return where time begins to grow: "100", "100 (20 to 200)", "none"."""
    value, *ends = ("none" if each is None else str(each) for each in (knee.at, knee.earliest, knee.latest))
    return value if ends == [value, value] else f"{value} ({ends[0]} to {ends[1]})"


def _threads(found: Study) -> Iterator[Table]:
    fields: list[Field] = []
    together: dict[tuple[str, Line], list[ThreadsPay]] = {}
    for pays in found.threads:
        title = _title(found, pays.line, pays.series)
        together.setdefault((title, pays.line), []).append(pays)
        fields += [
            (title, pays.line.name, str(hidden), _column(pays.series), _ratio(each.ratio, each.verdict == "better"))
            for hidden, each in pays.sizes
        ]
    notes = [(title, said) for (title, _), several in together.items() for said in threads_sentences(several)]
    yield from _pivot("T with a thread for each core over T with one", fields, notes)


def threads_sentences(found: Iterable[ThreadsPay]) -> list[str]:
    """Return how many threads to use, a line for each row."""
    by_row: dict[Line, dict[str, list[str]]] = {}
    for pays in found:
        smallest, largest = pays.sizes[0][0], pays.sizes[-1][0]
        if pays.from_units is None:
            said = f"use 1 thread up to n_rec {largest}, the largest measured"
        elif pays.from_units == smallest:
            said = f"use {threads_name(pays.line.cell.threads)} from n_rec {smallest} on, the smallest measured"
        else:
            said = f"use 1 thread below n_rec {pays.from_units}"
        by_row.setdefault(pays.line, {}).setdefault(said, []).append(_name(pays.series))
    return [
        f"{row_name(line.row)}: {'; '.join(f'{said} (n_steps {_joined(steps)})' for said, steps in sentences.items())}."
        for line, sentences in by_row.items()
    ]


def _crossings(found: Study) -> Iterator[Table]:
    fields: Iterator[Field] = (
        (
            _work(each.second.line, each.series),
            "",
            f"{each.what}: {each.first.name}, {each.second.name}",
            _column(each.series),
            Entry(where(each.at)),
        )
        for each in found.crossings
    )
    yield from _pivot("n_rec from which on the second is faster", fields, corner="")


def where(at: Crossing) -> str:
    """Return where a crossing is: "96 (60 to 140)", "below 10", "above 500", "none"."""

    def units(value: float) -> str:
        if value == 0:
            return f"below {at.smallest}"
        return f"above {at.largest}" if math.isinf(value) else number(value)

    if not at.clear:
        return "none"
    if at.low is None or at.high is None or at.low == at.high:
        return units(at.units)
    return f"{units(at.units)} ({units(at.low)} to {units(at.high)})"


def _compared(found: Study) -> Iterator[Table]:
    together: dict[str, list[tuple[Entry, ...]]] = {}
    for each in found.compared:
        rows = together.setdefault(_title(found, each.line, USUAL), [])
        over, wins = f"{each.sizes} of {each.of}", _sizes(each.wins, each.of)
        rows.append((Entry(each.line.name), _ratio(each.mean, best=not rows), Entry(over), Entry(wins)))
    for title, lines in together.items():
        head = ("", "mean", "over", "fastest at n_rec")
        yield Table(f"T over T of the fastest row: {title}", head, tuple(lines), words=True)


def _sizes(sizes: Sequence[Size], of: int) -> str:
    """Return these networks in words: all, none, or each by units x steps."""
    if len(sizes) == of:
        return f"all {of}"
    units: dict[int, list[int]] = {}
    for size in sizes:
        units.setdefault(size.steps, []).append(size.hidden)
    words = (f"{', '.join(map(str, hidden))} at {steps} steps" for steps, hidden in sorted(units.items()))
    return f"{len(sizes)} of {of}" + (f": {'; '.join(words)}" if sizes else "")


def _legend(found: Study) -> Iterator[str]:
    yield "± half-width of the 95 % interval (the wider side); iN: N inputs and outputs instead of 2."
    if any(line.fits for line in found.lines):
        yield (
            "c: fixed time per update, s: time per time step, each ± half of its 95 % interval (none from two "
            "step counts of too few launches); residual: the largest distance of a time from the line."
        )
    if any(line.growth for line in found.lines):
        yield (
            f"^: T grows as n_rec to this power, from the size before. Knee: the fewest units that take over {FLAT:g} "
            "times as long as the fewest; in brackets: others that the intervals allow."
        )
    if found.threads:
        yield f"{layout.BEST} more threads are clearly faster, with all comparisons of threads adjusted for (Holm)."
        if any(each.p_adjusted is None for pays in found.threads for _, each in pays.sizes):
            yield (
                f"Of fewer than {ENOUGH_LAUNCHES} launches the interval of the ratio decides, widened by the deviation "
                f"between launches that other cells of the machine show ({LAUNCH_DEVIATION:.0%} without enough)."
            )
    if found.crossings:
        yield (
            "Crossings: in brackets the 95 % interval; none: no size shows a clear difference. Devices "
            "stand for the fastest mode and thread count of a framework."
        )
    cells = [cell for line in found.lines for cell in line.cells.values() if cell.shown]
    if any(cell.timed and cell.has(flags.THREADS_EXCEEDED) for cell in cells):
        yield f"Times with the mark {flags.THREADS_EXCEEDED.symbol} stand in the first table alone."
    yield from layout.flag_lines(cells, layout.common_flags(cells))


def _columns(found: Study) -> CurveColumns[StudiedLine, tuple[Size, CellResult]]:
    def seconds(point: tuple[Size, CellResult], times: int = 1, over: int = 1) -> float | None:
        return None if point[1].seconds is None else point[1].seconds.median * times / over

    return CurveColumns(
        (
            *_where(found, lambda each: each.line),
            Column("fits", None, _fits_data, fields=None),
            Column("growth", None, _growth_data, fields=None),
        ),
        (
            *attributes(lambda point: point[0], *Size._fields),
            *cell_columns(lambda point: point[1], "status", "reason", "seconds"),
            Column("seconds_per_time_step", None, lambda point: seconds(point, over=point[0].steps)),
            Column("seconds_of_a_run", None, lambda point: seconds(point, UPDATES)),
            *cell_columns(lambda point: point[1], "flags"),
        ),
        lambda each: sorted(each.cells.items()),
        "sizes",
    )


def _where(found: Study, line: Callable[[Any], Line]) -> tuple[Column[Any], ...]:
    host, cell = (lambda each: found.hosts[line(each).machine]), (lambda each: line(each).cell)
    return line_columns(host, cell, "network", "specification")


def _fits_data(each: StudiedLine) -> list[dict[str, Any]]:
    return [
        {"hidden": size.hidden, "inputs": size.inputs, "activation": size.activation, **plain(fit)}
        for size, fit in each.fits.items()
    ]


def _growth_data(each: StudiedLine) -> list[dict[str, Any]]:
    keys = ("hidden", "earliest", "latest")
    return [
        {
            **of.series._asdict(),
            "knee": dict(zip(keys, (of.knee.at, of.knee.earliest, of.knee.latest), strict=True)),
            "sizes": plain(of.sizes),
        }
        for of in each.growth
    ]


def rnn_data(found: Study) -> dict[str, Any]:
    """Return a JSON object: the lines, the conclusions, and the published study beside."""
    threads: list[Column[ThreadsPay]] = [
        *_where(found, lambda pays: pays.line),
        *attributes(lambda pays: pays.series, *Series._fields),
        Column("against", None, lambda pays: 1),
        Column("faster_from", None, lambda pays: pays.from_units),
        Column("sizes", None, lambda pays: [_pays(hidden, each) for hidden, each in pays.sizes]),
    ]
    compared: list[Column[Any]] = [
        *_where(found, lambda each: each.line),
        Column("times_fastest", None, lambda each: each.mean),
        *attributes(lambda each: each, "sizes", "of"),
        Column("fastest_at", None, lambda each: each.wins),
    ]
    return {
        "updates_of_a_run": UPDATES,
        "lines": _columns(found).data(found.lines),
        "threads": objects(threads, found.threads),
        "crossings": [_crossed(found, each) for each in found.crossings],
        "compared": objects(compared, found.compared),
        "beside": None if found.beside is None else rnn_data(found.beside),
        "notes": list(found.notes),
    }


def _pays(hidden: int, each: Any) -> dict[str, Any]:
    return {"hidden": hidden, "ratio": plain(each.ratio), "p_adjusted": each.p_adjusted, "verdict": each.verdict}


def _crossed(found: Study, each: Crossed) -> dict[str, Any]:
    at = each.at

    def side(of: Side) -> dict[str, Any]:
        machine, cell = of.line
        names = {"machine": machine, "machine_name": found.hosts[machine].name, "name": of.name}
        return {**names, "device": cell.device, "batch_size": cell.batch_size}

    return {
        "what": each.what,
        "first": side(each.first),
        "second": side(each.second),
        **each.series._asdict(),
        "where": "below" if at.units == 0 else "above" if math.isinf(at.units) else "between",
        "units": at.units if 0 < at.units < math.inf else None,
        "interval": [at.low, at.high] if at.low is not None and at.high is not None else None,
        "told": at.clear,
        "smallest": at.smallest,
        "largest": at.largest,
    }


def rnn_rows(found: Study) -> Rows:
    """Return a CSV line for each time, missing ones and those of the study beside too."""
    rows = _columns(found).rows(found.lines)
    return rows if found.beside is None else Rows(rows.columns, [*rows.lines, *rnn_rows(found.beside).lines])


def published() -> Study:
    """Return the study of 2017 without its first trials, which its author calls strangely long."""
    return study(published_study(BRANDFONBRENER2017).matrix(first=False), networks_of_2017())


def _analyse(source: Source) -> Study:
    reference = source.options.reference
    if reference == BRANDFONBRENER2017:
        return published()
    found = study(source.matrix(), {} if reference else networks_of(source.results().records))
    return replace(found, beside=published()) if source.options.against else found


REPORT = Report(
    name="rnn",
    summary="""Small recurrent networks, one example an update: time by units and time steps.

Five tables: the times; T = c + s n_steps; growth with the units, and from how many on more threads pay; from how many
units on one device, machine or thread count is faster than another; rows compared.""",
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

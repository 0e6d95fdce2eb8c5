"""Small recurrent networks as tables, for every exporter of pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dlbench.reports.against.brandfonbrener2017 import UPDATES
from dlbench.reports.cells import CellResult
from dlbench.reports.flags import THREADS_EXCEEDED
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.rnn.analysis import Study
from dlbench.reports.rnn.growth import FLAT, Growth, ThreadsPay, UnitsGrowth
from dlbench.reports.rnn.lines import Line, Series, Size
from dlbench.reports.rnn.words import (
    USUAL,
    column,
    inputs,
    knee_words,
    name_of,
    plus_minus,
    sizes_words,
    threads_sentences,
    title_of,
    where,
    work_words,
)
from dlbench.reports.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Ratio

NOTHING = "No small recurrent network was measured yet: `dlbench run rnn`."
_MICRO = 1e6


class Quantity(NamedTuple):
    """What the first table shows."""

    title: str
    value: Callable[[float, Size], float]
    """Of seconds of an update."""


QUANTITIES = {
    "update": Quantity("milliseconds of an update", lambda seconds, size: seconds * 1e3),
    "step": Quantity(
        "microseconds of an update for each time step", lambda seconds, size: seconds * _MICRO / size.steps
    ),
    "paper": Quantity(f"seconds of {UPDATES} updates, the paper's run", lambda seconds, size: seconds * UPDATES),
}

Block = tuple[str, dict[str, dict[str, Entry]]]
"""A heading, and under it the fields by row and column."""


def rnn_page(found: Study, quantity: str) -> Page:
    """Return the five tables; beside them the times and lines of a published study, where one was asked for."""
    if not found.lines:
        return Page((NOTHING,), (), found.notes)
    told = QUANTITIES[quantity]
    tables = [*_times(found, told), *_fits(found)]
    if found.beside is not None:
        tables += [*_times(found.beside, told), *_fits(found.beside)]
    tables += [*_growth(found), *_threads(found), *_crossings(found), *_compared(found)]
    notes = (*found.notes, *(found.beside.notes if found.beside else ()))
    title = "Small recurrent networks: n_rec units down, n_steps time steps across."
    return Page((title,), tuple(tables), (*_legend(found), *notes))


def _tables(title: str, corner: str, blocks: Iterable[tuple[str, Block, Sequence[str]]]) -> Iterator[Table]:
    """Yield a table for each of these subtitles, in their order, with the notes of its blocks."""
    together: dict[str, tuple[list[Block], list[str]]] = {}
    for of, block, notes in blocks:
        kept = together.setdefault(of, ([], []))
        kept[0].append(block)
        kept[1].extend(notes)
    for of, (several, notes) in together.items():
        heads = sorted({head for _, rows in several for row in rows.values() for head in row}, key=_in_order)
        lines: list[tuple[Entry, ...]] = []
        for heading, rows in several:
            lines += [(Entry(heading),)] if heading else []
            lines += [
                (Entry(row), *(entries.get(head, Entry(layout.MISSING)) for head in heads))
                for row, entries in rows.items()
            ]
        yield Table(f"{title}: {of}", (corner, *heads), tuple(lines), tuple(dict.fromkeys(notes)))


def _in_order(head: str) -> tuple[bool, int]:
    return head.startswith("i"), int(head.removeprefix("i"))


def _times(found: Study, quantity: Quantity) -> Iterator[Table]:
    """Yield the first table of each machine and work."""
    common = layout.common_flags(cell for line in found.lines for cell in line.cells.values() if cell.shown)
    blocks = []
    for line in found.lines:
        together: dict[str, tuple[dict[str, dict[str, Entry]], list[tuple[str, str, str]]]] = {}
        for size, cell in sorted(line.cells.items()):
            series = Series(*size[1:])
            rows, holes = together.setdefault(title_of(found, line.line, series), ({}, []))
            marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in common)
            rows.setdefault(str(size.hidden), {})[column(series)] = _time(cell, size, quantity, marks)
            if not cell.shown:
                holes.append((layout.why_hole(cell), line.line.name, f"n_rec {size.hidden}, n_steps {name_of(series)}"))
        blocks += [(of, (line.line.name, rows), layout.reasons(holes)) for of, (rows, holes) in together.items()]
    yield from _tables(quantity.title.capitalize(), "n_rec", blocks)


def _time(cell: CellResult, size: Size, quantity: Quantity, marks: str) -> Entry:
    if not cell.shown or cell.seconds is None:
        return Entry(layout.HOLES[cell.status], hole=True)
    return Entry(number(quantity.value(cell.seconds.median, size)), layout.interval(cell.seconds), marks)


def _fits(found: Study) -> Iterator[Table]:
    """Yield the second table of each machine and work."""
    together: dict[str, dict[Line, list[tuple[Entry, ...]]]] = {}
    for line in found.lines:
        for fit in line.fits:
            of = title_of(found, line.line, USUAL._replace(activation=fit.activation))
            residual = "" if fit.largest_residual is None else f"{fit.largest_residual:.1%}"
            shown = (plus_minus(each, _MICRO) for each in (fit.fixed, fit.per_step))
            row = layout.entries(f"{fit.hidden}{inputs(fit.inputs)}", *shown, residual)
            together.setdefault(of, {}).setdefault(line.line, []).append(row)
    for of, lines in together.items():
        rows = tuple(row for line, several in lines.items() for row in [(Entry(line.name),), *several])
        yield Table(f"T = c + s n_steps: {of}", ("n_rec", "c, us", "s, us", "residual"), rows)


def _growth(found: Study) -> Iterator[Table]:
    """Yield the third table of each machine and work."""
    blocks = []
    for line in found.lines:
        together: dict[str, list[UnitsGrowth]] = {}
        for each in line.growth:
            together.setdefault(title_of(found, line.line, each.series), []).append(each)
        for of, several in together.items():
            rows: dict[str, dict[str, Entry]] = {
                str(hidden): {} for hidden in sorted({size.hidden for each in several for size in each.sizes})
            }
            knees: dict[str, list[str]] = {}
            for each in several:
                knees.setdefault(knee_words(each.knee), []).append(name_of(each.series))
                for size in each.sizes:
                    rows[str(size.hidden)][column(each.series)] = _growth_entry(size)
            told = "; ".join(f"{knee} (n_steps {', '.join(heads)})" for knee, heads in knees.items())
            blocks.append((of, (line.line.name, rows), [f"{line.line.name}: knee {told}."]))
    yield from _tables("T over T of the fewest units", "n_rec", blocks)


def _growth_entry(size: Growth) -> Entry:
    value = f"{number(size.ratio.value)}x"
    if size.exponent is None:
        return Entry(value)
    power = round(size.exponent.value, 2) + 0.0  # no "-0.00"
    return Entry(value, layout.deviation(*_ends(size.ratio)), f" ^{power:.2f}")


def _ends(found: Ratio) -> tuple[float, float | None, float | None]:
    return found.value, found.low, found.high


def _threads(found: Study) -> Iterator[Table]:
    """Yield what more threads do, of each machine, work and activation."""
    together: dict[tuple[str, Line], list[ThreadsPay]] = {}
    for line, pays in found.threads:
        together.setdefault((title_of(found, line, pays.series), line), []).append(pays)
    blocks = []
    for (of, line), several in together.items():
        rows: dict[str, dict[str, Entry]] = {}
        told = [(units, pays.series, one) for pays in several for units, one in pays.sizes]
        for hidden, series, each in sorted(told, key=lambda each: each[:2]):
            spread = layout.deviation(*_ends(each.ratio))
            entry = Entry(f"{number(each.value)}x", spread, best=each.verdict == "better")
            rows.setdefault(str(hidden), {})[column(series)] = entry
        blocks.append((of, (line.name, rows), threads_sentences((line, pays) for pays in several)))
    yield from _tables("T with a thread for each core over T with one", "n_rec", blocks)


def _crossings(found: Study) -> Iterator[Table]:
    """Yield the fourth table of each work and activation."""
    rows: dict[str, dict[str, dict[str, Entry]]] = {}
    for each in found.crossings:
        name = f"{each.what}: {each.first.name}, {each.second.name}"
        of = rows.setdefault(work_words(each.second.line, each.series), {})
        of.setdefault(name, {})[column(each.series)] = Entry(where(each.at))
    blocks = [(of, ("", entries), ()) for of, entries in rows.items()]
    yield from _tables("n_rec from which on the second is faster", "", blocks)


def _compared(found: Study) -> Iterator[Table]:
    """Yield the fifth table of each machine and work."""
    together: dict[str, list[tuple[Entry, ...]]] = {}
    for each in found.compared:
        rows = together.setdefault(title_of(found, each.line, USUAL), [])
        mean = Entry(f"{number(each.mean.value)}x", layout.deviation(*_ends(each.mean)), best=not rows)
        over = f"{each.sizes} of {each.of}"
        rows.append((Entry(each.line.name), mean, Entry(over), Entry(sizes_words(each.wins, each.of))))
    for of, lines in together.items():
        head = ("", "mean", "over", "fastest at n_rec")
        yield Table(f"T over T of the fastest row: {of}", head, tuple(lines), words=True)


def _legend(found: Study) -> Iterator[str]:
    yield "± half-width of the 95 % interval (the wider side); iN: N inputs and outputs instead of 2."
    if any(line.fits for line in found.lines):
        yield (
            "c: an update whatever its time steps, s: a time step, each ± half of its 95 % interval (none from two "
            "step counts of too few launches); residual: the largest distance of a time from the line."
        )
    if any(line.growth for line in found.lines):
        yield (
            f"^: T grows as n_rec to this power, from the size before. Knee: the fewest units that take over {FLAT:g} "
            "times as long as the fewest; in brackets where the intervals leave room for another."
        )
    if found.threads:
        yield f"{layout.BEST} more threads are clearly faster, with all comparisons of threads adjusted for (Holm)."
        if any(each.p_adjusted is None for _, pays in found.threads for _, each in pays.sizes):
            yield (
                f"Of fewer than {ENOUGH_LAUNCHES} launches the interval of the ratio decides, widened by an assumed "
                f"deviation of {LAUNCH_DEVIATION:.0%} between launches."
            )
    if found.crossings:
        yield (
            "Crossings: in brackets the 95 % interval; none: their times differ clearly nowhere. Devices "
            "stand for the fastest mode and thread count of a framework."
        )
    cells = [cell for line in found.lines for cell in line.cells.values() if cell.shown]
    if any(cell.timed and cell.has(THREADS_EXCEEDED) for cell in cells):
        yield f"Times with the mark {THREADS_EXCEEDED.symbol} stand in the first table alone."
    yield from layout.flag_lines(cells, layout.common_flags(cells))

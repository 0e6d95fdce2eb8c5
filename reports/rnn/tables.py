"""Small recurrent networks as tables, for every exporter of pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dlbench.reports.against.brandfonbrener2017 import UPDATES
from dlbench.reports.evidence import flag_kinds
from dlbench.reports.evidence.statistics import Ratio
from dlbench.reports.formats import layout
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.matrix.analysis import MatrixCell
from dlbench.reports.rnn.analysis import StudiedLine, Study
from dlbench.reports.rnn.growth import FLAT, ThreadsPay
from dlbench.reports.rnn.lines import Line, Series, Size
from dlbench.reports.rnn.words import (
    USUAL,
    between,
    column,
    inputs,
    knee_words,
    sizes_words,
    threads_sentences,
    title_of,
    where,
    work_words,
)

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


def _in_order(head: str) -> tuple[int, int]:
    steps, _, count = head.partition(" i")
    return int(count or 0), int(steps)


def _activations(line: StudiedLine) -> list[str]:
    return list(dict.fromkeys(size.activation for size in line.cells))


def _times(found: Study, quantity: Quantity) -> Iterator[Table]:
    """Yield the first table of each machine, work and activation."""
    common = layout.common_flags(cell for line in found.lines for cell in line.cells.values() if cell.shown)
    blocks = []
    for line in found.lines:
        for activation in _activations(line):
            rows: dict[str, dict[str, Entry]] = {}
            holes = []
            for size in sorted(size for size in line.cells if size.activation == activation):
                cell, head = line.cells[size], column(Series(*size[1:]))
                marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in common)
                rows.setdefault(str(size.hidden), {})[head] = _time(cell, size, quantity, marks)
                if not cell.shown:
                    holes.append((layout.why_hole(cell), line.line.name, f"n_rec {size.hidden}, n_steps {head}"))
            blocks.append((title_of(found, line.line, activation), (line.line.name, rows), layout.reasons(holes)))
    yield from _tables(quantity.title.capitalize(), "n_rec", blocks)


def _time(cell: MatrixCell, size: Size, quantity: Quantity, marks: str) -> Entry:
    if not cell.shown or cell.seconds is None:
        return Entry(layout.HOLES[cell.status], hole=True)
    return Entry(number(quantity.value(cell.seconds.median, size)), layout.interval(cell.seconds), marks)


def _fits(found: Study) -> Iterator[Table]:
    """Yield the second table of each machine, work and activation."""
    together: dict[str, list[tuple[Entry, ...]]] = {}
    for line in found.lines:
        for activation in _activations(line):
            fits = [fit for fit in line.fits if fit.activation == activation]
            rows = together.setdefault(title_of(found, line.line, activation), []) if fits else []
            rows += [(Entry(line.line.name),)]
            for fit in fits:
                residual = "" if fit.largest_residual is None else f"{fit.largest_residual:.1%}"
                of = f"{fit.hidden}{inputs(fit.inputs)}"
                rows.append(layout.entries(of, between(fit.fixed, _MICRO), between(fit.per_step, _MICRO), residual))
    head = ("n_rec", "c, us", "s, us", "residual")
    for of, lines in together.items():
        yield Table(f"T = c + s n_steps: {of}", head, tuple(lines))


def _growth(found: Study) -> Iterator[Table]:
    """Yield the third table of each machine, work and activation."""
    blocks = []
    for line in found.lines:
        for activation in _activations(line):
            grown = [each for each in line.growth if each.series.activation == activation]
            rows: dict[str, dict[str, Entry]] = {}
            for hidden in sorted({size.hidden for each in grown for size in each.sizes}):
                for each in grown:
                    for size in (size for size in each.sizes if size.hidden == hidden):
                        power = "" if size.exponent is None else f" ^{size.exponent.value:.2f}"
                        spread = "" if size.exponent is None else layout.deviation(*_ends(size.ratio))
                        shown = Entry(f"{number(size.ratio.value)}x", spread, power)
                        rows.setdefault(str(hidden), {})[column(each.series)] = shown
            knees: dict[str, list[str]] = {}
            for each in grown:
                knees.setdefault(knee_words(each.knee), []).append(column(each.series))
            told = "; ".join(f"{knee} (n_steps {', '.join(heads)})" for knee, heads in knees.items())
            if grown:
                of = title_of(found, line.line, activation)
                blocks.append((of, (line.line.name, rows), [f"{line.line.name}: knee {told}."]))
    yield from _tables("T over T of the fewest units", "n_rec", blocks)


def _ends(found: Ratio) -> tuple[float, float | None, float | None]:
    return found.value, found.low, found.high


def _threads(found: Study) -> Iterator[Table]:
    """Yield what more threads do, of each machine, work and activation."""
    together: dict[tuple[str, Line], list[ThreadsPay]] = {}
    for line, pays in found.threads:
        together.setdefault((title_of(found, line, pays.series.activation), line), []).append(pays)
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
        of = rows.setdefault(work_words(each.second.line, each.series.activation), {})
        of.setdefault(name, {})[column(each.series)] = Entry(where(each.at))
    blocks = [(of, ("", entries), ()) for of, entries in rows.items()]
    yield from _tables("n_rec from which on the second is faster", "", blocks)


def _compared(found: Study) -> Iterator[Table]:
    """Yield the fifth table of each machine and work."""
    together: dict[str, list[tuple[Entry, ...]]] = {}
    for each in found.compared:
        rows = together.setdefault(title_of(found, each.line, USUAL.activation), [])
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
            "c: an update whatever its time steps, s: a time step, each with its 95 % interval (none from two step "
            "counts of too few launches); residual: the largest distance of a time from the line."
        )
    if any(line.growth for line in found.lines):
        yield (
            f"^: T grows as n_rec to this power, from the size before. Knee: the fewest units that take over {FLAT:g} "
            "times as long as the fewest; in brackets where the intervals leave room for another."
        )
    if found.threads:
        yield f"{layout.BEST} more threads are clearly faster, with all comparisons of threads adjusted for (Holm)."
    if found.crossings:
        yield (
            "Crossings: in brackets the 95 % interval; none: their times differ clearly nowhere. Devices "
            "stand for the fastest mode and thread count of a framework."
        )
    cells = [cell for line in found.lines for cell in line.cells.values() if cell.shown]
    if any(cell.timed and cell.has(flag_kinds.THREADS_EXCEEDED) for cell in cells):
        yield f"Times with the mark {flag_kinds.THREADS_EXCEEDED.symbol} stand in the first table alone."
    yield from layout.flag_lines(cells, layout.common_flags(cells))

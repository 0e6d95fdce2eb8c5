"""The words of the report: what a column is called, where a crossing is, how many threads to use."""

import math
from collections.abc import Iterable, Sequence

from dlbench.reports.formats.layout import number
from dlbench.reports.naming import row_name, threads_name, work_name
from dlbench.reports.rnn.analysis import Study, work_of
from dlbench.reports.rnn.crossing import Crossing
from dlbench.reports.rnn.growth import Knee, ThreadsPay
from dlbench.reports.rnn.lines import Line, Series, Size
from dlbench.reports.statistics import Ratio
from dlbench.reports.storage.hosts import name_among

USUAL = Series(0)
"""The inputs and the activation that need no word."""


def title_of(study: Study, line: Line, series: Series) -> str:
    """Return what the lines of a table have in common: "AMD EPYC, relu, mini-batch 1"."""
    return f"{name_among(study.hosts, line.machine)}, {work_words(line, series)}"


def work_words(line: Line, series: Series) -> str:
    """Return the work: "relu, mini-batch 1"; with other inputs than the usual ones the time steps too."""
    own = work_of(line)
    steps = "" if series.inputs == USUAL.inputs else f", n_steps {series.steps}"
    return f"{work_name(own._replace(network=series.activation))}, mini-batch {own.batch_size}{steps}"


def column(series: Series) -> str:
    """Return the head of a column: the time steps, or the inputs where they are not the usual ones."""
    return str(series.steps) if series.inputs == USUAL.inputs else f"i{series.inputs}"


def name_of(series: Series) -> str:
    """Return what stands for a series in a sentence: "20", "20 i10"."""
    return f"{series.steps}{inputs(series.inputs)}"


def inputs(count: int) -> str:
    """Return what stands behind a number where the inputs are not the usual ones: " i10"."""
    return "" if count == USUAL.inputs else f" i{count}"


def plus_minus(found: Ratio, scale: float) -> str:
    """Return an estimate with half the width of its interval: "157±4.2"."""
    half = "" if found.high is None else f"±{number((found.high - found.value) * scale)}"
    return number(found.value * scale) + half


def where(at: Crossing) -> str:
    """Return where a crossing is: "96 (60 to 140)", "below 10", "above 500", "none"."""
    if not at.told:
        return "none"
    value = _units(at.units, at)
    if at.low is None or at.high is None or at.low == at.high:
        return value
    return f"{value} ({_units(at.low, at)} to {_units(at.high, at)})"


def _units(units: float, at: Crossing) -> str:
    if units == 0:
        return f"below {at.smallest}"
    return f"above {at.largest}" if math.isinf(units) else number(units)


def knee_words(knee: Knee) -> str:
    """Return where time begins to grow: "100", "100 (20 to 200)", "none"."""
    value = "none" if knee.hidden is None else str(knee.hidden)
    if (knee.earliest, knee.latest) == (knee.hidden, knee.hidden):
        return value
    ends = ["none" if each is None else str(each) for each in (knee.earliest, knee.latest)]
    return f"{value} ({ends[0]} to {ends[1]})"


def threads_sentences(found: Iterable[tuple[Line, ThreadsPay]]) -> list[str]:
    """Return how many threads to use, a line for each row."""
    told: dict[tuple[Line, str], list[Series]] = {}
    for line, pays in found:
        told.setdefault((line, _threads_sentence(pays)), []).append(pays.series)
    by_row: dict[Line, list[str]] = {}
    for (line, sentence), series in told.items():
        by_row.setdefault(line, []).append(f"{sentence} ({_of_steps(series)})")
    return [f"{row_name(line.row)}: {'; '.join(sentences)}." for line, sentences in by_row.items()]


def _threads_sentence(pays: ThreadsPay) -> str:
    smallest, largest = pays.sizes[0][0], pays.sizes[-1][0]
    if pays.from_units is None:
        return f"use 1 thread up to n_rec {largest}, the largest measured"
    if pays.from_units == smallest:
        return f"use {threads_name(pays.threads)} from n_rec {smallest} on, the smallest measured"
    return f"use 1 thread below n_rec {pays.from_units}"


def _of_steps(series: Sequence[Series]) -> str:
    return f"n_steps {', '.join(map(name_of, series))}"


def sizes_words(sizes: Sequence[Size], of: int) -> str:
    """Return which networks these are: all, none, or each by units x steps."""
    if len(sizes) == of:
        return f"all {of}"
    units: dict[int, list[int]] = {}
    for size in sizes:
        units.setdefault(size.steps, []).append(size.hidden)
    told = (f"{', '.join(map(str, hidden))} at {steps} steps" for steps, hidden in sorted(units.items()))
    return f"{len(sizes)} of {of}" + (f": {'; '.join(told)}" if sizes else "")

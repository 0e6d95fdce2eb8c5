"""`dlbench report trend`: how steps, memory and page faults change within one long launch.

`dlbench run --trend 3m` times a launch for minutes. Its time is divided into parts of equal length.
The time of a part is the median of its samples, so that a spike of another program changes none.
The changes are those that a history of nights would show of such a series (`reports.history`):
steps of its level, and a drift over a part of it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.columns import Column, axis_columns, csv_rows, table
from dlbench.reports.curve.pictures import CurvePanel, Line, Picture, draw
from dlbench.reports.formats.layout import MISSING, Page
from dlbench.reports.history.drifts import Changes, find_changes
from dlbench.reports.report import Report, ReportOptions, ReportSource
from dlbench.reports.results.naming import counted, name_of, work_name
from dlbench.reports.results.number_text import number, percent
from dlbench.reports.results.record import Record, last_attempts

NOTHING = "No launch was followed over minutes yet: `dlbench run SUITE --trend 3m` does that."
PARTS = 60
"""Of a launch's time, at most."""
SAMPLES_OF_PART = 3
"""At least, on average: launches with fewer samples have fewer parts."""
FEWEST_PARTS = 12
GROWTH = 0.01
"""The smallest change of memory that is reported, as a share. It is a count, so that no noise is to
be excluded."""
_LEGEND = (
    "Start and end: the median step of the first and of the last tenth of the launch. Changes are "
    "those that noise does not explain. One launch cannot tell whether a change is the step's own "
    "or the machine's: follow another, or a step that is known to be steady."
)


@dataclass(frozen=True)
class TrendPart:
    """One part of a launch's time."""

    minutes: float
    """From the first timed sample to its middle."""
    seconds: float
    """Of a step, the median of its samples."""
    memory_mib: float | None
    """Resident at its end; None where the system does not say."""
    faults: float | None
    """Minor page faults of a step, the mean."""


@dataclass(frozen=True)
class Trend:
    """One launch that was followed."""

    cell: Cell
    run: str
    samples: int
    parts: tuple[TrendPart, ...]
    """In order of time; few of them where the launch had few samples."""
    changes: Changes

    @property
    def minutes(self) -> float:
        """How long it was followed."""
        if len(self.parts) < 2:
            return 0.0
        return 2 * self.parts[-1].minutes - self.parts[-2].minutes

    @property
    def first_seconds(self) -> float:
        """The seconds of a step in the first tenth."""
        return median(part.seconds for part in self.parts[: self._tenth])

    @property
    def last_seconds(self) -> float:
        """The seconds of a step in the last tenth."""
        return median(part.seconds for part in self.parts[-self._tenth :])

    @property
    def _tenth(self) -> int:
        return max(1, len(self.parts) // 10)

    @property
    def grown_mib(self) -> float | None:
        """By how much its memory grew."""
        first, last = self.parts[0].memory_mib, self.parts[-1].memory_mib
        if first is None or last is None:
            return None
        return last - first

    @property
    def sentences(self) -> list[str]:
        """Its changes in words, in order of kind and time."""
        lines = []
        for step in self.changes.steps:
            lines.append(f"After {self._at(step.position)} min a step takes {_change(step.size)}.")
        drift = self.changes.drift
        if drift is not None:
            span = f"from {self._at(drift.first)} to {self._at(drift.last)} min"
            lines.append(
                f"A step gets slower or faster by degrees, {span}: {_change(drift.size)} in all."
            )
        lines += self._memory_sentences()
        return lines or ["Neither its step nor its memory changes beyond noise."]

    def _memory_sentences(self) -> list[str]:
        """Return a sentence on memory that changed, and when nine tenths of the change had come.

        That moment is no estimate.
        """
        measured = [(part.minutes, part.memory_mib) for part in self.parts if part.memory_mib]
        if len(measured) < FEWEST_PARTS:
            return []
        first, last = measured[0][1], measured[-1][1]
        change = abs(last - first)
        if change < GROWTH * first:
            return []
        reached = next(minutes for minutes, mib in measured if abs(mib - first) >= 0.9 * change)
        word = "grew" if last > first else "shrank"
        ends = f"from {number(first)} to {number(last)} MiB"
        return [f"Its memory {word} {ends}, nine tenths of it within {number(reached)} min."]

    def _at(self, position: int) -> str:
        return number(self.parts[position].minutes)


def _change(size: float) -> str:
    """Return a change of the logarithm of a time in words."""
    share = math.expm1(size)
    direction = "longer" if share > 0 else "less time"
    return f"{percent(abs(share))} {direction}"


def trend_of(record: Record) -> Trend | None:
    """Return the trend of a launch that was followed, or None of any other."""
    outcome = record.outcome
    if not record.protocol.trend or outcome.status is not Status.OK or not outcome.samples_ns:
        return None
    parts = parts_of(record)
    changes = Changes((), None)
    if len(parts) >= FEWEST_PARTS:
        (changes,) = find_changes([np.log([part.seconds for part in parts])], drifting=[True])
    return Trend(record.cell, record.run, len(outcome.samples_ns), parts, changes)


def parts_of(record: Record) -> tuple[TrendPart, ...]:
    """Return the parts of a launch's time."""
    outcome = record.outcome
    seconds, counts = outcome.step_seconds(), outcome.sample_counts
    ends = np.cumsum(np.asarray(outcome.samples_ns, dtype=float)) * 1e-9
    count = max(1, min(PARTS, len(seconds) // SAMPLES_OF_PART))
    length = ends[-1] / count
    parts = []
    # A sample belongs to the part in which it ends.
    places = np.minimum((ends / length - 1e-9).astype(int), count - 1)
    for place in range(count):
        inside = np.flatnonzero(places == place)
        if not len(inside):
            continue  # a sample lasted longer than a part
        memory = faults = None
        if counts is not None:
            if counts.resident_bytes:
                memory = counts.resident_bytes[inside[-1]] / 2**20
            faults_of_samples = [counts.minor_faults[sample] for sample in inside]
            faults = fmean(faults_of_samples) / outcome.steps_per_sample
        minutes = (place + 0.5) * length / 60
        seconds_of_step = median(seconds[sample] for sample in inside)
        parts.append(TrendPart(minutes, seconds_of_step, memory, faults))
    return tuple(parts)


def trends(source: ReportSource) -> list[Trend]:
    """Return the trends of the results, in their order."""
    followed = [record for record in source.results().records if record.protocol.trend]
    trends_in_order = []
    for record in last_attempts(followed):
        trend = trend_of(record)
        if trend is not None:
            trends_in_order.append(trend)
    return trends_in_order


def _name(trend: Trend) -> str:
    return name_of(trend.cell)


def _grown(trend: Trend) -> str:
    if trend.grown_mib is None:
        return MISSING
    return f"{trend.grown_mib:+.1f}"


_COLUMNS: tuple[Column[Trend], ...] = (
    *axis_columns(lambda trend: trend.cell),
    Column("run", None, lambda trend: trend.run),
    Column("", "launch", _name),
    Column("minutes", "minutes", lambda trend: trend.minutes),
    Column("samples", "samples", lambda trend: trend.samples),
    Column("first_seconds", "start s/step", lambda trend: trend.first_seconds),
    Column("last_seconds", "end s/step", lambda trend: trend.last_seconds),
    Column("grown_mib", "memory MiB", lambda trend: trend.grown_mib, _grown),
    Column("parts", None, lambda trend: trend.parts, fields=None),
    Column("changes", None, lambda trend: trend.changes, fields=None),
    Column("sentences", None, lambda trend: trend.sentences, fields=None),
)


def _page(trends: Sequence[Trend]) -> Page:
    if not trends:
        return Page((NOTHING,), ())
    lines = [f"{_name(trend)}: {' '.join(trend.sentences)}" for trend in trends]
    few = [trend for trend in trends if len(trend.parts) < FEWEST_PARTS]
    if few:
        samples = counted(SAMPLES_OF_PART * FEWEST_PARTS, "sample")
        lines.append(f"A search for changes needs {samples}: follow {_name(few[0])} for longer.")
    launches = table(_COLUMNS, trends, "Launches followed over time", key="rows")
    return Page(tuple(lines), (launches,), (_LEGEND,))


def _draw(trends: Sequence[Trend], path: Path, options: ReportOptions) -> list[Path]:
    """Draw the time of a step, and below it the memory, over the minutes of each launch."""
    panels = []
    for trend in trends:
        seconds = []
        memory = []
        for part in trend.parts:
            seconds.append((part.minutes, part.seconds))
            if part.memory_mib:
                memory.append((part.minutes, part.memory_mib))
        panels.append(_panel(f"{_name(trend)}: s/step", seconds))
        if memory:
            panels.append(_panel(f"{_name(trend)}: MiB", memory))
    return draw([Picture(work_name(trends[0].cell), panels, [])], path)


def _panel(title: str, values: Iterable[tuple[float, float]]) -> CurvePanel:
    points = [(minutes, (value, None, None)) for minutes, value in values]
    return CurvePanel(title, [Line(points, {})], linear=True, across="minutes")


REPORT: Report[list[Trend]] = Report(
    name="trend",
    summary="How steps, memory and page faults change within a launch.",
    examples=("dlbench report trend", "dlbench report trend --plot trend.png"),
    page=lambda trends, options: _page(trends),
    analyse=trends,
    rows=lambda trends: csv_rows(_COLUMNS, trends),
    draw=_draw,
    heading="Within a launch",
    place=68,
)

"""What a person sees of a run or a comparison: a line per launch or pair, one with the time left, the matrix so far."""

import math
import time
from collections.abc import Callable, Mapping
from statistics import median

from rich.console import Console

from dlbench.adapters.protocol import Status
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CONFIRM
from dlbench.reports.naming import name_of
from dlbench.reports.storage.record import Record

from ..planning.plan import Plan, PlannedLaunch
from ..run.schedules import Ledger, PlannedPair
from .screen import StatusLine, counted

# The matrix so far is printed when this long has passed since the last, and not more than about eight times a run.
_MATRIX_SECONDS = 60.0
_WIDE_SHOWN = 5


def clock(seconds: float) -> str:
    """Return seconds as "42 s", "3:07" or "1:02:03"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def in_words(seconds: float) -> str:
    """Return seconds with a unit: "42 s", "3 min", "1 h 20 min"."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def percent(share: float) -> str:
    """Return a share as "2 %", "0.45 %" or "13 %"."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def result_line(record: Record) -> str:
    """Return what one launch gave, in a few words."""
    outcome = record.outcome
    if outcome.gives_a_number():
        seconds = median(outcome.step_seconds())
        verdict = outcome.parity.verdict if outcome.parity else "unchecked"
        text = f"{seconds:.4g} s, parity {verdict}"
        return text if outcome.status is Status.OK else f"{text}: {outcome.reason}"
    return f"{outcome.status.value.replace('_', ' ')}: {outcome.reason}"


def remark(ledger: Ledger, record: Record) -> str:
    """Return what a launch did for its cell's interval, and whether others disturbed it; empty: nothing to say."""
    parts = []
    if record.outcome.samples_ns and ledger.precision is not None:
        width = ledger.half_width(record.cell)
        parts.append(f"launch {len(ledger.seen(record.cell))}" + ("" if width is None else f" ±{percent(width)}"))
    if record.attempt:
        parts.append(f"attempt {record.attempt + 1}")
    if ledger.disturbed(record):
        parts.append("disturbed")
    return ", ".join(parts)


def precision_lines(plan: Plan, ledger: Ledger) -> list[str]:
    """Return what a run with a precision to reach came to; nothing for a fixed number of launches."""
    if plan.interval is None:
        return []
    widths = {cell: ledger.half_width(cell) or math.inf for cell in plan.cells if ledger.seen(cell)}
    wide = sorted((cell for cell, width in widths.items() if width > plan.interval), key=lambda c: -widths[c])
    cells = f"{counted(len(widths), 'cell')} with a number"
    lines = [
        f"{len(widths) - len(wide)} of {cells} {'is' if len(widths) == 1 else 'are'} within ±{percent(plan.interval)}"
    ]
    for cell in wide[:_WIDE_SHOWN]:
        shown = "no interval" if math.isinf(widths[cell]) else f"±{percent(widths[cell])}"
        launches = counted(len(ledger.seen(cell)), "launch", "launches")
        lines.append(f"  wider: {name_of(cell)}, {shown} after {launches}")
    if len(wide) > _WIDE_SHOWN:
        lines.append(f"  and {len(wide) - _WIDE_SHOWN} more")
    return lines


class ProgressDisplay(StatusLine):
    """Observer of a run for a terminal, or, where the output is no terminal, for a log."""

    def __init__(self, console: Console, matrix_so_far: Callable[[], str] | None = None) -> None:
        super().__init__(console)
        self._matrix_so_far = matrix_so_far
        self._matrix_at = time.monotonic()
        self._matrix_every = _MATRIX_SECONDS
        self._what = ""
        self._ledger: Ledger | None = None

    def follow(self, ledger: Ledger) -> None:
        """Say with each launch what the ledger makes of it."""
        self._ledger = ledger

    def starts(self, planned: PlannedLaunch, index: int, total: int, expected_seconds: float) -> None:
        """Name the launch that begins."""
        about = "~" if self._ledger and self._ledger.precision else ""
        self._what = f"[{index}/{about}{total}] {name_of(planned.cell)}"
        self.draw(f"starting, {clock(expected_seconds)} left  {self._what}", at_once=True)

    def ticks(self, phase: str, seconds_left: float, seconds_left_overall: float) -> None:
        """Redraw the line, at most once a second."""
        # What a narrow terminal cuts off is the launch's description, never the time left.
        self.draw(f"{phase}, {clock(seconds_left)} left, all in {clock(seconds_left_overall)}  {self._what}")

    def ends(self, record: Record, index: int, total: int, seconds_left_overall: float) -> None:
        """Print the launch's line and, now and then, the matrix so far."""
        left = f"  ({clock(seconds_left_overall)} left)" if index < total else ""
        said = remark(self._ledger, record) if self._ledger else ""
        said = f"; {said}" if said else ""
        self.print(f"{self._what}: {result_line(record)}{said}{left}")
        now = time.monotonic()
        self._matrix_every = max(_MATRIX_SECONDS, seconds_left_overall / 6)
        if self._matrix_so_far and index < total and now - self._matrix_at > self._matrix_every:
            for line in self._matrix_so_far().splitlines():
                self.print(line)
            self._matrix_at = time.monotonic()


def pair_line(pair: PlannedPair, records: Mapping[str, Record]) -> str:
    """Return what a pair gave, in a few words."""
    stage = "confirming " if pair.stage == CONFIRM else ""
    name = f"{name_of(pair.cell)}, {stage}pair {pair.launch + 1}"
    timed = {side: record for side, record in records.items() if record.outcome.gives_a_number()}
    if set(timed) == {BASELINE, CANDIDATE}:
        before, after = (median(timed[side].outcome.step_seconds()) for side in (BASELINE, CANDIDATE))
        return f"{name}: {before:.4g} s and {after:.4g} s ({after / before - 1:+.1%})"
    failed = next(record for side, record in records.items() if side not in timed)
    return f"{name}: {failed.side} {result_line(failed)}"


class PairDisplay(StatusLine):
    """Observer of a comparison for a terminal, or, where the output is none, for a log."""

    _what = ""

    def starts(self, pair: PlannedPair, side: str, pairs_left: int) -> None:
        """Name the launch that begins."""
        self._what = f"{name_of(pair.cell)}, {side}; about {pairs_left} pairs left"

    def ticks(self, phase: str, seconds_left: float) -> None:
        """Redraw the line, at most once a second."""
        self.draw(f"{phase}, all in {clock(seconds_left)}  {self._what}")

    def ends(self, pair: PlannedPair, records: Mapping[str, Record], seconds_left: float) -> None:
        """Print the pair's line."""
        left = f"  ({clock(seconds_left)} left)" if seconds_left > 0 else ""
        self.print(f"{pair_line(pair, records)}{left}")

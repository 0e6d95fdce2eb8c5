"""Progress of a run or a comparison.

A line for each launch or pair, one with the time left, and the matrix so far.
"""

import math
import time
from collections.abc import Callable
from statistics import median

from rich.console import Console

from dlbench.adapters.protocol import Status
from dlbench.reports.results.comparison import seconds_of_pair
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.leaders import headline
from dlbench.reports.results.naming import counted, name_of
from dlbench.reports.results.networks import is_own_step
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record

from ..planning.plan import Plan
from ..run.groups import Group
from ..run.schedules import ContestSchedule, Schedule, half_width
from .numbers import clock, percent
from .screen import StatusLine

# The matrix so far is printed when this long has passed since the last, and not more than about
# eight times a run. Once each cell has a launch, the shorter time is enough.
_MATRIX_SECONDS = 60.0
_FIRST_MATRIX_SECONDS = 10.0
_NEAR_END_SECONDS = 30.0
_WIDE_SHOWN = 5


def result_line(record: Record) -> str:
    """Return the result of a launch in a few words."""
    outcome = record.outcome
    if outcome.gives_a_number():
        seconds = median(outcome.step_seconds())
        verdict = outcome.parity.verdict if outcome.parity else "unchecked"
        # No reference computes a user's own step: its launches are compared with one another.
        checked = "parity"
        if is_own_step(record.cell) and verdict != "unchecked":
            checked = "outputs" if record.cell.infers else "losses"
            verdict = verdict.removesuffix("s")
        text = f"{seconds:.4g} s, {checked} {verdict}"
        return text if outcome.status is Status.OK else f"{text}: {outcome.reason}"
    return f"{outcome.status.value.replace('_', ' ')}: {outcome.reason}"


def remark(schedule: Schedule, record: Record) -> str:
    """Return the cell's interval after a launch, and whether it was repeated or disturbed."""
    parts = []
    if record.outcome.samples_ns and schedule.plan.interval is not None:
        launches = schedule.stats[record.cell]
        width = half_width(launches, schedule.spread)
        reached = "" if width is None else f" ±{percent(width)}"
        parts.append(f"launch {len(launches)}{reached}")
    if record.attempt:
        parts.append(f"attempt {record.attempt + 1}")
    if disturbed(record, schedule.host):
        parts.append("disturbed")
    return ", ".join(parts)


def precision_lines(plan: Plan, schedule: Schedule) -> list[str]:
    """Return how many cells reached their precision, or the fastest cells.

    Empty for a fixed number of launches.
    """
    if isinstance(schedule, ContestSchedule):
        return headline(schedule.leaders(plan.most))
    if plan.interval is None:
        return []
    widths = {}
    for cell in plan.cells:
        launches = schedule.stats[cell]
        if launches:
            widths[cell] = half_width(launches, schedule.spread) or math.inf
    wide = [cell for cell, width in widths.items() if width > plan.interval]
    wide.sort(key=widths.__getitem__, reverse=True)
    cells = f"{counted(len(widths), 'cell')} with a number"
    verb = "is" if len(widths) == 1 else "are"
    lines = [f"{len(widths) - len(wide)} of {cells} {verb} within ±{percent(plan.interval)}"]
    for cell in wide[:_WIDE_SHOWN]:
        shown = "no interval" if math.isinf(widths[cell]) else f"±{percent(widths[cell])}"
        launches_of_cell = counted(len(schedule.stats[cell]), "launch", "launches")
        lines.append(f"  wider: {name_of(cell)}, {shown} after {launches_of_cell}")
    if len(wide) > _WIDE_SHOWN:
        lines.append(f"  and {len(wide) - _WIDE_SHOWN} more")
    return lines


def pair_line(first: Record, second: Record) -> str:
    """Return the result of a pair in a few words."""
    name = f"{name_of(first.cell)}, pair {first.launch + 1}"
    records = {record.side: record for record in (first, second)}
    before, after = seconds_of_pair(records[BASELINE], records[CANDIDATE])
    if before is not None and after is not None:
        return f"{name}: {before:.4g} s and {after:.4g} s ({after / before - 1:+.1%})"
    failed = records[BASELINE if before is None else CANDIDATE]
    return f"{name}: {failed.side} {result_line(failed)}"


class ProgressDisplay(StatusLine):
    """Observer of a run for a terminal or, where the output is not a terminal, for a log."""

    def __init__(
        self, console: Console, matrix_so_far: Callable[[bool], str] | None = None
    ) -> None:
        super().__init__(console)
        self._matrix_so_far = matrix_so_far
        """Returns the matrix so far, with or without notes."""
        self._matrix_at = time.monotonic()
        self._notes_shown = False
        self._launch_name = ""
        self._schedule: Schedule | None = None
        self._first: Record | None = None
        """The first launch of a pair whose second launch is still to come."""

    def follow(self, schedule: Schedule) -> None:
        """Say with each launch how its cell's interval and the run's estimates change."""
        self._schedule = schedule

    def starts(self, launches: Group, index: int, total: int, expected_seconds: float) -> None:
        """Name the launch that begins, or the group; ``index`` is that of its last launch."""
        planned = launches[0]
        if planned.side in (BASELINE, CANDIDATE):
            side = planned.side if len(launches) == 1 else "both sides"
            pairs_left = (total - index) // 2 + 1
            self._launch_name = f"{name_of(planned.cell)}, {side}; about {pairs_left} pairs left"
            return
        name = name_of(planned.cell)
        if len(launches) > 1:
            name += f" and {counted(len(launches) - 1, 'other cell')} in turns"
        self._launch_name = f"{self._number(index, total)} {name}"
        self.draw(f"starting, {clock(expected_seconds)} left  {self._launch_name}", at_once=True)

    def _number(self, index: int, total: int) -> str:
        about = "~" if self._schedule and self._schedule.plan.launches_most else ""
        return f"[{index}/{about}{total}]"

    def ticks(self, phase: str, seconds_left: float, seconds_left_overall: float) -> None:
        """Redraw the line, at most once a second."""
        # A narrow terminal cuts off the launch's name, never the time left.
        self.draw(
            f"{phase}, {clock(seconds_left)} left, all in {clock(seconds_left_overall)}  "
            f"{self._launch_name}"
        )

    def ends(self, record: Record, index: int, total: int, seconds_left_overall: float) -> None:
        """Print the line of the launch or pair and, now and then, the matrix so far."""
        left = ""
        if index < total and seconds_left_overall >= 1:
            left = f"  ({clock(seconds_left_overall)} left)"
        if record.side in (BASELINE, CANDIDATE):
            first = self._first
            self._first = record
            # A launch whose pair was given up has no second.
            if first is not None and first.side != record.side and first.launch == record.launch:
                self.print(f"{pair_line(first, record)}{left}")
                self._first = None
            return
        text = f"{self._number(index, total)} {name_of(record.cell)}: {result_line(record)}"
        if self._schedule:
            remarks = remark(self._schedule, record)
            if remarks:
                text += f"; {remarks}"
        self.print(f"{text}{left}")
        pause = max(_MATRIX_SECONDS, seconds_left_overall / 6)
        if self._schedule and self._is_first_matrix(self._schedule.plan, index):
            pause = _FIRST_MATRIX_SECONDS
        # The end of the run prints the matrix too.
        is_near_end = index == total or seconds_left_overall < _NEAR_END_SECONDS
        if not is_near_end and time.monotonic() - self._matrix_at > pause:
            self.show_matrix()

    @staticmethod
    def _is_first_matrix(plan: Plan, index: int) -> bool:
        """Return whether each cell has a launch now, of several."""
        several = plan.launches > 1 or plan.launches_most is not None
        return several and index == len(plan.cells)

    def show_matrix(self) -> None:
        """Print the matrix so far, if there is one."""
        if self._matrix_so_far is None or self._schedule is None or not self._schedule.count:
            return
        for line in self._matrix_so_far(not self._notes_shown).splitlines():
            self.print(line)
        self._notes_shown = True
        self._matrix_at = time.monotonic()

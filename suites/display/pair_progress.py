"""What a person sees of a comparison being measured: a line for each pair, and one with the time left."""

from collections.abc import Mapping
from statistics import median

from dlbench.reports.comparison.compared import BASELINE, CANDIDATE, CONFIRM
from dlbench.reports.naming import name_of
from dlbench.reports.storage.record import Record

from ..measuring.pairs import PlannedPair
from .progress import clock, result_line
from .status_line import StatusLine


def pair_line(pair: PlannedPair, records: Mapping[str, Record]) -> str:
    """Return what a pair gave, in a few words."""
    stage = "confirming " if pair.stage == CONFIRM else ""
    name = f"{name_of(pair.cell)}, {stage}pair {pair.launch + 1}"
    timed = {side: record for side, record in records.items() if record.outcome.samples_ns}
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
        self._what = f"{name_of(pair.cell)}, {side}; at most {pairs_left} pairs left"

    def ticks(self, phase: str, seconds_left: float) -> None:
        """Redraw the line, at most once a second."""
        self.draw(f"{phase}, all in {clock(seconds_left)}  {self._what}")

    def ends(self, pair: PlannedPair, records: Mapping[str, Record], seconds_left: float) -> None:
        """Print the pair's line."""
        left = f"  ({clock(seconds_left)} left)" if seconds_left > 0 else ""
        self.print(f"{pair_line(pair, records)}{left}")

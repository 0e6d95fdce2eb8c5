"""What a person sees of a comparison being measured: a line for each pair, and one with the time left."""

import time
from collections.abc import Mapping
from statistics import median

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dlbench.reports.compare import BASELINE, CANDIDATE, CONFIRM
from dlbench.reports.record import Record

from .pairs import PlannedPair
from .plan import PlannedLaunch
from .progress import clock, describe_cell, result_line

# A redraw costs about 2 ms of a core that may be measuring.
_REDRAW_SECONDS = 1.0


def pair_line(pair: PlannedPair, records: Mapping[str, Record]) -> str:
    """Return what a pair gave, in a few words."""
    stage = "confirming " if pair.stage == CONFIRM else ""
    name = f"{describe_cell(PlannedLaunch(pair.cell, pair.launch))}, {stage}pair {pair.launch + 1}"
    timed = {side: record for side, record in records.items() if record.outcome.samples_ns}
    if set(timed) == {BASELINE, CANDIDATE}:
        before, after = (median(timed[side].outcome.step_seconds()) for side in (BASELINE, CANDIDATE))
        return f"{name}: {before:.4g} s and {after:.4g} s ({after / before - 1:+.1%})"
    failed = next(record for side, record in records.items() if side not in timed)
    return f"{name}: {failed.side} {result_line(failed)}"


class PairDisplay:
    """Observer of a comparison for a terminal, or, where the output is none, for a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._what = ""
        self._drawn_at = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> "PairDisplay":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def starts(self, pair: PlannedPair, side: str, pairs_left: int) -> None:
        """Name the launch that begins."""
        self._what = f"{describe_cell(PlannedLaunch(pair.cell, pair.launch))}, {side}; at most {pairs_left} pairs left"

    def ticks(self, phase: str, seconds_left: float) -> None:
        """Redraw the line, at most once a second."""
        now = time.monotonic()
        if self._live is None or now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._drawn_at = now
        line = f"{phase}, all in {clock(seconds_left)}  {self._what}"
        self._live.update(Text(line, overflow="ellipsis", no_wrap=True), refresh=True)

    def ends(self, pair: PlannedPair, records: Mapping[str, Record], seconds_left: float) -> None:
        """Print the pair's line."""
        left = f"  ({clock(seconds_left)} left)" if seconds_left > 0 else ""
        self._console.print(Text(f"{pair_line(pair, records)}{left}"), soft_wrap=True)

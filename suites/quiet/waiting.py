"""The quiet gate: is this machine quiet enough to measure now, and waiting until it is.

A reading of the sentinel is judged by what the kernel counted while it was taken, and by how fast it went against this
machine's earlier readings. The rates need no absolute truth: the earlier readings show what this machine does when it
is left alone, and how well the sentinel repeats itself here.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from dlbench.hardware_probe.sentinel import Reading, disturbances, take

# How far a rate may fall short of the machine's record. More where the record itself spreads more; but a record that
# spreads by more than the last of these says nothing.
GEMM_SHORTFALL = 0.03
BANDWIDTH_SHORTFALL = 0.10
LARGEST_SHORTFALL = 0.30
# Calm readings before rates are judged at all, and how many of the newest make the record: a machine that has moved to
# another host, or whose firmware has changed, forgets its old rates in time.
ENOUGH_READINGS = 8
RECORD_LENGTH = 40

# Of a normal distribution, in standard deviations: the upper quartile's distance from the median, and how far below the
# median a reading lies once in 700.
_QUARTILE, _RARE = 0.674, 3.0

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 16.0  # seconds


@dataclass(frozen=True)
class Verdict:
    """Whether the machine was quiet, and every reason why not."""

    quiet: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waited:
    """What waiting for quiet came to."""

    verdict: Verdict
    """The last one."""
    readings: tuple[Reading, ...]
    """All that were taken, in order; at least one."""
    seconds: float
    """From beginning to end."""


def judge(reading: Reading, record: Sequence[Reading] = ()) -> Verdict:
    """Judge one reading against the earlier ones of the same machine, in order of time.

    Rates are judged once the record holds enough readings that were calm and measured by the same method. They are
    compared with the upper quartile, because disturbance only ever slows down; and a shortfall counts only beyond what
    the sentinel's own spread on this machine explains.
    """
    reasons = [*disturbances(reading)]
    calm = [each for each in record if each.method == reading.method and not disturbances(each)][-RECORD_LENGTH:]
    if len(calm) >= ENOUGH_READINGS:
        for what, rate_of, least in (
            ("matrix products ran", attrgetter("gemm_flops_per_second"), GEMM_SHORTFALL),
            ("memory was read and written", attrgetter("bandwidth_bytes_per_second"), BANDWIDTH_SHORTFALL),
        ):
            reasons += _slower(what, rate_of(reading), [rate_of(each) for each in calm], least)
    return Verdict(not reasons, tuple(reasons))


def shortfall_allowed(rates: Sequence[float], least: float) -> float:
    """Return the share by which a quiet machine's rate may lie below the upper quartile of `rates`.

    At least `least`. The spread is taken from median and upper quartile, which occasional slow readings do not widen.
    """
    median, quartile = statistics.median(rates), upper_quartile(rates)
    deviation = (quartile - median) / _QUARTILE
    return min(LARGEST_SHORTFALL, max(least, (_RARE + _QUARTILE) * deviation / quartile))


def upper_quartile(rates: Sequence[float]) -> float:
    """Return the rate that a quarter of them reach (two rates at least)."""
    return statistics.quantiles(rates, n=4, method="inclusive")[2]


def _slower(what: str, rate: float, rates: Sequence[float], least: float) -> list[str]:
    usual, allowed = upper_quartile(rates), shortfall_allowed(rates, least)
    if rate >= (1 - allowed) * usual:
        return []
    return [f"{what} at {rate / usual:.0%} of this machine's usual rate (limit {1 - allowed:.0%})"]


def wait_until_quiet(
    take: Callable[[], Reading],
    judge: Callable[[Reading], Verdict],
    patience_seconds: float,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Waited:
    """Take readings until one is quiet or patience ends, sleeping 1, 2, 4, 8, 16, 16, ... seconds in between.

    At least one reading is taken, however short the patience; one that begins is finished. Raises what `take` raises.
    """
    start = clock()
    readings: list[Reading] = []
    pause = _FIRST_PAUSE
    while True:
        readings.append(take())
        verdict = judge(readings[-1])
        left = patience_seconds - (clock() - start)
        if verdict.quiet or left <= 0:
            return Waited(verdict, tuple(readings), clock() - start)
        sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)


@dataclass
class Gate:
    """What stands before a block of launches: waits for a quiet machine, and remembers its readings.

    Start it with the machine's readings of earlier runs, oldest first; keep `record` for the next. After a wait in vain
    its patience is half as long, and whole again once the machine was quiet: on a machine that never is, all waits of a
    run together take little more than twice the patience.
    """

    record: list[Reading] = field(default_factory=list)
    patience_seconds: float = 60.0
    take: Callable[[], Reading] = take
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    waits_in_vain: int = 0
    """In a row."""

    def wait(self) -> Waited:
        """Wait until the machine is quiet or patience ends. Raises SentinelError where the sentinel cannot run."""
        patience = self.patience_seconds * 0.5**self.waits_in_vain
        waited = wait_until_quiet(self._take, self._judge, patience, self.sleep, self.clock)
        self.waits_in_vain = 0 if waited.verdict.quiet else self.waits_in_vain + 1
        return waited

    def look(self) -> Waited:
        """Take one reading and wait for nothing: what to store after a block."""
        return wait_until_quiet(self._take, self._judge, 0.0, self.sleep, self.clock)

    def _take(self) -> Reading:
        reading = self.take()
        self.record.append(reading)
        return reading

    def _judge(self, reading: Reading) -> Verdict:
        return judge(reading, self.record[:-1])

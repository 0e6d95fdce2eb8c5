"""The text of numbers, intervals, ratios and changes.

A change is written in per cent while it is small, and as a multiple where per cents hide its size.
"""

import math

from dlbench.reports.results.statistics import Estimate, Summary

LARGE = 2.0
"""From this factor on, either way, a change is written as a multiple."""


def percent(share: float) -> str:
    """Return a share in per cent with at most one decimal: "2.5 %", "5 %"."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def signed_change(ratio: float, low: float | None, high: float | None) -> str:
    """Return a change with its sign and interval.

    For example "+1.2 % (-0.5 to +2.9 %)" or "4.01 times as long (4.00 to 5.63)".
    """
    if _is_large(ratio):
        return _multiple(ratio, low, high)
    return f"{100 * (ratio - 1):+.1f} %{_ends_in_percent(low, high)}"


def change_in_words(
    ratio: float,
    low: float | None,
    high: float | None,
    larger: str = "slower",
    smaller: str = "faster",
) -> str:
    """Return a change in words.

    For example "20.3 % slower (+15.0 to +25.8 %)" or "0.25 times as long (0.24 to 0.26)".
    """
    if _is_large(ratio):
        measure = "long" if larger == "slower" else "much"
        return _multiple(ratio, low, high, measure)
    direction = larger if ratio >= 1 else smaller
    return f"{100 * abs(ratio - 1):.1f} % {direction}{_ends_in_percent(low, high)}"


def longer_in_words(ratio: float, low: float | None, high: float | None) -> str:
    """Return how much longer something takes.

    For example "20.3 % longer (+15.0 to +25.8 %)" or "146 times as long (140 to 152)".
    """
    if _is_large(ratio):
        return _multiple(ratio, low, high)
    return f"{100 * (ratio - 1):.1f} % longer{_ends_in_percent(low, high)}"


def _is_large(ratio: float) -> bool:
    return not 1 / LARGE < ratio < LARGE


def _has_ends(low: float | None, high: float | None) -> bool:
    """Tell whether an interval has both ends; too few pairs have one from 0 to infinity."""
    return low is not None and high is not None and low > 0 and math.isfinite(high)


def _ends_in_percent(low: float | None, high: float | None) -> str:
    if low is None or high is None or not _has_ends(low, high):
        return ""
    return f" ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %)"


def _multiple(ratio: float, low: float | None, high: float | None, amount: str = "long") -> str:
    ends = ""
    if low is not None and high is not None and _has_ends(low, high):
        ends = f" ({_number(low)} to {_number(high)})"
    return f"{_number(ratio)} times as {amount}{ends}"


def _number(value: float) -> str:
    """Return a number with three significant digits, without an exponent for large ones."""
    if value >= 100:
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 2
    return f"{value:.{max(0, digits)}f}"


NEVER = "never"
"""Of a number of steps that is never reached."""


def number(value: float) -> str:
    """Return a number with three significant digits, without an exponent where that is short."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if not 1e-5 <= abs(value) < 1e7:
        return f"{value:.2e}"
    digits = 2 - math.floor(math.log10(float(f"{abs(value):.2e}")))
    return f"{value:.{max(0, digits)}f}"


def amount(value: float) -> str:
    """Return the number of a quantity."""
    return NEVER if value == math.inf else number(value)


def interval(summary: Summary) -> str:
    """Return the interval of a median, see `deviation`."""
    return deviation(summary.median, summary.low, summary.high)


def deviation(value: float, low: float | None, high: float | None) -> str:
    """Return an interval as the larger deviation in per cent, rounded up; empty without one."""
    if low is None or high is None:
        return ""
    larger = 100 * max(high / value - 1, 1 - low / value)
    return f"±{max(1, math.ceil(larger - 1e-9))}%" if larger < 999 else "±>999%"


def times(ratio: Estimate | None) -> str:
    """Return a ratio and its interval, e.g. "1.62x 1.55-1.70"."""
    if ratio is None:
        return ""
    if ratio.low is None or ratio.high is None:
        return f"{number(ratio.value)}x"
    return f"{number(ratio.value)}x {number(ratio.low)}-{number(ratio.high)}"

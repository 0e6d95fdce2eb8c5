"""Durations and shares as short texts."""


def clock(seconds: float) -> str:
    """Return seconds as "42 s", "3:07" or "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


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

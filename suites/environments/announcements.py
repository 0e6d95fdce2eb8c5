"""The lines that announce builds: what is downloaded, where it goes, and how long it may take."""

from collections.abc import Sequence

from ..planning.framework import Framework
from .folders import home

_MEGABITS = 50
"""Speed of the connection for which the time of downloads is given, in Mbit/s."""
_INSTALLED_MEGABYTES = 25
"""Installed each second. Two CPUs of an AMD EPYC (Zen 5) took 27 to 48 on 2026-11-30."""
_GIGABYTE = 1000  # megabytes
_MINUTE = 60  # seconds


def announcement(frameworks: Sequence[Framework]) -> list[str]:
    """Return the lines that announce the builds of these frameworks; none without frameworks."""
    if not frameworks:
        return []
    downloads = sum(framework.download_megabytes for framework in frameworks)
    space = sum(framework.disk_megabytes for framework in frameworks)
    sizes = [f"{framework.title} {framework.download_megabytes} MB" for framework in frameworks]
    downloading = _time(downloads * 8 / _MEGABITS)
    installing = _time(space / _INSTALLED_MEGABYTES)
    return [
        f"To be downloaded: about {_size(downloads)} ({'; '.join(sizes)}).",
        f"Installed that takes about {_size(space)} in {home() / 'environments'}.",
        f"It may take {downloading} at {_MEGABITS} Mbit/s, and {installing} to install.",
    ]


def _size(megabytes: int) -> str:
    if megabytes < _GIGABYTE:
        return f"{megabytes} MB"
    return f"{megabytes / _GIGABYTE:.1f} GB"


def _time(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{max(1, round(seconds / 10)) * 10} s"
    return f"{round(seconds / _MINUTE)} min"

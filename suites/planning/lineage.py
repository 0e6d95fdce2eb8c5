"""What reports ask of the catalogue of frameworks: release dates, and who stands for a framework of the 2016 paper."""

from datetime import date

from dlbench.reports.against import shi2016
from dlbench.reports.against.analysis import Stand

from .framework import catalogue


def release_dates() -> dict[tuple[str, str], date]:
    """Return when the releases that the catalogue knows came out, by adapter (folder) and version."""
    return {
        (framework.folder, release.version): release.date
        for framework in catalogue().values()
        if framework.project is not None
        for release in framework.project.releases
    }


def stands_for_2016() -> dict[str, Stand]:
    """Return which framework here is held against each one of the paper: itself, or its successor."""
    known = catalogue()
    stands = {}
    for name, (catalogued, title) in shi2016.FRAMEWORKS.items():
        entry = known.get(catalogued) or known.get(name)
        missing = entry.unavailable if entry is not None else ""
        if entry is not None and entry.successor:
            entry = known.get(entry.successor)
        if entry is None or entry.unavailable:
            stands[name] = Stand("", title, missing or "it is not in the list of frameworks")
        else:
            stands[name] = Stand(entry.folder, entry.title)
    return stands

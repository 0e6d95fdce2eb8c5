"""What was otherwise the night before a change: software, settings, protocol and the launch's CPUs, from the records.

One record of each side and night is compared with that of the night before. Of the machine itself the store keeps only
the newest description under each fingerprint, so a kernel, driver or microcode that was upgraded that night is not seen
here unless the records tell it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dlbench.reports.history.analysis import CellHistory, ChangePoint, Difference, History
from dlbench.reports.history.series import SIDES
from dlbench.reports.storage.record import Record

UNSEEN = (
    "What changed is taken from the records. Of the machine the store keeps only the newest description: a kernel, "
    "driver or microcode upgraded that night is not shown."
)

Reader = Callable[[str, int, str], Record | None]
"""Gives one record of a run (its id), a cell (its number in the store) and a side, as `Store.example` does."""

_DISTRIBUTIONS = "distributions"


def explained(history: History, read: Reader, most: int | None = None) -> History:
    """Return the history with the `differences` of its newest ``most`` changes filled in; None: of all of them.

    Reads one record for each side of the two nights, so that the cost grows with the changes, not with the store.
    """
    wanted = {(id(cell), change.place) for cell, change in history.changes[:most]}
    known: dict[tuple[str, int, str], Record | None] = {}

    def once(run: str, number: int, side: str) -> Record | None:
        key = run, number, side
        if key not in known:
            known[key] = read(*key)
        return known[key]

    cells = []
    for cell in history.cells:
        changes = tuple(
            replace(change, differences=_of_change(cell, change, once))
            if (id(cell), change.place) in wanted
            else change
            for change in cell.changes
        )
        cells.append(replace(cell, changes=changes))
    return replace(history, cells=tuple(cells))


def _of_change(cell: CellHistory, change: ChangePoint, read: Reader) -> tuple[Difference, ...] | None:
    found: list[Difference] = []
    told = False
    for side in SIDES[cell.series.kind]:
        before = read(change.night_before.run, cell.series.number, side)
        after = read(change.night.run, cell.series.number, side)
        if before is not None and after is not None:
            told = True
            found += differences(before, after)
    return tuple(found) if told else None


def differences(before: Record, after: Record) -> tuple[Difference, ...]:
    """Return in what two records of one cell and side differ but their measurements: packages first."""
    old, new = before.outcome.software, after.outcome.software
    packages = [*_each("", _mapping(old, _DISTRIBUTIONS), _mapping(new, _DISTRIBUTIONS))]
    versions = [(before, after) for _, before, after in packages]
    pairs = [
        *packages,
        # The framework's own word for its version says nothing beyond its package's.
        *(pair for pair in _each("", _settings(old), _settings(new)) if pair[1:] not in versions),
        ("interpreter", before.interpreter, after.interpreter),
        ("dlbench", before.version, after.version),
        *_each("protocol ", before.protocol._asdict(), after.protocol._asdict()),
        ("CPUs", before.outcome.cpus, after.outcome.cpus),
        ("CPU quota", before.quota_cpus, after.quota_cpus),
        ("environment", before.environment[:12], after.environment[:12]),
    ]
    side = after.side
    return tuple(Difference(side, what, _words(old), _words(new)) for what, old, new in pairs if old != new)


def _settings(software: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the framework said of itself, one level deep, but its packages."""
    flat: dict[str, Any] = {}
    for key, value in software.items():
        if key == _DISTRIBUTIONS:
            continue
        if isinstance(value, Mapping):
            flat |= {f"{key} {inner}": inside for inner, inside in value.items()}
        else:
            flat[key] = value
    return flat


def _mapping(software: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = software.get(key)
    return value if isinstance(value, Mapping) else {}


def _each(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    for key in sorted({*old, *new}):
        yield prefix + str(key), old.get(key), new.get(key)


def _words(value: object) -> str | None:
    return None if value is None else " ".join(str(value).split())

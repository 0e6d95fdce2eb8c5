"""Which attempt at a launch counts: one that others disturbed was repeated, and every attempt was kept."""

from collections.abc import Iterable

from dlbench.reports.evidence import raised_flags
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record


def disturbed(record: Record, host: Host | None) -> bool:
    """Tell whether others were in this launch's way."""
    return any(flag.kind is raised_flags.CONTENDED for flag in raised_flags.record_flags(record, host))


def left_out(record: Record, host: Host | None) -> bool:
    """Tell whether a comparison does without this launch: others were in its way, or its GPU was slowed.

    The latter is not repeated, as the GPU would be hotter still.
    """
    kinds = (raised_flags.CONTENDED, raised_flags.DEVICE_THROTTLED)
    return any(flag.kind in kinds for flag in raised_flags.record_flags(record, host))


def effective(records: Iterable[Record], host: Host | None) -> list[Record]:
    """Return one record for each launch: its first undisturbed attempt with a number, else its last."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        key = (record.run, record.cell, record.side, record.stage, record.launch)
        groups.setdefault(key, []).append(record)
    chosen = []
    for attempts in groups.values():
        ordered = sorted(attempts, key=lambda record: record.attempt)
        good = [each for each in ordered if each.outcome.samples_ns and not disturbed(each, host)]
        chosen.append(good[0] if good else ordered[-1])
    return chosen

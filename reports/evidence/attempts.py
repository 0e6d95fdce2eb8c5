"""Which launches count, said here alone: of the attempts at a launch one, and in comparisons only undisturbed ones.

A launch that others disturbed is repeated, and every attempt is kept. Of the attempts at one launch - same run, cell,
side, stage, index and environment - the first counts that has a number and was not disturbed; where there is none, the
last (it is then flagged). `effective` says so of records, `choose` of anything else.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlbench.reports.evidence import flag_kinds, raised_flags
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record


def disturbed(record: Record, host: Host | None) -> bool:
    """Tell whether other programs disturbed this launch."""
    return raised_flags.raises(record, host, flag_kinds.CONTENDED)


def left_out(record: Record, host: Host | None) -> bool:
    """Tell whether a comparison does without this launch: others disturbed it, or its GPU was slowed.

    The latter is not repeated, as the GPU would be hotter still.
    """
    return raised_flags.raises(record, host, flag_kinds.CONTENDED, flag_kinds.DEVICE_THROTTLED)


def effective(records: Iterable[Record], host: Host | None) -> list[Record]:
    """Return the records of one machine that count, one for each launch, in the order given."""
    launches: dict[tuple[object, ...], list[tuple[int, Record]]] = {}
    for place, record in enumerate(records):
        of_launch = (record.run, record.cell, record.side, record.stage, record.launch, record.environment)
        launches.setdefault(of_launch, []).append((place, record))
    kept = []
    for attempts in launches.values():
        if len(attempts) > 1:
            attempts.sort(key=lambda pair: (pair[1].attempt, pair[1].started))
            told = [Attempt(bool(each.outcome.samples_ns), disturbed(each, host)) for _, each in attempts]
            kept.append(attempts[choose(told)])
        else:
            kept += attempts
    return [record for _, record in sorted(kept, key=lambda pair: pair[0])]


class Attempt(NamedTuple):
    """What decides whether an attempt at a launch counts."""

    has_number: bool
    contended: bool | None


def choose(attempts: Sequence[Attempt]) -> int:
    """Return the index of the attempt that counts, of one launch's attempts in order."""
    for index, attempt in enumerate(attempts):
        if attempt.has_number and not attempt.contended:
            return index
    return len(attempts) - 1

"""What each setting is worth: seconds with it over seconds without it, in pairs of launches of one block.

Pure functions. A row's settings are compared twice: alone (``installed+NAME`` against ``installed``), and among all
others (``tuned`` against ``tuned-NAME``); two that do the same work twice are each worth something alone, and little
among the others. All of them together are ``tuned`` against ``installed``. A pair is two launches of one run and block,
neighbours in time; ratio and interval are those of `compare.verdict`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from dlbench.adapters import axes, tuning
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell, Status
from dlbench.reports.compare.verdict import PairedEstimate, estimate_pairs
from dlbench.reports.flags import left_out
from dlbench.reports.statistics import Ratio
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import SEARCH, Record, last_attempts

NOTHING = 0.02
"""A setting whose whole interval lies within so much of 1 is worth nothing."""
FASTER, SLOWER, WORTH_NOTHING, UNKNOWN = "faster", "slower", "worth nothing", "cannot be told"


@dataclass(frozen=True)
class Worth:
    """What a setting is worth to a row on a network; of all settings together the name is empty and only ``alone`` is.

    Below 1 the steps are faster with it. None: not measured in pairs.
    """

    setting: str
    alone: PairedEstimate | None
    among: PairedEstimate | None

    @property
    def verdict(self) -> str:
        """What can be said, among the other settings where that was measured; "" where nothing was."""
        found = self.among or self.alone
        return "" if found is None else verdict(found)


@dataclass(frozen=True)
class Row:
    """A row on a network, at one place: its settings, and what they are worth."""

    machine: str
    cell: Cell
    """With the usual tuning."""
    build: tuple[str, ...]
    """What must be the same for two to be the same row: its environment, and the names of its settings."""
    together: Worth
    settings: tuple[Worth, ...]

    @property
    def estimates(self) -> tuple[PairedEstimate, ...]:
        """All that was estimated of it."""
        worths = (self.together, *self.settings)
        return tuple(found for worth in worths for found in (worth.alone, worth.among) if found is not None)


@dataclass(frozen=True)
class Tuning:
    """All rows that were measured with settings in force and not, in the order of the axes."""

    hosts: Mapping[str, Host]
    rows: tuple[Row, ...]
    disturbed: int = 0
    """Launches that are left out, since others disturbed them."""
    searched: int = 0
    """Launches of searches, which show no setting's worth."""

    @property
    def decided(self) -> bool:
        """Whether every comparison of it has an interval."""
        return all(each.low > 0 for row in self.rows for each in row.estimates)


def verdict(found: PairedEstimate | Ratio) -> str:
    """Return what an estimate says: faster, slower, worth nothing, or that it cannot be told."""
    if found.low is None or found.high is None:
        return UNKNOWN
    if found.low >= 1 - NOTHING and found.high <= 1 + NOTHING:
        return WORTH_NOTHING
    return FASTER if found.high < 1 else SLOWER if found.low > 1 else UNKNOWN


_Times = dict[tuple[str, int], float]  # by run and block
_Group = tuple[str, Cell, tuple[str, ...]]  # machine, cell whatever its tuning, build


def worth_of_settings(records: Iterable[Record], hosts: Mapping[str, Host]) -> Tuning:
    """Return what the settings are worth, of the newest environment of each row."""
    found: dict[_Group, dict[str, _Times]] = {}
    newest: dict[tuple[str, Cell], tuple[datetime, tuple[str, ...]]] = {}
    by_machine: dict[str, list[Record]] = {}
    disturbed = searched = 0
    for record in records:
        by_machine.setdefault(record.machine, []).append(record)
    for machine, of_machine in by_machine.items():
        host = hosts.get(machine)
        for record in last_attempts(of_machine):
            tunable = tuple(record.outcome.software.get(tuning.TUNABLE, ()))
            if not tunable or record.outcome.status is not Status.OK or not record.outcome.samples_ns:
                continue
            if record.side == SEARCH:  # made only because others were fast
                searched += 1
                continue
            if left_out(record, host):
                disturbed += 1
                continue
            cell = record.cell._replace(tuning=TUNED)
            group = (machine, cell, (record.environment, *tunable))
            newest[machine, cell] = max(newest.get((machine, cell), (record.started, ())), (record.started, group[2]))
            times = found.setdefault(group, {}).setdefault(record.cell.tuning, {})
            times[record.run, record.launch] = median(record.outcome.step_seconds())
    rows = (_row(machine, cell, build, found[machine, cell, build]) for (machine, cell), (_, build) in newest.items())
    shown = (row for row in rows if row.together.alone or any(each.verdict for each in row.settings))
    return Tuning(hosts, _in_order(shown, list(by_machine)), disturbed, searched)


def newest_of(parts: Iterable[Tuning]) -> Tuning:
    """Bring together what several runs show, the newest first.

    For each comparison of a row the newest estimate counts that has an interval, else the newest; only those of the
    build with which the row's pairs were last measured.
    """
    hosts: dict[str, Host] = {}
    rows: dict[tuple[str, Cell], Row] = {}
    parts = list(parts)
    for part in parts:
        for row in part.rows:
            hosts.setdefault(row.machine, part.hosts[row.machine])
            known = rows.setdefault((row.machine, row.cell), row)
            if known is not row and known.build == row.build:
                settings = map(_newer, known.settings, row.settings)
                together = _newer(known.together, row.together)
                rows[row.machine, row.cell] = replace(known, together=together, settings=tuple(settings))
    used = {id(each) for row in rows.values() for each in row.estimates}
    told = [part for part in parts if any(id(each) in used for row in part.rows for each in row.estimates)]
    counts = (sum(each) for each in zip(*((part.disturbed, part.searched) for part in told or parts), strict=True))
    return Tuning(hosts, _in_order(rows.values(), list(hosts)), *counts)


def _newer(new: Worth, old: Worth) -> Worth:
    def one(new: PairedEstimate | None, old: PairedEstimate | None) -> PairedEstimate | None:
        keeps = new is not None and (new.low > 0 or old is None or old.low == 0)
        return new if keeps else old

    return replace(new, alone=one(new.alone, old.alone), among=one(new.among, old.among))


def _in_order(rows: Iterable[Row], machines: list[str]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (machines.index(row.machine), axes.sort_key(row.cell))))


def _row(machine: str, cell: Cell, build: tuple[str, ...], times: Mapping[str, _Times]) -> Row:
    names = build[1:]

    def ratio(without: Iterable[str], setting: Iterable[str]) -> PairedEstimate | None:
        before = times.get(tuning.written(set(without), names), {})
        after = times.get(tuning.written({*without, *setting}, names), {})
        pairs = sorted(before.keys() & after.keys())
        return estimate_pairs([before[each] for each in pairs], [after[each] for each in pairs]) if pairs else None

    def among(name: str) -> PairedEstimate | None:
        return ratio(set(names) - {name}, [name]) if len(names) > 1 else None

    settings = (Worth(name, ratio((), [name]), among(name)) for name in names)
    return Row(machine, cell, build, Worth("", ratio((), names), None), tuple(settings))


def tells(cells: Iterable[Cell]) -> bool:
    """Tell whether these cells show what any setting is worth."""
    words: dict[Cell, set[str]] = {}
    for cell in cells:
        words.setdefault(cell._replace(tuning=TUNED), set()).add(cell.tuning)
    return any(len(found) > 1 and found & {INSTALLED, TUNED} for found in words.values())

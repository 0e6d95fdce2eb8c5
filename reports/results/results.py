"""Results: records of one or several stores that count, with their machines.

They can be narrowed to a run, a suite or axes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from dlbench.adapters import axes
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell, Status
from dlbench.hardware_probe import Ceilings
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.hosts import Host, read_host
from dlbench.reports.results.keys import Place
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.selection import Selection, names_meant
from dlbench.reports.results.storage.store import Newest, Store


@dataclass(frozen=True)
class Results:
    """Records and the machines they were measured on."""

    records: tuple[Record, ...] = ()
    hosts: dict[str, Host] = field(default_factory=dict)
    """By fingerprint, in the order in which the machines first appear."""
    ceilings: dict[str, Ceilings] = field(default_factory=dict)
    products: dict[tuple[str, str, str], tuple[tuple[int, float], ...]] = field(
        default_factory=dict
    )
    """Rates of the frameworks' own matrix products in records that are not among these.

    By machine, device and precision: (threads asked for, FLOP/s), none of which used more threads
    than that.
    """
    comparisons: tuple[str, ...] = ()
    """Runs of two sides (compare, gate) and searches whose records were left out, since they were
    not asked for."""
    displaced: tuple[str, ...] = ()
    """Rows ("framework mode") with cells that were measured with an older environment too, in
    records left out."""
    contests: tuple[Run, ...] = ()
    """Those of the records' runs whose cells got more launches where the fastest of their column
    was open."""
    profiles: tuple[Record, ...] = ()
    """Of the profiled launches of a run that was asked for."""

    @classmethod
    def of(
        cls,
        stores: Iterable[Store],
        run: str | None = None,
        suite: str | None = None,
        machine: str | None = None,
    ) -> "Results":
        """Read opened stores: all their records, or those of a run, suite or machine (fingerprint).

        Records of comparisons (two builds under one name) are read only of a run that is asked for.
        A record that lies in several of the stores counts once. Raises StoreError.
        """
        parts = []
        for store in stores:
            stored = store.records(run, suite, machine)
            machines = dict.fromkeys(record.machine for record in stored)
            if run is not None:
                part = cls._of_store(store, stored, machines, ())
                parts.append(replace(part, profiles=tuple(store.profiles(run))))
                continue
            records = []
            left_out: dict[str, None] = {}
            for record in stored:
                if record.side:
                    left_out[record.run] = None
                else:
                    records.append(record)
            parts.append(cls._of_store(store, records, machines, left_out))
        return cls.merge(parts)

    @classmethod
    def _of_store(
        cls,
        store: Store,
        records: Iterable[Record],
        machines: Iterable[str],
        comparisons: Iterable[str],
    ) -> "Results":
        kept = tuple(records)
        described = store.machines()
        hosts = {}
        ceilings = {}
        for name in machines:
            hosts[name] = read_host(name, described.get(name))
            # Those of another version are left out: the records' own sentinels still bound the
            # rates.
            with suppress(ValueError):
                stored = store.ceilings(name)
                if stored is not None:
                    ceilings[name] = Ceilings.from_dict(stored)
        runs = store.runs({record.run for record in kept})
        contests = tuple(run for run in runs if run.contest)
        return cls(kept, hosts, ceilings, comparisons=tuple(comparisons), contests=contests)

    @classmethod
    def newest(
        cls,
        stores: Iterable[Store],
        run: str | None = None,
        suite: str | None = None,
        machine: str | None = None,
        all_runs: bool = False,
    ) -> "Results":
        """Read of opened stores only the records that count for a matrix.

        These are, for each cell on each machine, the records of the newest run that measured it
        (with ``all_runs``: of all runs), with the environment that measured it last. Raises
        StoreError.
        """
        opened = list(stores)
        stored = [store.newest(run, suite, machine) for store in opened]
        products: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
        displaced: set[str] = set()
        # The cells to read of each store: by run and key, each with the entry that counts.
        chosen: list[dict[str | None, dict[int, Newest]]] = [{} for _ in opened]
        for (fingerprint, cell), numbered in _by_cell(stored).items():
            rates = products.setdefault((fingerprint, cell.device, cell.precision), [])
            for _, entry in numbered:
                if entry.product_rate is not None:
                    rates.append((cell.threads, entry.product_rate))
            launched = [(number, entry) for number, entry in numbered if entry.newest is not None]
            if not launched:
                continue
            _, last = max(launched, key=_recency)
            run_to_read = run if all_runs else last.run
            environments: set[str | None] = set()
            for number, entry in launched:
                environments.update((entry.least, entry.greatest))
                chosen[number].setdefault(run_to_read, {})[entry.key] = last
            if environments - {last.environment, None}:
                displaced.add(f"{cell.framework} {cell.mode}")
        parts = []
        for store, entries, cells_by_run in zip(opened, stored, chosen, strict=True):
            in_order = sorted(entries, key=lambda entry: entry.first_id)
            machines = dict.fromkeys(entry.machine for entry in in_order)
            records = _chosen_records(store, cells_by_run, suite, asked=run is not None)
            left_out: list[str] = []
            if run is None:
                left_out = store.compared_runs(suite, machine)
            parts.append(cls._of_store(store, records, machines, left_out))
        return replace(
            cls.merge(parts),
            products={condition: tuple(rates) for condition, rates in products.items()},
            displaced=tuple(sorted(displaced)),
        )

    @classmethod
    def read(
        cls,
        targets: Iterable[str | os.PathLike[str]],
        run: str | None = None,
        suite: str | None = None,
        machine: str | None = None,
        newest: bool = False,
        all_runs: bool = False,
        trainings: bool = False,
    ) -> "Results":
        """Read the stores at these paths or URLs, or with ``newest`` only the records that count.

        The stores must exist. With ``trainings`` every record of a training on a text is among the
        newest, however old. Raises StoreError.
        """
        with ExitStack() as stack:
            opened = [stack.enter_context(Store.open(target, create=False)) for target in targets]
            if not newest:
                return cls.of(opened, run, suite, machine)
            results = cls.newest(opened, run, suite, machine, all_runs)
            if not trainings:
                return results
            trained = cls(tuple(_trained(opened, run, suite, machine)))
            return replace(results, records=cls.merge([results, trained]).records)

    @classmethod
    def merge(cls, parts: Sequence["Results"]) -> "Results":
        """Combine several; a record that is in more than one counts once."""
        records: dict[tuple[object, ...], Record] = {}
        hosts: dict[str, Host] = {}
        ceilings: dict[str, Ceilings] = {}
        comparisons: set[str] = set()
        contests: dict[str, Run] = {}
        profiles: dict[tuple[object, ...], Record] = {}
        for part in parts:
            for record in part.records:
                records.setdefault((*_launch_key(record), record.machine), record)
            for record in part.profiles:
                profiles[_launch_key(record)] = record
            for name, host in part.hosts.items():
                if name not in hosts or not hosts[name].description:
                    hosts[name] = host
            for name, ceiling in part.ceilings.items():
                ceilings.setdefault(name, ceiling)
            comparisons.update(part.comparisons)
            contests.update({run.id: run for run in part.contests})
        return cls(
            tuple(records.values()),
            hosts,
            ceilings,
            comparisons=tuple(sorted(comparisons)),
            contests=tuple(contests.values()),
            profiles=tuple(profiles.values()),
        )


def _launch_key(record: Record) -> tuple[object, ...]:
    return (
        record.run,
        record.launch,
        record.attempt,
        record.cell,
        record.side,
        record.stage,
        record.started,
    )


def _by_cell(
    entries_of_stores: Sequence[Sequence[Newest]],
) -> dict[tuple[str, Cell], list[tuple[int, Newest]]]:
    """Return the entries of all stores by machine and cell, each with the number of its store.

    Cells are in the order of their first launches.
    """
    everywhere = []
    for number, entries in enumerate(entries_of_stores):
        everywhere += [(number, entry) for entry in entries]
    by_cell: dict[tuple[str, Cell], list[tuple[int, Newest]]] = {}
    for number, entry in sorted(everywhere, key=_first_launch):
        by_cell.setdefault((entry.machine, entry.cell), []).append((number, entry))
    return by_cell


def _first_launch(numbered: tuple[int, Newest]) -> tuple[str, int, int]:
    number, entry = numbered
    return entry.first or "", number, entry.first_id


def _recency(numbered: tuple[int, Newest]) -> tuple[object, ...]:
    """Order entries by how lately they were measured, the newest last."""
    number, entry = numbered
    return entry.measured or "", entry.newest, number, entry.newest_id


def _chosen_records(
    store: Store,
    cells_by_run: Mapping[str | None, Mapping[int, Newest]],
    suite: str | None,
    asked: bool,
) -> list[Record]:
    """Return a store's records of these cells, with the environment that counts for each.

    A run that only skipped a cell does not count where another measured it.
    """
    records = []
    for run, cells in cells_by_run.items():
        for key, record in store.records_of_cells(cells, run, asked=asked):
            skipped = record.outcome.status is Status.SKIPPED and cells[key].measured
            counts = record.environment == cells[key].environment and not skipped
            if counts and suite in (None, record.suite):
                records.append(record)
    return records


def _trained(
    stores: Iterable[Store], run: str | None, suite: str | None, machine: str | None
) -> Iterator[Record]:
    # Only runs that asked for it, which are few.
    for store in stores:
        for stored in store.runs():
            asked = run in (None, stored.id) and suite in (None, stored.suite)
            if not asked or not stored.protocol.curve_steps:
                continue
            for record in store.records(run=stored.id, machine=machine):
                if record.outcome.curve or record.outcome.curve_ended:
                    yield record


@dataclass(frozen=True)
class Narrowing:
    """The part of stored results that a reader asks for; empty: all of them."""

    run: str = ""
    suite: str = ""
    machine: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Names and patterns with commas between, by axis: see `selection.names_meant`."""
    cells: tuple[Cell, ...] = ()
    """The cells whose values are the known names: all of the stores, of any run. Empty: those
    narrowed."""

    def takes(self, run: Run) -> bool:
        """Tell whether a run is one of those asked for."""
        return (
            self.run in ("", run.id)
            and self.suite in ("", run.suite)
            and self.machine in ("", run.machine)
        )

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell's axes are asked for."""
        narrowing = self if self.cells else replace(self, cells=(cell,))
        for axis, names in narrowing._names.items():
            if names.isdisjoint(names_of(cell, axis)):
                return False
        return True

    def of(self, results: Results) -> Results:
        """Return the results whose axes are asked for."""
        if not self.axes:
            return results
        cells = self.cells or tuple(dict.fromkeys(record.cell for record in results.records))
        narrowing = replace(self, cells=cells)
        without_settings: frozenset[Place] = frozenset()
        if "tuning" in self.axes:
            without_settings = untunable(results.records)
        taken = []
        for record in results.records:
            is_asked_for = narrowing.has(record.cell)
            if not is_asked_for and record.place in without_settings:
                is_asked_for = narrowing.has(record.cell._replace(tuning=INSTALLED))
            if is_asked_for:
                taken.append(record)
        return replace(results, records=tuple(taken))

    def known(self, axis: str) -> list[str]:
        """Return the names of an axis that the cells have."""
        names: dict[str, None] = {}
        for cell in self.cells:
            names.update(dict.fromkeys(names_of(cell, axis)))
        if axis == "tuning":
            names.update(dict.fromkeys([INSTALLED, TUNED]))  # a row without settings is both
        return list(names)

    def unknown(self) -> list[tuple[str, str]]:
        """Return the words that name no value of the cells, with their axes."""
        unknown = []
        for axis, selection in self._selected.items():
            unknown += [(axis, word) for word in selection.unknown]
        return unknown

    @cached_property
    def _names(self) -> dict[str, frozenset[str]]:
        return {axis: frozenset(selection.names) for axis, selection in self._selected.items()}

    @cached_property
    def _selected(self) -> dict[str, Selection]:
        return {axis: names_meant(words, self.known(axis)) for axis, words in self.axes.items()}


def run_named(word: str, runs: Sequence[Run]) -> str:
    """Return the id of the run that a word means.

    A word is an id, latest, previous, or the beginning of an id. Raises ReportError where there is
    none, or more than one.
    """
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    every_id = dict.fromkeys(run.id for run in ordered)
    if word in every_id:
        return word
    if word == "latest" and ordered:
        return ordered[-1].id
    if word == "previous" and ordered:
        *earlier, last = ordered
        for run in reversed(earlier):
            if (run.suite, run.machine) == (last.suite, last.machine):
                return run.id
        raise ReportError(f"There is no earlier run of {last.suite} on the latest run's machine.")
    ids = [run_id for run_id in every_id if run_id.startswith(word)]
    if not ids:
        return word
    if len(ids) > 1:
        raise ReportError(
            f"{len(ids)} runs begin with {word!r}: {ids[0]} to {ids[-1]}. Give more characters."
        )
    return ids[0]


def untunable(records: Iterable[Record]) -> frozenset[Place]:
    """Return the places whose row has no setting: one cell, called tuned, is as installed too.

    Older records lack the list; their run shows it if it measured other cells as installed.
    """
    records = list(records)
    runs = {record.run for record in records if record.cell.tuning == INSTALLED}
    without_settings = set()
    with_settings = set()
    for record in records:
        if record.cell.tuning == INSTALLED:
            tuned = record.cell._replace(tuning=TUNED)
            with_settings.add(Place(record.machine, axes.without(tuned)))  # it has two, then
        if record.cell.tuning != TUNED or not record.outcome.software:
            continue
        tunable = record.outcome.facts.tunable
        if tunable:
            with_settings.add(record.place)
        elif tunable is not None or record.run in runs:
            without_settings.add(record.place)
    return frozenset(without_settings - with_settings)


def names_of(cell: Cell, axis: str) -> list[str]:
    """Return the words by which a user may name a cell on this axis: `torch` or `torch:eager`."""
    value = getattr(cell, axis)
    if axis != "framework":
        return [axes.word(axis, value), str(value)]
    if cell.mode:
        return [value, f"{value}:{cell.mode}"]
    return [value]

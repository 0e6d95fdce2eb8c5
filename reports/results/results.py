"""Results: records of one or several stores that count, with their machines; narrowed to a run, a
suite or axes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from dlbench.adapters import axes
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell, Status
from dlbench.adapters.tuning import TUNABLE
from dlbench.hardware_probe import Ceilings
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.hosts import Host, read_host
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
            found = store.records(run, suite, machine)
            machines = dict.fromkeys(record.machine for record in found)
            records = [record for record in found if run is not None or not record.side]
            left_out = dict.fromkeys(record.run for record in found if record.side and run is None)
            part = cls._of_store(store, records, machines, left_out)
            parts.append(
                part if run is None else replace(part, profiles=tuple(store.profiles(run)))
            )
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
        hosts = {name: read_host(name, described.get(name)) for name in machines}
        ceilings = {}
        for name in hosts:
            # Those of another version are left out: the records' own sentinels still bound the
            # rates.
            with suppress(ValueError):
                if (known := store.ceilings(name)) is not None:
                    ceilings[name] = Ceilings.from_dict(known)
        contests = tuple(run for run in store.runs({record.run for record in kept}) if run.contest)
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
        known = [store.newest(run, suite, machine) for store in opened]
        of_cell: dict[tuple[str, Cell], list[tuple[int, Newest]]] = {}
        everywhere = [(place, each) for place, of_store in enumerate(known) for each in of_store]
        for place, each in sorted(
            everywhere, key=lambda pair: (pair[1].first or "", pair[0], pair[1].first_id)
        ):
            of_cell.setdefault((each.machine, each.cell), []).append((place, each))
        products: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
        displaced: set[str] = set()
        chosen: list[dict[str | None, dict[int, Newest]]] = [{} for _ in opened]
        for (name, cell), found in of_cell.items():
            where = name, cell.device, cell.precision
            rates = [each.product_rate for _, each in found if each.product_rate is not None]
            products.setdefault(where, []).extend((cell.threads, rate) for rate in rates)
            counting = [(place, each) for place, each in found if each.newest is not None]
            if not counting:
                continue
            _, last = max(
                counting,
                key=lambda of: (of[1].measured or "", of[1].newest, of[0], of[1].newest_id),
            )
            if {each for _, of in counting for each in (of.least, of.greatest)} - {
                last.environment,
                None,
            }:
                displaced.add(f"{cell.framework} {cell.mode}")
            for place, each in counting:
                chosen[place].setdefault(run if all_runs else last.run, {})[each.key] = last
        parts = []
        for place, store in enumerate(opened):
            machines = dict.fromkeys(
                each.machine for each in sorted(known[place], key=lambda each: each.first_id)
            )
            records: list[Record] = []
            for of, cells in chosen[place].items():
                for key, record in store.records_of_cells(cells, of, asked=run is not None):
                    skipped = record.outcome.status is Status.SKIPPED and cells[key].measured
                    in_suite = suite in (None, record.suite)
                    if record.environment == cells[key].environment and not skipped and in_suite:
                        records.append(record)
            left_out = () if run is not None else tuple(store.compared_runs(suite, machine))
            parts.append(cls._of_store(store, tuple(records), machines, left_out))
        kept = {place: tuple(rates) for place, rates in products.items()}
        return replace(cls.merge(parts), products=kept, displaced=tuple(sorted(displaced)))

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
        """Read the stores at these paths or URLs, which must exist, or the `newest` of them. Raises
        StoreError.

        With ``trainings`` every record of a training on a text is among the newest, however old.
        """
        with ExitStack() as stack:
            opened = [stack.enter_context(Store.open(target, create=False)) for target in targets]
            if not newest:
                return cls.of(opened, run, suite, machine)
            found = cls.newest(opened, run, suite, machine, all_runs)
            if not trainings:
                return found
            older = cls.merge([found, cls(tuple(_trained(opened, run, suite, machine)))])
            return replace(found, records=older.records)

    @classmethod
    def merge(cls, parts: Sequence["Results"]) -> "Results":
        """Combine several; a record that is in more than one counts once."""
        records: dict[tuple[object, ...], Record] = {}
        hosts: dict[str, Host] = {}
        ceilings: dict[str, Ceilings] = {}
        for part in parts:
            for record in part.records:
                key = (
                    record.run,
                    record.launch,
                    record.attempt,
                    record.cell,
                    record.side,
                    record.stage,
                )
                records.setdefault((*key, record.started, record.machine), record)
            for name, host in part.hosts.items():
                if name not in hosts or not hosts[name].description:
                    hosts[name] = host
            for name, ceiling in part.ceilings.items():
                ceilings.setdefault(name, ceiling)
        compared = tuple(sorted({run for part in parts for run in part.comparisons}))
        contests = tuple({run.id: run for part in parts for run in part.contests}.values())
        profiles = {
            (each.run, each.launch, each.cell, each.side, each.started): each
            for part in parts
            for each in part.profiles
        }
        return cls(
            tuple(records.values()),
            hosts,
            ceilings,
            comparisons=compared,
            contests=contests,
            profiles=tuple(profiles.values()),
        )


def _trained(
    stores: Iterable[Store], run: str | None, suite: str | None, machine: str | None
) -> Iterator[Record]:
    # Only runs that asked for it, which are few.
    for store in stores:
        for each in store.runs():
            if each.protocol.curve_steps and run in (None, each.id) and suite in (None, each.suite):
                records = store.records(run=each.id, machine=machine)
                yield from (
                    record
                    for record in records
                    if record.outcome.curve or record.outcome.curve_ended
                )


@dataclass(frozen=True)
class Narrowing:
    """What a reader asks for of stored results; empty: all of them."""

    run: str = ""
    suite: str = ""
    machine: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Names and patterns with commas between, by axis: see `selection.names_meant`."""
    cells: tuple[Cell, ...] = ()
    """The cells whose values are the known names: all of the stores, whatever run is read. Empty:
    those narrowed."""

    def takes(self, run: Run) -> bool:
        """Tell whether a run is one of those asked for."""
        pairs = (self.run, run.id), (self.suite, run.suite), (self.machine, run.machine)
        return all(wanted in ("", there) for wanted, there in pairs)

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell's axes are asked for."""
        narrowing = self if self.cells else replace(self, cells=(cell,))
        return all(
            not names.isdisjoint(names_of(cell, axis)) for axis, names in narrowing._names.items()
        )

    def of(self, results: Results) -> Results:
        """Return the results whose axes are asked for."""
        if not self.axes:
            return results
        known = self.cells or tuple(dict.fromkeys(record.cell for record in results.records))
        narrowing = replace(self, cells=known)
        both = untunable(results.records) if "tuning" in self.axes else frozenset()

        def taken(record: Record) -> bool:
            as_installed = record.cell._replace(tuning=INSTALLED)
            if narrowing.has(record.cell):
                return True
            return place_of(record) in both and narrowing.has(as_installed)

        return replace(results, records=tuple(filter(taken, results.records)))

    def known(self, axis: str) -> list[str]:
        """Return the names of an axis that the cells have."""
        further = [INSTALLED, TUNED] if axis == "tuning" else []  # a row without settings is both
        return list(
            dict.fromkeys([name for cell in self.cells for name in names_of(cell, axis)] + further)
        )

    def unknown(self) -> list[tuple[str, str]]:
        """Return the words that name no value of the cells, with their axes."""
        return [
            (axis, word) for axis, selected in self._selected.items() for word in selected.unknown
        ]

    @cached_property
    def _names(self) -> dict[str, frozenset[str]]:
        return {axis: frozenset(selected.names) for axis, selected in self._selected.items()}

    @cached_property
    def _selected(self) -> dict[str, Selection]:
        return {axis: names_meant(words, self.known(axis)) for axis, words in self.axes.items()}


def run_named(word: str, runs: Sequence[Run]) -> str:
    """Return the id of the run that a word means: an id, latest, previous, or the beginning of an
    id.

    Raises ReportError where there is none, or more than one.
    """
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    if any(run.id == word for run in ordered):
        return word
    if word == "latest" and ordered:
        return ordered[-1].id
    if word == "previous" and ordered:
        last = ordered[-1]
        earlier = [
            run for run in ordered[:-1] if (run.suite, run.machine) == (last.suite, last.machine)
        ]
        if not earlier:
            raise ReportError(
                f"There is no earlier run of {last.suite} on the latest run's machine."
            )
        return earlier[-1].id
    found = list(dict.fromkeys(run.id for run in ordered if run.id.startswith(word)))
    if not found:
        return word
    if len(found) > 1:
        raise ReportError(
            f"{len(found)} runs begin with {word!r}: {found[0]} to {found[-1]}. Give more "
            "characters."
        )
    return found[0]


def place_of(record: Record) -> tuple[str, Cell]:
    """Return machine and cell, whatever folder its adapter lay in."""
    return record.machine, record.cell._replace(adapter="")


def untunable(records: Iterable[Record]) -> frozenset[tuple[str, Cell]]:
    """Return the places whose row has no setting there: one cell, called tuned, is as installed
    too.

    Older records lack the list; their run shows it if it measured other cells as installed.
    """
    records = list(records)
    runs = {record.run for record in records if record.cell.tuning == INSTALLED}
    found, with_settings = set(), set()
    for record in records:
        software = record.outcome.software
        if record.cell.tuning == INSTALLED:
            machine, cell = place_of(record)
            with_settings.add((machine, cell._replace(tuning=TUNED)))  # it has two, then
        if record.cell.tuning != TUNED or not software:
            continue
        if software.get(TUNABLE):
            with_settings.add(place_of(record))
        elif TUNABLE in software or record.run in runs:
            found.add(place_of(record))
    return frozenset(found - with_settings)


def names_of(cell: Cell, axis: str) -> list[str]:
    """Return what the value of an axis may be called: a row is a framework, or a framework in a
    mode.
    """
    value = getattr(cell, axis)
    if axis != "framework":
        return [axes.word(axis, value), str(value)]
    return [value, f"{value}:{cell.mode}"] if cell.mode else [value]

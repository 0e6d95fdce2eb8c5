"""Narrowing results to what a reader asks for: a run by the words a person has for it, values of axes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from dlbench.adapters.protocol import INSTALLED, TUNED, Cell
from dlbench.adapters.tuning import TUNABLE
from dlbench.reports.errors import ReportError
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.results import Results


@dataclass(frozen=True)
class Narrowing:
    """What a reader asks for of stored results; empty: all of them."""

    run: str = ""
    """Its id."""
    suite: str = ""
    machine: str = ""
    """A fingerprint."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Words with commas between, by axis."""

    def takes(self, run: Run) -> bool:
        """Tell whether a run is one of those asked for."""
        pairs = (self.run, run.id), (self.suite, run.suite), (self.machine, run.machine)
        return all(wanted in ("", there) for wanted, there in pairs)

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell's axes are asked for."""
        return all(fits(cell, axis, words) for axis, words in _chosen(self.axes).items())

    def of(self, results: Results) -> Results:
        """Return the results whose axes are asked for."""
        return narrowed(results, self.axes)


def run_named(word: str, runs: Sequence[Run]) -> str:
    """Return the id of the run that a word means: latest, previous, an id or the beginning of one.

    Raises ReportError where there is none, or more than one.
    """
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    if word == "latest" and ordered:
        return ordered[-1].id
    if word == "previous" and ordered:
        last = ordered[-1]
        earlier = [run for run in ordered[:-1] if (run.suite, run.machine) == (last.suite, last.machine)]
        if not earlier:
            raise ReportError(f"There is no earlier run of {last.suite} on the latest run's machine.")
        return earlier[-1].id
    found = list(dict.fromkeys(run.id for run in ordered if run.id.startswith(word)))
    if word in found or not found:
        return word
    if len(found) > 1:
        raise ReportError(f"{len(found)} runs begin with {word!r}: {found[0]} to {found[-1]}. Give more characters.")
    return found[0]


def narrowed(results: Results, wanted: Mapping[str, str]) -> Results:
    """Return the results of these values of axes, by the axis: words with commas between, patterns ("lstm*") too."""
    if not wanted:
        return results
    chosen = _chosen(wanted)
    both = untunable(results.records) if "tuning" in chosen else frozenset()

    def taken(record: Record) -> bool:
        cells = [record.cell, *([record.cell._replace(tuning=INSTALLED)] if place_of(record) in both else [])]
        return all(any(fits(cell, axis, words) for cell in cells) for axis, words in chosen.items())

    return replace(results, records=tuple(filter(taken, results.records)))


def _chosen(wanted: Mapping[str, str]) -> dict[str, list[str]]:
    return {axis: [word.strip() for word in words.split(",") if word.strip()] for axis, words in wanted.items()}


def place_of(record: Record) -> tuple[str, Cell]:
    """Return machine and cell, whatever folder its adapter lay in."""
    return record.machine, record.cell._replace(adapter="")


def untunable(records: Iterable[Record]) -> frozenset[tuple[str, Cell]]:
    """Return the places whose row has no setting there: one cell, called tuned, is as installed too.

    Records of before this was told tell it where their run measured others as installed.
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


def fits(cell: Cell, axis: str, words: Sequence[str]) -> bool:
    """Tell whether the cell's value of an axis is one of these words, or fits one that is a pattern."""
    return any(fnmatchcase(each, word) for each in names_of(cell, axis) for word in words)


def names_of(cell: Cell, axis: str) -> list[str]:
    """Return what the value of an axis may be called: a row is a framework, or a framework in a mode."""
    value = str(getattr(cell, axis))
    return [value, f"{value}:{cell.mode}"] if axis == "framework" else [value]

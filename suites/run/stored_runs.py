"""Runs of a store by the words a person has for them, and the comparison of two."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, Comparison, compare_runs
from dlbench.reports.compare.verdict import DEFAULT, Rule, rule_of
from dlbench.reports.storage.hosts import Host, read_host
from dlbench.reports.storage.record import SEARCHING, Record, Run
from dlbench.reports.storage.results import run_named
from dlbench.reports.storage.store import Store

from ..errors import UsageError, unknown_name
from . import sides

Found = tuple[Run, list[Record], str, dict[str, Host]]
"""A run, its records, the store it lies in, and its machine."""


def compare(first: str, second: str, store_file: str, rule_over: Callable[[Rule], Rule]) -> Comparison:
    """Return the comparison of two stored runs, or with one word that of a run that has two sides.

    ``rule_over`` puts what the user chose over the usual rule, or over the one that a run of two sides was made with.
    Raises UsageError for words that name no run and for runs that cannot be compared, and StoreError.
    """
    before = _find(first, store_file)
    _check_no_search(before[0])
    if not second:
        if not before[0].sides:
            raise UsageError(f"Run {before[0].id} has one side only. Name a second run to compare it with.")
        with Store.open(before[2], create=False) as store:
            return sides.report_of(store, before[0], rule_over(rule_of(before[0].rule)))
    after = _find(second, store_file)
    _check_no_search(after[0])
    if (before[0].id, before[0].machine) == (after[0].id, after[0].machine):
        raise UsageError(f"{first} and {second} are the same run, {before[0].id}. Name two.")
    hosts = {**before[3], **after[3]}
    names = {BASELINE: _title(before[0]), CANDIDATE: _title(after[0])}
    try:
        return compare_runs(_one_side(before[1]), _one_side(after[1]), hosts, names, rule_over(DEFAULT))
    except ValueError as error:
        taken = f"{names[BASELINE]}, and {names[CANDIDATE]}"
        raise UsageError(f"{taken}, cannot be compared: {error}.{_others(before, after)}") from error


def _check_no_search(run: Run) -> None:
    if run.purpose == SEARCHING:
        raise UsageError(f"Run {run.id} is a search, which launched fast cells more often. Name another run.")


def _one_side(records: list[Record]) -> list[Record]:
    """Return the records of a suite, or of a run with two sides its candidate's."""
    return [record for record in records if record.side in ("", CANDIDATE)]


def _others(before: Found, after: Found) -> str:
    """Return which other runs of the stores share a cell with the one held against them, the newest first."""
    shared = []
    for one, other in ((before, after), (after, before)):
        cells = {record.cell for record in other[1]}
        with Store.open(one[2], create=False) as store:
            runs = [run for run in reversed(store.runs()) if run.id != one[0].id and cells & set(run.plan)]
        runs = [run for run in runs if run.purpose != SEARCHING]
        shared += [f"{one[2]}:{run.id}" for run in runs[:2]]
    return f" These share cells: {', '.join(shared)}." if shared else ""


def _title(run: Run) -> str:
    return f"run {run.id} of {run.suite}, {run.started:%Y-%m-%d %H:%M} UTC"


def _is_file(word: str) -> bool:
    with contextlib.suppress(OSError):  # a word too long for a name
        return Path(word).is_file()
    return False


def _find(word: str, store_file: str) -> Found:
    """Return the run that a word means, its records, the store it lies in, and its machine.

    A word is latest, previous, the beginning of an id, a store (its newest run), or STORE:ID.
    """
    place, colon, of_place = word.rpartition(":")
    if colon and (_is_file(place) or ("/" in place.partition("://")[2] and "/" not in of_place)):
        return _find(of_place, place)
    target = word if _is_file(word) or "://" in word else os.fspath(store_file)
    with Store.open(target, create=False) as store:
        runs = store.runs()
        if not runs:
            raise UsageError(f"{store.name} holds no run yet; fill it with `dlbench run SUITE`.")
        name = run_named("latest" if target == word else word, runs)
        run = next((each for each in runs if each.id == name), None)
        if run is None:
            raise unknown_name("run", word, [each.id for each in runs[-5:]])
        records = store.records(run=run.id)
        host = read_host(run.machine, store.machine(run.machine))
    if not records:
        raise UsageError(f"Run {run.id} has no record: it ended before its first launch.")
    return run, records, target, {run.machine: host}

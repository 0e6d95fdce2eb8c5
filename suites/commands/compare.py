"""`dlbench compare`: a candidate against a baseline, stored or measured now."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, Comparison, compare_runs
from dlbench.reports.compare.verdict import DEFAULT, Rule, fewest_pairs, rule_of
from dlbench.reports.storage.hosts import Host, host_of, read_host
from dlbench.reports.storage.record import SEARCHING, Record, Run
from dlbench.reports.storage.results import run_named
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..errors import NOTHING_MEASURED, UsageError, unknown_name
from ..planning import values
from ..run.schedules import for_compare
from ..run.sides import report_of
from .ab import ComparisonOptions, measure, share_of, show
from .options import OptionGroup, grouped

FEWEST, MOST, INTERVAL = 6, 20, 0.02


@dataclass(frozen=True)
class WhatToCompare(OptionGroup):
    """Two stored runs, or two sides that are measured now."""

    first: Annotated[
        str, typer.Argument(metavar="[A]", help="Baseline: a run's id or its beginning, latest, previous, or a store.")
    ] = ""
    second: Annotated[str, typer.Argument(metavar="[B]", help="Candidate, in the same words.")] = ""
    now: Annotated[bool, typer.Option("--now", help="Measure both sides now, in interleaved pairs of launches.")] = (
        False
    )
    suite_name: Annotated[
        str | None, typer.Option("--suite", help="With --now: the suite whose cells are measured (quick).")
    ] = None
    pairs: Annotated[
        str | None, typer.Option("--pairs", help=f"With --now: fewest and most pairs of a cell ({FEWEST}-{MOST}).")
    ] = None
    interval: Annotated[
        str | None, typer.Option("--interval", help="With --now: half-width of the 95 % interval to reach (2%).")
    ] = None


@grouped
def compare_command(what: WhatToCompare, given: ComparisonOptions) -> None:
    """Is B slower than A? Stored runs, or two sides measured now: cell by cell, with intervals and a verdict.

    Of --python given twice for a framework the first is the baseline; given once it is the candidate, against dlbench's
    own environment (a step of your own has none: there it serves both sides). Measured now, the two sides of a cell are
    launched one after the other, in random order. Exit code 1: no cell was measured on both sides.

    Examples:

    - `dlbench compare previous latest`
    - `dlbench compare 20261119 20261120 --format markdown`
    - `dlbench compare here.sqlite there.sqlite`
    - `dlbench compare --now --python torch=/opt/a/bin/python --python torch-next:torch=/opt/b/bin/python`
    - `dlbench compare --now --frameworks mxnet --candidate-env OMP_WAIT_POLICY=passive --networks lstm32`
    - `dlbench compare --now --frameworks torch --baseline-adapters HEAD~1`
    """
    form = given.output.check()
    if not what.now:
        session, stored = vars(given.session), ("store_file",)
        of_session = {name: value for name, value in session.items() if name not in stored}
        of_measuring = (given.axes.words, vars(given.launches), vars(given.sides), vars(given.builds), of_session)
        words = [word for each in of_measuring for word in each.values()]
        if any((*words, what.suite_name, what.pairs, what.interval)):
            raise UsageError("Options of what to measure go with --now. Stored runs are compared as they are.")
        if not what.first:
            raise UsageError("Name two runs to compare (`dlbench report runs` lists them), or measure now: --now.")
        found = compare_stored(what.first, what.second, given.session.store_file, given.rules.over)
        show(found, form, given.output.write)
        return
    if what.first or what.second:
        raise UsageError("With --now both sides are measured: leave the names of stored runs out.")
    fewest, most = values.launch_range(what.pairs or f"{FEWEST}-{MOST}", "--pairs")
    width = share_of(what.interval, "--interval") or INTERVAL
    asked = given.asked("compare", what.suite_name or "quick")
    cells = len(asked.plan.cells)
    rule = for_compare(host_of(asked.machine), cells, fewest, most, width, asked.rule)
    say(_pairs_in_words(cells, fewest, most, asked.rule))
    measured = measure(asked, rule)
    show(measured, form, given.output.write)
    if not any(cell.measured for cell in measured.cells):
        raise typer.Exit(NOTHING_MEASURED)


def _pairs_in_words(cells: int, fewest: int, most: int, rule: Rule) -> str:
    """Return how many pairs are measured, and how many more where other programs disturb them."""
    needed = fewest_pairs(cells, rule)
    first, last = max(fewest, needed), max(most, needed)
    span = str(first) if first == last else f"{first} to {last}"
    why = f" (fewer than {needed} cannot show a slowdown)" if needed > fewest else ""
    again = int(rule.spare * last)
    return f"{span} pairs of each cell{why}; up to {again} more replace pairs that other programs disturb"


Found = tuple[Run, list[Record], str, dict[str, Host]]
"""A run, its records, the store it lies in, and its machine."""


def compare_stored(first: str, second: str, store_file: str, rule_over: Callable[[Rule], Rule]) -> Comparison:
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
            return report_of(store, before[0], rule_over(rule_of(before[0].rule)))
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
    """Return which other runs of the stores share a cell with the one compared to them, the newest first."""
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

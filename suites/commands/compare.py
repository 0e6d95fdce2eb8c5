"""`dlbench compare`: a candidate against a baseline, stored or measured now."""

from dataclasses import dataclass
from typing import Annotated

import typer

from dlbench.reports.compare.verdict import Rule, fewest_pairs
from dlbench.reports.storage.hosts import host_of

from ..display.screen import say
from ..errors import NOTHING_MEASURED, UsageError
from ..planning import values
from ..run import stored_runs
from ..run.schedules import for_compare
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
        found = stored_runs.compare(what.first, what.second, given.session.store_file, given.rules.over)
        show(found, form, given.output.write)
        return
    if what.first or what.second:
        raise UsageError("With --now both sides are measured: leave the names of stored runs out.")
    fewest, most = values.launch_range(what.pairs or f"{FEWEST}-{MOST}", "--pairs")
    width = share_of(what.interval, "--interval") or INTERVAL
    asked = given.asked("compare", what.suite_name or "quick")
    cells = len(asked.plan.cells)
    following = for_compare(host_of(asked.machine), cells, fewest, most, width, asked.rule)
    say(_pairs_in_words(cells, fewest, most, asked.rule))
    measured = measure(asked, following)
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

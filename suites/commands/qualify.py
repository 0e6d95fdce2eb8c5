"""`dlbench gate --qualify`: which slowdowns can a gate find on this machine?

Measures identical code, then the same code with a known slowdown: matrix products of the framework
itself, added to each step. Both are judged as in a gate. The deviation and the duration of the
pairs determine which slowdowns a gate finds here, how often and how soon (`verdict.outlook`). The
launches are not stored: they would look like real regressions.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import NamedTuple

from dlbench.adapters.protocol import EXTRA_PRODUCTS, Cell
from dlbench.hardware_probe import probe
from dlbench.reports.compare.report import ratio_of_cell
from dlbench.reports.results.comparison import CellComparison
from dlbench.reports.results.hosts import host_of
from dlbench.reports.results.naming import counted, name_of
from dlbench.reports.results.record import BASELINE, GATE, Record
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import DEFAULT, Rule, Verdict, deviation_of, outlook

from ..display.screen import say, show
from ..errors import GATE_FAILED, GATE_UNDECIDED, UsageError
from ..planning.plan import check_count, narrow_to
from ..run import sides
from ..run.groups import of_pairs
from ..run.runner import RunProfile, run_plan
from ..run.schedules import PairSchedule, for_gate
from . import options
from .compare import planned, rule_given
from .options import Given

KNOWN = 0.05
"""The added slowdown."""
SHOWN = (0.02, 0.05, 0.10)
"""Slowdowns whose probability and time of detection are shown."""
LARGEST_ORDER = 1024
"""Of an added product: its matrices have 12 MB together, and it is about as fast as the one that
was timed."""


class Measured(NamedTuple):
    """A cell that was measured on both sides."""

    found: CellComparison
    pair_seconds: float
    products: str
    """Products that lengthen its steps by `KNOWN`; empty if the framework offers no matrix
    product."""


def qualify(given: Given) -> int:
    """Measure identical code and a known slowdown in each cell, print what a gate finds, and return
    the exit code.

    Raises UsageError.
    """
    if given.resume or given.write or given.as_json or given.form not in (None, "terminal"):
        raise UsageError(
            "--qualify prints a few lines and stores nothing. Leave out --resume, --write, "
            "--format and --json."
        )
    if given.judge:
        raise UsageError("--qualify measures slowdowns of a step's time. Leave --judge out.")
    seconds, rule, machine = options.seconds_of(given.budget), rule_given(given, DEFAULT), probe()
    plan, (_, side) = planned(
        Given(**{**vars(given), "same": True}), given.name, machine, given.baseline or ()
    )
    check_count(plan, given.yes)
    grouping = of_pairs(plan, machine, given.order, (side,))
    same = replace(side, name=BASELINE)
    sources = sides.prepare(plan, (same, side), say, not given.no_build)
    gate, began = for_gate(host_of(machine), rule), time.monotonic()
    with Store.open("sqlite://") as store:

        def measure(cells: Sequence[Cell], products: str = "") -> dict[Cell, Measured]:
            """Return the cells that the budget allows, the candidate with these products added to
            each step.
            """
            left = None if seconds is None else seconds - (time.monotonic() - began)
            if left is not None and left <= 0:
                return {}
            extra = {EXTRA_PRODUCTS: products} if products else {}
            profile = RunProfile(
                GATE,
                lambda plan, records, host: PairSchedule(plan, records, gate, grouping, host),
                (same, replace(side, variables={**side.variables, **extra})),
                rule,
                ceilings=False,
                lines=lambda: (
                    (
                        f"{counted(len(cells), 'cell')}, "
                        f"{f'{products} added' if extra else 'identical code'}"
                    ),
                ),
                sources=sources,
                resume_command="",
            )
            run, _ = run_plan(
                narrow_to(plan, tuple(cells)), machine, store, profile, budget_seconds=left
            )
            found, records = sides.report_of(store, run, rule), store.records(run=run.id)
            return {each.cell: _measured(each, records) for each in found.cells}

        identical = measure(plan.cells)
        slowed: dict[Cell, Measured] = {}
        for cell, each in identical.items():
            slowed |= measure([cell], each.products) if each.products else {}
    for cell in plan.cells:
        show(line_of(cell, identical.get(cell), slowed.get(cell), rule))
    alarms, hits = (
        sum(each.found.verdict is Verdict.REGRESSION for each in found.values())
        for found in (identical, slowed)
    )
    show(
        f"{counted(len(plan.cells), 'cell')}: identical code was called slower in {alarms} "
        f"(long-run limit {rule.false_alarms:.2%} per cell), {KNOWN:.0%} added work was found in "
        f"{hits}."
    )
    return GATE_FAILED if alarms else 0 if hits == len(plan.cells) else GATE_UNDECIDED


def _measured(found: CellComparison, records: Sequence[Record]) -> Measured:
    records = [record for record in records if record.cell == found.cell]
    rates = [rate for record in records if (rate := record.outcome.gemm_flops_per_second)]
    steps = found.baseline.launch_medians
    products = products_for(KNOWN * median(steps), median(rates)) if steps and rates else ""
    return Measured(found, 2 * fmean(record.wall_seconds for record in records), products)


def products_for(seconds: float, rate: float) -> str:
    """Return matrix products that take this long at a rate in FLOP/s, as COUNTxORDER
    (`EXTRA_PRODUCTS`).
    """
    multiplications = seconds * rate / 2
    count = math.ceil(multiplications / LARGEST_ORDER**3)
    return f"{count}x{max(1, round((multiplications / count) ** (1 / 3)))}"


def line_of(cell: Cell, same: Measured | None, slowed: Measured | None, rule: Rule) -> str:
    """Return which slowdowns a gate finds in a cell, how often and how soon, and whether it found
    the known one.
    """
    sets = [each for each in (same, slowed) if each is not None and len(each.found.pairs[0]) > 1]
    if same is None or not sets:
        why = "the budget was spent" if same is None else same.found.judgement.sentence
        return f"{name_of(cell)}: detectable slowdowns are not known: {why}."
    deviation = fmean(deviation_of(*each.found.pairs) ** 2 for each in sets) ** 0.5
    pair_seconds = fmean(each.pair_seconds for each in sets)

    def expected(slowdown: float) -> str:
        found, pairs = outlook(deviation, slowdown, rule)
        after = f" in {pairs * pair_seconds / 60:.1f} min"
        return (
            f"{slowdown:.0%}{after} with probability {found:.0%}"
            if slowdown
            else f"identical code passes{after}"
        )

    if slowed is None:
        why = "the budget was spent" if same.products else "this framework offers no matrix product"
        put_in = f"could not be tried: {why}"
    elif slowed.found.verdict is Verdict.REGRESSION:
        put_in = f"found, {ratio_of_cell(slowed.found)}"
    else:
        put_in = f"not found: {slowed.found.judgement.sentence}"
    return (
        f"{name_of(cell)}: finds slowdowns of {', '.join(map(expected, SHOWN))}; {expected(0.0)}. "
        f"Pairs deviate by {deviation:.1%} and take {pair_seconds:.1f} s; {KNOWN:.0%} added work: "
        f"{put_in}."
    )

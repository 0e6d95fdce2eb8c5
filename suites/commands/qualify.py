"""`dlbench gate --qualify`: which slowdowns can a gate find on this machine?

Measures identical code, then the same code with a known slowdown: matrix products of the framework
itself, added to each step. Both are judged as in a gate. The deviation and the duration of the
pairs determine which slowdowns a gate finds on this machine, how often and how soon
(`verdict.outlook`). The launches are not stored: they would look like real regressions.
"""

import math
from collections.abc import Mapping, Sequence
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
from dlbench.reports.results.verdict import Rule, Verdict, deviation_of, outlook

from ..display.screen import say, show
from ..errors import GATE_FAILED, GATE_UNDECIDED, UsageError
from ..planning.plan import check_count, narrow_to
from ..run import sides
from ..run.budget import Budget
from ..run.groups import grouping_for_pairs
from ..run.runner import RunProfile, run_plan
from ..run.schedules import PairSchedule, gate_rule
from . import options
from .compare import TwoSidesOptions, planned, rule_of_two_sides

KNOWN = 0.05
"""The added slowdown."""
SHOWN = (0.02, 0.05, 0.10)
"""Slowdowns whose probability and time of detection are shown."""
LARGEST_ORDER = 1024
"""The largest order of an added product's matrices.

They have 12 MB together, and the product is about as fast as the one that was timed.
"""


class Measured(NamedTuple):
    """A cell that was measured on both sides."""

    comparison: CellComparison
    pair_seconds: float
    products: str
    """Products that lengthen its steps by `KNOWN`, empty if the framework offers no product."""


def qualify(given: TwoSidesOptions, suite: str, baseline: Sequence[str]) -> int:
    """Measure identical code and a known slowdown in each cell, print what a gate finds of them.

    ``baseline`` are the words of the baseline's interpreters. Returns the exit code. Raises
    UsageError.
    """
    if given.resume or given.write or given.as_json or given.form not in (None, "terminal"):
        raise UsageError(
            "--qualify prints a few lines and stores nothing. Leave out --resume, --write, "
            "--format and --json."
        )
    if given.judge:
        raise UsageError("--qualify measures slowdowns of a step's time. Leave --judge out.")
    budget = Budget(options.seconds_of(given.budget))
    rule = rule_of_two_sides(given)
    machine = probe()
    plan, (_, candidate) = planned(replace(given, same=True), suite, machine, baseline)
    check_count(plan, given.yes)
    grouping = grouping_for_pairs(plan, machine, given.order, (candidate,))
    same = replace(candidate, name=BASELINE)
    sources = sides.prepare(plan, (same, candidate), say, not given.no_build)
    gate = gate_rule(host_of(machine), rule)
    budget.begin()
    with Store.open("sqlite://") as store:

        def measure(cells: Sequence[Cell], products: str = "") -> dict[Cell, Measured]:
            """Return the cells that the budget allows.

            The candidate has these products added to each step.
            """
            if not budget.has(1.0):
                return {}
            variables = dict(candidate.variables)
            if products:
                variables[EXTRA_PRODUCTS] = products
            added = f"{products} added" if products else "identical code"
            line = f"{counted(len(cells), 'cell')}, {added}"
            profile = RunProfile(
                GATE,
                lambda plan, records, host: PairSchedule(plan, records, gate, grouping, host),
                (same, replace(candidate, variables=variables)),
                rule,
                ceilings=False,
                lines=lambda: (line,),
                sources=sources,
                resume_command="",
            )
            narrowed = narrow_to(plan, tuple(cells))
            run, _ = run_plan(narrowed, machine, store, profile, budget=budget)
            comparison = sides.report_of(store, run, rule)
            records = store.records(run=run.id)
            return {cell.cell: _measured(cell, records) for cell in comparison.cells}

        identical = measure(plan.cells)
        slowed: dict[Cell, Measured] = {}
        for cell, measured in identical.items():
            if measured.products:
                slowed |= measure([cell], measured.products)
    for cell in plan.cells:
        show(line_of(cell, identical.get(cell), slowed.get(cell), rule))
    alarms = _count_regressions(identical)
    hits = _count_regressions(slowed)
    show(
        f"{counted(len(plan.cells), 'cell')}: identical code was called slower in {alarms} "
        f"(long-run limit {rule.false_alarms:.2%} per cell), {KNOWN:.0%} added work was found in "
        f"{hits}."
    )
    if alarms:
        return GATE_FAILED
    return 0 if hits == len(plan.cells) else GATE_UNDECIDED


def _count_regressions(measured_by_cell: Mapping[Cell, Measured]) -> int:
    return sum(
        measured.comparison.verdict is Verdict.REGRESSION for measured in measured_by_cell.values()
    )


def _measured(comparison: CellComparison, records: Sequence[Record]) -> Measured:
    """Return a cell with the duration of its pairs, and the products that add a known slowdown."""
    records = [record for record in records if record.cell == comparison.cell]
    rates = []
    for record in records:
        if record.outcome.gemm_flops_per_second:
            rates.append(record.outcome.gemm_flops_per_second)
    steps = comparison.baseline.launch_medians
    products = ""
    if steps and rates:
        products = products_for(KNOWN * median(steps), median(rates))
    pair_seconds = 2 * fmean(record.wall_seconds for record in records)
    return Measured(comparison, pair_seconds, products)


def products_for(seconds: float, rate: float) -> str:
    """Return matrix products that take this long at a rate in FLOP/s.

    They are written as COUNTxORDER (`EXTRA_PRODUCTS`).
    """
    multiplications = seconds * rate / 2
    count = math.ceil(multiplications / LARGEST_ORDER**3)
    order = max(1, round((multiplications / count) ** (1 / 3)))
    return f"{count}x{order}"


def line_of(cell: Cell, same: Measured | None, slowed: Measured | None, rule: Rule) -> str:
    """Return which slowdowns a gate finds in a cell, and whether it found the known one."""
    if same is None:
        return f"{name_of(cell)}: detectable slowdowns are not known: the budget was spent."
    measured = [same] if slowed is None else [same, slowed]
    measured = [one for one in measured if len(one.comparison.pairs[0]) > 1]
    if not measured:
        reason = same.comparison.judgement.sentence
        return f"{name_of(cell)}: detectable slowdowns are not known: {reason}."
    variances = [deviation_of(*one.comparison.pairs) ** 2 for one in measured]
    deviation = fmean(variances) ** 0.5
    pair_seconds = fmean(one.pair_seconds for one in measured)
    detected = []
    for slowdown in SHOWN:
        probability, pairs = outlook(deviation, slowdown, rule)
        minutes = pairs * pair_seconds / 60
        detected.append(f"{slowdown:.0%} in {minutes:.1f} min with probability {probability:.0%}")
    _, pairs = outlook(deviation, 0.0, rule)
    minutes = pairs * pair_seconds / 60
    if slowed is None and same.products:
        result = "could not be tried: the budget was spent"
    elif slowed is None:
        result = "could not be tried: this framework offers no matrix product"
    elif slowed.comparison.verdict is Verdict.REGRESSION:
        result = f"found, {ratio_of_cell(slowed.comparison)}"
    else:
        result = f"not found: {slowed.comparison.judgement.sentence}"
    return (
        f"{name_of(cell)}: finds slowdowns of {', '.join(detected)}; identical code passes in "
        f"{minutes:.1f} min. Pairs deviate by {deviation:.1%} and take {pair_seconds:.1f} s; "
        f"{KNOWN:.0%} added work: {result}."
    )

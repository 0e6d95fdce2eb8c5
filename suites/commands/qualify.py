"""`dlbench gate --qualify`: what can a gate find on this machine?

Identical code first, then the same code with a known slowdown: matrix products of the framework itself, added to each
step (`adapters/launch/worker.py`). Both go the gate's own way. How the pairs deviate and how long one takes says what a
gate finds here, how often and how soon (`verdict.outlook`). The launches are not kept: in a store they would look like
regressions of somebody's code.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import probe
from dlbench.reports.compare.comparison import BASELINE, CellComparison
from dlbench.reports.compare.report import ratio_of_cell
from dlbench.reports.compare.verdict import DEFAULT, Rule, Verdict, deviation_of, outlook
from dlbench.reports.naming import name_of
from dlbench.reports.storage.hosts import host_of
from dlbench.reports.storage.store import Store

from ..display.screen import counted, say, show
from ..errors import GATE_FAILED, GATE_UNDECIDED, UsageError
from ..planning.plan import check_count, narrow_to
from ..run import sides
from ..run.duet import SEQUENTIAL, choose
from ..run.runner import RunProfile, run_plan
from ..run.schedules import PairRule, PairSchedule, for_gate
from ..run.sides import report_of
from . import options
from .compare import planned, rule_given
from .options import Given

KNOWN = 0.05
"""The slowdown that is put in."""
SHOWN = (0.02, 0.05, 0.10)
"""Slowdowns for which is said how often and how soon a gate finds them."""
_TRIAL_PAIRS, _TRIAL_PRODUCTS = 2, 50
"""Pairs that time the products, and products in them: about half of a step, so that noise is small beside it."""
_RATE = 5e10
"""FLOP/s of a product, roughly (one thread with AVX2 or more): with it one takes about a hundredth of a step."""
NOT_FOUND = GATE_UNDECIDED
"""Exit code where the known slowdown was not found in every cell."""


class Measured(NamedTuple):
    """A cell that was measured on both sides."""

    found: CellComparison
    pair_seconds: float


Measure = Callable[[Sequence[Cell], str, PairRule], dict[Cell, Measured]]
"""Measures cells, with these products added on one side, in the pairs that a rule wants."""


def qualify(given: Given) -> int:
    """Measure identical code and a known slowdown in each cell, say what a gate finds here, and return the exit code.

    Raises UsageError.
    """
    if given.resume or given.write or given.as_json or given.form not in (None, "terminal"):
        raise UsageError(
            "--qualify prints a few lines and keeps nothing: leave --resume, --write, --format, --json out."
        )
    seconds, rule, machine = options.seconds_of(given.budget), rule_given(given, DEFAULT), probe()
    plan, (_, side), _ = planned(Given(**{**vars(given), "same": True}), given.name, machine, given.baseline or ())
    check_count(plan, given.yes)
    duets, _ = choose(given.pairing or SEQUENTIAL, plan.cells, machine.cpu)
    same = replace(side, name=BASELINE)
    sources = sides.prepare(plan, (same, side), say, not given.no_build)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="dlbench-qualify-") as folder,
        Store.open(Path(folder) / "runs.sqlite") as store,
    ):

        def measure(cells: Sequence[Cell], products: str, pairs: PairRule) -> dict[Cell, Measured]:
            left = None if seconds is None else seconds - (time.monotonic() - began)
            if left is not None and left <= 0:
                return {}
            extra = {"DLBENCH_EXTRA_PRODUCTS": products} if products else {}
            profile = RunProfile(
                "gate",
                lambda plan, records, _: PairSchedule(plan, records, pairs, duets),
                (same, replace(side, variables={**side.variables, **extra})),
                rule,
                ceilings=False,
                lines=lambda: (f"{counted(len(cells), 'cell')}, {f'{products} added' if extra else 'identical code'}",),
                sources=sources,
                resume_command="",
            )
            run, _ = run_plan(narrow_to(plan, tuple(cells)), machine, store, profile, budget_seconds=left)
            walls: dict[Cell, list[float]] = {}
            for record in store.records(run=run.id):
                walls.setdefault(record.cell, []).append(record.wall_seconds)
            launches = {cell: 1 if cell in duets else 2 for cell in cells}
            return {
                each.cell: Measured(each, launches[each.cell] * fmean(walls[each.cell]))
                for each in report_of(store, run, rule).cells
            }

        gate = for_gate(host_of(machine), rule)
        identical = measure(plan.cells, "", gate)
        slowed = {cell: _slowed(cell, each, measure, gate) for cell, each in identical.items()}
    for cell in plan.cells:
        show(line_of(cell, identical.get(cell), slowed.get(cell), rule))
    alarms = sum(each.found.verdict is Verdict.REGRESSION for each in identical.values())
    hits = sum(each is not None and each.found.verdict is Verdict.REGRESSION for each in slowed.values())
    show(
        f"Of {counted(len(plan.cells), 'cell')} identical code was called slower in {alarms} (at most "
        f"{rule.false_alarms:.2%} a cell in the long run), {KNOWN:.0%} more work was found in {hits}."
    )
    return GATE_FAILED if alarms else 0 if hits == len(plan.cells) else NOT_FOUND


def _slowed(cell: Cell, same: Measured, measure: Measure, gate: PairRule) -> Measured | None:
    """Measure a cell with a known slowdown; None where no size for it was found."""
    if not same.found.measured:
        return None
    step = median(same.found.baseline.launch_medians)
    order = max(16, round((step / 100 * _RATE / 2) ** (1 / 3)))

    def trial(cell: Cell, records: Sequence[object]) -> tuple[str, int] | None:
        left = _TRIAL_PAIRS - len(records) // 2
        return ("trial", left) if left > 0 else None

    found = measure([cell], f"{_TRIAL_PRODUCTS}x{order}", trial).get(cell)
    before, after = found.found.pairs if found else ((), ())
    if not before or (more := median(b / a - 1 for a, b in zip(before, after, strict=True))) < KNOWN:
        return None
    return measure([cell], f"{max(1, round(KNOWN * _TRIAL_PRODUCTS / more))}x{order}", gate).get(cell)


def line_of(cell: Cell, same: Measured | None, slowed: Measured | None, rule: Rule) -> str:
    """Return what a gate finds in a cell: how often, how soon, and what it found of the known slowdown."""
    sets = [each for each in (same, slowed) if each is not None and len(each.found.pairs[0]) > 1]
    if not sets:
        why = same.found.judgement.sentence if same is not None else "the budget was spent"
        return f"{name_of(cell)}: what a gate finds is not known: {why}."
    deviation = fmean(deviation_of(*each.found.pairs) ** 2 for each in sets) ** 0.5
    pair_seconds = fmean(each.pair_seconds for each in sets)

    def expected(slowdown: float) -> str:
        found, pairs = outlook(deviation, slowdown, rule)
        after = f" in {pairs * pair_seconds / 60:.1f} min"
        return f"{slowdown:.0%}{after} with {found:.0%}" if slowdown else f"identical code passes{after}"

    if slowed is None:
        put_in = "could not be tried"
    elif slowed.found.verdict is Verdict.REGRESSION:
        put_in = f"found, {ratio_of_cell(slowed.found)}"
    else:
        put_in = f"not found: {slowed.found.judgement.sentence}"
    return (
        f"{name_of(cell)}: {', '.join(map(expected, SHOWN))}; {expected(0.0)}. Pairs deviate by {deviation:.1%} and "
        f"take {pair_seconds:.1f} s; {KNOWN:.0%} more work put in: {put_in}."
    )

"""Which pairs of launches a comparison needs next: a pure function of what was measured so far.

So a comparison that was interrupted goes on from its records alone, and what the report says is what was acted on.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.compare import BASELINE, CANDIDATE, CONFIRM, SCREEN, pairs_of
from dlbench.reports.hosts import Host
from dlbench.reports.paired import FEWEST_PAIRS, estimate_pairs
from dlbench.reports.record import Record
from dlbench.reports.stages import Screening, next_look, screen
from dlbench.reports.verdict import DEFAULT, Rule

CRASHES = 2
"""A side that crashed this often is not launched again."""
SPARE = 0.5
"""Pairs that others disturbed are measured again, up to this share of the pairs wanted."""


@dataclass(frozen=True)
class PlannedPair:
    """One pair to come: a launch of each side of a cell, one after the other."""

    cell: Cell
    stage: str
    launch: int
    """Index of the pair within its stage."""
    first: str
    """The side launched first, drawn by lot."""

    @property
    def order(self) -> tuple[str, str]:
        """Both sides, in launching order."""
        return (self.first, CANDIDATE if self.first == BASELINE else BASELINE)


Next = Callable[[Cell, Sequence[Record]], tuple[str, int] | None]
"""Given a cell and its records: the stage that needs a pair, and how many more at most; None when it is done."""


def block(cells: Iterable[Cell], records: Sequence[Record], following: Next, seed: int) -> list[PlannedPair]:
    """Return one pair for each cell that needs one, shuffled, each with its sides' order drawn by lot."""
    by_cell: dict[Cell, list[Record]] = {}
    for record in records:
        by_cell.setdefault(record.cell, []).append(record)
    planned = []
    for cell in cells:
        known = by_cell.get(cell, [])
        wanted = following(cell, known)
        if wanted is None:
            continue
        stage, _ = wanted
        launch = 1 + max((record.launch for record in known if record.stage == stage), default=-1)
        lot = random.Random(f"{seed}:{stage}:{launch}:{cell!r}")
        planned.append(PlannedPair(cell, stage, launch, lot.choice((BASELINE, CANDIDATE))))
    random.Random(f"{seed}:{[pair.launch for pair in planned]}").shuffle(planned)
    return planned


def pairs_left(cells: Iterable[Cell], records: Sequence[Record], following: Next) -> dict[Cell, int]:
    """Return how many pairs each unfinished cell may still need, for an estimate of the time left."""
    by_cell: dict[Cell, list[Record]] = {}
    for record in records:
        by_cell.setdefault(record.cell, []).append(record)
    left = {cell: following(cell, by_cell.get(cell, [])) for cell in cells}
    return {cell: wanted[1] for cell, wanted in left.items() if wanted is not None}


def _given_up(records: Sequence[Record]) -> bool:
    for side in (BASELINE, CANDIDATE):
        statuses = [record.outcome.status for record in records if record.side == side]
        if any(status not in (Status.OK, Status.CRASHED) for status in statuses):
            return True  # it would end the same way again
        if statuses.count(Status.CRASHED) >= CRASHES:
            return True
    return False


def _tried(records: Sequence[Record], stage: str) -> int:
    return 1 + max((record.launch for record in records if record.stage == stage), default=-1)


def for_gate(host: Host, rule: Rule = DEFAULT) -> Next:
    """Return what a gate needs next: screening pairs until a cell is clear or suspect, then confirming ones."""

    def following(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None
        screened, _ = pairs_of(records, host, SCREEN)
        state = screen(*screened, rule)
        if state is Screening.SUSPECT:
            confirmed, _ = pairs_of(records, host, CONFIRM)
            missing = rule.confirm_pairs - len(confirmed[0])
            spare = int((1 + SPARE) * rule.confirm_pairs) - _tried(records, CONFIRM)
            return (CONFIRM, missing) if missing > 0 and spare > 0 else None
        spare = int((1 + SPARE) * rule.screen_looks[-1]) - _tried(records, SCREEN)
        if state is Screening.MORE and spare > 0:
            return SCREEN, max(1, next_look(len(screened[0]), rule) - len(screened[0]))
        return None

    return following


def for_compare(host: Host, fewest: int, most: int, precision: float, rule: Rule = DEFAULT) -> Next:
    """Return what a comparison needs next: pairs until the ratio's interval is narrow enough.

    ``precision`` is the half-width of the interval relative to the ratio. It stops on precision, never on a p-value.
    """

    def following(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None
        (baseline, candidate), _ = pairs_of(records, host, None)
        spare = int((1 + SPARE) * most) - _tried(records, "")
        if len(baseline) >= most or spare <= 0:
            return None
        if len(baseline) < max(fewest, FEWEST_PAIRS):
            return "", max(fewest, FEWEST_PAIRS) - len(baseline)
        found = estimate_pairs(baseline, candidate, rule.confidence)
        half = (found.high - found.low) / (2 * found.ratio)
        if half <= precision:
            return None
        needed = len(baseline) * (half / precision) ** 2
        return "", max(1, min(most, int(needed)) - len(baseline))

    return following

"""Which pairs of launches a comparison needs next: a pure function of what was measured so far.

So a comparison that was interrupted goes on from its records alone, and what the report says is what was acted on.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CONFIRM, CRASHES, ONCE_BY_CHANCE, SCREEN, pairs_of
from dlbench.reports.compare.verdict import DEFAULT, Rule, Screening, estimate_pairs, fewest_pairs, next_look, screen
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

LOOKS_APART = 1.4
"""A comparison looks at its interval after so many times the pairs of the look before. Looking after every pair would
favour intervals that came out narrow by chance."""


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
    by_cell = _by_cell(records)
    planned = []
    for cell in cells:
        known = by_cell.get(cell, [])
        wanted = following(cell, known)
        if wanted is None:
            continue
        stage, _ = wanted
        launch = _tried(known, stage)
        lot = random.Random(f"{seed}:{stage}:{launch}:{cell!r}")
        planned.append(PlannedPair(cell, stage, launch, lot.choice((BASELINE, CANDIDATE))))
    random.Random(f"{seed}:{[pair.launch for pair in planned]}").shuffle(planned)
    return planned


def pairs_left(cells: Iterable[Cell], records: Sequence[Record], following: Next) -> dict[Cell, int]:
    """Return how many pairs each unfinished cell may still need, for an estimate of the time left."""
    by_cell = _by_cell(records)
    left = {cell: following(cell, by_cell.get(cell, [])) for cell in cells}
    return {cell: wanted[1] for cell, wanted in left.items() if wanted is not None}


def _by_cell(records: Sequence[Record]) -> dict[Cell, list[Record]]:
    found: dict[Cell, list[Record]] = {}
    for record in records:
        found.setdefault(record.cell, []).append(record)
    return found


def _given_up(records: Sequence[Record]) -> bool:
    for side in (BASELINE, CANDIDATE):
        statuses = [record.outcome.status for record in records if record.side == side]
        if any(status not in (Status.OK, *ONCE_BY_CHANCE) for status in statuses):
            return True  # it would end the same way again
        if sum(map(statuses.count, ONCE_BY_CHANCE)) >= CRASHES:
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
            spare = int((1 + rule.spare) * rule.confirm_pairs) - _tried(records, CONFIRM)
            return (CONFIRM, missing) if missing > 0 and spare > 0 else None
        spare = int((1 + rule.spare) * rule.screen_looks[-1]) - _tried(records, SCREEN)
        if state is Screening.MORE and spare > 0:
            return SCREEN, max(1, next_look(len(screened[0]), rule) - len(screened[0]))
        return None

    return following


def for_compare(host: Host, cells: int, fewest: int, most: int, precision: float, rule: Rule = DEFAULT) -> Next:
    """Return what a comparison of so many cells needs next: pairs until the ratio's interval is narrow enough.

    ``precision`` is the half-width of the interval relative to the ratio. It stops on precision, never on a p-value,
    and not before there are pairs enough to prove a slowdown at all (`verdict.fewest_pairs`).
    """
    looks = [max(fewest, fewest_pairs(cells, rule))]
    while looks[-1] < most:
        looks.append(min(most, math.ceil(LOOKS_APART * looks[-1])))

    def following(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None
        (baseline, candidate), _ = pairs_of(records, host, None)
        spare = int((1 + rule.spare) * looks[-1]) - _tried(records, "")
        if len(baseline) >= looks[-1] or spare <= 0:
            return None
        reached = [look for look in looks if look <= len(baseline)]
        half = math.inf
        if reached:
            found = estimate_pairs(baseline[: reached[-1]], candidate[: reached[-1]], rule.confidence)
            half = (found.high - found.low) / (2 * found.ratio)
        if half <= precision:
            return None
        following_look = next(look for look in looks if look > len(baseline))
        needed = len(baseline) * (half / precision) ** 2 if reached else 0.0
        return "", max(following_look, min(looks[-1], int(min(needed, looks[-1])))) - len(baseline)

    return following

"""How the two launches of a pair are made: in turns, at once on their own CPUs (duet), or one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Cpu, Machine
from dlbench.reports.naming import name_of

from ..errors import UsageError
from ..planning import values
from ..planning.plan import Plan
from . import duet, turns
from .groups import expected_peak, memory_for_launches
from .sides import Side

TURNS, SEQUENTIAL, DUET = PAIRINGS = ("turns", "sequential", "duet")


@dataclass(frozen=True)
class Pairing:
    """The cells whose pairs are not measured one launch after the other, and why others are."""

    duets: Mapping[Cell, duet.Masks] = field(default_factory=dict)
    in_turns: frozenset[Cell] = frozenset()
    remarks: tuple[str, ...] = ()


def choose(pairing: str, cells: Sequence[Cell], cpu: Cpu, helpers: Mapping[str, int] = MappingProxyType({})) -> Pairing:
    """Return how the pairs of these cells are made, with a line for each cell that cannot have it so.

    ``helpers`` load the data of a user's own step, by row. Raises UsageError for an unknown pairing, and for duet pairs
    if no cell can have them.
    """
    values.one_of(pairing, "pairing", PAIRINGS)
    if pairing == SEQUENTIAL:
        return Pairing()
    if pairing == TURNS:
        refused = {cell: why for cell in cells if (why := turns.refusal(cell))}
        in_turns = frozenset(cell for cell in cells if cell not in refused)
        return Pairing(in_turns=in_turns, remarks=_remarks(refused))
    masks = {cell: duet.masks_of(cell, cpu, helpers.get(cell.framework, 0)) for cell in cells}
    duets = {cell: each for cell, each in masks.items() if not isinstance(each, str)}
    refused = {cell: each for cell, each in masks.items() if isinstance(each, str)}
    if refused and not duets:
        raise UsageError(
            f"No cell can be measured in duet pairs. {_words(*next(iter(refused.items())))}. "
            f"Use --pairing {SEQUENTIAL}."
        )
    return Pairing(duets, remarks=_remarks(refused))


def of_plan(plan: Plan, machine: Machine, named: str | None, of_run: Sequence[Side]) -> Pairing:
    """Return how the pairs of a plan's cells are made: as ``named``, or in turns wherever that is possible.

    Nothing can disturb a framework that computes nothing: its launches need no turns. Adapters of another revision may
    not know of turns, and both sides must fit into memory at once. Raises UsageError.
    """
    if named is not None:
        helpers = {build.name: build.framework.helpers for build in plan.builds}
        return choose(named, plan.cells, machine.cpu, helpers)
    if any(side.revision for side in of_run):
        return Pairing()
    computing = [cell for cell in plan.cells if plan.row_of(cell).build.framework.computes]
    fitting = [cell for cell in computing if _both_fit(plan, cell, machine)]
    return replace(choose(TURNS, fitting, machine.cpu), remarks=())


def _both_fit(plan: Plan, cell: Cell, machine: Machine) -> bool:
    """Tell whether two launches of a cell fit into memory; of a mini-batch of unknown size it is assumed."""
    return cell.batch_size is None or 2 * expected_peak(plan, cell) <= memory_for_launches(machine)


def _remarks(refused: Mapping[Cell, str]) -> tuple[str, ...]:
    return tuple(f"sequential pairs of {_words(cell, why)}" for cell, why in refused.items())


def _words(cell: Cell, why: str) -> str:
    return f"{name_of(cell)}: {why}"

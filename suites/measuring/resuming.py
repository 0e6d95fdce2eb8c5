"""Which unfinished run ``--resume`` goes on with: one that the same command began.

A command that chooses nothing itself (``run table4 --resume``) also goes on with a run that was begun with a part of
the suite's cells. Whatever else differs between the plan of now and the run is said.
"""

from collections.abc import Collection, Iterable, Sequence

from dlbench.adapters.axes import AXES
from dlbench.adapters.protocol import Cell
from dlbench.reports.storage.record import Run

from ..errors import UsageError
from ..planning.plan import Plan

_SHOWN = 4


def same(plan: Plan, runs: Sequence[Run], bare: bool) -> Run | None:
    """Return the newest of these unfinished runs (oldest first) that the plan is the plan of; None where none is.

    ``bare``: nothing was chosen of the suite.
    """
    return next((run for run in reversed(runs) if not differences(plan, run, bare)), None)


def refusal(plan: Plan, run: Run, bare: bool) -> UsageError:
    """Return the error that says in what a run differs from what is asked for now."""
    found = differences(plan, run, bare)
    more = f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return UsageError(
        f"The unfinished run {run.id} is not the one asked for now: {'; '.join(found[:_SHOWN])}{more}. Give the "
        "options and the suite it began with, or leave out --resume to start a new run."
    )


def differences(plan: Plan, run: Run, bare: bool) -> list[str]:
    """Return in words what differs between a plan of now and an unfinished run; nothing where it can go on."""
    now, then = set(plan.cells), set(run.plan)
    of_cells = [] if now == then or (bare and then <= now) else _of_cells(now, then)
    of_protocol = [
        (name, getattr(plan.protocol, name), getattr(run.protocol, name))
        for name in plan.protocol._fields
        # So many at least follow from so many at most.
        if name != "minimum_steps" or plan.protocol.steps == run.protocol.steps
    ]
    of_launches = [
        ("launches", _range(plan.launches, plan.launches_most), _range(run.launches, run.launches_most)),
        ("interval", plan.interval, run.precision),
    ]
    return [*of_cells, *(_said(*each) for each in (*of_protocol, *of_launches) if each[1] != each[2])]


def _of_cells(now: Collection[Cell], then: Collection[Cell]) -> list[str]:
    found = []
    for axis in AXES:
        values = [{getattr(cell, axis.name) for cell in cells} for cells in (now, then)]
        if values[0] != values[1]:
            shown = [_listed(each) for each in values]
            found.append(_said(axis.name.replace("_", " "), *shown))
    if found:
        return found
    new, missing = len(set(now) - set(then)), len(set(then) - set(now))
    return [f"cells: {new} that the run does not have, and {missing} fewer"]


def _said(name: str, now: object, then: object) -> str:
    return f"{name.replace('_', ' ')}: {_none(now)} now, {_none(then)} in the run"


def _none(value: object) -> object:
    return "none" if value is None else value


def _listed(values: Iterable[object]) -> str:
    ordered = sorted(values, key=lambda value: (isinstance(value, str), value))
    return ", ".join(map(str, ordered))


def _range(fewest: int, most: int | None) -> str:
    return str(fewest) if most is None else f"{fewest}-{most}"

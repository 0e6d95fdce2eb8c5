"""The part of a run that is measured before the environments of its other rows are built.

A first matrix is then there within minutes. The launches of the first part are launches of the run:
the rest of it makes those that are missing, as a resumed run does.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..environments import environment
from ..environments.environment import State
from ..planning.framework import Framework
from ..planning.plan import Plan, narrow_to
from ..planning.values import Build


def to_build(plan: Plan) -> list[Framework]:
    """Return the frameworks of a plan whose environments are not ready, and can be built."""
    return environment.to_build(
        build.framework for build in plan.builds if build.interpreter is None
    )


def first_part(plan: Plan, to_build: Sequence[Framework]) -> Plan | None:
    """Return the plan of the first part, one launch of each cell, or None if there is none.

    It has the frameworks that are ready, and with fewer than `Plan.first_frameworks` of these, also
    the first of those ``to_build``.
    """
    first = {build.name for build in plan.builds if _is_ready(build)}
    lacking = max(0, plan.first_frameworks - len(first))
    if not plan.first_frameworks or lacking >= len(to_build):
        return None
    first |= {framework.name for framework in to_build[:lacking]}
    cells = tuple(cell for cell in plan.cells if cell.framework in first)
    return replace(narrow_to(plan, cells), launches=1, launches_most=None, interval=None)


def _is_ready(build: Build) -> bool:
    if build.interpreter is not None:
        return True
    return environment.locate(build.framework).state is State.READY

"""Which jobs go on with what broken ones left, and on which nodes.

A job's own node goes on with all of it. Where that node is not usable, another of the same kind takes the cells that
were not begun; those that were begun stay as they are, since one cell is never measured on two nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.servers.fleets import Job
from dlbench.reports.storage.store import Store

from .membership import cells_not_begun
from .schedulers.scheduler import Scheduler
from .standing import BROKEN, FINISHED, Standing


@dataclass
class GoingOn:
    """New jobs in the order of their numbers, and why others cannot be."""

    jobs: list[Job] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """A sentence for each of the jobs."""
    refusals: list[str] = field(default_factory=list)


def replacements(standings: Sequence[Standing], store: Store, scheduler: Scheduler, others: Sequence[str]) -> GoingOn:
    """Return what goes on with broken jobs; ``others`` may take over, else nodes whose own job has finished.

    Raises StoreError.
    """
    found = GoingOn()
    jobs = [each.job for each in standings]
    number = max((job.number for job in jobs), default=0)
    spare = _spare(standings, others)
    for job in (each.job for each in standings if each.state in BROKEN):
        new = Job(number + 1, job.node, replaces=job.number)
        line = f"job {new.number} goes on with what job {job.number} left, on {job.node}"
        if not scheduler.usable(job.node):
            run = fleets.left_by(jobs, job)
            short = _begun(store, run) if run is not None else 0
            node = _taken(spare, job, scheduler)
            if short is None:
                found.refusals.append(f"Node {job.node} cannot be used now, and it began every cell of its run.")
                continue
            if node is None:
                found.refusals.append(f"Node {job.node} cannot be used now, and no other node of its kind is free.")
                continue
            new = Job(number + 1, node, replaces=job.number)
            line = f"job {new.number} takes over from job {job.number}, on {node}"
            line += f"; {short} cells that {job.node} began stay as they are" if short else ""
        number += 1
        found.jobs.append(new)
        found.lines.append(line)
    return found


def _begun(store: Store, run: str) -> int | None:
    """Return how many cells of a run were begun; None where all were."""
    kept = store.run(run)
    if kept is None:
        return 0
    left = len(cells_not_begun(store, kept))
    return len(kept.plan) - left if left else None


def _spare(standings: Sequence[Standing], others: Sequence[str]) -> dict[str, str | None]:
    """Return the nodes that may take over, with their fingerprints where these are known."""
    known = {each.job.node: each.job.machine for each in standings if each.job.machine}
    if others:
        return {node: known.get(node) for node in others}
    free = {each.job.node for each in standings if each.state == FINISHED}
    return {node: machine for node, machine in known.items() if node in free}


def _taken(spare: dict[str, str | None], broken: Job, scheduler: Scheduler) -> str | None:
    """Take a usable node of the broken job's kind; one that nothing is known of is tried, and looked at there."""
    for node, machine in list(spare.items()):
        alike = machine is None or broken.machine is None or machine == broken.machine
        if alike and node != broken.node and scheduler.usable(node):
            del spare[node]
            return node
    return None

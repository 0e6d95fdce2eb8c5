"""The runs of two sides (compare, gate) that a store holds, each judged again from its launches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlbench.reports.compare.comparison import Comparison, compare_sides_of_run
from dlbench.reports.report import Source
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Run


@dataclass(frozen=True)
class Compared:
    """One such run, and what it says."""

    run: Run
    comparison: Comparison


def compared(source: Source) -> Sequence[Compared]:
    """Return all that are asked for, the newest first; a run without a launch of either side is left out."""
    found = []
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        if not run.sides or not source.narrowing.takes(run):
            continue
        part = tuple(cell for cell in run.plan if source.narrowing.has(cell))
        results = source.narrowing.of(source.of_run(run.id))
        host = results.hosts.get(run.machine) or Host(run.machine, run.machine[:12])
        records = [each for each in results.records if each.run == run.id]
        if any(each.side for each in records):
            found.append(Compared(run, compare_sides_of_run(replace(run, plan=part), records, host)))
    return found

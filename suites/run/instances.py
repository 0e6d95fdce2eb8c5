"""Instances: independent processes of one cell that run at once, each on its own CPUs; their joint
throughput counts.

Each is a launch that is judged by itself. Together they take one over the sum of their rates for a
mini-batch, so the i-th samples of all make one sample. Only the time during which all were timed
counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from dlbench.adapters.protocol import Contention, Outcome, Status, ThreadEvidence
from dlbench.reports.results.record import SAMPLES_OF_INSTANCES

from .launcher import Launched, LaunchRequest, Meeting, Tick, at_once


def run_instances(
    request: LaunchRequest, launch: Callable[[LaunchRequest, Tick], Launched], tick: Tick
) -> Launched:
    """Run the instances of a launch, which divide its CPUs and quota, and return their joint
    result.
    """
    count, cpus = request.launch.cell.instances, request.launch.cpus or []
    each, meeting = len(cpus) // count, Meeting(count)

    def instance(number: int, look: Tick) -> Launched:
        own = cpus[number * each : (number + 1) * each]
        cell = request.launch.cell
        cell = cell._replace(instances=1, cpu_quota=cell.cpu_quota / count)
        alone = request.launch._replace(cell=cell, cpus=own)
        return launch(replace(request, launch=alone, meeting=meeting), look)

    done = at_once([partial(instance, number) for number in range(count)], meeting, tick)
    outcome = together([one.outcome for one in done])
    return Launched(
        outcome, max(one.wall_seconds for one in done), any(one.suspended for one in done)
    )


_HOW: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("import_seconds", "prepare_seconds", "first_step_seconds", "wall_seconds"), max
    ),
    **dict.fromkeys(
        ("pressure_seconds", "pressure_avg10_before", "steal_seconds", "throttled_seconds"), max
    ),
    "steady": min,
    "cpu_seconds_by_thread": lambda found: sorted(chain.from_iterable(found), reverse=True),
}
"""Functions that merge the values of all instances; values of other fields are added up."""
_OF_OUTCOME = (
    *("import_seconds", "prepare_seconds", "first_step_seconds"),
    *("peak_memory_bytes", "gemm_flops_per_second", "steady"),
)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcomes of all instances as one, or the first failed one's with its reason."""
    first = outcomes[0]
    if failed := next((each for each in outcomes if each.status is not Status.OK), None):
        return failed._replace(samples_ns=[], reason=f"an instance: {failed.reason}")
    spans = [each.timed_between for each in outcomes if each.timed_between]
    begin, end = (
        max((span[0] for span in spans), default=0.0),
        min((span[1] for span in spans), default=np.inf),
    )
    steps = [_samples(each, begin, end) for each in outcomes]
    count = min(map(len, steps))
    rates = np.sum([1 / each[:count] for each in steps], axis=0)
    samples = [[ns // each.steps_per_sample for ns in each.samples_ns] for each in outcomes]
    threads, contention = (
        [each.threads for each in outcomes],
        [each.contention for each in outcomes],
    )
    return first._replace(
        samples_ns=[max(1, round(nanoseconds)) for nanoseconds in 1 / rates],
        steps_per_sample=1,
        evidence_steps=sum(each.observed_steps() for each in outcomes),
        timed_between=[begin, end] if spans else None,
        cpus=sorted(cpu for each in outcomes for cpu in each.cpus or ()) or None,
        threads=None
        if None in threads
        else ThreadEvidence(**_merged(threads, ThreadEvidence._fields)),
        contention=None
        if None in contention
        else Contention(**_merged(contention, Contention._fields)),
        calls_ns=list(chain.from_iterable(each.calls_ns for each in outcomes)),
        software={**first.software, SAMPLES_OF_INSTANCES: samples},
        **_merged(outcomes, _OF_OUTCOME),
    )


def _samples(outcome: Outcome, begin: float, end: float) -> np.ndarray:
    """Return the nanoseconds per step of each sample in this time, or of the first sample if there
    is none.
    """
    lengths = np.array(outcome.samples_ns, dtype=float)
    steps = lengths / outcome.steps_per_sample
    if outcome.timed_between is None:
        return steps
    middles = outcome.timed_between[0] + (np.cumsum(lengths) - lengths / 2) * 1e-9
    inside = (begin <= middles) & (middles <= end)
    return steps[inside] if inside.any() else steps[:1]


def _merged(several: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return these fields of all as one; None where one has none."""
    fields = {name: [getattr(each, name) for each in several] for name in names}
    return {
        name: None if None in values else _HOW.get(name, sum)(values)
        for name, values in fields.items()
    }

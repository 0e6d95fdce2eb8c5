"""Instances: independent processes of one cell that run at once, each on its own CPUs.

Their joint throughput counts. Each is a launch that is judged by itself. Together they take one
over the sum of their rates for a mini-batch, so the i-th samples of all make one sample. Only the
time during which all were timed counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from dlbench.adapters.protocol import Contention, Status, ThreadEvidence
from dlbench.reports.results.outcome import HostFacts, Outcome

from .judge import JudgedLaunch
from .launcher import LaunchRequest, Meeting, Tick, run_together


def run_instances(
    request: LaunchRequest, launch: Callable[[LaunchRequest, Tick], JudgedLaunch], tick: Tick
) -> JudgedLaunch:
    """Run the instances of a launch, which divide its CPUs and quota. Return their joint result."""
    count = request.launch.cell.instances
    cpus = request.launch.cpus or []
    share = len(cpus) // count
    meeting = Meeting(count)

    def instance(number: int, look: Tick) -> JudgedLaunch:
        own = cpus[number * share : (number + 1) * share]
        cell = request.launch.cell
        cell = cell._replace(instances=1, cpu_quota=cell.cpu_quota / count)
        alone = request.launch._replace(cell=cell, cpus=own)
        return launch(replace(request, launch=alone, meeting=meeting), look)

    instances = [partial(instance, number) for number in range(count)]
    outcomes = []
    wall_seconds = 0.0
    suspended = False
    for judged in run_together(instances, meeting, tick):
        outcomes.append(judged.outcome)
        wall_seconds = max(wall_seconds, judged.wall_seconds)
        suspended = suspended or judged.suspended
    return JudgedLaunch(together(outcomes), wall_seconds, suspended)


def _busiest_first(times: Sequence[Sequence[float]]) -> list[float]:
    return sorted(chain.from_iterable(times), reverse=True)


_MERGERS: dict[str, Callable[[Any], Any]] = {
    "import_seconds": max,
    "prepare_seconds": max,
    "first_step_seconds": max,
    "wall_seconds": max,
    "pressure_seconds": max,
    "pressure_avg10_before": max,
    "steal_seconds": max,
    "throttled_seconds": max,
    "steady": min,
    "cpu_seconds_by_thread": _busiest_first,
}
"""Functions that merge the values of all instances. Values of other fields are added up."""
_MERGED_FIELDS = (
    "import_seconds",
    "prepare_seconds",
    "first_step_seconds",
    "peak_memory_bytes",
    "gemm_flops_per_second",
    "steady",
)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcomes of all instances as one, or the first failed one's with its reason."""
    for outcome in outcomes:
        if outcome.status is not Status.OK:
            return outcome._replace(samples_ns=[], reason=f"an instance: {outcome.reason}")
    samples = []
    cpus: list[int] = []
    calls: list[int] = []
    observed_steps = 0
    begins = []
    ends = []
    threads = []
    contentions = []
    for outcome in outcomes:
        samples.append([ns // outcome.steps_per_sample for ns in outcome.samples_ns])
        cpus += outcome.cpus or ()
        calls += outcome.calls_ns
        observed_steps += outcome.observed_steps()
        if outcome.timed_between:
            begins.append(outcome.timed_between[0])
            ends.append(outcome.timed_between[1])
        if outcome.threads is not None:
            threads.append(outcome.threads)
        if outcome.contention is not None:
            contentions.append(outcome.contention)
    timed_between = None
    if begins:
        timed_between = [max(begins), min(ends)]
    merged_threads = None
    if len(threads) == len(outcomes):
        merged_threads = ThreadEvidence(**_merge(threads, ThreadEvidence._fields))
    merged_contention = None
    if len(contentions) == len(outcomes):
        merged_contention = Contention(**_merge(contentions, Contention._fields))
    first = outcomes[0]
    return first._replace(
        samples_ns=_joint_samples(outcomes, timed_between),
        steps_per_sample=1,
        evidence_steps=observed_steps,
        timed_between=timed_between,
        cpus=sorted(cpus) or None,
        threads=merged_threads,
        contention=merged_contention,
        calls_ns=calls,
        software=HostFacts(samples_ns_of_instances=samples).added_to(first.software),
        **_merge(outcomes, _MERGED_FIELDS),
    )


def _joint_samples(outcomes: Sequence[Outcome], timed_between: Sequence[float] | None) -> list[int]:
    """Return the nanoseconds per step of all instances together, by their i-th samples."""
    steps = [_samples(outcome, timed_between) for outcome in outcomes]
    count = min(map(len, steps))
    rates = np.sum([1 / nanoseconds[:count] for nanoseconds in steps], axis=0)
    return [max(1, round(nanoseconds)) for nanoseconds in 1 / rates]


def _samples(outcome: Outcome, timed_between: Sequence[float] | None) -> np.ndarray:
    """Return the nanoseconds per step of each sample in this time, or else of the first sample."""
    lengths = np.array(outcome.samples_ns, dtype=float)
    steps = lengths / outcome.steps_per_sample
    if outcome.timed_between is None or timed_between is None:
        return steps
    begin, end = timed_between
    middles = outcome.timed_between[0] + (np.cumsum(lengths) - lengths / 2) * 1e-9
    inside = (begin <= middles) & (middles <= end)
    if not inside.any():
        return steps[:1]
    return steps[inside]


def _merge(instances: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return these fields of all instances, merged, or None where an instance has none."""
    fields: dict[str, Any] = {}
    for name in names:
        values = [getattr(instance, name) for instance in instances]
        fields[name] = None
        if None not in values:
            merge = _MERGERS.get(name, sum)
            fields[name] = merge(values)
    return fields

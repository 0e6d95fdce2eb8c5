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

    judged_launches = run_together(
        [partial(instance, number) for number in range(count)], meeting, tick
    )
    return JudgedLaunch(
        together([judged.outcome for judged in judged_launches]),
        max(judged.wall_seconds for judged in judged_launches),
        any(judged.suspended for judged in judged_launches),
    )


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
    first = outcomes[0]
    spans = [outcome.timed_between for outcome in outcomes if outcome.timed_between]
    begin = max((span[0] for span in spans), default=0.0)
    end = min((span[1] for span in spans), default=np.inf)
    steps = [_samples(outcome, begin, end) for outcome in outcomes]
    count = min(map(len, steps))
    rates = np.sum([1 / nanoseconds[:count] for nanoseconds in steps], axis=0)
    merged_samples = [max(1, round(nanoseconds)) for nanoseconds in 1 / rates]
    samples = []
    cpus: list[int] = []
    calls: list[int] = []
    for outcome in outcomes:
        calls += outcome.calls_ns
        samples.append([ns // outcome.steps_per_sample for ns in outcome.samples_ns])
        cpus += outcome.cpus or ()
    threads = [outcome.threads for outcome in outcomes]
    merged_threads = None
    if None not in threads:
        merged_threads = ThreadEvidence(**_merge(threads, ThreadEvidence._fields))
    contention = [outcome.contention for outcome in outcomes]
    merged_contention = None
    if None not in contention:
        merged_contention = Contention(**_merge(contention, Contention._fields))
    return first._replace(
        samples_ns=merged_samples,
        steps_per_sample=1,
        evidence_steps=sum(outcome.observed_steps() for outcome in outcomes),
        timed_between=[begin, end] if spans else None,
        cpus=sorted(cpus) or None,
        threads=merged_threads,
        contention=merged_contention,
        calls_ns=calls,
        software=HostFacts(samples_ns_of_instances=samples).added_to(first.software),
        **_merge(outcomes, _MERGED_FIELDS),
    )


def _samples(outcome: Outcome, begin: float, end: float) -> np.ndarray:
    """Return the nanoseconds per step of each sample in this time, or else of the first sample."""
    lengths = np.array(outcome.samples_ns, dtype=float)
    steps = lengths / outcome.steps_per_sample
    if outcome.timed_between is None:
        return steps
    middles = outcome.timed_between[0] + (np.cumsum(lengths) - lengths / 2) * 1e-9
    inside = (begin <= middles) & (middles <= end)
    return steps[inside] if inside.any() else steps[:1]


def _merge(instances: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return these fields of all instances, merged, or None where an instance has none."""
    fields = {}
    for name in names:
        values = [getattr(instance, name) for instance in instances]
        fields[name] = None if None in values else _MERGERS.get(name, sum)(values)
    return fields

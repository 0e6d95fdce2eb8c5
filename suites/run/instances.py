"""Instances: independent processes of one cell at once, each on CPUs of its own, whose throughput together counts.

Each is a launch that is judged by itself. As one they take, for a mini-batch, one over the sum of their rates: the i-th
samples of all make one sample. Only what all of them timed at the same time counts.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dlbench.adapters.protocol import Contention, Outcome, Status, ThreadEvidence

from .launcher import Launched, LaunchRequest, Tick, at_once

SAMPLES = "samples_ns_of_instances"
"""The key of a record's software with the nanoseconds of each step of each instance."""


def run_instances(request: LaunchRequest, launch: Callable[[LaunchRequest, Tick], Launched], tick: Tick) -> Launched:
    """Carry out the instances of a launch, whose CPUs and quota are divided among them, and return them as one."""
    count, cpus = request.launch.cell.instances, request.launch.cpus or []
    each, meeting = len(cpus) // count, threading.Barrier(count)

    def instance(number: int, look: Tick) -> Launched:
        own = cpus[number * each : (number + 1) * each]
        cell = request.launch.cell
        cell = cell._replace(instances=1, cpu_quota=cell.cpu_quota / count)
        alone = request.launch._replace(cell=cell, cpus=own)
        return launch(replace(request, launch=alone, meeting=meeting), look)

    done = at_once([partial(instance, number) for number in range(count)], meeting, tick)
    outcome = together([one.outcome for one in done])
    return Launched(outcome, max(one.wall_seconds for one in done), any(one.suspended for one in done))


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcomes of all instances as one; of one that failed, why."""
    first = outcomes[0]
    if failed := next((each for each in outcomes if each.status is not Status.OK), None):
        return failed._replace(samples_ns=[], reason=f"an instance: {failed.reason}")
    spans = [each.timed_between for each in outcomes if each.timed_between]
    begin, end = max((span[0] for span in spans), default=0.0), min((span[1] for span in spans), default=np.inf)
    steps = [_samples(each, begin, end) for each in outcomes]
    count = min(map(len, steps))
    rates = np.sum([1 / each[:count] for each in steps], axis=0)
    return first._replace(
        samples_ns=[max(1, round(nanoseconds)) for nanoseconds in 1 / rates],
        steps_per_sample=1,
        evidence_steps=sum(each.observed_steps() for each in outcomes),
        timed_between=[begin, end] if spans else None,
        import_seconds=_over(max, [each.import_seconds for each in outcomes]),
        prepare_seconds=_over(max, [each.prepare_seconds for each in outcomes]),
        first_step_seconds=_over(max, [each.first_step_seconds for each in outcomes]),
        peak_memory_bytes=_over(sum, [each.peak_memory_bytes for each in outcomes]),
        gemm_flops_per_second=_over(sum, [each.gemm_flops_per_second for each in outcomes]),
        cpus=sorted(cpu for each in outcomes for cpu in each.cpus or ()) or None,
        steady=_over(min, [each.steady for each in outcomes]),
        threads=_threads([each.threads for each in outcomes]),
        contention=_contention([each.contention for each in outcomes]),
        software={
            **first.software,
            SAMPLES: [[ns // each.steps_per_sample for ns in each.samples_ns] for each in outcomes],
        },
    )


def _samples(outcome: Outcome, begin: float, end: float) -> np.ndarray:
    """Return the nanoseconds of a step of each sample in this time; of the first one where none is."""
    lengths = np.array(outcome.samples_ns, dtype=float)
    steps = lengths / outcome.steps_per_sample
    if outcome.timed_between is None:
        return steps
    ends = outcome.timed_between[0] + np.cumsum(lengths) * 1e-9
    inside = (begin <= ends - lengths * 0.5e-9) & (ends - lengths * 0.5e-9 <= end)
    return steps[inside] if inside.any() else steps[:1]


def _over(function: Callable[[list[Any]], Any], values: Sequence[Any]) -> Any:
    """Return this function of all values; None where one is None."""
    known = [value for value in values if value is not None]
    return function(known) if len(known) == len(values) else None


def _threads(found: Sequence[ThreadEvidence | None]) -> ThreadEvidence | None:
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    spread = [seconds for each in known for seconds in each.cpu_seconds_by_thread or ()]
    return ThreadEvidence(
        requested=sum(each.requested for each in known),
        framework_says=_over(sum, [each.framework_says for each in known]),
        os_threads=_over(sum, [each.os_threads for each in known]),
        cpu_seconds=sum(each.cpu_seconds for each in known),
        wall_seconds=max(each.wall_seconds for each in known),
        cpu_seconds_by_thread=sorted(spread, reverse=True) or None,
        helpers=sum(each.helpers for each in known),
    )


_SUMMED = ("run_queue_seconds", "involuntary_switches", "voluntary_switches", "major_faults", "others_cpu_seconds")


def _contention(found: Sequence[Contention | None]) -> Contention | None:
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    values = {name: [getattr(each, name) for each in known] for name in Contention._fields}
    return Contention(**{name: _over(sum if name in _SUMMED else max, of) for name, of in values.items()})

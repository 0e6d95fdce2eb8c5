"""The doctor's checks of what happens just now: neighbours on this machine and beside it, and how well work repeats."""

import statistics
from collections.abc import Iterator, Sequence

from dlbench.hardware_probe.doctor.facts import Facts, Sample
from dlbench.hardware_probe.doctor.findings import Finding, Remedy, Severity

# Shares of time, and of the CPUs, that harm; a fifth of it may.
_LIMIT = 0.05
_OTHERS_LIMIT = 0.10
# Spread of readings within a few seconds, (largest - smallest) / median, that is ordinary for a quiet machine, and that
# no comparison survives.
_GEMM_SPREAD, _BANDWIDTH_SPREAD = (0.03, 0.10), (0.10, 0.30)
_PROCESSES_SHOWN = 4
_REST = 0.1  # CPUs

_NEIGHBOURS = "Other programs"
_WAIT = "End what is not needed, or measure when it is done"


def findings(facts: Facts) -> Iterator[Finding]:
    """Judge what happened during the sample."""
    sample = facts.sample
    if sample is None:
        why = "What runs beside a measurement slows it down, and how well work repeats itself bounds every number."
        yield Finding("load", "What happens just now", Severity.UNKNOWN, facts.no_sample or "not sampled", why)
    else:
        yield _others(sample, facts.settings.cpu.capacity_cpus)
        yield _waiting(sample)
        if facts.settings.cpu.virtualisation.kind == "vm":
            yield _steal(sample)
        yield _repeatability(sample)
    yield from _load_average(facts)


def spread(rates: Sequence[float]) -> float:
    """Return (largest - smallest) / median."""
    return (max(rates) - min(rates)) / statistics.median(rates)


def _repeatability(sample: Sample) -> Finding:
    gemm = [each.gemm_flops_per_second for each in sample.readings]
    bandwidth = [each.bandwidth_bytes_per_second for each in sample.readings]
    seen = (
        f"{len(gemm)} readings: matrix products {statistics.median(gemm) / 1e9:.0f} GFLOP/s, spread {spread(gemm):.1%}"
        f"; memory {statistics.median(bandwidth) / 1e9:.1f} GB/s, spread {spread(bandwidth):.1%}"
    )
    worst = max(
        sum(spread(rates) >= limit for limit in limits)
        for rates, limits in ((gemm, _GEMM_SPREAD), (bandwidth, _BANDWIDTH_SPREAD))
    )
    severity = (Severity.FINE, Severity.MAY_HARM, Severity.HARMS)[worst]
    return Finding(
        "repeatability",
        "Repeatability",
        severity,
        seen,
        "No difference smaller than the spread of one and the same work on one thread can be seen in a few launches.",
        None if worst == 0 else Remedy("Mend what else is listed here, then look again."),
    )


def _others(sample: Sample, cpus: float) -> Finding:
    others = sample.contention.others_cpus
    why = "They take CPUs, caches, memory bandwidth and turbo clock from what is measured."
    names = [f"{each.name} {each.cpus:.2f}" for each in sample.processes]
    if others is None:
        return Finding("others", _NEIGHBOURS, Severity.UNKNOWN, "not told by this system", why)
    seen = f"used {others:.2f} of {cpus:g} CPUs"
    shown = names[:_PROCESSES_SHOWN]
    # What began or ended within the sample has no times to compare.
    rest = others - sum(each.cpus for each in sample.processes[:_PROCESSES_SHOWN])
    if shown and rest >= _REST:
        shown.append(f"the rest {rest:.2f}")
    if shown:
        seen += f": {', '.join(shown)}"
    severity = _graded(others / cpus, _OTHERS_LIMIT)
    remedy = None
    if severity is not Severity.FINE:
        remedy = Remedy(f"{_WAIT}. What is running:", "ps -eo comm,pcpu --sort=-pcpu | head")
    return Finding("others", _NEIGHBOURS, severity, seen, why, remedy)


def _waiting(sample: Sample) -> Finding:
    share = sample.contention.pressure_share
    title, why = "Waiting for a CPU", "A step that waits for a CPU is timed as if it computed."
    waits = [each.waiting_share for each in sample.readings if each.waiting_share is not None]
    own = statistics.mean(waits) if waits else None
    if share is None and own is None:
        return Finding("waiting", title, Severity.UNKNOWN, "not told by this system", why)
    parts = []
    if share is not None:
        parts.append(f"some program {share:.1%} of the time")
    if own is not None:
        parts.append(f"the sentinel {own:.1%} of its own")
    severity = _graded(max(share or 0.0, own or 0.0), _LIMIT)
    # Starting the sentinel alone makes somebody wait now and then.
    if severity is Severity.MAY_HARM:
        severity = Severity.FINE
    remedy = None if severity is Severity.FINE else Remedy(f"{_WAIT}.")
    return Finding("waiting", title, severity, ", ".join(parts), why, remedy)


def _steal(sample: Sample) -> Finding:
    share = sample.contention.steal_share
    title, why = (
        "CPU time withheld by the host",
        "Other guests of the host run on the CPUs that this machine believes to have.",
    )
    if share is None:
        return Finding("steal", title, Severity.UNKNOWN, "not told by this system", why)
    severity = _graded(share, _LIMIT)
    remedy = None
    if severity is not Severity.FINE:
        remedy = Remedy("Measure at another hour, or take an instance with dedicated CPUs.")
    return Finding("steal", title, severity, f"{share:.1%} of the time wanted", why, remedy)


def _load_average(facts: Facts) -> Iterator[Finding]:
    load = facts.settings.load_average
    if load is None:
        return
    cpus = facts.settings.cpu.logical_cpus
    busy = load[0] >= 0.5 * cpus
    yield Finding(
        "load_average",
        "Load average",
        Severity.MAY_HARM if busy else Severity.FINE,
        f"{load[0]:.2f} over 1 minute, {load[1]:.2f} over 5, on {cpus} CPUs",
        "It counts programs that ran or waited for CPU or disk; what was busy a minute ago may be so again.",
        Remedy(f"{_WAIT}.") if busy else None,
    )


def _graded(share: float, limit: float) -> Severity:
    if share >= limit:
        return Severity.HARMS
    return Severity.MAY_HARM if share >= limit / 5 else Severity.FINE

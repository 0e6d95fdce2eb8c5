"""What more threads than CPUs cost, and by which mechanism.

The comparisons are settled before the times are seen, so that their number is known. With the CPUs not bound:

- T(p) / T(fastest) at the machine's capacities (physical cores, logical CPUs), at twice those, at `MANY` threads, and
  at every measured p past the physical cores;
- past the physical cores, and past the effective CPUs: T(p) / the fastest within them.
"""

from collections.abc import Iterable, Mapping, Sequence

from dlbench.reports.flags import CONTENDED, THROTTLED_SHARE, Observed
from dlbench.reports.statistics import Contrast, Summary, contrast
from dlbench.reports.storage.hosts import Host
from dlbench.reports.threads.curve import Point

MANY = 32
"""As many threads as the largest count of the paper's Table 4."""
# A cause is named when, against the best p, this share more of the threads waits, a step costs so many times the CPU
# seconds, or is switched so many times as often.
MORE_WAITING = 0.1
MORE_CPU = 1.2
MORE_SWITCHES = 10.0


def capacities(host: Host) -> tuple[tuple[str, int | None], ...]:
    """Return the three capacities of a machine, each with its name; None where nobody told."""
    return (
        ("physical cores", host.physical_cores),
        ("logical CPUs", host.logical_cpus),
        ("effective CPUs", host.effective_cpus),
    )


def named_counts(host: Host) -> frozenset[int]:
    """Return the thread counts at which the penalty is always asked for."""
    told = [count for count in (host.physical_cores, host.logical_cpus) if count is not None]
    return frozenset([*told, *(2 * count for count in told), MANY])


def penalties(times: Mapping[int, Summary], fastest: int, host: Host) -> dict[tuple[int, int], Contrast]:
    """Return the comparisons of one curve, by the two thread counts, each pair once; p-values are not adjusted yet."""
    cores = host.physical_cores
    wanted = named_counts(host) | {p for p in times if cores is not None and p > cores}
    pairs = {(p, within) for limit in (cores, host.effective_cpus) for p, within in _past(times, limit)}
    pairs |= {(p, fastest) for p in times if p in wanted and p != fastest and (fastest, p) not in pairs}
    return {(p, q): contrast(p, q, times[p], times[q]) for p, q in sorted(pairs)}


def fastest_within(times: Mapping[int, Summary], limit: int | None) -> int | None:
    """Return the fastest thread count up to a limit; None where there is none."""
    within = [p for p in times if limit is not None and p <= limit]
    return min(within, key=lambda p: times[p].median, default=None)


def _past(times: Mapping[int, Summary], limit: int | None) -> Iterable[tuple[int, int]]:
    within = fastest_within(times, limit)
    return [] if within is None or limit is None else [(p, within) for p in times if p > limit]


def mechanism(points: Sequence[Point], best: int | None) -> str:
    """Say why the slowest point beyond the best is slower, as far as what was observed tells; may be empty."""
    beyond = [
        (p, p.penalty)
        for p in points
        if best is not None and p.threads > best and p.calm and p.penalty is not None and p.penalty.verdict == "worse"
    ]
    start = next((p for p in points if p.threads == best), None)
    if not beyond or start is None:
        return ""
    worst, _ = max(beyond, key=lambda pair: pair[1].value)
    before, after = start.cell.observed, worst.cell.observed
    disturbed = start.cell.has(CONTENDED) or worst.cell.has(CONTENDED)
    if before is None or after is None or disturbed:
        return ""
    causes = _causes(before, after, worst.threads)
    return f"at {worst.threads} threads " + "; ".join(causes) if causes else ""


def _causes(before: Observed, after: Observed, threads: int) -> list[str]:
    causes = []
    throttled = (after.throttled_share or 0.0) - (before.throttled_share or 0.0)
    if throttled > THROTTLED_SHARE:
        causes.append(f"the CPU quota throttles it {after.throttled_share:.0%} of the time")
    waiting = (after.waiting_per_wall or 0.0) - (before.waiting_per_wall or 0.0)
    if waiting > MORE_WAITING * threads:
        causes.append(f"{after.waiting_per_wall:.1f} of {threads} threads wait for a CPU at any moment")
    more = after.cpu_seconds_per_step / before.cpu_seconds_per_step if before.cpu_seconds_per_step > 0 else 1.0
    if more > MORE_CPU:
        causes.append(f"a step costs {more:.1f}x the CPU seconds (spinning, synchronising, cold caches)")
    switches = after.involuntary_switches_per_step
    if switches is not None and switches > MORE_SWITCHES * max(1.0, before.involuntary_switches_per_step or 0.0):
        causes.append(f"{switches:.0f} involuntary switches a step")
    return causes


def wait_policies(points: Sequence[Point]) -> str:
    """Say what was set that decides how waiting threads wait, and at which thread counts; empty where nothing was."""
    places: dict[str, list[int]] = {}
    for point in points:
        policy = None if point.cell.observed is None else point.cell.observed.wait_policy
        if policy is not None:
            words = ", ".join(f"{name}={value}" for name, value in policy.items())
            places.setdefault(words, []).append(point.threads)
    if list(places) == [""]:
        return ""
    if len(places) == 1:
        return next(iter(places))
    return "; ".join(f"at {', '.join(map(str, threads))} {words or 'nothing set'}" for words, threads in places.items())

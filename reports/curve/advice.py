"""Advice on threads in words: the count to use, the cost of others, why more are slower, and who gets worse."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports import flags
from dlbench.reports.curve.threads import Curve, Point
from dlbench.reports.disturbance import THROTTLED_SHARE
from dlbench.reports.formats.layout import times
from dlbench.reports.naming import group_name
from dlbench.reports.statistics import ENOUGH_LAUNCHES, MOST_LAUNCHES, SIGNIFICANCE, WORSE, Contrast, launches_to_decide
from dlbench.reports.storage.networks import FIRST

# A cause is named when, against the best p, this share more of the threads waits, a step costs so many times the CPU
# seconds, or is switched so many times as often.
MORE_WAITING, MORE_CPU, MORE_SWITCHES = 0.1, 1.2, 10.0
_FAILURES = {
    Status.IMPLAUSIBLE: "implausible",
    Status.CRASHED: "crashed",
    Status.TIMED_OUT: "timed out",
    Status.OUT_OF_MEMORY: "out of memory",
}


def advice(curve: Curve) -> str:
    """Return one sentence: the count to use, the cost of one thread or more, and any doubt."""
    best, taking_part = curve.best, curve.taking_part
    if best is None:
        return "nothing was timed"
    timed = [point for point in curve.points if point.seconds is not None]
    partly = ", the best of those not disturbed" if len(taking_part) < len(timed) else ""
    words = [f"use {best} thread{'s' if best != 1 else ''}{partly}"]
    stake = _stake(taking_part, best)
    others = [
        (point.threads, point.penalty)
        for point in taking_part
        if point.threads != best and point.penalty is not None and (point.threads > best or point.threads == 1)
    ]
    dearer = [(count, found.value) for count, found in others if not stake or found.value >= 1 / WORSE]
    if dearer:
        words.append(f"a step takes {', '.join(_costs(dearer))}")
    elif not others and len(taking_part) == 1:
        how = "timed" if len(timed) == 1 else "timed undisturbed"
        words = [f"only {best} thread{'s' if best != 1 else ''} {how}: nothing to compare"]
    unsure = [str(count) for count, found in others if found.value > WORSE and found.verdict == "no clear difference"]
    if unsure:
        words.append(f"noise may explain the cost of {' and '.join(unsure)}")
    words += stake + _disturbance(curve.points)
    if curve.default is not None:
        words.append(f"the framework's default is {curve.default}")
    return "; ".join(words)


def _stake(points: Sequence[Point], best: int) -> list[str]:
    """Say how much faster the fastest count may be where it is not the one to use, and how to decide it."""
    chosen = next((p for p in points if p.threads == best), None)
    fastest = min(points, key=lambda p: p.seconds.median if p.seconds else 0.0, default=None)
    if chosen is None or chosen.seconds is None or fastest is None or fastest.seconds is None:
        return []
    found = fastest.penalty
    if fastest is chosen or found is None or found.value >= 1 / WORSE:
        return []
    count = launches_to_decide(fastest.seconds, chosen.seconds, found.family)
    launches = f"more than {MOST_LAUNCHES}" if count is None else f"about {count}"
    most = "" if found.ratio.low is None else f" (at best {_times(found.ratio.low)})"
    took = f"with {fastest.threads} it took {_times(found.value)} as long{most}"
    return [f"{took}, within noise; {launches} launches of each would settle it"]


def _disturbance(points: Sequence[Point]) -> list[str]:
    disturbed = [p for p in points if p.seconds is not None and p.cell.has(flags.CONTENDED)]
    if not disturbed:
        return []
    ending, were, do = ("s", "were", "do") if len(disturbed) > 1 else ("", "was", "does")
    where = ", ".join(str(p.threads) for p in disturbed)
    said = f"the measurement{ending} with {where} thread{'s' if where != '1' else ''} {were} disturbed"
    if not all(p.takes_part for p in disturbed):
        said += f" and {do} not count"
    return [f"{said}: measure again on a quiet machine"]


def _costs(values: Iterable[tuple[int, float]]) -> Iterator[str]:
    """Yield how many times as long a step takes with each count: "2.0x as long with 1", "1.60x with 4"."""
    long = " as long"
    for count, value in values:
        if 1 / WORSE <= value <= WORSE:
            yield f"about as long with {count}"
        else:
            yield f"{_times(value)}{long} with {count}"
            long = ""


def _times(value: float) -> str:
    return f"{value:.2f}x" if value < 1.995 else f"{value:.1f}x"


def mechanism(curve: Curve) -> str:
    """Return why the slowest point beyond the best is slower, according to the evidence; may be empty."""
    start = next((point for point in curve.points if point.threads == curve.best), None)
    beyond = [
        point
        for point in curve.taking_part
        if start is not None and point.threads > start.threads and point.penalty and point.penalty.verdict == "worse"
    ]
    if not beyond or start is None:
        return ""
    worst = max(beyond, key=lambda point: point.penalty.value if point.penalty else 0.0)
    before, after, count = start.cell.observed, worst.cell.observed, worst.threads
    if before is None or after is None or any(point.cell.has(flags.CONTENDED) for point in (start, worst)):
        return ""
    causes = []
    if (after.throttled_share or 0.0) - (before.throttled_share or 0.0) > THROTTLED_SHARE:
        causes.append(f"the CPU quota throttles it {after.throttled_share:.0%} of the time")
    if (after.waiting_per_wall or 0.0) - (before.waiting_per_wall or 0.0) > MORE_WAITING * count:
        causes.append(f"{after.waiting_per_wall:.1f} of {count} threads wait for a CPU at any moment")
    more = after.cpu_seconds_per_step / before.cpu_seconds_per_step if before.cpu_seconds_per_step > 0 else 1.0
    if more > MORE_CPU:
        causes.append(f"a step costs {more:.1f}x the CPU seconds (spinning, synchronising, cold caches)")
    switches = after.involuntary_switches_per_step
    if switches is not None and switches > MORE_SWITCHES * max(1.0, before.involuntary_switches_per_step or 0.0):
        causes.append(f"{switches:.0f} involuntary switches a step")
    return f"at {count} threads " + "; ".join(causes) if causes else ""


def wait_policies(points: Sequence[Point]) -> str:
    """Return the settings of how waiting threads wait, with their thread counts; empty where nothing was set."""
    places: dict[str, list[int]] = {}
    for point in points:
        policy = None if point.cell.observed is None else point.cell.observed.wait_policy
        if policy is not None:
            words = ", ".join(f"{name}={value}" for name, value in policy.items())
            places.setdefault(words, []).append(point.threads)
    if len(places) == 1:
        return next(iter(places))
    return "; ".join(f"at {', '.join(map(str, counts))} {words or 'nothing set'}" for words, counts in places.items())


def _by_machine(curves: Iterable[Curve]) -> list[list[Curve]]:
    """Return the curves of frameworks that compute, machine by machine: made-up scaling is in no finding."""
    found: dict[str, list[Curve]] = {}
    for each in curves:
        if each.computes:
            found.setdefault(each.host.fingerprint, []).append(each)
    return list(found.values())


def headline(curves: Sequence[Curve]) -> list[str]:
    """Return for each machine on how many rows more threads than cores cost time, and where they cost most."""
    lines = []
    for here in _by_machine(curves):
        rows = [(each, [p.past_cores for p in each.points if p.takes_part and p.past_cores]) for each in here]
        rows = [(each, past) for each, past in rows if past and not each.bound]
        worse = [(found, each) for each, past in rows for found in past if found.verdict == "worse"]
        if not rows:
            continue
        head = f"{here[0].host.name}: more threads than its {here[0].host.physical_cores} cores"
        if worse:
            most, curve = max(worse, key=lambda pair: pair[0].value)
            hurt = len({(curve.cell, curve.name) for _, curve in worse})
            lines.append(
                f"{head} cost time on {hurt} of {len(rows)} rows, most on {group_name(curve.group)}: {curve.name} "
                f"takes {times(most.ratio)} with {most.threads} threads."
            )
        else:
            lines.append(f"{head} cause no significant slowdown on any of {len(rows)} rows.")
    return lines


def findings(curves: Sequence[Curve]) -> list[str]:
    """State, machine by machine, which frameworks get worse past the physical cores, on what, and by how much.

    And again past the effective CPUs, where these are not the physical cores and more threads were tried.
    """
    lines = []
    for here in _by_machine(curves):
        host = here[0].host
        if host.physical_cores is not None:
            head = f"{host.name}: past {host.physical_cores} threads, one for each physical core"
            lines += _findings(head, here, lambda point: point.past_cores, host.physical_cores)
        if host.effective_cpus is not None and host.effective_cpus != host.physical_cores:
            head = f"{host.name}: past {host.effective_cpus} threads, one for each CPU it may use"
            lines += _findings(head, here, lambda point: point.past_cpus, host.effective_cpus)
    return lines


Past = Callable[[Point], Contrast | None]


def _compared(curve: Curve, past: Past) -> list[Contrast]:
    return [found for point in curve.points if point.takes_part and (found := past(point)) is not None]


def _findings(head: str, here: Sequence[Curve], past: Past, limit: float) -> list[str]:
    compared = [found for each in here for found in _compared(each, past)]
    tested = [found for found in compared if found.tested]
    some_only = bool(tested) and len(tested) < len(compared)
    names = dict.fromkeys(each.name for each in here)
    said = [_finding([each for each in here if each.name == name], past, some_only, limit) for name in names]
    if not any(said):
        return []
    rule = f"by the ratio of times, untested: fewer than {ENOUGH_LAUNCHES} launches"
    if tested:
        rule = f"Welch's t, Holm-adjusted for {tested[0].family} comparisons, p < {SIGNIFICANCE}"
        rule += f"; untested: by the ratio's interval, fewer than {ENOUGH_LAUNCHES} launches" if some_only else ""
    return [f"{head} ({rule}),", *(f"  {text}" for text in said if text)]


def _finding(of_one: Sequence[Curve], past: Past, some_only: bool, limit: float) -> str:
    worse, same, better = [], [], []
    failed = [text for each in of_one if (text := _failed(each, limit))]
    for each in of_one:
        found = _compared(each, past)
        disturbed = any(point.takes_part and point.cell.has(flags.CONTENDED) for point in each.points)
        network = _workload(each.group) + (flags.CONTENDED.symbol if disturbed else "")
        bad = [one for one in found if one.verdict == "worse"]
        good = [one for one in found if one.verdict == "better"]
        if bad:
            worse.append(_at(network, max(bad, key=lambda one: one.value), some_only))
        elif good:
            better.append(_at(network, min(good, key=lambda one: one.value), some_only))
        elif found:
            same.append(network)
    beyond = len(worse) + len(better) + len(same)
    parts = [f"gets worse on {len(worse)} of {beyond} networks: " + ", ".join(worse)] if worse else []
    parts += ["gains on " + ", ".join(better)] if better else []
    parts += ["shows no clear difference on " + ", ".join(same)] if same else []
    parts += ["fails on " + ", ".join(failed)] if failed else []
    return f"{of_one[0].name}: " + "; ".join(parts) if parts else ""


def _failed(curve: Curve, limit: float) -> str:
    """Return the counts beyond the limit at which a network that runs within it fails, and how; else an empty text."""
    if curve.bound or not any(point.threads <= limit and point.seconds is not None for point in curve.points):
        return ""
    missing: dict[Status, list[str]] = {}
    for point in curve.points:
        if point.threads > limit and point.cell.status in _FAILURES:
            missing.setdefault(point.cell.status, []).append(str(point.threads))
    said = [f"{_FAILURES[status]} at {' and '.join(counts)}" for status, counts in missing.items()]
    return f"{_workload(curve.group)} ({', '.join(said)})" if said else ""


def _at(network: str, found: Contrast, some_only: bool) -> str:
    text = f"{network} {_times(found.value)} at {found.threads}"
    return f"{text} (untested)" if some_only and not found.tested else text


def _workload(group: Cell) -> str:
    known = FIRST.get(group.network)
    usual = known is not None and known.batch_size == group.batch_size
    return group.network if usual else f"{group.network} b{group.batch_size}"

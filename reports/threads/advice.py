"""The threads analysis in words: which count to use, what others cost, and who gets worse past the cores."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from dlbench.adapters.protocol import Status
from dlbench.reports.cells import Group
from dlbench.reports.flags import CONTENDED
from dlbench.reports.statistics import ENOUGH_LAUNCHES, MOST_LAUNCHES, SIGNIFICANCE, WORSE, Contrast, launches_to_decide
from dlbench.reports.storage.networks import FIRST
from dlbench.reports.threads.curve import Curve, Point

_FAILURES = {
    Status.IMPLAUSIBLE: "implausible",
    Status.CRASHED: "crashed",
    Status.TIMED_OUT: "timed out",
    Status.OUT_OF_MEMORY: "out of memory",
}


def advice(points: Sequence[Point], best: int | None, default: int | None) -> str:
    """Return one sentence: the count to use, how long a step takes with one thread or more, and what to doubt."""
    if best is None:
        return "nothing was timed"
    timed = [p for p in points if p.seconds is not None]
    taking_part = [p for p in timed if p.calm]
    partly = ", the best of those not disturbed" if len(taking_part) < len(timed) else ""
    words = [f"use {best} thread{'s' if best != 1 else ''}{partly}"]
    stake = _stake(taking_part, best)
    others = [
        (p.threads, p.penalty)
        for p in taking_part
        if p.threads != best and p.penalty is not None and (p.threads > best or p.threads == 1)
    ]
    dearer = [(threads, penalty) for threads, penalty in others if not stake or penalty.value >= 1 / WORSE]
    if dearer:
        words.append(f"a step takes {', '.join(_costs((threads, penalty.value) for threads, penalty in dearer))}")
    elif not others and len(taking_part) == 1:
        how = "timed" if len(timed) == 1 else "timed undisturbed"
        words = [f"only {best} thread{'s' if best != 1 else ''} {how}: nothing to compare"]
    unsure = [str(n) for n, found in others if found.value > WORSE and found.verdict == "no clear difference"]
    if unsure:
        words.append(f"noise may explain the cost of {' and '.join(unsure)}")
    words += stake
    words += _disturbance(points)
    if default is not None:
        words.append(f"the framework's default is {default}")
    return "; ".join(words)


def _stake(points: Sequence[Point], best: int) -> list[str]:
    """Say how much faster the fastest count may be where it is not the one to use, and what would decide it."""
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
    return [f"{took}, which noise may explain: {launches} launches of each would decide"]


def _disturbance(points: Sequence[Point]) -> list[str]:
    disturbed = [p for p in points if p.seconds is not None and p.cell.has(CONTENDED)]
    if not disturbed:
        return []
    ending, were, do = ("s", "were", "do") if len(disturbed) > 1 else ("", "was", "does")
    where = ", ".join(str(p.threads) for p in disturbed)
    said = f"the measurement{ending} with {where} thread{'s' if where != '1' else ''} {were} disturbed"
    if not all(p.calm for p in disturbed):
        said += f" and {do} not count"
    return [f"{said}: measure again on a quiet machine"]


def _costs(values: Iterable[tuple[int, float]]) -> Iterator[str]:
    """Give how many times as long a step takes with each count: "2.0x as long with 1", "1.60x with 4"."""
    long = " as long"
    for threads, value in values:
        if 1 / WORSE <= value <= WORSE:
            yield f"about as long with {threads}"
        else:
            yield f"{_times(value)}{long} with {threads}"
            long = ""


def _times(value: float) -> str:
    return f"{value:.2f}x" if value < 1.995 else f"{value:.1f}x"


def findings(curves: Sequence[Curve]) -> list[str]:
    """State, machine by machine, which frameworks get worse past the physical cores, on what, and by how much.

    And again past the effective CPUs, where these are not the physical cores and more threads were tried. A framework
    that computes nothing is left out: its scaling is made up. So is a point where others were in the way.
    """
    lines = []
    real = [each for each in curves if each.computes]
    for fingerprint in dict.fromkeys(each.host.fingerprint for each in real):
        here = [each for each in real if each.host.fingerprint == fingerprint]
        host = here[0].host
        if host.physical_cores is not None:
            head = f"{host.name}: past {host.physical_cores} threads, one for each physical core"
            lines += _findings(head, here, lambda point: point.past_cores, host.physical_cores)
        if host.effective_cpus is not None and host.effective_cpus != host.physical_cores:
            head = f"{host.name}: past {host.effective_cpus} threads, one for each CPU it may use"
            lines += _findings(head, here, lambda point: point.past_cpus, host.effective_cpus)
    return lines


def _findings(head: str, here: Sequence[Curve], past: Callable[[Point], Contrast | None], limit: int) -> list[str]:
    names = list(dict.fromkeys(each.name for each in here))
    compared = [found for each in here for p in each.points if p.calm and (found := past(p)) is not None]
    tested = [found for found in compared if found.tested]
    some_only = bool(tested) and len(tested) < len(compared)
    said = [_finding([each for each in here if each.name == name], past, some_only, limit) for name in names]
    if not any(said):
        return []
    return [f"{head} ({_rule(tested, some_only)}),", *(f"  {text}" for text in said if text)]


def _rule(tested: Sequence[Contrast], some_only: bool) -> str:
    """Say what the verdicts rest on."""
    if not tested:
        return f"by the ratio of times, untested: fewer than {ENOUGH_LAUNCHES} launches"
    test = f"Welch's t, Holm-adjusted for {tested[0].family} comparisons, p < {SIGNIFICANCE}"
    return f"{test}; untested: by the ratio's interval, fewer than {ENOUGH_LAUNCHES} launches" if some_only else test


def _finding(
    of_one: Sequence[Curve], ratio_past: Callable[[Point], Contrast | None], some_only: bool, limit: int
) -> str:
    worse, same, better, beyond = [], [], [], 0
    failed = [text for each in of_one if (text := _failed(each, limit))]
    for each in of_one:
        past = [found for point in each.points if point.calm and (found := ratio_past(point)) is not None]
        beyond += bool(past)
        network = _workload(each.group)
        network += CONTENDED.symbol if _all_disturbed(each) else ""
        bad = [found for found in past if found.verdict == "worse"]
        good = [found for found in past if found.verdict == "better"]
        if bad:
            worse.append(_at(network, max(bad, key=lambda found: found.value), some_only))
        elif good:
            better.append(_at(network, min(good, key=lambda found: found.value), some_only))
        elif past:
            same.append(network)
    if not beyond and not failed:
        return ""
    parts = []
    if worse:
        parts.append(f"gets worse on {len(worse)} of {beyond} networks: " + ", ".join(worse))
    if better:
        parts.append("gains on " + ", ".join(better))
    if same:
        parts.append("shows no clear difference on " + ", ".join(same))
    if failed:
        parts.append("fails on " + ", ".join(failed))
    return f"{of_one[0].name}: " + "; ".join(parts)


def _failed(curve: Curve, limit: int) -> str:
    """Return at which counts beyond the limit a network that runs within it fails, and how; else an empty text."""
    if curve.bound or not any(point.threads <= limit and point.seconds is not None for point in curve.points):
        return ""
    holes: dict[Status, list[str]] = {}
    for point in curve.points:
        if point.threads > limit and point.cell.status in _FAILURES:
            holes.setdefault(point.cell.status, []).append(str(point.threads))
    said = [f"{_FAILURES[status]} at {' and '.join(counts)}" for status, counts in holes.items()]
    return f"{_workload(curve.group)} ({', '.join(said)})" if said else ""


def _all_disturbed(curve: Curve) -> bool:
    """Tell whether counts take part although others were in the way, since they were so all over."""
    return any(point.calm and point.cell.has(CONTENDED) for point in curve.points)


def _at(network: str, found: Contrast, some_only: bool) -> str:
    text = f"{network} {_times(found.value)} at {found.threads}"
    return f"{text} (untested)" if some_only and not found.tested else text


def _workload(group: Group) -> str:
    known = FIRST.get(group.network)
    usual = known is not None and known.batch_size == group.batch_size
    return group.network if usual else f"{group.network} b{group.batch_size}"

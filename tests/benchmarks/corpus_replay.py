"""Verdicts replayed on the corpus: the gate, launch by launch as it would have measured, and other rules beside it.

Under identical code which of a pair's two launches is called the baseline is a matter of the name: exchanging them at
random gives comparisons that are as good as measured ones (and share their launches, so they are not independent).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

import numpy as np
from corpus import CorpusLaunch, Pair, cell_of
from scipy import stats

from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CONTENDED_SHARE, compare_sides, pairs_of
from dlbench.reports.compare.verdict import DEFAULT, Rule, Screening, Verdict, judge, judge_stages, screen
from dlbench.reports.storage.record import SCREEN, Record
from dlbench.suites.run.schedules import for_gate

POOLED_LAUNCHES = 6
"""A side, for the rules that look at several launches: as many as a gate looks at first."""
SESSION_LAUNCHES = 5
"""A side, for the generous variant of pytest-benchmark."""


@dataclass(frozen=True)
class Decision:
    """What a gate said of one cell, and how many pairs it took."""

    verdict: Verdict
    pairs: int
    suspect: bool
    """Whether screening sent it on to the confirming stage."""

    @property
    def alarm(self) -> bool:
        """Whether it would have failed a build."""
        return self.verdict is Verdict.REGRESSION


def gate(pairs: Iterable[Pair], rule: Rule = DEFAULT) -> Decision | None:
    """Carry out a gate by the product's own code: its schedule, its records, its report.

    Returns None where the pairs come to an end before the gate does.
    """
    launches = iter(pairs)
    records: list[Record] = []
    taken = 0
    while True:
        pair = next(launches, None)
        if pair is None:
            return None
        cell, host = cell_of(pair[0].framework), pair[0].host
        following = for_gate(host, rule)
        wanted = following(cell, records)
        stage = wanted[0]
        launch = sum(record.stage == stage for record in records) // 2
        records += [pair[0].record(BASELINE, stage, launch), pair[1].record(CANDIDATE, stage, launch)]
        taken += 1
        if following(cell, records) is None:
            (found,) = compare_sides(records, host, {}, "gate", rule).cells
            screened, _ = pairs_of(records, host, SCREEN)
            return Decision(found.judgement.verdict, taken, screen(*screened, rule) is Screening.SUSPECT)


def quick_gate(pairs: Iterable[Pair], rule: Rule = DEFAULT) -> Decision | None:
    """Say what `gate` says, without records: some twenty times faster, for thousands of comparisons."""
    launches = iter(pairs)
    screened: tuple[list[float], list[float]] = ([], [])
    confirmed: tuple[list[float], list[float]] = ([], [])
    state, tried, lost = Screening.MORE, 0, 0
    while state is Screening.MORE and tried < int((1 + rule.spare) * rule.screen_looks[-1]):
        pair = next(launches, None)
        if pair is None:
            return None
        tried += 1
        lost += not _take(pair, screened)
        if len(screened[0]) in rule.screen_looks:
            state = screen(*screened, rule)
    total, used = tried, screened
    if state is Screening.SUSPECT:
        tried, lost, used = 0, 0, confirmed
        while len(confirmed[0]) < rule.confirm_pairs and tried < int((1 + rule.spare) * rule.confirm_pairs):
            pair = next(launches, None)
            if pair is None:
                return None
            tried += 1
            lost += not _take(pair, confirmed)
        total += tried
    if lost and lost >= CONTENDED_SHARE * (len(used[0]) + lost):
        return Decision(Verdict.CONTENDED, total, state is Screening.SUSPECT)
    return Decision(judge_stages(screened, confirmed, rule).verdict, total, state is Screening.SUSPECT)


def _take(pair: Pair, into: tuple[list[float], list[float]]) -> bool:
    if any(launch.disturbed for launch in pair):
        return False
    for side, launch in zip(into, pair, strict=True):
        side.append(launch.seconds)
    return True


Gate = Callable[[Iterable[Pair]], Decision | None]


def one_after_another(pairs: Sequence[Pair], carry_out: Gate = gate) -> list[Decision]:
    """Return what gates say that follow each other and share no launch: independent comparisons."""
    found, start = [], 0
    while (decision := carry_out(pairs[start:])) is not None:
        found.append(decision)
        start += decision.pairs
    return found


def exchanged(pairs: Sequence[Pair], random: np.random.Generator) -> list[Pair]:
    """Return pairs of identical code with their sides exchanged by lot."""
    lots = random.random(len(pairs)) < 0.5
    return [(after, before) if lot else (before, after) for lot, (before, after) in zip(lots, pairs, strict=True)]


def from_everywhere(pairs: Sequence[Pair], random: np.random.Generator, at_least: int) -> Iterator[Iterator[Pair]]:
    """Yield, from each place in turn, the pairs from there on, round and round, their sides exchanged by lot."""
    for time in range(len(pairs) * -(-at_least // len(pairs))):
        start = time % len(pairs)
        yield _round_and_round([*pairs[start:], *pairs[:start]], random)


def _round_and_round(pairs: Sequence[Pair], random: np.random.Generator) -> Iterator[Pair]:
    while True:
        yield from exchanged(pairs, random)


def drawn(pairs: Sequence[Pair], random: np.random.Generator) -> Iterator[Pair]:
    """Yield pairs drawn at random with replacement, without end."""
    while True:
        for place in random.integers(len(pairs), size=64):
            yield pairs[place]


# Other rules. Each takes both sides' launches and tells whether it calls the candidate slower.

Side = Sequence[CorpusLaunch]


@dataclass(frozen=True)
class OtherRule:
    """A rule without stages, on so many launches of each side."""

    name: str
    launches: int
    alarms: Callable[[Side, Side], bool]

    def alarm(self, pairs: Iterable[Pair]) -> bool:
        """Tell what it says of the first of these pairs, as many as it looks at."""
        looked_at = list(islice(pairs, self.launches))
        return self.alarms([pair[0] for pair in looked_at], [pair[1] for pair in looked_at])

    def one_after_another(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return what it says of windows that follow each other and share no launch."""
        starts = range(0, len(pairs) - self.launches + 1, self.launches)
        return [self.alarm(pairs[start : start + self.launches]) for start in starts]


def _rounds(side: Side) -> list[float]:
    return [seconds for launch in side for seconds in launch.outcome.step_seconds()]


def _field_grew(field: Callable[[list[float]], float]) -> Callable[[Side, Side], bool]:
    # pytest-benchmark, utils.py: PercentageRegressionCheck
    return lambda baseline, candidate: field(_rounds(candidate)) / field(_rounds(baseline)) * 100 - 100 > 5


def pooled_mann_whitney(baseline: Sequence[float], candidate: Sequence[float]) -> bool:
    """Tell whether all steps of the candidate are slower than all of the baseline's by Mann and Whitney's test."""
    return bool(stats.mannwhitneyu(candidate, baseline, alternative="greater").pvalue < 0.01)


def _welch(baseline: Side, candidate: Side) -> bool:
    before, after = (np.log([launch.seconds for launch in side]) for side in (baseline, candidate))
    found = stats.ttest_ind(after, before, equal_var=False, alternative="greater")
    return bool(found.pvalue < 0.01 and np.mean(after) - np.mean(before) > np.log(1.025))


def _stored_runs(baseline: Side, candidate: Side) -> bool:
    """Judge as `dlbench compare` does two stored runs."""
    before, after = ([launch.seconds for launch in side if not launch.disturbed] for side in (baseline, candidate))
    if len(before) + len(after) <= CONTENDED_SHARE * (len(baseline) + len(candidate)):
        return False  # CONTENDED
    return judge(before, after, same_session=False).verdict is Verdict.REGRESSION


OTHER_RULES = (
    OtherRule("`dlbench compare` of two stored runs, 6 launches a side", POOLED_LAUNCHES, _stored_runs),
    OtherRule("pytest-benchmark `median:5%`, one session a side", 1, _field_grew(median)),
    OtherRule("pytest-benchmark `min:5%`, one session a side", 1, _field_grew(min)),
    OtherRule("the same, `median:5%`, 5 sessions pooled", SESSION_LAUNCHES, _field_grew(median)),
    OtherRule("the same, `min:5%`, 5 sessions pooled", SESSION_LAUNCHES, _field_grew(min)),
    OtherRule(
        "Mann-Whitney over all steps of 6 launches, p < .01",
        POOLED_LAUNCHES,
        lambda baseline, candidate: pooled_mann_whitney(_rounds(baseline), _rounds(candidate)),
    ),
    OtherRule("Welch's t over 6 launches, p < .01 and > 2.5 %", POOLED_LAUNCHES, _welch),
)

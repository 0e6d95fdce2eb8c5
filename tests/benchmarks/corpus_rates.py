"""Figures from the corpus: how often rules call identical code slower, find slowdowns, and intervals hold the truth."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from corpus import Corpus, CorpusLaunch, Pair, calm
from corpus_replay import Decision, OtherRule, drawn, from_everywhere, gate, one_after_another, quick_gate
from scipy import stats

from dlbench.reports.compare.verdict import PairedEstimate, estimate_pairs, judge_pairs

APART = 30
"""Blocks between a stored baseline and its candidate."""
EFFECTS = ("plus2", "plus5", "plus10")
Random = np.random.Generator


@dataclass(frozen=True)
class Rate:
    """How often something happened."""

    hits: int = 0
    of: int = 0

    @classmethod
    def count(cls, happened: Iterable[bool]) -> "Rate":
        """Count it."""
        known = list(happened)
        return cls(sum(known), len(known))

    @property
    def value(self) -> float:
        """The share; not a number where it could not happen."""
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's 95 % interval, for independent trials."""
        if not self.of:
            return 0.0, 1.0
        found = stats.binomtest(self.hits, self.of).proportion_ci(0.95, "exact")
        return float(found.low), float(found.high)

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.hits + other.hits, self.of + other.of)


@dataclass(frozen=True)
class RuleRates:
    """What one rule says: of identical code, and of real slowdowns."""

    name: str
    independent: Rate
    exchanged: Rate
    undisturbed: Rate
    """Sides exchanged as well, of pairs without a disturbed launch."""
    stored: Rate | None
    """Against launches `APART` blocks earlier or later; None for a rule that has no stored baseline."""
    stored_undisturbed: Rate | None
    power: tuple[Rate, ...]
    """By `EFFECTS`, of pairs without a disturbed launch."""
    suspect: float | None = None
    """Of a gate: the larger share of comparisons, of all pairs or of undisturbed ones, that screening found suspect."""
    cost: tuple[float, float] | None = None
    """Of a gate: mean number of pairs of a cell, of undisturbed identical code and of +5 %."""


def effect_pairs(corpus: Corpus, framework: str, label: str) -> list[Pair]:
    """Return the undisturbed pairs of a slowdown, each candidate beside both launches of the unchanged code."""
    return calm(corpus.pairs(framework, "a", label)) + calm(corpus.pairs(framework, "b", label))


def effect(corpus: Corpus, framework: str, label: str) -> PairedEstimate:
    """Return the true effect of a slowdown: one pair a candidate, beside the geometric mean of its baselines."""
    beside: dict[CorpusLaunch, list[float]] = {}
    for before, after in effect_pairs(corpus, framework, label):
        beside.setdefault(after, []).append(math.log(before.seconds))
    baselines = [math.exp(float(np.mean(logs))) for logs in beside.values()]
    return estimate_pairs(baselines, [after.seconds for after in beside])


def estimate(pairs: Sequence[Pair]) -> PairedEstimate:
    """Return the ratio that pairs show."""
    return estimate_pairs([before.seconds for before, _ in pairs], [after.seconds for _, after in pairs])


def _decide(each: Iterator[Pair]) -> Decision:
    decision = quick_gate(each)
    assert decision is not None, "these pairs have no end"
    return decision


def gate_exchanged(pairs: Sequence[Pair], random: Random, at_least: int) -> list[Decision]:
    """Return what the gate says of identical code, sides exchanged by lot."""
    return [_decide(each) for each in from_everywhere(pairs, random, at_least)] if pairs else []


def gate_drawn(pairs: Sequence[Pair], random: Random, times: int) -> list[Decision]:
    """Return what the gate says of pairs drawn at random with replacement."""
    return [_decide(drawn(pairs, random)) for _ in range(times)] if pairs else []


def alarms(decisions: Iterable[Decision]) -> Rate:
    """Return how often builds would have failed."""
    return Rate.count(decision.alarm for decision in decisions)


def gate_rates(corpus: Corpus, random: Random, comparisons: int, gates: int) -> RuleRates:
    """Replay the gate: independent comparisons by the product's own path, the others by its rules alone."""
    independent: list[Decision] = []
    exchanged: list[Decision] = []
    undisturbed: list[Decision] = []
    found: dict[str, list[Decision]] = {label: [] for label in EFFECTS}
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        independent += one_after_another(pairs, gate)
        exchanged += gate_exchanged(pairs, random, comparisons)
        undisturbed += gate_exchanged(calm(pairs), random, comparisons)
        for label in EFFECTS:
            found[label] += gate_drawn(effect_pairs(corpus, framework, label), random, gates)
    return RuleRates(
        "`dlbench gate`",
        alarms(independent),
        alarms(exchanged),
        alarms(undisturbed),
        None,
        None,
        tuple(alarms(found[label]) for label in EFFECTS),
        max(Rate.count(each.suspect for each in decisions).value for decisions in (exchanged, undisturbed)),
        (_pairs(undisturbed), _pairs(found["plus5"])),
    )


def _pairs(decisions: Sequence[Decision]) -> float:
    return float(np.mean([decision.pairs for decision in decisions]))


def other_rates(rule: OtherRule, corpus: Corpus, random: Random, comparisons: int, times: int) -> RuleRates:
    """Replay another rule on the same launches."""
    independent, exchanged, undisturbed, power = Rate(), Rate(), Rate(), [Rate()] * len(EFFECTS)
    stored, stored_undisturbed = Rate(), Rate()
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        independent += Rate.count(rule.one_after_another(pairs))
        exchanged += Rate.count(map(rule.alarm, from_everywhere(pairs, random, comparisons)))
        if calm(pairs):
            undisturbed += Rate.count(map(rule.alarm, from_everywhere(calm(pairs), random, comparisons)))
        apart = corpus.pairs(framework, "a", "b", APART)
        stored += _both_ways(rule, apart)
        stored_undisturbed += _both_ways(rule, calm(apart))
        for place, label in enumerate(EFFECTS):
            found = effect_pairs(corpus, framework, label)
            if found:
                power[place] += Rate.count(rule.alarm(drawn(found, random)) for _ in range(times))
    return RuleRates(rule.name, independent, exchanged, undisturbed, stored, stored_undisturbed, tuple(power))


def _both_ways(rule: OtherRule, apart: Sequence[Pair]) -> Rate:
    """Return the alarms of every window, with the earlier launches as the baseline and with the later ones."""
    ways = apart, [(later, earlier) for earlier, later in apart]
    return Rate.count(rule.alarm(window) for way in ways for window in _windows(way, rule.launches))


def exactly_five(pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs with the candidates' steps scaled so that the corpus shows a slowdown of 5 %."""
    factor = 1.05 / estimate(pairs).ratio
    return [(before, after.scaled(factor)) for before, after in pairs]


def deviation(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return a launch's standard deviation (of its logarithm), as pairs show it: robust (MAD), and plain."""
    found = np.log([after.seconds / before.seconds for before, after in pairs])
    robust = float(stats.median_abs_deviation(found, scale="normal"))
    return robust / math.sqrt(2), float(np.std(found, ddof=1)) / math.sqrt(2)


@dataclass(frozen=True)
class Coverage:
    """How often an interval over so many undisturbed pairs holds the truth."""

    pairs: int
    exchanged: Rate
    """Identical code, sides exchanged by lot."""
    collected: Rate
    """Identical code, every window as it was collected."""
    slower: Rate
    """The corpus' own estimate of +5 %, every window."""


def coverage(corpus: Corpus, random: Random, size: int, comparisons: int) -> Coverage:
    """Return how often an interval over so many undisturbed pairs holds the truth."""
    exchanged, collected, slower = Rate(), Rate(), Rate()
    for framework in corpus.frameworks:
        pairs = calm(corpus.pairs(framework, "a", "b"))
        if pairs:
            starts = from_everywhere(pairs, random, comparisons)
            exchanged += Rate.count(_covers(list(islice(each, size)), 1.0) for each in starts)
            collected += Rate.count(_covers(window, 1.0) for window in _windows(pairs, size))
        for side in "ab":
            found = calm(corpus.pairs(framework, side, "plus5"))
            # An estimate from a window that is most of the corpus would be compared with itself.
            if size * 3 <= len(found):
                truth = effect(corpus, framework, "plus5").ratio
                slower += Rate.count(_covers(window, truth) for window in _windows(found, size))
    return Coverage(size, exchanged, collected, slower)


def _windows(pairs: Sequence[Pair], size: int) -> list[Sequence[Pair]]:
    return [pairs[start : start + size] for start in range(len(pairs) - size + 1)]


def _covers(pairs: Sequence[Pair], truth: float) -> bool:
    found = judge_pairs([before.seconds for before, _ in pairs], [after.seconds for _, after in pairs])
    return found.low is not None and found.high is not None and found.low <= truth <= found.high

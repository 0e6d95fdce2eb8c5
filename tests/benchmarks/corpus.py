"""The corpus of real launches, and verdicts replayed on it: the gate, other rules, and gates under
noise.

Launches `a` and `b` run identical code; `plus2`, `plus5` and `plus10` do a fixed amount of real
extra work in each step. The packed form keeps samples and evidence, and the probe's description of
the machine.

Under identical code which of a pair's two launches is called the baseline is a matter of the name:
exchanging them at random gives comparisons that are as good as measured ones (and share their
launches, so they are not independent).
"""

import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy import stats

from dlbench.adapters.protocol import Cell, Contention, Protocol, Status, ThreadEvidence
from dlbench.reports.results.comparison import CONTENDED_SHARE, compare_sides
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record, Run
from dlbench.reports.results.verdict import (
    DEFAULT,
    NO_SPREADS,
    PairedEstimate,
    Verdict,
    deciding_look,
    estimate_pairs,
    judge,
    judge_looks,
    judge_pairs,
    next_look,
)
from dlbench.suites.run.schedules import gate_rule

PACKED = Path(__file__).parents[1] / "data" / "corpus.jsonl.gz"
APART = 30  # blocks between a stored baseline and its candidate
EFFECTS = ("plus2", "plus5", "plus10")
SLOW = 0.05  # a launch this much slower than on the quiet machine was slowed down
Random = np.random.Generator


@dataclass(frozen=True, eq=False)
class CorpusLaunch:
    """One launch, and the machine it ran on."""

    framework: str
    label: str
    block: int
    started: datetime
    outcome: Outcome
    host: Host

    @cached_property
    def seconds(self) -> float:
        return median(self.outcome.step_seconds())

    @cached_property
    def disturbed(self) -> bool:
        return disturbed(self.record("", 0), self.host)

    @property
    def waiting(self) -> float:
        """Share of the time its threads wanted to run that they waited for a CPU."""
        waited = self.outcome.contention.run_queue_seconds or 0.0
        return waited / (waited + self.outcome.threads.cpu_seconds)

    @property
    def pressure(self) -> float:
        """Share of the timed region in which some task of the machine waited for a CPU."""
        return min(
            1.0,
            (self.outcome.contention.pressure_seconds or 0.0) / self.outcome.threads.wall_seconds,
        )

    @property
    def pressure_before(self) -> float:
        """Pressure over the ten seconds before, in per cent."""
        return self.outcome.contention.pressure_avg10_before or 0.0

    def unseeing(self) -> "CorpusLaunch":
        """Return the launch without evidence of contention."""
        return replace(self, outcome=self.outcome._replace(contention=None))

    def scaled(self, factor: float) -> "CorpusLaunch":
        """Return the launch with every step longer by this factor."""
        samples = [round(nanoseconds * factor) for nanoseconds in self.outcome.samples_ns]
        return replace(self, outcome=self.outcome._replace(samples_ns=samples))

    def record(self, side: str, launch: int) -> Record:
        """Return the launch as the record of a comparison."""
        cell = Cell(self.framework, self.framework, "default", "lstm32", "cpu", 1, 4)
        machine = self.host.fingerprint
        placed = {"started": self.started, "wall_seconds": 0.0, "version": "", "side": side}
        return Record(
            "corpus", "corpus", launch, cell, self.outcome, machine, "", "", Protocol(), **placed
        )


Pair = tuple[CorpusLaunch, CorpusLaunch]  # baseline, candidate
A_GATE = Run(
    "corpus", "corpus", Protocol(), 0, (), "", datetime.now(UTC), "", None, 0, purpose="gate"
)


@dataclass(frozen=True)
class Corpus:
    """All launches, in the order they were made; ``machine`` is the probe's description, by
    label."""

    machine: dict[str, str]
    host: Host
    launches: tuple[CorpusLaunch, ...]

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        return tuple(sorted({launch.framework for launch in self.launches}))

    @cached_property
    def _placed(self) -> dict[tuple[str, str, int], CorpusLaunch]:
        return {(launch.framework, launch.label, launch.block): launch for launch in self.launches}

    def of(self, framework: str, label: str) -> list[CorpusLaunch]:
        """Return a framework's launches with this label, by block."""
        return [
            launch for key, launch in sorted(self._placed.items()) if key[:2] == (framework, label)
        ]

    def pairs(self, framework: str, baseline: str, candidate: str, apart: int = 0) -> list[Pair]:
        """Return pairs of the same block, or the candidate so many blocks later, in the order of
        the baseline's."""
        candidate_keys = [
            (launch, (framework, candidate, launch.block + apart))
            for launch in self.of(framework, baseline)
        ]
        return [
            (launch, self._placed[key]) for launch, key in candidate_keys if key in self._placed
        ]


def read(packed: Path = PACKED) -> Corpus:
    """Read a packed corpus."""
    with gzip.open(packed, "rt", encoding="utf-8") as file:
        about, *lines = (json.loads(text) for text in file)
    host, launches = Host(**about["host"]), []
    for framework, label, block, started, samples, threads, contention in lines:
        evidence = ThreadEvidence(*threads, cpu_seconds_by_thread=None)
        outcome = Outcome(
            Status.OK, samples_ns=samples, threads=evidence, contention=Contention(*contention)
        )
        launches.append(
            CorpusLaunch(framework, label, block, datetime.fromisoformat(started), outcome, host)
        )
    return Corpus(about["machine"], host, tuple(launches))


def calm(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs that a verdict counts: those without a disturbed launch."""
    return [pair for pair in pairs if not any(launch.disturbed for launch in pair)]


def effect_pairs(corpus: Corpus, framework: str, label: str) -> list[Pair]:
    """Return the undisturbed pairs of a slowdown, each candidate beside both launches of the
    unchanged code."""
    return calm(corpus.pairs(framework, "a", label)) + calm(corpus.pairs(framework, "b", label))


def estimate(pairs: Sequence[Pair]) -> PairedEstimate:
    """Return the ratio that pairs show."""
    return estimate_pairs(
        [before.seconds for before, _ in pairs], [after.seconds for _, after in pairs]
    )


def effect(corpus: Corpus, framework: str, label: str) -> PairedEstimate:
    """Return the true effect of a slowdown: one pair a candidate, beside the geometric mean of its
    baselines."""
    beside: dict[CorpusLaunch, list[float]] = {}
    for before, after in effect_pairs(corpus, framework, label):
        beside.setdefault(after, []).append(math.log(before.seconds))
    baselines = [math.exp(float(np.mean(logs))) for logs in beside.values()]
    return estimate_pairs(baselines, [after.seconds for after in beside])


def exactly_five(pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs with the candidates' steps scaled so that the corpus shows a slowdown of 5 %."""
    factor = 1.05 / estimate(pairs).value
    return [(before, after.scaled(factor)) for before, after in pairs]


def deviation(pairs: Sequence[Pair]) -> float:
    """Return a launch's standard deviation (of its logarithm), as pairs show it, by their median
    absolute deviation."""
    logs = np.log([after.seconds / before.seconds for before, after in pairs])
    return float(stats.median_abs_deviation(logs, scale="normal")) / math.sqrt(2)


# Streams of pairs: sides exchanged at random, from every starting place, drawn with replacement.


def endless(pairs: Sequence[Pair], random: Random, start: int) -> Iterator[Pair]:
    """Yield the pairs from this place on, round and round, their sides exchanged at random."""
    while pairs:
        exchanged = random.random(len(pairs)) < 0.5
        for other_way, (before, after) in zip(
            exchanged, [*pairs[start:], *pairs[:start]], strict=True
        ):
            yield (after, before) if other_way else (before, after)


def from_everywhere(
    pairs: Sequence[Pair], random: Random, at_least: int
) -> Iterator[Iterator[Pair]]:
    """Yield `endless` pairs from each place in turn."""
    for time in range(len(pairs) * -(-at_least // len(pairs)) if pairs else 0):
        yield endless(pairs, random, time % len(pairs))


def drawn(pairs: Sequence[Pair], random: Random) -> Iterator[Pair]:
    """Yield pairs drawn at random with replacement, without end."""
    while pairs:
        for place in random.integers(len(pairs), size=64):
            yield pairs[place]


def windows(pairs: Sequence[Pair], size: int) -> list[Sequence[Pair]]:
    return [pairs[start : start + size] for start in range(len(pairs) - size + 1)]


# Rules. Each takes pairs and returns a decision, or None where the pairs end before it can decide.


class Decision(NamedTuple):
    """A rule's verdict on one cell, and its cost."""

    verdict: Verdict
    pairs: int

    @property
    def alarm(self) -> bool:
        """Whether it would have failed a build."""
        return self.verdict is Verdict.REGRESSION


Decide = Callable[[Iterable[Pair]], Decision | None]


def gate(pairs: Iterable[Pair]) -> Decision | None:
    """Carry out a gate by the product's own code: its schedule, its records, its report."""
    records: list[Record] = []
    for taken, pair in enumerate(pairs, 1):
        host = pair[0].host
        records += [pair[0].record(BASELINE, taken - 1), pair[1].record(CANDIDATE, taken - 1)]
        if not gate_rule(host)(records, NO_SPREADS):
            (cell,) = compare_sides(A_GATE, records, host).cells
            return Decision(cell.judgement.verdict, taken)
    return None


def quick_gate(pairs: Iterable[Pair]) -> Decision | None:
    """Return the decision of `gate` without records: some twenty times faster, for thousands of
    comparisons."""
    sides: tuple[list[float], list[float]] = ([], [])
    at_ease = next(look.pairs for look in DEFAULT.looks if look.suspect < 1)
    for tried, pair in enumerate(pairs, 1):
        if calm([pair]):
            for side, launch in zip(sides, pair, strict=True):
                side.append(launch.seconds)
        # The looks before did not decide.
        at_a_look = tuple(look for look in DEFAULT.looks if look.pairs == len(sides[0]))
        decided = at_a_look and deciding_look(*sides, replace(DEFAULT, looks=at_a_look)) is not None
        if decided or tried >= int(
            (1 + DEFAULT.spare) * max(next_look(len(sides[0])).pairs, at_ease)
        ):
            lost = tried - len(sides[0])
            if lost and lost >= CONTENDED_SHARE * tried:
                return Decision(Verdict.CONTENDED, tried)
            return Decision(judge_looks(*sides).verdict, tried)
    return None


Steps = Sequence[Sequence[float]]
"""Seconds of each step of each launch of one side."""


def at_one_look(launches: int, slower: Callable[[Steps, Steps], bool]) -> Decide:
    """Return a rule that looks at so many launches of each side and tells whether the candidate is
    slower."""

    def decide(pairs: Iterable[Pair]) -> Decision | None:
        taken = list(islice(pairs, launches))
        if len(taken) < launches:
            return None
        sides = zip(*taken, strict=True)
        if slower is stored_runs:  # the one of them that sees the evidence
            sides = [[launch for launch in side if not launch.disturbed] for side in sides]
            if sum(map(len, sides)) <= CONTENDED_SHARE * 2 * launches:
                return Decision(Verdict.NO_REGRESSION, launches)
        alarm = slower(*([launch.outcome.step_seconds() for launch in side] for side in sides))
        return Decision(Verdict.REGRESSION if alarm else Verdict.NO_REGRESSION, launches)

    return decide


def grew(field: Callable[[Iterable[float]], float]) -> Callable[[Steps, Steps], bool]:
    """Return the rule of pytest-benchmark (utils.py, PercentageRegressionCheck) at 5 %, over all
    rounds of a side."""
    return lambda before, after: bool(field(chain(*after)) / field(chain(*before)) * 100 - 100 > 5)


def mann_whitney(before: Steps, after: Steps) -> bool:
    """Take all steps of all launches as if they were independent."""
    return bool(
        stats.mannwhitneyu([*chain(*after)], [*chain(*before)], alternative="greater").pvalue < 0.01
    )


def welch(before: Steps, after: Steps) -> bool:
    """Take launches as what is sampled."""
    first, second = (np.log([median(launch) for launch in side]) for side in (before, after))
    test_result = stats.ttest_ind(second, first, equal_var=False, alternative="greater")
    return bool(test_result.pvalue < 0.01 and np.mean(second) - np.mean(first) > np.log(1.025))


def stored_runs(before: Steps, after: Steps) -> bool:
    """Judge as `dlbench compare` does two stored runs."""
    first, second = ([median(launch) for launch in side] for side in (before, after))
    return judge(first, second, same_session=False).verdict is Verdict.REGRESSION


GATE = "`dlbench gate`"
#: Launches of each side (0: as many as the gate asks for), and the rule.
RULES: dict[str, tuple[int, Decide]] = {
    GATE: (0, quick_gate),
    **{
        name: (launches, at_one_look(launches, slower))
        for name, launches, slower in (
            ("`dlbench compare` of two stored runs, 6 launches a side", 6, stored_runs),
            ("pytest-benchmark `median:5%`, one session a side", 1, grew(median)),
            ("pytest-benchmark `min:5%`, 5 sessions pooled", 5, grew(min)),
            ("Mann-Whitney over all steps of 6 launches, p < .01", 6, mann_whitney),
            ("Welch's t over 6 launches, p < .01 and > 2.5 %", 6, welch),
        )
    },
}


# Figures.


class Rate(NamedTuple):
    """How often something happened."""

    hits: int = 0
    trials: int = 0

    @classmethod
    def count(cls, happened: Iterable[bool]) -> "Rate":
        outcomes = list(happened)
        return cls(sum(outcomes), len(outcomes))

    @property
    def value(self) -> float:
        """The share; not a number where it could not happen."""
        return self.hits / self.trials if self.trials else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's 95 % interval, for independent trials."""
        if not self.trials:
            return 0.0, 1.0
        result = stats.binomtest(self.hits, self.trials).proportion_ci(0.95, "exact")
        return float(result.low), float(result.high)


def alarms(decisions: Iterable[Decision]) -> Rate:
    """Return how often builds would have failed."""
    return Rate.count(decision.alarm for decision in decisions)


def one_after_another(pairs: Sequence[Pair], decide: Decide = gate) -> list[Decision]:
    """Return decisions that follow each other and share no launch: independent comparisons."""
    decisions, start = [], 0
    while (decision := decide(pairs[start:])) is not None:
        decisions.append(decision)
        start += decision.pairs
    return decisions


def gate_drawn(pairs: Sequence[Pair], random: Random, times: int) -> list[Decision]:
    """Return the gate's decisions on pairs drawn at random with replacement."""
    return [quick_gate(drawn(pairs, random)) for _ in range(times if pairs else 0)]


def decisions_of(
    name: str, corpus: Corpus, random: Random, comparisons: int, times: int
) -> dict[str, list[Decision]]:
    """Replay a rule: independent comparisons, ``exchanged`` and ``undisturbed``, against a stored
    baseline, slowdowns.

    The gate's independent comparisons go by the product's own path, the others by its rules alone.
    """
    launches, decide = RULES[name]
    result = defaultdict(list)
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        result["independent"] += one_after_another(pairs, decide if launches else gate)
        for kind, drawn_from in (("exchanged", pairs), ("undisturbed", calm(pairs))):
            result[kind] += [
                decide(comparison)
                for comparison in from_everywhere(drawn_from, random, comparisons)
            ]
        apart = corpus.pairs(framework, "a", "b", APART) if launches else []
        for kind, drawn_from in (("stored", apart), ("stored, undisturbed", calm(apart))):
            # With the earlier launches as the baseline, and with the later ones.
            for way in (drawn_from, [(later, earlier) for earlier, later in drawn_from]):
                result[kind] += [decide(window) for window in windows(way, launches) if window]
        for label in EFFECTS:
            drawn_from = effect_pairs(corpus, framework, label)
            result[label] += [
                decide(drawn(drawn_from, random)) for _ in range(times if drawn_from else 0)
            ]
    return result


def coverage(corpus: Corpus, random: Random, size: int, comparisons: int) -> Rate:
    """Return how often an interval over so many undisturbed pairs of identical code, sides
    exchanged, holds 1."""
    results = []
    for framework in corpus.frameworks:
        for comparison in from_everywhere(
            calm(corpus.pairs(framework, "a", "b")), random, comparisons
        ):
            before, after = zip(*islice(comparison, size), strict=True)
            judged = judge_pairs(
                [launch.seconds for launch in before], [launch.seconds for launch in after]
            )
            results.append(
                judged.ratio is not None
                and judged.ratio.low is not None
                and not judged.ratio.is_above(1)
                and not judged.ratio.is_below(1)
            )
    return Rate.count(results)


# Noise: launches that others slowed down, and gates fed with them.


def slowness(corpus: Corpus) -> list[tuple[CorpusLaunch, float]]:
    """Return every launch of identical code with how much longer its step took than undisturbed
    (0.1 is 10 %).

    Undisturbed is the median of a framework's launches that waited for no CPU on a machine without
    pressure.
    """
    results = []
    for framework in corpus.frameworks:
        launches = corpus.of(framework, "a") + corpus.of(framework, "b")
        quiet = [
            launch.seconds
            for launch in launches
            if launch.waiting < 0.02 and launch.pressure_before < 5
        ]
        results += [(launch, launch.seconds / median(quiet) - 1) for launch in launches if quiet]
    return results


def verdicts_under_noise(
    corpus: Corpus, random: Random, times: int, only_seen: bool = False
) -> dict[str, Counter[Verdict]]:
    """Return the verdicts of so many gates of each framework, by kind of noise; ``only_seen``:
    noise in evidence."""
    slow = {id(launch) for launch, lateness in slowness(corpus) if lateness > SLOW}
    pairs = {framework: corpus.pairs(framework, "a", "b") for framework in corpus.frameworks}
    groups = {
        framework: corpus.of(framework, "a") + corpus.of(framework, "b")
        for framework in corpus.frameworks
    }
    flagged = {
        name: [launch for launch in group if launch.disturbed] for name, group in groups.items()
    }
    missed = {
        name: [launch for launch in group if id(launch) in slow and not launch.disturbed]
        for name, group in groups.items()
    }

    def anywhere(pairs_of, framework):
        own_pairs = pairs_of[framework]
        return (
            endless(own_pairs, random, int(random.integers(len(own_pairs))))
            if own_pairs
            else iter(())
        )

    def one_sided(candidates, share, framework):
        # Sides are exchanged already; the candidate is replaced by a noisy launch with this
        # probability.
        results = candidates[framework]
        for before, after in anywhere(
            {framework: calm(pairs[framework]) if results else []}, framework
        ):
            yield (
                before,
                results[int(random.integers(len(results)))] if random.random() < share else after,
            )

    def unseeing(source, *arguments):
        return ((before.unseeing(), after.unseeing()) for before, after in source(*arguments))

    def slower(framework):
        return drawn(
            corpus.pairs(framework, "a", "plus5") + corpus.pairs(framework, "b", "plus5"), random
        )

    in_evidence = (
        ("as collected", anywhere, pairs),
        ("candidate always disturbed, baseline never", one_sided, flagged, 1.0),
        ("candidate disturbed in 3 of 10 launches, baseline never", one_sided, flagged, 0.3),
    )
    not_in_evidence = (
        ("evidence ignored: as collected", unseeing, anywhere, pairs),
        ("evidence ignored: candidate always disturbed", unseeing, one_sided, flagged, 1.0),
        ("evidence missed it: candidate always > 5 % slow and not flagged", one_sided, missed, 1.0),
        ("the same in 3 of 10 launches", one_sided, missed, 0.3),
        ("real +5 %, as collected", slower),
    )
    results = {}
    kinds = in_evidence if only_seen else (*in_evidence, *not_in_evidence)
    for name, source, *arguments in kinds:
        gates = [
            quick_gate(source(*arguments, framework))
            for framework in corpus.frameworks
            for _ in range(times)
        ]
        results[name] = Counter(decision.verdict for decision in gates if decision is not None)
    return results

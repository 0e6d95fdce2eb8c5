"""Noise on the corpus: launches that others slowed down, what their evidence saw of it, and gates fed with them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from corpus import Corpus, CorpusLaunch, Pair, calm
from corpus_replay import drawn, exchanged, from_everywhere, quick_gate

from dlbench.reports.compare.verdict import Verdict
from dlbench.reports.flags import WAITING_SHARE

Random = np.random.Generator
SLOW = 0.05
"""A launch this much slower than on the quiet machine was slowed down."""


def slowness(corpus: Corpus) -> list[tuple[CorpusLaunch, float]]:
    """Return every launch of identical code with how much longer its step took than with nobody there (0.1 is 10 %).

    With nobody there is the median of a framework's launches that waited for no CPU on a machine without pressure.
    """
    found = []
    for framework in corpus.frameworks:
        launches = corpus.of(framework, "a") + corpus.of(framework, "b")
        quiet = [each.seconds for each in launches if waiting_share(each) < 0.02 and pressure_before(each) < 5]
        found += [(each, each.seconds / median(quiet) - 1) for each in launches if quiet]
    return found


def waiting_share(launch: CorpusLaunch) -> float:
    """Return the share of the time its threads wanted to run that they waited for a CPU."""
    waited = launch.contention.run_queue_seconds or 0.0
    return waited / (waited + launch.threads.cpu_seconds)


def pressure_share(launch: CorpusLaunch) -> float:
    """Return the share of the timed region in which some task of the machine waited for a CPU."""
    return min(1.0, (launch.contention.pressure_seconds or 0.0) / launch.threads.wall_seconds)


def pressure_before(launch: CorpusLaunch) -> float:
    """Return the same over the ten seconds before, in per cent, as the kernel's mean says."""
    return launch.contention.pressure_avg10_before or 0.0


def hidden_by_own_threads(corpus: Corpus, limit: float = WAITING_SHARE) -> int:
    """Return how many launches waited for longer than the rule allows and are not called disturbed all the same."""
    return sum(waiting_share(launch) > limit and not launch.disturbed for launch in corpus.launches)


def slow_with_nobody_waiting(corpus: Corpus) -> tuple[int, int]:
    """Return how many launches were slow though nobody on the machine waited, and how many were slow at all."""
    slow = [launch for launch, lateness in slowness(corpus) if lateness > SLOW]
    return sum(waiting_share(launch) < 0.02 and pressure_share(launch) < 0.02 for launch in slow), len(slow)


def blind(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs without what they saw of others."""
    for before, after in pairs:
        yield before.unseeing(), after.unseeing()


def one_sided(pairs: Sequence[Pair], noisy: Sequence[CorpusLaunch], share: float, random: Random) -> Iterator[Pair]:
    """Yield pairs without end, sides exchanged, the candidate with this probability replaced by a noisy launch."""
    while True:
        for before, after in exchanged(pairs, random):
            yield before, noisy[int(random.integers(len(noisy)))] if random.random() < share else after


Source = Callable[[str, Random], Iterator[Pair] | None]
"""The pairs of one gate of a framework; None where the corpus has no such launches."""

SEEN, BLIND, MISSED, REAL = "seen", "blind", "missed", "real"


@dataclass(frozen=True)
class Noise:
    """A way of feeding noise to a gate."""

    name: str
    kind: str
    """SEEN: the evidence tells; BLIND: it is taken away; MISSED: it says nothing; REAL: there is a slowdown too."""
    pairs: Source


def kinds_of_noise(corpus: Corpus) -> list[Noise]:
    """Return the ways in which the corpus' own noise is fed to gates; the code is identical but where it says so."""
    slow = {id(launch) for launch, lateness in slowness(corpus) if lateness > SLOW}
    groups = {framework: corpus.of(framework, "a") + corpus.of(framework, "b") for framework in corpus.frameworks}
    disturbed_of = {name: [launch for launch in group if launch.disturbed] for name, group in groups.items()}
    missed_of = {
        name: [launch for launch in group if id(launch) in slow and not launch.disturbed]
        for name, group in groups.items()
    }

    def anywhere(pairs: Sequence[Pair], random: Random) -> Iterator[Pair] | None:
        if not pairs:
            return None
        start = int(random.integers(len(pairs)))
        return next(from_everywhere([*pairs[start:], *pairs[:start]], random, 1))

    def as_collected(framework: str, random: Random) -> Iterator[Pair] | None:
        return anywhere(corpus.pairs(framework, "a", "b"), random)

    def noisy_pairs(framework: str, random: Random) -> Iterator[Pair] | None:
        pairs = corpus.pairs(framework, "a", "b")
        return anywhere([pair for pair in pairs if any(launch.disturbed for launch in pair)], random)

    def sided(noisy: dict[str, list[CorpusLaunch]], share: float) -> Source:
        def pairs(framework: str, random: Random) -> Iterator[Pair] | None:
            quiet, found = calm(corpus.pairs(framework, "a", "b")), noisy[framework]
            if not quiet or not found:
                return None
            start = int(random.integers(len(quiet)))
            return one_sided([*quiet[start:], *quiet[:start]], found, share, random)

        return pairs

    def unseeing(source: Source) -> Source:
        def pairs(framework: str, random: Random) -> Iterator[Pair] | None:
            found = source(framework, random)
            return None if found is None else blind(found)

        return pairs

    def slower(framework: str, random: Random) -> Iterator[Pair] | None:
        pairs = corpus.pairs(framework, "a", "plus5") + corpus.pairs(framework, "b", "plus5")
        return drawn(pairs, random) if pairs else None

    return [
        Noise("as collected", SEEN, as_collected),
        Noise("only pairs with a disturbed launch", SEEN, noisy_pairs),
        Noise("candidate always disturbed, baseline never", SEEN, sided(disturbed_of, 1.0)),
        Noise("candidate disturbed in 3 of 10 launches, baseline never", SEEN, sided(disturbed_of, 0.3)),
        Noise("evidence ignored: as collected", BLIND, unseeing(as_collected)),
        Noise("evidence ignored: only pairs with a disturbed launch", BLIND, unseeing(noisy_pairs)),
        Noise("evidence ignored: candidate always disturbed", BLIND, unseeing(sided(disturbed_of, 1.0))),
        Noise("evidence missed it: candidate always > 5 % slow and not flagged", MISSED, sided(missed_of, 1.0)),
        Noise("the same in 3 of 10 launches", MISSED, sided(missed_of, 0.3)),
        Noise("real +5 %, as collected", REAL, slower),
    ]


def verdicts_under(noise: Noise, corpus: Corpus, random: Random, times: int) -> Counter[Verdict]:
    """Return the verdicts of so many gates of each framework."""
    verdicts: Counter[Verdict] = Counter()
    for framework in corpus.frameworks:
        for _ in range(times):
            pairs = noise.pairs(framework, random)
            decision = None if pairs is None else quick_gate(pairs)
            if decision is not None:
                verdicts[decision.verdict] += 1
    return verdicts

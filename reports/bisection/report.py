"""The result of a bisection: the first slower candidate, or why none can be named."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.bisection.posterior import Assessment
from dlbench.reports.columns import VALUE, Column, csv_rows, objects, table
from dlbench.reports.compare.comparison import CellComparison
from dlbench.reports.compare.report import ratio_of, sentence_of
from dlbench.reports.compare.verdict import Rule, Verdict, estimate_pairs
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.naming import counted, listed, name_of
from dlbench.reports.report import Report
from dlbench.reports.statistics import Ratio
from dlbench.reports.storage.hosts import Host


class Outcome(StrEnum):
    """How a bisection ends."""

    FOUND = "found"
    """One candidate, or neighbours that cannot be separated, is the first slower one."""
    NO_SLOWDOWN = "no slowdown"
    """The bad end is not slower than the good one, or faster."""
    SEVERAL = "several changes"
    NO_NUMBER = "no number"
    """An end of the series gives none."""
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Candidate:
    """One candidate that was tried."""

    name: str
    about: str
    """A commit's subject; empty where there is nothing to say."""
    pairs: int
    """Undisturbed ones."""
    ratio: Ratio | None
    """Of its time over the good one's, in pairs; without an interval where they are too few."""
    slower: float | None
    """The probability that it has the slowdown; None where nothing was found out."""
    problem: str
    """Why it cannot be tested; empty where it can."""


@dataclass(frozen=True)
class Bisection:
    """What a bisection has found so far."""

    kind: str
    """What a candidate is: "release", "commit" or "build"."""
    good: str
    names: tuple[str, ...]
    """Of all candidates, in order; the last one is the bad one."""
    cell: Cell
    """What is measured, under the framework's own name."""
    host: Host
    ends: CellComparison
    """The bad one against the good one, by the looks of a gate."""
    assessment: Assessment | None
    """None before the ends are known to differ."""
    tried: tuple[Candidate, ...]
    """In order."""
    confidence: float
    rule: Rule
    pairs: int
    """All that were begun."""
    disturbed: int
    """Those of them that do not count."""
    command: str
    """Measures it again."""

    @property
    def bad(self) -> str:
        """The name of the bad one."""
        return self.names[-1]

    @property
    def outcome(self) -> Outcome:
        """How it ended, by the pairs so far."""
        of_ends = {
            Verdict.NO_REGRESSION: Outcome.NO_SLOWDOWN,
            Verdict.IMPROVEMENT: Outcome.NO_SLOWDOWN,
            Verdict.BROKEN: Outcome.NO_NUMBER,
            Verdict.HOLE: Outcome.NO_NUMBER,
        }
        if self.ends.verdict is not Verdict.REGRESSION or self.assessment is None:
            return of_ends.get(self.ends.verdict, Outcome.UNDECIDED)
        if self.assessment.several >= self.confidence:
            return Outcome.SEVERAL
        sure = self.assessment.decided(self.confidence) and max(self.assessment.places) >= self.confidence
        return Outcome.FOUND if sure else Outcome.UNDECIDED

    @property
    def suspects(self) -> tuple[str, ...]:
        """The names of the fewest neighbours among which the first slower one is, with the wanted probability."""
        found = self.assessment
        if found is None:
            return ()
        first, last = found.range(self.confidence)
        return self.names[(found.candidates[first - 1] if first else 0) : found.candidates[last]]

    @property
    def probability(self) -> float:
        """The probability that the first slower one is among these."""
        found = self.assessment
        if found is None:
            return 0.0
        first, last = found.range(self.confidence)
        return sum(found.places[first : last + 1])

    @property
    def before(self) -> str:
        """The last one before these that can be tested."""
        first = self.assessment.range(self.confidence)[0] if self.assessment is not None else 0
        return self.names[self.assessment.candidates[first - 1] - 1] if self.assessment and first else self.good


def candidate(name: str, about: str, logs: Sequence[float], slower: float | None, problem: str) -> Candidate:
    """Return a candidate by the logarithms of its pairs' ratios."""
    ratio = None
    if len(logs):
        found = estimate_pairs([1.0] * len(logs), [float(each) for each in np.exp(logs)])
        known = found.low > 0
        method = f"Hodges-Lehmann estimate over {counted(len(logs), 'pair')}"
        ratio = Ratio(found.ratio, found.low if known else None, found.high if known else None, method)
    return Candidate(name, about, len(logs), ratio, slower, problem)


def _percent(share: float) -> str:
    return "over 99%" if share >= 0.995 else f"{share:.0%}"


def _columns(kind: str) -> tuple[Column[Candidate], ...]:
    return (
        Column("name", kind, lambda each: each.name),
        Column("pairs", "pairs", lambda each: each.pairs),
        Column(
            "ratio",
            "time / good",
            lambda each: each.ratio,
            lambda each: MISSING if each.ratio is None else ratio_of(each.ratio),
            fields=VALUE,
        ),
        Column(
            "slower",
            "P(slower)",
            lambda each: each.slower,
            lambda each: "" if each.slower is None else f"{each.slower:.0%}",
        ),
        Column("about", None, lambda each: each.about),
        Column("problem", None, lambda each: each.problem),
        Column(
            "",
            "",
            lambda each: each.problem or each.about,
            lambda each: Entry(each.problem or each.about, hole=bool(each.problem)),
        ),
    )


def headline(found: Bisection) -> str:
    """Return the result in a sentence."""
    first = f"first slower {found.kind}"
    sure = f"with probability {_percent(found.probability)}"
    if found.outcome is Outcome.FOUND:
        if len(found.suspects) == 1:
            about = next((each.about for each in found.tried if each.name == found.suspects[0]), "")
            return f"The {first} is {found.suspects[0]}{f' ({about})' if about else ''}, {sure}."
        return f"The {first} is one of {listed(found.suspects)}, {sure}: all but the last could not be tested."
    if found.outcome is Outcome.SEVERAL and found.assessment is not None and found.assessment.between is not None:
        middle = found.names[found.assessment.between - 1]
        return (
            f"The pairs contradict a single change (probability of several: {_percent(found.assessment.several)}): "
            f"{middle} is neither as fast as {found.good} nor as slow as {found.bad}. Bisect the parts by themselves: "
            f"--good {found.good} --bad {middle}, and --good {middle} --bad {found.bad}."
        )
    said, nothing = sentence_of(found.ends), f"No slowdown to bisect from {found.good} to {found.bad}"
    if found.outcome is Outcome.NO_NUMBER:
        return f"{found.bad} cannot be compared with {found.good}: {said}."
    if found.ends.verdict is Verdict.IMPROVEMENT:
        return f"{nothing}, but {said}. Were good and bad exchanged?"
    if found.outcome is Outcome.NO_SLOWDOWN:
        return f"{nothing}: {said}."
    if found.assessment is None:
        return f"Undecided whether {found.bad} is slower than {found.good} at all: {said}."
    several = f"one of {counted(len(found.suspects), found.kind)}, {found.suspects[0]} to {found.suspects[-1]}"
    span = several if len(found.suspects) > 1 else found.suspects[0]
    return f"Undecided: the {first} is {span}, {sure}; the confidence asked for is {found.confidence:.0%}."


def _beside(found: Bisection) -> str:
    """Return how the last fast one and the first slow one compare with the good one."""
    tried = {each.name: each for each in found.tried}
    shown = [
        f"{name} took {ratio_of(ratio)} times as long as {found.good} in {counted(tried[name].pairs, 'pair')}"
        for name in (found.before, found.suspects[-1])
        if name in tried and (ratio := tried[name].ratio) is not None
    ]
    return f"Beside it: {'; '.join(shown)}." if shown else ""


def _page(found: Bisection) -> Page:
    count = f"{len(found.names)} {found.kind}s" if len(found.names) > 1 else f"1 {found.kind}"
    before = (
        f"{name_of(found.cell)}: where it became slower",
        f"From {found.good} (good) to {found.bad} (bad): {count}, on {found.host.name}.",
    )
    after: list[str] = []
    if found.outcome is Outcome.FOUND and found.assessment is not None:
        size, low, high = (
            f"{each - 1:.1%}" for each in (found.assessment.size, found.assessment.low, found.assessment.high)
        )
        after += [f"A step takes {size} longer ({low} to {high}).", _beside(found)]
    untestable = sum(bool(each.problem) for each in found.tried)
    lost = f", {found.disturbed} of them disturbed or incomplete" if found.disturbed else ""
    skipped = f"; {counted(untestable, found.kind)} could not be tested" if untestable else ""
    after.append(
        f"{counted(found.pairs, 'pair')} of launches{lost}, of {len(found.tried) - untestable} of {count}{skipped}."
    )
    after += [f"Measure it again: `{found.command}`"] if found.command else []
    tables = (table(_columns(found.kind), found.tried, key="tried", words=True),) if found.tried else ()
    return Page(before, tables, tuple(filter(None, (*after, headline(found)))))


def _data(found: Bisection) -> dict[str, Any]:
    known = found.assessment
    slowdown = None if known is None else {"ratio": known.size, "low": known.low, "high": known.high}
    return {
        "outcome": found.outcome.value,
        "sentence": headline(found),
        "kind": found.kind,
        "good": found.good,
        "bad": found.bad,
        "candidates": list(found.names),
        "suspects": list(found.suspects),
        "probability": found.probability if known else None,
        "before": found.before if known else None,
        "slowdown": slowdown,
        "absent": known.absent if known else None,
        "several": known.several if known else None,
        "between": found.names[known.between - 1] if known and known.between is not None else None,
        "confidence": found.confidence,
        "pairs": found.pairs,
        "disturbed_pairs": found.disturbed,
        "tried": objects(_columns(found.kind), found.tried),
        "ends": {
            "verdict": found.ends.verdict,
            **{name: getattr(found.ends.judgement, name) for name in ("ratio", "low", "high", "p", "sentence")},
            "pairs": len(found.ends.pairs[0]),
        },
        "rule": plain({name: getattr(found.rule, name) for name in ("magnitude", "tolerance")}),
        "cell": {name: getattr(found.cell, name) for name in axes.NAMES},
        "machine": found.host.fingerprint,
        "machine_name": found.host.name,
        "command": found.command,
    }


def _rows(found: Bisection) -> Rows:
    return csv_rows(_columns(found.kind), found.tried)


REPORT = Report(
    name="bisect",
    summary="Which release or commit made a step slower.",
    examples=("dlbench bisect jax --network lstm32 --threads 1 --good 0.4.20 --bad 0.12.0",),
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
)

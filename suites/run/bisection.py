"""The launches of a bisection: pairs of the good end and of the candidate that the search asks for next.

A candidate is a row of the plan, so that a cell of the run is a candidate, its baseline the good end. First the bad end
is compared by the looks of a gate; only where it is slower is the rest searched (`reports.bisection.posterior`). A
candidate is built when its first pair is wanted, between two pairs and never within one. One that cannot be built is
kept as a skipped launch with its reason, so a resumed run needs nothing but its records.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path

import numpy as np

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.bisection import posterior
from dlbench.reports.bisection.posterior import Assessment
from dlbench.reports.bisection.report import Bisection, candidate
from dlbench.reports.compare.comparison import CellComparison, of_pairs, pairs_of
from dlbench.reports.compare.verdict import Rule, Verdict
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import BASELINE, CANDIDATE, Record, last_attempts

from ..display.screen import say
from ..environments.environment import Source
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning.framework import Framework
from ..planning.plan import Plan, PlannedLaunch
from ..planning.values import Build, Row
from .schedules import Group, PairSchedule, for_gate, given_up, pairs_begun

Prepare = Callable[[int], Source]
"""Returns what a candidate is launched with, by its place (0: the good one), building it where that is needed.

Raises UsageError or FrameworkEnvironmentError with the reason where it cannot be built.
"""


@dataclass(frozen=True)
class Series:
    """Candidates in order, the good one first and the bad one last."""

    kind: str
    """What each is: "release", "commit" or "build"."""
    names: tuple[str, ...]
    framework: Framework
    prepare: Prepare
    about: Mapping[str, str] = field(default_factory=dict)
    """What else is to be known of some, such as a commit's subject, by name."""
    done: Callable[[], None] = lambda: None
    """Called when nothing is left to be measured."""


def plan_of_candidates(plan: Plan, series: Series, interpreter: Path | None) -> Plan:
    """Return the plan of one cell with a row for each candidate but the good one, whose interpreter is given."""
    (cell,) = plan.cells
    builds = [Build(name, series.framework, interpreter) for name in series.names[1:]]
    return replace(
        plan,
        cells=tuple(cell._replace(framework=build.name) for build in builds),
        rows=tuple(Row(build, cell.mode) for build in builds),
    )


_UNTESTABLE = (UsageError, FrameworkEnvironmentError)
"""What a build is given up for; an interruption is none of them."""


def end_source(prepare: Prepare, kind: str, names: Sequence[str], place: int) -> Source:
    """Return what an end of a series is launched with; raises the error of its build with its name."""
    try:
        return prepare(place)
    except _UNTESTABLE as error:
        which = "bad" if place else "good"
        raise type(error)(f"The {which} {kind}, {names[place]}, cannot be tested: {error}") from error


class Sources:
    """What the candidates are launched with on both sides, made when it is first asked for."""

    def __init__(self, series: Series) -> None:
        """Prepare both ends; raises UsageError or FrameworkEnvironmentError where one cannot be built."""
        self._series = series
        self.good = end_source(series.prepare, series.kind, series.names, 0)
        bad = end_source(series.prepare, series.kind, series.names, len(series.names) - 1)
        self.by_side: dict[str, dict[str, Source]] = {
            BASELINE: {series.names[-1]: self.good},
            CANDIDATE: {series.names[-1]: bad},
        }

    def described(self) -> dict[str, str]:
        """Return the ends by side, in words: names and environments, no paths."""
        names = self._series.names
        ends = (BASELINE, names[0], self.good), (CANDIDATE, names[-1], self.by_side[CANDIDATE][names[-1]])
        return {
            side: f"{self._series.framework.name} {name} ({source.name}, environment {source.digest})"
            for side, name, source in ends
        }

    def of(self, name: str) -> Source:
        """Return what a candidate is launched with; without an interpreter where it cannot be built."""
        if name not in self.by_side[CANDIDATE]:
            build = Build(name, self._series.framework)
            say(f"preparing {name}")
            try:
                found = self._series.prepare(self._series.names.index(name))
            except _UNTESTABLE as error:
                say(f"{name} cannot be tested: {error}")
                found = Source(build, None, "", "", str(error))
            self.by_side[BASELINE][name], self.by_side[CANDIDATE][name] = self.good, found
        return self.by_side[CANDIDATE][name]


class BisectionSchedule(PairSchedule):
    """Pairs of the good end and one candidate at a time, until the posterior is decided."""

    def __init__(
        self,
        plan: Plan,
        records: Iterable[Record],
        host: Host,
        rule: Rule,
        confidence: float,
        source: Callable[[str], Source],
    ) -> None:
        """Take up the records so far; ``source`` prepares the candidate of this name."""
        self._machine, self.rule, self.confidence, self._source = host, rule, confidence, source
        self._ends = plan.cells[-1]
        self._found: Assessment | None = None
        self._fresh = False
        super().__init__(plan, records, for_gate(host, rule))

    def _update(self, cell: Cell) -> None:
        self._fresh = False

    @property
    def ends(self) -> CellComparison:
        """The bad end against the good one, by the gate's looks."""
        return of_pairs(self._ends, self._records[self._ends], self._machine, True, self.rule)

    @property
    def assessment(self) -> Assessment | None:
        """What all pairs so far say; None until the ends are known to differ."""
        if not self._fresh:
            self._found, self._fresh = self._assess(), True
        return self._found

    def _assess(self) -> Assessment | None:
        if self._confirming() or self.ends.verdict is not Verdict.REGRESSION:
            return None
        places = dict(enumerate(self.plan.cells, start=1))
        untestable = {place for place, cell in places.items() if self.problem(cell)} - {len(places)}
        evidence = {place: self.logs(cell) for place, cell in places.items() if place not in untestable}
        evidence = {place: logs for place, logs in evidence.items() if logs}
        return posterior.assess(evidence, len(places), untestable, self.rule.magnitude, self.confidence)

    def _confirming(self) -> int:
        """Return how many more pairs the ends need at most."""
        return self._rule(self._records[self._ends])

    def logs(self, cell: Cell) -> list[float]:
        """Return the logarithms of the ratios of a candidate's undisturbed pairs."""
        (good, found), _ = pairs_of(self._records[cell], self._machine)
        return [float(each) for each in np.log(found) - np.log(good)]

    def problem(self, cell: Cell) -> str:
        """Return why a candidate cannot be tested; empty where it can."""
        records = self._records[cell]
        skipped = [each for each in records if each.outcome.status is Status.SKIPPED]
        failed = skipped or (
            [each for each in last_attempts(records) if each.outcome.status is not Status.OK]
            if given_up(records)
            else []
        )
        if not failed:
            return ""
        outcome, side = failed[-1].outcome, failed[-1].side
        why = outcome.reason or (outcome.parity.reason if outcome.parity else "") or "no reason was given"
        status = "" if skipped else f"{outcome.status.value.replace('_', ' ')}: "
        return f"{'the good end: ' if side == BASELINE else ''}{status}{why}"

    def _next(self) -> Cell | None:
        """Return the candidate of the next pair; None: nothing is left to be measured."""
        if self._confirming():
            return self._ends
        found = self.assessment
        if found is None or found.decided(self.confidence) or self.begun() >= posterior.MOST_PAIRS:
            return None
        if found.between is not None and found.several >= posterior.DOUBT:
            return self.plan.cells[found.between - 1]
        measured = np.array([bool(self._records[self.plan.cells[place - 1]]) for place in found.candidates])
        chosen = int(posterior.following(np.array(found.places), measured))
        return self.plan.cells[found.candidates[chosen] - 1]

    def blocks(self) -> Iterator[int]:
        """Yield numbers while a pair is wanted."""
        return takewhile(lambda _: self._next() is not None, count())

    def begun(self) -> int:
        """Return how many pairs were begun."""
        return pairs_begun(each for cell in self.plan.cells for each in self._records[cell])

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the next pair, its sides in an order drawn by the seed; of a candidate without a build its side."""
        cell = self._next()
        if cell is None:
            return []
        index, sides = self.begun(), [BASELINE, CANDIDATE]
        if self._source(cell.framework).interpreter is None:
            return [(PlannedLaunch(cell, index, CANDIDATE),)]
        random.Random(f"{self.plan.seed}:{index}:{cell!r}").shuffle(sides)
        return [tuple(PlannedLaunch(cell, index, side) for side in sides)]

    def wants(self, cell: Cell, block: int) -> bool:
        """Return that the pair is still wanted: it is the only one of its block."""
        return True

    def launches_left(self) -> int:
        """Return roughly how many launches the search still takes."""
        if (confirming := self._confirming()) or self._next() is None:
            return 2 * confirming
        assert self.assessment is not None
        return 2 * max(1, posterior.pairs_left(self.assessment, self.confidence))

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return self.launches_left() * self.seconds(self._ends)

    def result(self, series: Series, cell: Cell, command: str) -> Bisection:
        """Return what was found so far; ``cell`` is what is measured, under the framework's own name."""
        found, tried, complete = self.assessment, [], 0
        reached = dict(zip(found.candidates, np.cumsum(found.places), strict=True)) if found else {}
        for place, each in enumerate(self.plan.cells, start=1):
            if self._records[each]:
                logs, name = self.logs(each), each.framework
                slower = float(reached[place]) if place in reached else None
                about = series.about.get(name, "")
                problem = self.problem(each) if place < len(self.plan.cells) else ""
                tried.append(candidate(name, about, logs, slower, problem))
                complete += len(logs)
        launched = (each for cell_of in self.plan.cells for each in self._records[cell_of])
        begun = len({each.launch for each in launched if each.outcome.status is not Status.SKIPPED})
        return Bisection(
            kind=series.kind,
            good=series.names[0],
            names=series.names[1:],
            cell=cell,
            host=self._machine,
            ends=self.ends,
            assessment=found,
            tried=tuple(tried),
            confidence=self.confidence,
            rule=self.rule,
            pairs=begun,
            disturbed=begun - complete,
            command=command,
        )

"""The launches of a bisection: pairs of the good end and of the candidate that the search asks for
next.

Each candidate is a row of the plan, and a cell of the run whose baseline is the good end. First,
the bad end is judged by the looks of a gate; the others are searched only if it is slower
(`reports.results.posterior`). A candidate is built before its first pair, never within a pair. One
that cannot be built is stored as a skipped launch with the reason, so a resumed run needs only its
records.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.results import posterior
from dlbench.reports.results.bisection import Bisection, candidate
from dlbench.reports.results.comparison import CellComparison, of_pairs, other_work, pairs_of
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.posterior import Assessment
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record, last_attempts
from dlbench.reports.results.verdict import Rule, Verdict

from ..display.screen import say
from ..environments.environment import Source
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning.plan import Plan
from ..planning.values import Build, Row
from .groups import Group, Grouping
from .schedules import PairSchedule, for_gate, given_up, pairs_begun


@dataclass
class Series:
    """Candidates in order, the good one first and the bad one last."""

    kind: str
    """What each is: "release", "commit" or "build"."""
    names: tuple[str, ...]
    prepare: Callable[[int], Source]
    """Returns the source of the candidate at a place, building it if needed.

    Raises UsageError or FrameworkEnvironmentError with the reason if it cannot be built.
    """
    about: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of some candidates by name, such as a commit's subject."""
    done: Callable[[], None] = lambda: None
    """Called when nothing is left to measure."""
    faster: bool = False
    """Whether they go backwards in time, the good one being the latest."""
    sources: dict[str, Source] = field(default_factory=dict)
    """Sources of the prepared candidates, by name."""

    def end(self, place: int) -> Source:
        """Return the source of the good end (0) or the bad one (-1); raises the error of its
        build.
        """
        name = self.names[place]
        if name not in self.sources:
            try:
                self.sources[name] = self.prepare(self.names.index(name))
            except (UsageError, FrameworkEnvironmentError) as error:
                which = "bad" if place else "good"
                raise type(error)(
                    f"The {which} {self.kind}, {name}, cannot be tested: {error}"
                ) from error
        return self.sources[name]

    def source(self, name: str) -> Source:
        """Return a candidate's source; it has no interpreter if the candidate cannot be built."""
        if name not in self.sources:
            say(f"preparing {name}")
            try:
                self.sources[name] = self.prepare(self.names.index(name))
            except (UsageError, FrameworkEnvironmentError) as error:
                say(f"{name} cannot be tested: {error}")
                self.sources[name] = Source(
                    Build(name, self.end(0).build.framework), None, "", "", str(error)
                )
        return self.sources[name]

    def by_side(self) -> dict[str, dict[str, Source]]:
        """Return the sources of each side by row; raises the error of an end's build."""
        good = self.end(0)
        self.end(-1)
        return {BASELINE: defaultdict(lambda: good), CANDIDATE: self.sources}

    def described(self) -> dict[str, str]:
        """Return the ends by side, in words: names and environments, no paths."""
        found = {}
        for side, place in ((BASELINE, 0), (CANDIDATE, -1)):
            source, name = self.end(place), self.names[place]
            framework = source.build.framework.name
            found[side] = f"{framework} {name} ({source.name}, environment {source.digest})"
        return found

    def plan(self, plan: Plan) -> Plan:
        """Return the plan of one cell with a row for each candidate but the good one."""
        (cell,) = plan.cells
        builds = [replace(self.end(0).build, name=name) for name in self.names[1:]]
        return replace(
            plan,
            cells=tuple(cell._replace(framework=build.name) for build in builds),
            rows=tuple(Row(build, cell.mode) for build in builds),
        )


class BisectionSchedule(PairSchedule):
    """Pairs of the good end and one candidate at a time, until the posterior is decided."""

    def __init__(
        self,
        plan: Plan,
        records: Iterable[Record],
        host: Host,
        rule: Rule,
        confidence: float,
        series: Series,
        grouping: Grouping | None = None,
    ) -> None:
        """Take up the records so far."""
        self._machine, self.rule, self.confidence, self._series = host, rule, confidence, series
        super().__init__(plan, records, for_gate(host, rule), grouping, host, rule.judged)
        self._decide()

    def _update(self, cell: Cell) -> None:
        """Leave it to `_decide`: one candidate is wanted at a time."""

    def _learn(self, block: int) -> None:
        """Take nothing from the candidates: one cell alone is judged by looks."""

    def add(self, record: Record) -> None:
        """Take note of a record, and decide what is wanted next."""
        super().add(record)
        self._decide()

    def _decide(self) -> None:
        """Assess all pairs, and set the candidate to measure next and its number of pairs."""
        last, count = self.plan.cells[-1], len(self.plan.cells)
        self.assessment: Assessment | None = None
        self._left = dict.fromkeys(self.plan.cells, 0)
        self._left[last] = 2 * self._rule(self._records[last], {})
        if self._left[last] or self.ends.verdict is not Verdict.REGRESSION:
            return
        places = dict(enumerate(self.plan.cells, start=1))
        untestable = {
            place for place, cell in places.items() if place < count and self.problem(cell)
        }
        evidence = {
            place: self.logs(cell) for place, cell in places.items() if place not in untestable
        }
        found = posterior.assess(
            {place: logs for place, logs in evidence.items() if logs},
            count,
            untestable,
            self.rule.of_quantity(self._quantity).magnitude,
            self.confidence,
        )
        self.assessment = found
        begun = sum(pairs_begun(self._records[cell]) for cell in self.plan.cells)
        if not found.decided(self.confidence) and begun < posterior.MOST_PAIRS:
            measured = {place for place, cell in places.items() if self._records[cell]}
            self._left[places[found.following(measured)]] = 2 * found.pairs_left(self.confidence)

    @property
    def _quantity(self) -> str:
        """The one that is searched by."""
        return self.rule.judged[0]

    @property
    def ends(self) -> CellComparison:
        """The bad end against the good one, by the looks of a gate."""
        last = self.plan.cells[-1]
        return of_pairs(
            last, self._records[last], self._machine, True, self.rule, quantity=self._quantity
        )

    def logs(self, cell: Cell) -> list[float]:
        """Return the logarithms of the ratios of a candidate's undisturbed pairs."""
        (good, found), _ = pairs_of(self._records[cell], self._machine, self._quantity)
        return [float(each) for each in np.log(found) - np.log(good)]

    def problem(self, cell: Cell) -> str:
        """Return why a candidate cannot be tested; empty where it can."""
        records = self._records[cell]
        difference = other_work(records, self.rule)
        if difference is not None:
            return f"it computes something else: {difference.words}"
        failed = [each for each in last_attempts(records) if each.outcome.status is not Status.OK]
        if not failed or not given_up(records):
            return ""
        outcome, side = failed[-1].outcome, failed[-1].side
        why = (
            outcome.reason
            or (outcome.parity.reason if outcome.parity else "")
            or "no reason was given"
        )
        status = (
            ""
            if outcome.status is Status.SKIPPED
            else f"{outcome.status.value.replace('_', ' ')}: "
        )
        return f"{'the good end: ' if side == BASELINE else ''}{status}{why}"

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the next pair, its sides in an order drawn by the seed; without a build, the
        candidate's side only.
        """
        return [
            tuple(
                each
                for each in pair
                if each.side == CANDIDATE or self._series.source(each.cell.framework).interpreter
            )
            for pair in super().wanted(block, seconds_left)
        ]

    def result(self, cell: Cell, command: str) -> Bisection:
        """Return the result so far; ``cell`` is the measured cell, under the framework's own
        name.
        """
        found, series = self.assessment, self._series
        reached = dict(zip(found.candidates, np.cumsum(found.places), strict=True)) if found else {}
        tried = [
            candidate(
                each.framework,
                series.about.get(each.framework, ""),
                self.logs(each),
                float(reached[place]) if place in reached else None,
                self.problem(each) if place < len(self.plan.cells) else "",
            )
            for place, each in enumerate(self.plan.cells, start=1)
            if self._records[each]
        ]
        launched = (each for cell in self.plan.cells for each in self._records[cell])
        begun = {
            (each.cell, each.launch)
            for each in launched
            if each.outcome.status is not Status.SKIPPED
        }
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
            pairs=len(begun),
            disturbed=len(begun) - sum(each.pairs for each in tried),
            command=command,
            faster=series.faster,
        )

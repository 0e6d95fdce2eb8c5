"""The launches of a bisection: pairs of the good end and of the candidate that is wanted next.

Each candidate is a row of the plan, and a cell of the run whose baseline is the good end. First,
the bad end is judged by the looks of a gate. The others are searched only if it is slower
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
from dlbench.reports.results.bisection import Bisection, TriedCandidate, candidate
from dlbench.reports.results.comparison import CellComparison, compare_pairs, other_work, pairs_of
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.posterior import Assessment
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record, last_attempts
from dlbench.reports.results.verdict import Rule, Verdict

from ..display.screen import say
from ..environments.environment import BuildSource
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning.plan import Plan
from ..planning.values import Build, Row
from .groups import Group, Grouping
from .schedules import PairSchedule, gate_rule, given_up, pairs_begun


@dataclass
class CandidateSeries:
    """Candidates in order, the good one first and the bad one last."""

    kind: str
    """The kind of candidates: "release", "commit" or "build"."""
    names: tuple[str, ...]
    prepare: Callable[[int], BuildSource]
    """Returns the source of the candidate at a place, building it if needed.

    Raises UsageError or FrameworkEnvironmentError with the reason if it cannot be built.
    """
    about: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of some candidates by name, such as a commit's subject."""
    done: Callable[[], None] = lambda: None
    """Called when nothing is left to measure."""
    faster: bool = False
    """Whether they go backwards in time, the good one being the latest."""
    sources: dict[str, BuildSource] = field(default_factory=dict)
    """Sources of the prepared candidates, by name."""

    def end(self, place: int) -> BuildSource:
        """Return the source of the good end (0) or the bad one (-1).

        Raises the error of its build.
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

    def source(self, name: str) -> BuildSource:
        """Return a candidate's source. It has no interpreter if the candidate cannot be built."""
        if name not in self.sources:
            say(f"preparing {name}")
            try:
                self.sources[name] = self.prepare(self.names.index(name))
            except (UsageError, FrameworkEnvironmentError) as error:
                say(f"{name} cannot be tested: {error}")
                self.sources[name] = BuildSource(
                    Build(name, self.end(0).build.framework), None, "", "", str(error)
                )
        return self.sources[name]

    def by_side(self) -> dict[str, dict[str, BuildSource]]:
        """Return the sources of each side by row. Raises the error of an end's build."""
        good = self.end(0)
        self.end(-1)
        return {BASELINE: defaultdict(lambda: good), CANDIDATE: self.sources}

    def described(self) -> dict[str, str]:
        """Return a text for each end, by side: names and environments, no paths."""
        texts = {}
        for side, place in ((BASELINE, 0), (CANDIDATE, -1)):
            source = self.end(place)
            framework = source.build.framework.name
            details = f"{source.name}, environment {source.digest}"
            texts[side] = f"{framework} {self.names[place]} ({details})"
        return texts

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
        series: CandidateSeries,
        grouping: Grouping | None = None,
    ) -> None:
        """Take up the records so far."""
        self._machine = host
        self.rule = rule
        self.confidence = confidence
        self._series = series
        super().__init__(plan, records, gate_rule(host, rule), grouping, host, rule.judged)
        self._decide()

    def _update(self, cell: Cell) -> None:
        """Leave it to `_decide`: one candidate is wanted at a time."""

    def _learn(self, block: int) -> None:
        """Take nothing from the candidates: one cell alone is judged by looks."""

    def add(self, record: Record) -> None:
        """Take note of a record, and decide which candidate is wanted next."""
        super().add(record)
        self._decide()

    def _decide(self) -> None:
        """Assess all pairs, and set the candidate to measure next and its number of pairs."""
        last = self.plan.cells[-1]
        count = len(self.plan.cells)
        self.assessment: Assessment | None = None
        self._left = dict.fromkeys(self.plan.cells, 0)
        self._left[last] = 2 * self._rule(self._records[last], {})
        if self._left[last] or self.ends.verdict is not Verdict.REGRESSION:
            return
        places = dict(enumerate(self.plan.cells, start=1))
        untestable = set()
        evidence = {}
        for place, cell in places.items():
            if place < count and self.problem(cell):
                untestable.add(place)
                continue
            logs = self.logs(cell)
            if logs:
                evidence[place] = logs
        threshold = self.rule.of_quantity(self._quantity).threshold
        assessment = posterior.assess(evidence, count, untestable, threshold, self.confidence)
        self.assessment = assessment
        begun = sum(pairs_begun(self._records[cell]) for cell in self.plan.cells)
        if not assessment.decided(self.confidence) and begun < posterior.MOST_PAIRS:
            measured = {place for place, cell in places.items() if self._records[cell]}
            following = places[assessment.following(measured)]
            self._left[following] = 2 * assessment.pairs_left(self.confidence)

    @property
    def _quantity(self) -> str:
        """The quantity that the search follows."""
        return self.rule.judged[0]

    @property
    def ends(self) -> CellComparison:
        """The bad end against the good one, by the looks of a gate."""
        last = self.plan.cells[-1]
        return compare_pairs(
            last, self._records[last], self._machine, True, self.rule, quantity=self._quantity
        )

    def logs(self, cell: Cell) -> list[float]:
        """Return the logarithms of the ratios of a candidate's undisturbed pairs."""
        (good, other), _ = pairs_of(self._records[cell], self._machine, self._quantity)
        return [float(log) for log in np.log(other) - np.log(good)]

    def problem(self, cell: Cell) -> str:
        """Return why a candidate cannot be tested, or an empty string."""
        records = self._records[cell]
        difference = other_work(records, self.rule)
        if difference is not None:
            return f"it computes something else: {difference.words}"
        failed = [
            record for record in last_attempts(records) if record.outcome.status is not Status.OK
        ]
        if not failed or not given_up(records):
            return ""
        outcome = failed[-1].outcome
        text = outcome.reason
        if not text and outcome.parity:
            text = outcome.parity.reason
        if not text:
            text = "no reason was given"
        if outcome.status is not Status.SKIPPED:
            text = f"{outcome.status.value.replace('_', ' ')}: {text}"
        return f"the good end: {text}" if failed[-1].side == BASELINE else text

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the next pair, its sides in an order drawn by the seed.

        Without a build it is the candidate's side only.
        """
        return [self._buildable(pair) for pair in super().wanted(block, seconds_left)]

    def _buildable(self, pair: Group) -> Group:
        """Return the pair, or only its candidate where a build is missing: its record says why."""
        launches = []
        for launch in pair:
            if (
                launch.side == CANDIDATE
                or self._series.source(launch.cell.framework).interpreter is not None
            ):
                launches.append(launch)
        return tuple(launches)

    def result(self, cell: Cell, command: str) -> Bisection:
        """Return the result so far. ``cell`` has the framework's own name."""
        series = self._series
        tried = self._tried()
        begun = set()
        for candidate_cell in self.plan.cells:
            for record in self._records[candidate_cell]:
                if record.outcome.status is not Status.SKIPPED:
                    begun.add((record.cell, record.launch))
        return Bisection(
            kind=series.kind,
            good=series.names[0],
            names=series.names[1:],
            cell=cell,
            host=self._machine,
            ends=self.ends,
            assessment=self.assessment,
            tried=tried,
            confidence=self.confidence,
            rule=self.rule,
            pairs=len(begun),
            disturbed=len(begun) - sum(measured.pairs for measured in tried),
            command=command,
            faster=series.faster,
        )

    def _tried(self) -> tuple[TriedCandidate, ...]:
        """Return the candidates with records, each with its probability of being slower."""
        slower: dict[int, float] = {}
        if self.assessment:
            sums = np.cumsum(self.assessment.places)
            slower = dict(zip(self.assessment.candidates, map(float, sums), strict=True))
        tried = []
        for place, cell in enumerate(self.plan.cells, start=1):
            if not self._records[cell]:
                continue
            name = cell.framework
            about = self._series.about.get(name, "")
            problem = self.problem(cell) if place < len(self.plan.cells) else ""
            tried.append(candidate(name, about, self.logs(cell), slower.get(place), problem))
        return tuple(tried)

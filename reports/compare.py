"""Comparisons: a candidate against a baseline, cell by cell, from records.

Pure functions. `compare_sides` takes the records of one run that measured both sides in interleaved pairs (and, in a
gate, in two stages); `compare_runs` takes two runs of a store. Of a launch that was repeated, the first undisturbed
attempt counts. A pair with a disturbed launch is left out; a cell that lost half of its pairs that way is CONTENDED.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports import evidence
from dlbench.reports.attempts import disturbed, effective
from dlbench.reports.hosts import Host
from dlbench.reports.record import Record
from dlbench.reports.stages import judge_stages
from dlbench.reports.statistics import Ratio
from dlbench.reports.verdict import (
    DEFAULT,
    Judgement,
    Rule,
    Verdict,
    adjust,
    judge,
    judge_pairs,
    undecided,
)

BASELINE, CANDIDATE = "baseline", "candidate"
SCREEN, CONFIRM = "screen", "confirm"
CONTENDED_SHARE = 0.5
_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class SideOfCell:
    """One side of a cell: what its launches gave."""

    status: Status
    reason: str
    seconds: tuple[float, ...]
    """Median seconds per step of each undisturbed launch with a number."""
    contended: int
    """Launches left out since others were in the way."""
    environment: str
    flags: tuple[evidence.Flag, ...] = ()


@dataclass(frozen=True)
class CellComparison:
    """One cell on both sides, and the verdict."""

    cell: Cell
    baseline: SideOfCell
    candidate: SideOfCell
    judgement: Judgement
    stage: str = ""
    """Of a gate: the stage that the verdict rests on."""

    @property
    def broken(self) -> bool:
        """Whether the candidate gave no number where the baseline gave one."""
        return bool(self.baseline.seconds) and self.candidate.status is not Status.OK

    @property
    def measured(self) -> bool:
        """Whether both sides gave a number."""
        return bool(self.baseline.seconds) and bool(self.candidate.seconds)


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline over all cells that either side planned."""

    baseline: str
    """What it is, in words."""
    candidate: str
    hosts: tuple[Host, ...]
    """One, or of a comparison of machines two."""
    purpose: str
    """"gate" or "compare"."""
    same_session: bool
    cells: tuple[CellComparison, ...]
    geometric_mean: Ratio | None
    """Over all cells that both sides measured."""
    rule: Rule
    notes: tuple[str, ...] = ()

    def having(self, verdict: Verdict) -> tuple[CellComparison, ...]:
        """Return the cells with this verdict."""
        return tuple(cell for cell in self.cells if cell.judgement.verdict is verdict)

    @property
    def regressions(self) -> tuple[CellComparison, ...]:
        """The cells that fail a build."""
        return self.having(Verdict.REGRESSION)

    @property
    def broken(self) -> tuple[CellComparison, ...]:
        """The cells of which the candidate gave no number though the baseline did."""
        return tuple(cell for cell in self.cells if cell.broken)


def compare_sides(
    records: Sequence[Record],
    host: Host,
    names: Mapping[str, str],
    purpose: str = "compare",
    rule: Rule = DEFAULT,
) -> Comparison:
    """Compare the two sides of one run; ``names`` says in words what `BASELINE` and `CANDIDATE` are.

    Raises ValueError where the records have no sides.
    """
    if not any(record.side for record in records):
        raise ValueError("these records have no sides to compare")
    cells = []
    for cell, found in _by_cell(record for record in records if record.side).items():
        sides = {side: _side([r for r in found if r.side == side], host) for side in (BASELINE, CANDIDATE)}
        stage = SCREEN if purpose == "gate" else ""
        judgement = _without_number(sides[BASELINE], sides[CANDIDATE])
        if judgement is None:
            screened, lost = pairs_of(found, host, SCREEN if purpose == "gate" else None)
            confirmed, lost_later = pairs_of(found, host, CONFIRM)
            if len(confirmed[0]) + lost_later:
                stage = CONFIRM
            used, dropped = (confirmed, lost_later) if stage == CONFIRM else (screened, lost)
            if dropped and dropped >= CONTENDED_SHARE * (len(used[0]) + dropped):
                judgement = _contended(dropped, len(used[0]) + dropped, "pairs", used)
            elif purpose == "gate":
                judgement = judge_stages(screened, confirmed, rule)
            else:
                judgement = judge_pairs(*screened, rule)
        cells.append(CellComparison(cell, sides[BASELINE], sides[CANDIDATE], judgement, stage))
    if purpose != "gate":
        cells = _adjusted(cells, rule)
    return Comparison(
        names.get(BASELINE, BASELINE),
        names.get(CANDIDATE, CANDIDATE),
        (host,),
        purpose,
        True,
        tuple(cells),
        geometric_mean(cells),
        rule,
    )


def compare_runs(
    baseline: Sequence[Record],
    candidate: Sequence[Record],
    hosts: Mapping[str, Host],
    names: Mapping[str, str],
    rule: Rule = DEFAULT,
) -> Comparison:
    """Compare two stored runs, each of one machine; cells in common are those that ask for the same.

    Runs of different machines give ratios and no verdicts. Raises ValueError where they have no cell in common.
    """
    sides = [_by_cell(baseline), _by_cell(candidate)]
    common = [cell for cell in sides[0] if cell in sides[1]]
    if not common:
        raise ValueError("these two have no cell in common")
    machines = [found[0].machine for found in (baseline, candidate)]
    known = [hosts.get(name) or Host(name, name[:12]) for name in machines]
    same_machine = machines[0] == machines[1]
    same_session = {record.run for record in baseline} == {record.run for record in candidate}
    cells = []
    for cell in common:
        before, after = _side(sides[0][cell], known[0]), _side(sides[1][cell], known[1])
        judgement = _without_number(before, after)
        lost, all_launches = before.contended + after.contended, len(before.seconds) + len(after.seconds)
        if judgement is None:
            judgement = judge(before.seconds, after.seconds, rule, same_session)
            if not same_machine:
                words = "different machines: a comparison, not a verdict on a change"
                judgement = replace(judgement, verdict=Verdict.COMPARISON, sentence=words)
            elif lost and lost >= CONTENDED_SHARE * (lost + all_launches):
                judgement = _contended(lost, lost + all_launches, "launches", (before.seconds, after.seconds))
        cells.append(CellComparison(cell, before, after, judgement))
    if same_machine:
        cells = _adjusted(cells, rule)
    notes = []
    left_out = [len(each) - len(common) for each in sides]
    if any(left_out):
        notes.append(f"{left_out[0]} cells are in the baseline only and {left_out[1]} in the candidate only.")
    if not same_machine:
        notes.append("Measured on different machines: ratios compare machines and builds together.")
    elif not same_session:
        notes.append(
            "Measured in different sessions: a shift of the machine between them cannot be told from a change of the "
            f"code. The intervals allow for a shift of {rule.session_deviation:.1%} (standard deviation) in each; "
            "`dlbench compare --now` measures both side by side instead."
        )
    shift = 0.0 if same_session or not same_machine else rule.session_deviation
    shown = tuple(known) if not same_machine else (known[0],)
    mean = geometric_mean(cells, shift)
    return Comparison(
        names.get(BASELINE, BASELINE),
        names.get(CANDIDATE, CANDIDATE),
        shown,
        "compare",
        same_session,
        tuple(cells),
        mean,
        rule,
        tuple(notes),
    )


def geometric_mean(cells: Iterable[CellComparison], session_deviation: float = 0.0) -> Ratio | None:
    """Return the geometric mean of the cells' ratios with its 95 % interval; None where no cell has a ratio.

    The cells' errors are taken for independent (their launches are shuffled), except for a shift of the machine from
    session to session, which falls on all cells alike and is added once for each session.
    """
    known = [c.judgement for c in cells if c.judgement.ratio is not None and c.judgement.standard_error is not None]
    if not known:
        return None
    centre = sum(math.log(each.ratio or 1.0) for each in known) / len(known)
    # Each cell's error holds the shift already, where there is one: take it out before averaging.
    shift = 2 * session_deviation**2
    own = sum(max(0.0, (each.standard_error or 0.0) ** 2 - shift) for each in known) / len(known) ** 2
    half = _NORMAL_95 * math.sqrt(own + shift)
    return Ratio(
        math.exp(centre), math.exp(centre - half), math.exp(centre + half), f"geometric mean of {len(known)} cells"
    )


def _by_cell(records: Iterable[Record]) -> dict[Cell, list[Record]]:
    found: dict[Cell, list[Record]] = {}
    for record in records:
        found.setdefault(record.cell, []).append(record)
    return found


def _seconds(record: Record) -> float | None:
    timed = record.outcome.status is Status.OK and record.outcome.samples_ns
    return median(record.outcome.step_seconds()) if timed else None


def _side(records: Sequence[Record], host: Host | None) -> SideOfCell:
    if not records:
        return SideOfCell(Status.SKIPPED, "not measured", (), 0, "")
    counted = effective(records, host)
    bad = [record for record in counted if record.outcome.status is not Status.OK]
    newest = (bad or counted)[-1]
    good = [record for record in counted if not disturbed(record, host)]
    seconds = tuple(value for record in good if (value := _seconds(record)) is not None)
    timed = [record for record in counted if record.outcome.samples_ns]
    flags = evidence.cell_flags([evidence.launch_flags(r.cell, r.outcome, host) for r in timed])
    return SideOfCell(
        newest.outcome.status,
        newest.outcome.reason,
        seconds,
        len(counted) - len(good),
        newest.environment,
        tuple(flag for flag in flags if flag.kind is not evidence.CONTENDED),
    )


def pairs_of(
    records: Sequence[Record], host: Host | None, stage: str | None
) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], int]:
    """Return the undisturbed pairs in order, (baseline, candidate), and how many were left out."""
    wanted = [record for record in records if stage is None or record.stage == stage]
    by_launch: dict[int, dict[str, Record]] = {}
    for record in effective(wanted, host):
        by_launch.setdefault(record.launch, {})[record.side] = record
    before, after, lost = [], [], 0
    for launch in sorted(by_launch):
        pair = by_launch[launch]
        if set(pair) != {BASELINE, CANDIDATE}:
            continue  # interrupted between its two launches
        seconds = [_seconds(pair[side]) for side in (BASELINE, CANDIDATE)]
        if any(disturbed(record, host) for record in pair.values()):
            lost += 1
        elif seconds[0] is not None and seconds[1] is not None:
            before.append(seconds[0])
            after.append(seconds[1])
    return (tuple(before), tuple(after)), lost


def _without_number(baseline: SideOfCell, candidate: SideOfCell) -> Judgement | None:
    for name, side in ((BASELINE, baseline), (CANDIDATE, candidate)):
        if side.status is not Status.OK:
            why = f"{name}: {side.status.value.replace('_', ' ')}, {side.reason}"
            return undecided(Verdict.INCONCLUSIVE, why, len(baseline.seconds), len(candidate.seconds))
    return None


def _contended(lost: int, of: int, what: str, used: tuple[Sequence[float], Sequence[float]]) -> Judgement:
    why = f"others were in the way of {lost} of {of} {what}; measure again on a quiet machine (dlbench doctor)"
    return undecided(Verdict.CONTENDED, why, len(used[0]), len(used[1]))


def _adjusted(cells: Sequence[CellComparison], rule: Rule) -> list[CellComparison]:
    judged = adjust([each.judgement for each in cells], rule)
    return [replace(each, judgement=judgement) for each, judgement in zip(cells, judged, strict=True)]

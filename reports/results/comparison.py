"""Comparisons: a candidate against a baseline, cell by cell, from records.

`compare_sides` takes the records of one run that measured both sides in interleaved pairs;
`compare_runs` takes two runs of a store. Of a launch that was repeated, the last attempt counts. A
pair with a disturbed launch, or one of a throttled GPU, is left out; a cell that lost half of its
pairs that way is CONTENDED.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from scipy.special import bdtr, stdtrit

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.results.cells import TOO_SHORT
from dlbench.reports.results.differences import SideDifference, host_differences, side_differences
from dlbench.reports.results.disturbance import left_out
from dlbench.reports.results.flags import (
    CONTENDED,
    DEVICE_THROTTLED,
    FAILED_LAUNCHES,
    Flag,
    cell_flags,
    record_flags,
)
from dlbench.reports.results.hosts import UNKNOWN_MACHINE, Host
from dlbench.reports.results.judged import JUDGED, TIME, is_of_clock
from dlbench.reports.results.keys import group_of, grouped, row_of, row_order
from dlbench.reports.results.losses import (
    FirstLosses,
    LossDifference,
    first_losses,
    loss_difference,
    without_losses,
)
from dlbench.reports.results.naming import listed, name_of, variables_in_words
from dlbench.reports.results.networks import in_order as network_order
from dlbench.reports.results.number_text import percent
from dlbench.reports.results.operators import StepDifference
from dlbench.reports.results.record import (
    BASELINE,
    CANDIDATE,
    GATE,
    IMPORTED,
    Record,
    Run,
    last_attempts,
)
from dlbench.reports.results.rounds import seconds_in_turns, took_turns
from dlbench.reports.results.statistics import CONFIDENCE, Ratio
from dlbench.reports.results.verdict import (
    DEFAULT,
    EARLY_LOOK,
    FEWEST_LAUNCHES,
    FEWEST_PAIRS,
    NO_SPREADS,
    Judgement,
    PairedEstimate,
    Rule,
    Spreads,
    Verdict,
    adjust,
    deviation_of,
    estimate_few_pairs,
    estimate_pairs,
    judge,
    judge_looks,
    judge_pairs,
    rule_of,
    spreads_of,
)

Pairs = tuple[tuple[float, ...], tuple[float, ...]]
"""(baseline, candidate): median seconds per step of launches made side by side."""


@dataclass(frozen=True)
class SideOfCell:
    """One side of a cell."""

    status: Status
    reason: str = ""
    launches: int = 0
    """Undisturbed ones with a number."""
    launch_medians: tuple[float, ...] = ()
    """Of each of these, seconds per step, or what else is judged."""
    contended: int = 0
    """Launches left out because other programs disturbed them."""
    environment: str = ""
    flags: tuple[Flag, ...] = ()
    too_short: bool = False
    """Whether samples of a launch are too short for the clock, so that the side has no number."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the user gave its launches."""
    losses: FirstLosses | None = None
    """Of a user's own step; None for any other network, whose mathematics a reference checks."""


@dataclass(frozen=True)
class CellComparison:
    """One cell on both sides, and the verdict."""

    cell: Cell
    baseline: SideOfCell
    candidate: SideOfCell
    judgement: Judgement
    pairs: Pairs = ((), ())
    """Those of launches measured side by side; empty where none was."""
    tails: Pairs = ((), ())
    """Of the same launches the seconds that nine steps in ten take at most."""
    quantity: str = TIME
    """What is judged: `TIME`, or a name of `judged.JUDGED`. A cell is in a comparison once for
    each."""

    @property
    def name(self) -> str:
        """The cell in words, with what is judged of it if that is not its time."""
        name = name_of(self.cell)
        return name if self.quantity == TIME else f"{name}, {JUDGED[self.quantity].words}"

    @property
    def tail(self) -> PairedEstimate | None:
        """The ratio of those; None from too few pairs for an interval."""
        return estimate_pairs(*self.tails) if len(self.tails[0]) >= FEWEST_PAIRS else None

    @property
    def verdict(self) -> Verdict:
        """The verdict of its judgement."""
        return self.judgement.verdict

    @property
    def loss_difference(self) -> LossDifference | None:
        """By how much the first losses of a user's own step differ; None where they agree, or are
        unknown.
        """
        return loss_difference(self.baseline.losses, self.candidate.losses)

    @property
    def comparable(self) -> bool:
        """Whether both sides ran and compute the same."""
        ran = self.baseline.status is Status.OK is self.candidate.status
        return ran and self.verdict is not Verdict.DIFFERENT

    @property
    def same_work(self) -> bool:
        """Whether the ratio is one of times for the same work."""
        return self.verdict is not Verdict.DIFFERENT

    @property
    def measured(self) -> bool:
        """Whether both sides gave a number."""
        return bool(self.baseline.launches and self.candidate.launches)


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline over all cells that either side measured, in a fixed order."""

    baseline: str
    """Its description."""
    candidate: str
    hosts: tuple[Host, ...]
    """One, or of a comparison of machines two."""
    purpose: str
    """"gate" or "compare"."""
    same_session: bool
    cells: tuple[CellComparison, ...]
    geometric_mean: Ratio | None
    """Over all cells with an interval."""
    rule: Rule
    notes: tuple[str, ...] = ()
    differences: tuple[SideDifference, ...] = ()
    """Besides the code, between the sides of the cells."""
    only_baseline: tuple[Cell, ...] = ()
    """Cells that the candidate lacks: removed, renamed or not measured."""
    only_candidate: tuple[Cell, ...] = ()
    unmeasured: int = 0
    """Cells that were planned and have no launch yet."""
    command: str = ""
    """Measures it again; empty if unknown, as for stored runs."""
    operators: tuple[StepDifference, ...] = ()
    """Of slower cells, which operators account for the difference, where both sides were
    profiled."""

    def having(self, verdict: Verdict) -> tuple[CellComparison, ...]:
        """Return the cells with this verdict."""
        return tuple(cell for cell in self.cells if cell.verdict is verdict)


def in_order(cell: Cell) -> tuple[object, ...]:
    """Return a sort key: networks as listed, then everything else by name, devices, workers and
    threads last.
    """
    group = (
        *network_order(cell.network),
        axes.order_of(cell.batch_size),
        axes.sort_key(group_of(cell)),
    )
    rest = axes.sort_key(axes.without(cell, "threads"))
    return (*group, row_order(row_of(cell)), not cell.on_cpu, cell.device, rest, cell)


CONTENDED_SHARE = 0.5
ONE_SIDED = 0.01
"""Disturbed launches are mostly those of one side if chance alone would divide them so with a lower
probability."""
_OF_SESSIONS = (
    "Measured in different sessions: a shift of the machine between them looks like a change of "
    "the code. The intervals allow for a shift of {} (standard deviation) in each. {}"
)
_MEASURE_NOW = "`dlbench compare --now` measures both side by side instead."
_RUN_AGAIN = (
    "Before you trust a small difference, run the benchmarks of both sides again, in turn, several "
    "sessions each: `pytest --benchmark-json FILE`, then `dlbench import --one-run FILES`."
)
_SAVE_MORE = (
    f"A file of pytest-benchmark is one launch, and a verdict needs {FEWEST_LAUNCHES} on each "
    "side. Save as many sessions or more of each (`pytest --benchmark-json FILE`), and import "
    "each side with `dlbench import --one-run FILES`."
)
ONCE_BY_CHANCE = (Status.CRASHED, Status.IMPLAUSIBLE)
"""How a launch may end once by bad luck, such as a clock that other programs held up."""
TAIL = 0.9
"""The share of steps that a launch's tail is beyond."""
CRASHES = 2
"""A side fails with this many launches that ended so."""


def compare_sides(
    run: Run,
    records: Sequence[Record],
    host: Host,
    rule: Rule | None = None,
    of_gate: Sequence[Record] = (),
) -> Comparison:
    """Compare the two sides of a run by its records so far; planned cells without records are
    counted in a note.

    ``rule`` replaces the run's own. Where ``records`` are those of some cells only, ``of_gate`` are
    all of the gate's. At least one record has a side.
    """
    by_cell = grouped((record for record in records if record.side), lambda record: record.cell)
    rule, gate = rule or rule_of(run.rule), run.purpose == GATE
    spreads = spreads_of_gate(of_gate or records, host, rule.judged) if gate else {}
    cells = []
    for cell in sorted(by_cell, key=in_order):
        for quantity in rule.judged:
            found = of_pairs(cell, by_cell[cell], host, gate, rule, spreads, quantity)
            cells.append(found)
            if not found.comparable:
                break  # the others would say the same
    cells = cells if gate else _adjusted(cells, rule)
    sides = [
        [record for record in records if record.side == side] for side in (BASELINE, CANDIDATE)
    ]
    unmeasured = len(set(run.plan) - by_cell.keys())
    left = (
        f"{unmeasured} of the cells planned {'has' if unmeasured == 1 else 'have'} no launch yet."
    )
    given = f"Both sides were launched with {variables_in_words(run.variables)} (--env)."
    return Comparison(
        run.sides.get(BASELINE, BASELINE),
        run.sides.get(CANDIDATE, CANDIDATE),
        (host,),
        run.purpose,
        True,
        tuple(cells),
        geometric_mean([cell for cell in cells if cell.quantity == TIME], of_gate=gate),
        rule,
        (
            *((left,) if unmeasured else ()),
            *((given,) if run.variables else ()),
            *_notes_on_losses(cells),
        ),
        side_differences(*(grouped(of_side, lambda record: record.cell) for of_side in sides)),
        unmeasured=unmeasured,
    )


def compare_runs(
    baseline: Sequence[Record],
    candidate: Sequence[Record],
    hosts: Mapping[str, Host],
    names: Mapping[str, str],
    rule: Rule = DEFAULT,
) -> Comparison:
    """Compare two stored runs, each of one machine; cells in common are those that ask for the
    same.

    Runs of different machines give ratios and no verdicts. Raises ValueError where they have no
    cell in common, and where one of them holds both sides of a comparison.
    """
    if any(len({record.side for record in found}) > 1 for found in (baseline, candidate)):
        raise ValueError(
            "a run that measured two sides is two things to compare: choose one of its sides"
        )
    sides = [grouped(records, lambda record: record.cell) for records in (baseline, candidate)]
    common = sorted(sides[0].keys() & sides[1].keys(), key=in_order)
    if not common:
        raise ValueError("these two have no cell in common")
    machines = [found[0].machine for found in (baseline, candidate)]
    known = [hosts.get(name) or Host(name, name[:12]) for name in machines]
    same_machine = machines[0] == machines[1] != UNKNOWN_MACHINE
    same_session = {record.run for record in baseline} == {record.run for record in candidate}
    cells = []
    for cell in common:
        counts = [
            {len(record.outcome.cpus) for record in of_side[cell] if record.outcome.cpus}
            for of_side in sides
        ]
        other_cpus = all(counts) and counts[0] != counts[1]
        for quantity in rule.judged:
            before, after = (
                side_of(of_side[cell], host, quantity)
                for of_side, host in zip(sides, known, strict=True)
            )
            # The machine's speed shifts from session to session, and no count does.
            alike = same_session or not is_of_clock(quantity)
            judgement = judge_sides(
                before, after, rule.of_quantity(quantity), same_machine, alike, quantity
            )
            judged = judgement.verdict is not Verdict.DIFFERENT and judgement.ratio is not None
            if other_cpus and judged:
                words = (
                    "launches that could use different numbers of CPUs: a comparison, not a "
                    "verdict on a change"
                )
                judgement = replace(judgement, verdict=Verdict.COMPARISON, sentence=words)
            cells.append(CellComparison(cell, before, after, judgement, quantity=quantity))
            if not cells[-1].comparable:
                break  # the others would say the same
    differing = side_differences(*sides)
    if machines[0] != machines[1]:
        differing = (*host_differences(known[0], known[1], len(common)), *differing)
    notes = []
    if UNKNOWN_MACHINE in machines:
        notes.append(
            "A file does not say which CPU it was measured on: ratios may compare machines and "
            "builds."
        )
    elif not same_machine and known[0].name == known[1].name:
        notes.append(
            "Both sides name the same CPU, and describe the machine differently otherwise: ratios "
            "may compare machines and builds."
        )
    elif not same_machine:
        notes.append("Measured on different machines: ratios compare machines and builds together.")
    elif not same_session:
        notes.append(_OF_SESSIONS.format(percent(rule.session_deviation), _advice(cells)))
    notes += _notes_on_variables(cells)
    notes += _notes_on_losses(cells)
    return Comparison(
        names[BASELINE],
        names[CANDIDATE],
        tuple(known[:1] if machines[0] == machines[1] else known),
        "compare",
        same_session,
        tuple(_adjusted(cells, rule)),
        geometric_mean(
            [cell for cell in cells if cell.quantity == TIME],
            0.0 if same_session else rule.session_deviation,
        ),
        rule,
        tuple(notes),
        differing,
        tuple(sorted(sides[0].keys() - sides[1].keys(), key=in_order)),
        tuple(sorted(sides[1].keys() - sides[0].keys(), key=in_order)),
    )


def _notes_on_variables(cells: Sequence[CellComparison]) -> list[str]:
    """Return a line on the environment variables of stored runs (--env), and on their
    differences.
    """
    different = [cell for cell in cells if cell.baseline.variables != cell.candidate.variables]
    notes = []
    pairs = grouped(different, lambda cell: (_words(cell.baseline), _words(cell.candidate)))
    for (before, after), of_pair in pairs.items():
        which = "" if len(of_pair) == len(cells) else f", in {len(of_pair)} of {len(cells)} cells"
        notes.append(
            f"Different environment variables (--env): baseline {before}; candidate {after}{which}."
        )
    same = {
        _words(cell.baseline) for cell in cells if cell.baseline.variables and cell not in different
    }
    notes += [f"Both were launched with {words} (--env)." for words in sorted(same)]
    return notes


def _words(side: SideOfCell) -> str:
    return variables_in_words(side.variables)


def _advice(cells: Iterable[CellComparison]) -> str:
    """Return what to do about runs of different sessions; dlbench cannot launch the benchmarks of
    other programs.
    """
    others = [cell for cell in cells if cell.cell.adapter == IMPORTED]
    if not others:
        return _MEASURE_NOW
    few = any(
        side.launches < FEWEST_LAUNCHES
        for cell in others
        for side in (cell.baseline, cell.candidate)
    )
    return _SAVE_MORE if few else _RUN_AGAIN


def judge_sides(
    before: SideOfCell,
    after: SideOfCell,
    rule: Rule,
    same_machine: bool = True,
    same_session: bool = False,
    quantity: str = TIME,
) -> Judgement:
    """Judge launches that were not measured in pairs; of different machines the ratio is no verdict
    on a change.
    """
    if hole := _without_number(before, after, quantity):
        return hole
    judgement = judge(before.launch_medians, after.launch_medians, rule, same_session)
    if difference := _other_work(before, after, rule):
        return _different(judgement, difference)
    if not same_machine:
        words = "not measured on one known machine: a comparison, not a verdict on a change"
        return replace(judgement, verdict=Verdict.COMPARISON, sentence=words)
    lost = before.contended + after.contended
    used = before.launch_medians, after.launch_medians
    return (
        _contended(lost, lost + before.launches + after.launches, "launches", used, (before, after))
        or judgement
    )


def geometric_mean(
    cells: Iterable[CellComparison], session_deviation: float = 0.0, of_gate: bool = False
) -> Ratio | None:
    """Return the geometric mean of the cells' ratios with its 95 % interval; None with fewer than
    two ratios.

    The cells' errors are assumed independent (their launches are shuffled), except for a shift of
    the machine from session to session, which affects all cells alike and is added once for each
    session. In a gate, only the pairs up to the first look count: later ones were measured because
    of the first ones' results.
    """
    known = []
    for cell in cells:
        found = _of_first_look(cell) if of_gate else cell.judgement
        if (
            cell.same_work
            and found is not None
            and found.ratio is not None
            and found.standard_error is not None
        ):
            known.append((math.log(found.ratio), found.standard_error**2, found.freedom or 1.0))
    count = len(known)
    if count < 2:
        return None
    logs, variances, freedoms = np.array(known).T
    centre, shift = float(logs.mean()), 2 * session_deviation**2
    # Each cell's error already includes the shift, if there is one: all but one are subtracted
    # again.
    variance = float(np.maximum(0.0, variances - shift).sum()) / count**2 + shift
    spread = float(((variances / count**2) ** 2 / freedoms).sum())
    # Degrees of freedom after Satterthwaite 1946; the shift is assumed, not estimated, and has no
    # spread.
    freedom = min(variance**2 / spread, 1e6) if spread > 0 else 1e6
    half = float(stdtrit(max(freedom, 1.0), 0.975)) * math.sqrt(variance)
    return Ratio(
        math.exp(centre),
        math.exp(centre - half),
        math.exp(centre + half),
        f"geometric mean of {count} cells",
    )


def _of_first_look(cell: CellComparison) -> Judgement | None:
    """Return the judgement of a cell by its first look, before its results decided on measuring
    more.
    """
    before, after = (side[:EARLY_LOOK] for side in cell.pairs)
    if cell.judgement.ratio is None or len(before) < EARLY_LOOK:
        return None
    found = estimate_few_pairs(before, after, CONFIDENCE)
    error = deviation_of(before, after) / math.sqrt(EARLY_LOOK)
    return replace(
        cell.judgement, ratio=found.ratio, standard_error=error, freedom=EARLY_LOOK - 1.0
    )


def pairs_of(
    records: Sequence[Record], host: Host | None, quantity: str = TIME
) -> tuple[Pairs, int]:
    """Return the undisturbed pairs in order, and how many were left out.

    Each pair has the seconds of a step, or another quantity that is judged; nothing disturbs a
    count.
    """
    pairs = complete_pairs(records)
    alone = _undisturbed(pairs, host) if is_of_clock(quantity) else pairs
    both = [_values_of_pair(*pair, quantity) for pair in alone]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    return (tuple(a for a, _ in known), tuple(b for _, b in known)), len(pairs) - len(alone)


def _values_of_pair(
    first: Record, second: Record, quantity: str
) -> tuple[float | None, float | None]:
    if quantity == TIME:
        return seconds_of_pair(first, second)
    return _value(first, quantity), _value(second, quantity)


def _undisturbed(
    pairs: Sequence[tuple[Record, Record]], host: Host | None
) -> list[tuple[Record, Record]]:
    return [pair for pair in pairs if not any(left_out(record, host) for record in pair)]


def tails_of(records: Sequence[Record], host: Host | None) -> Pairs:
    """Return the seconds that nine steps in ten take at most, of the launches of undisturbed pairs
    in order.
    """
    pairs = _undisturbed(complete_pairs(records), host)
    timed = [pair for pair in pairs if None not in seconds_of_pair(*pair)]
    first, second = (
        tuple(float(np.quantile(pair[side].outcome.step_seconds(), TAIL)) for pair in timed)
        for side in (0, 1)
    )
    return first, second


def complete_pairs(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Return (baseline, candidate) of the pairs that have both, in order."""
    by_launch: dict[int, dict[str, Record]] = {}
    for record in last_attempts(records):
        by_launch.setdefault(record.launch, {})[record.side] = record
    # A pair may have been interrupted between its two launches. The order is by no clock, which may
    # jump.
    return [
        (pair[BASELINE], pair[CANDIDATE]) for _, pair in sorted(by_launch.items()) if len(pair) == 2
    ]


def seconds_of_pair(first: Record, second: Record) -> tuple[float | None, float | None]:
    """Return the seconds per step of both launches: medians, or by the rounds of launches that took
    turns.
    """
    if took_turns(first.outcome, second.outcome):
        if first.outcome.status is Status.OK is second.outcome.status:
            before, after = seconds_in_turns([first.outcome, second.outcome])
            return before, after
        return None, None
    return _seconds(first), _seconds(second)


def spreads_of_gate(
    records: Iterable[Record], host: Host | None, quantities: Sequence[str] = (TIME,)
) -> dict[str, Spreads]:
    """Return how the first undisturbed pairs of a gate's cells deviate in each quantity, given all
    their records.
    """
    by_cell = grouped((record for record in records if record.side), lambda record: record.cell)
    return {
        quantity: spreads_of(
            (pairs_of(of_cell, host, quantity)[0], tails_of_quantity(of_cell, host, quantity))
            for of_cell in by_cell.values()
        )
        for quantity in quantities
    }


def tails_of_quantity(records: Sequence[Record], host: Host | None, quantity: str) -> Pairs:
    """Return the tails of undisturbed pairs; only times have them."""
    return tails_of(records, host) if quantity == TIME else ((), ())


def of_pairs(
    cell: Cell,
    records: Sequence[Record],
    host: Host,
    gate: bool,
    rule: Rule,
    spreads: Mapping[str, Spreads] = MappingProxyType({}),
    quantity: str = TIME,
) -> CellComparison:
    """Compare the two sides of a cell by its pairs, those of a ``gate`` by its looks and its cells'
    ``spreads``.
    """
    rule = rule.of_quantity(quantity)
    before, after = (
        side_of([r for r in records if r.side == side], host, quantity)
        for side in (BASELINE, CANDIDATE)
    )
    used, lost = pairs_of(records, host, quantity)
    tails = tails_of_quantity(records, host, quantity)
    judgement = _without_number(before, after, quantity)
    if judgement is None and (difference := _other_work(before, after, rule)):
        judgement = _different(judge_pairs(*used, rule), difference)
    if judgement is None and (
        judgement := _contended(lost, len(used[0]) + lost, "pairs", used, (before, after))
    ):
        fewer, more = sorted((before, after), key=lambda side: side.contended)
        if 2 * float(bdtr(fewer.contended, fewer.contended + more.contended, 0.5)) < ONE_SIDED:
            name = CANDIDATE if more is after else BASELINE
            words = f"{judgement.sentence}; mostly launches of the {name}, which may be the cause"
            judgement = replace(judgement, sentence=words)
    if judgement is None:
        spread = spreads.get(quantity, NO_SPREADS)
        judgement = judge_looks(*used, rule, tails, spread) if gate else judge_pairs(*used, rule)
    return CellComparison(cell, before, after, judgement, used, tails, quantity)


def _seconds(record: Record) -> float | None:
    """Return the median seconds per step; None where it has no right number."""
    outcome = record.outcome
    return outcome.median_seconds() if outcome.status is Status.OK and outcome.was_timed() else None


def _value(record: Record, quantity: str) -> float | None:
    """Return what a launch has of a quantity; None where it has no right number."""
    if quantity == TIME or _seconds(record) is None:
        return _seconds(record)
    return JUDGED[quantity].value(record.outcome)


def side_of(records: Sequence[Record], host: Host | None, quantity: str = TIME) -> SideOfCell:
    """Return one side of a cell by its records."""
    if not records:
        return SideOfCell(Status.SKIPPED, "not measured")
    counted = last_attempts(records)
    good = [record for record in counted if not (is_of_clock(quantity) and left_out(record, host))]
    values = [_value(record, quantity) for record in good]
    known = tuple(value for value in values if value is not None)
    flags = cell_flags(
        [record_flags(record, host) for record in counted if record.outcome.was_timed()]
    )
    status, reason, failed = _status(counted)
    flags += [Flag(FAILED_LAUNCHES, failed)] if failed else []
    kept = tuple(flag for flag in flags if flag.kind is not CONTENDED)
    lost = len(counted) - len(good)
    too_short = any(record.outcome.too_short() for record in counted)
    newest, losses = counted[-1], first_losses(counted)
    return SideOfCell(
        status,
        reason,
        len(known),
        known,
        lost,
        newest.environment,
        kept,
        too_short,
        newest.variables,
        losses,
    )


def _status(records: Sequence[Record]) -> tuple[Status, str, str]:
    """Return how a side's launches ended: status, reason, and how many failed and why."""
    failed = [record for record in records if record.outcome.status is not Status.OK]
    if not failed:
        return Status.OK, "", ""
    # An untrustworthy result outweighs everything; a time-out or a lack of memory would only recur.
    worst = (Status.PARITY_FAILED, Status.IMPLAUSIBLE)
    failed.sort(
        key=lambda record: record.outcome.status in worst and 1 + worst.index(record.outcome.status)
    )
    outcome = failed[-1].outcome
    reason = (
        outcome.reason or (outcome.parity.reason if outcome.parity else "") or "no reason was given"
    )
    where = "" if len(failed) == len(records) else f" (in {len(failed)} of {len(records)} launches)"
    by_chance = all(record.outcome.status in ONCE_BY_CHANCE for record in failed)
    if by_chance and len(failed) < min(CRASHES, len(records)):
        return Status.OK, "", f"{outcome.status.value}: {reason}{where}"
    return outcome.status, reason + where, ""


def _without_number(baseline: SideOfCell, candidate: SideOfCell, quantity: str) -> Judgement | None:
    for name, side in ((BASELINE, baseline), (CANDIDATE, candidate)):
        if side.too_short:
            return Judgement(
                Verdict.HOLE, f"{name}: {TOO_SHORT}", baseline.launches, candidate.launches
            )
        if side.status is not Status.OK:
            broken = side is candidate and side.status is not Status.SKIPPED
            why = f"{name}: {side.status.value.replace('_', ' ')}, {side.reason}"
            verdict = Verdict.BROKEN if broken else Verdict.HOLE
            return Judgement(verdict, why, baseline.launches, candidate.launches)
        if quantity != TIME and not side.launches and not side.contended:
            why = f"{name}: {JUDGED[quantity].words} was not measured"
            return Judgement(Verdict.HOLE, why, baseline.launches, candidate.launches)
    return None


def _other_work(before: SideOfCell, after: SideOfCell, rule: Rule) -> LossDifference | None:
    """Return how the sides' computations differ; None where they agree, and where they may
    differ.
    """
    return None if rule.allow_different else loss_difference(before.losses, after.losses)


def _different(judgement: Judgement, difference: LossDifference) -> Judgement:
    """Return the verdict DIFFERENT with the figures of a judgement."""
    sentence = f"the candidate computes something else: {difference.words}"
    return replace(judgement, verdict=Verdict.DIFFERENT, sentence=sentence, smallest_effect=None)


def other_work(records: Sequence[Record], rule: Rule) -> LossDifference | None:
    """Return how the computations of a cell's two sides differ; None where they agree, and where
    they may differ.
    """
    if rule.allow_different:
        return None
    baseline, candidate = (
        [record for record in records if record.side == side] for side in (BASELINE, CANDIDATE)
    )
    return loss_difference(first_losses(baseline), first_losses(candidate))


def _notes_on_losses(cells: Iterable[CellComparison]) -> list[str]:
    """Return a line on cells that were compared though they compute different things, and on
    unchecked ones.
    """
    allowed, unchecked = [], []
    for cell in cells:
        difference = cell.loss_difference
        if difference is not None and cell.verdict is not Verdict.DIFFERENT and cell.measured:
            allowed.append(f"{name_of(cell.cell)} ({difference.words})")
        if without_losses(cell.baseline.losses, cell.candidate.losses):
            unchecked.append(name_of(cell.cell))
    notes = []
    if allowed:
        notes.append(
            "The candidate computes something else; compared all the same, as asked: "
            f"{listed(allowed)}."
        )
    if unchecked:
        notes.append(
            "Not checked: whether both sides compute the same, as a step reports no loss: "
            f"{listed(unchecked)}."
        )
    return notes


def _contended(
    lost: int,
    of: int,
    what: str,
    used: tuple[Sequence[float], Sequence[float]],
    sides: Iterable[SideOfCell],
) -> Judgement | None:
    """Return CONTENDED where this many of the launches (or pairs) were lost, else None."""
    if not lost or lost < CONTENDED_SHARE * of:
        return None
    why = (
        f"other programs interfered with {lost} of {of} {what}; measure again on a quiet machine "
        "(dlbench doctor)"
    )
    if any(flag.kind is DEVICE_THROTTLED for side in sides for flag in side.flags):
        cause = "other programs interfered, or the GPU was slowed,"
        why = f"{cause} in {lost} of {of} {what}; measure again when it is cool"
    return Judgement(Verdict.CONTENDED, why, len(used[0]), len(used[1]))


def _adjusted(cells: Sequence[CellComparison], rule: Rule) -> list[CellComparison]:
    judged = adjust([each.judgement for each in cells], rule)
    return [
        replace(each, judgement=judgement) for each, judgement in zip(cells, judged, strict=True)
    ]

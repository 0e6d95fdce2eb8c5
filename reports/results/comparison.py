"""Comparisons: a candidate against a baseline, cell by cell, from records.

`compare_sides` takes the records of one run that measured both sides in interleaved pairs;
`compare_runs` takes two runs of a store. Of a launch that was repeated, the last attempt counts.
Other programs disturb both sides of a pair alike where these took turns, so it counts: what they
add makes the interval wider. Another pair with a disturbed launch, or one of a throttled GPU, is
left out, and a cell that lost half of its pairs that way is CONTENDED.
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
from dlbench.reports.results.disturbance import clocks_undecided, left_out
from dlbench.reports.results.flag_kinds import CONTENDED, DEVICE_THROTTLED, FAILED_LAUNCHES, Flag
from dlbench.reports.results.flags import cell_flags, record_flags
from dlbench.reports.results.hosts import UNKNOWN_MACHINE, Host
from dlbench.reports.results.judged import JUDGED, TIME, is_of_clock
from dlbench.reports.results.keys import grouped, row_of, row_order, work_of
from dlbench.reports.results.losses import (
    FirstLosses,
    LossDifference,
    first_losses,
    loss_difference,
    without_losses,
)
from dlbench.reports.results.naming import counted, listed, name_of, variables_in_words
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
from dlbench.reports.results.statistics import CONFIDENCE, Estimate
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
    """Seconds per step of each of these, or another quantity that is judged."""
    disturbed_launches: int = 0
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
    """The seconds that nine steps in ten take at most, of the same launches."""
    quantity: str = TIME
    """The quantity judged: `TIME`, or a name of `judged.JUDGED`. A cell is in a comparison once for
    each."""

    @property
    def name(self) -> str:
        """The cell in words, with the quantity that is judged if that is not its time."""
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
        """The difference of the first losses of a user's own step.

        None where they agree, or are unknown.
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
    geometric_mean: Estimate | None
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
    """Operators that account for the difference of slower cells, where both sides were profiled."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The candidate's file of a user's own step, by row; without those outside the repository."""

    def having(self, verdict: Verdict) -> tuple[CellComparison, ...]:
        """Return the cells with this verdict."""
        return tuple(cell for cell in self.cells if cell.verdict is verdict)


def in_order(cell: Cell) -> tuple[object, ...]:
    """Return a sort key: networks as listed, then by name; devices, workers and threads last."""
    work = (
        *network_order(cell.network),
        axes.order_of(cell.batch_size),
        axes.sort_key(work_of(cell)),
    )
    rest = axes.sort_key(axes.without(cell, "threads"))
    return (*work, row_order(row_of(cell)), not cell.on_cpu, cell.device, rest, cell)


CONTENDED_SHARE = 0.5
ONE_SIDED = 0.01
"""Disturbed launches are mostly those of one side if chance alone would divide them so with a lower
probability."""
_DIFFERENT_SESSIONS = (
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
"""The tail of a launch is this quantile of its steps."""
CRASHES = 2
"""A side fails with this many launches that ended so."""


def compare_sides(
    run: Run,
    records: Sequence[Record],
    host: Host,
    rule: Rule | None = None,
    of_gate: Sequence[Record] = (),
) -> Comparison:
    """Compare the two sides of a run by its records so far.

    ``rule`` replaces the run's own. Where ``records`` are those of some cells only, ``of_gate`` are
    all of the gate's. At least one record has a side. A note counts planned cells without records.
    """
    rule = rule or rule_of(run.rule)
    gate = run.purpose == GATE
    by_cell = _sides_by_cell(records)
    spreads: Mapping[str, Spreads] = {}
    if gate:
        spreads = spreads_of_gate(of_gate or records, host, rule.judged)
    cells: list[CellComparison] = []
    for cell in sorted(by_cell, key=in_order):
        for quantity in rule.judged:
            comparison = compare_pairs(cell, by_cell[cell], host, gate, rule, spreads, quantity)
            cells.append(comparison)
            if not comparison.comparable:
                break  # the others would say the same
    if not gate:
        cells = _adjusted(cells, rule)
    unmeasured = len(set(run.plan) - by_cell.keys())
    notes = []
    if unmeasured:
        have = "has" if unmeasured == 1 else "have"
        notes.append(f"{unmeasured} of the cells planned {have} no launch yet.")
    if run.variables:
        variables = variables_in_words(run.variables)
        notes.append(f"Both sides were launched with {variables} (--env).")
    notes += _notes_on_losses(cells)
    notes += _notes_on_disturbance(by_cell.values(), host)
    baseline = grouped(_of_side(records, BASELINE), lambda record: record.cell)
    candidate = grouped(_of_side(records, CANDIDATE), lambda record: record.cell)
    return Comparison(
        baseline=run.sides.get(BASELINE, BASELINE),
        candidate=run.sides.get(CANDIDATE, CANDIDATE),
        hosts=(host,),
        purpose=run.purpose,
        same_session=True,
        cells=tuple(cells),
        geometric_mean=geometric_mean(_times(cells), gate=gate),
        rule=rule,
        notes=tuple(notes),
        differences=side_differences(baseline, candidate),
        unmeasured=unmeasured,
    )


def _sides_by_cell(records: Iterable[Record]) -> dict[Cell, list[Record]]:
    """Return the records of both sides by cell; others are left out."""
    sides = [record for record in records if record.side]
    return grouped(sides, lambda record: record.cell)


def _of_side(records: Iterable[Record], side: str) -> list[Record]:
    return [record for record in records if record.side == side]


def _times(cells: Iterable[CellComparison]) -> list[CellComparison]:
    return [cell for cell in cells if cell.quantity == TIME]


def compare_runs(
    baseline: Sequence[Record],
    candidate: Sequence[Record],
    hosts: Mapping[str, Host],
    names: Mapping[str, str],
    rule: Rule = DEFAULT,
) -> Comparison:
    """Compare two stored runs, each of one machine, in the cells that they have in common.

    Runs of different machines give ratios and no verdicts. Raises ValueError where they have no
    cell in common, and where one of them holds both sides of a comparison.
    """
    runs_of_sides = []
    for records in (baseline, candidate):
        runs_of_sides.append({record.run for record in records})
        if len({record.side for record in records}) > 1:
            raise ValueError(
                "a run that measured two sides is two things to compare: choose one of its sides"
            )
    before = grouped(baseline, lambda record: record.cell)
    after = grouped(candidate, lambda record: record.cell)
    common = sorted(before.keys() & after.keys(), key=in_order)
    if not common:
        raise ValueError("these two have no cell in common")
    machines = baseline[0].machine, candidate[0].machine
    sides = [hosts.get(machine) or Host(machine, machine[:12]) for machine in machines]
    one_machine = machines[0] == machines[1]
    same_machine = one_machine and machines[0] != UNKNOWN_MACHINE
    same_session = runs_of_sides[0] == runs_of_sides[1]
    cells: list[CellComparison] = []
    for cell in common:
        launches = before[cell], after[cell]
        cells += _compare_launches(cell, launches, sides, rule, same_machine, same_session)
    differing = side_differences(before, after)
    measured_on = sides[:1]
    if not one_machine:
        measured_on = sides
        differing = (*host_differences(sides[0], sides[1], len(common)), *differing)
    notes = [
        *_notes_on_origins(machines, sides, cells, rule, same_session),
        *_notes_on_variables(cells),
        *_notes_on_losses(cells),
    ]
    session_deviation = 0.0 if same_session else rule.session_deviation
    return Comparison(
        baseline=names[BASELINE],
        candidate=names[CANDIDATE],
        hosts=tuple(measured_on),
        purpose="compare",
        same_session=same_session,
        cells=tuple(_adjusted(cells, rule)),
        geometric_mean=geometric_mean(_times(cells), session_deviation),
        rule=rule,
        notes=tuple(notes),
        differences=differing,
        only_baseline=tuple(sorted(before.keys() - after.keys(), key=in_order)),
        only_candidate=tuple(sorted(after.keys() - before.keys(), key=in_order)),
    )


def _compare_launches(
    cell: Cell,
    launches: tuple[Sequence[Record], Sequence[Record]],
    hosts: Sequence[Host],
    rule: Rule,
    same_machine: bool,
    same_session: bool,
) -> list[CellComparison]:
    """Compare a cell of two runs in each quantity that is judged."""
    counts = _cpu_counts(launches[0]), _cpu_counts(launches[1])
    other_cpus = all(counts) and counts[0] != counts[1]
    comparisons = []
    for quantity in rule.judged:
        before = side_of(launches[0], hosts[0], quantity)
        after = side_of(launches[1], hosts[1], quantity)
        # The machine's speed shifts from session to session, and no count does.
        alike = same_session or not is_of_clock(quantity)
        judgement = judge_sides(
            before, after, rule.of_quantity(quantity), same_machine, alike, quantity
        )
        judged = judgement.verdict is not Verdict.DIFFERENT and judgement.ratio is not None
        if other_cpus and judged:
            sentence = (
                "launches that could use different numbers of CPUs: a comparison, not a verdict on "
                "a change"
            )
            judgement = replace(judgement, verdict=Verdict.COMPARISON, sentence=sentence)
        comparison = CellComparison(cell, before, after, judgement, quantity=quantity)
        comparisons.append(comparison)
        if not comparison.comparable:
            break  # the others would say the same
    return comparisons


def _cpu_counts(records: Iterable[Record]) -> set[int]:
    return {len(record.outcome.cpus) for record in records if record.outcome.cpus}


def _notes_on_origins(
    machines: tuple[str, str],
    hosts: Sequence[Host],
    cells: Sequence[CellComparison],
    rule: Rule,
    same_session: bool,
) -> list[str]:
    """Return a line on stored runs of different machines, or else of different sessions."""
    if UNKNOWN_MACHINE in machines:
        return [
            "A file does not say which CPU it was measured on: ratios may compare machines and "
            "builds."
        ]
    if machines[0] != machines[1]:
        if hosts[0].name == hosts[1].name:
            return [
                "Both sides name the same CPU, and describe the machine differently otherwise: "
                "ratios may compare machines and builds."
            ]
        return ["Measured on different machines: ratios compare machines and builds together."]
    if same_session:
        return []
    return [_DIFFERENT_SESSIONS.format(percent(rule.session_deviation), _advice(cells))]


def _notes_on_variables(cells: Sequence[CellComparison]) -> list[str]:
    """Return a line on each set of environment variables (--env) of stored runs."""
    different = [cell for cell in cells if cell.baseline.variables != cell.candidate.variables]
    notes = []
    by_words = grouped(different, lambda cell: (_words(cell.baseline), _words(cell.candidate)))
    for (before, after), affected in by_words.items():
        note = f"Different environment variables (--env): baseline {before}; candidate {after}"
        if len(affected) < len(cells):
            note += f", in {len(affected)} of {len(cells)} cells"
        notes.append(f"{note}.")
    same = set()
    for cell in cells:
        if cell.baseline.variables and cell.baseline.variables == cell.candidate.variables:
            same.add(_words(cell.baseline))
    notes += [f"Both were launched with {words} (--env)." for words in sorted(same)]
    return notes


def _words(side: SideOfCell) -> str:
    return variables_in_words(side.variables)


def _advice(cells: Iterable[CellComparison]) -> str:
    """Return what to do about runs of different sessions.

    dlbench cannot launch the benchmarks of other programs.
    """
    launches = []
    for cell in cells:
        if cell.cell.adapter == IMPORTED:
            launches += [cell.baseline.launches, cell.candidate.launches]
    if not launches:
        return _MEASURE_NOW
    if min(launches) < FEWEST_LAUNCHES:
        return _SAVE_MORE
    return _RUN_AGAIN


def judge_sides(
    before: SideOfCell,
    after: SideOfCell,
    rule: Rule,
    same_machine: bool = True,
    same_session: bool = False,
    quantity: str = TIME,
) -> Judgement:
    """Judge launches that were not measured in pairs.

    The ratio of different machines is no verdict on a change.
    """
    hole = _without_number(before, after, quantity)
    if hole is not None:
        return hole
    judgement = judge(before.launch_medians, after.launch_medians, rule, same_session)
    difference = _other_work(before, after, rule)
    if difference is not None:
        return _different(judgement, difference)
    if not same_machine:
        sentence = "not measured on one known machine: a comparison, not a verdict on a change"
        return replace(judgement, verdict=Verdict.COMPARISON, sentence=sentence)
    lost = before.disturbed_launches + after.disturbed_launches
    launches = lost + before.launches + after.launches
    used = before.launch_medians, after.launch_medians
    return _contended(lost, launches, "launches", used, (before, after)) or judgement


def geometric_mean(
    cells: Iterable[CellComparison], session_deviation: float = 0.0, gate: bool = False
) -> Estimate | None:
    """Return the geometric mean of the cells' ratios with its 95 % interval; None of one ratio.

    The cells' errors are assumed independent (their launches are shuffled), except for a shift of
    the machine from session to session, which affects all cells alike and is added once for each
    session. In a gate, only the pairs up to the first look count: later ones were measured because
    of the first ones' results.
    """
    logs = []
    errors = []
    freedoms = []
    for cell in cells:
        judgement = _judgement_of_first_look(cell) if gate else cell.judgement
        if judgement is None or not cell.same_work:
            continue
        if judgement.ratio is not None and judgement.standard_error is not None:
            logs.append(math.log(judgement.ratio.value))
            errors.append(judgement.standard_error)
            freedoms.append(judgement.freedom or 1.0)
    count = len(logs)
    if count < 2:
        return None
    centre = float(np.mean(logs))
    variances = np.array([error**2 for error in errors])
    shift = 2 * session_deviation**2
    # Each cell's error already includes the shift, if there is one: all but one are subtracted
    # again.
    variance = float(np.maximum(0.0, variances - shift).sum()) / count**2 + shift
    spread = float(((variances / count**2) ** 2 / np.array(freedoms)).sum())
    # Degrees of freedom after Satterthwaite 1946; the shift is assumed, not estimated, and has no
    # spread.
    freedom = min(variance**2 / spread, 1e6) if spread > 0 else 1e6
    half = float(stdtrit(max(freedom, 1.0), 0.975)) * math.sqrt(variance)
    return Estimate(
        math.exp(centre),
        math.exp(centre - half),
        math.exp(centre + half),
        f"geometric mean of {count} cells",
    )


def _judgement_of_first_look(cell: CellComparison) -> Judgement | None:
    """Return the judgement of a cell by its first look, on which more measuring depended."""
    before, after = (side[:EARLY_LOOK] for side in cell.pairs)
    if cell.judgement.ratio is None or len(before) < EARLY_LOOK:
        return None
    estimate = estimate_few_pairs(before, after, CONFIDENCE)
    error = deviation_of(before, after) / math.sqrt(EARLY_LOOK)
    return replace(cell.judgement, ratio=estimate, standard_error=error, freedom=EARLY_LOOK - 1.0)


def pairs_of(
    records: Sequence[Record], host: Host | None, quantity: str = TIME
) -> tuple[Pairs, int]:
    """Return the pairs that count in order, and how many were left out.

    Each pair has the seconds of a step, or another quantity that is judged; nothing disturbs a
    count.
    """
    pairs = complete_pairs(records)
    counting = _counting(pairs, host) if is_of_clock(quantity) else pairs
    baseline = []
    candidate = []
    for first, second in counting:
        if quantity == TIME:
            before, after = seconds_of_pair(first, second)
        else:
            before, after = _value(first, quantity), _value(second, quantity)
        if before is not None and after is not None:
            baseline.append(before)
            candidate.append(after)
    return (tuple(baseline), tuple(candidate)), len(pairs) - len(counting)


def _counting(
    pairs: Sequence[tuple[Record, Record]], host: Host | None
) -> list[tuple[Record, Record]]:
    """Return the pairs that took turns on the CPU, and of the others the undisturbed ones.

    A pair does not count where other programs hide what a launch did between its samples.
    """
    counting = []
    for first, second in pairs:
        if clocks_undecided(first) or clocks_undecided(second):
            continue
        disturbed = left_out(first, host) or left_out(second, host)
        if not disturbed or _took_turns_on_cpu(first, second):
            counting.append((first, second))
    return counting


def _took_turns_on_cpu(first: Record, second: Record) -> bool:
    return first.cell.on_cpu and took_turns(first.outcome, second.outcome)


def tails_of(records: Sequence[Record], host: Host | None) -> Pairs:
    """Return the seconds that nine steps in ten take at most, of counting pairs in order."""
    baseline = []
    candidate = []
    for first, second in _counting(complete_pairs(records), host):
        if None not in seconds_of_pair(first, second):
            baseline.append(_tail(first))
            candidate.append(_tail(second))
    return tuple(baseline), tuple(candidate)


def _tail(record: Record) -> float:
    return float(np.quantile(record.outcome.step_seconds(), TAIL))


def complete_pairs(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Return (baseline, candidate) of the pairs that have both, in order."""
    by_launch: dict[int, dict[str, Record]] = {}
    for record in last_attempts(records):
        by_launch.setdefault(record.launch, {})[record.side] = record
    # A pair may have been interrupted between its two launches. The order is by no clock, which may
    # jump.
    pairs = []
    for _, pair in sorted(by_launch.items()):
        if len(pair) == 2:
            pairs.append((pair[BASELINE], pair[CANDIDATE]))
    return pairs


def seconds_of_pair(first: Record, second: Record) -> tuple[float | None, float | None]:
    """Return the seconds per step of both launches: medians, or by rounds if they took turns."""
    if not took_turns(first.outcome, second.outcome):
        return _seconds(first), _seconds(second)
    if first.outcome.status is Status.OK is second.outcome.status:
        before, after = seconds_in_turns([first.outcome, second.outcome])
        return before, after
    return None, None


def spreads_of_gate(
    records: Iterable[Record], host: Host | None, quantities: Sequence[str] = (TIME,)
) -> dict[str, Spreads]:
    """Return the spread of a gate's first counting pairs by quantity, from all its records."""
    by_cell = _sides_by_cell(records)
    spreads = {}
    for quantity in quantities:
        cells = []
        for launches in by_cell.values():
            pairs, _ = pairs_of(launches, host, quantity)
            cells.append((pairs, tails_of_quantity(launches, host, quantity)))
        spreads[quantity] = spreads_of(cells)
    return spreads


def tails_of_quantity(records: Sequence[Record], host: Host | None, quantity: str) -> Pairs:
    """Return the tails of undisturbed pairs; only times have them."""
    if quantity != TIME:
        return (), ()
    return tails_of(records, host)


def compare_pairs(
    cell: Cell,
    records: Sequence[Record],
    host: Host,
    gate: bool,
    rule: Rule,
    spreads: Mapping[str, Spreads] = MappingProxyType({}),
    quantity: str = TIME,
) -> CellComparison:
    """Compare the two sides of a cell by its pairs.

    Those of a ``gate`` are judged by its looks, and by the ``spreads`` of all its cells.
    """
    rule = rule.of_quantity(quantity)
    used, lost = pairs_of(records, host, quantity)
    pairs = complete_pairs(records)
    by_turns = bool(pairs) and all(_took_turns_on_cpu(*pair) for pair in pairs)
    before = side_of(_of_side(records, BASELINE), host, quantity, by_turns)
    after = side_of(_of_side(records, CANDIDATE), host, quantity, by_turns)
    tails = tails_of_quantity(records, host, quantity)
    judgement = _without_number(before, after, quantity)
    if judgement is None:
        difference = _other_work(before, after, rule)
        if difference is not None:
            judgement = _different(judge_pairs(*used, rule), difference)
    if judgement is None:
        judgement = _contended_pairs(lost, used, before, after)
    if judgement is None and gate:
        judgement = judge_looks(*used, rule, tails, spreads.get(quantity, NO_SPREADS))
    if judgement is None:
        judgement = judge_pairs(*used, rule)
    return CellComparison(cell, before, after, judgement, used, tails, quantity)


def _seconds(record: Record) -> float | None:
    """Return the median seconds per step; None where it has no right number."""
    outcome = record.outcome
    if outcome.status is Status.OK and outcome.was_timed():
        return outcome.median_seconds()
    return None


def _value(record: Record, quantity: str) -> float | None:
    """Return a launch's value of a quantity; None where it has no right number."""
    seconds = _seconds(record)
    if quantity == TIME or seconds is None:
        return seconds
    return JUDGED[quantity].value(record.outcome)


def side_of(
    records: Sequence[Record], host: Host | None, quantity: str = TIME, by_turns: bool = False
) -> SideOfCell:
    """Return one side of a cell by its records.

    Disturbed launches do not count, unless the sides took turns (``by_turns``).
    """
    if not records:
        return SideOfCell(Status.SKIPPED, "not measured")
    launches = last_attempts(records)
    numbers = []
    disturbed_launches = 0
    flags_of_launches = []
    for record in launches:
        if record.outcome.was_timed():
            flags_of_launches.append(record_flags(record, host))
        if is_of_clock(quantity):
            is_left_out = clocks_undecided(record) if by_turns else left_out(record, host)
            if is_left_out:
                disturbed_launches += 1
                continue
        value = _value(record, quantity)
        if value is not None:
            numbers.append(value)
    flags = [flag for flag in cell_flags(flags_of_launches) if flag.kind is not CONTENDED]
    status, reason, failed = _status(launches)
    if failed:
        flags.append(Flag(FAILED_LAUNCHES, failed))
    newest = launches[-1]
    return SideOfCell(
        status=status,
        reason=reason,
        launches=len(numbers),
        launch_medians=tuple(numbers),
        disturbed_launches=disturbed_launches,
        environment=newest.environment,
        flags=tuple(flags),
        too_short=any(record.outcome.too_short() for record in launches),
        variables=newest.variables,
        losses=first_losses(launches),
    )


def _status(records: Sequence[Record]) -> tuple[Status, str, str]:
    """Return how a side's launches ended: status, reason, and how many failed and why."""
    failed = [record for record in records if record.outcome.status is not Status.OK]
    if not failed:
        return Status.OK, "", ""
    outcome = sorted(failed, key=_gravity)[-1].outcome
    reason = outcome.reason
    if not reason and outcome.parity:
        reason = outcome.parity.reason
    reason = reason or "no reason was given"
    where = ""
    if len(failed) < len(records):
        where = f" (in {len(failed)} of {len(records)} launches)"
    by_chance = all(record.outcome.status in ONCE_BY_CHANCE for record in failed)
    if by_chance and len(failed) < min(CRASHES, len(records)):
        return Status.OK, "", f"{outcome.status.value}: {reason}{where}"
    return outcome.status, reason + where, ""


def _gravity(record: Record) -> int:
    """Order failures: an untrustworthy result outweighs one that would only recur.

    A time-out or a lack of memory would.
    """
    gravest = (Status.PARITY_FAILED, Status.IMPLAUSIBLE)
    status = record.outcome.status
    return 1 + gravest.index(status) if status in gravest else 0


def _without_number(baseline: SideOfCell, candidate: SideOfCell, quantity: str) -> Judgement | None:
    """Return the judgement of a cell where a side has no number; None where both have one."""
    for name, side in ((BASELINE, baseline), (CANDIDATE, candidate)):
        verdict = Verdict.HOLE
        if side.too_short:
            reason = TOO_SHORT
        elif side.status is not Status.OK:
            reason = f"{side.status.value.replace('_', ' ')}, {side.reason}"
            if side is candidate and side.status is not Status.SKIPPED:
                verdict = Verdict.BROKEN
        elif quantity != TIME and not side.launches and not side.disturbed_launches:
            reason = f"{JUDGED[quantity].words} was not measured"
        else:
            continue
        return Judgement(verdict, f"{name}: {reason}", baseline.launches, candidate.launches)
    return None


def _other_work(before: SideOfCell, after: SideOfCell, rule: Rule) -> LossDifference | None:
    """Return the difference of the sides' computations; None where they agree, or may differ."""
    if rule.allow_different:
        return None
    return loss_difference(before.losses, after.losses)


def _different(judgement: Judgement, difference: LossDifference) -> Judgement:
    """Return the verdict DIFFERENT with the figures of a judgement."""
    sentence = f"the candidate computes something else: {difference.words}"
    return replace(judgement, verdict=Verdict.DIFFERENT, sentence=sentence, smallest_effect=None)


def other_work(records: Sequence[Record], rule: Rule) -> LossDifference | None:
    """Return the difference of the computations of a cell's sides, as `_other_work` does."""
    if rule.allow_different:
        return None
    baseline = first_losses(_of_side(records, BASELINE))
    candidate = first_losses(_of_side(records, CANDIDATE))
    return loss_difference(baseline, candidate)


def _notes_on_disturbance(
    records_by_cell: Iterable[Sequence[Record]], host: Host | None
) -> list[str]:
    """Return how many of the counting pairs other programs disturbed."""
    pairs = 0
    disturbed = 0
    for records in records_by_cell:
        for first, second in _counting(complete_pairs(records), host):
            pairs += 1
            if left_out(first, host) or left_out(second, host):
                disturbed += 1
    if not disturbed:
        return []
    return [
        f"Other programs disturbed {disturbed} of {counted(pairs, 'pair')}. Both sides took turns, "
        "so their ratios count, but more pairs are needed."
    ]


def _notes_on_losses(cells: Iterable[CellComparison]) -> list[str]:
    """Return a line on cells that compute different things all the same, and on unchecked ones."""
    allowed = []
    unchecked = []
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
    total: int,
    units: str,
    used: tuple[Sequence[float], Sequence[float]],
    sides: Iterable[SideOfCell],
) -> Judgement | None:
    """Return CONTENDED where so many of all launches (or pairs) were lost, else None."""
    if not lost or lost < CONTENDED_SHARE * total:
        return None
    flags: list[Flag] = []
    for side in sides:
        flags += side.flags
    if any(flag.kind is DEVICE_THROTTLED for flag in flags):
        sentence = (
            f"other programs interfered, or the GPU was slowed, in {lost} of {total} {units}; "
            "measure again when it is cool"
        )
    else:
        sentence = (
            f"other programs interfered with {lost} of {total} {units}; measure again on a quiet "
            "machine (dlbench doctor)"
        )
    return Judgement(Verdict.CONTENDED, sentence, len(used[0]), len(used[1]))


def _contended_pairs(
    lost: int, used: Pairs, before: SideOfCell, after: SideOfCell
) -> Judgement | None:
    """Return CONTENDED where so many pairs were lost, with the side that mostly caused it."""
    judgement = _contended(lost, len(used[0]) + lost, "pairs", used, (before, after))
    if judgement is None:
        return None
    fewer, more = sorted((before.disturbed_launches, after.disturbed_launches))
    if 2 * float(bdtr(fewer, fewer + more, 0.5)) >= ONE_SIDED:
        return judgement
    name = CANDIDATE if after.disturbed_launches == more else BASELINE
    sentence = f"{judgement.sentence}; mostly launches of the {name}, which may be the cause"
    return replace(judgement, sentence=sentence)


def _adjusted(cells: Sequence[CellComparison], rule: Rule) -> list[CellComparison]:
    rules = [rule.of_quantity(cell.quantity) for cell in cells]
    judgements = adjust([cell.judgement for cell in cells], rules)
    adjusted = []
    for cell, judgement in zip(cells, judgements, strict=True):
        adjusted.append(replace(cell, judgement=judgement))
    return adjusted

"""Which pairs come next: screening until clear or suspect, confirming the suspect, precision for a comparison."""

import random
from dataclasses import replace

import factory_of_records as factory
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import Cell, Outcome, Status
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CONFIRM, compare_sides
from dlbench.reports.compare.verdict import DEFAULT, Verdict, fewest_pairs
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import SCREEN, Record
from dlbench.suites.run.schedules import PlannedPair, for_compare, for_gate, pair_block, pairs_left

HOST = Host("machine", "a machine", physical_cores=2, effective_cpus=2, capacity_cpus=2.0)
CELLS = [Cell(name, "null", "null", "fcn5", "cpu", 1, 64) for name in ("steady", "slower", "faster")]
NAMES = {BASELINE: "before", CANDIDATE: "after"}


def launch(pair: PlannedPair, side: str, seconds: float, status: Status = Status.OK, waited: float = 0.0) -> Record:
    """Return a launch of ten steps that spent this share of them in the run queue."""
    given = factory.outcome([seconds] * 10, pair.cell.threads)
    given = given._replace(
        threads=factory.threads(pair.cell.threads, 10 * seconds, 1.0 - waited),
        contention=factory.contention(run_queue_seconds=waited * 10 * seconds),
    )
    result = given if status is Status.OK else Outcome(status, "it would not")
    made = factory.record(launch=pair.launch, result=result, **pair.cell._asdict())
    return replace(made, side=side, stage=pair.stage)


def measure(following, times, cells=CELLS, seed=1, records=(), launch=launch):
    """Carry a schedule out with times drawn by `times(cell, side, random)`; return the records and the pairs."""
    lot = random.Random(seed)
    records, pairs = list(records), []
    for _ in range(200):
        planned = pair_block(cells, records, following, seed)
        if not planned:
            return records, pairs
        for pair in planned:
            pairs.append(pair)
            for side in pair.order:
                records.append(launch(pair, side, times(pair.cell, side, lot)))
    raise AssertionError("the schedule never ends")


def noisy(shares, deviation=0.01):
    def times(cell, side, lot):
        share = shares.get(cell.framework, 0.0) if side == CANDIDATE else 0.0
        return 0.1 * (1 + share) * lot.lognormvariate(0.0, deviation)

    return times


def test_a_gate_spends_few_pairs_on_what_is_clear_and_confirms_what_is_not() -> None:
    records, pairs = measure(for_gate(HOST), noisy({"slower": 0.08, "faster": -0.08}))
    spent = {cell.framework: sum(pair.cell == cell for pair in pairs) for cell in CELLS}
    assert spent["faster"] == DEFAULT.screen_looks[0]
    assert spent["steady"] <= DEFAULT.screen_looks[-1]
    assert spent["slower"] == DEFAULT.screen_looks[0] + DEFAULT.confirm_pairs
    found = compare_sides(records, HOST, NAMES, "gate")
    verdicts = {each.cell.framework: each.judgement.verdict for each in found.cells}
    assert verdicts == {"steady": Verdict.NO_REGRESSION, "slower": Verdict.REGRESSION, "faster": Verdict.IMPROVEMENT}
    assert [each.cell.framework for each in found.regressions] == ["slower"]


def test_each_block_holds_one_pair_of_each_open_cell_in_an_order_drawn_by_lot() -> None:
    planned = pair_block(CELLS, [], for_gate(HOST), 7)
    assert sorted(pair.cell.framework for pair in planned) == sorted(cell.framework for cell in CELLS)
    assert pair_block(CELLS, [], for_gate(HOST), 7) == planned
    orders = {tuple(pair.cell.framework for pair in pair_block(CELLS, [], for_gate(HOST), seed)) for seed in range(50)}
    firsts = {pair_block(CELLS, [], for_gate(HOST), seed)[0].first for seed in range(50)}
    assert len(orders) == 6
    assert firsts == {BASELINE, CANDIDATE}


@examples(20)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_a_gate_that_was_interrupted_goes_on_as_if_it_had_not_been(seed, kept) -> None:
    following, times = for_gate(HOST), noisy({"slower": 0.08})
    whole, _ = measure(following, times, seed=seed)
    # Cut between two launches: the lone launch of a pair counts for nothing, and its pair is measured again.
    records, _ = measure(following, times, seed=seed, records=whole[:kept])
    verdicts = {
        each.cell.framework: each.judgement.verdict for each in compare_sides(records, HOST, NAMES, "gate").cells
    }
    assert verdicts["slower"] is Verdict.REGRESSION
    assert verdicts["steady"] is not Verdict.REGRESSION


def test_a_side_that_cannot_do_the_cell_is_asked_once_and_one_that_crashes_twice() -> None:
    for status, asked in ((Status.UNSUPPORTED, 1), (Status.OUT_OF_MEMORY, 1), (Status.CRASHED, 2)):

        def failing(pair, side, seconds, status=status):
            return launch(pair, side, seconds, status=status if side == CANDIDATE else Status.OK)

        records, _ = measure(for_gate(HOST), noisy({}), CELLS[:1], launch=failing)
        assert sum(record.side == CANDIDATE for record in records) == asked
        found = compare_sides(records, HOST, NAMES, "gate").cells[0]
        assert found.judgement.verdict is Verdict.INCONCLUSIVE
        assert found.broken


def test_a_comparison_goes_on_until_its_interval_is_narrow_enough_or_the_most_pairs_are_spent() -> None:
    _, quiet = measure(for_compare(HOST, 1, 6, 20, 0.02), noisy({}, 0.005), CELLS[:1])
    _, loud = measure(for_compare(HOST, 1, 6, 20, 0.02), noisy({}, 0.10), CELLS[:1])
    _, narrow = measure(for_compare(HOST, 1, 6, 100, 0.005), noisy({}, 0.01), CELLS[:1])
    assert len(quiet) == fewest_pairs(1) == 7
    assert len(loud) == 20
    assert len(quiet) < len(narrow) < 100


def test_pairs_left_is_what_the_first_look_wants_before_anything_is_known() -> None:
    left = pairs_left(CELLS, [], for_gate(HOST))
    assert left == dict.fromkeys(CELLS, DEFAULT.screen_looks[0])


@pytest.mark.parametrize("stage", [SCREEN, CONFIRM])
def test_a_machine_that_never_gets_quiet_does_not_keep_a_gate_for_ever(stage) -> None:
    def disturbed(pair, side, seconds):
        return launch(pair, side, seconds, waited=0.5 if stage == pair.stage else 0.0)

    times = noisy({CELLS[0].framework: 0.1 if stage == CONFIRM else 0.0}, deviation=0.0)
    records, _ = measure(for_gate(HOST), times, CELLS[:1], launch=disturbed)
    found = compare_sides(records, HOST, NAMES, "gate").cells[0]
    assert found.judgement.verdict is Verdict.CONTENDED


@pytest.mark.parametrize("cells", [1, 24, 200])
def test_on_a_quiet_machine_a_comparison_proves_what_is_plain(cells) -> None:
    shape = CELLS[0]
    many = [shape._replace(batch_size=n + 1) for n in range(cells)]
    slow = many[0]

    def times(cell, side, lot):
        return 0.1 * (1.08 if side == CANDIDATE and cell == slow else 1.0) * lot.lognormvariate(0.0, 0.002)

    records, _ = measure(for_compare(HOST, cells, 6, 20, 0.02), times, many)
    found = compare_sides(records, HOST, NAMES)
    assert [each.cell for each in found.regressions] == [slow]

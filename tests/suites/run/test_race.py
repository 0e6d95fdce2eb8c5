"""The race of cells: who drops out, how many launches it takes, and what its pairs say."""

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_races import UNLIKELY, WRONG, plan, run, to_beat
from pretended_runs import PLAN, Pretender, Watcher, begin, launched, open_store, runner_of

from dlbench.adapters.protocol import INSTALLED, TUNED
from dlbench.suites.planning.plan import narrow_to
from dlbench.suites.run import fastest
from dlbench.suites.run.halving import FINALISTS, PAIRS, SPARE, Race, raced, sizes, starts
from dlbench.suites.run.runner import Runner

SUITE = fastest.Remeasuring("tuning")


@given(st.integers(1, 500))
def test_each_block_has_half_the_cells_of_the_one_before_and_the_last_ones_pairs(cells):
    found = sizes(cells)
    last = PAIRS + SPARE
    assert found[0] == cells
    assert found[-last:] == [min(cells, FINALISTS)] * last
    halving = found[: -last + 1]
    assert all(after >= math.ceil(before / 2) for before, after in pairwise(halving))
    assert sum(found) <= 2 * cells + FINALISTS * (last + len(found))


@given(st.integers(0, 2**32))
def test_without_noise_the_fastest_wins_whatever_the_machine_does(seed):
    of, random = plan(), Random(seed)
    start = to_beat(of, 4)
    worth = {cell: random.uniform(0.5, 2.0) for cell in of.cells}
    paces = [random.uniform(0.3, 3.0) for _ in range(of.launches)]
    race, records = run(of, lambda cell, block: worth[cell] * paces[block])
    found = fastest.search_result(of, race)
    best = min(worth, key=worth.__getitem__)
    assert found.ways[0].cell == best
    if best != start:
        assert found.gain.ratio == pytest.approx(worth[start] / worth[best], rel=1e-6)
        assert found.gain.pairs == PAIRS
    assert race.launches_left() == 0
    assert len(records) <= 2 * len(of.cells) + (FINALISTS + 1) * of.launches


class Drawn:
    """What `answer` asks a race for: three ways that are the same, in pairs that differ by noise."""

    def __init__(self, cells, random):
        self.begin, self.to_beat = cells[:1], cells[0]
        self._times = {cell: dict(enumerate(np.exp(0.1 * random.normal(size=PAIRS)))) for cell in cells[:3]}

    def finalists(self):
        return list(self._times)

    def timed(self, cell):
        return self._times[cell]

    def pairs(self, fit=True):
        return list(range(PAIRS))

    def tried(self):
        return 3

    def without_number(self):
        return {}

    def flags(self, cell):
        return []


def test_of_ways_that_are_the_same_none_is_called_slower_than_the_one_chosen_by_the_same_pairs():
    of, random = plan(threads="1"), np.random.default_rng(0)
    found = [fastest.search_result(of, Drawn(of.cells, random)) for _ in range(1000)]
    wrong = [any(way.slower is not None and way.slower.low > 1 for way in each.ways) for each in found]
    # Without the allowance for choosing one of three it is a tenth.
    assert 0.01 < np.mean(wrong) < 0.065
    # Three may be in a circle, each a little faster than the next.
    assert np.mean([way.slower is None or way.slower.ratio >= 1 for each in found for way in each.ways]) > 0.97


def test_what_a_user_starts_from_is_as_installed_in_the_default_mode_on_the_cores():
    start = to_beat(plan(), 4)
    assert (start.mode, start.tuning, start.threads) == ("eager", INSTALLED, 4)
    assert to_beat(plan(threads="1,2"), 4).threads == 2
    assert to_beat(plan(tuning="tuned-allocator,tuned"), 4).tuning != INSTALLED


def test_of_a_first_row_without_a_cell_nobody_starts():
    of = plan(frameworks="tinygrad,torch", tuning="each", threads="1")
    assert {cell.framework for cell in of.cells} == {"torch"}
    assert to_beat(of, 1).framework == "torch"


def test_a_way_that_fails_parity_is_out_however_fast_it_is():
    of = plan(threads="1")
    liar = of.cells[-1]
    race, _ = run(of, lambda cell, block: 0.001 if cell == liar else 1.0, lambda cell, block: cell == liar)
    found = fastest.search_result(of, race)
    assert liar not in {way.cell for way in found.ways}
    assert found.failed == {"it computed something else": 1}
    assert "No number from 1 way: it computed something else" in fastest.lines(of, found, SUITE)


@given(st.integers(-2, PAIRS - 1))
def test_a_way_that_fails_parity_in_one_of_many_launches_is_out_and_the_others_keep_their_pairs(block):
    of = plan(threads="1,2")
    liar = next(cell for cell in of.cells if cell not in starts(of, 2)[:1])
    race, records = run(
        of,
        lambda cell, block: 0.5 if cell == liar else 1.0 + of.cells.index(cell) / 100,
        lambda cell, at: cell == liar and at == of.launches - PAIRS - SPARE + block,
        begin=starts(of, 2),
    )
    assert any(record.outcome is WRONG for record in records)
    found = fastest.search_result(of, race)
    assert liar not in {way.cell for way in found.ways}
    assert len(race.pairs()) == PAIRS
    assert race.launches_left() == 0


@pytest.mark.parametrize(("times", "stays"), [(2, True), (3, False)])
def test_an_implausible_clock_is_no_time_and_only_the_third_puts_a_way_out(times, stays):
    of = plan(threads="1,2")
    fast = next(cell for cell in of.cells if cell not in starts(of, 2)[:1])
    first = of.launches - PAIRS - SPARE
    race, _ = run(
        of,
        lambda cell, block: 0.5 if cell == fast else 1.0 + of.cells.index(cell) / 100,
        lambda cell, block: cell == fast and first < block <= first + times,
        begin=starts(of, 2),
        how=UNLIKELY,
    )
    found = fastest.search_result(of, race)
    assert (found.ways[0].cell == fast, found.failed == {}) == (stays, stays)
    assert ("failed_launches" in {flag.kind.name for flag in found.ways[0].flags}) is stays
    assert len(race.pairs()) == PAIRS
    assert race.launches_left() == 0


def test_a_way_whose_only_clock_is_implausible_is_out():
    of = plan(threads="1")
    liar = of.cells[-1]
    race, _ = run(of, lambda cell, block: 1.0, lambda cell, block: cell == liar, how=UNLIKELY)
    assert liar not in {way.cell for way in fastest.search_result(of, race).ways}
    assert race.without_number() == {UNLIKELY.reason: 1}


def test_what_another_session_began_of_a_pair_is_not_completed():
    of = plan(threads="2")
    _, records = run(of, lambda cell, block: 1.0 + of.cells.index(cell) / 100, begin=starts(of, 2))
    begun = of.launches - PAIRS - SPARE + 2
    before = [record for record in records if record.launch < begun]
    one = next(record for record in records if record.launch == begun)
    race = Race(starts(of, 2), of, [*before, one])
    assert not any(race.wants(cell, begun) for cell in of.cells)
    assert all(race.wants(cell, begun + 1) for cell in race.finalists())
    assert len(race.pairs()) == 2
    whole = Race(starts(of, 2), of, [record for record in records if record.launch <= begun])
    assert len(whole.pairs()) == 3


def test_what_is_doubtful_about_a_way_is_said():
    of = plan(threads="2")
    _, records = run(of, lambda cell, block: 1.0 + of.cells.index(cell) / 100, begin=starts(of, 2))
    greedy = [replace(record, outcome=record.outcome._replace(threads=make.threads(2, 3.0, 7.9))) for record in records]
    found = fastest.search_result(of, Race(starts(of, 2), of, greedy))
    assert "threads_exceeded" in {flag["name"] for flag in fastest.data(of, found, SUITE)["ways"][0]["flags"]}
    assert any(line.startswith("Mark on torch") for line in fastest.lines(of, found, SUITE))


def test_where_all_survivors_fail_nothing_is_left_although_the_start_never_had_a_number():
    of = plan(frameworks="tinygrad,torch", threads="1,2", tuning="installed,tuned")
    start = starts(of, 2)[0]
    second = next(block for block in range(of.launches) if sizes(len(of.cells))[block] < len(of.cells))
    race, _ = run(
        of,
        lambda cell, block: 1.0 + of.cells.index(cell) / 100,
        lambda cell, block: cell.framework == start.framework or block >= second,
        begin=starts(of, 2),
    )
    assert fastest.search_result(of, race) is None
    assert race.launches_left() == 0


def test_of_two_ways_the_one_that_does_not_fail_is_the_answer():
    of = plan(frameworks="tinygrad", threads="1,2", tuning="tuned")
    start, other = starts(of, 2)
    race, records = run(of, lambda cell, block: 1.0, lambda cell, block: cell == start, begin=(start, other))
    found = fastest.search_result(of, race)
    assert [way.cell for way in found.ways] == [other]
    assert "2 threads, what a user starts from, failed." in " ".join(fastest.lines(of, found, SUITE))
    assert len(records) == 1 + PAIRS
    assert race.launches_left() == 0


def test_where_the_start_fails_in_the_pairs_only_finalists_are_launched_after_it():
    of = plan(threads="1,2")
    first = of.launches - PAIRS - SPARE
    begin = starts(of, 2)
    race, records = run(
        of,
        lambda cell, block: 9.0 if cell == begin[0] else 1.0 + of.cells.index(cell) / 100,
        lambda cell, block: cell == begin[0] and block == first,
        begin=begin,
    )
    later = {record.cell for record in records if record.launch > first}
    assert later == set(race.finalists())
    assert begin[0] not in later
    assert fastest.search_result(of, race).gain is None


def test_where_the_usual_start_gives_no_number_the_nearest_that_does_is_to_be_beaten():
    of = plan(threads="1,2,4")
    first, second, *_ = starts(of, 4)
    race, _ = run(of, lambda cell, block: 1.0 + of.cells.index(cell) / 100, lambda cell, block: cell == first)
    found = fastest.search_result(of, race)
    assert (found.start, found.beaten) == (first, second)
    assert found.gain is not None or found.ways[0].cell == second
    told = fastest.lines(of, found, SUITE)[1]
    assert told.startswith("torch eager, installed, 4 threads, what a user starts from, failed; it is ")


def test_where_every_way_fails_there_is_no_answer_and_nothing_is_left():
    of = plan(threads="1")
    race, records = run(of, lambda cell, block: 1.0, lambda cell, block: True)
    assert fastest.search_result(of, race) is None
    assert len(records) == len(of.cells)
    assert race.launches_left() == 0
    assert race.without_number() == {"it computed something else": len(of.cells)}


def test_disturbed_pairs_are_left_out_and_others_take_their_place():
    of = plan(threads="2")
    first = of.launches - PAIRS - SPARE
    race, _ = run(
        of,
        lambda cell, block: 1.0 + of.cells.index(cell) / 100,
        disturbed=lambda cell, block: block in (first, first + 3) and cell == of.cells[0],
        begin=starts(of, 2),
    )
    found = fastest.search_result(of, race)
    assert of.cells[0] in {way.cell for way in found.ways}
    assert (found.ways[1].slower.pairs, found.disturbed) == (PAIRS, 2)
    assert "Left out: 2 pairs that other programs disturbed." in fastest.lines(of, found, SUITE)
    assert race.launches_left() == 0


def test_where_all_pairs_are_disturbed_there_is_no_answer_but_a_reason():
    of = plan(threads="2", tuning="installed,tuned")
    race, _ = run(of, lambda cell, block: 1.0, disturbed=lambda cell, block: True, begin=starts(of, 2))
    assert fastest.search_result(of, race) is None
    assert len(race.pairs(fit=False)) == PAIRS + SPARE
    assert race.launches_left() == 0


def test_a_budget_keeps_time_for_the_pairs_and_what_it_leaves_can_go_on():
    of = raced(narrow_to(PLAN, tuple(cell for cell in PLAN.cells if cell.network == "fcn5")))
    store, launcher = open_store(), Pretender()
    begun, ledger = begin(store, of), partial(Race, starts(of, 2))

    def search(budget):
        runner = runner_of(store, begun, launcher, of, budget)
        runner = Runner(store, runner.carrier, Watcher(), budget, lambda: launcher.time, ledger)
        return runner.run(), runner.ledger

    assert len(of.cells) == 12
    ending, race = search(20.0)
    assert race.tried() < len(of.cells)
    assert len(race.pairs()) >= 3
    assert launcher.time <= 20.0
    assert ending.launches_left > 0
    before = race.tried()
    ending, race = search(None)
    assert (len(race.pairs()), race.tried(), ending.launches_left) == (PAIRS, before, 0)


def test_a_pair_is_launched_whole_or_not_at_all():
    of = raced(narrow_to(PLAN, tuple(cell for cell in PLAN.cells if cell.network == "fcn5")[:2]))
    store, launcher = open_store(), Pretender(seconds=10.0)
    carrier = runner_of(store, begin(store, of), launcher, of).carrier
    runner = Runner(store, carrier, Watcher(), 55.0, lambda: launcher.time, partial(Race, starts(of, 2)))
    runner.run()
    assert len(launched(store)) == 4


def test_a_race_goes_on_from_its_records_alone():
    of = plan()
    begin = starts(of, 4)
    race, records = run(of, lambda cell, block: 1.0 + of.cells.index(cell))
    half = Race(begin, of, records[: len(records) // 2])
    whole = Race(begin, of, records)
    assert [whole.survivors(block) for block in range(of.launches)] == [
        race.survivors(block) for block in range(of.launches)
    ]
    assert half.launches_left() > 0
    assert whole.launches_left() == 0
    # What a short budget left untried stays untried once the faster ones went on.
    late = Race(begin, of, [record for record in records if record.cell != of.cells[-1]])
    assert not late.wants(of.cells[-1], 0)


def test_what_a_short_budget_left_untried_comes_first_while_no_pair_is_run():
    of = plan()
    begin = starts(of, 4)
    _, records = run(of, lambda cell, block: 1.0 + of.cells.index(cell))
    first = of.launches - PAIRS - SPARE
    few = [record for record in records if record.launch < first and record.cell != of.cells[-1]]
    race = Race(begin, of, few)
    assert [cell for cell in of.cells if race.wants(cell, 0)] == [of.cells[-1]]
    # It is the fastest, so it takes part in what follows.
    race.add(make.record([0.1] * 3, launch=0, **of.cells[-1]._asdict()))
    assert race.wants(of.cells[-1], 1)
    assert of.cells[-1] in race.survivors(first)


def test_the_first_block_begins_with_the_start_and_one_of_each_row_and_number_of_threads():
    of = plan()
    race = Race(starts(of, 4), of, [])
    ordered = race.in_order([each.cell for each in of.block(0)], 0, None)
    assert sorted(ordered) == sorted(of.cells)
    assert ordered[:2] == [starts(of, 4)[0], starts(of, 4)[0]._replace(tuning=TUNED)]
    groups = len({cell._replace(tuning=TUNED) for cell in of.cells})
    assert len({cell._replace(tuning=TUNED) for cell in ordered[1 : groups + 1]}) == groups
    assert {cell.tuning for cell in ordered[1 : groups + 1]} == {TUNED}


def test_a_way_on_a_gpu_and_a_variable_of_the_environment_are_said_too():
    of = plan(frameworks="mlx", threads="2")
    tuned = next(cell for cell in of.cells if cell.tuning == TUNED)
    variables, settings = fastest.how(of, tuned)
    assert settings["openblas"].endswith('(blas = "openblas")')
    assert "LD_PRELOAD" in variables
    options = fastest.Remeasuring("my_suite.toml", ["--adapter", "mlx=my folder"])
    words = fastest.command(of, tuned._replace(device="cuda:0", precision="bfloat16"), options)
    assert words.startswith("dlbench run my_suite.toml ")
    assert words.endswith("--adapter 'mlx=my folder'")
    assert "--device-threads 2" in words
    assert "--devices cuda:0" in words
    assert "--precisions bfloat16" in words


def test_too_few_pairs_give_no_interval():
    of = plan(threads="2")
    start = to_beat(of, 2)
    _, records = run(of, lambda cell, block: 2.0 if cell == start else 1.0 + of.cells.index(cell) / 100)
    few = [record for record in records if record.launch < of.launches - PAIRS - SPARE + 3]
    told = "\n".join(fastest.lines(of, fastest.search_result(of, Race(starts(of, 2), of, few)), SUITE))
    assert "times (3 pairs) as fast as" in told
    assert "7 pairs are needed for an interval" in told
    assert "confidence" not in told


def test_the_answer_says_how_to_run_it():
    of = plan(threads="2")
    start = to_beat(of, 2)
    race, _ = run(of, lambda cell, block: 2.0 if cell == start else 1.0 + of.cells.index(cell) / 100)
    found = fastest.search_result(of, race)
    told = "\n".join(fastest.lines(of, found, SUITE))
    assert f"Fastest of {len(of.cells)} ways: torch eager" in told
    assert f"{found.gain.ratio:.3f} times ({found.gain.low:.3f} to" in told
    assert "8 pairs) as fast as torch eager, installed, 2 threads." in told
    assert "OMP_NUM_THREADS=2" in told
    assert "With 95% confidence all these intervals are right at once." in told
    again = "dlbench run tuning --networks fcn5 --frameworks torch:eager --threads 2 --batch-sizes 64"
    assert f"{again} --tuning {found.ways[0].cell.tuning} --launches 8" in told
    data = fastest.data(of, found, SUITE)
    assert data["variables"]["OMP_NUM_THREADS"] == "2"
    assert data["gain"]["ratio"] == pytest.approx(found.gain.ratio)
    assert (data["tried"], data["planned"]) == (len(of.cells), len(of.cells))

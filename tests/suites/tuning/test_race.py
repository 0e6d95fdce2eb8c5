"""The race of cells: who drops out, how many launches it takes, and what its pairs say."""

import math
from itertools import pairwise
from random import Random

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import INSTALLED, TUNED, Outcome, Status
from dlbench.suites.planning.choices import Choices
from dlbench.suites.planning.expansion import expand
from dlbench.suites.planning.suite import load
from dlbench.suites.planning.values import Capacity
from dlbench.suites.tuning import fastest
from dlbench.suites.tuning.race import FINALISTS, PAIRS, Race, raced, sizes, to_beat


def plan(threads="1,2,4", frameworks="torch:*", tuning="installed,tuned,each"):
    choices = Choices(networks="fcn5", frameworks=frameworks, threads=threads, tuning=tuning)
    return raced(expand(load("tuning"), choices, Capacity(4, 4), 1))


def run(of, seconds, start, failing=()):
    """Carry out a race whose cells take these seconds in a block; return the race and its records."""
    race, records = Race(start, of, []), []
    for block in range(of.launches):
        for cell in [each.cell for each in of.block(block) if race.wants(each.cell, block)]:
            failed = Outcome(Status.PARITY_FAILED, "it computed something else")
            took = seconds(cell, block)
            record = make.record([took] * 3, launch=block, result=failed if cell in failing else None, **cell._asdict())
            records.append(record)
            race.add(record)
    return race, records


@given(st.integers(1, 500))
def test_each_block_has_half_the_cells_of_the_one_before_and_the_last_ones_pairs(cells):
    found = sizes(cells)
    assert found[0] == cells
    assert found[-PAIRS:] == [min(cells, FINALISTS)] * PAIRS
    halving = found[: -PAIRS + 1]
    assert all(after >= math.ceil(before / 2) for before, after in pairwise(halving))
    assert sum(found) <= 2 * cells + FINALISTS * (PAIRS + len(found))


@given(st.integers(0, 2**32))
def test_without_noise_the_fastest_wins_whatever_the_machine_does(seed):
    of, random = plan(), Random(seed)
    start = to_beat(of, 4)
    worth = {cell: random.uniform(0.5, 2.0) for cell in of.cells}
    paces = [random.uniform(0.3, 3.0) for _ in range(of.launches)]
    race, records = run(of, lambda cell, block: worth[cell] * paces[block], start)
    found = fastest.answer(of, race, records, start)
    best = min(worth, key=worth.__getitem__)
    assert found.ways[0].cell == best
    if best != start:
        assert found.gain.ratio == pytest.approx(worth[start] / worth[best], rel=1e-6)
        assert found.gain.pairs == PAIRS
    assert race.launches_left() == 0
    assert len(records) <= 2 * len(of.cells) + (FINALISTS + 1) * of.launches


def test_of_ways_that_are_the_same_none_is_called_faster_by_the_luck_of_the_race():
    of = plan(threads="1,2")
    start = to_beat(of, 2)
    random = np.random.default_rng(0)
    gains = []
    for _ in range(30):
        race, records = run(of, lambda cell, block: math.exp(0.1 * random.normal()), start)
        found = fastest.answer(of, race, records, start)
        if found.gain is not None:
            gains.append(found.gain.low > 1)
    # The faster of two finalists is picked by its pairs, which leaves a little luck.
    assert sum(gains) <= 0.2 * len(gains)


def test_what_a_user_starts_from_is_as_installed_in_the_default_mode_on_the_cores():
    start = to_beat(plan(), 4)
    assert (start.mode, start.tuning, start.threads) == ("eager", INSTALLED, 4)
    assert to_beat(plan(threads="1,2"), 4).threads == 2
    assert to_beat(plan(tuning="tuned-allocator,tuned"), 4).tuning != INSTALLED


def test_a_way_that_fails_parity_is_out_however_fast_it_is():
    of = plan(threads="1")
    start = to_beat(of, 1)
    liar = next(cell for cell in of.cells if cell != start)
    race, records = run(of, lambda cell, block: 0.001 if cell == liar else 1.0, start, failing=[liar])
    found = fastest.answer(of, race, records, start)
    assert liar not in {way.cell for way in found.ways}
    assert list(found.failed.values()) == ["it computed something else"]
    told = "\n".join(fastest.lines(of, found))
    assert "gave no number" in told


def test_where_every_way_fails_there_is_no_answer_and_nothing_is_left():
    of = plan(threads="1")
    start = to_beat(of, 1)
    race, records = run(of, lambda cell, block: 1.0, start, failing=of.cells)
    assert fastest.answer(of, race, records, start) is None
    assert len(records) == len(of.cells)


def test_a_race_goes_on_from_its_records_alone():
    of = plan()
    start = to_beat(of, 4)
    race, records = run(of, lambda cell, block: 1.0 + of.cells.index(cell), start)
    half = Race(start, of, records[: len(records) // 2])
    whole = Race(start, of, records)
    assert [whole.survivors(block) for block in range(of.launches)] == [
        race.survivors(block) for block in range(of.launches)
    ]
    assert half.launches_left() > 0
    assert whole.launches_left() == 0


def test_a_way_on_a_gpu_and_a_variable_of_the_environment_are_said_too():
    of = plan(frameworks="mlx", threads="2")
    tuned = next(cell for cell in of.cells if cell.tuning == TUNED)
    assert fastest.how(of, tuned)[1]["openblas"].endswith('(blas = "openblas")')
    words = fastest.command(of, tuned._replace(device="cuda:0", precision="bfloat16"))
    assert "--device-threads 2" in words
    assert "--devices cuda:0" in words
    assert "--precisions bfloat16" in words


def test_too_few_pairs_give_no_interval():
    of = plan(threads="2")
    start = to_beat(of, 2)
    _, records = run(of, lambda cell, block: 2.0 if cell == start else 1.0 + of.cells.index(cell) / 100, start)
    few = [record for record in records if record.launch < of.launches - PAIRS + 3]
    told = "\n".join(fastest.lines(of, fastest.answer(of, Race(start, of, few), few, start)))
    assert "times (3 pairs) as fast as" in told
    assert "6 pairs are needed for an interval" in told


def test_the_answer_says_how_to_run_it():
    of = plan(threads="2")
    start = to_beat(of, 2)
    race, records = run(of, lambda cell, block: 2.0 if cell == start else 1.0 + of.cells.index(cell) / 100, start)
    found = fastest.answer(of, race, records, start)
    told = "\n".join(fastest.lines(of, found))
    assert f"Fastest of {len(of.cells)} ways: torch eager" in told
    assert f"{found.gain.ratio:.3f} times ({found.gain.low:.3f} to" in told
    assert "8 pairs) as fast as torch eager, installed, 2 threads." in told
    assert "OMP_NUM_THREADS=2" in told
    again = "dlbench run tuning --networks fcn5 --frameworks torch:eager --threads 2 --batch-sizes 64"
    assert f"{again} --tuning {found.ways[0].cell.tuning} --launches 8" in told
    data = fastest.data(of, found)
    assert data["variables"]["OMP_NUM_THREADS"] == "2"
    assert data["gain"]["ratio"] == pytest.approx(found.gain.ratio)
    assert data["tried"] == len(of.cells)

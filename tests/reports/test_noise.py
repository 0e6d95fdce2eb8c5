"""What the differences between launches consist of: each cause is found where it was put, and no
other."""

import math
from dataclasses import replace

import factory_of_records as make
import numpy as np
import pytest

from dlbench.adapters.protocol import SampleCounts
from dlbench.reports.noise import CAUSES, FAULTS, MACHINE, REST, WAITING, noise, sentences
from dlbench.reports.results.hosts import Host

HOSTS = {make.MACHINE: Host(make.MACHINE, "machine", 2, 2, 2.0)}
COST = 2e-6


def record_of(seconds, launch=0, faults=0, waited=0.0, group="", **of_cell):
    """Return a launch of ten such steps, in which its threads waited for a CPU for so long."""
    record = make.record([seconds] * 10, launch=launch, **of_cell)
    counts = SampleCounts([faults] * 10, [0] * 10, [0] * 10)
    outcome = record.outcome._replace(
        sample_counts=counts,
        fault_seconds=COST,
        contention=make.contention(run_queue_seconds=waited),
    )
    return replace(record, outcome=outcome, group=group)


def only(records):
    (cell_noise,) = noise(records, HOSTS)
    assert sum(cell_noise.parts.values()) == pytest.approx(1)
    return cell_noise


def test_faults_explain_what_they_cost():
    faults = [3300, 9250, 5000, 8000]
    cell = only(
        [record_of(0.045 + count * COST, launch, count) for launch, count in enumerate(faults)]
    )
    assert cell.parts[FAULTS] > 0.99
    assert (cell.fewest_faults, cell.most_faults) == (3300, 9250)
    (sentence,) = sentences([cell])
    assert (
        "100% of the variation between launches is page faults, 3,300 to 9,250 a step" in sentence
    )
    assert "With keep_heap (--tuning) a step may take 22% less" in sentence


def test_faults_that_are_always_as_many_explain_nothing():
    cell = only(
        [record_of(seconds, launch, 9000) for launch, seconds in enumerate((0.05, 0.06, 0.055))]
    )
    assert cell.parts[FAULTS] < 0.3
    assert cell.parts[REST] > 0.7


def test_waiting_explains_what_was_waited():
    disturbed = only(
        [
            record_of(0.05 / (1 - share), launch, waited=10 * 0.05 / (1 - share) * share)
            for launch, share in enumerate((0.0, 0.2, 0.1))
        ]
    )
    assert disturbed.parts[WAITING] > 0.99
    assert "other programs ran meanwhile" in sentences([disturbed])[0]
    crowded = only(
        [
            record_of(0.05 / (1 - share), launch, waited=4 * 0.5 / (1 - share) * share, threads=4)
            for launch, share in enumerate((0.0, 0.2, 0.1))
        ]
    )
    assert "more threads than CPUs wait for one another" in sentences([crowded])[0]


@pytest.mark.parametrize("group", ["", "in groups"])
def test_the_machine_explains_what_all_cells_of_a_block_share(group):
    levels = [1.0, 1.3, 0.9, 1.2, 1.0, 1.4]
    records = []
    for launch, level in enumerate(levels):
        group_of_launch = f"{group}{launch}" if group else ""
        for threads in range(1, 9):
            seconds = 0.02 * threads * level
            records.append(record_of(seconds, launch, group=group_of_launch, threads=threads))
    noises = noise(records, HOSTS)
    assert len(noises) == 8
    assert all(cell_noise.parts[MACHINE] > 0.9 for cell_noise in noises)
    (sentence,) = sentences(noises)
    assert sentence.startswith("In 8 cells much of the variation between launches")


def test_independent_deviations_are_mostly_the_rest():
    chance = np.random.default_rng(2)
    records = [
        record_of(0.02 * math.exp(chance.normal(0, 0.05)), launch, threads=cell)
        for launch in range(6)
        for cell in range(1, 9)
    ]
    noises = noise(records, HOSTS)
    assert np.mean([cell_noise.parts[REST] for cell_noise in noises]) > 0.75
    assert set(noises[0].parts) == set(CAUSES)


def test_two_launches_show_nothing_and_equal_ones_need_no_words():
    assert noise([record_of(0.05, 0), record_of(0.06, 1)], HOSTS) == []
    equal = only([record_of(0.05, launch) for launch in range(3)])
    assert equal.deviation == 0
    assert sentences([equal]) == []

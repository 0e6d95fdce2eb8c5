"""Launches that take turns: one runs at a time, the others stand still, and no process is left
whatever ends them."""

import itertools
import mmap
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import factory_of_records as make
import numpy as np
import psutil
import pytest
import recorded_trees
from hypothesis import given
from hypothesis import strategies as st
from made_up_pythons import script
from pretended_runs import ended_as
from processes import plan_of, wait_until
from properties import examples
from recorded_trees import write_tree

from dlbench.adapters.protocol import Answer, Protocol, SampleCounts, Status
from dlbench.hardware_probe import probe, probe_cpu
from dlbench.reports.results.comparison import seconds_of_pair
from dlbench.reports.results.disturbance import disturbances, disturbed_turns, growing_turns
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.outcome import HostObservation, TurnObservation
from dlbench.reports.results.record import BASELINE, CANDIDATE, Run
from dlbench.reports.results.rounds import (
    middle,
    seconds_by_round,
    seconds_in_turns,
    variance_of_middle,
)
from dlbench.suites.environments.environment import BuildSource
from dlbench.suites.errors import UsageError
from dlbench.suites.planning.plan import PlannedLaunch
from dlbench.suites.run import standstill, taking_turns, turns
from dlbench.suites.run.groups import grouping_for_pairs
from dlbench.suites.run.judge import implausible
from dlbench.suites.run.launch import LaunchRunner, run_attempts
from dlbench.suites.run.launcher import launch_process
from dlbench.suites.run.schedules import PairSchedule
from dlbench.suites.run.sides import Side
from dlbench.suites.run.taking_turns import TurnTaking, without_growth, without_pauses
from dlbench.suites.run.turns import Member, Rounds, Turns, TurnShape

MACHINE = probe()
QUIET = TurnObservation(0.1, 0.1, 0.0)
DISTURBED = TurnObservation(0.1, 0.05, 0.05)
GROWING = QUIET._replace(grown_pages=40_000)


# Who may run.


def play(
    members,
    rounds,
    seed=1,
    observed=lambda member, turn: QUIET,
    lasts=None,
    rounds_of_turns=None,
    **options,
):
    """Let members take turns in threads; return who ran, in order, and how many turns each had.

    ``rounds_of_turns`` gets the round of each turn, by member.
    """
    table = Turns(members, seed, rounds, **options)
    running, ran, counts = threading.Lock(), [], Counter()

    def member(number):
        last = None
        try:
            assert table.wait_to_start(number)
            while table.next_turn(number, last):
                assert running.acquire(blocking=False), "two run at once"
                if rounds_of_turns is not None:
                    rounds_of_turns.setdefault(number, []).append(table.round)
                ran.append(number)
                counts[number] += 1
                last = observed(number, counts[number])
                running.release()
                if lasts is not None and counts[number] == lasts.get(number):
                    return
        finally:
            table.leave(number)

    threads = [threading.Thread(target=member, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return ran, counts


@pytest.mark.parametrize("members", [1, 2, 5])
def test_each_round_has_one_turn_of_each_in_an_order_that_varies(members):
    ran, counts = play(members, Rounds(fewest=12, seconds=0.0, most=40))
    assert set(counts.values()) == {12}
    orders = [tuple(ran[start : start + members]) for start in range(0, len(ran), members)]
    assert all(sorted(order) == list(range(members)) for order in orders)
    assert members == 1 or len(set(orders)) > 1
    again, _ = play(members, Rounds(fewest=12, seconds=0.0, most=40))
    assert ran == again
    with_other_seed, _ = play(members, Rounds(fewest=12, seconds=0.0, most=40), seed=2)
    assert members == 1 or ran != with_other_seed


def test_rounds_go_on_until_launches_have_their_seconds_or_are_known_well_enough():
    chance = np.random.default_rng(1)

    def noisy(deviation):
        return lambda member, turn: TurnObservation(
            0.1 * float(np.exp(chance.normal(0, deviation))), 0.1, 0.0
        )

    rounds = Rounds(fewest=6, seconds=2.0, deviation=0.005, most=100)
    assert play(2, rounds)[1] == {0: 6, 1: 6}
    _, noisy_counts = play(2, rounds, observed=noisy(0.2))
    assert 15 <= noisy_counts[0] <= 25  # 2 s of turns of 0.1 s
    _, counts = play(2, rounds, observed=noisy(0.01))
    assert 6 <= counts[0] < noisy_counts[0]


@pytest.mark.parametrize("count", [3, 6, 10, 11, 40])
def test_the_variance_of_the_middle_of_normal_rounds(count):
    logs = np.random.default_rng(2).normal(0, 1, (4000, count))
    assert np.var([middle(of_launch) for of_launch in logs]) == pytest.approx(
        variance_of_middle(count), rel=0.12
    )


def test_the_standard_error_is_that_of_a_median_over_rounds():
    chance = np.random.default_rng(1)
    errors, medians = [], []
    for _ in range(400):
        drift, logs = chance.normal(0, 0.3, (11, 1)), chance.normal(0, 0.02, (11, 4))
        rounds = [dict(enumerate(of_round)) for of_round in logs + drift]
        errors.append(turns.standard_error(rounds))
        medians.append(np.median(logs[:, 0]))
    assert np.mean(errors) == pytest.approx(np.std(medians), rel=0.1)
    assert turns.standard_error([]) == turns.standard_error([{0: 1.0}, {0: 1.0}]) == np.inf


PAIRS = Rounds(fewest=3, seconds=0.0, most=40, in_pairs=True)


def rounds_by_member(ran_in):
    """Return the members of each round, given the rounds of each member's turns."""
    members = {}
    for member, numbers in ran_in.items():
        for number in numbers:
            members.setdefault(number, set()).add(member)
    return [members[number] for number in sorted(members)]


def test_of_several_alike_launches_each_alternates_with_the_same_one():
    ran_in = {}
    _, counts = play(5, PAIRS, needed=1, rounds_of_turns=ran_in)
    rounds = rounds_by_member(ran_in)
    assert {len(of_round) for of_round in rounds} == {2}
    (anchor,) = set.intersection(*rounds)
    assert counts == {member: 12 if member == anchor else 3 for member in range(5)}
    # All meet it once before one meets it again.
    for first in range(0, len(rounds), 4):
        assert set.union(*rounds[first : first + 4]) == set(range(5))


def test_where_the_anchor_leaves_another_one_takes_its_place():
    ran_in = {}
    play(4, PAIRS, needed=1, rounds_of_turns=ran_in)
    (anchor,) = set.intersection(*rounds_by_member(ran_in))
    ran_in = {}
    _, counts = play(4, PAIRS, needed=1, lasts={anchor: 4}, rounds_of_turns=ran_in)
    rounds = rounds_by_member(ran_in)
    (next_anchor,) = set.intersection(*rounds[4:])
    assert next_anchor != anchor
    assert set.union(*rounds[4:]) == set(range(4)) - {anchor}
    assert min(counts.values()) >= 3


@examples(40)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=4, max_size=6), st.integers(3, 6), st.integers(0, 2**32)
)
def test_alike_launches_are_compared_through_the_one_that_all_met(ratios, cycles, seed):
    """Each round has a drift of its own, so that only the ratio of its two turns says something."""
    chance = np.random.default_rng(seed)
    turns_of = {member: [] for member in range(len(ratios))}
    rounds = [member for _ in range(cycles) for member in range(1, len(ratios))]
    for number, member in enumerate(rounds):
        level = 0.02 * float(np.exp(chance.normal(0, 0.3)))
        for turn_of in (0, member):
            turns_of[turn_of].append((level * ratios[turn_of], number))
    outcomes = []
    for turns_of_member in turns_of.values():
        outcome = in_turns([[seconds] for seconds, _ in turns_of_member])
        observed = [QUIET._replace(round=number) for _, number in turns_of_member]
        outcomes.append(outcome._replace(outside=outcome.outside._replace(turns=observed)))
    seconds = seconds_in_turns(outcomes)
    relative = [duration / seconds[0] for duration in seconds]
    assert relative == pytest.approx([ratio / ratios[0] for ratio in ratios], rel=1e-4)


def test_the_standard_error_of_pairs_is_that_of_a_median_distance_from_the_anchor():
    chance = np.random.default_rng(1)
    errors, medians = [], []
    for _ in range(400):
        drift, logs = chance.normal(0, 0.3, 33), chance.normal(0, 0.02, (33, 2))
        rounds = [
            {0: drift[number] + logs[number, 0], 1 + number % 3: drift[number] + logs[number, 1]}
            for number in range(33)
        ]
        errors.append(turns.standard_error_of_pairs(rounds, 0))
        medians.append(np.median([logs[number, 1] - logs[number, 0] for number in range(0, 33, 3)]))
    assert np.mean(errors) == pytest.approx(np.std(medians) / np.sqrt(2), rel=0.1)
    assert turns.standard_error_of_pairs([{0: 1.0, 1: 1.0}], 0) == np.inf


def test_a_disturbed_turn_is_taken_again_in_its_round():
    def observed(member, turn):
        return DISTURBED if member == 1 and turn % 4 == 0 else QUIET

    rounds = {}
    _, counts = play(
        3, Rounds(fewest=12, seconds=0.0, most=40), observed=observed, rounds_of_turns=rounds
    )
    assert rounds[0] == rounds[2] == list(range(12))
    assert sorted(set(rounds[1])) == list(range(12))
    assert counts[1] == 15  # 3 of them were disturbed, and taken again in the same rounds
    assert rounds[1] == sorted(rounds[1])


def test_a_turn_in_which_memory_grew_is_taken_again_even_where_waiting_says_nothing():
    table = Turns(1, 1, Rounds(fewest=4, seconds=0.0, most=40))
    last, rounds = None, []
    while table.next_turn(0, last, judged=False):
        rounds.append(table.round)
        last = GROWING if len(rounds) == 2 else QUIET
    assert rounds == [0, 1, 1, 2, 3]


def test_turns_that_are_often_disturbed_are_not_taken_again_for_ever():
    def observed(member, turn):
        return QUIET if turn % 5 < 3 else DISTURBED

    ran, counts = play(2, Rounds(fewest=4, seconds=0.0, most=40), observed=observed)
    assert 4 <= min(counts.values()) <= max(counts.values()) <= 36
    assert len(ran) == sum(counts.values())


def test_waiting_in_every_turn_is_a_launch_s_own():
    _, counts = play(2, Rounds(fewest=4, seconds=0.0, most=40), observed=lambda *_: DISTURBED)
    assert counts == {0: 4, 1: 4}


def test_waiting_says_nothing_of_a_launch_with_more_threads_than_cpus():
    table = Turns(1, 1, Rounds(fewest=4, seconds=0.0, most=40))
    last, turns_made = None, 0
    while table.next_turn(0, last, judged=False):
        last, turns_made = DISTURBED, turns_made + 1
    assert turns_made == 4


def test_when_one_side_of_a_pair_leaves_the_other_ends():
    _, counts = play(2, Rounds(fewest=12, seconds=0.0, most=40), lasts={1: 4})
    assert counts[1] == 4
    assert counts[0] <= 5


def test_when_one_of_several_cells_leaves_the_others_go_on():
    _, counts = play(3, Rounds(fewest=12, seconds=0.0, most=40), lasts={1: 4}, needed=1)
    assert counts == {0: 12, 1: 4, 2: 12}


def test_as_many_launches_start_beside_one_another_as_there_are_cpus():
    table = Turns(5, 1, Rounds(), needed=1, cpus=2)
    guard, starting, most, order = threading.Lock(), 0, 0, []

    def start(number):
        nonlocal starting, most
        assert table.wait_to_start(number)
        with guard:
            starting += 1
            most = max(most, starting)
            order.append(number)
        time.sleep(0.02)
        with guard:
            starting -= 1
        if number == 3:
            table.leave(number)  # it crashed while it started
        else:
            table.next_turn(number, None)

    threads = [threading.Thread(target=start, args=(number,), daemon=True) for number in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: table.round == 0, "begin the first round")
    table.abort()
    for thread in threads:
        thread.join(10)
    assert most == 2
    assert sorted(order) == list(range(5)) != order  # drawn


def test_nobody_starts_once_it_is_aborted():
    table = Turns(2, 1, cpus=1)
    table.abort()
    assert not any(table.wait_to_start(number) for number in range(2))


def test_nobody_waits_once_it_is_aborted():
    table = Turns(2, 1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(table.next_turn(0, None)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()  # the other is still starting up
    table.abort()
    thread.join(10)
    assert answers == [False]


def test_a_turn_is_cut_into_slices_between_which_the_others_run():
    table = Turns(2, 1, Rounds(fewest=4, seconds=0.0, most=40))
    slices, running = [], threading.Lock()

    def member(number):
        last = None
        while table.next_turn(number, last):
            for place in range(4):
                assert running.acquire(blocking=False), "two run at once"
                slices.append((table.round, number))
                running.release()
                if place < 3 and table.others_are_left():
                    table.pause(number)
            last = QUIET
        table.leave(number)

    threads = [threading.Thread(target=member, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    for number in range(4):
        of_round = [who for when, who in slices if when == number]
        assert of_round in ([0, 1] * 4, [1, 0] * 4)


def test_a_side_that_ends_in_its_slice_lets_the_other_finish_its_turn():
    table = Turns(2, 1, Rounds(fewest=4, seconds=0.0, most=40))
    paused, finished = [], []

    def member(number):
        # The first one stops in the middle of its turn, and the other one crashes in its own.
        if table.next_turn(number, None) and not paused:
            paused.append(number)
            table.pause(number)
            finished.append(table.next_turn(number, QUIET))
        table.leave(number)

    threads = [threading.Thread(target=member, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert finished == [False]


@pytest.mark.parametrize(("warm_up", "real", "later"), [(0.575, 0.004, 24), (0.006, 0.004, 16)])
def test_a_warm_up_that_others_slowed_decides_about_the_first_turn_alone(warm_up, real, later):
    table = Turns(2, 1, Rounds(turn_seconds=0.1, fewest=3, most=3, seconds=60.0))
    samples_by_member = {0: [], 1: []}

    def launch(member):
        table.takes(member, warm_up)
        last, samples = None, 0
        while table.next_turn(member, last, samples):
            samples = table.shape(member).samples
            samples_by_member[member].append(samples)
            seconds = real * samples
            last = TurnObservation(seconds, seconds, 0.0, table.round)
        table.leave(member)

    threads = [threading.Thread(target=launch, args=(member,), daemon=True) for member in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    first = 1 if warm_up > 0.1 else later
    assert list(samples_by_member.values()) == [[first, later, later]] * 2


def test_turns_of_one_cell_have_as_many_samples_though_a_warm_up_was_slowed():
    table = Turns(2, 1, Rounds(turn_seconds=0.025, slice_seconds=0.025))
    table.takes(0, 0.005)
    table.takes(1, 0.0099)
    # By the slower one: a side that seems to do nothing must not give the other one turns of a
    # minute.
    assert (
        table.shape(0) == table.shape(1) == TurnShape(samples=2, lead_in=True, slice_seconds=np.inf)
    )


@pytest.mark.parametrize(
    ("seconds", "shape"),
    [
        (0.0, TurnShape(1000, True, np.inf)),
        (0.02, TurnShape(1, True, np.inf)),
        (0.03, TurnShape(1, False, np.inf)),
        (0.3, TurnShape(1, False, 0.025)),
    ],
)
def test_long_samples_are_cut_and_short_ones_come_after_one_that_does_not_count(seconds, shape):
    table = Turns(1, 1, Rounds(turn_seconds=0.025, slice_seconds=0.025))
    table.takes(0, seconds)
    assert table.shape(0) == shape


def test_turns_under_a_quota_are_whole_and_begin_with_a_sample_that_does_not_count():
    """A pause ends with the quota of a whole period, and a slice within one would never run out of
    it."""
    limited = make.record(threads=2).cell._replace(cpu_quota=1.0)
    protocol = Protocol(seconds=1.0, minimum_steps=2)
    table = Turns(2, 1, turns.rounds_of(protocol, alike=True, quota=True), cells=[limited, limited])
    table.takes(0, 0.6)
    table.takes(1, 0.7)
    assert (
        table.shape(0) == table.shape(1) == TurnShape(samples=1, lead_in=True, slice_seconds=np.inf)
    )


@pytest.mark.parametrize(
    ("threads", "device", "alike", "cpu_each", "sliced"),
    [
        ([2, 2], "cpu", False, True, True),
        ([1, 2], "cpu", False, True, False),
        ([4, 4], "cpu", False, False, False),
        ([4, 4], "cpu", True, False, True),
        ([2, 2], "cuda:0", True, True, False),
    ],
)
def test_turns_are_sliced_where_that_costs_a_launch_no_time_of_its_own(
    threads, device, alike, cpu_each, sliced
):
    cells = [make.record(threads=count, device=device).cell for count in threads]
    assert turns.may_be_sliced(cells, alike, cpu_each) is sliced


@pytest.mark.parametrize("alike", [True, False])
def test_turns_that_may_not_be_sliced_are_whole(alike):
    protocol = Protocol(seconds=1.0, minimum_steps=2)
    slices = set()
    for sliced in (False, True):
        table = Turns(1, 1, turns.rounds_of(protocol, alike, sliced=sliced))
        table.takes(0, 0.6)
        slices.add((sliced, table.shape(0).slice_seconds))
    assert slices == {(True, 0.025 if alike else 0.05), (False, np.inf)}


@pytest.mark.parametrize(
    ("longest", "rounds"), [(0.02, 3), (0.9, 3), (1.2, 3), (1.6, 2), (20.0, 1)]
)
def test_of_long_turns_fewer_rounds_fill_a_launchs_seconds(longest, rounds):
    table = Turns(
        2,
        1,
        Rounds(fewest=3, seconds=3.0),
        needed=1,
        cells=[make.record(threads=count).cell for count in (1, 2)],
    )
    table.takes(0, 0.02)
    table.takes(1, longest)
    assert table.fewest_rounds() == rounds
    needed = Turns(2, 1, Rounds(fewest=5, least=5, seconds=3.0))
    needed.takes(0, 20.0)
    assert needed.fewest_rounds() == 5


@pytest.mark.parametrize(
    ("longest", "samples"), [(0.05, [8, 2, 8]), (0.3, [26, 1, 26]), (20.0, [272, 1, 272])]
)
def test_launches_of_a_round_have_as_much_time(longest, samples):
    first_cell, second_cell = (make.record(threads=count).cell for count in (1, 2))
    table = Turns(
        3,
        1,
        Rounds(turn_seconds=0.1, slice_seconds=0.02),
        needed=1,
        cells=[first_cell, second_cell, first_cell],
    )
    for number, seconds in enumerate((0.011, longest, 0.01)):
        table.takes(number, seconds)
    shapes = [table.shape(number) for number in range(3)]
    assert [shape.samples for shape in shapes] == samples
    # Turns that last longer than usual are cut.
    assert {shape.slice_seconds for shape in shapes} == {0.02 if longest > 0.1 else np.inf}


@examples(60)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=5),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300)), max_size=8),
)
def test_what_a_launch_stood_still_for_is_no_part_of_its_samples(turns_made, lead_in, gaps):
    """Calls of 100 ns of its own each, 10 ns apart; the clock goes on in its pauses."""
    calls = sum(turns_made) + len(turns_made) * lead_in
    pauses, own_clock = [], 0
    moment = 1000
    for after, length in gaps:
        own_clock += after
        moment += after
        pauses.append((moment, moment + length))
        moment += length

    def by_the_clock(own):
        """Return the time at which the launch had run for so long; a pause at that very time comes
        after it."""
        clock, stood_still = 1000 + own, 0
        for stopped, resumed in pauses:
            if stopped < clock + stood_still:
                stood_still += resumed - stopped
        return clock + stood_still

    begins = [by_the_clock(110 * call) for call in range(calls)]
    raw = [by_the_clock(110 * call + 100) - begin for call, begin in enumerate(begins)]
    samples, lead_ins, place = [], [], 0
    for count in turns_made:
        if lead_in:
            lead_ins.append(raw[place])
            place += 1
        samples += raw[place : place + count]
        place += count
    answer = Answer(
        Status.OK, turns=turns_made, samples_ns=samples, warmup_ns=[7, *lead_ins], starts_ns=begins
    )
    shortened, paused_ns = without_pauses(answer, pauses)
    # A pause that begins in the instant in which a call does is counted with it, or before.
    assert shortened.samples_ns == [100] * len(samples)
    assert shortened.warmup_ns == [7, *[100] * len(lead_ins)]
    paused = paused_ns or [0] * len(samples)
    assert [own + stood for own, stood in zip(shortened.samples_ns, paused, strict=True)] == samples


# Standing still.

SPINNING = """
import os, subprocess, sys, threading
if len(sys.argv) > 1:
    os.setsid()
else:
    subprocess.Popen([sys.executable, __file__, "helper"])
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
spin()
"""


def test_all_threads_of_all_descendants_stand_still_and_run_again(tmp_path):
    path = tmp_path / "spinning.py"
    path.write_text(SPINNING)
    starting = f"import subprocess, sys; subprocess.run([sys.executable, {str(path)!r}])"
    root = subprocess.Popen([sys.executable, "-c", starting])
    try:
        processes = wait_until(
            lambda: len(descendants := standstill.descendants(root.pid)) == 2 and descendants,
            "the helper",
        )
        wait_until(lambda: standstill.cpu_time(processes).used > 0.2, "work")
        assert standstill.stop(processes)
        before = standstill.cpu_time(processes)
        time.sleep(0.3)
        assert standstill.cpu_time(processes) == before
        standstill.let_run(processes)
        wait_until(lambda: standstill.cpu_time(processes).used > before.used + 0.1, "work again")
    finally:
        for process in reversed(psutil.Process(root.pid).children(recursive=True)):
            process.kill()
        root.wait()


MANY_THREADS = """
import threading
def spin():
    while True:
        pass
for _ in range(15):
    threading.Thread(target=spin, daemon=True).start()
spin()
"""


def test_no_signal_is_left_to_stop_a_process_again_that_was_let_run():
    process = subprocess.Popen([sys.executable, "-c", MANY_THREADS])
    pids = [process.pid]
    try:
        wait_until(lambda: len(standstill.cpu_time(pids).by_thread) == 16, "its threads")
        for _ in range(10):
            assert standstill.stop(pids)
            before = standstill.cpu_time(pids).used
            standstill.let_run(pids)
            wait_until(lambda used=before: standstill.cpu_time(pids).used > used + 0.02, "work")
    finally:
        process.kill()
        process.wait()


def test_the_peak_of_memory_stays_when_memory_is_freed(tmp_path):
    grow = "import sys; held = b'x' * 50_000_000; del held; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", grow], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert standstill.peak_pages([process.pid]) * mmap.PAGESIZE > 50_000_000
        process.stdin.close()
    assert standstill.peak_pages([process.pid]) == 0


def test_a_process_that_has_ended_stands_still():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert standstill.stop([ended.pid])
    standstill.let_run([ended.pid])
    assert standstill.cpu_time([ended.pid]) == (0.0, 0.0, {})
    assert standstill.descendants(ended.pid) == []


# The ratio of a pair.


def in_turns(steps_of_turns, observed=QUIET, steps_per_sample=1):
    """Return an outcome with these seconds of steps in each turn."""
    samples = [step * steps_per_sample for turn in steps_of_turns for step in turn]
    observation = HostObservation(
        sum(samples), sum(samples), turns=[observed] * len(steps_of_turns)
    )
    counts = [len(turn) for turn in steps_of_turns]
    return make.outcome(
        samples, turns=counts, outside=observation, steps_per_sample=steps_per_sample
    )


@examples(50)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=8, max_size=20), st.floats(0.8, 1.3), st.integers(1, 50)
)
def test_a_drift_of_the_machine_leaves_the_ratio_alone(drift, ratio, steps_per_sample):
    step_seconds = 0.02 / steps_per_sample
    first = in_turns(
        [[step_seconds * level] * 2 for level in drift], steps_per_sample=steps_per_sample
    )
    slower = [[ratio * step_seconds * level] * 2 for level in drift]
    second = in_turns(slower, steps_per_sample=steps_per_sample)
    first_seconds, second_seconds = seconds_in_turns([first, second])
    assert second_seconds / first_seconds == pytest.approx(ratio, rel=1e-6)
    level = float(np.exp(np.median(np.log(drift)))) * step_seconds
    assert first_seconds * second_seconds == pytest.approx(level**2 * ratio, rel=1e-6)


def test_of_few_rounds_the_ratio_varies_less_than_their_median():
    chance = np.random.default_rng(4)
    ratios, medians = [], []
    for _ in range(400):
        steps = np.exp(chance.normal(0, 0.05, (5, 2)))
        first, second = seconds_in_turns(
            [in_turns([[step] for step in of_launch]) for of_launch in steps.T]
        )
        ratios.append(np.log(second / first))
        medians.append(np.median(np.log(steps[:, 1] / steps[:, 0])))
    assert np.std(ratios) < 0.92 * np.std(medians)


@examples(50)
@given(st.integers(4, 40), st.integers(0, 39), st.floats(0.01, 100.0))
def test_one_strange_round_hardly_changes_a_ratio(rounds, place, factor):
    first = in_turns([[0.02]] * rounds)
    second = in_turns(
        [[0.03 * (factor if number == place % rounds else 1.0)] for number in range(rounds)]
    )
    first_seconds, second_seconds = seconds_in_turns([first, second])
    assert second_seconds / first_seconds == pytest.approx(1.5)


def test_turns_that_were_cut_are_compared_by_round():
    """Their slices alternated, so that what slowed a round slowed all of its turns."""
    drift = (1.0, 1.0, 1.6, 1.6, 1.6, 1.0)
    cut = QUIET._replace(slices=8)
    first = in_turns([[0.4 * level] for level in drift], cut)
    second = in_turns(
        [[0.42 * level] for level in drift[:-1]] + [[0.40]], cut
    )  # the last one was spared
    first_seconds, second_seconds = seconds_in_turns([first, second])
    assert second_seconds / first_seconds == pytest.approx(1.05)


def test_the_last_turn_of_a_round_counts_and_a_disturbed_one_does_not():
    outcome = in_turns([[0.02], [0.5], [0.021], [0.022]])
    observations = [
        QUIET._replace(round=0),
        DISTURBED._replace(round=1),
        QUIET._replace(round=1),
        QUIET._replace(round=2),
    ]
    outcome = outcome._replace(outside=outcome.outside._replace(turns=observations))
    assert seconds_by_round(outcome) == pytest.approx({0: 0.02, 1: 0.021, 2: 0.022})


def test_turns_in_which_memory_grew_are_warm_up_unless_most_are_such():
    few = QUIET._replace(grown_pages=900)  # less than 1 % of the turn's time
    assert growing_turns([few, GROWING, QUIET]) == [False, True, False]
    assert (
        growing_turns([GROWING, GROWING, QUIET])
        == growing_turns([GROWING]) + [False] * 2
        == [False] * 3
    )
    assert growing_turns([]) == []


def test_samples_of_turns_in_which_memory_grew_are_kept_as_warm_up():
    counts = SampleCounts([1, 2, 40_000, 3, 4], [0] * 5, [9, 8, 7, 6, 5])
    observations = [
        QUIET._replace(round=0),
        GROWING._replace(round=1),
        QUIET._replace(round=1),
        QUIET._replace(round=2),
    ]
    answer = Answer(
        Status.OK,
        warmup_ns=[5],
        samples_ns=[80_000_000, 80_000_000, 1_800_000_000, 80_000_000, 120_000_000],
        steps_per_sample=2,
        turns=[2, 1, 1, 1],
        sample_counts=counts,
        calls_ns=list(range(10)),
    )
    outside = HostObservation(2.2, 2.2, turns=observations)
    steady, steady_outside, paused_ns = without_growth(answer, outside, [1, 2, 3, 4, 5])
    assert steady.calls_ns == [0, 1, 2, 3, 6, 7, 8, 9]
    assert steady.samples_ns == [80_000_000] * 3 + [120_000_000]
    assert steady.warmup_ns == [5, 900_000_000]
    assert (steady.turns, paused_ns) == ([2, 1, 1], [1, 2, 4, 5])
    assert steady.sample_counts == SampleCounts([1, 2, 3, 4], [0] * 4, [9, 8, 6, 5])
    assert [turn.round for turn in steady_outside.turns] == [0, 1, 2]
    assert (steady.timed_steps(), steady.observed_steps()) == (8, 10)
    again = without_growth(steady, steady_outside, paused_ns)
    assert again == (steady, steady_outside, paused_ns)


def test_a_launch_that_left_early_is_compared_over_the_rounds_that_it_had():
    steady = in_turns([[0.02 * level] for level in (1, 1, 2, 2, 2, 2)])
    slower = in_turns([[0.03 * level] for level in (1, 1, 2, 2, 2, 2)])
    ended_early = in_turns([[0.04 * level] for level in (1, 1, 2)])
    steady_seconds, slower_seconds, ended_early_seconds = seconds_in_turns(
        [steady, slower, ended_early]
    )
    assert (slower_seconds / steady_seconds, ended_early_seconds / steady_seconds) == pytest.approx(
        (1.5, 2.0)
    )


def test_disturbed_rounds_are_left_out_as_long_as_others_are_left():
    quiet_turn, slow_turn = [0.002, 0.002], [0.02, 0.02]
    first = in_turns([quiet_turn] * 10)
    second = in_turns([slow_turn, slow_turn, slow_turn, slow_turn, *[quiet_turn] * 6])
    observed = [DISTURBED] * 4 + [QUIET] * 6
    partly_disturbed = second._replace(outside=second.outside._replace(turns=observed))
    assert seconds_in_turns([first, partly_disturbed]) == pytest.approx((0.002, 0.002))
    mostly = [DISTURBED] * 9 + [QUIET]
    slower = in_turns([slow_turn] * 9 + [quiet_turn])
    mostly_disturbed = slower._replace(outside=slower.outside._replace(turns=mostly))
    first_seconds, second_seconds = seconds_in_turns([first, mostly_disturbed])
    assert second_seconds / first_seconds == pytest.approx(10)


def test_a_pair_in_turns_has_no_number_if_a_side_has_none():
    pair = [
        replace(make.record(result=in_turns([[0.02]] * 10)), side=side)
        for side in (BASELINE, CANDIDATE)
    ]
    assert seconds_of_pair(*pair) == pytest.approx((0.02, 0.02))
    failed = replace(pair[1], outcome=pair[1].outcome._replace(status=Status.PARITY_FAILED))
    assert seconds_of_pair(pair[0], failed) == (None, None)


def test_turns_are_disturbed_by_longer_waiting_than_is_usual():
    quiet, waiting, idle = (
        TurnObservation(0.1, cpu, waited) for cpu, waited in ((0.1, 0.005), (0.08, 0.02), (0, 0))
    )
    assert disturbed_turns([quiet, waiting, idle]) == [False, True, False]
    assert disturbed_turns([waiting] * 3) == [False] * 3  # its own threads are in one another's way
    assert disturbed_turns([waiting, waiting, TurnObservation(0.1, 0.05, 0.05)]) == [
        False,
        False,
        True,
    ]
    assert disturbed_turns([]) == []


@pytest.mark.parametrize(
    ("busy", "message"),
    [(None, True), (0.18, True), (0.102, False)],
    ids=["recorded before others were counted", "others were busy", "its own threads alone"],
)
def test_a_launch_that_waits_in_most_turns_is_disturbed_if_others_used_the_cpus(busy, message):
    outcome = in_turns([[0.02]] * 10, TurnObservation(0.1, 0.1, 0.02, busy_seconds=busy))
    outcome = outcome._replace(threads=make.threads(1, 1.0), contention=make.contention())
    texts = disturbances(make.record(result=outcome), Host("m", "two CPUs", 2, 2, 2.0))
    assert ("17% of the time they wanted to run" in texts) is message


@pytest.mark.parametrize(("busy", "disturbed"), [(0.24, True), (0.17, False)])
def test_use_of_the_cpus_by_others_disturbs_a_launch_with_more_running_threads_than_cpus(
    busy, disturbed
):
    """A launch of two threads and their helpers waits for itself: its waiting says nothing."""
    outcome = in_turns([[0.02]] * 10, TurnObservation(0.1, 0.16, 0.2, busy_seconds=busy))
    helpers = make.threads(2, 1.0, 1.6, says=4)
    waiting = make.contention(run_queue_seconds=2.0, others_cpu_seconds=0.8)
    outcome = outcome._replace(threads=helpers, contention=waiting)
    record = make.record(result=outcome, threads=2)
    text = disturbances(record, Host("m", "two CPUs", 2, 2, 2.0))
    assert ("other programs used 0.8 of 2 CPUs" in text) is disturbed
    assert bool(text) is disturbed


def test_cpu_time_while_others_had_their_turns_is_implausible():
    cell, network = make.record().cell, plan_of(networks="fcn5", frameworks="null", threads="1")
    launched = ended_as(in_turns([[0.02]] * 10))
    for seconds, words in (
        (0.0, ""),
        (0.4, "0.4 s of CPU time while other launches had their turns"),
    ):
        outside = launched.outside._replace(stopped_cpu_seconds=seconds)
        launched_in_turns = replace(launched, outside=outside)
        reasons = implausible(
            cell, network.network_of(network.cells[0]), launched_in_turns, None, computes=False
        )
        assert words in reasons
        assert bool(reasons) is bool(words)


# Real launches.

PLAN = plan_of(networks="fcn5", frameworks="null", threads="1")
PROTOCOL = PLAN.protocol._replace(
    warmup_steps=2, steps=20, minimum_steps=2, seconds=0.5, maximum_warmup_steps=0
)


def launched(folder, bodies, step_seconds=None):
    """Return the records of launches in turns; each side's guest is a shell script that may do
    something first."""
    (row,) = PLAN.rows
    run = Run("r1", "quick", PROTOCOL, 1, PLAN.cells, "machine-1", datetime.now(UTC), "9", None, 1)
    runners = {}
    for side, body in bodies.items():
        plan = replace(
            PLAN, settings={"null": {"step_seconds": (step_seconds or {}).get(side, 0.01)}}
        )
        path = script(folder / side, f'#!/bin/sh\n{body}\nexec {sys.executable} "$@"\n')
        source = {"null": BuildSource(row.build, path, "CPython 3", "env-1", "")}
        runners[side] = LaunchRunner(
            plan, run, launch_process, source, lambda cell: None, machine=MACHINE
        )
    group = [PlannedLaunch(PLAN.cells[0], 0, side, in_turns=True) for side in bodies]
    (records,) = run_attempts(runners, group, lambda cell: PROTOCOL)
    return records


def test_both_sides_have_as_many_turns_and_their_clocks_stand_while_they_are_stopped(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    records = launched(tmp_path, {BASELINE: "", CANDIDATE: "sleep 1"})
    assert [record.outcome.status for record in records] == [Status.OK] * 2
    for record in records:
        outcome = record.outcome
        assert outcome.turns
        assert {turn.slices for turn in outcome.outside.turns} == {1}  # shorter than a slice
        assert sum(outcome.turns) == len(outcome.samples_ns)
        assert len(outcome.outside.turns) == len(outcome.turns)
        assert len(seconds_by_round(outcome)) >= 4
        # Pauses are not in the samples, nor in the time that the host saw. Other programs only
        # ever lengthen a step. A pause that counted would make it several times as long.
        assert min(outcome.samples_ns) * 1e-9 == pytest.approx(0.01, rel=0.2)
        assert outcome.median_seconds() < 0.02
        assert outcome.outside.timed_seconds < record.wall_seconds
        assert outcome.outside.stopped_cpu_seconds < 0.03
        assert len(outcome.sample_counts.minor_faults) == len(outcome.samples_ns)
    rounds = [{turn.round for turn in record.outcome.outside.turns} for record in records]
    assert rounds[0] == rounds[1]
    assert len(rounds[0]) >= 8
    baseline_seconds, candidate_seconds = seconds_of_pair(*records)
    assert candidate_seconds / baseline_seconds == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("body", ["exit 3", "sleep 0.5; exit 3"])
def test_a_side_that_crashes_has_its_reason_and_the_other_ends(tmp_path, monkeypatch, body):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    first, second = launched(tmp_path, {BASELINE: "", CANDIDATE: body})
    assert first.outcome.status is Status.OK
    assert (second.outcome.status, "exit code 3" in second.outcome.reason) == (Status.CRASHED, True)


def test_a_slower_side_is_found_in_turns(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    pair = launched(tmp_path, {BASELINE: "", CANDIDATE: ""}, {CANDIDATE: 0.015})
    baseline_seconds, candidate_seconds = seconds_of_pair(*pair)
    assert 1.2 < candidate_seconds / baseline_seconds < 1.9


def test_of_no_pair_is_one_side_always_first(tmp_path, monkeypatch):
    """Order of start and turns are drawn, so that what a place costs becomes noise and no bias."""
    firsts = Counter()
    for seed in range(40):
        ran, _ = play(2, Rounds(fewest=1, seconds=0.0, most=1), seed=seed)
        firsts[ran[0]] += 1
    assert min(firsts.values()) > 8


def test_all_have_the_same_cpus_in_a_round_and_other_ones_later(tmp_path):
    table = Turns(1, 1, Rounds(fewest=30, seconds=0.0, most=30))
    members = [Member(table, number, [(0,), (1,)]) for number in range(2)]
    drawn = []
    last = None
    while table.next_turn(0, last):
        drawn.append(members[0].cpus)
        assert members[0].cpus == members[1].cpus
        last = QUIET
    assert set(drawn) == {(0,), (1,)}
    assert Member(table, 0).cpus == ()


def test_a_launch_is_placed_on_cores_if_they_are_enough_for_its_threads(tmp_path):
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon(sockets=1, cores=4)))
    places = standstill.places(cpu, 2)
    assert len(places) == 3
    for cpus in places:
        cores = {core for core in cpu.core_siblings for number in cpus if number in core}
        assert len(cpus) == len(cores) == 2
    assert len(standstill.places(cpu, 4)) == 1
    assert standstill.places(cpu, 9) == standstill.places(cpu, 0) == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU alone")
def test_threads_are_moved_and_let_go_again_unless_they_bound_themselves(tmp_path):
    everywhere = os.sched_getaffinity(0)
    first_cpu = (min(everywhere),)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        placement = standstill.Placement()
        placement.confine([process.pid], first_cpu)
        assert os.sched_getaffinity(process.pid) == set(first_cpu)
        placement.let_go()
        assert os.sched_getaffinity(process.pid) == everywhere
        last_cpu = {max(everywhere)}
        os.sched_setaffinity(process.pid, last_cpu)
        standstill.Placement().confine([process.pid], first_cpu)
        assert os.sched_getaffinity(process.pid) == last_cpu
    finally:
        process.kill()
        process.wait()


THREE_THREADS = """
import threading, time
for _ in range(2):
    threading.Thread(target=time.sleep, args=(60,)).start()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU alone")
def test_threads_that_compute_begin_on_a_cpu_each():
    first, second, *_ = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", THREE_THREADS])
    tasks = Path(f"/proc/{process.pid}/task")
    try:
        main, *others = wait_until(
            lambda: sorted(int(task.name) for task in tasks.iterdir()) if _has(tasks, 3) else [],
            "the threads",
        )
        everywhere = os.sched_getaffinity(main)
        placement = standstill.Placement()
        placement.confine([process.pid], (first, second), others)
        assert [os.sched_getaffinity(thread) for thread in others] == [{first}, {second}]
        assert os.sched_getaffinity(main) == everywhere
        placement.let_go()
        assert {frozenset(os.sched_getaffinity(thread)) for thread in others} == {
            frozenset(everywhere)
        }
    finally:
        process.kill()
        process.wait()


def _has(folder, count):
    return len(list(folder.iterdir())) == count


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU alone")
def test_slices_begin_on_the_cpus_of_their_round():
    """Else the sides of a long step run on different CPUs, which have different neighbours."""
    spinning = "while True: pass"
    starting = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spinning!r}])"
    root = subprocess.Popen([sys.executable, "-c", starting])
    try:
        (process,) = wait_until(lambda: standstill.descendants(root.pid), "the step")
        everywhere = os.sched_getaffinity(process)
        table = Turns(
            1, 1, Rounds(turn_seconds=0.02, slice_seconds=0.02), cells=[make.record().cell]
        )
        member = Member(table, 0, [(number,) for number in everywhere])
        launch = TurnTaking(member, root.pid)
        launch.begin(10.0)
        launch.start()
        (planned,) = member.cpus
        os.sched_setaffinity(process, everywhere - {planned})
        wait_until(lambda: psutil.Process(process).cpu_num() != planned, "drift")
        os.sched_setaffinity(process, everywhere)
        launch.stop()
        launch.let_others_run()
        launch.go_on()
        assert psutil.Process(process).cpu_num() == planned
        assert os.sched_getaffinity(process) == everywhere
    finally:
        for child in psutil.Process(root.pid).children(recursive=True):
            child.kill()
        root.wait()


def test_a_pause_begins_when_the_launch_is_stopped(monkeypatch):
    """It computes while its processes are looked for: that time belongs to its step."""

    def slow_look(root):
        time.sleep(0.05)
        return [root]

    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        monkeypatch.setattr(taking_turns, "descendants", slow_look)
        member = Member(Turns(1, 1, Rounds(turn_seconds=0.02, slice_seconds=0.02)), 0)
        launch = TurnTaking(member, spinning.pid)
        launch.begin(10.0)
        launch.start()
        before_look = time.monotonic_ns()
        launch.stop()
        launch.let_others_run()
        launch.go_on()
        ((stopped, resumed),) = launch.pauses
        assert stopped - before_look >= 50_000_000
        assert resumed > stopped
    finally:
        spinning.kill()
        spinning.wait()


def test_cells_take_turns_unless_something_speaks_against_it():
    torch = plan_of(networks="fcn5", frameworks="torch,null", threads="1,2")
    chosen = grouping_for_pairs(torch, MACHINE, None, [Side(BASELINE), Side(CANDIDATE)])
    assert {cell.framework for cell in chosen.cells} == {"torch"}
    assert len(chosen.cells) == 2
    assert not chosen.remarks
    assert not grouping_for_pairs(
        torch, MACHINE, None, [Side(BASELINE, revision="HEAD~1"), Side(CANDIDATE)]
    ).cells
    assert not grouping_for_pairs(torch, MACHINE, "sequential", []).cells
    assert grouping_for_pairs(torch, MACHINE, "turns", []).cells == frozenset(torch.cells)
    # The weights of fcn5 take 0.5 GB.
    small = replace(MACHINE, memory=replace(MACHINE.memory, total_bytes=3 * 10**9))
    assert not grouping_for_pairs(torch, small, None, []).cells
    quota = plan_of(networks="fcn5", frameworks="torch", threads="1", cpu_quota="none,1")
    assert len(grouping_for_pairs(quota, MACHINE, None, []).cells) == 2
    several = plan_of(networks="fcn5", frameworks="torch", threads="1", instances="1,2")
    named = grouping_for_pairs(several, MACHINE, "turns", [])
    assert len(named.cells) == 1
    (remark,) = named.remarks
    assert "its processes run at once already" in remark
    with pytest.raises(UsageError, match="order"):
        grouping_for_pairs(torch, MACHINE, "duet", [])


def test_launches_in_turns_take_the_time_of_all_of_them():
    plan = plan_of(networks="fcn5", frameworks="torch", threads="1")
    in_turns = grouping_for_pairs(plan, MACHINE, None, [])
    schedule = PairSchedule(plan, (), lambda records, spreads: 3, in_turns)
    (pair,) = schedule.wanted(0)
    assert schedule.seconds_of(pair) == pytest.approx(2 * schedule.seconds(pair[0].cell))
    assert schedule.seconds_left() == pytest.approx(3 * schedule.seconds_of(pair))


def test_launches_that_wait_for_the_machine_alternate_until_one_ends():
    turns = Turns(2, "seed", cpus=2)
    order, alone = [], []

    def member(number, parts):
        time.sleep(0.05 * number)  # One launch is ready earlier, and has to wait for the other.
        for _ in range(parts):
            turns.wait_for_machine(number)
            order.append(number)
            alone.append(set(turns._in_use))
            time.sleep(0.002)
        turns.leave(number)

    threads = [threading.Thread(target=member, args=arguments) for arguments in ((0, 3), (1, 6))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert all(following != before for before, following in itertools.pairwise(order[:6]))
    assert order[6:] == [1, 1, 1]
    assert all(len(members) == 1 for members in alone)

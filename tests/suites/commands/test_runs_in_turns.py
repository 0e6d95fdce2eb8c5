"""A suite whose launches take turns, as a user runs it: groups, rounds, and what reports make of
them."""

import pytest
from processes import records_in, suite_of_null

from dlbench.adapters.protocol import Status
from dlbench.reports.phases import seconds_of_phases
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import ratio, took_turns
from dlbench.reports.results.storage.store import Store

SUITE = suite_of_null(
    step_seconds=0.01, threads=[1, 2, 4], protocol={"launches": 2, "seconds": 0.05, "steps": 20}
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    return tmp_path


def test_launches_of_a_block_form_a_group_and_their_ratios_come_from_it(folder, command):
    code, output, complaints = command(
        "run", "mine.toml", "--order", "turns", "--no-wait-for-quiet"
    )
    assert code == 0, complaints
    assert "and 2 other cells in turns" in complaints or "null" in output
    records = records_in(folder)
    assert len(records) == 6
    assert all(record.outcome.status is Status.OK for record in records)
    by_block = {}
    for record in records:
        by_block.setdefault(record.launch, set()).add(record.group)
    assert all(len(groups) == 1 for groups in by_block.values())
    assert len(set.union(*by_block.values())) == 2
    for launch in (0, 1):
        rounds = [
            {turn.round for turn in record.outcome.outside.turns}
            for record in records
            if record.launch == launch
        ]
        assert rounds[0] == rounds[1] == rounds[2]
        assert len(rounds[0]) >= 4
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        matrix = build_matrix(Results.newest([store], records[0].run))
    first, second, _ = (cell.timed for cell in matrix.cells.values())
    assert took_turns(first, second)
    assert "took turns" in ratio(first, second).method
    for record in records:
        # Standing still is no time of its own.
        seconds = seconds_of_phases(record)
        assert seconds["timed"] == pytest.approx(record.outcome.outside.timed_seconds, abs=1e-6)
        assert sum(seconds.values()) == pytest.approx(record.wall_seconds, abs=0.05)


SPIN = """
import time

def prepare(cell):
    def step():
        end = time.process_time() + 0.15
        while time.process_time() < end:
            pass
    return step
"""


def test_a_long_step_of_a_pair_is_cut_and_takes_as_long_as_it_computes(folder, command):
    (folder / "spin.py").write_text(SPIN)
    words = ("--suite", "mine.toml", "--same", "--pairs", "2", "--budget", "1s", "--threads", "1")
    code, output, complaints = command("compare", "--now", *words, "--step", "spin.py")
    assert code in (0, 1, 6), complaints  # one pair decides nothing
    records = records_in(folder)
    assert {record.outcome.status for record in records} == {Status.OK}, output + complaints
    for record in records:
        outcome = record.outcome
        turns = outcome.outside.turns
        assert max(turn.slices for turn in turns) >= 3
        # Without its pauses a sample is what it computed, however long the other side ran in
        # between.
        running, computing = (
            sum(getattr(turn, name) for turn in turns) for name in ("seconds", "cpu_seconds")
        )
        assert outcome.median_seconds() == pytest.approx(0.15 * running / computing, rel=0.3)
        assert sum(outcome.paused_ns) > 0.5 * sum(outcome.samples_ns)
        # Beside other tests one of the two was seen to differ by 15 %. A pause that counted would
        # double them.
        assert outcome.outside.timed_seconds == pytest.approx(
            sum(outcome.samples_ns) * 1e-9, rel=0.25
        )
        assert outcome.threads.wall_seconds == pytest.approx(
            outcome.outside.timed_seconds, rel=0.25
        )
        assert outcome.outside.stopped_cpu_seconds < 0.03


SLEEP = """
import time

def prepare(cell):
    return lambda: time.sleep(0.15)
"""


def test_a_step_that_waits_is_not_cut_and_takes_as_long_as_it_waits(folder, command):
    """What it waits for goes on while it stands still: a pause that was subtracted would make it
    shorter."""
    (folder / "wait.py").write_text(SLEEP)
    words = ("--suite", "mine.toml", "--same", "--pairs", "2", "--budget", "1s", "--threads", "1")
    code, output, complaints = command("compare", "--now", *words, "--step", "wait.py")
    assert code in (0, 1, 6), complaints
    for record in records_in(folder):
        assert record.outcome.status is Status.OK, output + complaints
        # Beside other tests one turn may have computed for long enough to be cut.
        cut = [turn for turn in record.outcome.outside.turns if turn.slices > 1]
        assert len(cut) <= 1
        assert cut or not record.outcome.paused_ns
        assert min(record.outcome.samples_ns) * 1e-9 == pytest.approx(0.15, rel=0.05)
        assert record.outcome.median_seconds() < 0.25


GROW = """
import time

blocks = []

def prepare(cell):
    calls = 0
    def step():
        nonlocal calls
        calls += 1
        time.sleep(0.05)
        if calls == 24:
            blocks.append(b"x" * 200_000_000)
    return step
"""


def test_a_turn_in_which_memory_grew_is_warm_up_and_taken_again(folder, command):
    (folder / "grow.py").write_text(GROW)
    (folder / "mine.toml").write_text(SUITE.replace("0.05", "0.5"))
    words = ("--suite", "mine.toml", "--same", "--pairs", "2", "--budget", "1s", "--threads", "1")
    code, output, complaints = command("compare", "--now", *words, "--step", "grow.py")
    assert code in (0, 1, 6), complaints
    for record in records_in(folder):
        outcome = record.outcome
        assert outcome.status is Status.OK, output + complaints
        # The step that grew took 0.03 s more. No other one has faults.
        assert max(outcome.sample_counts.minor_faults) < 1000
        assert outcome.peak_memory_bytes > 200_000_000
        assert outcome.observed_steps() > outcome.timed_steps()
        assert len(outcome.turns) == len(outcome.outside.turns)
        rounds = {turn.round for turn in outcome.outside.turns}
        assert rounds == set(range(len(rounds)))


def test_an_order_that_there_is_not_is_named(folder, command):
    code, _, complaints = command("run", "mine.toml", "--order", "duet")
    assert code == 2
    assert "duet" in complaints
    assert "turns, sequential" in complaints or "turns" in complaints

"""A suite whose launches take turns, as a user runs it: groups, rounds, and what reports make of them."""

import pytest
from processes import records_in, suite_of_null

from dlbench.adapters.protocol import Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.launches import seconds_of_phases
from dlbench.reports.statistics import ratio, took_turns
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store

SUITE = suite_of_null(step_seconds=0.01, threads=[1, 2, 4], protocol={"launches": 2, "seconds": 0.05, "steps": 20})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    return tmp_path


def test_launches_of_a_block_form_a_group_and_their_ratios_come_from_it(folder, command):
    code, said, complaints = command("run", "mine.toml", "--order", "turns", "--no-quiet-gate")
    assert code == 0, complaints
    assert "and 2 other cells in turns" in complaints or "null" in said
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
            {turn.round for turn in record.outcome.outside.turns} for record in records if record.launch == launch
        ]
        assert rounds[0] == rounds[1] == rounds[2]
        assert len(rounds[0]) >= 4
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        matrix = build_matrix(Results.newest([store], records[0].run))
    one, two, _ = (cell.timed for cell in matrix.cells.values())
    assert took_turns(one, two)
    assert "took turns" in ratio(one, two).method
    for record in records:
        # Standing still is no time of its own.
        assert seconds_of_phases(record)["timed"] == pytest.approx(record.outcome.outside.timed_seconds, abs=1e-6)


def test_an_order_that_there_is_not_is_named(folder, command):
    code, _, complaints = command("run", "mine.toml", "--order", "duet")
    assert code == 2
    assert "duet" in complaints
    assert "turns, sequential" in complaints or "turns" in complaints

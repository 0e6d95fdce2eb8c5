from dataclasses import replace

import factory_of_records as make
import pytest
from known_networks import NETWORKS

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import Ceilings
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import Matrix, build_matrix
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage.store import Store


def matrix_of(*records: Record, ceilings: Ceilings | None = None, all_runs: bool = False) -> Matrix:
    hosts = {record.machine: Host(record.machine, record.machine, 2, 2, 2.0) for record in records}
    with Store.open("sqlite://") as store:
        for record in records:
            store.append(record)
        results = Results.newest([store], all_runs=all_runs)
    return build_matrix(
        replace(results, hosts=hosts, ceilings={make.MACHINE: ceilings} if ceilings else {})
    )


def only(matrix: Matrix) -> CellResult:
    (cell,) = matrix.cells.values()
    return cell


def names(cell: CellResult) -> list[str]:
    return [flag.kind.name for flag in cell.flags]


def launches(times: list[float], **changes: object) -> list[Record]:
    return [make.record([t] * 5, launch=n, **changes) for n, t in enumerate(times)]  # type: ignore[arg-type]


def test_rows_and_columns_have_a_settled_order() -> None:
    records = [
        make.record(network="lstm32", framework="torch", threads=1),
        make.record(network="fcn5", framework="torch", threads=8),
        make.record(network="fcn5", framework="torch", threads=2),
        make.record(network="fcn5", framework="mxnet", threads=16),
        make.record(network="fcn5", framework="torch", mode="compile", device="cuda:0", threads=1),
        make.record(network="fcn5", framework="torch", threads=2, batch_size=16),
        make.record(network="fcn5", framework="torch", threads=2, machine="m-two"),
        make.record(network="lstm32", framework="jax-0.10.2", threads=1),
        make.record(network="lstm32", framework="jax-0.9.2", threads=1),
    ]
    matrix = matrix_of(*records)
    assert [(group.network, group.batch_size) for group in matrix.rows] == [
        ("fcn5", 16),
        ("fcn5", 64),
        ("lstm32", 64),
    ]
    rows = [(row.framework, row.mode) for row in list(matrix.rows.values())[1]]
    assert rows == [("mxnet", "eager"), ("torch", "compile"), ("torch", "eager")]
    assert [row.framework for row in list(matrix.rows.values())[2]] == [
        "jax-0.9.2",
        "jax-0.10.2",
        "torch",
    ]
    assert [(c.machine, c.device, c.threads) for c in matrix.columns] == [
        (make.MACHINE, "cpu", 1),
        (make.MACHINE, "cpu", 2),
        (make.MACHINE, "cpu", 8),
        (make.MACHINE, "cpu", 16),
        (make.MACHINE, "cuda:0", 1),
        ("m-two", "cpu", 2),
    ]


def test_the_best_of_each_column_and_network_is_marked() -> None:
    matrix = matrix_of(
        make.record([1.0], framework="torch"),
        make.record([2.0], framework="mxnet"),
        make.record([2.0], framework="torch", threads=2),
        make.record([1.0], framework="mxnet", threads=2),
        make.record([9.0], framework="mxnet", network="fcn8"),
    )
    best = {
        (c.work.network, c.row.framework, c.column.threads) for c in matrix.cells.values() if c.best
    }
    assert best == {("fcn5", "torch", 1), ("fcn5", "mxnet", 2)}  # a row alone is best of nothing


def test_only_a_fair_number_can_be_the_best() -> None:
    wall = 0.25
    unfair = {
        "wrong": make.outcome([0.05] * 5)._replace(
            status=Status.PARITY_FAILED, parity=make.parity("disagrees")
        ),
        "unproved": make.outcome([0.05] * 5)._replace(parity=make.parity("unchecked")),
        "nan": make.outcome([0.05] * 5)._replace(final_loss_finite=False),
        "greedy": make.outcome([0.05] * 5)._replace(threads=make.threads(1, wall, 2.0)),
    }
    records = [make.record(framework=name, result=result) for name, result in unfair.items()]
    best = [
        c.row.framework for c in matrix_of(*records, make.record([1.0])).cells.values() if c.best
    ]
    assert best == ["torch"]
    # Where nobody proved anything, as with a network that has no reference, the fastest of those is
    # the best.
    best = [c.row.framework for c in matrix_of(*records).cells.values() if c.best]
    assert best == ["unproved"]


def test_failed_parity_outweighs_good_launches_and_keeps_its_samples() -> None:
    wrong = make.outcome(
        status=Status.PARITY_FAILED, reason="update error 1", parity=make.parity("disagrees")
    )
    cell = only(
        matrix_of(make.record(), make.record(launch=1, result=wrong), make.record(launch=2))
    )
    assert (cell.status, cell.reason) == (Status.PARITY_FAILED, "update error 1")
    assert cell.seconds is not None
    assert cell.timed is None
    assert cell.parity.verdict == "disagrees"


def test_one_good_launch_makes_a_number_and_the_others_are_told() -> None:
    crash = make.hole(Status.CRASHED, "signal 11", launch=1, minutes=1)
    cell = only(matrix_of(make.record(), crash))
    assert cell.status is Status.OK
    assert names(cell) == ["failed_launches", "few_launches"]
    assert "1 of 2 launches: crashed, signal 11" in cell.flags[0].sentence


def test_builds_are_never_pooled_and_a_stale_cell_says_so() -> None:
    records = [
        make.record([1.0], environment="old"),
        make.record([2.0], environment="new", minutes=60),
        make.record([1.0], environment="old", threads=2),
    ]
    matrix = matrix_of(*records, all_runs=True)
    newest, stale = matrix.cells.values()
    assert (newest.environment, newest.seconds.samples) == ("new", 1)  # type: ignore[union-attr]
    assert names(stale) == ["few_launches", "other_environment"]
    assert "several environments" in matrix.notes[0]


def test_a_pause_of_a_run_is_noted_with_its_ends() -> None:
    records = [
        make.record([1.0], launch=n, minutes=minutes) for n, minutes in enumerate((0, 50, 100, 600))
    ]
    (note,) = matrix_of(*records).notes
    assert all(f"{record.started:%Y-%m-%d %H:%M}" in note for record in records[2:])
    assert matrix_of(*records[:3]).notes == ()
    another = make.record([1.0], run="another", threads=2, minutes=600)
    assert len(matrix_of(records[0], another).notes) == 1  # that they are two runs


def test_the_ceiling_is_the_highest_rate_seen_at_no_more_threads() -> None:
    flops = NETWORKS["fcn5"].family.training_flops(64)
    ceilings = Ceilings((make.ceiling(1, 0.5 * flops), make.ceiling(4, 3.0 * flops)))

    def fraction(threads: int, *other_records: Record) -> float | None:
        measured = make.record([1.0], threads=threads)
        matrix = matrix_of(measured, *other_records, ceilings=ceilings)
        return next(
            cell for cell in matrix.cells.values() if cell.cell.threads == threads
        ).ceiling_fraction

    def sentinel(threads: int, rate: float, busy: float | None = None) -> Record:
        evidence = make.threads(threads, 1.0, busy)
        result = make.outcome([1.0], threads=evidence)._replace(gemm_flops_per_second=rate * flops)
        return make.record(framework="other", threads=threads, result=result)

    assert fraction(1) == pytest.approx(2.0)
    assert fraction(2) == pytest.approx(2.0)
    assert fraction(8) == pytest.approx(1 / 3)
    assert fraction(2, sentinel(1, 2.0)) == pytest.approx(0.5)
    assert fraction(1, sentinel(2, 2.0)) == pytest.approx(2.0)
    # A product that used two threads says nothing about one.
    assert fraction(1, sentinel(1, 2.0, busy=2.0)) == pytest.approx(2.0)
    matrix = matrix_of(make.record([1.0]), ceilings=ceilings)
    assert "over_ceiling" in names(only(matrix))


def test_two_rows_that_noise_cannot_tell_apart_are_both_starred() -> None:
    # One build under two names, one launch of three steps each: 2.03 and 2.18, and the intervals
    # overlap.
    first = make.record([2.00, 2.03, 2.09], framework="torch")
    same = make.record([2.04, 2.18, 2.33], framework="torch-again")
    cells = matrix_of(first, same).cells.values()
    assert [cell.best for cell in cells] == [True, True]
    slower = make.record([2.54, 2.58, 2.63], framework="torch-again")
    assert sorted(cell.best for cell in matrix_of(first, slower).cells.values()) == [False, True]
    # Of a single step nobody knows the spread, but launches are known to differ.
    single = make.record([2.0]), make.record([2.08], framework="mxnet")
    assert [cell.best for cell in matrix_of(*single).cells.values()] == [True, True]

"""Which records count, in one store and in several, and narrowing them."""

import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kept_stores import empty_store
from properties import examples

from dlbench.adapters.protocol import INSTALLED, Cell, Status
from dlbench.hardware_probe import Ceilings, probe
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Narrowing, Results, untunable
from dlbench.reports.results.storage.store import Store

RUNS = [("run-1", "quick"), ("run-2", "quick"), ("run-3", "table4")]


def make_record(
    minutes: float, kind: str, run: tuple[str, str], rate: float | None, **fields: Any
) -> Record:
    own = {key: fields.pop(key) for key in ("attempt", "side")}
    if kind == "skipped":
        record = make.hole(Status.SKIPPED, "budget", minutes=minutes, run=run[0], **fields)
    elif kind == "crashed":
        record = make.hole(Status.CRASHED, "signal 11", minutes=minutes, run=run[0], **fields)
    else:
        busy = (
            make.threads(fields["threads"], 3.0, 8.0)
            if kind == "greedy"
            else make.threads(fields["threads"], 3.0)
        )
        result = make.outcome([1 + minutes / 100] * 3, threads=busy, gemm_flops_per_second=rate)
        record = make.record(result=result, minutes=minutes, run=run[0], **fields)
    return replace(record, suite=run[1], **own)


@st.composite
def stores_of_records(draw: st.DrawFn) -> list[list[Record]]:
    """Return the records of three stores; no two launches start in the same moment, as on a
    machine."""
    drawn = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "kind": st.sampled_from(["ok", "ok", "skipped", "crashed", "greedy"]),
                    "run": st.sampled_from(RUNS),
                    "rate": st.none() | st.integers(1, 50).map(lambda n: n * 1e11),
                    "machine": st.sampled_from(["m-one", "m-two"]),
                    "framework": st.sampled_from(["torch", "mxnet"]),
                    "threads": st.sampled_from([1, 2]),
                    "environment": st.sampled_from(["abc123", "def456", ""]),
                    "side": st.sampled_from(["", "", "baseline", "candidate", "search"]),
                    "attempt": st.integers(0, 2),
                }
            ),
            max_size=20,
        )
    )
    minutes = draw(st.permutations(range(len(drawn))))
    records = [
        make_record(m, launch=draw(st.integers(0, 2)), **fields)
        for m, fields in zip(minutes, drawn, strict=True)
    ]
    places = [draw(st.sets(st.integers(0, 2), min_size=1, max_size=2)) for _ in records]
    stores: list[list[Record]] = [[], [], []]
    for record, places_of_record in zip(records, places, strict=True):
        for place in places_of_record:
            stores[place].append(record)
    return stores


def counting(
    stores: list[list[Record]],
    run: str | None,
    suite: str | None,
    machine: str | None,
    all_runs: bool,
) -> set[tuple[Any, ...]]:
    """Return the records that count, by the rule's own words, independent of the store's
    queries."""
    of_cell: dict[tuple[str, Cell], list[Record]] = defaultdict(list)
    for record in itertools.chain(*stores):
        selected = (
            run in (None, record.run)
            and suite in (None, record.suite)
            and machine in (None, record.machine)
        )
        side_counts = record.side != "baseline" if run else not record.side
        if selected and side_counts:
            of_cell[record.machine, record.cell].append(record)
    counted = set()
    for records in of_cell.values():
        measured = [
            record for record in records if record.outcome.status is not Status.SKIPPED
        ] or records
        newest = max(measured, key=lambda record: record.started)
        for record in measured:
            if record.environment == newest.environment and (all_runs or record.run == newest.run):
                counted.add(
                    (
                        record.run,
                        record.launch,
                        record.attempt,
                        record.machine,
                        record.cell,
                        record.started,
                    )
                )
    return counted


A_BASELINE_FIRST = [
    [replace(make.record(minutes=9.0), side="baseline")],
    [make.record(framework="mxnet", minutes=1.0), make.record(minutes=5.0)],
    [],
]


@examples(30)
@given(
    stores=stores_of_records(),
    run=st.none() | st.sampled_from([run for run, _ in RUNS]),
    suite=st.none() | st.sampled_from(["quick", "table4"]),
    machine=st.none() | st.sampled_from(["m-one", "m-two"]),
    all_runs=st.booleans(),
)
@example(stores=A_BASELINE_FIRST, run="run-1", suite=None, machine=None, all_runs=False)
def test_of_each_cell_the_newest_run_counts(
    stores: list[list[Record]],
    run: str | None,
    suite: str | None,
    machine: str | None,
    all_runs: bool,
) -> None:
    # A database at a URL is one store: the others are in memory.
    opened = [empty_store() if place == 0 else Store.open("sqlite://") for place in range(3)]
    try:
        for store, records in zip(opened, stores, strict=True):
            for record in records:
                store.append(record)
        results = Results.newest(opened, run, suite, machine, all_runs)
        everything = Results.of(opened, run, suite, machine)
    finally:
        for store in opened:
            store.close()
    keys = [(r.run, r.launch, r.attempt, r.machine, r.cell, r.started) for r in results.records]
    assert len(keys) == len(set(keys))
    assert set(keys) == counting(stores, run, suite, machine, all_runs)
    assert list(results.hosts) == list(everything.hosts)
    assert results.comparisons == everything.comparisons
    matrix = build_matrix(results)
    assert {(cell.machine, cell.cell) for cell in matrix.cells.values()} == {
        (machine, cell._replace(adapter="")) for *_, machine, cell, _ in keys
    }


@pytest.mark.parametrize(
    ("of_run", "noted"),
    [
        ({"launches_most": 16}, True),
        ({"launches_most": 16, "precision": 0.02}, False),
        ({"launches_most": 16, "sides": {"baseline": "a", "candidate": "b"}}, False),
        ({}, False),
    ],
)
def test_a_run_that_launched_open_cells_more_often_is_noted(
    of_run: dict[str, Any], noted: bool
) -> None:
    with empty_store() as first, Store.open("sqlite://") as second:
        first.begin_run(make.run(**of_run))
        second.begin_run(make.run(id="run-2", launches_most=9))
        for record in (*make.launches(1.0), *make.launches(2.0, framework="mxnet")):
            first.append(record)
        second.append(make.record(run="run-2", framework="jax"))
        results = Narrowing(axes={"framework": "torch,mxnet"}).of(Results.newest([first, second]))
    notes = build_matrix(results).notes
    assert ["run-1" in note and "up to 16" in note for note in notes] == [True] * noted


def test_of_a_repeated_launch_the_last_attempt_counts() -> None:
    disturbed = make.outcome([5.0] * 3, contention=make.contention(steal_seconds=10.0))
    repeated = [
        make.record(result=disturbed),
        replace(make.record([2.0] * 3, minutes=1), attempt=1),
    ]
    (cell,) = build_matrix(Results(tuple(repeated))).cells.values()
    assert cell.seconds is not None
    assert (cell.seconds.median, cell.seconds.launches) == (2.0, 1)
    assert [flag.kind.name for flag in cell.flags] == ["few_launches"]


def test_several_stores_are_read_as_one(tmp_path: Path) -> None:
    stores = [tmp_path / "one.sqlite", tmp_path / "two.sqlite"]
    this_machine = probe()
    with Store.open(stores[0]) as store:
        store.add_machine(this_machine.fingerprint, this_machine.to_dict())
        store.save_ceilings(this_machine.fingerprint, Ceilings((make.ceiling(1, 1e9),)).to_dict())
        store.append(make.record(machine=this_machine.fingerprint))
        store.append(make.record(machine=this_machine.fingerprint, run="run-2", minutes=5))
    with Store.open(stores[1]) as store:
        store.append(make.record(machine=this_machine.fingerprint))  # the same record, copied
        store.append(make.record(machine="m-two"))
        store.add_machine("m-three", {"of": "a future version"})
        store.append(make.record(machine="m-three"))
        store.save_ceilings("m-three", {"of": "a future version"})
    results = Results.read(stores)
    assert len(results.records) == 4
    assert list(results.hosts) == [this_machine.fingerprint, "m-two", "m-three"]
    host = results.hosts[this_machine.fingerprint]
    assert host.effective_cpus == this_machine.cpu.effective_cpus
    assert dict(host.description)["CPU"] == this_machine.cpu.model
    assert {results.hosts[name].effective_cpus for name in ("m-two", "m-three")} == {None}
    assert list(results.ceilings) == [this_machine.fingerprint]
    assert len(Results.read(stores, run="run-2").records) == 1
    assert len(Results.read(stores, machine="m-two").records) == 1
    assert Results.read(stores, suite="nothing") == Results()
    with pytest.raises(StoreError, match="no result store"):
        Results.read([tmp_path / "none.sqlite"])


def with_settings(record: Record, *names: str) -> Record:
    software = {**record.outcome.software, "tunable": list(names)}
    return replace(record, outcome=record.outcome._replace(software=software))


def test_rows_without_a_setting_are_both_installed_and_tuned() -> None:
    records = [
        with_settings(make.record(framework="torch"), "allocator"),
        with_settings(make.record(framework="torch", tuning=INSTALLED), "allocator"),
        with_settings(make.record(framework="tinygrad")),
    ]

    def shown(words: str) -> list[tuple[str, str]]:
        narrowed = Narrowing(axes={"tuning": words}).of(Results(tuple(records), {})).records
        return [(record.cell.framework, record.cell.tuning) for record in narrowed]

    assert shown("installed") == shown("i*") == [("torch", "installed"), ("tinygrad", "tuned")]
    assert shown("tuned") == [("torch", "tuned"), ("tinygrad", "tuned")]
    later = [
        with_settings(make.record(framework="tinygrad")),
        with_settings(make.record(framework="tinygrad"), "kept"),
    ]
    assert untunable(later) == frozenset()

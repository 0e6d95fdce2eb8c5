"""Profiled launches lie in a store beside the measured ones, and count for nothing else."""

from dataclasses import replace

import factory_of_records as make

from dlbench.reports.results.record import CANDIDATE, PROFILED, Record
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage.store import Store

RUN = make.run(purpose="compare", sides={"baseline": "a", "candidate": "b"})


def stored() -> tuple[Store, list[Record]]:
    """Return a store with a measured launch and a later profiled one, ten times as long."""
    store = Store.open("sqlite://")
    store.add_machine(make.MACHINE, make.MACHINE_DICT)
    store.begin_run(RUN)
    measured = replace(make.record([1.0] * 3), side=CANDIDATE)
    profiled = replace(make.record([10.0] * 3, launch=1, minutes=5), side=CANDIDATE, stage=PROFILED)
    for record in (measured, profiled):
        store.append(record)
    return store, [measured, profiled]


def test_every_reading_of_a_store_leaves_them_out_but_the_one_that_asks_for_them() -> None:
    store, (measured, profiled) = stored()
    assert store.records() == store.records(run=RUN.id) == [measured]
    assert store.profiles(RUN.id) == [profiled]
    assert store.record_counts() == {RUN.id: 1}
    assert store.launch_seconds(make.MACHINE) == {make.cell(): measured.wall_seconds}
    (newest,) = store.newest(run=RUN.id)
    assert (newest.measured or "").startswith("2026-03-01T12:00:00")
    assert [record for _, record in store.records_of_cells([newest.key], RUN.id, asked=True)] == [
        measured
    ]
    nights = store.nights(purpose="compare")
    assert list(nights["launches"]) == [1]
    example = store.example(RUN.id, newest.key, CANDIDATE)
    assert example == measured


def test_results_of_a_run_have_them_apart() -> None:
    store, (measured, profiled) = stored()
    results = Results.of([store], RUN.id)
    assert (results.records, results.profiles) == ((measured,), (profiled,))
    assert Results.merge([results, results]).profiles == (profiled,)
    assert Results.newest([store], RUN.id).records == (measured,)

from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
from empty_stores import empty_store
from exported import exporter
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.storage import newest
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store

RUNS = [("run-1", "quick"), ("run-2", "quick"), ("run-3", "table4")]


def make_record(minutes: float, kind: str, run: tuple[str, str], rate: float | None, **of: Any) -> Record:
    own = {key: of.pop(key) for key in ("attempt", "side")}
    if kind == "skipped":
        made = make.hole(Status.SKIPPED, "budget", minutes=minutes, run=run[0], **of)
    elif kind == "crashed":
        made = make.hole(Status.CRASHED, "signal 11", minutes=minutes, run=run[0], **of)
    else:
        stolen = make.contention(steal_seconds=20.0 if kind == "contended" else 0.0)
        busy = make.threads(of["threads"], 3.0, 8.0) if kind == "greedy" else make.threads(of["threads"], 3.0)
        result = make.outcome([1 + minutes / 100] * 3, contention=stolen, threads=busy, gemm_flops_per_second=rate)
        made = make.record(result=result, minutes=minutes, run=run[0], **of)
    return replace(made, suite=run[1], **own)


@st.composite
def stores_of_records(draw: st.DrawFn, compared: bool) -> list[list[Record]]:
    """The records of one to three stores; no two launches start in the same moment, as on a machine they do not."""
    kinds = ["ok", "ok", "skipped", "crashed", "contended", "greedy"]
    drawn = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "kind": st.sampled_from(kinds),
                    "run": st.sampled_from(RUNS),
                    "rate": st.none() | st.integers(1, 50).map(lambda n: n * 1e11),
                    "machine": st.sampled_from(["m-one", "m-two"]),
                    "framework": st.sampled_from(["torch", "mxnet"]),
                    "threads": st.sampled_from([1, 2]),
                    "environment": st.sampled_from(["abc123", "def456", ""]),
                    "side": st.sampled_from(["", "baseline", "candidate"] if compared else [""]),
                    "attempt": st.integers(0, 2) if compared else st.just(0),
                }
            ),
            max_size=20,
        )
    )
    minutes = draw(st.permutations(range(len(drawn))))
    launches = [draw(st.integers(0, 2)) if compared else n for n in range(len(drawn))]
    records = [make_record(m, launch=n, **of) for m, n, of in zip(minutes, launches, drawn, strict=True)]
    places = [draw(st.sets(st.integers(0, 2), min_size=1, max_size=2)) for _ in records]
    return [[r for r, of in zip(records, places, strict=True) if place in of] for place in range(3)]


def fill(records: list[Record], place: int) -> Store:
    # A database at a URL is one store: the others are in memory.
    store = empty_store() if place == 0 else Store.open("sqlite://")
    for record in records:
        store.append(record)
    return store


def two_builds_of(framework: str, minutes: float) -> list[Record]:
    of = {"run": RUNS[0], "rate": None, "threads": 1, "side": "", "attempt": 0, "framework": framework}
    builds = ((0.0, "abc123"), (1.0, "def456"))
    return [make_record(minutes + later, "ok", environment=build, **of) for later, build in builds]


# The first store knows the later row by a comparison's baseline alone, which counts for nothing; so nothing tells when
# the row came first, and its note once stood before the other's.
A_BASELINE_FIRST = [
    [replace(each, side="baseline") for each in two_builds_of("torch", 9.0)],
    [*two_builds_of("mxnet", 1.0), *two_builds_of("torch", 5.0)],
    [],
]


@examples(12)
@given(
    stores=st.booleans().flatmap(stores_of_records),
    run=st.none() | st.sampled_from([run for run, _ in RUNS]),
    suite=st.none() | st.sampled_from(["quick", "table4"]),
    machine=st.none() | st.sampled_from(["m-one", "m-two"]),
)
@example(stores=A_BASELINE_FIRST, run="run-1", suite=None, machine=None)
def test_the_newest_records_make_the_matrix_of_all(
    stores: list[list[Record]], run: str | None, suite: str | None, machine: str | None
) -> None:
    opened = [fill(records, place) for place, records in enumerate(stores)]
    try:
        every = Results.of(opened, run, suite, machine)
        some = Results.newest(opened, run, suite, machine)
    finally:
        for store in opened:
            store.close()
    assert set(some.records) <= set(every.records) if not every.records else len(some.records) <= len(every.records)
    assert build_matrix(some) == build_matrix(every)
    assert exporter("matrix", "json")(build_matrix(some)) == exporter("matrix", "json")(build_matrix(every))
    assert list(some.hosts) == list(every.hosts)
    assert some.comparisons == every.comparisons


def test_only_what_counts_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Store._record
    monkeypatch.setattr(Store, "_record", lambda self, *args: read.append("") or original(self, *args))  # type: ignore[func-returns-value]
    with empty_store() as store:
        for night in range(20):
            for launch in range(3):
                store.append(make.record(run=f"run-{night}", launch=launch, minutes=night))
        assert len(Results.newest([store]).records) == len(read) == 3


def test_a_comparison_gives_its_candidate_and_says_so() -> None:
    sides = [replace(make.record([seconds]), side=side) for side, seconds in (("baseline", 1.0), ("candidate", 2.0))]
    with empty_store() as store:
        for record in sides:
            store.append(record)
        matrix = build_matrix(Results.newest([store], run="run-1"))
        without = build_matrix(Results.newest([store]))
    (cell,) = matrix.cells.values()
    assert cell.seconds.median == 2.0
    # Not asked for, it stands for no framework: what its candidate was given, a row does not say.
    assert without.cells == {}
    assert without.notes == (
        "Not shown: 1 run of two builds (compare, gate) or of a search (tune); --run run-1 shows one.",
    )
    assert matrix.notes == ("run-1: a comparison of two builds; the candidate is shown, the baseline is not.",)


def test_of_a_repeated_launch_the_undisturbed_attempt_counts() -> None:
    disturbed = make.outcome([5.0] * 3, contention=make.contention(steal_seconds=10.0))
    repeated = [make.record(result=disturbed), replace(make.record([2.0] * 3, minutes=1), attempt=1)]
    with empty_store() as store:
        for record in repeated:
            store.append(record)
        (cell,) = build_matrix(Results.newest([store])).cells.values()
    assert (cell.seconds.median, cell.seconds.launches) == (2.0, 1)
    assert [flag.kind.name for flag in cell.flags] == ["few_launches"]


def test_choosing_reads_indexes_alone() -> None:
    with empty_store() as store:
        if store._engine.dialect.name != "sqlite":
            pytest.skip("how SQLite plans its queries")
        statement = newest.cell_summaries(None, None, None)
        text = str(statement.compile(store._engine, compile_kwargs={"literal_binds": True}))
        with store._engine.begin() as connection:
            plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
    assert "SCAN records USING COVERING INDEX records_by_cell" in plan
    assert any("INDEX records_by_cell (cell_id=? AND started=?)" in step for step in plan)

import math
import statistics
from collections import defaultdict
from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
import sqlalchemy as sa
from empty_stores import empty_store
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.reports.compare.verdict import DEFAULT
from dlbench.reports.errors import StoreError
from dlbench.reports.evidence.nights import NIGHTS
from dlbench.reports.storage import queries, record_columns, schema
from dlbench.reports.storage.record import Record, last_attempts
from dlbench.reports.storage.store import Store


def column(store: Store, name: str) -> list[Any]:
    """Return a column of the records, in the order of appending."""
    return [row[0] for row in store._rows(sa.select(schema.records.c[name]).order_by(schema.records.c.id))]


def launch(seconds: float, stolen: bool = False, **changes: Any) -> Record:
    """A record of one launch, which the hypervisor disturbed or not."""
    of_record = {key: changes.pop(key) for key in ("attempt", "side", "stage") if key in changes}
    result = make.outcome([seconds] * 5, contention=make.contention(steal_seconds=4 * seconds if stolen else 0.0))
    return replace(make.record(result=result, **changes), **of_record)


# Times on a grid, so that sums in another order are not what a comparison fails by.
times = st.integers(1, 40).map(lambda n: n / 8)
records = st.builds(
    lambda seconds, stolen, hole, minutes, **of: (
        make.hole(
            Status.CRASHED, "signal 11", minutes=minutes, run=of["run"], launch=of["launch"], threads=of["threads"]
        )
        if hole
        else launch(seconds, stolen, minutes=minutes, **of)
    ),
    seconds=times,
    stolen=st.booleans(),
    hole=st.integers(0, 5).map(lambda n: n == 0),
    minutes=st.integers(0, 1000),
    run=st.sampled_from(["run-1", "run-2"]),
    launch=st.integers(0, 2),
    threads=st.sampled_from([1, 2]),
    attempt=st.integers(0, 2),
    side=st.sampled_from(["baseline", "candidate"]),
    stage=st.sampled_from(["screen", "confirm"]),
)
several = st.lists(records, max_size=25, unique_by=lambda r: (r.run, r.launch, r.cell, r.attempt, r.side, r.stage))


def numbered(kept: list[Record]) -> dict[tuple[Any, ...], Record]:
    return {(r.run, r.launch, r.cell, r.attempt, r.side, r.stage): r for r in kept}


@examples(20)
@given(several)
def test_records_and_store_agree_on_which_attempts_count(kept: list[Record]) -> None:
    with empty_store() as store:
        store.add_machine(make.MACHINE, {"of": "nobody's knowledge"})
        for record in kept:
            store.append(record)
        marked = [key for key, counts in zip(numbered(kept), column(store, "effective"), strict=True) if counts]
    assert marked == list(numbered(last_attempts(kept)))
    assert len(marked) == len({(r.run, r.launch, r.cell, r.side, r.stage) for r in kept})


@examples(20)
@given(several)
def test_nights_are_those_of_the_launches_medians(kept: list[Record]) -> None:
    with empty_store() as store:
        store.add_machine(make.MACHINE, {"of": "nobody's knowledge"})
        store.append_runs([(make.run(), [record for record in kept if record.run == "run-1"])])
        for record in kept:
            if record.run != "run-1":
                store.append(record)
        cells, nights = store.cells(), store.nights()
    expected = defaultdict(list)
    for record in last_attempts(kept):
        of_first_look = record.stage == "screen" and record.launch < DEFAULT.screen_looks[0]
        if record.outcome.status is Status.OK and (not record.stage or of_first_look):
            value = math.log(statistics.median(record.outcome.step_seconds()))
            expected[record.run, record.cell, record.side].append((record_columns.contended(record, None), value))
    found = {(row.run, cells[row.cell], row.side): row for row in nights.itertuples()}
    assert set(found) == set(expected)
    for key, launches in expected.items():
        row = found[key]
        values = [value for contended, value in launches if not contended] or [value for _, value in launches]
        assert (row.launches, row.contended_launches) == (len(values), sum(bool(c) for c, _ in launches))
        assert row.quiet == any(not contended for contended, _ in launches)
        assert row.log_mean == pytest.approx(statistics.fmean(values), abs=1e-12)
        if len(values) > 1:
            assert row.log_variance == pytest.approx(statistics.variance(values), abs=1e-12)
        else:
            assert math.isnan(row.log_variance)
        assert row.environment == "abc123"
        assert row.machine == make.MACHINE
    assert list(nights["started"]) == sorted(nights["started"])


def test_a_small_variance_is_not_lost_in_the_squares() -> None:
    with empty_store() as store:
        seconds = [1e-6 * (1 + 1e-3 * n) for n in range(10)]
        for n, each in enumerate(seconds):
            store.append(make.record(result=make.outcome([round(each, 9)] * 3), launch=n))
        (night,) = store.nights().itertuples()
        logs = list(map(math.log, column(store, "seconds")))
    assert night.log_variance == pytest.approx(statistics.variance(logs), rel=1e-6)


def test_nights_can_be_narrowed() -> None:
    with empty_store() as store:
        store.append_runs([(make.run(purpose="compare"), [launch(1.0), launch(2.0, threads=2)])])
        sides = [launch(1.0, run="run-2", side=side) for side in ("baseline", "candidate")]
        store.append_runs([(make.run(id="run-2", purpose="gate", suite="other", machine="m-two"), sides)])
        assert len(store.nights()) == len(store.nights(purpose=("compare", "gate"))) == 4
        for narrowed in ({"suite": "quick"}, {"machine": make.MACHINE}, {"purpose": "compare"}):
            assert list(store.nights(**narrowed)["run"]) == ["run-1"] * 2
        assert list(store.nights(purpose="gate")["side"]) == ["baseline", "candidate"]
        assert list(store.nights(suite="none").columns) == list(NIGHTS)


def test_an_import_is_kept_whole_or_not_at_all() -> None:
    with empty_store() as store:
        store.append_runs([(make.run(), (launch(1.0, launch=n, run="run-1") for n in range(1200)))])
        assert store.record_counts() == {"run-1": 1200}
        assert [run.id for run in store.runs()] == ["run-1"]
        with pytest.raises(StoreError, match="already has a run"):
            store.append_runs(
                [(make.run(id="run-0"), [launch(1.0, run="run-0")]), (make.run(), [launch(1.0, launch=7)])]
            )

        def broken() -> Any:
            yield launch(1.0, threads=4)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.append_runs([(make.run(id="run-2"), broken())])
        assert store.record_counts() == {"run-1": 1200}
        assert store.run("run-2") is None
        # The number that the broken import gave its cell is forgotten with it.
        store.append(launch(1.0, threads=4))
        assert set(column(store, "cell_id")) == set(store.cells())
        assert store.cells()[column(store, "cell_id")[-1]].threads == 4


def test_caches_are_derived_anew_once_the_machine_is_known() -> None:
    waited = make.outcome([1.0] * 5, contention=make.contention(run_queue_seconds=1.1))
    with empty_store() as store:
        store.append(make.record(result=waited))
        store.append(replace(make.record(minutes=1), attempt=1))
        # That it waited too long can be said only where it is known that there was a CPU for it.
        assert column(store, "contended") == [0, 0]
        assert column(store, "effective") == [1, 0]
        store.add_machine(make.MACHINE, probe().to_dict())
        store.append(make.record(result=waited, launch=1))
        assert column(store, "contended") == [0, 0, 1]
        with store._writing() as connection:
            connection.execute(sa.update(schema.records).values(seconds=-1.0, cell_id=None, attempt=0, effective=0))
        store.rederive()
        assert column(store, "contended") == [1, 0, 1]
        assert column(store, "seconds") == [1.0, 1.0, 1.0]
        assert column(store, "attempt") == [0, 1, 0]
        assert column(store, "effective") == [0, 1, 1]
        assert set(column(store, "cell_id")) == set(store.cells())


def test_sentinels_are_kept_by_run_and_block() -> None:
    with empty_store() as store:
        store.add_sentinel("run-1", 0, "before", {"gemm": 1.0})
        store.add_sentinel("run-2", 0, "before", {})
        store.add_sentinel("run-1", 0, "after", {"gemm": 2.0})
        assert store.sentinels("run-1") == [(0, "before", {"gemm": 1.0}), (0, "after", {"gemm": 2.0})]
        assert store.sentinels("run-3") == []
        with pytest.raises(ValueError, match="before or after"):
            store.add_sentinel("run-1", 0, "meanwhile", {})


def test_a_history_and_the_counts_read_an_index_alone() -> None:
    with empty_store() as store:
        if store._engine.dialect.name != "sqlite":
            pytest.skip("how SQLite plans its queries")
        statements = [queries.nights(None, None, None), queries.record_counts()]
        for statement in statements:
            text = str(statement.compile(store._engine, compile_kwargs={"literal_binds": True}))
            with store._engine.begin() as connection:
                plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
            assert plan == ["SCAN records USING COVERING INDEX records_by_launch"]

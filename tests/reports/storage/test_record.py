import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import Cell, Contention, Outcome, Parity, Protocol, Status, ThreadEvidence
from dlbench.reports.errors import RecordError
from dlbench.reports.storage.record import RECORD_SCHEMA, Record, Run

text = st.text(max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**62)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
cells = st.builds(Cell, text, text, text, text, text, count, count, text, text)
protocols = st.builds(Protocol, count, count, count, finite)
optional = st.none() | finite
parities = st.builds(Parity, text, text, st.lists(finite, max_size=3), optional, optional, text, finite, finite, finite)
threads = st.builds(
    ThreadEvidence,
    count,
    st.none() | count,
    st.none() | count,
    finite,
    finite,
    st.none() | st.lists(finite, max_size=4),
)
contentions = st.builds(Contention, optional, st.none() | count, st.none() | count, *[optional] * 4, count)
outcomes = st.builds(
    Outcome,
    status=st.sampled_from(Status),
    reason=text,
    import_seconds=optional,
    prepare_seconds=optional,
    first_step_seconds=optional,
    peak_memory_bytes=st.none() | count,
    parameter_count=st.none() | count,
    warmup_ns=st.lists(count, max_size=3),
    samples_ns=st.lists(count, max_size=5),
    final_loss=optional,
    final_loss_finite=st.none() | st.booleans(),
    parity=st.none() | parities,
    threads=st.none() | threads,
    contention=st.none() | contentions,
    software=st.dictionaries(text, text, max_size=3),
    gemm_flops_per_second=optional,
)
telemetries = st.none() | st.dictionaries(text, text | st.lists(finite, max_size=3), max_size=3)
records = st.builds(
    Record,
    text,
    text,
    count,
    cells,
    outcomes,
    text,
    text,
    text,
    protocols,
    moments,
    finite,
    text,
    telemetry=telemetries,
)
runs = st.builds(
    Run,
    text,
    text,
    protocols,
    count,
    st.lists(cells, max_size=3).map(tuple),
    text,
    moments,
    text,
    st.none() | moments,
    count,
)


def tells_numbers(data: dict[str, Any]) -> bool:
    """What is drawn for the fields not named above may be nan, which is unlike itself."""
    return "NaN" not in json.dumps(data)


@given(records.filter(lambda record: tells_numbers(record.to_dict())))
def test_a_record_survives_json(record: Record) -> None:
    assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record


@given(runs.filter(lambda run: tells_numbers(run.to_dict())))
def test_a_run_survives_json(run: Run) -> None:
    assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_moments_are_kept_in_utc() -> None:
    tokyo = datetime(2026, 3, 1, 21, 0, tzinfo=timezone(timedelta(hours=9)))
    assert make.run(started=tokyo).to_dict()["started"] == "2026-03-01T12:00:00+00:00"
    with pytest.raises(ValueError, match="time zone"):
        make.run(started=datetime(2026, 3, 1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(make.record().to_dict())), json_values)
def test_a_record_with_one_field_replaced_is_read_or_refused_in_words(key: str, value: object) -> None:
    data = {**make.record().to_dict(), key: value}
    try:
        Record.from_dict(data)
    except RecordError as refusal:
        error = refusal
    else:
        return
    assert "\n" not in str(error)


def test_records_without_telemetry_are_as_they_were() -> None:
    data = make.record().to_dict()
    assert "telemetry" not in data
    for odd in (None, "sampled", [1, 2]):
        assert Record.from_dict({**data, "telemetry": odd}).telemetry is None


def test_a_newer_record_is_refused_with_the_remedy() -> None:
    with pytest.raises(RecordError, match="newer dlbench"):
        Record.from_dict({**make.record().to_dict(), "schema": RECORD_SCHEMA + 1})


def test_a_missing_field_is_named() -> None:
    data = make.record().to_dict()
    del data["outcome"]
    with pytest.raises(RecordError, match="outcome"):
        Record.from_dict(data)

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe.doctor import Severity
from dlbench.reports.results.errors import RecordError
from dlbench.reports.results.record import RECORD_SCHEMA, Record, Run

text = st.text(max_size=20)
KNOWN: dict[Any, st.SearchStrategy[Any]] = {
    str: text,
    int: st.integers(1, 2**31 - 1),  # in the range of each number
    float: st.floats(0.0, allow_nan=False, allow_infinity=False),
    dict[str, float]: st.dictionaries(
        text, st.floats(0.0, exclude_min=True, allow_infinity=False), max_size=3
    ),
    bool: st.booleans(),
    NoneType: st.none(),
    datetime: st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    Any: text,
    Status: st.sampled_from(Status),
    Severity: st.sampled_from(Severity),
}


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold, all the way down."""
    if kind not in KNOWN:
        inner = [of(part) for part in get_args(kind) if part is not Ellipsis]
        if get_origin(kind) in (Union, UnionType):
            KNOWN[kind] = st.one_of(inner)
        elif get_origin(kind) in (list, tuple):
            KNOWN[kind] = st.lists(inner[0], max_size=3).map(get_origin(kind))
        elif get_origin(kind) is dict:
            KNOWN[kind] = st.dictionaries(*inner, max_size=3)
        else:
            KNOWN[kind] = st.builds(
                kind, **{name: of(type_hint) for name, type_hint in get_type_hints(kind).items()}
            )
    return KNOWN[kind]


networks = st.none() | st.builds(lambda family: {"family": family, "numbers": {}}, text)
records = st.builds(lambda record, network: replace(record, network=network), of(Record), networks)


@given(records)
def test_a_record_survives_json(record: Record) -> None:
    assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record


@given(of(Run))
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
def test_a_record_with_one_field_replaced_is_read_or_refused_in_words(
    key: str, value: object
) -> None:
    data = {**make.record().to_dict(), key: value}
    try:
        Record.from_dict(data)
    except RecordError as refusal:
        error = refusal
    else:
        return
    assert "\n" not in str(error)


def test_fields_in_the_form_of_another_version_are_as_if_they_were_missing() -> None:
    record, run = make.record().to_dict(), make.run().to_dict()
    assert not {"telemetry", "node", "doctor"} & {*record, *run}
    for odd in (None, "sampled", [1, 2]):
        read = Record.from_dict({**record, "telemetry": odd, "node": odd})
        assert (read.telemetry, read.node) == (None, None)
        assert Run.from_dict({**run, "doctor": odd}).doctor is None


def test_keys_that_older_versions_wrote_are_left_out() -> None:
    record = make.record()
    content = record.to_dict()
    content["outcome"] |= {"parity_sample": None, "starts_ns": []}
    assert Record.from_dict(content) == record


def test_a_newer_record_is_refused_with_the_remedy() -> None:
    with pytest.raises(RecordError, match="newer dlbench"):
        Record.from_dict({**make.record().to_dict(), "schema": RECORD_SCHEMA + 1})


def test_a_benchmark_imported_by_an_older_dlbench_says_what_to_do():
    content = make.record(threads=1).to_dict()
    content["cell"] |= {"adapter": "imported", "batch_size": 0}
    with pytest.raises(RecordError, match="import its file again"):
        Record.from_dict(content)

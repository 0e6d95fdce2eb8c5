"""Suite files: what ships is valid, and whatever else a file holds, only a SuiteError comes of it."""

import datetime
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.values import Capacity

GOOD = {
    "name": "mine",
    "summary": "a suite of my own",
    "networks": ["fcn5"],
    "frameworks": ["null"],
    "threads": [1, "cores"],
}


def toml(content):
    """Write a dictionary as TOML."""
    return "\n".join(f"{_key(key)} = {_value(value)}" for key, value in content.items())


def _key(key):
    return json.dumps(key, ensure_ascii=True).replace("\x7f", "\\u007f")


def _value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _key(value)
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    return repr(value)


def refused(text, where="my.toml"):
    with pytest.raises(SuiteError) as caught:
        suite.parse(text, where)
    message = str(caught.value)
    assert message.startswith(where)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def accepted_or_refused(text):
    """Parse; a suite that is accepted must give a plan."""
    read, refusal = None, ""
    try:
        read = suite.parse(text, "my.toml")
    except SuiteError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if read is None:
        assert refusal.startswith("my.toml")
        return None
    try:
        plan = expand(read, SuiteOverrides(), Capacity(2, 4), seed=1)
    except UsageError:
        return read
    assert plan.cells
    assert len(set(plan.cells)) == len(plan.cells)
    json.dumps(plan.settings, allow_nan=False)
    return read


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"networks": ["fcn55"]}, ["key networks", "'fcn55'", "Did you mean 'fcn5'?"]),
        ({"frameworks": ["tourch"]}, ["key frameworks", "Did you mean 'torch'?"]),
        ({"frameworks": []}, ["key frameworks"]),
        ({"threads": [0]}, ["key threads", "whole number from 1"]),
        ({"threads_limit": "lots"}, ["key threads_limit", "4*cpus"]),
        ({"devices": ["gpu"]}, ["key devices", "cuda:0"]),
        ({"device_threads": "1,2"}, ["key device_threads", "Give one"]),
        ({"placements": ["host"]}, ["key placements", "pinned, pageable"]),
        ({"batch_sizes": {"fcn9": [1]}}, ["key batch_sizes", "Did you mean"]),
        ({"batch_sizes": {"fcn5": [0]}}, ["key batch_sizes.fcn5.0"]),
        ({"protocol": {"launches": 0}}, ["key protocol.launches"]),
        ({"protocol": {"launches": "9-3"}}, ["key protocol.launches", "the smaller first"]),
        ({"protocol": {"launches": "5-20", "interval": "fine"}}, ["key protocol.interval", "such as 2%"]),
        ({"protocol": {"launches": 5, "interval": "2%"}}, ["key protocol.interval", "range of launches"]),
        ({"affinity": ["pinned"]}, ["key affinity", "bound, oversubscribed"]),
        ({"settings": {"nul": {}}}, ["key settings", "Did you mean 'null'?"]),
        ({"settings": {"null": {"step_seconds": math.inf}}}, ["key settings", "finite"]),
        ({"settings": {"null": {"since": datetime.date(2020, 1, 1)}}}, ["key settings", "date"]),
        ({"a\nb": 1}, ["key a b"]),
        ({"lunches": 3}, ["key lunches: unknown key. Did you mean 'launches' in [protocol]?"]),
        ({"protocol": {"lunches": 3}}, ["key protocol.lunches: unknown key. Did you mean 'launches'?"]),
        ({"netwrks": []}, ["key netwrks: unknown key. Did you mean 'networks'?"]),
        ({"zzz": 1}, ["key zzz: unknown key. Known: affinity, batch_sizes"]),
        ({"networks": "fcn5"}, ['key networks: "fcn5" is not a list, as in ["fcn5", "lstm32"].']),
        ({"networks": []}, ["key networks: Name at least one"]),
        ({"networks": [1]}, ["key networks.0: 1 is not text in quotes"]),
        ({"threads": True}, ["key threads: true is not a list of counts, as in [1, 2, 4]."]),
        ({"name": "a b"}, ["key name: 'a b' may hold letters"]),
        ({"protocol": {"steps": 0}}, ["key protocol.steps: 0 is out of range: it must be at least 1."]),
        ({"protocol": {"steps": "a"}}, ['key protocol.steps: "a" is not a whole number.']),
        ({"protocol": {"launches": True}}, ["key protocol.launches: true is not a whole number."]),
        ({"protocol": {"seconds": -1}}, ["key protocol.seconds: -1 is out of range: it must be more than 0."]),
        ({"protocol": {"seconds": math.inf}}, ["key protocol.seconds: it must be a finite number."]),
        ({"protocol": 3}, ["key protocol: 3 is not a table, as in [protocol]."]),
    ],
)
def test_a_wrong_value_is_named_with_file_key_and_remedy(changes, parts):
    message = refused(toml({**GOOD, **changes}))
    for part in parts:
        assert part in message
    # In the words of the file, never in those of the library that checks it.
    assert not re.search(r"[Ii]nput|tuple|[Ee]xtra|pydantic|permitted|dictionary|validation", message)
    assert message.endswith((".", "?"))


@pytest.mark.parametrize("text", ["", "name", "= 1", "[[[", "a = " + "[" * 5000, "a = " + "1" * 5000, "x = 1\nx = 2"])
def test_what_is_no_toml_is_refused(text):
    refused(text)


printable = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = st.one_of(
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.integers(-2, 10),
    st.floats(allow_nan=False),
    printable,
    st.sampled_from(["fcn5", "null", "torch:*", "cores", "2*cpus", "cpu", "cuda:0", "1-3", "0*cores"]),
    st.dates(),
    st.times(),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(printable, inner, max_size=3), max_leaves=6
)


sections = st.fixed_dictionaries(
    {},
    optional={
        "threads_limit": values,
        "devices": values,
        "device_threads": values,
        "precisions": values,
        "placements": values,
        "batch_sizes": st.dictionaries(st.sampled_from(["fcn5", "lstm32", "fcn9"]), values, max_size=2),
        "protocol": st.dictionaries(st.sampled_from(sorted(suite.ProtocolSection.model_fields)), values, max_size=4),
        "settings": st.dictionaries(st.sampled_from(["null", "torch", "x"]), values, max_size=2),
    },
)


@given(sections)
def test_any_value_of_a_known_key_gives_a_plan_or_a_suite_error(content):
    accepted_or_refused(toml({**GOOD, **content}))

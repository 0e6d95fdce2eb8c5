"""Files of pytest-benchmark that cannot be read: each is refused in one line."""

import contextlib
import copy
import json
import math

import pytest
from benchmark_files import DATA, foreign, without, written
from factory_of_records import record, run
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples

from dlbench.hardware_probe import probe
from dlbench.reports.pytest_benchmark import imported as files
from dlbench.reports.pytest_benchmark.export import run_to_pytest_benchmark
from dlbench.reports.pytest_benchmark.imported import FileError, runs_of


def own():
    machine = probe()
    records = [record(launch=launch, machine=machine.fingerprint) for launch in range(2)]
    return json.loads(run_to_pytest_benchmark(run(machine=machine.fingerprint), records, machine.to_dict()))


def with_value(content, *path):
    *keys, value = path
    place = changed = copy.deepcopy(content)
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(changed)


THEIRS = "benchmarks", 0, "extra_info", "dlbench"
FIRST = *THEIRS, "records", 0
DEEP = json.loads("[" * 200 + "]" * 200)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not JSON"),
        ("not json", "not JSON"),
        ("[1, 2]", "should be a valid dictionary"),
        ("{}", "benchmarks"),
        ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
        ("[" * 100_000, "nested too deeply"),
        (with_value(foreign(), *DATA, [1.0, math.nan]), "NaN is not a number"),
        (with_value(foreign(), *DATA, [1.0, math.inf]), "Infinity is not a number"),
        (with_value(foreign(), *DATA, [7.25]).replace("7.25", "1e999"), "1e999 is too large"),
        (with_value(foreign(), *DATA, [1.0, -1.0]), "data.1: Input should be greater than or equal to 0"),
        (with_value(foreign(), *DATA, [1e300]), "data.0: Input should be less than"),
        (with_value(foreign(), *DATA, [10**400]), "data.0"),
        (with_value(foreign(), *DATA, ["1.0"]), "data.0: Input should be a valid number"),
        (with_value(foreign(), *DATA, [True]), "data.0: Input should be a valid number"),
        (with_value(foreign(), *DATA, []), "data: List should have at least 1 item"),
        (with_value(foreign(), "benchmarks", 0, "stats", "iterations", 0), "iterations"),
        (with_value(foreign(), "benchmarks", 0, "stats", "median", "x"), "median: Input should be a valid number"),
        (with_value(foreign(), "benchmarks", 0, "fullname", 7), "fullname: Input should be a valid string"),
        (with_value(foreign(), "benchmarks", 0, "fullname", "\ud800"), "fullname: Input should be a valid string"),
        (with_value(foreign(), "benchmarks", 0, "extra_info", "x", DEEP), "levels deep"),
        (with_value(foreign(), "benchmarks", foreign()["benchmarks"] * 2), "appears in it twice"),
        (with_value(foreign(), "datetime", "yesterday"), "datetime"),
        (with_value(foreign(), "datetime", "0001-01-01T00:00:00+23:00"), "datetime"),
        (without(foreign(), "benchmarks"), "benchmarks: Field required"),
        (with_value(own(), *DATA, 0, 1.5), "one of the two was changed"),
        (with_value(own(), *DATA, [1.0]), "one of the two was changed"),
        (with_value(own(), *FIRST, "outcome", "samples_ns", 0, -1), "is out of range"),
        (with_value(own(), *FIRST, "outcome", "samples_ns", 0, "x"), "should be a valid integer"),
        (with_value(own(), *FIRST, "outcome", "samples_ns", 0, "1"), "one of the two was changed"),
        (with_value(own(), *FIRST, "outcome", "steps_per_sample", 0), "is out of range"),
        (with_value(own(), *FIRST, "cell", "framework", ["torch"]), "should be a valid string"),
        (with_value(own(), *FIRST, "interpreter", "\x1b[31m"), "cannot be printed"),
        (with_value(own(), *FIRST, "environment", "x" * 200), "too long"),
        (with_value(own(), *FIRST, "cell", "threads", -1), "is out of range"),
        (with_value(own(), *FIRST, "cell", "threads", 2), "several cells"),
        (with_value(own(), *FIRST, "run", "another"), "not of the file's own run"),
        (with_value(own(), *FIRST, "started", "2026-03-01T12:00:00"), "no time zone"),
        (with_value(own(), *FIRST, "schema", 99), "schema version 99"),
        (with_value(own(), *FIRST, "schema", None), "no schema version"),
        (without(own(), *FIRST, "outcome"), "A record lacks 'outcome'"),
        (with_value(own(), *THEIRS, "records", []), "records: List should have at least 1 item"),
        (with_value(own(), *THEIRS, "timed", [7]), "which records were timed"),
        (with_value(own(), *THEIRS, "schema", 2), "schema version 2"),
        (with_value(own(), "dlbench", "run", None), "A run carries no schema version"),
        (with_value(own(), "dlbench", "run", "machine", "x" * 12), "another than the one its run names"),
        (with_value(own(), "dlbench", "holes", 3), "holes: Input should be a valid list"),
        (with_value(own(), "dlbench", "machine", 3), "machine: Input should be a valid dictionary"),
        (with_value(own(), "dlbench", "machine", "cpu", "model", "Another"), "another than the one its run names"),
    ],
    # Whole files would make names that differ from one process to the next: they hold the machine's present clock rate.
    ids=lambda value: value if len(value) < 70 else "file",
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, text, part):
    path = written(tmp_path, text)
    with pytest.raises(FileError) as caught:
        runs_of([files.read(path)], "9.9")
    said = str(caught.value)
    assert part in said
    assert str(path) in said
    assert "\n" not in said
    assert len(said) < len(str(path)) + 330
    assert caught.value.exit_code == 2


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.truncate(files.LARGEST_FILE + 1)
    with pytest.raises(FileError, match="larger than 500 MB"):
        files.read(path)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["ok", "2026-01-01", 10**30, -1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value, here=()):
    yield here
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*here, key))


@pytest.mark.parametrize("content", [foreign(), own()], ids=["foreign", "own"])
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_stands_anywhere_it_is_read_or_refused(tmp_path, content, data):
    place = data.draw(st.sampled_from([each for each in places(content) if each]))
    text = with_value(content, *place, data.draw(ANYTHING))
    found = []
    with contextlib.suppress(FileError):
        found = runs_of([files.read(written(tmp_path, text))], "9.9")
    for imported in found:
        json.dumps(imported.run.to_dict(), allow_nan=False)
        run_to_pytest_benchmark(imported.run, imported.records, imported.machine)

"""Runs as files of pytest-benchmark and back: nothing is lost, and a file that cannot be read costs
one line."""

import bz2
import contextlib
import copy
import gzip
import json
import lzma
import math
import statistics
from datetime import UTC, datetime
from functools import cache

import pytest
from factory_of_records import cell, outcome, parity, record, run
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import UNKNOWN, Status
from dlbench.hardware_probe import probe
from dlbench.reports.pytest_benchmark import imported as files
from dlbench.reports.pytest_benchmark.export import (
    counting_records,
    processes_in_one_list,
    run_to_pytest_benchmark,
    samples_of,
)
from dlbench.reports.pytest_benchmark.imported import (
    BenchmarkFileError,
    clean_name,
    fingerprint_of,
    imported_cell,
    runs_of,
)
from dlbench.reports.results.cells import TOO_SHORT
from dlbench.reports.results.comparison import compare_runs
from dlbench.reports.results.flag_kinds import SAMPLES_NOT_KEPT
from dlbench.reports.results.hosts import UNKNOWN_MACHINE, read_host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.naming import slug
from dlbench.reports.results.outcome import Outcome, SampleStatistics
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results
from dlbench.reports.results.verdict import Verdict

# What a launch may give; final_loss_finite and the parity verdict decide whether it may be shown.
OUTCOMES = st.builds(
    lambda samples, steps, verdict, finite, status: outcome(
        [ns * 1e-9 for ns in samples],
        samples_ns=samples,
        steps_per_sample=steps,
        parity=parity(verdict),
        final_loss_finite=finite,
        status=status,
        reason="" if status is Status.OK else "a reason",
    ),
    st.lists(st.integers(1, 10**12), min_size=1, max_size=5),
    st.sampled_from([1, 1, 3, 1000]),
    st.sampled_from(["agrees", "agrees", "unchecked"]),
    st.sampled_from([True, True, True, False, None]),
    st.sampled_from(
        [Status.OK, Status.OK, Status.OK, Status.CRASHED, Status.PARITY_FAILED, Status.TIMED_OUT]
    ),
)


@st.composite
def runs_with_records(draw):
    counts = draw(st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True))
    cells = [cell(threads=count) for count in counts]
    records = [
        record(
            launch=launch,
            result=draw(OUTCOMES),
            threads=benchmark_cell.threads,
            minutes=launch + benchmark_cell.threads / 100,
        )
        for launch in range(draw(st.integers(1, 3)))
        for benchmark_cell in cells
    ]
    return run(plan=tuple(cells)), records


def written(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def foreign(**changes):
    """A file as plain pytest-benchmark writes it."""
    benchmark = {
        "group": None,
        "name": "test_sum[10]",
        "fullname": "tests/test_mine.py::test_sum[10]",
        "params": {"n": 10},
        "param": "10",
        "extra_info": {"who": "me"},
        "options": {"timer": "perf_counter"},
        "stats": {"median": 2e-6, "data": [1e-6, 2e-6, 3.25e-6], "iterations": 100, "rounds": 3},
    }
    return {
        "machine_info": {
            "node": "secret-host",
            "machine": "x86_64",
            "system": "Linux",
            "python_implementation": "CPython",
            "python_implementation_version": "3.12.1",
            "cpu": {"brand_raw": "A CPU", "count": 4, "hz_actual": [3_000_000_000, 0]},
        },
        "commit_info": {"id": "abc", "dirty": False, "project": "mine"},
        "benchmarks": [benchmark],
        "datetime": "2026-03-01T12:00:00",
        "version": "5.1.0",
        **changes,
    }


LEFT_OUT = object()


def changed(content, *path):
    """The file's text with the value at the end of this path in its place, or without it."""
    *keys, last, value = path
    place = copied = copy.deepcopy(content)
    for key in keys:
        place = place[key]
    if value is LEFT_OUT:
        del place[last]
    else:
        place[last] = value
    return json.dumps(copied)


DATA = "benchmarks", 0, "stats", "data"


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs_with_records())
def test_a_run_comes_back_whole(tmp_path, run_with_records):
    its_run, records = run_with_records
    text = run_to_pytest_benchmark(its_run, records, None)
    (imported,) = runs_of([files.read(written(tmp_path, text))], "0.1.0")
    assert imported.run == its_run
    assert {repr(stored) for stored in imported.records} == {repr(stored) for stored in records}
    assert (
        run_to_pytest_benchmark(imported.run, sorted(imported.records, key=records.index), None)
        == text
    )
    for benchmark in json.loads(text)["benchmarks"]:
        own = [r for r in records if slug(r.cell) == benchmark["param"]]
        assert all(r.outcome.status is not Status.PARITY_FAILED for r in own)
        assert benchmark["stats"]["data"] == samples_of(counting_records(own))
        medians = [statistics.median(r.outcome.step_seconds()) for r in counting_records(own)]
        assert benchmark["extra_info"]["dlbench"]["launch_medians"] == pytest.approx(medians)


def test_somebodys_benchmark_becomes_a_cell(tmp_path):
    (imported,) = runs_of([files.read(written(tmp_path, foreign()))], "9.9")
    (only,) = imported.records
    assert only.cell == imported_cell("tests/test_mine.py::test_sum[10]")
    assert only.cell.batch_size is None
    unknown = ("device", "precision", "placement", "affinity", "tuning")
    assert {getattr(only.cell, axis) for axis in unknown} == {UNKNOWN}
    assert only.outcome.step_seconds() == pytest.approx([1e-6, 2e-6, 3.25e-6], rel=1e-12)
    assert only.outcome.steps_per_sample == 100
    assert only.outcome.parity.verdict == "unchecked"
    assert only.started == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert only.interpreter == "CPython 3.12.1"
    assert imported.run.finished is not None
    assert "secret-host" not in json.dumps(
        [imported.machine, only.to_dict(), imported.run.to_dict()]
    )


def test_somebodys_benchmark_goes_out_as_it_came_in(tmp_path):
    given_file = foreign()
    (imported,) = runs_of([files.read(written(tmp_path, given_file))], "9.9")
    out = json.loads(run_to_pytest_benchmark(imported.run, imported.records, imported.machine))
    assert "dlbench" not in out
    assert out["commit_info"] == given_file["commit_info"]
    assert out["machine_info"] == {**given_file["machine_info"], "node": ""}
    (before,), (after,) = given_file["benchmarks"], out["benchmarks"]
    assert {k: v for k, v in after.items() if k != "stats"} == {
        k: v for k, v in before.items() if k != "stats"
    }
    assert after["stats"]["data"] == pytest.approx(before["stats"]["data"], rel=1e-12)
    assert after["stats"]["iterations"] == 100
    again = runs_of([files.read(written(tmp_path, out))], "9.9")[0]
    assert [r.outcome.samples_ns for r in again.records] == [
        r.outcome.samples_ns for r in imported.records
    ]
    assert again.run.machine == imported.run.machine


def test_files_are_runs_of_their_own_or_launches_of_one(tmp_path):
    dates = [f"2026-03-0{day}T12:00:00+00:00" for day in (3, 2, 1)]
    read = [files.read(written(tmp_path, foreign(datetime=date))) for date in dates]
    assert [len(imported.records) for imported in runs_of(read, "9.9")] == [1, 1, 1]
    (joined,) = runs_of(read, "9.9", one_run=True)
    assert [launch.launch for launch in joined.records] == [0, 1, 2]
    assert [launch.started.day for launch in joined.records] == [1, 2, 3]
    with pytest.raises(BenchmarkFileError, match="given twice"):
        runs_of([read[0], read[0]], "9.9")


def test_files_of_several_commits_are_not_launches_of_one_run(tmp_path):
    def of_commit(day: int, name: str):
        info = {"id": name, "branch": "main", "dirty": False}
        return files.read(
            written(tmp_path, foreign(datetime=f"2026-03-0{day}T12:00:00+00:00", commit_info=info))
        )

    first, second, nameless = (
        of_commit(1, 40 * "a"),
        of_commit(2, 40 * "b"),
        of_commit(3, "unversioned"),
    )
    with pytest.raises(
        BenchmarkFileError, match=r"different commits, b{10} \(main\) and a{10} \(main\), so not"
    ):
        runs_of([first, second], "9.9", one_run=True)
    assert [len(imported.records) for imported in runs_of([first, second], "9.9")] == [1, 1]
    again = of_commit(4, 40 * "a")
    (joined,) = runs_of([first, again, nameless], "9.9", one_run=True)
    assert len(joined.records) == 3


def test_a_file_without_samples_is_a_median_with_its_spread(tmp_path):
    content = json.loads(changed(foreign(), *DATA, LEFT_OUT))
    content["benchmarks"][0]["stats"] |= {"rounds": 3, "iqr": 1e-6, "stddev": math.nan, "min": 1e-6}
    (imported,) = runs_of([files.read(written(tmp_path, content))], "9.9")
    (only,) = imported.records
    assert only.outcome.samples_ns == []
    assert only.outcome.statistics == SampleStatistics(
        3, 2e-6, minimum=1e-6, interquartile_range=1e-6
    )
    assert only.outcome.median_seconds() == 2e-6
    assert Record.from_dict(only.to_dict()) == only


def test_cells_without_samples_have_a_median_and_an_interval_from_three_launches_on(tmp_path):
    """The independent figure: Student's t over the logarithms of the three medians."""
    medians = [2.0e-6, 2.1e-6, 2.2e-6]
    read = []
    for number, median in enumerate(medians):
        content = json.loads(changed(foreign(), *DATA, LEFT_OUT))
        content["benchmarks"][0]["stats"]["median"] = median
        content["datetime"] = f"2026-03-0{number + 1}T12:00:00+00:00"
        read.append(files.read(written(tmp_path, content)))
    (run_of_two,) = runs_of(read[:2], "9.9", one_run=True)
    (cell_of_two,) = build_matrix(Results(run_of_two.records)).cells.values()
    assert (cell_of_two.seconds.median, cell_of_two.seconds.low) == (
        pytest.approx(math.sqrt(4.2) * 1e-6),
        None,
    )
    (run_of_three,) = runs_of(read, "9.9", one_run=True)
    (cell_of_three,) = build_matrix(Results(run_of_three.records)).cells.values()
    logs = [math.log(median) for median in medians]
    half = 4.302653 * statistics.stdev(logs) / math.sqrt(3)
    assert cell_of_three.seconds.high == pytest.approx(
        math.exp(statistics.mean(logs) + half), rel=1e-6
    )
    assert cell_of_three.has(SAMPLES_NOT_KEPT)


def test_processes_of_a_run_are_launches_again_after_a_way_out_and_in(tmp_path):
    read = []
    for launch in range(3):
        content = json.loads(changed(foreign(), *DATA, [1e-6, 2e-6, (3 + launch) * 1e-6]))
        content["datetime"] = f"2026-03-01T12:0{launch}:00+00:00"
        read.append(files.read(written(tmp_path, content)))
    (before,) = runs_of(read, "9.9", one_run=True)
    assert "3 processes" in processes_in_one_list(before.records)
    text = run_to_pytest_benchmark(before.run, before.records, before.machine)
    (after,) = runs_of([files.read(written(tmp_path, text))], "9.9")
    launches = [
        (record.launch, record.started, record.outcome.samples_ns) for record in before.records
    ]
    assert [
        (record.launch, record.started, record.outcome.samples_ns) for record in after.records
    ] == launches
    assert processes_in_one_list(before.records[:1]) == ""


def test_a_file_without_samples_goes_out_as_it_came_in(tmp_path):
    content = json.loads(changed(foreign(), *DATA, LEFT_OUT))
    content["benchmarks"][0]["stats"] |= {"rounds": 3, "ops": 5e5, "outliers": "1;0"}
    (imported,) = runs_of([files.read(written(tmp_path, content))], "9.9")
    out = json.loads(run_to_pytest_benchmark(imported.run, imported.records, imported.machine))
    (benchmark,) = out["benchmarks"]
    given_stats = content["benchmarks"][0]["stats"]
    assert {key: benchmark["stats"][key] for key in given_stats} == given_stats


@pytest.mark.parametrize(
    ("raw", "remedy"),
    [
        (gzip.compress(b"{}"), "gunzip"),
        (lzma.compress(b"{}"), "unxz"),
        (bz2.compress(b"{}"), "bunzip2"),
        ("{}".encode("utf-16"), "UTF-16"),
        (b"\xfe\xff\x00{\x00}", "UTF-16"),
        ("{}".encode("utf-16-le"), "UTF-16"),
        ("{}".encode("utf-16-be"), "UTF-16"),
        ("{}".encode("utf-32"), "UTF-32"),
        (b"PK\x03\x04...", "zip archive"),
        (b"SQLite format 3\0", "it is a store"),
        (b"\xff{}", "not text in UTF-8"),
    ],
    ids=[
        "gzip",
        "xz",
        "bzip2",
        "utf-16",
        "utf-16-be",
        "no-mark-le",
        "no-mark-be",
        "utf-32",
        "zip",
        "sqlite",
        "latin-1",
    ],
)
def test_a_file_in_another_form_is_recognised(tmp_path, raw, remedy):
    path = tmp_path / "file.json"
    path.write_bytes(raw)
    with pytest.raises(BenchmarkFileError, match=remedy):
        files.read(path)


def test_numbers_that_are_not_finite_are_refused_in_times_only(tmp_path):
    content = foreign()
    content["benchmarks"][0] |= {
        "params": {"x": math.nan},
        "extra_info": {"speed": math.inf, "more": [-math.inf]},
    }
    as_a_file = files.read(written(tmp_path, content))
    as_content = files.accept("content", copy.deepcopy(content))
    for file in (as_a_file, as_content):
        (imported,) = runs_of([file], "9.9")
        benchmark = imported.records[0].outcome.software["pytest_benchmark"]
        assert (benchmark["params"], benchmark["extra_info"]) == (
            {"x": "nan"},
            {"speed": "inf", "more": ["-inf"]},
        )
        json.dumps(imported.records[0].to_dict(), allow_nan=False)


def test_copies_of_a_file_count_once(tmp_path):
    original = foreign()
    copied = json.dumps(original, indent=7, sort_keys=True)
    later = json.loads(changed(foreign(), "datetime", "2026-03-02T12:00:00+00:00"))
    read = []
    for number, content in enumerate((json.dumps(original), copied, json.dumps(later))):
        path = tmp_path / f"{number}.json"
        path.write_text(content, encoding="utf-8")
        read.append(files.read(path))
    distinct, (sentence,) = files.without_copies(read)
    assert [file.name for file in distinct] == [read[0].name, read[2].name]
    assert read[1].name in sentence
    with pytest.raises(BenchmarkFileError, match="given twice"):
        runs_of(read, "9.9", one_run=True)


def of_session(path, seconds, minute=0, second=0, samples=True):
    """Write a file of benchmarks that took these seconds each, by name, and read it."""
    benchmarks = []
    for name, median in seconds.items():
        data = [median * factor for factor in (0.9, 1.0, 1.3)]
        spread = {"min": data[0], "max": data[2], "mean": sum(data) / 3, "stddev": median / 5}
        stats = {"median": median, "iterations": 1, "rounds": 3, **spread} | (
            {"data": data} if samples else {}
        )
        benchmarks.append({"name": name, "fullname": f"test_it.py::{name}", "stats": stats})
    content = foreign(benchmarks=benchmarks, datetime=f"2026-03-01T12:{minute:02}:{second:02}")
    path.write_text(json.dumps(content), encoding="utf-8")
    return files.read(path)


def test_a_session_saved_with_samples_and_without_them_counts_once(tmp_path):
    bare = of_session(tmp_path / "bare.json", {"a": 1e-3}, samples=False)
    with_samples = of_session(tmp_path / "whole.json", {"a": 1e-3}, second=1)
    distinct, (sentence,) = files.without_copies([bare, with_samples])
    assert distinct == [with_samples]
    assert (
        sentence == f"{bare.name} is left out: it has the same measurements as {with_samples.name}."
    )


def test_a_part_of_a_session_counts_once(tmp_path):
    first = of_session(tmp_path / "one.json", {"a": 1e-3, "b": 2e-3})
    more = of_session(tmp_path / "more.json", {"b": 2e-3, "c": 3e-3})
    distinct, (sentence,) = files.without_copies([first, more])
    assert [[benchmark.name for benchmark in file.benchmarks] for file in distinct] == [
        ["a", "b"],
        ["c"],
    ]
    assert sentence == (
        f"{more.name} repeats measurements of {first.name}, which count once: 1 benchmark left out."
    )


def test_sessions_that_measured_anything_else_are_no_copies(tmp_path):
    first = of_session(tmp_path / "first.json", {"a": 1e-3, "b": 2e-3})
    other_sessions = [
        of_session(tmp_path / "later.json", {"a": 1e-3, "b": 2e-3}, minute=10),
        of_session(tmp_path / "slower.json", {"a": 1e-3, "b": 2.1e-3}),
    ]
    assert files.without_copies([first, *other_sessions]) == ([first, *other_sessions], [])


def test_records_that_a_store_holds_are_not_read_again(tmp_path):
    (stored,) = runs_of(
        [of_session(tmp_path / "bare.json", {"a": 1e-3, "b": 2e-3}, samples=False)], "9.9"
    )
    (again,) = runs_of(
        [of_session(tmp_path / "again.json", {"a": 1e-3, "c": 3e-3}, second=2)], "9.9"
    )
    (later,) = runs_of([of_session(tmp_path / "later.json", {"a": 1e-3}, minute=10)], "9.9")
    assert files.may_repeat(again.run, stored.run)
    assert not files.may_repeat(later.run, stored.run)
    new_part = files.without_stored(again, stored.records)
    assert [record.cell.network for record in new_part.records] == ["test_it.py::c"]
    assert [cell.network for cell in new_part.run.plan] == ["test_it.py::c"]
    assert files.without_stored(later, stored.records) == later


def test_a_machine_keeps_its_fingerprint_over_versions_and_an_unknown_one_has_none():
    system = {"machine": "x86_64", "system": "Linux"}
    facts = {"count": 8, "family": 6, "model": 142, "stepping": 10}
    new = {
        "brand_raw": "A CPU",
        "vendor_id_raw": "GenuineIntel",
        "arch_string_raw": "x86_64",
        **facts,
    }
    old = {
        "brand": "A CPU",
        "vendor_id": "GenuineIntel",
        "raw_arch_string": "x86_64",
        "hardware": "",
        **facts,
    }
    assert fingerprint_of({**system, "processor": "x86_64", "cpu": new}) == fingerprint_of(
        {**system, "cpu": old}
    )
    assert fingerprint_of({**system, "cpu": {**new, "count": 4}}) != fingerprint_of(
        {**system, "cpu": new}
    )
    undescribed = (
        {},
        system,
        {**system, "cpu": {}},
        {**system, "cpu": {"brand": "unknown", "vendor_id": "unknown"}},
    )
    assert {fingerprint_of(info) for info in undescribed} == {UNKNOWN_MACHINE}


def test_two_unknown_machines_are_compared_without_a_verdict(tmp_path):
    sides = []
    for number, factor in enumerate((1, 2)):
        content = json.loads(changed(foreign(), "machine_info", {}))
        for launch in range(3):
            content["datetime"] = f"2026-03-0{number + 1}T12:0{launch}:00+00:00"
            content["benchmarks"][0]["stats"]["data"] = [
                factor * seconds * 1e-6 for seconds in (1, 2, 3 + launch)
            ]
            sides.append(files.read(written(tmp_path, content)))
    (before,) = runs_of(sides[:3], "9.9", one_run=True)
    (after,) = runs_of(sides[3:], "9.9", one_run=True)
    (only,) = compare_runs(
        before.records, after.records, {}, {"baseline": "a", "candidate": "b"}
    ).cells
    assert only.judgement.ratio.value == pytest.approx(2)
    assert only.verdict is Verdict.COMPARISON


def test_one_cpu_that_two_versions_describe_differently_is_not_called_two_machines(tmp_path):
    sides, hosts = [], {}
    for number, cpu in enumerate(
        ({"brand": "A CPU", "vendor_id": "A"}, {"brand_raw": "A CPU", "count": 4})
    ):
        content = foreign(datetime=f"2026-03-0{number + 1}T12:00:00+00:00")
        content["machine_info"]["cpu"] = cpu
        (imported,) = runs_of([files.read(written(tmp_path, content))], "9.9")
        sides.append(imported.records)
        hosts[imported.run.machine] = read_host(imported.run.machine, imported.machine)
    comparison = compare_runs(*sides, hosts, {"baseline": "a", "candidate": "b"})
    assert comparison.cells[0].verdict is Verdict.COMPARISON
    assert comparison.notes[0].startswith(
        "Both sides name the same CPU, and describe the machine differently"
    )


def test_times_below_the_resolution_of_the_clock_have_no_ratio(tmp_path):
    sides = []
    for number, seconds in enumerate((0.0, 2e-9)):
        for launch in range(3):
            content = json.loads(changed(foreign(), *DATA, [seconds] * 3))
            content["benchmarks"][0]["stats"] |= {"median": seconds, "iterations": 1}
            content["datetime"] = f"2026-03-0{number + 1}T12:0{launch}:00+00:00"
            sides.append(files.read(written(tmp_path, content)))
    (before,) = runs_of(sides[:3], "9.9", one_run=True)
    (after,) = runs_of(sides[3:], "9.9", one_run=True)
    comparison = compare_runs(
        before.records, after.records, {}, {"baseline": "a", "candidate": "b"}
    )
    assert comparison.cells[0].verdict is Verdict.HOLE
    assert comparison.geometric_mean is None
    (cell,) = build_matrix(Results(before.records)).cells.values()
    assert (cell.seconds, cell.reason) == (None, TOO_SHORT)


def test_samples_of_which_one_is_zero_show_the_ticks_of_the_clock(tmp_path):
    coarse = changed(foreign(), *DATA, [0.0, 0.0156, 0.0156])
    (imported,) = runs_of([files.read(written(tmp_path, coarse))], "9.9")
    assert imported.records[0].outcome.median_seconds() is None
    content = foreign()
    content["benchmarks"][0]["stats"] = {"median": 0.0156, "min": 0.0, "rounds": 3, "iterations": 1}
    (imported,) = runs_of([files.read(written(tmp_path, content))], "9.9")
    assert imported.records[0].outcome.median_seconds() is None
    assert Outcome(Status.OK, samples_ns=[40, 80, 80]).median_seconds() is not None


def test_a_long_name_keeps_its_beginning_and_its_parameters():
    name = f"tests/{'deep/' * 300}test_a.py::test_it[first-{'x' * 100}-last]"
    short = clean_name(name)
    assert len(short) <= 128
    assert short.startswith("tests/deep/")
    assert short.endswith("-last]")
    assert clean_name(name.replace("first", "other")) != short
    assert imported_cell("t" * 300).network == "t" * 300


def test_of_a_test_that_was_run_again_the_last_attempt_counts(tmp_path):
    # As pytest-rerunfailures has it: the first attempt failed after it was measured.
    (first,) = foreign()["benchmarks"]
    other_test = {**first, "fullname": "tests/test_mine.py::test_other"}
    last = {**first, "stats": {"median": 5e-6, "data": [5e-6], "iterations": 1}}
    file = files.read(written(tmp_path, foreign(benchmarks=[first, other_test, last])))
    (imported,) = runs_of([file], "9.9")
    seconds = {stored.cell.network: stored.outcome.step_seconds() for stored in imported.records}
    assert seconds["tests/test_mine.py::test_sum[10]"] == pytest.approx([5e-6])
    assert seconds["tests/test_mine.py::test_other"] == pytest.approx([1e-6, 2e-6, 3.25e-6])
    assert files.repetition_of(file) == (
        f"{file.name} holds a benchmark more than once, as after a rerun; the last one counts: "
        "tests/test_mine.py::test_sum[10]."
    )
    assert files.repetition_of(files.read(written(tmp_path, foreign()))) == ""


def test_parts_of_a_run_in_several_files_are_put_together(tmp_path):
    records = [record(threads=count, minutes=count) for count in (1, 2, 3)]
    its_run = run(plan=tuple(stored.cell for stored in records))
    parts = (run_to_pytest_benchmark(its_run, part, None) for part in (records[:2], records[1:]))
    read = [files.read(written(tmp_path, part)) for part in parts]
    (joined,) = runs_of(read, "9.9")
    assert list(joined.records) == records
    changed = run_to_pytest_benchmark(its_run, [record([5.0], threads=1, minutes=1)], None)
    with pytest.raises(BenchmarkFileError, match="differs"):
        runs_of([*read, files.read(written(tmp_path, changed))], "9.9")


# Refused files.


@cache
def own_text():
    machine = probe()
    records = [record(launch=launch, machine=machine.fingerprint) for launch in range(2)]
    return run_to_pytest_benchmark(run(machine=machine.fingerprint), records, machine.to_dict())


def own():
    return json.loads(own_text())


THEIRS = "benchmarks", 0, "extra_info", "dlbench"
FIRST = *THEIRS, "records", 0
DEEP = json.loads("[" * 200 + "]" * 200)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "it is empty"),
        ('{"benchmarks": [', "it may be cut off"),
        ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
        ("[" * 100_000, "nested too deeply"),
        (
            changed(foreign(), *DATA, [1.0, math.nan]),
            "test_sum[10]: stats.data.1: Input should be a finite number",
        ),
        (
            changed(foreign(), *DATA, [7.25]).replace("7.25", "1e999"),
            "stats.data.0: Input should be a finite number",
        ),
        (
            changed(foreign(), *DATA, [1.0, -1.0]),
            "data.1: Input should be greater than or equal to 0",
        ),
        (changed(foreign(), *DATA, [True]), "data.0: Input should be a valid number"),
        (
            changed(foreign(), "benchmarks", 0, "fullname", "\ud800"),
            "fullname: Input should be a valid string",
        ),
        (changed(foreign(), "benchmarks", 0, "extra_info", "x", DEEP), "levels deep"),
        (changed(foreign(), "datetime", "0001-01-01T00:00:00+23:00"), "datetime"),
        (changed(own(), *DATA, 0, 1.5), "one of the two was changed"),
        (changed(own(), *FIRST, "outcome", "samples_ns", 0, -1), "is out of range"),
        (changed(own(), *FIRST, "interpreter", "\x1b[31m"), "cannot be printed"),
        (changed(own(), *FIRST, "environment", "x" * 200), "too long"),
        (changed(own(), *FIRST, "cell", "threads", 2), "several cells"),
        (changed(own(), *FIRST, "run", "another"), "not of the file's own run"),
        (changed(own(), *FIRST, "started", "2026-03-01T12:00:00"), "no time zone"),
        (changed(own(), *FIRST, "schema", 99), "schema version 99"),
        (changed(own(), *FIRST, "outcome", LEFT_OUT), "outcome: Field required"),
        (changed(own(), *THEIRS, "timed", [7]), "which records were timed"),
        (changed(own(), "dlbench", "run", None), "A run carries no schema version"),
        (
            changed(own(), "dlbench", "machine", "cpu", "model", "Another"),
            "differs from the one its run names",
        ),
    ],
    # Whole files would make names that differ from one process to the next: they hold the machine's
    # present clock rate.
    ids=lambda value: value if len(value) < 70 else "file",
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, text, part):
    path = written(tmp_path, text)
    with pytest.raises(BenchmarkFileError) as caught:
        runs_of([files.read(path)], "9.9")
    message = str(caught.value)
    assert part in message
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 330
    assert caught.value.exit_code == 2


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.truncate(files.LARGEST_FILE + 1)
    with pytest.raises(BenchmarkFileError, match="larger than 500 MB"):
        files.read(path)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["ok", "2026-01-01", 10**30, -1]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


@pytest.mark.parametrize("content", [foreign(), own()], ids=["foreign", "own"])
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_stands_anywhere_it_is_read_or_refused(tmp_path, content, data):
    place = data.draw(st.sampled_from([place for place in places(content) if place]))
    text = changed(content, *place, data.draw(ANYTHING))
    runs = []
    with contextlib.suppress(BenchmarkFileError):
        runs = runs_of([files.read(written(tmp_path, text))], "9.9")
    for imported in runs:
        json.dumps(imported.run.to_dict(), allow_nan=False)
        run_to_pytest_benchmark(imported.run, imported.records, imported.machine)

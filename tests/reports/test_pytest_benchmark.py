"""Runs as files of pytest-benchmark and back: nothing is lost, nothing in a file is trusted."""

import json
import statistics
from datetime import UTC, datetime

import pytest
from benchmark_files import DATA, foreign, runs_with_records, without, written
from exported import exporter
from factory_of_records import MACHINE, contention, hole, outcome, parity, record, run, threads
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples
from pytest_benchmark.stats import Stats

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.curve.threads import curves
from dlbench.reports.naming import slug
from dlbench.reports.pytest_benchmark import imported as files
from dlbench.reports.pytest_benchmark.export import (
    counted,
    failure,
    iterations_of,
    run_to_pytest_benchmark,
    samples_of,
    stats,
)
from dlbench.reports.pytest_benchmark.imported import FileError, medians_of, runs_of
from dlbench.reports.storage.results import Results
from dlbench.reports.tables import tables

SECONDS = st.floats(min_value=1e-7, max_value=1e4)


@examples(60)
@given(st.lists(SECONDS, min_size=1, max_size=30))
def test_statistics_are_those_of_pytest_benchmark(data):
    theirs = Stats()
    for value in data:
        theirs.update(value)
    ours, expected = stats(data), theirs.as_dict()
    assert ours["data"] == data
    assert set(expected) <= set(ours)
    for name, value in expected.items():
        if name in ("outliers", "iqr_outliers", "stddev_outliers"):
            continue  # counts at a limit: a last bit decides
        assert ours[name] == pytest.approx(value, rel=1e-9, abs=1e-12 * max(data)), name


def test_outliers_are_counted_as_pytest_benchmark_does():
    data = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 5.0, 0.2]
    theirs = Stats()
    for value in data:
        theirs.update(value)
    assert stats(data)["outliers"] == theirs.outliers


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs_with_records())
def test_a_run_comes_back_whole(tmp_path, made):
    its_run, records = made
    text = run_to_pytest_benchmark(its_run, records, None)
    (imported,) = runs_of([files.read(written(tmp_path, text))], "0.1.0")
    assert imported.run == its_run
    assert {repr(each) for each in imported.records} == {repr(each) for each in records}
    assert run_to_pytest_benchmark(imported.run, sorted(imported.records, key=records.index), None) == text
    for benchmark in json.loads(text)["benchmarks"]:
        own = [r for r in records if slug(r.cell) == benchmark["param"]]
        assert all(r.outcome.status is not Status.PARITY_FAILED for r in own)
        assert benchmark["stats"]["data"] == samples_of(counted(own))
        medians = [statistics.median(r.outcome.step_seconds()) for r in counted(own)]
        assert benchmark["extra_info"]["dlbench"]["launch_medians"] == pytest.approx(medians)


def test_what_a_number_rests_on_goes_with_it():
    busy = outcome([1.0] * 3, 2, threads=threads(2, 3.0, cpu_per_wall=1.0), contention=contention(steal_seconds=3.0))
    records = [record(result=busy, threads=2, machine="m"), hole(Status.UNSUPPORTED, "no GPU", threads=4, machine="m")]
    content = json.loads(run_to_pytest_benchmark(run(machine="m"), records, None))
    (benchmark,) = content["benchmarks"]
    told = benchmark["extra_info"]["dlbench"]
    assert told["status"] == "ok"
    assert told["parity"]["verdict"] == "agrees"
    assert told["threads_evidence"]["requested"] == 2
    assert told["threads_evidence"]["cpu_per_wall"] == pytest.approx(1.0)
    assert "contended" in {flag["name"] for flag in told["flags"]}
    (left,) = content["dlbench"]["holes"]
    assert (left["outcome"]["status"], left["outcome"]["reason"]) == ("unsupported", "no GPU")


@pytest.mark.parametrize(
    ("results", "status", "said"),
    [
        ([outcome(), outcome()], Status.OK, ""),
        ([outcome(), outcome(status=Status.CRASHED, reason="ended by\nsignal 11")], Status.CRASHED, "ended by signal"),
        ([outcome(status=Status.OUT_OF_MEMORY, reason="MemoryError")], Status.OUT_OF_MEMORY, "out of memory: Mem"),
        (
            [outcome(), outcome(status=Status.PARITY_FAILED, parity=parity("disagrees", "off"))],
            Status.PARITY_FAILED,
            "off",
        ),
        ([outcome(final_loss_finite=False)], Status.PARITY_FAILED, "not finite"),
        ([outcome(status=Status.SKIPPED, reason="not built", samples_ns=[])], Status.SKIPPED, "skipped: not built"),
    ],
)
def test_the_worst_launch_speaks_for_its_cell(results, status, said):
    found, reason = failure([record(result=each, launch=launch) for launch, each in enumerate(results)])
    assert found is status
    assert said in reason
    assert "\n" not in reason


def test_samples_of_several_steps_are_a_steps_where_launches_differ():
    records = [record(result=outcome(samples_ns=[900], steps_per_sample=steps), launch=steps) for steps in (3, 9)]
    assert iterations_of(records) == 1
    assert samples_of(records) == pytest.approx([300e-9, 100e-9])
    assert iterations_of(records[:1]) == 3


def test_somebodys_benchmark_becomes_a_cell(tmp_path):
    (imported,) = runs_of([files.read(written(tmp_path, foreign()))], "9.9")
    (only,) = imported.records
    assert only.cell == Cell(
        "pytest-benchmark", "imported", "imported", "tests/test_mine.py::test_sum[10]", "cpu", threads=0, batch_size=1
    )
    assert only.outcome.step_seconds() == pytest.approx([1e-6, 2e-6, 3.25e-6], rel=1e-12)
    assert only.outcome.steps_per_sample == 100
    assert only.outcome.parity.verdict == "unchecked"
    assert only.started == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert only.interpreter == "CPython 3.12.1"
    assert imported.run.finished is not None
    assert "secret-host" not in json.dumps([imported.machine, only.to_dict(), imported.run.to_dict()])


def test_somebodys_benchmark_goes_out_as_it_came_in(tmp_path):
    given_file = foreign()
    (imported,) = runs_of([files.read(written(tmp_path, given_file))], "9.9")
    out = json.loads(run_to_pytest_benchmark(imported.run, imported.records, imported.machine))
    assert "dlbench" not in out
    assert out["commit_info"] == given_file["commit_info"]
    assert out["machine_info"] == {**given_file["machine_info"], "node": ""}
    (before,), (after,) = given_file["benchmarks"], out["benchmarks"]
    assert {k: v for k, v in after.items() if k != "stats"} == {k: v for k, v in before.items() if k != "stats"}
    assert after["stats"]["data"] == pytest.approx(before["stats"]["data"], rel=1e-12)
    assert after["stats"]["iterations"] == 100
    again = runs_of([files.read(written(tmp_path, out))], "9.9")[0]
    assert [r.outcome.samples_ns for r in again.records] == [r.outcome.samples_ns for r in imported.records]
    assert again.run.machine == imported.run.machine


def test_a_machine_keeps_its_fingerprint_from_file_to_file(tmp_path):
    one, other = foreign(), foreign()
    other["machine_info"] |= {"node": "elsewhere", "release": "6.9"}
    other["machine_info"]["cpu"] = {**one["machine_info"]["cpu"], "hz_actual": [1, 0]}
    assert files.fingerprint_of(one["machine_info"]) == files.fingerprint_of(other["machine_info"])
    other["machine_info"]["cpu"] = {**one["machine_info"]["cpu"], "brand_raw": "Another CPU"}
    assert files.fingerprint_of(one["machine_info"]) != files.fingerprint_of(other["machine_info"])


def three_files(tmp_path):
    made = []
    for number in range(3):
        content = foreign(datetime=f"2026-03-0{3 - number}T12:00:00+00:00")
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(content))
        made.append(files.read(path))
    return made


def test_files_are_runs_of_their_own_or_launches_of_one(tmp_path):
    read = three_files(tmp_path)
    assert [len(each.records) for each in runs_of(read, "9.9")] == [1, 1, 1]
    (joined,) = runs_of(read, "9.9", one_run=True)
    assert [each.launch for each in joined.records] == [0, 1, 2]
    assert [each.started.day for each in joined.records] == [1, 2, 3]
    with pytest.raises(FileError, match="given twice"):
        runs_of([read[0], read[0]], "9.9")


def test_launches_of_one_run_are_of_one_machine(tmp_path):
    read = three_files(tmp_path)
    content = foreign()
    content["machine_info"]["cpu"]["brand_raw"] = "Another CPU"
    read.append(files.read(written(tmp_path, content)))
    with pytest.raises(FileError, match="different machines"):
        runs_of(read, "9.9", one_run=True)


def test_reports_stand_imported_benchmarks(tmp_path):
    content = foreign()
    content["benchmarks"][0]["fullname"] = "tests/[red]x[/]\n\x1b[31m & _%$" + "y" * 300
    (imported,) = runs_of([files.read(written(tmp_path, content))], "9.9")
    assert len(imported.records[0].cell.network) <= 128
    assert imported.records[0].cell.network.isprintable()
    results = Results(imported.records, {})
    matrix = build_matrix(results)
    for shown in (
        lambda: exporter("matrix", "terminal")(matrix, "seconds", colour=True),
        lambda: exporter("matrix", "markdown")(matrix, "seconds"),
        lambda: exporter("matrix", "latex")(matrix, "gflops"),
        lambda: exporter("matrix", "csv")(matrix),
        lambda: exporter("threads", "terminal")(curves(matrix), colour=False),
        lambda: exporter("tables", "terminal")(tables(results), colour=False),
    ):
        assert shown()


def test_saved_without_samples_it_serves_as_a_baseline_only(tmp_path):
    path = written(tmp_path, without(foreign(), *DATA))
    assert medians_of([files.read(path)]) == {"tests/test_mine.py::test_sum[10]": [2e-6]}
    with pytest.raises(FileError, match="--benchmark-save-data"):
        runs_of([files.read(path)], "9.9")


def test_a_million_samples_are_read(tmp_path):
    content = foreign()
    content["benchmarks"][0]["stats"]["data"] = [1e-3 + 1e-9 * number for number in range(1_000_000)]
    (imported,) = runs_of([files.read(written(tmp_path, content))], "9.9")
    assert imported.records[0].outcome.samples_ns[-1] == round((1e-3 + 1e-9 * 999_999) * 100 * 1e9)


def test_parts_of_a_run_in_several_files_are_put_together(tmp_path):
    whole = [record(threads=count, minutes=count) for count in (1, 2, 3)]
    its_run = run(plan=tuple(each.cell for each in whole))
    read = []
    for number, part in enumerate((whole[:2], whole[1:])):
        path = tmp_path / f"{number}.json"
        path.write_text(run_to_pytest_benchmark(its_run, part, None))
        read.append(files.read(path))
    (joined,) = runs_of(read, "9.9")
    assert list(joined.records) == whole
    changed = run_to_pytest_benchmark(its_run, [record([5.0], threads=1, minutes=1)], None)
    with pytest.raises(FileError, match="differs"):
        runs_of([*read, files.read(written(tmp_path, changed))], "9.9")


def test_a_machine_that_nobody_described_is_no_obstacle():
    content = json.loads(run_to_pytest_benchmark(run(), [record()], None))
    assert content["machine_info"]["dlbench"] == {"fingerprint": MACHINE}

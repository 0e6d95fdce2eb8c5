"""Runs as files of pytest-benchmark and back: nothing is lost, nothing in a file is trusted."""

import json
import statistics
from datetime import UTC, datetime

import pytest
from benchmark_files import DATA, foreign, runs_with_records, without, written
from factory_of_records import record, run
from hypothesis import HealthCheck, given
from properties import examples

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.naming import slug
from dlbench.reports.pytest_benchmark import imported as files
from dlbench.reports.pytest_benchmark.export import counted, run_to_pytest_benchmark, samples_of
from dlbench.reports.pytest_benchmark.imported import FileError, runs_of


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


def test_somebodys_benchmark_becomes_a_cell(tmp_path):
    (imported,) = runs_of([files.read(written(tmp_path, foreign()))], "9.9")
    (only,) = imported.records
    assert only.cell == Cell(
        "pytest-benchmark", "imported", "imported", "tests/test_mine.py::test_sum[10]", "cpu", threads=0, batch_size=0
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


def test_saved_without_samples_it_serves_as_a_baseline_only(tmp_path):
    path = written(tmp_path, without(foreign(), *DATA))
    assert [each.stats.median for each in files.read(path).foreign] == [2e-6]
    with pytest.raises(FileError, match="--benchmark-save-data"):
        runs_of([files.read(path)], "9.9")


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

"""`dlbench export` and `dlbench import`: runs leave and come back, bad files change nothing."""

import itertools
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import command_server
import factory_of_records as make
import pytest
from processes import PATIENCE, null_cell

from dlbench.hardware_probe import probe
from dlbench.reports.results.storage.store import Store


def fill(name, run_id="run-1", days=0):
    """Make a store with one run: two cells of two launches."""
    machine, started = probe(), make.START + timedelta(days=days)
    cells = [null_cell(threads=threads) for threads in (1, 2)]
    with Store.open(name) as store:
        store.add_machine(machine.fingerprint, machine.to_dict())
        store.begin_run(
            make.run(id=run_id, started=started, plan=tuple(cells), machine=machine.fingerprint)
        )
        for launch, cell in itertools.product(range(2), cells):
            seconds, minutes = [1.0 + launch, 1.1, 0.9], 24 * 60 * days + launch
            fields = {
                "run": run_id,
                "machine": machine.fingerprint,
                "minutes": minutes,
                **cell._asdict(),
            }
            store.append(make.record(seconds, launch, **fields))


def test_pytest_benchmark_reads_what_was_exported(command):
    for number in (1, 2):
        fill("here.sqlite", f"run-{number}", days=number)
        Path(f"{number}.json").write_text(
            command("export", "--store", "here.sqlite", "--run", f"run-{number}")[1]
        )
    compare = [
        sys.executable,
        "-m",
        "pytest_benchmark",
        "compare",
        "1.json",
        "2.json",
        "--columns=median,rounds",
    ]
    output = subprocess.run(compare, capture_output=True, text=True, check=True).stdout
    assert "fcn5, mini-batch 64" in output
    assert all(f"dlbench[fcn5-b64-null-null-cpu-1] ({number})" in output for number in (1, 2))


def test_a_bad_file_makes_no_store_and_a_good_one_does_not_change_what_is_known_of_a_machine(
    command,
):
    fill("here.sqlite")
    text = json.loads(command("export", "--store", "here.sqlite")[1])
    text["dlbench"]["machine"]["memory"]["available_bytes"] = 1
    text = json.dumps(text).replace("run-1", "run-2")
    Path("run.json").write_text(text)
    Path("bad.json").write_text("{")
    assert command("import", "bad.json", "--store", "new.sqlite")[0] == 2
    assert not Path("new.sqlite").exists()
    assert command("import", "run.json", "--store", "here.sqlite")[0] == 0
    with Store.open("here.sqlite", create=False) as store:
        assert [run.id for run in store.runs()] == ["run-1", "run-2"]
        assert store.machine(probe().fingerprint)["memory"]["available_bytes"] > 1


def test_files_of_plain_pytest_benchmark_are_reported_and_given_back(command):
    Path("test_mine.py").write_text(
        "def test_sum(benchmark): benchmark.pedantic(sum, args=([1],), rounds=7, iterations=3)"
    )
    # Not as part of these tests, which may be spread over processes: pytest-benchmark would measure
    # nothing.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    for number in (1, 2):
        words = (
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            "--benchmark-json",
            f"{number}.json",
        )
        assert command_server.call(words, Path.cwd(), alone, Path.cwd(), PATIENCE, "pytest") == 0
    code, _, errors = command("import", "1.json", "2.json", "--one-run", "--store", "s.sqlite")
    assert code == 0
    assert "2 records" in errors
    code, matrix, _ = command("report", "matrix", "--store", "s.sqlite")
    assert code == 0
    assert "test_mine.py::test_sum" in matrix
    assert "pytest-benchmark imported" in matrix
    back = json.loads(command("export", "--store", "s.sqlite")[1])
    data = [
        json.loads(Path(f"{number}.json").read_text())["benchmarks"][0]["stats"]["data"]
        for number in (1, 2)
    ]
    assert back["benchmarks"][0]["stats"]["data"] == pytest.approx([*data[0], *data[1]], abs=0.5e-9)
    assert back["benchmarks"][0]["stats"]["iterations"] == 3

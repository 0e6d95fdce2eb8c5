"""`dlbench history --quantity`: nights of memory and other quantities than time."""

import json
from datetime import timedelta
from pathlib import Path

import factory_of_records as factory
import pytest
from processes import run_command

from dlbench.reports.results.record import Record
from dlbench.reports.results.storage.store import Store

NIGHTS, MORE_FROM = 16, 9
USUAL_BYTES, MORE_BYTES = 1_000_000_000, 1_100_000_000


def night(number: int) -> list[Record]:
    """Three launches that take as long every night, and more memory from `MORE_FROM` on."""
    peak = MORE_BYTES if number >= MORE_FROM else USUAL_BYTES
    records = []
    for launch in range(3):
        seconds = [0.1 + 0.0001 * ((7 * number + 3 * launch) % 5)] * 5
        outcome = factory.outcome(seconds, peak_memory_bytes=peak + 1000 * launch + 100 * number)
        records.append(
            factory.record(
                run=f"run-{number:02d}",
                launch=launch,
                result=outcome,
                minutes=24 * 60 * number + launch,
            )
        )
    return records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "dlbench.sqlite") as store:
        store.add_machine(factory.MACHINE, factory.MACHINE_DICT)
        runs = []
        for number in range(NIGHTS):
            started = factory.START + timedelta(days=number)
            run = factory.run(id=f"run-{number:02d}", started=started, finished=started)
            runs.append((run, night(number)))
        store.append_runs(runs)
    return tmp_path


def test_more_memory_is_found_where_the_time_stays(folder: Path) -> None:
    times = run_command(folder, "history")
    assert times.returncode == 0, times.stderr
    assert "No change point of 2.5 %" in times.stdout
    memory = run_command(folder, "history", "--quantity", "memory", "--all")
    assert memory.returncode == 0, memory.stderr
    assert memory.stdout.startswith("Peak memory: 16 nights")
    assert "10.0 % more" in memory.stdout
    assert "slower" not in memory.stdout
    assert " MiB" in memory.stdout


def test_json_names_the_quantity_and_the_night(folder: Path) -> None:
    done = run_command(folder, "history", "--quantity", "memory", "--json")
    answer = json.loads(done.stdout)
    assert answer["quantity"] == "memory"
    ((change,),) = [cell["changes"] for cell in answer["cells"]]
    assert change["run"] == f"run-{MORE_FROM:02d}"
    assert change["direction"] == "more"
    assert change["ratio"] == pytest.approx(1.1, rel=1e-3)


def test_an_unknown_quantity_is_refused_with_the_nearest(folder: Path) -> None:
    done = run_command(folder, "history", "--quantity", "memroy")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "There is no quantity named 'memroy'" in line
    assert "memory" in line.partition("memroy")[2]

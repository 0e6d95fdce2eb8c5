"""`dlbench history` where there is no history yet, and of real runs; what it prints is kept in `characterisation`."""

import json

import pytest
from processes import run_command, suite_of_null

from dlbench.reports.storage.store import Store


def test_a_store_that_is_empty_has_no_history(command, tmp_path):
    Store.open(tmp_path / "empty.sqlite").close()
    code, _, complaints = command("history", "--store", "empty.sqlite")
    assert code == 2
    assert "holds no measured run yet" in complaints


@pytest.mark.slow
def test_runs_of_the_null_framework_make_a_history(tmp_path):
    (tmp_path / "mine.toml").write_text(suite_of_null(step_seconds=0.01, protocol={"cell_seconds": 100.0}))
    for _ in range(2):
        done = run_command(tmp_path, "run", "mine.toml", "--no-ceilings")
        assert done.returncode == 0, done.stderr
    told = json.loads(run_command(tmp_path, "history", "--json", "--all").stdout)
    (of_null,) = told["cells"]
    assert (of_null["framework"], of_null["kind"], len(of_null["nights"])) == ("null", "absolute", 2)
    assert all(0.005 < night["value"] < 0.1 for night in of_null["nights"])

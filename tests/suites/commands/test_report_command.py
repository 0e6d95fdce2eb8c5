"""What `dlbench report` asks of the catalogue: release dates, successors; and Figure 1 from run to picture."""

import json
from datetime import UTC, date, datetime

import pytest
from processes import run_command

from dlbench.suites.planning import suite
from dlbench.suites.planning.framework import catalogue, release_dates


def test_every_release_has_a_date_in_the_past_and_stands_after_the_first_one():
    dates = release_dates()
    assert {folder for folder, _ in dates} >= {"pytorch", "tensorflow", "mxnet", "onnxruntime"}
    for framework in catalogue().values():
        for release in framework.project.releases if framework.project else ():
            assert release.date <= datetime.now(UTC).date()
            assert dates[framework.folder, release.version] == release.date
            first = framework.project.first_release or date.min
            assert first <= release.date


@pytest.mark.slow
def test_figure_1_of_the_null_framework_from_run_to_picture(tmp_path):
    narrowed = ("--devices", "cpu", "--frameworks", "null", "--networks", "lstm32", "--steps", "20", "--no-ceilings")
    done = run_command(tmp_path, "run", "figure1", *narrowed)
    assert done.returncode == 0, done.stderr
    done = run_command(tmp_path, "report", "figure1", "--json", "--plot", "figure1.png")
    assert done.returncode == 0, done.stderr
    (panel,) = json.loads(done.stdout)["panels"]
    (line,) = panel["lines"]
    assert [point["batch_size"] for point in line["points"]] == list(suite.load("figure1").cpu_batch_sizes["lstm32"])
    # How fast each size was is this machine's affair at that moment; what follows from it is not.
    speeds = {point["batch_size"]: point["items_per_second"] for point in line["points"] if point["takes_part"]}
    fastest = [line["best_batch_size"], *line["as_fast"]]
    assert max(speeds, key=speeds.__getitem__) in fastest
    assert line["best_batch_size"] == min(fastest)
    assert (tmp_path / "figure1.png").read_bytes().startswith(b"\x89PNG")

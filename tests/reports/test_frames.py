"""`dlbench.launches` and `dlbench.cells` agree with the matrix, and notebooks can show them."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import dlbench
from dlbench.adapters import axes
from dlbench.reports.frames import CELLS, LAUNCHES
from dlbench.reports.matrix import matrix_cells
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.results import Results
from dlbench.suites.commands.stores import export_command
from dlbench.suites.errors import UsageError

STORES = Path(__file__).parents[1] / "goldens" / "stores"
CPU, GATES = STORES / "cpu.sqlite.xz", STORES / "gates.sqlite.xz"


def test_cells_agree_with_the_json_of_the_matrix() -> None:
    done = matrix_cells(build_matrix(Results.read([CPU], newest=True)))
    frame = dlbench.cells(CPU)
    assert list(frame.columns) == list(CELLS)
    assert len(frame) == len(done) > 20
    for row, cell in zip(frame.to_dict("records"), done, strict=True):
        seconds = cell["seconds_per_minibatch"] or {}
        for name in (
            "machine",
            "machine_name",
            *axes.NAMES,
            "status",
            "reason",
            "best",
            "run",
            "environment",
        ):
            assert row[name] == cell[name], name
        numbers = {
            "seconds": seconds.get("median"),
            "low": seconds.get("low"),
            "high": seconds.get("high"),
            "launches": seconds.get("launches"),
            "steps": seconds.get("samples"),
        }
        for name in ("items_per_second", "gflops", "ceiling_fraction", "peak_memory_bytes"):
            numbers[name] = cell[name]
        for name, value in numbers.items():
            assert row[name] == pytest.approx(math.nan if value is None else value, nan_ok=True)
        assert row["flags"].split() == [flag["name"] for flag in cell["flags"]]


def test_cells_are_the_launches_grouped_by_machine_and_axes() -> None:
    launches, cells = dlbench.launches(CPU), dlbench.cells(CPU)
    assert list(launches.columns) == list(LAUNCHES)
    assert launches["started"].is_monotonic_increasing
    keys = ["machine", *axes.NAMES]
    timed = launches[launches["seconds"].notna()].assign(log=lambda frame: np.log(frame["seconds"]))
    timed = timed.groupby(keys)["log"].agg(["size", "mean"]).reset_index()
    joined = cells[cells["seconds"].notna()].merge(timed, on=keys)
    assert len(joined) == cells["seconds"].notna().sum()
    assert (joined["size"] == joined["launches"]).all()
    several = joined[joined["launches"] >= 3]
    assert len(several) > 0
    assert np.allclose(np.log(several["seconds"]), several["mean"])
    assert (launches["first_step_seconds"].dropna() > 0).all()


def test_launches_are_narrowed_to_axes_and_runs() -> None:
    launches = dlbench.launches(CPU)
    network = launches["network"].iloc[0]
    narrowed = dlbench.launches([CPU], network=network)
    assert 0 < len(narrowed) == (launches["network"] == network).sum() < len(launches)
    assert len(dlbench.launches(CPU, all_runs=True)) >= len(launches)
    with pytest.warns(UserWarning, match="No stored cell has the framework 'nonesuch'"):
        assert len(dlbench.cells(CPU, framework="nonesuch")) == 0
    run = Results.read([GATES]).comparisons[0]
    assert set(dlbench.launches(GATES, run=run)["side"]) == {"baseline", "candidate"}
    latest = dlbench.launches(GATES, run="latest")
    (name,) = set(latest["run"])
    assert name == max(Results.read([GATES]).comparisons)
    assert set(dlbench.launches(GATES, run=name[:-2])["started"]) == set(latest["started"])
    with pytest.raises(ReportError, match="no axis 'colour'"):
        dlbench.cells(CPU, colour="red")


def test_export_writes_the_launches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export_command(form="csv", store_file=str(CPU))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ",".join(LAUNCHES)
    assert len(lines) == 1 + len(dlbench.launches(CPU))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    with pytest.raises(UsageError, match="pyarrow"):
        export_command(form="parquet", store_file=str(CPU))


def test_the_first_columns_identify_a_row_and_give_its_seconds() -> None:
    """A notebook hides the columns in the middle: it shows ten at each end."""
    for frame in (dlbench.cells(CPU), dlbench.launches(CPU)):
        first = list(frame.columns[:10])
        assert first[:5] == ["network", "framework", "mode", "device", "threads"]
        assert "seconds" in first
        assert {"machine_name", "run"} <= set(frame.columns[-10:])
        assert "<td>" in frame._repr_html_()


def test_frames_name_their_runs_machines_and_units_and_hold_no_samples() -> None:
    for frame in (dlbench.cells(CPU), dlbench.launches(CPU)):
        assert frame.attrs["runs"] == sorted(set(frame["run"]))
        assert frame.attrs["machines"] == dict(
            zip(frame["machine"], frame["machine_name"], strict=True)
        )
        units = frame.attrs["units"]
        assert set(units) <= set(frame.columns)
        timed = [name for name in frame.columns if name.endswith(("seconds", "_bytes", "joules"))]
        assert set(timed) <= set(units)
        assert json.loads(json.dumps(frame.attrs)) == frame.attrs
        nested = frame.map(lambda value: isinstance(value, list | tuple | dict | np.ndarray))
        assert not nested.any().any()

"""`dlbench report progress`, `figure1` and `matrix --against`, as called: on a store with a build that a user named."""

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from known_networks import NETWORKS
from processes import run_command

from dlbench.adapters.protocol import Cell, Outcome, Parity, Protocol, Status
from dlbench.hardware_probe import probe
from dlbench.reports.against import shi2016
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store
from dlbench.suites.planning import lineage, suite
from dlbench.suites.planning.framework import catalogue

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FORMATS = ("terminal", "markdown", "latex", "csv", "json")


@pytest.fixture
def call(command):
    """Give a function that runs `dlbench report` in an empty folder: exit code, output, complaints."""
    return partial(command, "report")


def locked(name: str) -> str:
    """Return the version that a framework's folder gives a release date for."""
    project = catalogue()[name].project
    assert project is not None
    return project.releases[0].version


# Row, adapter, mode, what the framework says its version is, seconds of an fcn5 step.
def builds() -> list[tuple[str, str, str, str, float]]:
    return [
        ("torch", "pytorch", "eager", locked("torch") + "+cpu", 0.5),
        ("torch-nightly", "pytorch", "eager", "2.14.0.dev20261010", 0.25),
        ("mxnet", "mxnet", "hybrid", locked("mxnet"), 1.0),
        ("tensorflow", "tensorflow", "function", locked("tensorflow"), 0.4),
    ]


def fill(name: str) -> None:
    """Make a store with three launches of fcn5 at one thread in each build."""
    machine = probe()
    cells = [
        Cell(row, adapter, mode, "fcn5", "cpu", 1, NETWORKS["fcn5"].batch_size) for row, adapter, mode, *_ in builds()
    ]
    run = Run("run-1", "mine", Protocol(), 3, tuple(cells), machine.fingerprint, START, "0.1.0", START, 7)
    parity = Parity("agrees", "", [10.0], 1e-7, 1e-4, "fc1.weight", 1e-5, 2e-2, 0.1)
    records = [
        Record(
            run=run.id,
            suite=run.suite,
            launch=launch,
            cell=cell,
            outcome=Outcome(
                Status.OK,
                samples_ns=[round(seconds * factor * 1e9)] * 5,
                parity=parity,
                parameter_count=118_000_000,
                software={"version": version},
                gemm_flops_per_second=2e11,
            ),
            machine=run.machine,
            environment=cell.framework,
            interpreter="CPython 3.11.7",
            protocol=Protocol(),
            started=START + timedelta(seconds=place + 10 * launch),
            wall_seconds=1.0,
            version="0.1.0",
        )
        for launch, factor in enumerate((0.99, 1.0, 1.01))
        for place, (cell, (*_, version, seconds)) in enumerate(zip(cells, builds(), strict=True))
    ]
    with Store.open(name) as store:
        store.add_machine(machine.fingerprint, machine.to_dict())
        store.append_all(records, run)


def test_progress_dates_each_build_by_its_adapter_and_version(call):
    fill("s.sqlite")
    code, out, _ = call("progress", "--store", "s.sqlite", "--json")
    (ranking,) = json.loads(out)["rankings"]
    assert code == 0
    got = {cell["framework"]: cell for cell in ranking["frameworks"]}
    # MXNet's release of 2022 is the oldest; the nightly build has its date in its version.
    assert list(got) == ["mxnet", "tensorflow", "torch", "torch-nightly"]
    assert got["mxnet"]["oldest"]
    assert got["torch"]["released"] == catalogue()["torch"].project.releases[0].date.isoformat()
    assert got["torch-nightly"]["released"] == "2026-10-10"
    assert got["torch"]["speedup"]["value"] == pytest.approx(2.0)
    assert got["torch-nightly"]["speedup"]["value"] == pytest.approx(4.0)
    (summary,) = json.loads(out)["summary"]
    assert (summary["oldest"]["framework"], summary["newest"]["framework"]) == ("mxnet", "torch-nightly")


def test_against_the_paper_pytorch_stands_for_torch(call):
    fill("s.sqlite")
    code, out, _ = call("matrix", "--against", "shi2016", "--store", "s.sqlite", "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert {(line["framework_then"], line["framework"]) for line in lines} == {
        ("tensorflow", "tensorflow"),
        ("torch", "torch"),
        ("torch", "torch-nightly"),
    }
    (line,) = [x for x in lines if x["framework"] == "torch-nightly" and "i7-3820" in x["machine_then"]]
    # Torch's fcn5 on one core of the desktop took 1.227 s in the paper.
    assert float(line["speedup"]) == pytest.approx(1.227 / 0.25, rel=1e-3)
    assert float(line["per_peak.low"]) < float(line["per_peak.high"]) < float(line["speedup"])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "words",
    [
        ("progress",),
        ("progress", "--all-modes"),
        ("figure1",),
        ("figure1", "--quantity", "items"),
        ("matrix", "--against", "shi2016"),
    ],
)
def test_each_format_comes_out(call, form, words):
    fill("s.sqlite")
    code, out, errors = call(*words, "--store", "s.sqlite", "--format", form)
    assert (code, errors) == (0, "")
    assert "torch-nightly" in out
    if form == "terminal":
        assert max(map(len, out.splitlines())) <= 80
    if words[0] == "matrix":
        assert "do not read it as progress of the software" in " ".join(out.split())


def test_the_plot_is_written_beside_the_table(call):
    fill("s.sqlite")
    code, out, said = call("progress", "--store", "s.sqlite", "--plot", "p.png")
    assert code == 0
    assert "mxnet hybrid" in out
    assert "Drawn: p.png" in said
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["matrix", "--against", "shi2061"], "Did you mean 'shi2016'?"),
        (["matrix", "--against", "shi2016", "--quantity", "gflops"], "without --quantity"),
        (["matrix", "--against", "shi2016", "--reference", "shi2016"], "without --reference"),
        (["matrix", "--all-modes"], "--all-modes goes with --against"),
        (["progress", "--plot", "p.pdf"], "PNG or SVG"),
        (["figure1", "--plot", "p.pdf"], "PNG or SVG"),
        (["figure1", "--quantity", "gflops"], "choose one of seconds, items"),
        (["progress", "--format", "jsn"], "Did you mean 'json'?"),
        (["progress", "--run", "none"], "matches --run none"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_writes_nothing(call, words, part):
    fill("s.sqlite")
    code, out, errors = call(*words, "--store", "s.sqlite")
    assert (code, out) == (2, "")
    (line,) = errors.splitlines()
    assert part in line
    assert [entry.name for entry in Path.cwd().iterdir()] == ["s.sqlite"]


def test_every_release_has_a_date_in_the_past_and_stands_after_the_first_one():
    dates = lineage.release_dates()
    assert {folder for folder, _ in dates} >= {"pytorch", "tensorflow", "mxnet", "onnxruntime"}
    for framework in catalogue().values():
        for release in framework.project.releases if framework.project else ():
            assert release.date <= datetime.now(UTC).date()
            assert dates[framework.folder, release.version] == release.date
            first = framework.project.first_release or date.min
            assert first <= release.date


@pytest.mark.parametrize("name", ["torch", "tensorflow", "mxnet", "onnxruntime"])
def test_the_dated_version_is_the_locked_one(name):
    framework = catalogue()[name]
    pins = framework.lock_file.read_text().replace("\\", " ").split()
    assert any(pin.endswith(f"=={locked(name)}") for pin in pins)


def test_each_framework_of_the_paper_has_somebody_to_stand_for_it_or_a_reason():
    stands = lineage.stands_for_2016()
    assert set(stands) == set(shi2016.FRAMEWORKS)
    assert stands["torch"] == ("pytorch", "PyTorch", "")
    assert stands["tensorflow"].adapter == "tensorflow"
    for stand in stands.values():
        assert bool(stand.adapter) is not bool(stand.missing)


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

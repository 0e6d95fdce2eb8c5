"""The recipes for a nightly job, carried out for real with the null framework."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_nvml import TWINS, stand_in
from processes import PATIENCE, suite_of_null

import dlbench.suites
from dlbench.reports.storage.store import Store

yaml = pytest.importorskip("yaml", reason="PyYAML reads the workflow file")

RECIPES = Path(next(iter(dlbench.suites.__path__))) / "recipes"
SUITE = suite_of_null("nightly", 0.001, protocol={"steps": 5})
PROOF = str(RECIPES / "gpu-proof.sh")
SLOWER = "--candidate-env DLBENCH_EXTRA_PRODUCTS=1x20000"


@pytest.fixture
def night(tmp_path):
    """Return a folder with a suite, and the variables of a nightly job in it."""
    (tmp_path / "nightly.toml").write_text(SUITE)
    command = tmp_path / "dlbench"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dlbench.suites "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DLBENCH_", "PYTEST_"))}
    own = {"DLBENCH": str(command), "SUITE": "nightly.toml", "DLBENCH_HOME": str(tmp_path / "home")}
    return tmp_path, {**kept, **own, "TMPDIR": str(tmp_path)}


def shell(script: str, folder: Path, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a step as the runner of a workflow does."""
    given = {"cwd": folder, "env": variables, "stdin": subprocess.DEVNULL, "timeout": 5 * PATIENCE}
    return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], capture_output=True, text=True, **given)


def carry_out(folder: Path, variables: dict[str, str], options: str) -> tuple[dict[str, int], list[str]]:
    """Carry out the workflow's steps; return the exit codes by name, and what it would have uploaded."""
    job = yaml.safe_load((RECIPES / "github-nightly.yml").read_text())["jobs"]["gate"]
    summary = folder / "summary.md"
    settings = {**job["env"], **variables, "OPTIONS": options, "GITHUB_STEP_SUMMARY": str(summary), "CANDIDATE": "true"}
    settings["DLBENCH_STORE"] = job["env"]["DLBENCH_STORE"]
    codes: dict[str, int] = {}
    uploaded: list[str] = []
    for step in job["steps"]:
        failed = any(codes.values())
        if failed and "cancelled" not in step.get("if", ""):
            continue
        if "run" in step:
            codes[step["name"]] = shell(step["run"], folder, settings).returncode
        elif step["uses"].startswith("actions/upload-artifact"):
            uploaded = [line for line in step["with"]["path"].split() if (folder / line).exists()]
        elif step["uses"].startswith("actions/cache/save"):
            for kept in step["with"]["path"].split():
                assert (folder / kept).exists(), f"no {kept} to keep for the next night"
    return codes, uploaded


@pytest.mark.slow
def test_the_workflow_gates_reports_and_keeps_its_store_from_night_to_night(night) -> None:
    folder, variables = night
    codes, uploaded = carry_out(folder, variables, "--same")
    assert set(codes.values()) == {0}
    assert {"gate.md", "gate.xml", "gate.json", "history.md", "site", ".dlbench/nightly.sqlite"} <= set(uploaded)
    codes, uploaded = carry_out(folder, variables, SLOWER)
    assert codes["Gate"] == 1
    assert codes["History"] == 0, "the report is shown although the gate failed"
    assert "REGRESSION" in (folder / "summary.md").read_text()
    assert json.loads((folder / "gate.json").read_text())["cells"][0]["verdict"] == "REGRESSION"
    assert ElementTree.parse(folder / "gate.xml").getroot().get("failures") == "1"
    assert "fcn5, mini-batch 64, null, 1 thread: slower" in (folder / "site" / "feed.xml").read_text()
    with Store.open(folder / ".dlbench/nightly.sqlite", create=False) as store:
        assert [run.purpose for run in store.runs()] == ["gate", "gate"]


@pytest.mark.slow
def test_the_script_reports_a_regression_and_ends_as_the_gate_does(night) -> None:
    folder, variables = night
    settings = {**variables, "FOLDER": str(folder / "nights"), "SUITE": str(folder / "nightly.toml")}
    script = shlex.quote(str(RECIPES / "nightly.sh"))
    quiet = shell(script, folder, {**settings, "OPTIONS": "--same"})
    assert (quiet.returncode, quiet.stdout) == (0, ""), quiet.stderr
    loud = shell(script, folder, {**settings, "OPTIONS": SLOWER, "ON_REGRESSION": "tee regression.txt"})
    assert loud.returncode == 1, loud.stderr
    assert "REGRESSION" in loud.stdout
    assert "REGRESSION" in (folder / "regression.txt").read_text()
    broken = shell(script, folder, {**settings, "SUITE": "no-such-suite", "OPTIONS": "--same"})
    assert broken.returncode == 2
    assert "no suite named" in broken.stderr
    index = (folder / "nights" / "site" / "index.html").read_text()
    assert index.count('href="runs/') >= 2
    reports = {path.name for path in (folder / "nights").rglob("*.txt")}
    assert {"doctor.txt", "gate.txt", "history.txt", "log.txt"} <= reports


def test_a_second_night_does_not_begin_while_the_first_runs(night) -> None:
    folder, variables = night
    nights = folder / "nights"
    nights.mkdir()
    settings = {**variables, "FOLDER": str(nights), "OPTIONS": "--same"}
    holding = f"exec 8> {shlex.quote(str(nights / 'lock'))}; flock 8; {shlex.quote(str(RECIPES / 'nightly.sh'))}"
    done = shell(holding, folder, settings)
    assert done.returncode == 2
    assert "still running" in done.stderr


@pytest.mark.slow
def test_the_proof_on_a_gpu_leaves_every_part_of_it(night):
    folder, variables = night
    variables = {**variables, "DLBENCH_NVML": stand_in(folder, TWINS), "ROWS": "null", "DEVICES": "cuda:0"}
    parts = ["machine", "placements", "workers", "figure1", "explain", "reports"]
    done = shell(shlex.join(["bash", PROOF, *parts]), folder, variables)
    logs = {path.name: path.read_text() for path in (folder / "gpu-proof").glob("*.log")}
    assert done.returncode == 0, (done.stderr, logs)
    assert [line.removeprefix("gpu-proof: ") for line in done.stderr.splitlines()] == parts
    with Store.open(folder / "gpu-proof" / "results.sqlite", create=False) as store:
        cells = {record.cell for record in store.records()}
    assert {cell.device for cell in cells} == {"cuda:0"}
    assert {cell.world_size for cell in cells} == {1, 2}
    assert {cell.placement for cell in cells} == {"resident", "pinned", "pageable"}
    assert (folder / "gpu-proof" / "figure1.png").read_bytes().startswith(b"\x89PNG")
    reports = ("matrix.json", "figure1-report.txt", "scaling.txt", "ceilings.txt")
    for name in ("machine.txt", "explain-resnet50.txt", *reports):
        assert (folder / "gpu-proof" / name).read_text().strip(), name

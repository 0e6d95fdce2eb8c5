"""The command that measures a cell again: read by the command line, it means that cell and no other."""

import json
import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dlbench.adapters.protocol import BOUND, Cell
from dlbench.reports.storage.networks import specification_of_cells
from dlbench.suites.cli import build_app
from dlbench.suites.planning.suite import load, rerun_by_name, rerun_command

cells = st.builds(
    lambda **given: Cell(adapter="", mode="null", framework="null", device="cpu", **given),
    network=st.sampled_from(["fcn5", "lstm32"]),
    threads=st.sampled_from([1, 2, 4]),
    batch_size=st.sampled_from([8, 64]),
    world_size=st.sampled_from([1, 2]),
    affinity=st.sampled_from(["oversubscribed", BOUND]),
).filter(lambda cell: cell.affinity != BOUND or cell.all_threads == 1)  # however few CPUs there are


def planned(command: str) -> list[dict[str, Any]]:
    words = shlex.split(command)
    assert words[:2] == ["dlbench", "run"]
    done = CliRunner().invoke(build_app("plan"), ["plan", *words[2:], "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["cells"]


@given(cells)
def test_the_command_plans_the_cell_alone(cell: Cell) -> None:
    (only,) = planned(rerun_command(cell, "table4", launches=3))
    for axis, value in cell._asdict().items():
        if axis in only and axis not in ("adapter", "specification"):
            assert only[axis] == value, axis


@given(cells, st.sampled_from(["threads", "scaling", "tuning", "figure1"]))
def test_what_the_suite_has_otherwise_is_said(cell: Cell, suite: str) -> None:
    if cell.network == "fcn5" and cell.world_size == 1:
        (only,) = planned(rerun_command(cell, suite))
        assert (only["tuning"], only["affinity"], only["device"]) == (cell.tuning, cell.affinity, cell.device)


def test_a_cell_of_the_claims_is_measured_by_a_suite_that_has_its_network() -> None:
    for network in ("fcn5", "resnet50"):
        cell = Cell("null", "", "null", network, "cpu", 2, 16)
        (only,) = planned(rerun_by_name(cell, "claims", 3))
        assert (only["network"], only["threads"], only["batch_size"]) == (network, 2, 16)
    paper = load("rnn2017")
    name = paper.its_networks[0]
    cell = Cell("null", "", "null", name, "cpu", 1, 64, specification=specification_of_cells(paper.known[name]))
    (only,) = planned(rerun_by_name(cell, "claims", 3))
    assert only["network"] == name


def test_a_row_of_the_users_own_names_the_option_that_brings_it() -> None:
    torch = Cell("torch-nightly", "pytorch", "eager", "fcn5", "cpu", 2, 64)
    assert rerun_by_name(torch, "quick", 1).endswith(" --python torch-nightly:torch=PATH")
    assert rerun_by_name(torch._replace(framework="mine", adapter="mine"), "quick", 1).endswith(" --adapter mine=PATH")
    assert "PATH" not in rerun_by_name(torch._replace(framework="torch"), "quick", 1)
    assert rerun_by_name(torch._replace(framework="pytest-benchmark"), "pytest-benchmark", 1) == ""

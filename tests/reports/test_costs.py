"""What a step costs beside its time: quantities of launches, energy, break-even, and the report on
them."""

import json
from collections.abc import Sequence
from typing import Any

import factory_of_records as make
import pytest
from exported import exporters

from dlbench.reports.costs import REPORT, choices, costs
from dlbench.reports.formats.export import export
from dlbench.reports.matrix import matrix_page, matrix_rows
from dlbench.reports.ratio.frameworks import frameworks
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.outcome import CpuEnergy, HostObservation
from dlbench.reports.results.quantities import in_quantity
from dlbench.reports.results.record import Record

SPREAD = (0.99, 1.0, 1.01)
REFUSED = "only root may read the energy counter of package-0"


def rows_of(
    step: float,
    parts: Sequence[float] = (1.0, 2.0, 3.0),
    memory: int = 1000,
    energy: CpuEnergy | None = None,
    **of_cell: Any,
) -> list[Record]:
    """Return three launches of so many seconds a step, for import, building and the first step, and
    MiB."""
    records = []
    for launch, factor in enumerate(SPREAD):
        times = dict(
            zip(("import_seconds", "prepare_seconds", "first_step_seconds"), parts, strict=True)
        )
        outside = HostObservation(5 * step * factor + 0.5, 1.0, energy=energy)
        outcome = make.outcome(
            [step * factor] * 5, peak_memory_bytes=memory * 2**20, outside=outside
        )
        outcome = outcome._replace(**{name: factor * value for name, value in times.items()})
        records.append(make.record(result=outcome, launch=launch, **of_cell))
    return records


EAGER = rows_of(0.10, memory=900)
COMPILED = rows_of(0.08, (2.0, 3.0, 25.0), memory=1200, mode="compile")
JAX = rows_of(0.09, (1.0, 1.0, 15.0), memory=2000, framework="jax", mode="jit")


def by_row(matrix: Matrix) -> dict[str, CellResult]:
    return {cell.row.mode: cell for cell in matrix.cells.values()}


def test_a_start_is_import_building_and_first_step() -> None:
    cell = by_row(make.matrix(*EAGER))["eager"]
    start = cell.measured["start"]
    assert start.median == pytest.approx(6.0, rel=1e-3)
    assert [
        cell.measured[name].median for name in ("import", "prepare", "first_step")
    ] == pytest.approx([1.0, 2.0, 3.0], rel=1e-3)
    assert cell.measured["memory"].median == pytest.approx(900)
    assert "gpu_memory" not in cell.measured
    unknown = [make.record(result=make.outcome(prepare_seconds=None))]
    assert "start" not in by_row(make.matrix(*unknown))["eager"].measured


def test_joules_are_those_of_the_packages_in_the_time_of_a_step() -> None:
    energy = CpuEnergy({"package-0": 20.0, "package-1": 20.0})
    cell = by_row(make.matrix(*rows_of(0.1, energy=energy)))["eager"]
    # 40 J in the second between the marks, of which the steps are a half.
    assert cell.measured["cpu_joules"].median == pytest.approx(4.0, rel=0.01)
    assert not cell.unmeasured


@pytest.mark.parametrize(
    ("energy", "why"), [(CpuEnergy(None, REFUSED), REFUSED), (None, "before dlbench read")]
)
def test_energy_that_was_not_measured_is_never_zero_and_has_its_reason(
    energy: CpuEnergy | None, why: str
) -> None:
    matrix = make.matrix(*rows_of(0.1, energy=energy))
    assert why in by_row(matrix)["eager"].unmeasured["cpu_joules"]
    page = matrix_page(matrix, "cpu_joules")
    assert [entry.plain for entry in page.tables[0].rows[1]][1:] == ["-"]
    assert any("not measured" in line and why in line for line in page.after)
    (line,) = matrix_rows(matrix).lines
    assert line["costs"]["cpu_joules"] is None


def test_a_mode_has_made_up_for_its_start_after_the_steps_in_which_it_gained_it_back() -> None:
    cells = by_row(make.matrix(*EAGER, *COMPILED, *JAX))
    even = cells["compile"].break_even
    assert even is not None
    assert even.high is not None
    assert even.steps == pytest.approx(1 + 24 / 0.02, rel=1e-3)
    assert (even.low or 0) < 1201 < even.high
    # The one that starts first has nothing to make up for, and that of another framework is no
    # rival.
    assert cells["eager"].break_even is None
    assert cells["jit"].break_even is None


def chosen(matrix: Matrix) -> dict[str, list[list[str]]]:
    all_choices = choices(costs(matrix))
    modes = {}
    for choice in all_choices:
        framework = choice.at.framework
        modes[framework] = [[cell.row.mode for cell in rows] for rows in choice.rows.values()]
    return modes


def test_the_mode_to_take_depends_on_the_number_of_steps() -> None:
    assert chosen(make.matrix(*EAGER, *COMPILED, *JAX)) == {
        "torch": [["eager"], ["eager"], ["compile"]],
        "": [["eager"], ["eager", "jit"], ["compile"]],
    }
    # Of one row alone there is nothing to choose.
    assert chosen(make.matrix(*JAX)) == {}


def test_the_report_marks_the_least_memory_and_every_format_has_it() -> None:
    matrix = make.matrix(*EAGER, *COMPILED, *JAX)
    all_costs = costs(matrix)
    (place,) = all_costs.rows
    assert [cost.cell.row.mode for cost in place if "memory" in cost.least] == ["eager"]
    written = {form: write(all_costs) for form, write in exporters("costs").items()}
    assert "*900" in written["terminal"].replace("±1%", "")
    assert "torch eager or jax jit" in written["markdown"]
    data = json.loads(export(REPORT, all_costs, ReportOptions(), "json"))
    rows = {row["mode"]: row for row in data["cells"]}
    assert rows["compile"]["break_even"]["steps"] == pytest.approx(1201, rel=1e-3)
    after = rows["eager"]["seconds_of_1000_steps"]
    assert after["value"] == pytest.approx(6.0 + 99.9, rel=1e-3)
    assert after["low"] < after["value"] < after["high"]
    assert [choice["framework"] for choice in data["choices"]] == ["torch", None]
    assert "energy" in " ".join(data["notes"])


def test_ratios_of_another_quantity_compare_that_quantity() -> None:
    matrix = make.matrix(*EAGER, *JAX)
    (means,) = frameworks(in_quantity(matrix, "memory")).rows
    ratios = {mean.row.framework: mean.ratio.value for mean in means}
    assert ratios["jax"] / ratios["torch"] == pytest.approx(2000 / 900)
    nothing = frameworks(in_quantity(matrix, "cpu_joules"))
    assert nothing.rows == ()

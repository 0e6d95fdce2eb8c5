"""The table of axes, and that everybody follows it: names, JSON, the store, adapters."""

import json

import factory_of_records as make
import pytest

from dlbench.adapters import axes
from dlbench.adapters.base import COMMON_AXES, Adapter
from dlbench.adapters.protocol import Cell, to_dict
from dlbench.reports.matrix import matrix_cells
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.naming import name_of, slug, work_name
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage.store import Store

USUAL = make.cell()
UNUSUAL = {
    axis.name: next(value for value in axis.order if value != axis.usual)
    for axis in axes.AXES
    if axis.order
}
OPTIONAL = [axis for axis in axes.AXES if axis.usual is not None]


def changed(axis: axes.Axis) -> Cell:
    """Return the usual cell with another value of this axis."""
    value = getattr(USUAL, axis.name)
    if axis.name in UNUSUAL:
        new_value = UNUSUAL[axis.name]
    elif isinstance(value, int | float):
        new_value = value + 1
    else:
        new_value = f"{value}other"
    return USUAL._replace(**{axis.name: new_value})


def test_every_field_of_a_cell_but_the_adapters_folder_is_an_axis() -> None:
    assert set(axes.NAMES) == set(Cell._fields) - {"adapter"}
    assert all(axis.usual == Cell._field_defaults[axis.name] for axis in OPTIONAL)
    assert {axis.name for axis in OPTIONAL} == set(Cell._field_defaults)


@pytest.mark.parametrize("axis", axes.AXES, ids=lambda axis: axis.name)
def test_cells_that_differ_in_one_axis_are_told_apart_everywhere(axis: axes.Axis) -> None:
    changed_cell = changed(axis)
    assert slug(changed_cell) != slug(USUAL)
    if not axis.goes_with:
        assert name_of(changed_cell) != name_of(USUAL)
    assert axes.values(changed_cell) != axes.values(USUAL)
    assert Cell(**json.loads(json.dumps(to_dict(changed_cell)))) == changed_cell
    if axis.role == axes.WORK and not axis.goes_with:
        assert work_name(changed_cell) != work_name(
            USUAL
        )  # benchmarks of one group may be compared


@pytest.mark.parametrize("axis", axes.AXES, ids=lambda axis: axis.name)
def test_each_axis_has_a_place_in_the_matrix_and_a_key_in_its_json(axis: axes.Axis) -> None:
    records = [make.record([1.0] * 3, **cell._asdict()) for cell in (USUAL, changed(axis))]
    with Store.open("sqlite://") as store:
        for record in records:
            store.append(record)
        matrix = build_matrix(Results.of([store]))
        assert set(store.cells().values()) == {record.cell for record in records}
    assert len(matrix.cells) == 2
    held = {
        axes.WORK: matrix.rows,
        axes.ROW: next(iter(matrix.rows.values())),
        axes.COLUMN: matrix.columns,
    }
    assert len(held[axis.role]) == 2
    values_in_json = {json.dumps(cell[axis.name]) for cell in matrix_cells(matrix)}
    assert len(values_in_json) == 2


def test_an_adapter_refuses_an_axis_that_it_takes_no_notice_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up = axes.Axis("batch_size", axes.WORK, 0)
    monkeypatch.setattr(axes, "AXES", (*axes.AXES, made_up))
    adapter = Adapter(USUAL, {}, "")
    assert (
        adapter.refuses_axes(USUAL)
        == f"batch size {USUAL.batch_size}: this adapter supports only 0"
    )
    adapter.further_axes = ("batch_size",)
    assert adapter.refuses_axes(USUAL) == ""
    assert set(COMMON_AXES) <= {axis.name for axis in OPTIONAL}

"""What host and guest say to each other; the tables of axes and of tuning."""

import json
from typing import Any, Union, get_args, get_origin, get_type_hints

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters import axes, protocol, tuning
from dlbench.adapters.base import ALL_KNOW, Adapter
from dlbench.adapters.protocol import (
    INSTALLED,
    TUNED,
    Cell,
    Launch,
    Outcome,
    Parity,
    Protocol,
    ProtocolError,
    Status,
    cell_from_dict,
    to_dict,
)
from dlbench.reports.cells import build_matrix, values
from dlbench.reports.matrix.data import matrix_cells
from dlbench.reports.naming import group_name, name_of, slug
from dlbench.reports.storage import cell_columns
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store

text = st.text(max_size=12)
real = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | real | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
# Settings and software may hold the names of the contract's own fields.
tables = st.dictionaries(
    text | st.sampled_from(["cell", "threads", "status", "parity", "schema_version"]), plain, max_size=4
)
PLAIN = {
    str: text,
    int: st.integers(0, 10**15),
    float: real,
    bool: st.booleans(),
    type(None): st.none(),
    Status: st.sampled_from(Status),
}


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Give values of a type that the contract's fields have."""
    if hint in PLAIN:
        return PLAIN[hint]
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Union:
        return st.one_of([of(part) for part in parts])
    if kind is list:
        return st.lists(of(parts[0]), max_size=3)
    if kind is dict:
        return tables
    return st.builds(hint, **{name: of(each) for name, each in get_type_hints(hint).items()})


cells, protocols, launches, outcomes = of(Cell), of(Protocol), of(Launch), of(Outcome)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("control")


@given(launches)
def test_a_launch_is_read_as_it_was_written(folder, launch):
    protocol.write_launch(str(folder), launch)
    assert protocol.read_launch(str(folder)) == launch


@given(outcomes)
def test_an_outcome_is_read_as_it_was_written(folder, outcome):
    protocol.write_outcome(str(folder), outcome)
    read = protocol.read_outcome(str(folder))
    assert read == outcome
    assert isinstance(read.status, Status)


GOOD = protocol.to_dict(Outcome(Status.OK, parity=Parity("agrees", "", [1.0], 0.0, 0.0, "w", 1.0, 1.0, 0.1)))


@pytest.mark.parametrize("version", [None, 0, protocol.SCHEMA_VERSION + 1, "1", [1]])
def test_another_schema_version_is_refused(folder, version):
    content = {**GOOD, "schema_version": version}
    if version is None:
        del content["schema_version"]
    (folder / "outcome.json").write_text(json.dumps(content))
    with pytest.raises(ProtocolError, match="schema version"):
        protocol.read_outcome(str(folder))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"colour": "red"}, "unknown keys: colour"),
        ({"parity": {**GOOD["parity"], "colour": "red"}}, "outcome.json.parity has unknown keys: colour"),
        ({"parity": {"verdict": "agrees"}}, "outcome.json.parity"),
        ({"contention": {"steal": 1}}, "outcome.json.contention has unknown keys: steal"),
        ({"status": "well"}, "well"),
        ({"status": None}, "None"),
    ],
)
def test_what_the_contract_does_not_know_is_refused(folder, changes, complaint):
    content = {**GOOD, "schema_version": protocol.SCHEMA_VERSION, **changes}
    (folder / "outcome.json").write_text(json.dumps(content))
    with pytest.raises(ProtocolError) as caught:
        protocol.read_outcome(str(folder))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"3", b"\xff\xfe", b'{"schema_version": 1}'])
def test_what_is_no_outcome_is_refused(folder, content):
    (folder / "outcome.json").write_bytes(content)
    with pytest.raises(ProtocolError):
        protocol.read_outcome(str(folder))


@pytest.mark.parametrize("read", [protocol.cell_from_dict, protocol.outcome_from_dict])
@pytest.mark.parametrize("data", [None, [], "x", {"colour": "red"}])
def test_what_is_no_table_of_the_contract_is_refused(read, data):
    with pytest.raises(ProtocolError):
        read(data)


def test_a_reader_sees_the_old_file_or_the_whole_new_one(tmp_path):
    protocol.write_outcome(str(tmp_path), Outcome(Status.OK, "first"))
    with pytest.raises(TypeError):
        protocol.write_outcome(str(tmp_path), Outcome(Status.OK, software={"a": "b" * 10**6, "c": object()}))
    assert protocol.read_outcome(str(tmp_path)).reason == "first"


USUAL = make.cell()
OTHER = {
    axis.name: (axis.order[0] if axis.order[0] != axis.usual else axis.order[1]) for axis in axes.AXES if axis.order
}
OPTIONAL = [axis for axis in axes.AXES if axis.usual is not None]


def changed(axis: axes.Axis) -> Cell:
    """Return the usual cell with another value of this axis."""
    value = getattr(USUAL, axis.name)
    other = OTHER.get(axis.name, value + 1 if isinstance(value, int) else f"{value}other")
    return USUAL._replace(**{axis.name: other})


def test_every_field_of_a_cell_but_the_adapters_folder_is_an_axis() -> None:
    assert set(axes.NAMES) == set(Cell._fields) - {"adapter"}
    assert all(axis.usual == Cell._field_defaults[axis.name] for axis in OPTIONAL)
    assert {axis.name for axis in OPTIONAL} == set(Cell._field_defaults)


@pytest.mark.parametrize("axis", axes.AXES, ids=lambda axis: axis.name)
def test_cells_that_differ_in_one_axis_are_told_apart_everywhere(axis: axes.Axis) -> None:
    other = changed(axis)
    assert slug(other) != slug(USUAL)
    if not axis.goes_with:
        assert name_of(other) != name_of(USUAL)
    assert values(other) != values(USUAL)
    assert cell_columns.to_columns(other) != cell_columns.to_columns(USUAL)
    assert cell_columns.from_columns(cell_columns.to_columns(other)) == other
    assert cell_from_dict(json.loads(json.dumps(to_dict(other)))) == other
    if axis.role == axes.GROUP and not axis.goes_with:
        assert group_name(other) != group_name(USUAL)  # benchmarks of one group may be compared


@pytest.mark.parametrize("axis", axes.AXES, ids=lambda axis: axis.name)
def test_each_has_a_place_in_the_matrix_and_a_key_in_its_json(axis: axes.Axis) -> None:
    records = [make.record([1.0] * 3, **cell._asdict()) for cell in (USUAL, changed(axis))]
    with Store.open("sqlite://") as store:
        for record in records:
            store.append(record)
        matrix = build_matrix(Results.of([store]))
        assert set(store.cells().values()) == {record.cell for record in records}
    assert len(matrix.cells) == 2
    held = {axes.GROUP: matrix.rows, axes.ROW: next(iter(matrix.rows.values())), axes.COLUMN: matrix.columns}
    assert len(held[axis.role]) == 2
    told = {json.dumps(cell[axis.name]) for cell in matrix_cells(matrix)}
    assert len(told) == 2


def test_an_adapter_refuses_an_axis_that_it_takes_no_notice_of(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = axes.Axis("batch_size", axes.GROUP, 0)
    monkeypatch.setattr(axes, "AXES", (*axes.AXES, made_up))
    adapter = Adapter(USUAL, {}, "")
    assert adapter.refuses_axes(USUAL) == f"batch size {USUAL.batch_size}: this adapter knows the usual value only, 0"
    adapter.further_axes = ("batch_size",)
    assert adapter.refuses_axes(USUAL) == ""
    assert set(ALL_KNOW) <= {axis.name for axis in OPTIONAL}


NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), unique=True, max_size=5)


@given(st.data(), NAMES)
def test_a_choice_is_read_back_from_its_word(data, names):
    chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
    word = tuning.written(chosen, names)
    assert tuning.in_force(word, names) == tuple(name for name in names if name in chosen)
    assert set(tuning.named(word)) <= set(names)


@given(st.data(), NAMES)
def test_of_two_ways_to_say_a_choice_one_is_written(data, names):
    chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
    plus = "".join(f"+{name}" for name in names if name in chosen)
    minus = "".join(f"-{name}" for name in names if name not in chosen)
    words = {tuning.written(tuning.in_force(word, names), names) for word in (INSTALLED + plus, TUNED + minus)}
    assert len(words) == 1


@given(NAMES)
def test_each_is_every_setting_alone_and_left_out_once(names):
    choices = [frozenset(tuning.in_force(word, names)) for word in tuning.each(names)]
    wanted = {frozenset(), frozenset(names)} | {frozenset([name]) for name in names}
    wanted |= {frozenset(names) - {name} for name in names}
    assert len(choices) == len(set(choices))
    assert set(choices) == (wanted if names else set())


@pytest.mark.parametrize("word", ["", "each", "fast", "installed-a", "tuned+a", "installed+", "tuned-A", "tuned-a+b"])
def test_other_words_are_none(word):
    with pytest.raises(ValueError, match=r"installed, tuned, installed\+NAME, tuned-NAME"):
        tuning.named(word)

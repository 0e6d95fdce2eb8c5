"""What host and guest say to each other; the tables of axes and of tuning."""

import json
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters import protocol, tuning
from dlbench.adapters.protocol import (
    Answer,
    Cell,
    Contention,
    Launch,
    Protocol,
    ProtocolError,
    Status,
)

text = st.text(max_size=12)
real = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | real | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
# Settings and software may hold the names of the contract's own fields.
tables = st.dictionaries(
    text | st.sampled_from(["cell", "threads", "status", "parity", "schema_version"]),
    plain,
    max_size=4,
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
    return st.builds(
        hint, **{name: of(type_hint) for name, type_hint in get_type_hints(hint).items()}
    )


cells, protocols, launches, answers = of(Cell), of(Protocol), of(Launch), of(Answer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("control")


@given(launches)
def test_a_launch_is_read_as_it_was_written(folder, launch):
    protocol.write_launch(str(folder), launch)
    assert protocol.read_launch(str(folder)) == launch


@given(answers)
def test_an_answer_is_read_as_it_was_written(folder, answer):
    protocol.write_answer(str(folder), answer)
    read = protocol.read_answer(str(folder))
    assert read == answer
    assert isinstance(read.status, Status)


GOOD = protocol.to_dict(
    Answer(Status.OK, contention=Contention(0.0, 0, 0, 0.0, 0.0, None, None, 0))
)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema_version": protocol.SCHEMA_VERSION + 1}, "schema version"),
        ({"colour": "red"}, "unknown keys: colour"),
        ({"parity": None}, "unknown keys: parity"),
        (
            {"contention": {**GOOD["contention"], "colour": "red"}},
            "outcome.json.contention has unknown keys: colour",
        ),
        ({"contention": {"run_queue_seconds": 1.0}}, "outcome.json.contention"),
        ({"contention": {"steal": 1}}, "outcome.json.contention has unknown keys: steal"),
        ({"status": "well"}, "well"),
    ],
)
def test_unknown_fields_of_an_answer_are_refused(folder, changes, complaint):
    content = {**GOOD, "schema_version": protocol.SCHEMA_VERSION, **changes}
    (folder / "outcome.json").write_text(json.dumps(content))
    with pytest.raises(ProtocolError) as caught:
        protocol.read_answer(str(folder))
    assert complaint in str(caught.value)


def test_a_reader_sees_the_old_file_or_the_whole_new_one(tmp_path):
    protocol.write_answer(str(tmp_path), Answer(Status.OK, "first"))
    with pytest.raises(TypeError):
        protocol.write_answer(
            str(tmp_path), Answer(Status.OK, software={"a": "b" * 10**6, "c": object()})
        )
    assert protocol.read_answer(str(tmp_path)).reason == "first"


NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), unique=True, max_size=5)


@given(st.data(), NAMES)
def test_a_choice_is_read_back_from_its_word(data, names):
    chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
    of_launch = set(data.draw(NAMES)) - set(names)
    word = tuning.written(chosen | of_launch, names)
    names_in_force = tuning.in_force(word, names)
    assert names_in_force == (*(name for name in names if name in chosen), *sorted(of_launch))
    assert tuning.written(names_in_force, names) == word
    assert set(tuning.named(word)) <= {*names, *of_launch}


@given(NAMES)
def test_a_sweep_has_each_setting_alone_and_left_out_once(names):
    choices = [frozenset(tuning.in_force(word, names)) for word in tuning.sweep_words(names)]
    expected = {frozenset(), frozenset(names)} | {frozenset([name]) for name in names}
    expected |= {frozenset(names) - {name} for name in names}
    assert len(choices) == len(set(choices))
    assert set(choices) == (expected if names else set())


@pytest.mark.parametrize(
    "word", ["", "each", "fast", "installed-a", "tuned+", "installed+", "tuned-A", "tuned-a+b"]
)
def test_other_words_are_none(word):
    with pytest.raises(ValueError, match=r"installed, tuned, installed\+NAME, tuned-NAME"):
        tuning.named(word)


def test_a_launch_is_written_without_what_an_older_guest_may_not_know(tmp_path):
    """An adapter at an earlier revision refuses keys that came later."""
    cell = protocol.Cell("torch", "pytorch", "eager", "fcn5", "cpu", 1, 64)
    launch = protocol.Launch(cell, protocol.Protocol(), {}, "/cache")
    protocol.write_launch(str(tmp_path), launch)
    written = json.loads((tmp_path / protocol.CELL_FILE).read_text())
    assert written.keys() == {
        "cell",
        "protocol",
        "settings",
        "cache_directory",
        "label_sets",
        "schema_version",
    }
    assert written["cell"].keys() == {*protocol.Cell._fields[:7]}
    assert "trend" not in written["protocol"]
    assert protocol.read_launch(str(tmp_path)) == launch

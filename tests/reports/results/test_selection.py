"""Names are exact before they are patterns and lists, wherever names are taken."""

import warnings
from fnmatch import fnmatchcase
from pathlib import Path

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

import dlbench
from dlbench.reports.claims.figures import Figure, FigurePoint, Tables
from dlbench.reports.results.results import Narrowing, Results
from dlbench.reports.results.selection import names_meant
from dlbench.reports.results.storage.store import Store

TESTS = (
    "tests/test_a.py::test_c1",
    "tests/test_a.py::test_c[1]",
    "tests/test_a.py::test_c[1,2]",
    "tests/test_a.py::test_c[a-b]",
    "tests/test_a.py::test_c[a::b]",
    "tests/test_a.py::test_c[*]",
    "tests/test_a.py::test_ca",
    "tests/test_a.py::test_c[two words, and a comma]",
    "tests/test_a.py::test_c[" + "long-" * 60 + "]",
)
#: Letters that mean something in a list or a pattern, and few others, so that names resemble each
#: other.
NAME = st.text(st.sampled_from("ab[]*?!,- "), min_size=1, max_size=12).filter(
    lambda name: name == name.strip(" ,")
)
NAMES = st.lists(NAME, min_size=1, max_size=6, unique=True)


@pytest.mark.parametrize("name", TESTS)
def test_each_test_is_meant_by_its_own_name_alone(name: str) -> None:
    assert names_meant(name, TESTS) == ((name,), ())
    assert names_meant(f" {name} ", TESTS) == ((name,), ())


def test_a_list_of_all_names_means_all() -> None:
    assert names_meant(",".join(TESTS), TESTS) == (TESTS, ())
    assert names_meant(" , ".join(reversed(TESTS)), TESTS) == (TESTS[::-1], ())


@given(names=NAMES, data=st.data())
@examples(200)
def test_a_known_name_means_itself_whatever_the_others_are(
    names: list[str], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(names))
    assert names_meant(name, names) == ((name,), ())


@given(names=NAMES, data=st.data())
@examples(200)
def test_a_list_of_names_without_commas_means_these(names: list[str], data: st.DataObject) -> None:
    names = [name.replace(",", "-") for name in names]
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    assert names_meant(",".join(chosen), names) == (tuple(chosen), ())


@given(names=NAMES, data=st.data())
@examples(200)
def test_a_list_of_names_with_commas_means_these(names: list[str], data: st.DataObject) -> None:
    names = [
        f"{place}{name}" for place, name in enumerate(names)
    ]  # so that no list can be read in two ways
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    assert names_meant(",".join(chosen), names) == (tuple(chosen), ())


@given(names=NAMES, pattern=st.text(st.sampled_from("ab*?"), min_size=1, max_size=5))
@examples(200)
def test_a_pattern_without_brackets_means_what_it_fits(names: list[str], pattern: str) -> None:
    expected = (
        (pattern,)
        if pattern in names
        else tuple(name for name in names if fnmatchcase(name, pattern))
    )
    if any(sign in pattern for sign in "*?") or pattern in names:
        assert names_meant(pattern, names).names == expected


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("lstm*", ("lstm32", "lstm64")),
        ("fcn[58]", ("fcn5", "fcn8")),
        ("fcn[5,8],lstm32", ("fcn5", "fcn8", "lstm32")),
        ("lstm64, fcn5 ,,lstm*", ("lstm64", "fcn5", "lstm32")),
        ("*[1,*]", ("test_c[1,2]",)),
        ("test_c[*]", ("test_c[1]", "test_c[1,2]")),
        ("test_c[1", ()),
        ("test_c?", ("test_c1",)),
        (" , ", ()),
    ],
)
def test_words_that_are_no_name_are_patterns(words: str, meant: tuple[str, ...]) -> None:
    names = ["fcn5", "fcn8", "lstm32", "lstm64", "test_c1", "test_c[1]", "test_c[1,2]"]
    assert names_meant(words, names).names == meant


def test_unknown_words_are_named() -> None:
    assert names_meant("fcn5,fnc8,lstm[1", ["fcn5", "fcn8"]).unknown == ("fnc8", "lstm[1")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "tests.sqlite") as opened:
        for run in ("run-1", "run-2"):
            opened.begin_run(make.run(id=run))
            for name in TESTS if run == "run-1" else TESTS[:1]:
                opened.append(make.record(network=name, framework="pytest-benchmark", run=run))
    return tmp_path / "tests.sqlite"


@pytest.mark.parametrize("name", TESTS[1:])
def test_data_frames_have_the_named_benchmark_alone(store: Path, name: str) -> None:
    assert list(dlbench.cells(store, network=name)["network"]) == [name]
    assert set(dlbench.launches(store, network=name)["network"]) == {name}


def test_a_name_that_the_run_lacks_is_no_pattern_there(store: Path) -> None:
    """The second run has test_c1, not test_c[1]: known names are those of the whole store."""
    assert len(dlbench.launches(store, run="run-2", network=TESTS[1])) == 0
    assert len(dlbench.launches(store, run="run-2", network="*c[0-9]")) == 1


def test_data_frames_warn_of_a_name_that_no_cell_has(store: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"the network 'tests/test_a.py::test_d\[1\]'. Did you mean"
    ):
        assert len(dlbench.cells(store, network="tests/test_a.py::test_d[1]")) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dlbench.cells(store, network=TESTS[1])


def test_narrowing_takes_names_of_the_results_where_no_cells_are_given() -> None:
    results = Results(tuple(make.record(network=name) for name in TESTS))
    for name in TESTS:
        records = Narrowing(axes={"network": name}).of(results).records
        assert [record.cell.network for record in records] == [name]


@pytest.mark.parametrize("name", TESTS)
def test_a_claim_about_a_benchmark_is_about_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def points(tables: Tables, table: str) -> list[FigurePoint]:
        kinds = {"slow": 2.0, "fast": 1.0}
        return [
            FigurePoint(
                {"network": test, "kind": kind, "machine": "m"}, value=value * (1 + (test != name))
            )
            for test in TESTS
            for kind, value in kinds.items()
        ]

    monkeypatch.setattr(Tables, "points", points)
    figure = Figure(
        cells={"network": name}, slower={"kind": "slow"}, faster={"kind": "fast"}, of="made up"
    )
    questions = list(figure.questions(Tables(None, str)))  # type: ignore[arg-type]  # these points need no matrix
    assert len(questions) == 1

"""The interpreter of each row: built where it is missing, brought along, or left out."""

import sys
from pathlib import Path

import pytest
from tiny_framework import left_behind, source_of

from dlbench.suites.commands.env import env_build
from dlbench.suites.environments import environment, row_interpreters
from dlbench.suites.planning.framework import find
from dlbench.suites.planning.values import Build


@pytest.mark.parametrize("on_request", [False, True])
def test_without_names_a_build_leaves_out_what_is_built_on_request(home, monkeypatch, on_request):
    built = []
    monkeypatch.setattr(environment, "build", lambda framework, *ways: built.append(framework.name))
    env_build(None, on_request)
    assert {"caffe", "cntk", "theano"}.isdisjoint(built) != on_request
    assert ("mxnet" in built) != on_request
    assert not any(find(name).unavailable for name in built)
    built.clear()
    env_build(["caffe"], on_request)
    assert ("caffe" in built, built.count("caffe")) == (True, 1)


@pytest.mark.parametrize(
    ("tested", "said"), [(None, "not built here"), ("torch,mxnet", "caffe is not among the frameworks tested now")]
)
def test_a_historic_framework_is_asked_of_no_machine_and_others_of_those_tested(
    home, framework_python, monkeypatch, tested, said
):
    monkeypatch.setenv("CI", "1")
    monkeypatch.delenv("DLBENCH_TEST_FRAMEWORKS", raising=False)
    if tested:
        monkeypatch.setenv("DLBENCH_TEST_FRAMEWORKS", tested)
    for name in ("CAFFE", "MXNET"):
        monkeypatch.delenv(f"DLBENCH_PYTHON_{name}", raising=False)
    with pytest.raises(pytest.skip.Exception, match=said):
        framework_python("caffe")
    with pytest.raises(pytest.fail.Exception, match="not built here"):
        framework_python("mxnet")
    assert framework_python("null") == Path(sys.executable)  # needs no environment of its own
    monkeypatch.setenv("DLBENCH_PYTHON_CAFFE", sys.executable)
    assert framework_python("caffe") == Path(sys.executable)


def test_a_source_is_built_where_it_is_missing_and_announced_first(tiny, home):
    source, said = source_of(tiny)
    assert source.interpreter == environment.locate(tiny).interpreter
    assert source.name == "FakePython 3.99.1"
    assert len(source.digest) == 12
    assert said[0] == environment.announce(tiny)
    assert source_of(tiny) == (source, [])


def test_nothing_is_built_where_that_was_not_wanted(tiny, home):
    source, said = source_of(tiny, build_missing=False)
    assert source.interpreter is None
    assert "dlbench env build tiny" in source.reason
    assert "left out" in said[0]
    assert left_behind(home) == []


def test_an_environment_that_cannot_be_had_leaves_the_other_rows_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_PIP_EXIT", "1")
    monkeypatch.setenv("FAKE_PIP_SAYS", "NewConnectionError")
    said = []
    found = row_interpreters.prepare([Build("tiny", tiny), Build("null", find("null"))], said.append)
    assert found["tiny"].interpreter is None
    assert "could not be reached" in found["tiny"].reason
    assert found["null"].interpreter == Path(sys.executable)
    assert any("Tiny is left out" in line for line in said)


def test_a_brought_interpreter_is_looked_into(tiny, tmp_path):
    source, _ = source_of(tiny, tmp_path / "path" / "python3.99", name="mine")
    assert (source.name, source.interpreter) == ("FakePython 3.99.1", tmp_path / "path" / "python3.99")

"""The file of a step that Python code names: a path, `module:prepare` or the function, if a launch
would measure the same code."""

import importlib
import sys
from pathlib import Path

import pytest

from dlbench.suites.errors import UsageError
from dlbench.suites.planning.step_files import file_of, is_step

STEP = "def prepare(cell):\n    return lambda: sum(range(10))\n\n\ndef train():\n    pass\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module with a step, imported from its file."""
    (tmp_path / "step_of_test.py").write_text(STEP)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield importlib.import_module("step_of_test")
    del sys.modules["step_of_test"]


def test_a_path_a_name_and_the_function_are_the_same_file(module, tmp_path):
    file = str(tmp_path / "step_of_test.py")
    assert file_of(file) == file_of(Path(file)) == file
    assert file_of("step_of_test:prepare") == file
    assert file_of(module.prepare) == file


def test_a_module_is_found_without_being_imported(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text(f"{STEP}raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert file_of("never_imported:prepare") == str(tmp_path / "never_imported.py")


def test_a_function_whose_file_has_changed_since_is_refused(module, tmp_path):
    file = tmp_path / "step_of_test.py"
    file.write_text(STEP.replace("10", "20"))
    with pytest.raises(UsageError, match=r"step_of_test.py has changed since prepare was imported"):
        file_of(module.prepare)
    file.write_text("def prepare(cell:\n")
    with pytest.raises(UsageError, match="has changed"):
        file_of(module.prepare)


def test_what_no_launch_can_import_is_refused_with_the_remedy(module):
    def prepare(cell):
        return lambda: module

    with pytest.raises(UsageError, match=r"inside another function.*%%writefile train_step.py"):
        file_of(prepare)
    at_prompt: dict[str, object] = {}
    exec(compile(STEP, "<ipython-input-1>", "exec"), at_prompt)
    with pytest.raises(UsageError, match=r"in a notebook or at a prompt.*%%writefile"):
        file_of(at_prompt["prepare"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^train of step_of_test.py cannot be measured"):
        file_of(module.train)
    with pytest.raises(UsageError, match="step_of_test:train cannot be measured"):
        file_of("step_of_test:train")
    with pytest.raises(UsageError, match="names no module with a file"):
        file_of("no_such_package.step:prepare")
    with pytest.raises(UsageError, match="not int"):
        file_of(3)  # type: ignore[arg-type]


def test_a_step_is_told_from_a_stored_run(module):
    assert is_step("a/train_step.py")
    assert is_step(Path("train_step.py"))
    assert is_step("package.step:prepare")
    assert is_step(module.prepare)
    for run in ("latest", "20261119T1", "here.sqlite", "here.sqlite:20261119", "a1.json,a2.json"):
        assert not is_step(run)

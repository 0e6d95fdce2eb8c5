"""The package from Python: what `import dlbench` offers, `dlbench.run`, and `python -m dlbench`."""

import doctest
import inspect
import lzma
import signal
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import matplotlib as mpl
import psutil
import pytest
from processes import gone, records_in, suite_of_null, wait_until

import dlbench

ROOT = Path(__file__).resolve().parents[3]


def test_completion_lists_what_is_offered_and_nothing_else() -> None:
    names = subprocess.run(
        [
            sys.executable,
            "-c",
            "import dlbench; print([name for name in dir(dlbench) if name[0] != '_'])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert names.stdout.strip() == str(sorted(dlbench.__all__))
    for name in dlbench.__all__:
        assert getattr(dlbench, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'measures'"):
        dlbench.measures  # type: ignore[attr-defined]  # noqa: B018
    namespace: dict[str, object] = {}
    exec("from dlbench import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(dlbench.__all__)


def test_importing_dlbench_loads_the_standard_library_at_most() -> None:
    """A script that only may measure should not wait for pandas; it took 0.5 s."""
    code = """if True:
        import sys
        before = set(sys.modules)
        import dlbench
        print(sorted(set(sys.modules) - before))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['dlbench']\n"


def test_type_checkers_see_the_types_of_an_installed_dlbench() -> None:
    package = files("dlbench")
    assert (package / "py.typed").is_file()
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "py.typed" in shipped["package-data"]["dlbench"]


FUNCTIONS = ("measure", "gate", "compare", "run", "launches", "cells")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_document_every_parameter_and_every_error(name: str) -> None:
    function = getattr(dlbench, name)
    described = function.__doc__
    assert "DlbenchError" in described or "StoreError" in described
    if name in ("launches", "cells"):
        return
    for parameter in inspect.signature(function).parameters:
        assert f"        {parameter}: " in described or f"        **{parameter}: " in described


def run_example(name: str) -> None:
    """Run the example of a docstring; an output that it shows must come."""
    examples = doctest.DocTestParser().get_examples(getattr(dlbench, name).__doc__)
    assert examples
    names: dict[str, object] = {"dlbench": dlbench}
    for example in examples:
        try:
            code = compile(example.source, name, "eval")
        except SyntaxError:
            exec(example.source, names)
            continue
        value = eval(code, names)
        assert not example.want or repr(value) == example.want.strip()


@pytest.mark.parametrize(
    ("name", "stored"), [("launches", "cpu"), ("cells", "cpu"), ("compare", "nights")]
)
def test_examples_of_stored_results_run(name, stored, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    packed = ROOT / "tests" / "goldens" / "stores" / f"{stored}.sqlite.xz"
    (tmp_path / "dlbench.sqlite").write_bytes(lzma.decompress(packed.read_bytes()))
    run_example(name)


@pytest.mark.slow  # they measure as a user does, for a minute or two each
@pytest.mark.framework
@pytest.mark.parametrize("name", ["measure", "gate", "run"])
def test_examples_that_measure_run(name, tmp_path, monkeypatch, framework_python) -> None:
    if name == "run":
        framework_python("torch")
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DLBENCH_STORE", raising=False)
    step = (files("dlbench.suites") / "definitions" / "steps" / "numpy.py").read_text()
    (tmp_path / "train_step.py").write_text(step)
    (tmp_path / "new_step.py").write_text(f"{step}# the same in other words\n")
    run_example(name)


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dlbench", "list", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "list" in done.stdout


QUICKLY = {"no_ceilings": True, "no_wait_for_quiet": True}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a suite of made-up times."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DLBENCH_STORE", raising=False)
    (tmp_path / "mine.toml").write_text(
        suite_of_null(step_seconds=0.002, protocol={"seconds": 0.02})
    )
    return tmp_path


def test_a_run_returns_its_cells_and_stores_its_launches(folder, capsys):
    first = dlbench.run(
        folder / "mine.toml", threads=[1, 2], launches=1, env={"A": "x y", "B": "1"}, **QUICKLY
    )
    assert list(first.threads) == [1, 2]
    assert first.seconds.between(0.0005, 0.02).all()
    assert first.variables.str.contains("x y").all()
    assert "fcn5" in capsys.readouterr().err  # progress
    second = dlbench.run("mine.toml", threads=1, launches=1, **QUICKLY)
    assert len(second) == 1
    assert [record.run for record in records_in(folder)] == [*first.run, *second.run]


def test_a_run_whose_cells_all_fail_returns_the_reasons(folder):
    (folder / "bad.py").write_text("def make_step():\n    raise RuntimeError('no data')\n")
    cells = dlbench.run(
        "quick", store="other.sqlite", step="bad.py", threads=1, launches=1, **QUICKLY
    )
    assert set(cells.status) == {"crashed"} or "no data" in cells.reason.iloc[0]
    assert not (folder / "dlbench.sqlite").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"networks": "fcn9"}, "There is no network named 'fcn9'"),
        ({"thread": 1}, "There is no option named 'thread'. Did you mean 'threads'?"),
        ({"suite": "no.toml"}, "no.toml"),
    ],
)
def test_a_mistake_raises_the_line_that_the_command_says(folder, options, message, capsys):
    with pytest.raises(dlbench.DlbenchError) as raised:
        dlbench.run(**{"suite": "mine.toml", **options})
    assert message in str(raised.value)
    assert not str(raised.value).startswith("dlbench: ")
    assert len(str(raised.value).splitlines()) == 1


def test_ctrl_c_that_reaches_the_caller_alone_ends_the_run_and_keeps_what_is_finished(folder):
    code = (
        "import dlbench; dlbench.run('mine.toml', launches=200, no_ceilings=True, "
        "no_wait_for_quiet=True)"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(records_in(folder)) > 1, "the second launch")
    launch = wait_until(lambda: psutil.Process(caller.pid).children(), "the next launch")
    caller.send_signal(signal.SIGINT)
    _, errors = caller.communicate(timeout=60)
    assert caller.returncode == -signal.SIGINT
    assert "Every finished launch is stored. The same call with resume=True continues." in errors
    assert all(gone(process.pid) for process in launch)
    assert 2 <= len(records_in(folder)) < 200

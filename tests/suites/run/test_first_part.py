"""A first matrix before all environments are built: its rows, and a run that is measured in two
parts."""

import sys
from collections import Counter

import pytest
from made_up_adapters import write_adapter
from made_up_pythons import script
from processes import plan_of, records_in, run_command, suite_of_null

from dlbench.reports.results.storage.store import Store
from dlbench.suites.environments import environment
from dlbench.suites.environments.environment import State
from dlbench.suites.run import first_part


@pytest.fixture
def ready(monkeypatch):
    """Give a set of the frameworks whose environments are built; a test may fill it."""
    names: set[str] = set()

    def locate(framework):
        state = State.READY if framework.name in names else State.NOT_BUILT
        return environment.Environment(framework, framework.directory, state, None)

    monkeypatch.setattr(environment, "locate", locate)
    return names


@pytest.mark.parametrize(
    ("built", "first"),
    [
        ((), ["onnxruntime", "torch"]),
        (("mxnet",), ["mxnet", "torch"]),
        (("mxnet", "tensorflow"), ["mxnet", "tensorflow"]),
        (("mxnet", "tensorflow", "torch"), ["mxnet", "tensorflow", "torch"]),
        (("mxnet", "tensorflow", "torch", "onnxruntime"), []),
    ],
)
def test_what_is_ready_comes_first_then_the_first_of_the_suite(ready, built, first):
    ready |= set(built)
    plan = plan_of("quick", frameworks="torch,onnxruntime,tensorflow,mxnet")
    part = first_part.first_part(plan, first_part.to_build(plan))
    assert sorted({cell.framework for cell in part.cells} if part else ()) == first
    if part:
        assert (part.launches, part.most) == (1, 1)
        assert sorted(build.name for build in part.builds) == first


def test_nothing_comes_first_where_the_suite_does_not_ask_for_it_or_all_would(ready):
    table = plan_of("table4-quick")
    assert first_part.first_part(table, first_part.to_build(table)) is None
    of_two_frameworks = plan_of("quick", frameworks="torch,onnxruntime")
    assert first_part.first_part(of_two_frameworks, first_part.to_build(of_two_frameworks)) is None


@pytest.fixture
def folder(tmp_path):
    """Give a folder with a suite of null, which is there, and of a framework that is to be built:
    its environment is a script that starts this Python."""
    adapter = write_adapter(tmp_path / "other", name="other")
    script(adapter / "start.sh", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    about = (adapter / "framework.toml").read_text()
    own = 'environment = "own"\ninterpreter = "start.sh"\ndownload_megabytes = 30\n'
    (adapter / "framework.toml").write_text(about.replace('environment = "host"\n', own))
    suite = suite_of_null(
        networks=["fcn5"], frameworks=["null", "other"], threads=[1, 2], protocol={"launches": 2}
    )
    (tmp_path / "mine.toml").write_text(
        suite.replace('frameworks = ["null"]\n', "first_frameworks = 1\n", 1)
    )
    return tmp_path


def test_a_run_shows_the_first_matrix_then_builds_and_measures_the_rest(folder):
    variables = {"DLBENCH_ADAPTERS": f"other={folder / 'other'}"}
    done = run_command(folder, "run", "mine.toml", **variables)
    assert done.returncode == 0, done.stderr
    output = done.stderr.splitlines()
    begins = ["To be downloaded: about 30 MB (Mine 30 MB)", "First null", "Seconds per mini-batch"]
    begins += ["Now Mine", "Mine: ready", "[6/6] "]
    places = [next(i for i, line in enumerate(output) if line.startswith(word)) for word in begins]
    assert places == sorted(places)
    # The launches of the first part are launches of the run, and none is made twice.
    launched = Counter((r.cell.framework, r.cell.threads, r.launch) for r in records_in(folder))
    assert launched == Counter(
        {(name, p, launch): 1 for name in ("null", "other") for p in (1, 2) for launch in (0, 1)}
    )
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        (run,) = store.runs()
    assert run.finished is not None
    assert len(run.plan) == 4
    # Now everything is built: nothing comes first.
    again = run_command(folder, "run", "mine.toml", **variables)
    assert "To be downloaded" not in again.stderr
    assert "[8/8] " in again.stderr


def test_a_run_that_only_measured_its_first_part_is_resumed(folder):
    variables = {"DLBENCH_ADAPTERS": f"other={folder / 'other'}"}
    (folder / "other" / "start.sh").unlink()
    (folder / "other" / "start.sh").write_text("#!/bin/sh\nkill -INT $PPID; sleep 5\n")
    done = run_command(folder, "run", "mine.toml", **variables)
    assert done.returncode == 130, done.stderr
    assert "dlbench run mine.toml --resume" in done.stderr.splitlines()[-1]
    assert len(records_in(folder)) == 2
    script(folder / "other" / "start.sh", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    done = run_command(folder, "run", "mine.toml", "--resume", **variables)
    assert done.returncode == 0, done.stderr
    assert len(records_in(folder)) == 8

"""The default thread count of a row: asked once without any thread setting, then remembered."""

from dataclasses import replace
from pathlib import Path

import pytest
from pretended_runs import Pretender

from dlbench.adapters.protocol import TUNED, Outcome, Status, ThreadEvidence
from dlbench.suites.environments.environment import Source
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run import capabilities

pytestmark = pytest.mark.alone


def showing(evidence):
    """Return a launcher whose launches show this thread evidence."""
    return Pretender(lambda cell: Outcome(Status.OK, threads=evidence))


def evidence(says, *busy):
    return ThreadEvidence(0, says, len(busy), sum(busy), 1.0, list(busy))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))


@pytest.fixture
def plan():
    return planned(TUNED)


def planned(tuning):
    return expand(suite.load("quick"), SuiteOverrides(frameworks="mxnet,null", tuning=tuning), Capacity(2, 2), 0)


def ask(plan, launcher, machine="here", digest="env"):
    found = {row.build.name: Source(row.build, Path("/python"), "CPython", digest) for row in plan.rows}
    return capabilities.threads_by_default(plan, found, machine, launcher, lambda line: None)


def test_the_launch_sets_no_thread_count(plan):
    launcher = showing(evidence(None, 0.9, 0.8, 0.0))
    ask(plan, launcher)
    (order,) = launcher.orders
    assert order.launch.cell.threads == 0
    assert not any("THREADS" in name for name in order.variables if name.startswith("OMP"))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (evidence(3, 0.9, 0.8), 3),
        (evidence(0, 0.9, 0.8, 0.0), 2),
        (evidence(None, 0.9), 1),
        (evidence(None, 0.8, 0.7, 0.6), 2),
    ],
    ids=["its word", "zero is no word", "no word", "three take turns on two"],
)
def test_the_frameworks_word_counts_and_else_what_was_seen(plan, shown, expected):
    assert ask(plan, showing(shown)) == {("mxnet", "hybrid", TUNED): expected}


def test_it_is_asked_once_for_each_machine_and_environment(plan):
    launcher = showing(evidence(2))
    for machine, digest in (("here", "a"), ("here", "a"), ("there", "a"), ("here", "b"), ("here", "a")):
        assert ask(plan, launcher, machine, digest) == {("mxnet", "hybrid", TUNED): 2}
    assert len(launcher.orders) == 3


def test_as_installed_it_is_asked_for_itself_and_with_a_single_setting_it_is_not():
    launcher = showing(evidence(2))
    plan = planned("each")
    found = ask(plan, launcher)
    assert set(found) == {("mxnet", "hybrid", cell.tuning) for cell in plan.cells if cell.framework == "mxnet"}
    assert sorted(order.launch.settings.get("static", False) for order in launcher.orders) == [False, True]


def test_it_is_asked_anew_when_the_adapter_changes(plan, tmp_path):
    launcher = showing(evidence(2))
    folder = tmp_path / "adapter"
    (folder / "inner").mkdir(parents=True)
    (folder / "framework.toml").write_text("")
    rows = [row for row in plan.rows if row.build.name == "mxnet"]
    framework = rows[0].build.framework.model_copy(update={"directory": folder})
    moved = replace(
        plan,
        rows=tuple(replace(row, build=replace(row.build, framework=framework)) for row in rows),
        cells=tuple(cell for cell in plan.cells if cell.framework == "mxnet"),
    )
    for content, asked in (("a", 1), ("a", 1), ("b", 2), ("a", 2)):
        (folder / "inner" / "part.py").write_text(content)
        ask(moved, launcher)
        assert len(launcher.orders) == asked


def test_a_launch_that_failed_leaves_the_row_out_and_is_tried_again(plan):
    launcher = showing(None)
    assert ask(plan, launcher) == {}
    assert ask(plan, launcher) == {}
    assert len(launcher.orders) == 2


def test_a_damaged_memory_is_asked_anew(plan, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "default-threads.json").write_text("[not json")
    assert ask(plan, showing(evidence(4))) == {("mxnet", "hybrid", TUNED): 4}

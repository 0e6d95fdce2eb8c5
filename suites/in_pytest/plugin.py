"""The pytest plugin: a suite's cells as benchmarks of pytest-benchmark, and dlbench's verdict.

`pytest --dlbench-suite quick` adds a benchmark for every cell of the suite, unless the user's tests
take the fixture `dlbench_cell` and run over the cells instead. The launches are made first, in
separate processes as by `dlbench run`; a benchmark then replays its cell's samples, so that all of
pytest-benchmark works on them.

`pytest --dlbench-processes 5 --dlbench-baseline FILE` judges the benchmarks of a session's own
tests: `processes` runs them in fresh processes of pytest, `verdict` judges those against the
baseline.

This module is loaded into every pytest session of an environment with dlbench. So it imports only
pytest and the table of axes; the rest is loaded when an option needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .options import add_options, asked_for, measures_nothing

if TYPE_CHECKING:
    from .session import MeasuredCell


SUITE_PLUGIN = "dlbench-suite"
"""Name under which the plugin that measures a suite is registered."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-xdist starts its workers
def pytest_cmdline_main(config: pytest.Config) -> Iterator[Any]:
    """Set the options of a process that another session started."""
    if config.getoption("dlbench_process"):
        from .process import set_options

        set_options(config)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugins that the options ask for."""
    if hasattr(config, "workerinput"):
        return  # a worker of pytest-xdist has the options of its session, which does all of this
    order = config.getoption("dlbench_process")
    if order:
        from .process import Process

        config.pluginmanager.register(Process(config, order), "dlbench-process")
        return
    asked = asked_for(config)
    if not (asked.suite or asked.judges or asked.save):
        return
    if not hasattr(config.hook, "pytest_benchmark_update_json"):
        if not (asked.suite or asked.save or config.getoption("dlbench_baseline")):
            return  # the ini option applies to every session, and this one has nothing to judge
        raise pytest.UsageError(
            "dlbench: this needs pytest-benchmark. Install it: pip install pytest-benchmark."
        )
    if asked.suite:
        from .session import SuiteSession

        config.pluginmanager.register(SuiteSession(config), SUITE_PLUGIN)
    if measures_nothing(config) or not (asked.judges or asked.save):
        return
    from .processes import Processes
    from .verdict import VerdictSession

    processes = Processes(config, asked.processes, asked.checkout)
    config.pluginmanager.register(processes, "dlbench-processes")
    config.pluginmanager.register(VerdictSession(config, asked, processes), "dlbench-verdict")


@pytest.fixture
def dlbench_cell(request: pytest.FixtureRequest) -> MeasuredCell:
    """One measured cell of the suite that --dlbench-suite names; the test is run once for each.

    A `dlbench.suites.in_pytest.session.MeasuredCell`: ``cell``, ``samples`` and ``launch_medians``
    in seconds, and ``replay(benchmark)``.
    """
    plugin: Any = request.config.pluginmanager.get_plugin(SUITE_PLUGIN)
    if plugin is None:
        pytest.skip("no cells: name their suite with --dlbench-suite")
    measured: MeasuredCell = plugin.measured(request.param)
    return measured

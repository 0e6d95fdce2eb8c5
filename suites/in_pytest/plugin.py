"""The pytest plugin: a suite's cells as benchmarks of pytest-benchmark, and dlbench's verdict instead of a percentage.

`pytest --dlbench-suite quick` adds a benchmark for every cell of the suite, unless the user's tests take the fixture
`dlbench_cell` and run over the cells instead. The launches are made first, in separate processes as by `dlbench run`; a
benchmark then replays its cell's samples, so that all of pytest-benchmark works on them.

This module is loaded into every pytest session of an environment with dlbench. So it imports only pytest and the table
of axes; the rest is loaded when an option needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..planning.axes import AXIS_OPTIONS, LIMITS

if TYPE_CHECKING:
    from .session import MeasuredCell


SUITE_PLUGIN = "dlbench-suite"
"""Name under which the plugin that measures a suite is registered."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; every name begins with dlbench."""
    group = parser.getgroup("dlbench", "dlbench: deep-learning frameworks side by side")
    group.addoption(
        "--dlbench-suite",
        metavar="SUITE",
        help="Measure this suite (a name, or a file ending in .toml) and run its cells as benchmarks.",
    )
    for axis in (*AXIS_OPTIONS, *LIMITS):
        group.addoption(
            f"--dlbench-{axis.option[2:]}",
            metavar=axis.metavar,
            help=f"With --dlbench-suite: {axis.help}".replace("%", "%%"),
        )
    for key, about in OPTIONS.items():
        group.addoption(f"--dlbench-{key}", **{**about, "help": f"With --dlbench-suite: {about['help']}."})
    group.addoption(
        "--dlbench-baseline",
        metavar="FILE",
        action="append",
        help="Judge every benchmark against this pytest-benchmark JSON or dlbench store; only a regression fails the "
        "session. Repeatable. For a plain benchmark each JSON counts as one launch, and this session as one more: too "
        "few to decide; `dlbench import --one-run` combines several for `dlbench compare`.",
    )
    group.addoption(
        "--dlbench-undecided",
        choices=("pass", "fail"),
        default="pass",
        help="Whether a session without enough evidence fails, with exit code 6.",
    )
    parser.addini(
        "dlbench_verdict",
        "judge the benchmarks that --benchmark-compare finds by dlbench's rule; only a regression fails the session",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugins that the options ask for."""
    suite = config.getoption("dlbench_suite")
    baselines = config.getoption("dlbench_baseline") or []
    for name in () if suite else (*(axis.option[2:] for axis in (*AXIS_OPTIONS, *LIMITS)), *OPTIONS):
        if config.getoption(f"dlbench_{name.replace('-', '_')}"):
            raise pytest.UsageError(
                f"dlbench: --dlbench-{name} goes with --dlbench-suite. Add the suite, or leave it out."
            )
    judges = bool(baselines or config.getini("dlbench_verdict"))
    if config.getoption("dlbench_undecided") == "fail" and not judges:
        raise pytest.UsageError(
            "dlbench: --dlbench-undecided goes with --dlbench-baseline or the ini option dlbench_verdict. Add one, or "
            "leave it out."
        )
    if not (suite or judges):
        return
    if not hasattr(config.hook, "pytest_benchmark_update_json"):
        if not (suite or baselines):
            return  # the ini option applies to every session, and this one has nothing to judge
        raise pytest.UsageError("dlbench: this needs pytest-benchmark. Install it: pip install pytest-benchmark.")
    if suite:
        from .session import SuiteSession

        config.pluginmanager.register(SuiteSession(config), SUITE_PLUGIN)
    if judges:
        from .verdict import VerdictSession

        config.pluginmanager.register(VerdictSession(config, baselines), "dlbench-verdict")


@pytest.fixture
def dlbench_cell(request: pytest.FixtureRequest) -> MeasuredCell:
    """One measured cell of the suite that --dlbench-suite names; the test is run once for each.

    A `dlbench.suites.in_pytest.session.MeasuredCell`: ``cell``, ``samples`` and ``launch_medians`` in seconds, and
    ``replay(benchmark)``.
    """
    plugin: Any = request.config.pluginmanager.get_plugin(SUITE_PLUGIN)
    if plugin is None:
        pytest.skip("no cells: name their suite with --dlbench-suite")
    measured: MeasuredCell = plugin.measured(request.param)
    return measured


OPTIONS: dict[str, dict[str, Any]] = {
    "launches": {
        "metavar": "N|N-M",
        "help": "launches (fresh processes) of each cell: 5, or 5-20: as many as its interval needs",
    },
    "interval": {"metavar": "SHARE", "help": "half-width of a cell's interval at which launches end: 1%%"},
    "steps": {"metavar": "N", "type": int, "help": "maximum number of timed steps per launch"},
    "cell-budget": {"metavar": "TIME", "help": "time limit of each launch: 60s, 10m"},
    "budget": {"metavar": "TIME", "help": "time budget for all launches"},
    "seed": {"metavar": "N", "type": int, "help": "seed for the order of launches"},
    "store": {"metavar": "FILE", "help": "also keep the records in this store"},
    "no-quiet-gate": {"action": "store_true", "help": "do not wait for a quiet machine or repeat disturbed launches"},
    "yes": {"action": "store_true", "help": "allow more than 10,000 cells"},
    "python": {
        "metavar": "NAME=PATH",
        "action": "append",
        "help": "your own interpreter, torch=/path/to/python. Repeatable",
    },
    "step": {
        "metavar": "FILE",
        "action": "append",
        "help": "your own training step instead of the networks: --dlbench-step=train_step.py, as `dlbench new step` "
        "writes it. Repeatable",
    },
    "env": {
        "metavar": "NAME[=VALUE]",
        "action": "append",
        "help": "an environment variable for all launches; NAME alone passes on the shell's. Repeatable",
    },
    "loss-tolerance": {"metavar": "SHARE", "help": "how much the step's first losses may differ between launches"},
    "adapter": {
        "metavar": "NAME=FOLDER",
        "action": "append",
        "help": "your own adapter, my_framework=path/to/folder. Repeatable",
    },
}
"""Options that need --dlbench-suite, besides the axes."""

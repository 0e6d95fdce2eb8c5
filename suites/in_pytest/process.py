"""One process of `--dlbench-processes`, seen from inside.

It measures chosen benchmarks and reports how they ended. It is a session of pytest with the
arguments of the session that started it, so that the tests have the same ids and settings. An order
names the tests. Everything that writes files of the user's, or that stops to ask, is off. Nothing
of dlbench is loaded before a benchmark is timed: loaded modules can change its time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .quantities import KEY, ImportTimes, QuantityMeter
from .turns import TurnsOfProcess

FIXTURE = "benchmark"
"""Of pytest-benchmark; a test that takes it is a benchmark."""
_OFF: dict[str, Any] = {
    "numprocesses": 0,  # of pytest-xdist: processes that run at once disturb each other
    "usepdb": False,
    "trace": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "xmlpath": None,
    "report_log": None,
    "htmlpath": None,
    "json_report": False,
    "pastebin": None,
    "log_file": None,
    "benchmark_save": None,
    "benchmark_autosave": None,
    "benchmark_compare": [],
    "benchmark_compare_fail": None,
    "benchmark_histogram": [],
    "benchmark_cprofile": None,
    "benchmark_cprofile_dump": [],
}
"""Options of pytest and its plugins, by their names in `config.option`, and the values that turn
them off."""
_WRITERS_OF_THE_CACHE = "lfplugin", "nfplugin"


@dataclass(frozen=True)
class Order:
    """The order of a session to a process."""

    tests: list[str]
    """Ids of the tests that passed in the session; the benchmarks among them are measured."""
    parent: int
    """Process number of the session; without it this process ends."""
    outcome: str
    """File to write at the end."""
    running: str
    """File that names the running test, for the session to read should this process crash."""
    other: str = ""
    """Folder of the code that this process is compared with."""
    environment_shared: bool = True
    """Whether the other side has the same Python."""
    profile: bool = False
    """Profile the benchmarks instead of timing them."""
    turns: int = -1
    """Descriptor of the socket on which to ask for turns; negative: do not take turns."""


@dataclass
class ProcessOutcome:
    """How the tests of a process ended, each with the reason."""

    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    measured: int = 0
    """Tests that were chosen."""
    wrong_code: str = ""
    """A module that should be of this side's code and is not: both sides then measure the same."""
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By test, its `adapters.protocol.Profile` as JSON, where profiles were ordered."""


def set_options(config: pytest.Config) -> None:
    """Turn off what must happen once in a session, before any plugin reads its options."""
    for name, value in _OFF.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)


class Process:
    """The plugin of such a process."""

    def __init__(self, config: pytest.Config, order: str) -> None:
        try:
            self._order = Order(**json.loads(Path(order).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise pytest.UsageError(
                "dlbench: --dlbench-process is for dlbench alone. Leave it out."
            ) from error
        self._chosen = frozenset(self._order.tests)
        self._outcome = ProcessOutcome()
        self._config = config
        self._imports = ImportTimes()
        self._turns = TurnsOfProcess(self._order.turns)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the cache of failed tests as the session left it."""
        manager = session.config.pluginmanager
        for name in _WRITERS_OF_THE_CACHE:
            plugin = manager.get_plugin(name)
            if plugin is not None:
                manager.unregister(plugin)

    @pytest.hookimpl(trylast=True)  # after -k and -m
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Choose the benchmarks of the order."""
        chosen = [item for item in items if item.nodeid in self._chosen and takes_benchmark(item)]
        others = [item for item in items if item not in set(chosen)]
        config.hook.pytest_deselected(items=others)
        items[:] = chosen
        if self._order.profile:
            for item in chosen:
                unused = pytest.mark.filterwarnings("ignore:Benchmark fixture was not used")
                item.add_marker(unused, append=False)
        self._outcome.measured = len(chosen)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Name the test that runs; end if the session that started this process is gone."""
        Path(self._order.running).write_text(nodeid, encoding="utf-8")
        if os.getppid() != self._order.parent:
            pytest.exit(
                "the session that started this process has ended",
                returncode=pytest.ExitCode.INTERRUPTED,
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[Any]:
        """Time the import of a test file."""
        if not isinstance(collector, pytest.Module):
            return (yield)
        with self._imports.timing(collector.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Iterator[Any]:
        """Measure the quantities of a benchmark, or profile its call where that was ordered."""
        if FIXTURE not in pyfuncitem.funcargs:
            return (yield)
        if not self._order.profile:
            fixture: Any = pyfuncitem.funcargs[FIXTURE]
            meter = QuantityMeter(fixture)
            try:
                return (yield)
            finally:
                fixture.extra_info[KEY] = self._quantities(pyfuncitem, meter)
        from .profiled import ProfiledBenchmark

        def keep(profile: dict[str, Any]) -> None:
            self._outcome.profiles[pyfuncitem.nodeid] = profile

        fixture = pyfuncitem.funcargs[FIXTURE]
        pyfuncitem.funcargs[FIXTURE] = ProfiledBenchmark(
            fixture, pyfuncitem.path, keep, self._turns.wait
        )
        try:
            return (yield)
        finally:
            pyfuncitem.funcargs[FIXTURE] = fixture  # pytest-benchmark takes nothing else there

    def _quantities(self, test: pytest.Function, meter: QuantityMeter) -> dict[str, float]:
        """Return the quantities of a benchmark that was measured."""
        values = meter.values()
        import_seconds = self._imports.of_test(test.nodeid)
        if import_seconds is not None:
            values["import"] = import_seconds
        return values

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be collected."""
        if report.failed:
            self._outcome.failed[report.nodeid] = reason_of(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed or was skipped."""
        if report.failed:
            self._outcome.failed[report.nodeid] = reason_of(report)
        elif report.skipped:
            self._outcome.skipped[report.nodeid] = reason_of(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write how the tests ended."""
        if self._order.other:
            own = self._config.invocation_params.dir.resolve()
            self._outcome.wrong_code = wrong_code(
                own, Path(self._order.other), self._order.environment_shared
            )
        Path(self._order.outcome).write_text(json.dumps(asdict(self._outcome)), encoding="utf-8")


def wrong_code(own: Path, other: Path, environment_shared: bool) -> str:
    """Return the file of a loaded module that is not of this checkout's code; empty where all are.

    That is a module in the other checkout. With an environment that both share it is also a module
    that this checkout has, and that was loaded from elsewhere: one that is installed.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or "." in name or name in sys.stdlib_module_names:
            continue
        path = Path(file).resolve()
        installed = "site-packages" in path.parts
        within = path.is_relative_to(own) and not installed
        beyond = path.is_relative_to(other) and not installed
        if beyond and not (within and own.is_relative_to(other)):
            return file
        if environment_shared and not within and _has_module(own, name):
            return file
    return ""


def _has_module(folder: Path, name: str) -> bool:
    """Tell whether a checkout has a module or package of this name, at its top or in src."""
    for place in (folder, folder / "src"):
        if (place / f"{name}.py").is_file() or (place / name / "__init__.py").is_file():
            return True
    return False


def takes_benchmark(item: pytest.Item) -> bool:
    """Tell whether a test is a benchmark, as pytest-benchmark does."""
    return FIXTURE in getattr(item, "fixturenames", ())


def reason_of(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return the first line of the reason why a test failed or was skipped."""
    representation = report.longrepr
    crash = getattr(representation, "reprcrash", None)
    if crash is not None:
        text = str(crash.message)
    elif isinstance(representation, tuple):
        text = str(representation[-1])  # a skipped test: path, line, reason
    else:
        text = str(representation or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no reason given"

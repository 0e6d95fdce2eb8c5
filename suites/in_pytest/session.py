"""One pytest session over a suite: its cells are measured before the first test takes them."""

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.pytest_benchmark import export
from dlbench.reports.results.naming import slug, work_name
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.safe_text import visible
from dlbench.reports.results.storage import delivery

from ..commands.options import SuiteOptions, choices, names_of
from ..commands.plan import plan_of, size_of
from ..display.screen import say
from ..errors import DlbenchError
from ..planning import own, values
from ..planning.axes import AXIS_OPTIONS, LIMITS
from ..planning.plan import Plan, check_count, memory_line, narrow_to
from ..run import preparation
from ..run.budget import Budget
from ..run.runner import RunProfile, run_plan
from .options import OF_THE_SUITE

FIXTURE = "dlbench_cell"


class ReplayClock:
    """A timer in seconds: the real one, but during a replay it advances by the recorded times."""

    __name__ = "replay"
    nanoseconds: Fraction | None = None
    """Of the replay; None outside one."""

    def __call__(self) -> float:
        """Return the time now."""
        if self.nanoseconds is None:
            return time.perf_counter()
        return float(self.nanoseconds * Fraction(1, 10**9))


clock = ReplayClock()
"""Tests of one process run one after another: one clock serves them all."""


@dataclass(frozen=True)
class MeasuredCell:
    """One cell of the suite with the launches that were made of it."""

    cell: Cell
    records: tuple[Record, ...]
    """One for each launch, and for each repetition of a launch that was disturbed."""
    machine: Mapping[str, Any]

    @property
    def samples(self) -> list[float]:
        """Seconds of a step for every timed sample, after `check`."""
        self.check()
        return export.samples_of(export.counting_records(self.records))

    @property
    def launch_medians(self) -> list[float]:
        """The median of each launch in seconds, after `check`."""
        self.check()
        return export.launch_medians(export.counting_records(self.records))

    def check(self) -> None:
        """Skip the test if the cell is not possible, or fail it if a launch went wrong."""
        if not self.records:
            pytest.skip("not measured: the time budget was spent before")
        status, reason = export.failure(self.records)
        if status in (Status.UNSUPPORTED, Status.SKIPPED):
            pytest.skip(visible(reason))
        if status is not Status.OK:
            pytest.fail(visible(reason), pytrace=False)

    def replay(self, benchmark: Any) -> None:
        """Give the samples and their evidence to pytest-benchmark's fixture; then `check`."""
        timed = export.counting_records(self.records)
        if timed:
            benchmark.extra_info[export.KEY] = export.evidence_of(self.records, self.machine)
            _replay(benchmark, timed)
        self.check()


def _replay(benchmark: Any, timed: Sequence[Record]) -> None:
    iterations = export.iterations_of(timed)
    rounds: list[Fraction] = []
    for record in timed:
        for nanoseconds in record.outcome.samples_ns:
            steps = record.outcome.steps_per_sample
            rounds.append(Fraction(nanoseconds * iterations, steps))
    called = 0

    def step() -> None:
        # A round is so many calls; its whole time passes in the first. Calls beyond the last round
        # (for a result, for a profile) take no time.
        nonlocal called
        place, within = divmod(called, iterations)
        called += 1
        if within == 0 and place < len(rounds) and clock.nanoseconds is not None:
            clock.nanoseconds += rounds[place]

    clock.nanoseconds = Fraction(0)
    try:
        benchmark.pedantic(step, rounds=len(rounds), iterations=iterations)
    finally:
        clock.nanoseconds = None


def dlbench(dlbench_cell: MeasuredCell, benchmark: Any) -> None:
    """One cell as a benchmark."""
    dlbench_cell.replay(benchmark)


class CellsModule(pytest.Module):
    """The collector of this module's one benchmark, whatever the user's settings name tests.

    Its place is the name "dlbench" in pytest's root folder, so that the ids of its tests do not
    depend on where dlbench is installed: pytest-benchmark compares by them.
    """

    def _getobj(self) -> ModuleType:
        return sys.modules[__name__]

    def istestfunction(self, obj: object, name: str) -> bool:
        """Take the one benchmark above."""
        return obj is dlbench

    def istestclass(self, obj: object, name: str) -> bool:
        """Take no class."""
        return False


class SuiteSession:
    """The plugin that measures a suite; registered with --dlbench-suite."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        if os.environ.get("PYTEST_XDIST_WORKER") or config.getoption("dist", "no") != "no":
            # Their launches would measure each other.
            raise pytest.UsageError(
                "dlbench: --dlbench-suite measures one launch after another; run it without "
                "pytest-xdist (-n 0)."
            )
        try:
            self._machine = probe()
            self._plan = _plan(config, self._machine)
            budget = config.getoption("dlbench_budget")
            self._budget = None if budget is None else values.duration(budget)
            builds = [build for build in self._plan.builds if build.interpreter is not None]
            preparation.check_interpreters(builds)
        except DlbenchError as error:
            raise pytest.UsageError(_message(error)) from error
        self._described = self._machine.to_dict()
        self._cells = {slug(cell): cell for cell in self._plan.cells}
        self._run: Run | None = None
        self._records: dict[Cell, list[Record]] = {}

    def measured(self, name: str) -> MeasuredCell:
        """Return a cell by its id."""
        cell = self._cells[name]
        return MeasuredCell(cell, tuple(self._records.get(cell, ())), self._described)

    def pytest_report_header(self) -> str:
        """Return the size of the suite for pytest's first lines."""
        return f"dlbench: {self._plan.suite}, {size_of(self._plan)}"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run whatever takes the fixture once for each cell."""
        if FIXTURE in metafunc.fixturenames:
            names = list(self._cells)
            metafunc.parametrize(FIXTURE, names, ids=names, indirect=True)

    @pytest.hookimpl(tryfirst=True)  # before -k, -m and --benchmark-only choose among the tests
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Add the cells as benchmarks if no test takes them; give them the replaying timer."""
        if not _tests_of_cells(items):
            folder = session.config.rootpath / "dlbench"
            module = CellsModule.from_parent(session, path=folder, name="dlbench")
            items.extend(session.genitems(module))
        for item, name in _tests_of_cells(items):
            marker = item.get_closest_marker("benchmark")
            options: dict[str, Any] = {"group": work_name(self._cells[name])}
            if marker:
                options.update(marker.kwargs)
            options["timer"] = clock
            item.add_marker(pytest.mark.benchmark(**options), append=False)
            # A cell without a number leaves the fixture unused, and says why itself.
            item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[Any]:
        """Measure the cells of the chosen tests, then run these."""
        option = session.config.getoption
        chosen: set[str] = set()
        for item, name in _tests_of_cells(session.items):
            if item.get_closest_marker("skip") is None:
                chosen.add(name)
        broken = session.testsfailed and not option("continue_on_collection_errors")
        idle = option("collectonly") or option("setupplan", False) or broken
        if chosen and not idle:
            cells = tuple(cell for name, cell in self._cells.items() if name in chosen)
            try:
                self._measure(cells)
            except DlbenchError as error:
                raise pytest.UsageError(_message(error)) from error
        return (yield)

    def _measure(self, cells: tuple[Cell, ...]) -> None:
        plan = narrow_to(self._plan, cells)
        target = self._config.getoption("dlbench_store")
        profile = RunProfile(
            ceilings=False,
            waits_for_quiet=not self._config.getoption("dlbench_no_wait_for_quiet"),
            lines=lambda: (size_of(plan), memory_line(plan, self._machine)),
            resume_command="",  # a session is repeated
        )
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        with ExitStack() as stack:
            if capture is not None:
                stack.enter_context(capture.global_and_fixture_disabled())
            if reporter is not None:
                reporter.ensure_newline()
            if target is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dlbench-pytest-"))
                target = str(Path(folder) / "run.sqlite")
            store = stack.enter_context(delivery.opened(target, say))
            # Environments are not built, since that downloads files: `dlbench env build` does
            # it.
            run, _ = run_plan(
                plan,
                self._machine,
                store,
                profile,
                budget=Budget(self._budget),
                build_missing=False,
            )
            for record in store.records(run=run.id):
                self._records.setdefault(record.cell, []).append(record)
            (self._run,) = store.runs([run.id])

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add the machine as dlbench knows it."""
        machine_info[export.KEY] = export.machine_summary(
            self._machine.fingerprint, self._described
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_commit_info(self, commit_info: dict[str, Any]) -> None:
        """Add the run."""
        if self._run is not None:
            commit_info[export.KEY] = export.run_summary(self._run)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Add the run and the records of cells without a number, so that the file is complete."""
        if self._run is None:
            return
        shown = set()
        for benchmark in output_json["benchmarks"]:
            evidence = benchmark.get("extra_info", {}).get(export.KEY)
            if evidence is not None:
                shown.add(tuple(evidence["cell"].values()))
        missing: list[Record] = []
        for cell, records in self._records.items():
            if tuple(cell) not in shown:
                missing += records
        output_json[export.KEY] = export.header(self._run, self._described, missing)


def _tests_of_cells(items: Iterable[pytest.Item]) -> list[tuple[pytest.Item, str]]:
    """Return the tests that take a cell, each with the cell's id."""
    tests: list[tuple[pytest.Item, str]] = []
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if FIXTURE in parameters:
            tests.append((item, parameters[FIXTURE]))
    return tests


def _plan(config: pytest.Config, machine: Machine) -> Plan:
    disabled = config.getoption("benchmark_disable") and not config.getoption("benchmark_enable")
    given = SuiteOptions(
        **{key: config.getoption(f"dlbench_{key}") for key in names_of(SuiteOptions)}
    )
    own.register_adapters(given.adapter)
    own.register_steps(given.step)
    if disabled:
        # With --benchmark-disable pytest-benchmark calls what it would measure once, to see that it
        # works.
        given = replace(given, launches="1", interval=None, steps=1)
    plan = plan_of(
        config.getoption("dlbench_suite"), choices(given), machine, config.getoption("dlbench_seed")
    )
    check_count(plan, config.getoption("dlbench_yes"))
    return plan


def _message(error: Exception) -> str:
    """Return the message of an error in a session over a suite, with the options' names in pytest.

    Commands, between backticks, stay as they are.
    """
    axes = [axis.option[2:] for axis in (*AXIS_OPTIONS, *LIMITS)]
    names = {*OF_THE_SUITE, "suite", *axes}

    def rename(match: re.Match[str]) -> str:
        return f"--dlbench-{match[1]}" if match[1] in names else match[0]

    parts = str(error).split("`")
    parts[::2] = [re.sub(r"(?<![\w-])--([a-z][a-z-]*)", rename, part) for part in parts[::2]]
    return visible(f"dlbench: {'`'.join(parts)}")
